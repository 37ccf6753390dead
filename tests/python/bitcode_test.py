"""Goal    the bitcode has the table's functions, of its types and no others; asks for nothing that is not in it; names
        no GPU; and what becomes of it on each GPU keeps the memory orders.
Method  LLVM's tools on the files of the build folder, and on single functions that are compiled for each GPU."""

import re
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, SOURCE
from cco import device

sys.path.insert(0, str(SOURCE / "tests/tidy/isa"))
import isa_check  # noqa: E402

FOLDER = BUILD / "device/bitcode"
NAME = re.compile(r'@"?([\w.$]+)"?\(')
TYPES = {"u64": "i64", "int": "i32", "void": "void"}


def tool(name, *versions):
    """The first of LLVM's tools that is there."""
    for version in versions:
        if found := shutil.which(f"{name}-{version}"):
            return found
    pytest.skip(f"no {name}-{versions[0]}")


def run(*command, stdin=None):
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=stdin is None, input=stdin, timeout=120,
                           check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(params=device.TARGETS)
def target(request):
    if not (FOLDER / f"cco_{request.param}.bc").exists():
        pytest.skip(f"no device bitcode in {FOLDER}: it needs clang++-19")
    return request.param


@pytest.fixture
def text(target):
    return run(tool("llvm-dis", 19, 22), "-o", "-", FOLDER / f"cco_{target}.bc")


def test_functions_and_types_are_the_table(text):
    found = {}
    for line in re.findall(r"^define (?!internal|linkonce|weak)(.*)$", text, re.MULTILINE):
        words, _, rest = line.partition("@")
        parameters = re.sub(r"range\([^)]*\)", "", rest[rest.index("(") + 1:rest.rindex(")")])
        types = re.findall(r"\b(i\d+)\b(?=[^,]*%)", parameters)
        found[rest[:rest.index("(")]] = (re.findall(r"\b(void|i\d+)$", words.strip())[0], types)
    wanted = {symbol.name: (TYPES[symbol.operation.result], [TYPES[p.c_type] for p in symbol.operation.parameters])
              for symbol in device.symbols()}
    assert found == wanted


def test_nothing_is_missing_and_no_gpu_is_named(text):
    declared = {name for line in re.findall(r"^declare .*$", text, re.MULTILINE) for name in NAME.findall(line)}
    assert {name for name in declared if not name.startswith("llvm.")} == set()
    assert "target-cpu" not in text and "target-features" not in text and "!llvm.module.flags" not in text
    assert re.search(r"^@.* = external", text, re.MULTILINE) is None
    _, _, body = text.partition("\n")  # The first line is the disassembler's: the file's name.
    assert str(BUILD) not in body and str(SOURCE) not in body


# What must come of a function on each GPU, in this order: on AMD's, names of isa_check's instructions. The two have the
# same functions.
AMD = {
    "cco_lsa_signal_add__block": ("drain", "barrier", "wb", "wait", "add"),
    "cco_lsa_signal_set__warp": ("wb", "wait", "store"),
    "cco_lsa_wait_signal__thread": ("load", "load_wait", "inv"),
    "cco_lsa_put__block": ("load16",) * 4 + ("store16",) * 4,
    "cco_system_fence": ("wb", "wait", "inv"),
    "cco_sdma_wait_signal__warp": ("load", "load_wait", "inv"),
    "cco_gda_wait_signal__block": ("load", "load_wait", "inv"),
    "cco_tdm_put__block": ("tensor_load", "tensor_wait", "tensor_store"),
}
PTX = {
    "cco_lsa_signal_add__block": (r"bar\.sync", r"red\.release\.sys\.global\.add\.u64"),
    "cco_lsa_signal_set__warp": (r"bar\.warp\.sync", r"st\.release\.sys\.global\.u64"),
    "cco_lsa_wait_signal__thread": (r"ld\.relaxed\.sys\.global\.u64", r"fence\.acquire\.sys"),
    "cco_lsa_put__block": (r"ld(\.global)?\.v4\.[bu]32",) * 4 + (r"st(\.global)?\.v4\.[bu]32",) * 4,
    "cco_system_fence": (r"fence\.release\.sys", r"fence\.acquire\.sys"),
    "cco_tdm_put__block": (r"mbarrier\.init", r"cp\.async\.bulk\.shared", r"cp\.async\.bulk\.global"),
    "cco_sdma_wait_signal__warp": (r"ld\.relaxed\.sys\.global\.u64", r"fence\.acquire\.sys"),
    "cco_gda_wait_signal__block": (r"ld\.relaxed\.sys\.global\.u64", r"fence\.acquire\.sys"),
}
# Before gfx1250 there is no mover: the block moves the bytes itself, and waits for them before it goes on.
MOVED_BY_THE_BLOCK = (r"(global|flat)_load_dwordx4", r"(global|flat)_store_dwordx4", r"s_waitcnt vmcnt\(0\)",
                      r"s_barrier")


def expected(target, function):
    """Regular expressions of what must come of it."""
    if target == "nvptx64":
        return PTX[function]
    if function == "cco_tdm_put__block" and target != "gfx1250":
        return MOVED_BY_THE_BLOCK
    table = {**isa_check.COMMON, **isa_check.TARGETS[target]}
    # Immediates are written here as in the source, there as a disassembler writes them.
    return [table[name].replace(" 0x0", " (0x)?0") for name in AMD[function] if table[name] is not None]


def expect_in_order(patterns, code, what):
    position = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(code, position)
        assert found, f"{what}: no '{pattern}' behind {position} characters of\n{code}"
        position = found.end()


@pytest.mark.parametrize("function", sorted(AMD | PTX))
def test_memory_orders_survive(target, function):
    wanted = expected(target, function)
    assert wanted
    one = subprocess.run([tool("llvm-extract", 19, 22), f"-func={function}", "--recursive",
                          str(FOLDER / f"cco_{target}.bc")], capture_output=True, timeout=120, check=True).stdout
    cpu, features = ("sm_90", ["-mattr=+ptx83"]) if target == "nvptx64" else (target, [])
    compiler = tool("llc", 22) if target in ("gfx950", "gfx1250") else tool("llc", 19, 22)
    code = run(compiler, f"-mcpu={cpu}", *features, "-o", "-", stdin=one).decode()
    expect_in_order(wanted, code, f"{function} on {target}")
