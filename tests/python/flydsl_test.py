"""Goal    FlyDSL kernels call cco's entry points: all of them, with the types of the table, and the
        code that comes out for gfx942 and gfx950 is linked and keeps their memory orders.
Method  the face is compared with the table of entry points by recording its calls; kernels are
        compiled by the installed flydsl with no GPU, and their IR, assembly and code objects read.
        Nothing is run."""

import inspect
import itertools
import re
from pathlib import Path

import pytest

import flydsl_support
from conftest import BUILD, SOURCE
from cco import device

ARCHS = ("gfx942", "gfx950")
KERNELS = Path(__file__).with_name("flydsl_kernels.py")
if flydsl_support.missing():
    pytest.skip(f"FlyDSL: {flydsl_support.missing()}", allow_module_level=True)

import flydsl_kernels  # noqa: E402  Only here: it needs flydsl.
from cco import flydsl as cco  # noqa: E402

NOT_OF_THE_TABLE = {  # What handles have beside it.
    "DevComm": {"dev_comm", "gda", "lsa", "ptr", "sdma", "tdm"},
    "Gda": {"ctx"},
    "Window": {"handle", "win"},
}


def combinations(operation):
    """Values of the row's axes, every combination that its tags have."""
    for choices in itertools.product(*(axis.choices for axis in operation.axes)):
        yield dict(pair for axis, choice in zip(operation.axes, choices)
                   for pair in zip(axis.arguments, choice.values))


@pytest.fixture
def recorded(monkeypatch):
    """The symbols that methods call, with their arguments, instead of calling them."""
    calls = []
    monkeypatch.setattr("cco.flydsl._link.call", lambda *call: calls.append(call))
    return calls


def test_every_row_of_the_table_has_a_method_and_none_is_beside_it(recorded):
    for operation in device.OPERATIONS:
        if not operation.face:
            assert operation.of_mori, f"{operation.base}: nobody can ask for it"
            continue
        arguments = flydsl_kernels.required(operation, 1, 2, 3)
        for values in combinations(operation):
            handle = getattr(cco, operation.face)(0)
            flydsl_kernels.ask(handle, operation, {**arguments, **values})
            assert len(recorded[-1]) == 1 + len(operation.parameters)
    wanted = {symbol.name for symbol in device.symbols() if symbol.operation.face}
    assert {call[0] for call in recorded} == wanted
    for face in device.NAMESPACES:
        public = {name for one in getattr(cco, face).__mro__ for name in vars(one)
                  if not name.startswith("_")} - {"word", "dev_comm"}
        assert public - NOT_OF_THE_TABLE.get(face, set()) == set(device.methods(face)), face


def test_methods_take_what_programs_for_mori_give(recorded):
    """mori-cco's FlyDSL interface: positions, keywords and defaults."""
    comm, window = cco.DevComm(ptr=7), cco.Window(handle=8)
    gda, sdma = comm.gda(3), comm.sdma()
    assert [comm.rank, comm.world_size, comm.lsa_rank, comm.lsa_size] == [None] * 4
    window.lsa_ptr(1), window.lsa_ptr(peer_lsa_rank=1, offset=2)
    gda.put(1, window, 0, window, 0, 64, signal_op=cco.SignalOp.ADD, signal_id=2, signal_val=3,
            coop=cco.CoopScope.BLOCK, thread_mode=cco.ThreadMode.INDEPENDENT)
    gda.put_value(1, window, 0, 5, signal_op=cco.SignalOp.INC, coop=cco.CoopScope.THREAD,
                  thread_mode=cco.ThreadMode.AGGREGATE)
    gda.get(1, window, 0, window, 0, 64, coop=cco.CoopScope.WARP)
    gda.signal(1, signal_op=cco.SignalOp.INC, signal_id=0, signal_val=0)
    gda.read_signal(0), gda.read_signal(0, 32), gda.read_signal(0, bits=32)
    gda.reset_signal(0)
    gda.wait_signal(0, 1), gda.wait_signal(0, 1, bits=32, coop=cco.CoopScope.BLOCK)
    gda.flush(), gda.flush(coop=cco.CoopScope.THREAD), gda.flush(coop=cco.CoopScope.BLOCK)
    gda.flush_peer(1), gda.flush_peer(1, coop=cco.CoopScope.BLOCK)
    sdma.put(1, window, 0, window, 0, 64, 0, coop=cco.CoopScope.WARP, signal=True, aggregate=True)
    sdma.get(1, window, 0, window, 0, 64, 0, signal=False)
    sdma.commit(1), sdma.commit(1, 2, coop=cco.CoopScope.BLOCK)
    sdma.quiet(1), sdma.quiet_queue(1, 0)
    bases = {call[0].split("__")[0].removesuffix("_for") for call in recorded}
    of_mori = {one.base for one in device.OPERATIONS if one.of_mori} - {"cco_gda_reset_signal"}
    assert bases == of_mori | {"cco_gda_consume_signal"}
    flushes = [call[0] for call in recorded if call[0].startswith("cco_gda_flush_for")]
    assert [name.split("__")[1] for name in flushes] == ["warp", "warp", "block"]


