"""What the faces' arguments mean: by name, or by namespace and name, or by method and name, the closest first."""

from __future__ import annotations

PARAMETERS: dict[str, str] = {
    "dev_comm": "the device communicator: address of its struct in device memory, `Comm.device_ptr` on the host",
    "win": "the window: address of its struct in device memory, `Window.device_ptr` on the host",
    "peer": "LSA rank, 0 to lsa_size - 1, this rank included",
    "Gda.peer": "world rank, 0 to world_size - 1",
    "sender": "LSA rank that puts, 0 to lsa_size - 1",
    "offset": "in the window, in bytes, 0 to its size - 1",
    "dst_win": "window that is written, in the peer's copy, or for a get in this rank's",
    "dst_off": "where in that, in bytes",
    "Lsa.put_value.dst_off": "where in that, in bytes, a multiple of nbytes",
    "src_win": "window that is read, in this rank's copy, or for a get in the peer's",
    "src_off": "where in that, in bytes",
    "Lsa.get_value.src_off": "where in that, in bytes, a multiple of nbytes",
    "src_ptr": "address of memory that this rank may read",
    "dst_ptr": "address of memory that this rank may write",
    "remote_win": "window that is read, in the peer's copy",
    "remote_off": "where in that, in bytes",
    "local_win": "window that is written, in this rank's copy",
    "local_off": "where in that, in bytes",
    "nbytes": "how many bytes, 0 included, within both windows",
    "Lsa.put_value.nbytes": "of the value: 1, 2, 4 or 8, known when the kernel is compiled",
    "Lsa.get_value.nbytes": "of the value: 1, 2, 4 or 8, known when the kernel is compiled",
    "Gda.put_value.nbytes": "of the value: 1, 2, 4 or 8, known when the kernel is compiled",
    "value": "64 bits, of which the low nbytes are stored",
    "Lsa.signal_set.value": "64 bits, what the signal becomes",
    "signal_id": "LSA signal, 0 to the communicator's signal_count - 1",
    "Gda.signal_id": "GDA signal, 0 to the communicator's gda_signal_count - 1; they are not the LSA's",
    "delta": "64 bits, what is added to the signal, wrapping",
    "least": "64 bits, how far it has to have come",
    "counter_id": "GDA counter, 0 to the communicator's gda_counter_count - 1",
    "bits": "how many low bits count, 1 to 64, all from 64 on",
    "signal_op": "SignalOp: NONE, INC (by 1) or ADD (signal_val)",
    "Gda.signal.signal_op": "SignalOp: INC (by 1) or ADD (signal_val)",
    "signal_val": "64 bits, what ADD adds",
    "signal": "SdmaSignal: whose signal of (this rank, queue) rises; known when the kernel is compiled",
    "qid": "queue of that peer, 0 to queue_count() - 1",
    "Sdma.read_signal.qid": "queue of the sender, 0 to queue_count() - 1",
    "Sdma.wait_signal.qid": "queue of the sender, 0 to queue_count() - 1",
    "aggregate": "1: the engine need not start before the next call; 0: it starts",
    "Gda.aggregate": "1: the NIC need not be rung before the next call; 0: it is rung",
    "ctx": "GDA context, any number: modulo how many there are; each has queues of its own",
    "index": "LSA barrier, 0 to the communicator's barrier_count - 1",
    "Gda.barrier.index": "rail barrier, 0 to the communicator's rail_barrier_count - 1",
    "Gda.world_barrier.index": "world barrier, 0 to the communicator's world_barrier_count - 1",
    "share": "which part is this block's, 0 to shares - 1",
    "shares": "how many blocks move the range together, 1 or more, the same in each of them",
    "team": "Team, known when the kernel is compiled",
    "Gda.barrier.team": "Team: WORLD or RAIL, known when the kernel is compiled",
    "team_rank": "rank in that team, 0 to team_size - 1",
    "coop": "CoopScope: who makes the call together; known when the kernel is compiled",
    "thread_mode": "ThreadMode: AGGREGATE with CoopScope.THREAD alone; known when the kernel is compiled",
    "timeout_ns": "nanoseconds from the call on, 0 included; -1: no time, only the end of the group",
}


def meaning_of(face: str, method: str, name: str) -> str:
    """KeyError: nobody has written it down."""
    for key in (f"{face}.{method}.{name}", f"{face}.{name}"):
        if key in PARAMETERS:
            return PARAMETERS[key]
    return PARAMETERS[name]
