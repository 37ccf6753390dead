"""Goal    every method of the table is a function of `cco.triton`, compiles for NVIDIA and AMD, and becomes the
        right instructions; what is wrong is said when the kernel is compiled.
Method  no GPU: kernels are compiled for each target with the build folder's bitcode, and their assembly is read."""

import os
import re
import runpy
import tempfile
from pathlib import Path

import pytest

from conftest import BUILD, SOURCE

pytest.importorskip("triton", reason="no triton")
os.environ["CCO_BITCODE_DIR"] = str(BUILD / "device/bitcode")

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.compiler.errors import CompilationError  # noqa: E402

from cco import device  # noqa: E402
from cco import triton as cco  # noqa: E402
from cco.triton import CoopScope, Gda, Lsa  # noqa: E402
from mori.cco.device import ops  # noqa: E402
from mori.ir.triton import cco as mori  # noqa: E402

if not (BUILD / "device/bitcode/cco_nvptx64.bc").exists():
    pytest.skip(f"no device bitcode in {BUILD}: it needs clang++-19", allow_module_level=True)

from triton_kernels import Kernels  # noqa: E402

KERNELS = Kernels()  # As the GPU tests run them.
TARGETS = {"cuda": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64),
           "gfx950": GPUTarget("hip", "gfx950", 64)}


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.fixture(params=TARGETS)
def target(request):
    return request.param


def compile_for(target, kernel, signature, constants=None, num_warps=4):
    """The assembly of `kernel`, a jit function."""
    signature = {name: signature.get(name, "i64") for name in kernel.arg_names} | {
        name: "constexpr" for name in constants or {}}
    source = ASTSource(kernel, signature, constants or {})
    options = {"extern_libs": cco.get_extern_libs(TARGETS[target]), "num_warps": num_warps}
    made = triton.compile(source, target=TARGETS[target], options=options).asm
    declared = re.findall(r"^declare .*@([\w.]+)\(", made["llir"], re.MULTILINE)
    assert [name for name in declared if not name.startswith("llvm.")] == []
    return made["ptx" if target == "cuda" else "amdgcn"]


def refused(kernel, match, **constants):
    with pytest.raises(CompilationError) as caught:
        compile_for("cuda", kernel, {}, constants)
    text = f"{caught.value} {caught.value.__cause__}"
    assert re.search(match, text), text


def expect_in_order(code, *patterns):
    position = 0
    for pattern in patterns:
        found = re.compile(pattern).search(code, position)
        assert found, f"no '{pattern}' behind character {position} of\n{code}"
        position = found.end()


@triton.jit
def put_and_signal(dev_comm, window, peer, nbytes, out):
    result = cco.Lsa.put(dev_comm, peer.to(tl.int32), window, 0, window, nbytes, nbytes)
    cco.Lsa.signal(dev_comm, peer.to(tl.int32), 3, delta=1, coop=cco.CoopScope.BLOCK)
    tl.store(out, result)


@triton.jit
def wait_and_read(dev_comm, window, out):
    result = Lsa.wait_signal(dev_comm, 3, 1, timeout_ns=1_000_000_000, coop=CoopScope.BLOCK)
    pointer = cco.Window.local_ptr(window).to(tl.pointer_type(tl.float32))
    lane = tl.arange(0, 128)
    tl.store(out + lane, tl.load(pointer + lane), mask=cco.status_of(result) == cco.WaitStatus.ARRIVED)


def test_a_put_and_a_signal(target):
    code = compile_for(target, put_and_signal, {"out": "*i64"})
    if target == "cuda":
        # Blocks are not laid out in the order in which they run: two looks.
        expect_in_order(code, *[r"ld(\.global)?\.v4\.[bu]32"] * 4, *[r"st(\.global)?\.v4\.[bu]32"] * 4)
        expect_in_order(code, r"bar\.sync", r"red\.release\.sys")
        assert "call" not in code
    else:
        expect_in_order(code, "global_load_dwordx4", "global_store_dwordx4", r"s_waitcnt vmcnt\(0\)",
                        "buffer_wbl2 sc0 sc1", r"s_waitcnt vmcnt\(0\)", "global_atomic_add_x2 .*sc1")
        assert "s_swappc" not in code


def test_a_wait_and_what_it_lets_read(target):
    code = compile_for(target, wait_and_read, {"out": "*fp32"})
    if target == "cuda":
        expect_in_order(code, r"ld\.relaxed\.sys\.global\.u64", r"fence\.acquire\.sys", r"ld\.global", r"st\.global")
        assert "globaltimer" in code
    else:
        expect_in_order(code, "global_load_dwordx2 .*sc0 sc1", "buffer_inv sc0 sc1", "(buffer|global)_load_dword ",
                        "(buffer|global)_store_dword ")


