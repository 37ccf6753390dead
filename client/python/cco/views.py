"""Mapped memory as tensors and arrays: DLPack, CUDA array interface, NumPy. Nothing is copied."""

from __future__ import annotations

import math
import operator
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from cco import _dlpack
from cco._arguments import wrong
from cco._owner import OfThisProcess, Owner
from cco.errors import FailedPrecondition, InvalidArgument, OutOfRange, Status

if TYPE_CHECKING:
    import numpy


class DataType(NamedTuple):
    """An element type: its name, DLPack's code and bits, and the array interface's type string."""

    name: str
    code: int
    bits: int
    typestr: str | None  # None: NumPy has no such type.


def _types() -> dict[str, DataType]:
    found = [
        DataType("bool", 6, 8, "|b1"),
        DataType("int8", 0, 8, "|i1"),
        DataType("uint8", 1, 8, "|u1"),
        DataType("float16", 2, 16, "<f2"),
        DataType("bfloat16", 4, 16, None),
        DataType("float32", 2, 32, "<f4"),
        DataType("float64", 2, 64, "<f8"),
        DataType("complex64", 5, 64, "<c8"),
        DataType("complex128", 5, 128, "<c16"),
        DataType("float8_e4m3fn", 10, 8, None),
        DataType("float8_e4m3fnuz", 11, 8, None),
        DataType("float8_e5m2", 12, 8, None),
        DataType("float8_e5m2fnuz", 13, 8, None),
    ]
    for size in (16, 32, 64):
        found.append(DataType(f"int{size}", 0, size, f"<i{size // 8}"))
        found.append(DataType(f"uint{size}", 1, size, f"<u{size // 8}"))
    return {one.name: one for one in found}


DATA_TYPES = _types()
_BY_CODE = {one.typestr[1:]: one for one in DATA_TYPES.values() if one.typestr is not None}
# As NumPy and torch both take them. The names "float" and "int" they take differently.
_BY_PYTHON = {float: DATA_TYPES["float64"], int: DATA_TYPES["int64"], complex: DATA_TYPES["complex128"]}


def data_type(dtype: Any) -> DataType:
    """The type that is meant. InvalidArgument: none, or its bytes are swapped.

    dtype  a name ("float32"), NumPy's code ("f4", "<f4"), a NumPy or torch type, bool, int (64 bits),
           float (64 bits) or complex (128 bits)
    """
    if isinstance(dtype, DataType):
        return dtype
    if isinstance(dtype, type) and dtype in _BY_PYTHON:
        return _BY_PYTHON[dtype]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = dtype.__name__ if isinstance(dtype, type) else str(dtype)
    order = name[:1] if isinstance(dtype, str) else getattr(dtype, "byteorder", "=")
    found = DATA_TYPES.get(name.removeprefix("torch.")) or _BY_CODE.get(name.lstrip("<>=|"))
    if found is None:
        raise InvalidArgument(
            Status.INVALID_ARGUMENT,
            f"dtype {dtype!r} is none of {', '.join(sorted(DATA_TYPES))}",
        )
    if order == ">" and found.bits > 8:
        raise InvalidArgument(
            Status.INVALID_ARGUMENT,
            f"dtype {dtype!r} is big-endian; the memory is little-endian: take {found.name!r}, and "
            "swap the bytes in a copy",
        )
    return found


def _index(value: Any, what: str) -> int:
    """Of any size; what is out of range says so by itself."""
    try:
        return operator.index(value)
    except TypeError:
        raise wrong(what, value, "an integer") from None


def _shape(shape: Any) -> tuple[int, ...]:
    try:
        if isinstance(shape, (str, bytes)):
            raise TypeError
        try:
            lengths = tuple(shape)
        except TypeError:
            lengths = (shape,)
        return tuple(map(operator.index, lengths))
    except TypeError:
        raise wrong("shape", shape, "an integer, or a sequence of them") from None


class Place(NamedTuple):
    """A contiguous range that kernels and copies of this process reach."""

    address: int
    size_bytes: int
    driver: str  # "host", "cuda", "hip"
    device: int  # This process's ordinal.
    read_only: bool = False


