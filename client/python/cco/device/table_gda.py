"""GDA rows: operations by a NIC or its proxy. Peers are world ranks; `ctx` counts modulo how many there are."""

from __future__ import annotations

from .axes import ACTION, ADD, COOP, INC, POST, RAISING_ACTION, WARP_OR_BLOCK, width_axis
from .model import Axis, Choice, Operation, operation

_COPY = "u64 dst_win, u64 dst_off, u64 src_win, u64 src_off, u64 nbytes"
_FETCH = "u64 remote_win, u64 remote_off, u64 local_win, u64 local_off, u64 nbytes"
_HEAD = "u64 dev_comm, int ctx, int peer"
_ACT = "int signal_id, u64 signal_val"
_BOUNDED = "int signal_op, int signal_id, u64 signal_val, int aggregate, u64 timeout_ns"
_FULL = "while the queue is full, until the group ends"
_ROOM = "while the queue is full, until `timeout_ns` or the group ends"
_DEADLINE = "until then, `timeout_ns`, or the group ends"
_FOREVER = "until then, or the group ends"
_RELEASE = "release, system scope: what the callers stored before is what is sent"
_ACQUIRE = "acquire, system scope, for all that made the call, on arrival only"
_POSTED = "a wait result: arrived is posted"
_CALL = "ctx=0 signal_op=0 signal_id=0 signal_val=0 coop=0 thread_mode=0 aggregate=0 timeout_ns=-1"

_TEAM = Axis(
    ("team",),
    (Choice((0,), "connected", "GdaTeam::kConnected"), Choice((3,), "rail", "GdaTeam::kRail")),
    "team takes WORLD, which is all that GDA connects, or RAIL",
)

_MORI: tuple[Operation, ...] = (
    operation(
        "cco_gda_put",
        f"void({_HEAD}, {_COPY}, {_ACT})",
        "Gda::put()",
        "As cco_gda_put_for without a deadline.",
        axes=(POST, ACTION),
        ordering=_RELEASE,
        blocking=_FULL,
        of_mori=True,
    ),
    operation(
        "cco_gda_put_value",
        f"void({_HEAD}, u64 dst_win, u64 dst_off, u64 value, {_ACT})",
        "Gda::put_value()",
        "As cco_gda_put_value_for of 8 bytes without a deadline.",
        axes=(POST, ACTION),
        ordering=_RELEASE,
        blocking=_FULL,
        of_mori=True,
    ),
    operation(
        "cco_gda_get",
        f"void({_HEAD}, {_FETCH})",
        "Gda::get()",
        "As cco_gda_get_for without a deadline.",
        axes=(POST,),
        ordering="the bytes may be read after a flush",
        blocking=_FULL,
        of_mori=True,
    ),
    operation(
        "cco_gda_signal",
        f"void({_HEAD}, {_ACT})",
        "Gda::signal()",
        "As cco_gda_signal_for without a deadline.",
        axes=(COOP, RAISING_ACTION),
        ordering=_RELEASE,
        blocking=_FULL,
        of_mori=True,
    ),
    operation(
        "cco_gda_wait_signal",
        "void(u64 dev_comm, int ctx, int signal_id, u64 least, int bits)",
        "Gda::wait_signal()",
        "As cco_gda_wait_signal_for without a deadline.",
        axes=(COOP,),
        ordering=_ACQUIRE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_gda_flush",
        "void(u64 dev_comm, int ctx)",
        "Gda::flush()",
        "As cco_gda_flush_for without a deadline.",
        axes=(WARP_OR_BLOCK,),
        ordering=_ACQUIRE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_gda_flush_peer",
        f"void({_HEAD})",
        "Gda::flush()",
        "As cco_gda_flush_peer_for without a deadline.",
        axes=(WARP_OR_BLOCK,),
        ordering=_ACQUIRE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_gda_reset_signal",
        "void(u64 dev_comm, int ctx, int signal_id)",
        "Gda::reset_signal()",
        "As cco_gda_consume_signal.",
        of_mori=True,
    ),
)

