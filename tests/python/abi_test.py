"""Goal    the ctypes structs, constants and prototypes are those of the C headers, all of them.
Method  a C program, made from the Python side's names, prints the C side's sizes, offsets and values;
        the header's text names every function, struct and macro there is."""

import ctypes
import re
import subprocess

import pytest

from conftest import LIBRARY, SOURCE

from cco import _abi
from cco.errors import Status

HEADERS = [SOURCE / "client/include/cco/cco.h", SOURCE / "device/include/cco/device/abi.h"]
TEXT = "\n".join(re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL) for header in HEADERS)
# Only for C programs: what is not a number, what wraps it, and what only the daemon's page has.
NOT_BOUND = re.compile(r"API$|_H_$|ABI_A|ABORT_|VERSION_M|VERSION_P|MAX_RANKS_")
OF_DAEMON = {"cco_notice_page"}


def structs():
    """C name -> ctypes struct."""
    found = {}
    for name, value in vars(_abi).items():
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and hasattr(value, "_fields_"):
            found["cco" + re.sub(r"([A-Z])", lambda match: "_" + match.group(1).lower(), name)] = value
    return found


def constants():
    return {f"CCO_{name}": value for name, value in vars(_abi).items() if name.isupper() and isinstance(value, int)}


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    """What the C compiler says, by name."""
    folder = tmp_path_factory.mktemp("abi")
    lines = []
    for name, struct in structs().items():
        lines.append(f'printf("{name} %lld\\n", (long long)sizeof({name}));')
        for field, *_ in struct._fields_:
            lines.append(f'printf("{name}.{field} %lld\\n", (long long)offsetof({name}, {field}));')
            lines.append(f'printf("{name}.{field}.size %lld\\n", (long long)sizeof((({name}*)0)->{field}));')
    for name in constants():
        lines.append(f'printf("{name} %lld\\n", (long long)({name}));')
    for status in Status:
        lines.append(f'printf("CCO_{status.name} %lld\\n", (long long)CCO_{status.name});')
    source = folder / "print.c"
    source.write_text('#include <stdio.h>\n#include "cco/cco.h"\nint main(void) {\n' + "\n".join(lines)
                      + "\nreturn 0;\n}\n")
    subprocess.run(["gcc", "-std=c11", "-Wall", "-Werror", f"-I{SOURCE}/client/include", f"-I{SOURCE}/device/include",
                    str(source), "-o", str(folder / "print")], check=True)
    told = subprocess.run([str(folder / "print")], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in told.splitlines())}


@pytest.mark.parametrize("name", structs())
def test_layout(in_c, name):
    struct = structs()[name]
    assert ctypes.sizeof(struct) == in_c[name]
    for field, *_ in struct._fields_:
        descriptor = getattr(struct, field)
        assert (descriptor.offset, descriptor.size) == (in_c[f"{name}.{field}"], in_c[f"{name}.{field}.size"]), field
    covered = sum(getattr(struct, field).size for field, *_ in struct._fields_)
    declared = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), TEXT, re.DOTALL).group(1)
    assert len(re.findall(r";", declared)) == len(struct._fields_), "a field is missing"
    assert covered <= in_c[name]


def test_constants(in_c):
    for name, value in constants().items():
        assert in_c[name] == ctypes.c_longlong(value).value, name
    for status in Status:
        assert in_c[f"CCO_{status.name}"] == status


def test_no_constant_is_missing():
    macros = {name for name in re.findall(r"#define (CCO_\w+) [^\n]", TEXT) if not NOT_BOUND.search(name)}
    assert macros - {"CCO_ABI_AT"} <= set(constants())
    enumerators = set(re.findall(r"^  (CCO_\w+) = \d+", TEXT, re.MULTILINE))
    assert enumerators == {f"CCO_{status.name}" for status in Status}


def test_no_struct_is_missing():
    assert set(re.findall(r"typedef struct (cco_\w+) \{", TEXT)) - OF_DAEMON == set(structs())


def functions():
    """C name -> (result, parameters), as the header declares them."""
    found = re.findall(r"CCO_API ([\w\s*]+?)\b(cco_\w+)\(([^)]*)\);", TEXT)
    return {name: (result.strip(), [] if parameters.strip() == "void" else
                   [" ".join(one.split()) for one in parameters.split(",")])
            for result, name, parameters in found}


def test_every_function_is_bound():
    assert functions().keys() == _abi.PROTOTYPES.keys()
    assert len(functions()) == len(re.findall(r"^CCO_API ", TEXT, re.MULTILINE))


NUMBERS = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "uint64_t": ctypes.c_uint64,
           "cco_status": ctypes.c_int}


def as_ctypes(declared):
    """The ctypes type of one parameter, as _abi has it."""
    words = declared.replace("const ", "").rsplit(" ", 1)[0].replace(" ", "")
    if words in NUMBERS:
        return NUMBERS[words]
    if words == "char*":
        return ctypes.c_char_p
    if words.endswith("**"):
        return ctypes.POINTER(ctypes.c_void_p)
    pointed = words.removesuffix("*")
    if pointed in structs():
        return ctypes.POINTER(structs()[pointed])
    if pointed in NUMBERS:
        return ctypes.POINTER(NUMBERS[pointed])
    return ctypes.c_void_p  # A handle, or void*.


@pytest.mark.parametrize("name", _abi.PROTOTYPES)
def test_prototype(name):
    result, parameters = functions()[name]
    bound_result, bound = _abi.PROTOTYPES[name]
    assert [as_ctypes(one) for one in parameters] == bound
    expected = {"void": None, "const char*": ctypes.c_char_p}.get(result, NUMBERS.get(result))
    assert bound_result == expected


def test_the_library_has_them_all():
    library = ctypes.CDLL(str(LIBRARY))
    assert [name for name in _abi.PROTOTYPES if not hasattr(library, name)] == []


def test_status_names_and_versions_are_the_librarys():
    import cco
    from cco._library import library

    for status in Status:
        assert library().cco_status_name(status) == f"CCO_{status.name}".encode()
    declared = dict(re.findall(r"#define CCO_VERSION_(\w+) (\d+)", TEXT))
    assert cco.version() == f"{declared['MAJOR']}.{declared['MINOR']}.{declared['PATCH']}" == cco.__version__