class View(OfThisProcess):
    """A contiguous tensor in mapped memory, of this rank's copy of a window or of a peer's.

    Takes part in DLPack (`torch.from_dlpack(view)`, `numpy.from_dlpack(view)`), the CUDA array
    interface (on GPUs) and NumPy's (on `host`). Tensors and arrays made from it count as exports of
    its owner: the memory stays mapped until the last of them is gone. Orders nothing: what peers
    write is there after a barrier or a signal, as for kernels. Thread safe; immutable.

    ptr     address of its first byte
    shape   elements along each axis, row-major without gaps
    dtype   DataType
    nbytes  bytes in all
    """

    def __init__(self, owner: Owner, place: Place, dtype: Any, shape: Any, offset: int) -> None:
        self._owner = owner
        self._place = place
        self._held = False
        self.dtype = data_type(dtype)
        item_bytes = self.dtype.bits // 8
        offset = _index(offset, "offset")
        if offset < 0 or offset > place.size_bytes:
            raise OutOfRange(
                Status.OUT_OF_RANGE, f"offset {offset} of {place.size_bytes} bytes"
            )
        self.shape: tuple[int, ...] = (
            ((place.size_bytes - offset) // item_bytes,) if shape is None else _shape(shape)
        )
        if any(length < 0 for length in self.shape):
            raise InvalidArgument(
                Status.INVALID_ARGUMENT, f"shape {self.shape} has a negative length"
            )
        self.nbytes = math.prod(self.shape) * item_bytes
        if self.nbytes > place.size_bytes - offset:
            raise OutOfRange(
                Status.OUT_OF_RANGE,
                f"{self.dtype.name}{list(self.shape)} takes {self.nbytes} bytes; from offset "
                f"{offset} on there are {place.size_bytes - offset}",
            )
        self.ptr = place.address + offset
        if self.ptr % item_bytes != 0:
            raise InvalidArgument(
                Status.INVALID_ARGUMENT,
                f"offset {offset} is no multiple of {item_bytes}, the size of {self.dtype.name}",
            )

    @property
    def read_only(self) -> bool:
        """Stores would fault."""
        return self._place.read_only

    def __dlpack_device__(self) -> tuple[int, int]:
        place = self._place
        kind = {"host": _dlpack.CPU, "cuda": _dlpack.CUDA, "hip": _dlpack.ROCM}[place.driver]
        return kind, 0 if place.driver == "host" else place.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule. `stream` orders nothing: symmetric memory has no stream of its own.

        BufferError: a copy or another device is asked for, or the memory is for reading and the
        consumer's DLPack is too old to be told so.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError(f"{self!r} is not copied, and on {self.__dlpack_device__()}")
        versioned = max_version is not None and max_version[0] >= 1
        if self.read_only and not versioned:
            raise BufferError(f"{self!r} is for reading: that takes a consumer of DLPack 1.0")
        element = (self.dtype.code, self.dtype.bits)
        self._owner._retain()
        try:
            return _dlpack.capsule(
                self.ptr,
                self.__dlpack_device__(),
                element,
                self.shape,
                self.read_only,
                versioned,
                self._owner._release,
            )
        except BaseException:
            self._owner._release()
            raise

    def _interface(self) -> dict[str, Any]:
        """What both array interfaces say. AttributeError: NumPy lacks the type."""
        if self.dtype.typestr is None:
            raise AttributeError(f"the array interface has no {self.dtype.name}: use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.typestr,
            "data": (self.ptr, self.read_only),
            "strides": None,
            "version": 3,
        }

    def _cuda_interface(self) -> dict[str, Any]:
        if self._place.driver == "host":
            raise AttributeError("memory of the host driver is no GPU memory")
        return {**self._interface(), "stream": None}

    def _hold(self) -> None:
        """Consumers of an interface keep this view, so from here on it keeps the memory."""
        if not self._held:
            self._owner._retain()
            weakref.finalize(self, self._owner._release).atexit = False
            self._held = True

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = self._cuda_interface()
        self._hold()
        return found

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if self._place.driver != "host":
            raise AttributeError("GPU memory cannot be read by the CPU")
        found = self._interface()
        self._hold()
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy, which comes here where the array interface is not to be had, and says why."""
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self!r} as {dtype} takes a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """As a NumPy array, on the `host` driver.

        FailedPrecondition: GPU memory. InvalidArgument: a type that NumPy lacks.
        """
        import numpy

        if self._place.driver != "host":
            raise FailedPrecondition(
                Status.FAILED_PRECONDITION,
                f"{self!r} is GPU memory: use torch.from_dlpack(), CuPy, or a copy",
            )
        if self.dtype.typestr is None:
            raise InvalidArgument(
                Status.INVALID_ARGUMENT,
                f"NumPy has no {self.dtype.name}: use torch.from_dlpack(), or another type",
            )
        array: numpy.ndarray[Any, Any] = numpy.asarray(self)
        return array

    def __repr__(self) -> str:
        return f"<cco.View {self.dtype.name}{list(self.shape)} at {self.ptr:#x}>"
