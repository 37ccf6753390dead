"""Goal    the device table is whole: MORI's symbols with their types, faces that name every parameter, a page that is
        current, and a search for the bitcode that says where it has looked.
Method  the table against MORI's list, the page, and folders made for the purpose."""

import re
import subprocess
import sys

import pytest

from conftest import SOURCE, child_environment
from cco import device


def test_mori_symbols_are_there_with_their_types():
    listed = (SOURCE / "tests/data/mori_device_symbols.txt").read_text(encoding="utf-8").split("\n")
    mine = [symbol.prototype for symbol in device.symbols() if symbol.operation.of_mori]
    assert len(mine) == 67
    assert sorted(mine) == sorted(line for line in listed if line)


def test_names_are_unique():
    names = [symbol.name for symbol in device.symbols()]
    assert len(names) == len(set(names))
    methods = [(row.face, row.method) for row in device.OPERATIONS if row.face]
    assert len(methods) == len(set(methods))
    assert {face for face, _ in methods} == set(device.NAMESPACES)


def test_a_method_has_every_parameter_and_axis_once():
    for row in device.OPERATIONS:
        if not row.face:
            assert row.of_mori and row.result == "void", row.base
            continue
        names = [argument.name for argument in row.signature]
        wanted = {p.name for p in row.parameters} | {name for axis in row.axes for name in axis.arguments}
        assert len(names) == len(set(names)) and set(names) == wanted, row.base
        needed = [argument.default is None for argument in row.signature]
        assert needed == sorted(needed, reverse=True), f"{row.base}: a default before an argument without"
        assert row.result != "void", f"{row.base}: kernel languages need a result"


def test_every_row_says_what_it_promises():
    for row in device.OPERATIONS:
        assert row.meaning.endswith(".") and row.ordering and row.blocking and row.primitive, row.base
        assert row.result == "void" or row.returns != "nothing", row.base
        waits = "timeout_ns" in [parameter.name for parameter in row.parameters]
        assert not waits or row.is_result, f"{row.base} ends by time and cannot tell"


def test_every_argument_is_explained():
    """In the faces' texts, one line each, and in the page; and nothing is explained that there is not."""
    used = set()
    for row in device.OPERATIONS:
        if not row.face:
            continue
        lines = row.document().split("\n")
        for argument in row.signature:
            named = [line for line in lines if line.split() and line.split()[0] == argument.name]
            assert len(named) == 1, f"{row.face}.{row.method}: {argument.name}"
            keys = [f"{row.face}.{row.method}.{argument.name}", f"{row.face}.{argument.name}", argument.name]
            used.add(next(key for key in keys if key in device.PARAMETERS))
        bound = tuple(argument.name for argument in row.signature[:1])
        assert not any(line.split()[:1] == list(bound) for line in row.document(bound).split("\n") if bound)
    assert used == device.PARAMETERS.keys()
    for name, meaning in device.PARAMETERS.items():
        assert re.match(r"[a-z0-9]|LSA|GDA|SdmaSignal|SignalOp|CoopScope|Team|ThreadMode", meaning), name


def test_axes_choose_symbols():
    put = device.methods("Gda")["put"]
    assert put.symbol({"coop": 1, "thread_mode": 0}).name == "cco_gda_put_for__iw"
    with pytest.raises(ValueError, match=r"Gda\.put\(coop=2, thread_mode=1\): .*AGGREGATE with THREAD"):
        put.symbol({"coop": 2, "thread_mode": 1})
    flush = device.methods("Gda")["flush"]
    assert flush.symbol({"coop": 0}).name == flush.symbol({"coop": 1}).name == "cco_gda_flush_for__warp"


def test_results_are_read():
    assert (device.status_of(0), device.rank_of(0)) == (0, None)
    assert (device.status_of(5 << 32 | 1), device.rank_of(5 << 32 | 1)) == (1, 5)
    refused_by_nobody = (0xFFFFFFFF << 32 | 3) - (1 << 64)  # As a kernel's int64.
    assert (device.status_of(refused_by_nobody), device.rank_of(refused_by_nobody)) == (3, None)


def test_the_page_is_current():
    made = subprocess.run([sys.executable, "-m", "cco.device.docs"], env=child_environment(), capture_output=True,
                          text=True, timeout=60, check=True).stdout
    page = SOURCE / "client/python/docs/device_table.md"
    assert made == page.read_text(encoding="utf-8"), f"python3 -m cco.device.docs > {page.relative_to(SOURCE)}"


def test_the_table_needs_the_standard_library_alone():
    code = ("import sys; sys.path.insert(0, sys.argv[1]); import device; "
            "print([m for m in sys.modules if m.split('.')[0] not in sys.stdlib_module_names | {'device'}])")
    made = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(SOURCE / "client/python/cco")],
                          capture_output=True, text=True, timeout=60, check=True).stdout
    assert made.strip() == "['__main__']" or made.strip() == "[]"


def test_bitcode_is_found_where_the_variable_says(tmp_path, monkeypatch):
    monkeypatch.setenv("CCO_BITCODE_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"\$CCO_BITCODE_DIR: .*cco_gfx942\.bc.*cmake --build"):
        device.find_bitcode("gfx942")
    (tmp_path / "cco_gfx942.bc").write_bytes(b"BC")
    assert device.find_bitcode("gfx942") == tmp_path / "cco_gfx942.bc"


def test_bitcode_is_found_beside_an_installed_library(tmp_path, monkeypatch):
    monkeypatch.delenv("CCO_BITCODE_DIR", raising=False)
    monkeypatch.setenv("CCO_LIBRARY", str(tmp_path / "lib/x86_64-linux-gnu/libcco_client.so.0"))
    installed = tmp_path / "share/cco/bitcode/cco_gfx90a.bc"
    installed.parent.mkdir(parents=True)
    installed.write_bytes(b"BC")
    assert device.find_bitcode("gfx90a") == installed


def test_an_unknown_target_is_named():
    with pytest.raises(ValueError, match="gfx1100.*nvptx64"):
        device.find_bitcode("gfx1100")
