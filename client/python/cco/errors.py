"""What calls raise: `Error` with code, rank and reason, and subclasses for its codes."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """The canonical gRPC codes, as in `cco/cco.h`."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Error(RuntimeError):
    """A call that failed has changed nothing. `str()` names the code, the reason and the next step.

    code    Status
    reason  what was tried, with which values, and what to do next
    rank    the rank that it is about: lost, missing, or the first to disagree; None: none
    """

    def __init__(self, code: Status, reason: str, rank: int | None = None) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason
        self.rank = rank

    def __reduce__(self) -> tuple[type[Error], tuple[Status, str, int | None]]:
        return type(self), (self.code, self.reason, self.rank)


class InvalidArgument(Error, ValueError):
    """A value that makes no sense, a closed or foreign handle, or ranks that disagree."""


class DeadlineExceeded(Error):
    """Time was over: the daemon has not answered, or a rank (`rank`) has not come."""


class NotFound(Error):
    """No such device, launcher, window, lease or grant."""


class AlreadyExists(Error):
    """Somebody else is this rank, or the group has a window of that name."""


class PermissionDenied(Error):
    """This user may not do that."""


class ResourceExhausted(Error):
    """No memory, or a limit; the reason says which, and who has how much."""


class FailedPrecondition(Error):
    """Something is not as the call needs it: a forked child, a peer that is out of reach."""


class Aborted(Error):
    """A rank (`rank`) is lost, somebody called Group.abort(), or an operator took a GPU away."""


class OutOfRange(Error, IndexError):
    """No such rank, or an offset that leaves the window."""


class Internal(Error):
    """A transport has reported an error to a kernel, or cco has broken a promise of its own."""


class Unavailable(Error):
    """cco-memd is not there, has restarted without this session, or a GPU is drained."""


_CLASSES: dict[Status, type[Error]] = {
    Status.INVALID_ARGUMENT: InvalidArgument,
    Status.DEADLINE_EXCEEDED: DeadlineExceeded,
    Status.NOT_FOUND: NotFound,
    Status.ALREADY_EXISTS: AlreadyExists,
    Status.PERMISSION_DENIED: PermissionDenied,
    Status.RESOURCE_EXHAUSTED: ResourceExhausted,
    Status.FAILED_PRECONDITION: FailedPrecondition,
    Status.ABORTED: Aborted,
    Status.OUT_OF_RANGE: OutOfRange,
    Status.INTERNAL: Internal,
    Status.UNAVAILABLE: Unavailable,
}


def error_of(code: int, reason: str, rank: int | None = None) -> Error:
    """The exception for a code that is not OK; codes of a newer library are UNKNOWN."""
    try:
        status = Status(code)
    except ValueError:
        status = Status.UNKNOWN
    return _CLASSES.get(status, Error)(status, reason, rank)
