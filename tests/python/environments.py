"""Environments of one interpreter and some packages, for trying the tests with several of either."""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAKE_S, TESTS_S = 1800, 1200


def release(python):
    """(3, 12, 1) of an interpreter, None if it is none."""
    code = "import sys; print(*sys.version_info[:3])"
    try:
        told = subprocess.run([python, "-c", code], text=True, capture_output=True, timeout=30, check=False)
        return tuple(map(int, told.stdout.split())) or None if told.returncode == 0 else None
    except OSError:
        return None


def find(version):
    """The newest interpreter of a version, from pyenv's folder and PATH; None: there is none."""
    folders = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [str(path) for path in folders.glob(f"{version}.*/bin/python")]
    candidates += filter(None, [shutil.which(f"python{version}")])
    wanted = tuple(map(int, version.split(".")))
    known = {path: release(path) for path in candidates}
    fitting = [path for path, found in known.items() if found is not None and found[:2] == wanted]
    return max(fitting, key=lambda path: known[path], default=None)


def passes(name, python, folder, build, packages, tests, pip=()):
    """Makes the environment `folder` unless it is there, with these packages, and runs these tests; whether they pass.

    Prints what is tried, under `name`, with the releases that pip has chosen. `pip` are further arguments of pip.
    """
    mine = folder / "bin" / "python"
    install = [str(mine), "-m", "pip", "install", "-q", "--disable-pip-version-check", *pip, "pytest", *packages]
    code = "import sys; from importlib.metadata import version as v; print(', '.join(n+' '+v(n) for n in sys.argv[1:]))"
    names = [package.split("=")[0] for package in packages]
    try:
        if not mine.exists():
            subprocess.run([python, "-m", "venv", str(folder)], check=True, timeout=MAKE_S)
        subprocess.run(install, check=True, timeout=MAKE_S)
        chosen = subprocess.check_output([str(mine), "-c", code, *names], text=True, timeout=60).strip()
        print(f"{name} ({chosen}):", flush=True)
        files = [str(HERE / f"{test}_test.py") for test in tests]
        ended = subprocess.run([str(mine), str(HERE / "run"), "--build", str(build), *files], timeout=TESTS_S,
                               check=False)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"{name}: {error}", flush=True)
        return False
    return ended.returncode == 0
