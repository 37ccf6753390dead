"""The table as a page: `python3 -m cco.device.docs > client/python/docs/device_table.md`."""

from __future__ import annotations

from collections.abc import Iterator

from . import ENUMERATIONS, NAMESPACES, OPERATIONS, PARAMETERS, TARGETS, Operation

_HEAD = f"""# Device entry points

Generated from `cco.device` by `python3 -m cco.device.docs`; a test compares. Every function is `extern "C"` in the
device bitcode (`cco_TARGET.bc` for {', '.join(TARGETS)}) and is inlined where it is called.

* **Handles** are 64-bit device addresses: `dev_comm` of a `cco_device_comm` (`cco_comm_get_device_pointer()`), windows
  of a `cco_window_device` (`cco_window_get_device_pointer()`).
* **Peers** are LSA ranks for Lsa, Sdma and Tdm, world ranks for Gda. Offsets and lengths are bytes, of any alignment.
* **A wait result** is 0 for *arrived*, else a status below and a world rank above 32 bits: 1 timed out (nothing has
  changed, retry), 2 peer lost (no retry will succeed), 3 refused (an argument is out of range; nothing was posted,
  nothing moved), 4 failed (the transport reports an error). It is one for all that made the call together.
* **`timeout_ns`** counts from the call; -1 (2^64 - 1) is never, and the wait still ends when the group does. Names
  with `_for` are the bounded form of a name that MORI has.
* **`coop`** says who makes the call together, converged and with equal arguments: each thread for itself, each warp,
  the block, or for copies the whole grid. In Triton a call by THREAD is made by every thread of the program.
* Symbols marked **M** are MORI's, of the same types. Those that return nothing do not tell what has failed.

"""


def _tags(row: Operation) -> str:
    parts = []
    for axis in row.axes:
        tags = [choice.tag for choice in axis.tags()]
        parts.append(f"__{tags[0]}" if len(tags) == 1 else f"\\_\\_{{{', '.join(tags)}}}")
    return "".join(parts)


def _call(row: Operation) -> str:
    arguments = ", ".join(a.name if a.default is None else f"{a.name}={a.default}" for a in row.signature)
    return f"`{row.face}.{row.method}({arguments})`"


def _row(row: Operation) -> str:
    parameters = ", ".join(f"{p.c_type} {p.name}" for p in row.parameters)
    facts = [f"**Ordering** {row.ordering}", f"**Blocking** {row.blocking}", f"**Returns** {row.returns}",
             f"**Calls** {row.primitive}"]
    if row.face:
        facts.insert(0, f"**Method** {_call(row)}")
    mark = " **M**" if row.of_mori else ""
    return (f"### {row.base}{_tags(row)}{mark}\n\n`{row.result} {row.base}…({parameters})`\n\n{row.meaning}\n\n"
            + "\n".join(f"* {fact}" for fact in facts) + "\n")


def page() -> Iterator[str]:
    """The page, in parts."""
    yield _HEAD
    yield "## Enumerations\n\n"
    for name, values in ENUMERATIONS.items():
        yield f"* `{name}`: {', '.join(f'{key} {value}' for key, value in values.items())}\n"
    yield "\n## Arguments\n\n"
    for name, meaning in PARAMETERS.items():
        yield f"* `{name}` {meaning}\n"
    for namespace in (*NAMESPACES, ""):
        yield f"\n## {namespace or 'MORI names without a method'}\n"
        for row in OPERATIONS:
            if row.face == namespace:
                yield "\n" + _row(row)


if __name__ == "__main__":
    print("".join(page()), end="")
