"""The choices that symbols are made of, and the enumerations that name them in the faces."""

from __future__ import annotations

from .model import Axis, Choice

THREAD, WARP, BLOCK, GRID = range(4)
"""`coop`: who makes the call together, CoopScope in the faces. GRID is for LSA copies alone."""

NONE, INC, ADD = range(3)
"""`signal_op`: what happens at the peer behind the bytes, SignalOp in the faces."""

INDEPENDENT, AGGREGATE = range(2)
"""`thread_mode`, ThreadMode in the faces. AGGREGATE: all threads that call together name the same peer."""

WORLD, LSA, CROSS_NODE, RAIL = range(4)
"""`team`, Team in the faces."""

NO_SIGNAL, LOCAL, REMOTE, BOTH = range(4)
"""`signal`, SdmaSignal in the faces: whose signal of (this rank, queue) rises once the bytes have landed."""

ENUMERATIONS: dict[str, dict[str, int]] = {
    "CoopScope": {"THREAD": THREAD, "WARP": WARP, "BLOCK": BLOCK, "GRID": GRID},
    "SignalOp": {"NONE": NONE, "INC": INC, "ADD": ADD},
    "ThreadMode": {"INDEPENDENT": INDEPENDENT, "AGGREGATE": AGGREGATE},
    "Team": {"WORLD": WORLD, "LSA": LSA, "CROSS_NODE": CROSS_NODE, "RAIL": RAIL},
    "SdmaSignal": {"NONE": NO_SIGNAL, "LOCAL": LOCAL, "REMOTE": REMOTE, "BOTH": BOTH},
    "WaitStatus": {"ARRIVED": 0, "TIMED_OUT": 1, "PEER_LOST": 2, "REFUSED": 3, "FAILED": 4},
}
"""Each enumeration of the faces: names and values. MORI's values where MORI has them."""

_COOPS = {
    THREAD: ("thread", "ThreadCoop"),
    WARP: ("warp", "WarpCoop"),
    BLOCK: ("block", "BlockCoop"),
    GRID: ("grid", "GridCoop"),
}


def _coop_axis(scopes: tuple[int, ...]) -> Axis:
    names = ", ".join(name for name, value in ENUMERATIONS["CoopScope"].items() if value in scopes)
    return Axis(("coop",), tuple(Choice((scope,), *_COOPS[scope]) for scope in scopes), f"coop takes {names}")


COOP = _coop_axis((THREAD, WARP, BLOCK))
COPY_COOP = _coop_axis((THREAD, WARP, BLOCK, GRID))
BLOCK_COOP = _coop_axis((BLOCK,))
WARP_OR_BLOCK = Axis(
    ("coop",),
    (
        Choice((THREAD,), "warp", "WarpCoop"),
        Choice((WARP,), "warp", "WarpCoop"),
        Choice((BLOCK,), "block", "BlockCoop"),
    ),
    "coop takes WARP or BLOCK; THREAD is taken for WARP, which is the least that can do it",
)
POST = Axis(
    ("coop", "thread_mode"),
    (
        Choice((THREAD, INDEPENDENT), "it", "ThreadCoop, false"),
        Choice((WARP, INDEPENDENT), "iw", "WarpCoop, false"),
        Choice((BLOCK, INDEPENDENT), "ib", "BlockCoop, false"),
        Choice((THREAD, AGGREGATE), "at", "ThreadCoop, true"),
    ),
    "coop takes THREAD, WARP, BLOCK, and thread_mode INDEPENDENT, or AGGREGATE with THREAD: warps and blocks post "
    "once as it is",
)
ACTION = Axis(
    ("signal_op",),
    (Choice((NONE,), "none", "NONE"), Choice((INC,), "inc", "INC"), Choice((ADD,), "add", "ADD")),
    "signal_op takes NONE, INC, ADD",
)
RAISING_ACTION = Axis(
    ("signal_op",), ACTION.choices[1:], "signal_op takes INC or ADD: a signal without one is nothing"
)
TEAM = Axis(
    ("team",),
    (
        Choice((WORLD,), "world", "Team::kWorld"),
        Choice((LSA,), "lsa", "Team::kLsa"),
        Choice((CROSS_NODE,), "cross_node", "Team::kCrossNode"),
        Choice((RAIL,), "rail", "Team::kRail"),
    ),
    "team takes WORLD, LSA, CROSS_NODE, RAIL",
)
SDMA_SIGNAL = Axis(
    ("signal",),
    (
        Choice((NO_SIGNAL,), "none", "0"),
        Choice((LOCAL,), "local", "kSdmaSignalLocal"),
        Choice((REMOTE,), "remote", "kSdmaSignalRemote"),
        Choice((BOTH,), "both", "kSdmaSignalLocal | kSdmaSignalRemote"),
    ),
    "signal takes NONE (or False), LOCAL (or True), REMOTE, BOTH",
)
MORI_SDMA = Axis(
    ("coop", "signal"),
    tuple(
        Choice((scope, signal), _COOPS[scope][0] + suffix, f"{_COOPS[scope][1]}, {options}")
        for scope in (THREAD, WARP, BLOCK)
        for signal, suffix, options in ((LOCAL, "", "kSdmaSignalLocal"), (NO_SIGNAL, "_ns", "0"))
    ),
    "coop takes THREAD, WARP, BLOCK, and signal NONE or LOCAL",
)


def width_axis(noun: str) -> Axis:
    """How many bytes a value has, by the argument `nbytes`."""
    return Axis(
        ("nbytes",),
        tuple(Choice((bits // 8,), f"u{bits}", f"uint{bits}_t") for bits in (8, 16, 32, 64)),
        f"a {noun} has 1, 2, 4 or 8 bytes",
    )
