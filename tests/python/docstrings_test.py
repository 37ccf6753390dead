"""Goal    help() says something of everything that a user may name.
Method  every public name of every face; of classes their public methods and properties; of packages their modules."""

import ctypes
import importlib
import inspect

import pytest

from conftest import child_environment  # noqa: F401: finds the package

FACES = {"cco": None, "cco.device": None, "cco.errors": None, "cco.torch": "torch", "cco.triton": "triton",
         "cco.flydsl": "flydsl", "mori.cco": None, "mori.cco.cco": None}
# Fields of plain data: comments at the class say what they are.
DATA = (tuple, ctypes.Structure, int)


def public(face):
    """Names and what they are."""
    module = importlib.import_module(face)
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items()
        if name[0] != "_" and getattr(value, "__module__", "").startswith(face.partition(".")[0])]
    yield face, module
    for name in names:
        value = getattr(module, name)
        yield f"{face}.{name}", value
        if inspect.isclass(value) and not issubclass(value, DATA):
            members = [(one, inspect.getattr_static(value, one)) for one in dir(value)]
        elif inspect.ismodule(value):
            members = list(vars(value).items())
        else:
            continue
        yield from ((f"{face}.{name}.{one}", member) for one, member in members if one[0] != "_")


@pytest.mark.parametrize("face", FACES)
def test_everything_has_a_docstring(face):
    if FACES[face] is not None:
        pytest.importorskip(FACES[face])
    silent = []
    for name, value in public(face):
        if isinstance(value, (int, str, float, dict, tuple, type(None))) or inspect.isdatadescriptor(value) and not \
                isinstance(value, property):
            continue  # A constant, or a field.
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        text = value.__doc__ if not callable(value) else inspect.getdoc(value)
        if inspect.isclass(value) and not value.__dict__.get("__doc__"):
            text = None  # What it inherits is not about it.
        if not text or text.startswith(f"{getattr(value, '__name__', '')}("):
            silent.append(name)
    assert not silent, " ".join(silent)