def test_names_and_values_are_those_of_the_table():
    assert cco.get_bitcode_path is cco.find_cco_bitcode
    for name, members in device.ENUMERATIONS.items():
        enumeration = getattr(cco, name)
        assert {one: getattr(enumeration, one) for one in members} == members
    assert set(cco.__all__) == {one for one in vars(cco) if not one.startswith("_")} - {
        "annotations", "flydsl", "handles"}
    for face in device.NAMESPACES:
        for name in device.methods(face):
            found = inspect.getattr_static(getattr(cco, face), name)
            assert (found.fget if isinstance(found, property) else found).__doc__, f"{face}.{name}"


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    for arch in ARCHS:
        if not (flydsl_support.BITCODE / f"cco_{arch}.bc").exists():
            pytest.skip(f"no cco_{arch}.bc in {flydsl_support.BITCODE}: it needs clang++-19")
    return flydsl_support.Compiler(tmp_path_factory.mktemp("flydsl"))


@pytest.fixture(scope="module", params=ARCHS)
def compiled(request, compiler):
    """flydsl_kernels.py, compiled for one GPU."""
    return request.param, compiler.run(KERNELS, request.param)[1]


def test_nothing_is_left_to_link(compiled, tmp_path):
    for name, kernel in compiled[1].items():
        left = ["cco_not_there"] if name == "not_linked" else []
        assert flydsl_support.undefined_symbols(kernel, tmp_path) == left, name


def test_every_method_is_called_and_linked(compiled):
    _, kernels = compiled
    calls = kernels["every_method"].calls()
    assert {device_symbol.split("__")[0] for device_symbol in calls} == {
        operation.base for operation in device.OPERATIONS if operation.face}


def test_handles_live_through_control_flow(compiled):
    kernel = compiled[1]["handles"]
    assert kernel.calls() == [
        "cco_devcomm_rank", "cco_gda_signal_for__thread", "cco_devcomm_world_size",
        "cco_gda_put_for__it", "cco_gda_flush_for__warp"]
    put = re.search(r"@cco_gda_put_for__it\((.*)\)", kernel.llvm_ir).group(1).split(", ")
    assert put[1] == "i32 2", "the context"
    assert put[4] == "i64 0" and put[6] == f"i64 {1 << 40}", "64-bit offsets"
    assert put[3] == put[5] == "i64 %1", "a window and its word are the same"
    assert put[-1] == "i64 1000", "nanoseconds"


def test_stores_are_published_before_the_signal(compiled):
    """16-byte stores; each thread waits for its own, then the block meets; then one write-back to
    the system, waited for; then the signal."""
    kernel = compiled[1]["put_and_signal"]
    assert kernel.has_sequence("global_store_dwordx4", r"s_waitcnt vmcnt\(0\)", "s_barrier",
                               "buffer_wbl2 sc0 sc1", r"s_waitcnt vmcnt\(0\)",
                               r"global_atomic_add_x2 .* sc1")
    assert kernel.count("buffer_wbl2") == kernel.count("global_atomic_add_x2") == 1


def test_a_wait_ends_and_acquires(compiled):
    """A load of the system's memory, again and again until the clock says no; an invalidation
    before what the signal published is read."""
    kernel = compiled[1]["wait"]
    assert kernel.has_sequence("s_memrealtime", "global_load_dwordx2 .* sc0 sc1",
                               r"s_waitcnt vmcnt\(0\)", "s_sleep", "s_memrealtime",
                               "buffer_inv sc0 sc1", r"global_load_dwordx2 .* sc0 sc1")


def test_engines_read_what_was_stored_before(compiled):
    kernel = compiled[1]["engine_put"]
    assert kernel.has_sequence("buffer_wbl2 sc0 sc1", r"s_waitcnt vmcnt\(0\)", "_store_")


def test_no_store_overtakes_a_write_back(compiled, tmp_path):
    for name, kernel in compiled[1].items():
        assert flydsl_support.unwaited_stores(kernel, tmp_path) == "", name


def test_entry_points_are_called_by_name(compiled):
    assert compiled[1]["by_name"].calls() == ["cco_sdma_put__warp_ns"]


def test_wrong_arguments_are_refused_when_the_kernel_is_traced(compiled):
    assert compiled[1]["refused"].calls() == [], "nothing was called for any of them"


PAGE = SOURCE / "client" / "python" / "docs" / "flydsl.md"
CALLS = "all_gather(0, 0, 8)\nmeet(0, 0)\n"


def test_the_kernels_of_the_page(compiler, tmp_path):
    """The page's code is a program, here under MORI's name."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    program = "\n\n".join([*blocks, CALLS])
    assert "import cco.flydsl as cco" in program
    program = program.replace("import cco.flydsl", "import mori.cco.device.flydsl")
    _, kernels = compiler.run(program, ARCHS[0])
    assert kernels["all_gather_kernel"].calls()[-2:] == [
        "cco_sdma_put_for__thread__local", "cco_sdma_quiet_for__thread"]
    assert "cco_lsa_barrier__block" in kernels["meet_kernel"].calls()
    for kernel in kernels.values():
        assert flydsl_support.undefined_symbols(kernel, tmp_path) == []
        assert flydsl_support.unwaited_stores(kernel, tmp_path) == ""


def test_moris_names_are_these(monkeypatch):
    from mori.cco import device as of_mori
    from mori.cco.device import flydsl as of_mori_flydsl

    assert of_mori_flydsl.DevComm is cco.DevComm
    assert set(of_mori_flydsl.__all__) == {*cco.__all__, "SdmaOptFlags"}
    assert of_mori.get_bitcode_path is of_mori.find_cco_bitcode is of_mori_flydsl.find_cco_bitcode
    monkeypatch.setenv("CCO_BITCODE_DIR", str(BUILD / "device/bitcode"))
    assert of_mori.find_cco_bitcode() == of_mori.find_cco_bitcode(6) == cco.find_cco_bitcode()