_POSTS: tuple[Operation, ...] = (
    operation(
        "cco_gda_put_for",
        f"wait({_HEAD}, {_COPY}, {_BOUNDED})",
        "Gda::put()",
        "Copies from this rank's copy of a window into a peer's copy of one; then the signal. aggregate: the NIC need "
        "not be rung before the next call.",
        axes=(POST,),
        face="Gda.put",
        call=f"dev_comm peer dst_win dst_off src_win src_off nbytes {_CALL}",
        ordering=f"{_RELEASE}; the source may be reused after a flush",
        blocking=_ROOM,
        returns=_POSTED,
    ),
    operation(
        "cco_gda_put_value_for",
        f"wait({_HEAD}, u64 dst_win, u64 dst_off, u64 value, {_BOUNDED})",
        "Gda::put_value()",
        "Stores the value's low bytes into a peer's copy; then the signal.",
        axes=(POST, width_axis("value")),
        face="Gda.put_value",
        call=f"dev_comm peer dst_win dst_off value {_CALL} nbytes=8",
        ordering=_RELEASE,
        blocking=_ROOM,
        returns=_POSTED,
    ),
    operation(
        "cco_gda_get_for",
        f"wait({_HEAD}, {_FETCH}, int aggregate, u64 timeout_ns)",
        "Gda::get()",
        "Copies from a peer's copy of a window, which it has published, into this rank's copy of one.",
        axes=(POST,),
        face="Gda.get",
        call="dev_comm peer remote_win remote_off local_win local_off nbytes ctx=0 coop=0 thread_mode=0 aggregate=0 "
        "timeout_ns=-1",
        ordering="the bytes may be read after a flush",
        blocking=_ROOM,
        returns=_POSTED,
    ),
    operation(
        "cco_gda_signal_for",
        f"wait({_HEAD}, int signal_op, {_ACT}, u64 timeout_ns)",
        "Gda::signal()",
        "Raises a peer's signal behind all that this context has put to it.",
        axes=(COOP,),
        limits={"signal_op": (INC, ADD)},
        face="Gda.signal",
        call="dev_comm peer ctx=0 signal_op=1 signal_id=0 signal_val=0 coop=0 timeout_ns=-1",
        ordering=_RELEASE,
        blocking=_ROOM,
        returns=f"{_POSTED}; refused also without an operation",
    ),
)

_SIGNALS: tuple[Operation, ...] = (
    operation(
        "cco_gda_read_signal",
        "u64(u64 dev_comm, int ctx, int signal_id, int bits)",
        "Gda::read_signal()",
        "The low `bits` of what this rank's signal has beyond what waits have consumed.",
        face="Gda.read_signal",
        call="dev_comm signal_id bits=64 ctx=0",
        ordering="acquire, system scope",
        returns="the count; 0 if there is no such signal",
        of_mori=True,
    ),
    operation(
        "cco_gda_wait_signal_for",
        "wait(u64 dev_comm, int ctx, int signal_id, u64 least, int bits, u64 timeout_ns)",
        "Gda::wait_signal()",
        "Waits until that is at least `least`, and consumes that much; one group of threads at a time.",
        axes=(COOP,),
        face="Gda.wait_signal",
        call="dev_comm signal_id least bits=64 ctx=0 coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
        returns="a wait result; a time-out names nobody",
    ),
    operation(
        "cco_gda_wait_signal_at_least",
        "wait(u64 dev_comm, int ctx, int signal_id, u64 least, u64 timeout_ns)",
        "Gda::wait_signal_at_least()",
        "Waits until all that was ever added to this rank's signal is at least `least`; consumes nothing.",
        axes=(COOP,),
        face="Gda.wait_signal_at_least",
        call="dev_comm signal_id least ctx=0 coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
        returns="as Gda.wait_signal",
    ),
    operation(
        "cco_gda_consume_signal",
        "wait(u64 dev_comm, int ctx, int signal_id)",
        "Gda::reset_signal()",
        "Consumes what the signal has, while nobody waits on it; nothing is taken from the signal itself.",
        face="Gda.reset_signal",
        call="dev_comm signal_id ctx=0",
        returns="a wait result: arrived, or refused",
    ),
)