@triton.jit
def gda_put(dev_comm, window, peer):
    cco.Gda.put(dev_comm, peer.to(tl.int32), window, 0, window, 0, 4096, signal_op=cco.SignalOp.INC,
                coop=CoopScope.WARP)
    Gda.flush_peer(dev_comm, peer.to(tl.int32))
    cco.Gda.wait_signal(dev_comm, 0, 1, coop=CoopScope.WARP)


def test_results_need_not_be_used(target):
    code = compile_for(target, gda_put, {}, num_warps=1)
    orders = {"cuda": (r"fence\.release\.sys|st\.release|red\.release", r"fence\.acquire\.sys")}
    expect_in_order(code, *orders.get(target, ("buffer_wbl2 sc0 sc1", "buffer_inv sc0 sc1")))


def given(row, symbol):
    """Constants by which a kernel of triton_kernels calls this symbol."""
    values = {name: value for axis, choice in zip(row.axes, symbol.choices)
              for name, value in zip(axis.arguments, choice.values)}
    return values | {name: allowed[-1] for name, allowed in row.limits}


def front_end(kernel, target, constants):
    """The first representation of `kernel`: nothing is linked yet."""
    from triton._C.libtriton import ir
    backend = triton.compiler.make_backend(TARGETS[target])
    signature = {name: "constexpr" if name in constants else "i64" for name in kernel.arg_names} | {"out": "*i64"}
    source = ASTSource(kernel, signature, constants)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    return str(source.make_ir(TARGETS[target], options, backend.get_codegen_implementation(options),
                              backend.get_module_map(), context))


def test_every_choice_of_every_method_is_its_symbol():
    made = set()
    for row in device.OPERATIONS:
        if not row.face:
            continue
        for symbol in row.symbols():
            text = front_end(KERNELS.function(f"{row.face}.{row.method}"), "cuda", given(row, symbol))
            assert f'symbol = "{symbol.name}"' in text and "pure = false" in text, text
            made.add(symbol.name)
    assert made == {symbol.name for symbol in device.symbols() if symbol.operation.face}
    faces = {(space, name) for space in device.NAMESPACES for name in vars(getattr(cco, space)) if name[0] != "_"}
    assert faces == {(row.face, row.method) for row in device.OPERATIONS if row.face}


# One of each family, all the way.
WHOLE = [("DevComm", "system_fence"), ("DevComm", "team_to_world"), ("Lsa", "barrier"), ("Lsa", "put_value"),
         ("Sdma", "put"), ("Sdma", "quiet"), ("Tdm", "put"), ("Gda", "put_value"), ("Gda", "world_barrier")]


@pytest.mark.parametrize("method", WHOLE, ids=lambda method: ".".join(method))
def test_a_method_of_each_family_links(target, method):
    row = device.methods(method[0])[method[1]]
    constants = given(row, list(row.symbols())[-1])
    assert compile_for(target, KERNELS.function(".".join(method)), {"out": "*i64"}, constants)


@triton.jit
def scope_of_the_kernel(dev_comm, scope):
    cco.Lsa.signal(dev_comm, 0, coop=scope)


@triton.jit
def aggregate_by_block(dev_comm, window):
    cco.Gda.get(dev_comm, 1, window, 0, window, 0, 8, coop=cco.CoopScope.BLOCK, thread_mode=cco.ThreadMode.AGGREGATE)


@triton.jit
def signal_without_one(dev_comm):
    cco.Gda.signal(dev_comm, 1, signal_op=cco.SignalOp.NONE)


@triton.jit
def a_tensor(dev_comm):
    cco.Lsa.signal(dev_comm, tl.arange(0, 32))


@triton.jit
def a_fraction(dev_comm):
    cco.Lsa.signal(dev_comm, 0, delta=1.5)


@triton.jit
def by_the_grid(dev_comm):
    cco.Lsa.barrier(dev_comm, coop=cco.CoopScope.GRID)


@triton.jit
def unknown_argument(dev_comm):
    cco.Lsa.barrier(dev_comm, scope=1)


