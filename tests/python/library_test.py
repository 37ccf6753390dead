"""Goal    the library is found where the documentation says, in that order, and what is wrong is said.
Method  interpreters of their own with each way of naming it, and stand-ins of another version or with less in them."""

import subprocess
import sys

import pytest

from conftest import LIBRARY, PYTHON_PATH, child_environment


def python(code, flags=(), **variables):
    environment = child_environment(**{name: value for name, value in variables.items() if value is not None})
    for name, value in variables.items():
        if value is None:
            environment.pop(name, None)
    ended = subprocess.run([sys.executable, *flags, "-c", code], env=environment, text=True, capture_output=True,
                           check=False)
    return ended.returncode, ended.stdout.strip(), ended.stderr.strip()


PRINT = "import cco\nprint(cco.library_path())"
CATCH = "import cco\ntry:\n    cco.library_path()\nexcept cco.Error as error:\n    print(type(error).__name__, error)"


def test_import_needs_no_library_and_no_framework():
    code = ("import sys, cco\nassert not {'numpy', 'torch', 'triton', 'flydsl'} & set(sys.modules)\n"
            "assert not any('libcco_client' in line for line in open('/proc/self/maps'))")
    assert python(code, CCO_LIBRARY="/nowhere.so") == (0, "", "")


def test_named():
    assert python(PRINT, CCO_LIBRARY=str(LIBRARY)) == (0, str(LIBRARY), "")


@pytest.mark.parametrize("wrong", ["/nowhere.so", "", "/tmp"])
def test_named_and_wrong(wrong):
    code, out, _ = python(CATCH, CCO_LIBRARY=wrong)
    assert code == 0 and out.startswith("NotFound NOT_FOUND: CCO_LIBRARY is") and repr(wrong) in out


def test_no_library(tmp_path):
    (tmp_path / "x.so").write_text("no library")
    _, out, _ = python(CATCH, CCO_LIBRARY=str(tmp_path / "x.so"))
    assert out.startswith("NotFound") and str(tmp_path / "x.so") in out
    _, out, _ = python(CATCH, CCO_LIBRARY=None)
    if out:  # Else one is installed here.
        assert "cco/lib" in out and "libcco_client.so.0" in out and "CCO_LIBRARY" in out


def test_installed():
    """As the dynamic linker finds it; the path is the file's."""
    code, out, err = python(PRINT, CCO_LIBRARY=None, LD_LIBRARY_PATH=str(LIBRARY.parent))
    assert (code, err) == (0, "") and out == str(LIBRARY.resolve())


def test_carried_comes_before_installed(tmp_path):
    import shutil

    shutil.copytree(PYTHON_PATH[0] / "cco", tmp_path / "cco", ignore=shutil.ignore_patterns("__pycache__"))
    carried = tmp_path / "cco" / "lib" / "libcco_client.so.0"
    carried.parent.mkdir(exist_ok=True)
    carried.symlink_to(LIBRARY.resolve())
    assert python(PRINT, CCO_LIBRARY=None, PYTHONPATH=str(tmp_path), LD_LIBRARY_PATH="/nowhere")[1] == str(carried)


def stand_in(folder, source):
    path = folder / "libcco_client.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=source, text=True, check=True)
    return str(path)


def test_another_version_is_refused(tmp_path):
    path = stand_in(tmp_path, "unsigned cco_version(void) { return 20300; }")
    _, out, _ = python(CATCH, CCO_LIBRARY=path)
    assert out.startswith("FailedPrecondition") and path in out and "version 2.3" in out and "needs 0.1" in out


def test_an_older_library_says_what_it_lacks(tmp_path):
    path = stand_in(tmp_path, "unsigned cco_version(void) { return 100; }")
    _, out, _ = python(CATCH.replace("cco.library_path()", "cco.UniqueId.create()"), CCO_LIBRARY=path)
    assert out.startswith("FailedPrecondition") and "has no cco_unique_id_create" in out and path in out
