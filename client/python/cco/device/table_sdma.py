"""SDMA rows: copies that an engine makes. Peers are LSA ranks, this rank among them."""

from __future__ import annotations

from .axes import COOP, MORI_SDMA, SDMA_SIGNAL
from .model import Operation, operation

_COPY = "u64 dst_win, u64 dst_off, u64 src_win, u64 src_off, u64 nbytes"
_ROOM = "until the queue has room, `timeout_ns`, or the group ends"
_DEADLINE = "until then, `timeout_ns`, or the group ends"
_FOREVER = "until then, or the group ends"
_RELEASE = "release, system scope: the engine reads what the callers stored before"
_ACQUIRE = "acquire, system scope, on arrival"
_AS_PUT = "as Sdma.put"
_CALL = "dev_comm peer dst_win dst_off src_win src_off nbytes qid=0 coop=0 signal=1 aggregate=0 timeout_ns=-1"

SDMA: tuple[Operation, ...] = (
    operation(
        "cco_sdma_put",
        f"void(u64 dev_comm, int peer, {_COPY}, int qid, int flags)",
        "Sdma::put()",
        "As cco_sdma_put_for without a deadline; the local signal rises, with `_ns` none. `flags` bit 0: aggregate.",
        axes=(MORI_SDMA,),
        ordering=_RELEASE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_sdma_get",
        f"void(u64 dev_comm, int peer, {_COPY}, int qid, int flags)",
        "Sdma::get()",
        "As cco_sdma_get_for without a deadline; signals and flags as cco_sdma_put.",
        axes=(MORI_SDMA,),
        ordering=_RELEASE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_sdma_quiet",
        "void(u64 dev_comm, int peer)",
        "Sdma::quiet()",
        "As cco_sdma_quiet_for without a deadline.",
        axes=(COOP,),
        ordering=_ACQUIRE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_sdma_quiet_queue",
        "void(u64 dev_comm, int peer, int qid)",
        "Sdma::quiet_queue()",
        "As cco_sdma_quiet_queue_for__thread without a deadline.",
        ordering=_ACQUIRE,
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_sdma_commit",
        "void(u64 dev_comm, int peer, int qid)",
        "Sdma::commit()",
        "As cco_sdma_commit_for without a deadline; by a warp or block on all queues.",
        axes=(COOP,),
        blocking=_FOREVER,
        of_mori=True,
    ),
    operation(
        "cco_sdma_put_for",
        f"wait(u64 dev_comm, int peer, {_COPY}, int qid, int aggregate, u64 timeout_ns)",
        "Sdma::put()",
        "Has an engine copy from this rank's copy of a window into an LSA peer's copy of one; aggregate: it need not "
        "start before the next call.",
        axes=(COOP, SDMA_SIGNAL),
        face="Sdma.put",
        call=_CALL,
        ordering=_RELEASE,
        blocking=_ROOM,
        returns="a wait result: arrived is posted",
    ),
    operation(
        "cco_sdma_get_for",
        f"wait(u64 dev_comm, int peer, {_COPY}, int qid, int aggregate, u64 timeout_ns)",
        "Sdma::get()",
        "Has an engine copy from an LSA peer's copy of a window, which it has published, into this rank's copy of one.",
        axes=(COOP, SDMA_SIGNAL),
        face="Sdma.get",
        call=_CALL,
        ordering=_RELEASE,
        blocking=_ROOM,
        returns=_AS_PUT,
    ),
    operation(
        "cco_sdma_signal",
        "wait(u64 dev_comm, int peer, int qid, u64 timeout_ns)",
        "Sdma::signal()",
        "Raises the peer's signal of (this rank, queue) behind all that was put on the queue.",
        axes=(COOP,),
        face="Sdma.signal",
        call="dev_comm peer qid=0 coop=0 timeout_ns=-1",
        ordering=_RELEASE,
        blocking=_ROOM,
        returns=_AS_PUT,
    ),
    operation(
        "cco_sdma_commit_for",
        "wait(u64 dev_comm, int peer, int qid, u64 timeout_ns)",
        "Sdma::commit()",
        "Starts what was aggregated on the queue; by a warp or block on all queues.",
        axes=(COOP,),
        face="Sdma.commit",
        call="dev_comm peer qid=0 coop=0 timeout_ns=-1",
        blocking=_ROOM,
    ),
    operation(
        "cco_sdma_quiet_for",
        "wait(u64 dev_comm, int peer, u64 timeout_ns)",
        "Sdma::quiet()",
        "Waits until all that was posted to the peer has landed: sources may be reused, what was fetched be read.",
        axes=(COOP,),
        face="Sdma.quiet",
        call="dev_comm peer coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
    ),
    operation(
        "cco_sdma_quiet_queue_for",
        "wait(u64 dev_comm, int peer, int qid, u64 timeout_ns)",
        "Sdma::quiet_queue()",
        "The same for one queue.",
        axes=(COOP,),
        face="Sdma.quiet_queue",
        call="dev_comm peer qid coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
    ),
    operation(
        "cco_sdma_read_signal",
        "u64(u64 dev_comm, int sender, int qid)",
        "Sdma::read_signal()",
        "How often this rank's signal of (sender, queue) has risen.",
        face="Sdma.read_signal",
        call="dev_comm sender qid=0",
        ordering="acquire, system scope",
        returns="the count; 0 if there is no such signal",
    ),
    operation(
        "cco_sdma_wait_signal",
        "wait(u64 dev_comm, int sender, int qid, u64 least, u64 timeout_ns)",
        "Sdma::wait_signal()",
        "Waits until that is at least `least`; it is never reset.",
        axes=(COOP,),
        face="Sdma.wait_signal",
        call="dev_comm sender qid least coop=0 timeout_ns=-1",
        ordering=_ACQUIRE,
        blocking=_DEADLINE,
        returns="a wait result; a time-out names the sender",
    ),
    operation(
        "cco_sdma_queue_count",
        "int(u64 dev_comm)",
        "Sdma::queue_count()",
        "Queues to each peer.",
        face="Sdma.queue_count",
        call="dev_comm",
        returns="0: the communicator has no SDMA",
    ),
)