@pytest.mark.parametrize("kernel, match", [
    (scope_of_the_kernel, r"Lsa\.signal: coop must be known when the kernel is compiled"),
    (aggregate_by_block, r"Gda\.get\(coop=2, thread_mode=1\): .*AGGREGATE with THREAD"),
    (signal_without_one, r"Gda\.signal\(signal_op=0\): signal_op takes 1, 2"),
    (a_tensor, r"Lsa\.signal: peer is a scalar, not a tensor of shape"),
    (a_fraction, r"Lsa\.signal: delta is an integer, not fp32"),
    (by_the_grid, r"Lsa\.barrier\(coop=3\): coop takes THREAD, WARP, BLOCK"),
    (unknown_argument, r"unexpected keyword argument 'scope'"),
], ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_said_when_compiled(kernel, match):
    refused(kernel, match)


def test_other_bitcode_is_another_kernel(tmp_path, monkeypatch):
    monkeypatch.setenv("CCO_BITCODE_DIR", str(tmp_path))
    file = tmp_path / "cco_gfx942.bc"
    file.write_bytes(b"one")
    first = cco.get_extern_libs("gfx942:sramecc+:xnack-")
    file.write_bytes(b"another")
    second = cco.get_extern_libs("gfx942")
    assert first["cco"] == second["cco"] == str(file) and first != second


def test_without_a_gpu_a_target_has_to_be_named(monkeypatch):
    from triton.runtime import driver

    def no_gpu():
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    monkeypatch.setattr(type(driver), "active", property(lambda _: no_gpu()))
    with pytest.raises(RuntimeError, match='0 active drivers.*target="cuda"'):
        cco.get_extern_libs()


def test_an_unknown_gpu_is_named():
    with pytest.raises(ValueError, match="gfx1100"):
        cco.get_extern_libs("gfx1100")




@triton.jit
def for_mori(dev_comm, window, out):
    mori.Gda.put(dev_comm, 1, window, 0, window, 64, 64, 0, mori.SignalOp.ADD, 2, 5, mori.CoopScope.WARP)
    mori.Gda.wait_signal(dev_comm, 2, 5, coop=mori.CoopScope.WARP)
    mori.Sdma.put(dev_comm, 1, window, 0, window, 64, 64, 0, coop=mori.CoopScope.WARP, signal=True, aggregate=False)
    mori.Sdma.quiet(dev_comm, 1, coop=mori.CoopScope.WARP)
    tl.store(out, mori.DevComm.rank(dev_comm) + mori.Gda.read_signal(dev_comm, 2).to(tl.int32))


def test_a_kernel_written_for_mori(target):
    assert compile_for(target, for_mori, {"out": "*i32"}, num_warps=1)


def mori_symbol(name):
    """What is called for MORI's function of that name: the symbol of the same choices that has a result."""
    symbol = ops.CCO_DEVICE_FUNCTIONS[name]["symbol"]
    row = next(found for found in device.symbols() if found.name == symbol).operation
    if row.face:
        return symbol
    if name == "gda_reset_signal":
        return "cco_gda_consume_signal"
    if name == "sdma_quiet_queue":
        return "cco_sdma_quiet_queue_for__thread"
    base, *tags = symbol.split("__")
    if base in ("cco_sdma_put", "cco_sdma_get"):
        scope, _, without = tags[0].partition("_")
        tags = [scope, "none" if without else "local"]
    elif base in ("cco_gda_put", "cco_gda_put_value", "cco_gda_signal"):
        tags = tags[:-1] + (["u64"] if base == "cco_gda_put_value" else [])
    return "__".join([f"{base}_for", *tags])


@pytest.fixture(scope="module")
def mori_kernels():
    """A kernel for each of MORI's 68 functions; arguments are the kernel's, in the order of MORI's table."""
    text = "import triton\nimport triton.language as tl\nfrom mori.ir.triton import cco\n"
    for name, entry in ops.CCO_DEVICE_FUNCTIONS.items():
        names = ", ".join(f"a{place}" for place in range(len(entry["args"]) or 1))
        text += f"\n\n@triton.jit\ndef {name}(out, {names}):\n    tl.store(out, cco.{name}({names}))\n"
    with tempfile.TemporaryDirectory(prefix="cco-kernels-") as folder:
        (Path(folder) / "mori_kernels.py").write_text(text, encoding="utf-8")
        yield runpy.run_path(f"{folder}/mori_kernels.py")


def test_every_function_of_mori_is_its_symbol(mori_kernels):
    """Names as MORI's; the arguments arrive in MORI's order; what MORI's symbol chooses is chosen."""
    known = {symbol.name: symbol.operation for symbol in device.symbols()}
    assert set(ops.CCO_DEVICE_FUNCTIONS) < set(mori.__all__)
    for name, entry in ops.CCO_DEVICE_FUNCTIONS.items():
        text = front_end(mori_kernels[name], "cuda", {})
        wanted = mori_symbol(name)
        assert f'symbol = "{wanted}"' in text, f"{name} is not {wanted}:\n{text}"
        if name == "system_fence":
            continue
        ours = [parameter.name for parameter in known[wanted].parameters]
        theirs = [parameter.name.replace("flags", "aggregate") for parameter in known[entry["symbol"]].parameters]
        given = operands(text)
        assert [given[ours.index(parameter)] for parameter in theirs] == [f"%a{place}" for place in range(len(theirs))]
        if "signal_op" in ours:
            action = {"none": "0", "inc": "1", "add": "2"}[entry["symbol"].rsplit("__", 1)[1]]
            assert given[ours.index("signal_op")] == action, name


def operands(text):
    """What each operand of the call was made of: an argument of the kernel, or a constant."""
    made = dict(re.findall(r"(%\S+) = \S+ (.*)", text))

    def origin(value):
        while value in made:
            constant = re.match(r"(-?\d+|true|false) : |.*dense<", made[value])
            if constant:
                return constant.group(1)
            value = re.match(r"(%\w+)", made[value]).group(1)
        return value

    (call,) = re.findall(r"tt\.extern_elementwise (%[^{]*) \{", text)
    return [origin(value.strip()) for value in call.split(",")]


@pytest.mark.parametrize("name", ["lsa_ptr", "system_fence", "sdma_put_warp_ns", "gda_put_iw_inc",
                                  "gda_wait_signal_block"])
def test_functions_of_mori_link(target, mori_kernels, name):
    assert compile_for(target, mori_kernels[name], {"out": "*i64"}, num_warps=1)


@triton.jit
def raw_for_mori(dev_comm, window, out):
    rank = mori.devcomm_lsa_rank(dev_comm)
    mori.sdma_put_thread(dev_comm, rank, window, 0, window, 64, 64, 0, mori.SdmaOptFlags.AGGREGATE)
    mori.sdma_quiet_queue(dev_comm, rank, 0)
    mori.system_fence(rank == 0)
    tl.store(out, mori.lsa_ptr(window, rank, 8))


def test_a_kernel_of_functions_written_for_mori(target):
    assert compile_for(target, raw_for_mori, {"out": "*i64"}, num_warps=1)


def kernels_of(path):
    """The jit functions of a page's programs, in a file as Triton wants it."""
    programs = re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    file = Path(tempfile.mkdtemp(prefix="cco-page-")) / "page.py"
    file.write_text("\n\n".join(programs), encoding="utf-8")
    space = runpy.run_path(str(file))
    return [value for value in space.values() if isinstance(value, triton.runtime.JITFunction)]


POINTERS = {"results": "*i64", "status": "*i32", "rank": "*i32", "values": "*fp32"}
NUMBERS = {"peer": "i32", "count": "i32", "ranks": "i32"}


def test_the_page(target):
    """Every kernel on the page compiles as it stands."""
    kernels = kernels_of(SOURCE / "client/python/docs/triton.md")
    assert [kernel.__name__ for kernel in kernels] == ["send", "receive", "wait_and_tell", "scatter"]
    for kernel in kernels:
        constants = {"BLOCK": 256} if "BLOCK" in kernel.arg_names else {}
        assert compile_for(target, kernel, POINTERS | NUMBERS, constants)


LAUNCH = """
class Launched(Exception):
    pass

class send:
    def __class_getitem__(cls, grid):
        def launch(*arguments, extern_libs):
            assert grid == (1,) and set(map(type, arguments)) == {int} and 0 not in arguments[:2]
            raise Launched
        return launch

cco.get_extern_libs = lambda: {}
try:
    exchange(1 << 20)
except Launched:
    print("launched")
"""


def test_the_host_part_of_the_page_runs_as_far_as_the_launch(processes):
    """Two ranks on the driver host, which has no GPU for the kernel."""
    page = (SOURCE / "client/python/docs/triton.md").read_text(encoding="utf-8")
    (program,) = [one for one in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
                  if "Group.from_env" in one]
    program = f"from cco import triton as cco\n{program}{LAUNCH}"
    assert [ended.out.strip() for ended in processes(2, program)] == ["launched"] * 2


EXAMPLES = {"triton_put_wait": ["send", "receive"], "triton_gemm_all_gather": ["multiply", "await_tiles"]}
EXAMPLE_TYPES = {"results": "*i64", "wrong": "*i32", "out": "*i64", "a": "*fp16", "b": "*fp16"} | {
    name: "i32" for name in ("peer", "from_offset", "to_offset", "nbytes", "offset", "count", "first", "first_row",
                             "columns", "depth", "size", "tiles")}


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_kernels_of_examples(target, example):
    pytest.importorskip("torch")
    found = runpy.run_path(str(SOURCE / f"client/python/examples/{example}.py"))
    kernels = [value for value in found.values() if isinstance(value, triton.runtime.JITFunction)]
    assert [kernel.__name__ for kernel in kernels] == EXAMPLES[example]
    for kernel in kernels:
        constants = {name: value for name, value in (("TILE", 64), ("BLOCK", 1024)) if name in kernel.arg_names}
        code = compile_for(target, kernel, EXAMPLE_TYPES, constants)
        if kernel.__name__ == "multiply":  # Tiles go straight to a peer's address, and then the signal.
            expect_in_order(code, *((r"st\.global", r"red\.release\.sys") if target == "cuda"
                                    else (r"global_store_(short|dword)", "buffer_wbl2 sc0 sc1", "global_atomic_add")))