_COMPLETIONS: tuple[Operation, ...] = (
    operation(
        "cco_gda_flush_for",
        "wait(u64 dev_comm, int ctx, u64 timeout_ns)",
        "Gda::flush()",
        "Waits until all peers have acknowledged what this context has posted.",
        axes=(WARP_OR_BLOCK,),
        face="Gda.flush",
        call="dev_comm ctx=0 coop=1 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
        returns="a wait result; a time-out names the lowest peer that is missing",
    ),
    operation(
        "cco_gda_flush_peer_for",
        f"wait({_HEAD}, u64 timeout_ns)",
        "Gda::flush()",
        "The same of one peer.",
        axes=(WARP_OR_BLOCK,),
        face="Gda.flush_peer",
        call="dev_comm peer ctx=0 coop=1 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
    ),
    operation(
        "cco_gda_counter",
        "wait(u64 dev_comm, int ctx, int counter_id, u64 timeout_ns)",
        "Gda::counter()",
        "Gda.flush, then adds 1 to this rank's counter.",
        axes=(WARP_OR_BLOCK,),
        face="Gda.counter",
        call="dev_comm counter_id ctx=0 coop=1 timeout_ns=-1",
        ordering=f"{_ACQUIRE}; the addition releases",
        blocking=_DEADLINE,
    ),
    operation(
        "cco_gda_read_counter",
        "u64(u64 dev_comm, int ctx, int counter_id, int bits)",
        "Gda::read_counter()",
        "The low `bits` of this rank's counter.",
        face="Gda.read_counter",
        call="dev_comm counter_id bits=56 ctx=0",
        ordering="acquire, system scope",
        returns="the count; 0 if there is no such counter",
    ),
    operation(
        "cco_gda_wait_counter",
        "wait(u64 dev_comm, int ctx, int counter_id, u64 least, int bits, u64 timeout_ns)",
        "Gda::wait_counter()",
        "Waits until that is at least `least`; consumes nothing.",
        axes=(COOP,),
        face="Gda.wait_counter",
        call="dev_comm counter_id least bits=56 ctx=0 coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
    ),
    operation(
        "cco_gda_reset_counter",
        "wait(u64 dev_comm, int ctx, int counter_id)",
        "Gda::reset_counter()",
        "Sets this rank's counter to 0, while nobody counts.",
        face="Gda.reset_counter",
        call="dev_comm counter_id ctx=0",
        returns="a wait result: arrived, or refused",
    ),
    operation(
        "cco_gda_connected",
        f"int({_HEAD})",
        "Gda::connected()",
        "Whether posts to a world rank are possible.",
        face="Gda.connected",
        call="dev_comm peer ctx=0",
        returns="1 or 0",
    ),
)

_BARRIERS: tuple[Operation, ...] = (
    operation(
        "cco_gda_barrier",
        "wait(u64 dev_comm, int ctx, int index, u64 timeout_ns)",
        "GdaBarrier::sync()",
        "Meets the same callers of every rank of the team by GDA signals, on a rail barrier of the communicator.",
        axes=(WARP_OR_BLOCK, _TEAM),
        face="Gda.barrier",
        call="dev_comm index=0 ctx=0 coop=2 team=0 timeout_ns=-1",
        ordering="release, then acquire, system scope; of what was put to each other on this context before",
        blocking=_DEADLINE,
        returns="a wait result; after a time-out the same call goes on with the round",
    ),
    operation(
        "cco_world_barrier",
        "wait(u64 dev_comm, int ctx, int index, u64 timeout_ns)",
        "WorldBarrier::sync()",
        "Meets the same callers of every rank of the group: the node's by LSA, then the rails.",
        axes=(WARP_OR_BLOCK,),
        face="Gda.world_barrier",
        call="dev_comm index=0 ctx=0 coop=2 timeout_ns=-1",
        ordering="release, then acquire, system scope",
        blocking=_DEADLINE,
        returns="a wait result; after a time-out the same call goes on with the round",
    ),
)

GDA: tuple[Operation, ...] = _MORI + _POSTS + _SIGNALS + _COMPLETIONS + _BARRIERS
