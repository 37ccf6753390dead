"""Goal    the package keeps what its py.typed promises: mypy --strict finds nothing, and a user's mistake is found.
Method  mypy with the package's own settings; then on a small program with one wrong argument."""

import inspect
import subprocess
import sys

import pytest

from conftest import PYTHON_PATH, SOURCE, child_environment

pytest.importorskip("mypy")
FOLDER = SOURCE / "client" / "python"


def mypy(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", "/dev/null", *arguments], cwd=cwd, text=True,
                          capture_output=True, check=False)


def test_strict():
    told = mypy("--config-file", "pyproject.toml", cwd=FOLDER)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_users_mistake_is_found(tmp_path):
    for package in ("cco", "mori_alias/mori"):
        assert (FOLDER / package / "py.typed").exists()
    (tmp_path / "user.py").write_text(
        "import cco\n\ndef use(group: cco.Group) -> str:\n    window = cco.Window(group, 'w', '4096')\n"
        "    reveal_type(window.address())\n    return window.view().ptr\n")
    told = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", "/dev/null", "user.py"],
                          cwd=tmp_path, text=True, capture_output=True, check=False,
                          env=child_environment(MYPYPATH=":".join(map(str, PYTHON_PATH))))
    assert 'incompatible type "str"; expected "int"' in told.stdout, told.stdout
    assert 'Revealed type is "builtins.int"' in told.stdout or 'Revealed type is "int"' in told.stdout, told.stdout
    assert "got \"int\", expected \"str\"" in told.stdout


def test_from_env_names_what_group_takes():
    """Not by **options, of which a type checker and an editor know nothing."""
    import cco

    group = inspect.signature(cco.Group.__init__).parameters
    from_env = dict(inspect.signature(cco.Group.from_env).parameters)
    from_env.pop("socket_path")
    assert from_env == {name: one for name, one in group.items() if name not in ("self", "client")}
