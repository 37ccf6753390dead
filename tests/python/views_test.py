"""Goal    views are the memory itself with the right type, shape and place, and refuse what does not fit.
Method  every element type against NumPy's, by array interface and by DLPack; torch's where there is torch."""

import pytest

import cco
from cco.views import DATA_TYPES, Place, View

numpy = pytest.importorskip("numpy")


@pytest.fixture
def window(daemon):
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        with cco.Window(group, "w", 4096) as made:
            yield made


@pytest.mark.parametrize("name", [name for name, kind in DATA_TYPES.items() if kind.typestr])
def test_numpy(window, name):
    view = window.view(dtype=name, shape=(3, 2), offset=256)
    assert (view.shape, view.nbytes, view.ptr) == ((3, 2), 6 * numpy.dtype(name).itemsize, window.address(0, 256))
    by_interface, by_dlpack = view.numpy(), numpy.from_dlpack(view)
    for array in (by_interface, by_dlpack):
        assert (array.dtype, array.shape, array.ctypes.data) == (numpy.dtype(name), (3, 2), view.ptr)
        assert array.flags.c_contiguous
    by_interface[2, 1] = 1
    assert by_dlpack[2, 1] == 1 and by_dlpack[0, 0] == 0
    assert window.view(dtype=numpy.dtype(name)).dtype == window.view(dtype=by_dlpack.dtype.type).dtype == view.dtype


def test_torch(window):
    torch = pytest.importorskip("torch")
    for name, kind in DATA_TYPES.items():
        tensor = torch.from_dlpack(window.view(dtype=name, shape=(3, 2), offset=256))
        assert (str(tensor.dtype), tensor.shape, tensor.data_ptr()) == (f"torch.{name}", (3, 2), window.address(0, 256))
        assert window.view(dtype=getattr(torch, name)).dtype == kind
        assert tensor.is_contiguous()
    tensor = torch.from_dlpack(window)
    tensor[5] = 9
    assert window.view().numpy()[5] == 9 and tensor.numel() == 4096
    del tensor
    assert window.view(dtype="uint8", shape=()).numpy().shape == ()


def test_types_by_other_names(window):
    for given, name in ((float, "float64"), (int, "int64"), (bool, "bool"), (complex, "complex128"),
                        (numpy.bool_, "bool"), (numpy.intc, "int32"), (">u1", "uint8"), (numpy.dtype(">i1"), "int8")):
        assert window.view(dtype=given).dtype.name == numpy.dtype(given).name == name
    for name, kind in DATA_TYPES.items():
        if kind.typestr is not None:
            for order in ("", "<", "=", "|"):
                code = order + kind.typestr[1:]
                assert window.view(dtype=code).dtype.name == name == numpy.dtype(code).name
    assert window.view(dtype="torch.bfloat16").dtype.name == "bfloat16"


@pytest.mark.parametrize("code", ["i2", "i4", "u8", "f2", "f4", "f8", "c8"])
def test_swapped_bytes_are_refused(window, code):
    name = numpy.dtype(code).name
    for given in (">" + code, numpy.dtype(">" + code), numpy.dtype(code).newbyteorder()):
        with pytest.raises(cco.InvalidArgument, match=f"big-endian.*take '{name}'"):
            window.view(dtype=given)


@pytest.mark.parametrize("given", ["float", "int", "f3", "4", "", "<", "<float32<", "U3", numpy.dtype("U3"), None, 4,
                                   numpy.dtype("datetime64[s]"), numpy.dtype("i4,f4"), str, object, list, b"f4", []])
def test_what_is_no_type(window, given):
    with pytest.raises(cco.InvalidArgument, match="is none of bfloat16, bool"):
        window.view(dtype=given)


def test_shapes(window):
    assert window.view(dtype="int32").shape == (1024,)
    assert window.view(dtype="int32", offset=4000).shape == (24,)
    assert window.view(dtype="int32", shape=7).shape == (7,)
    assert window.view(shape=(0, 5), offset=4096).numpy().size == 0
    assert window.view(dtype="int64", shape=[2, 2, 2]).shape == (2, 2, 2)


@pytest.mark.parametrize(("options", "kind", "text"), [
    ({"shape": 4097}, cco.OutOfRange, "takes 4097 bytes; from offset 0 on there are 4096"),
    ({"dtype": "int64", "shape": (8, 8), "offset": 3592}, cco.OutOfRange, "504"),
    ({"offset": 4097}, cco.OutOfRange, "offset 4097"),
    ({"offset": -1}, cco.OutOfRange, "offset -1"),
    ({"shape": (2, -1)}, cco.InvalidArgument, "negative"),
    ({"dtype": "int32", "offset": 2}, cco.InvalidArgument, "no multiple of 4"),
    ({"dtype": "float7"}, cco.InvalidArgument, "float7.*bfloat16"),
    ({"dtype": dict}, cco.InvalidArgument, "dict"),
    ({"rank": 1}, cco.OutOfRange, "rank 1"),
])
def test_refusals(window, options, kind, text):
    with pytest.raises(kind, match=text):
        window.view(**options)
    assert window.export_count == 0


def test_dlpack_refuses_what_would_be_a_copy(window):
    view = window.view()
    for options in ({"copy": True}, {"dl_device": (2, 0)}):
        with pytest.raises(BufferError):
            view.__dlpack__(**options)
    assert view.__dlpack_device__() == window.__dlpack_device__() == (1, 0)
    view.__dlpack__(copy=False, dl_device=(1, 0), stream=None)
    assert window.export_count == 0


def test_types_that_numpy_lacks(window):
    view = window.view(dtype="bfloat16")
    assert not hasattr(view, "__array_interface__") and not hasattr(view, "__cuda_array_interface__")
    with pytest.raises(cco.InvalidArgument, match="NumPy has no bfloat16"):
        view.numpy()


def test_memory_of_a_gpu(window):
    """What no GPU is needed for: its address and device, as consumers are told of them."""
    for driver, kind in (("cuda", 2), ("hip", 10)):
        view = View(window, Place(0x7F00_0000_0000, 4096, driver, 3), "float32", (4, 8), 128)
        assert view.__dlpack_device__() == (kind, 3)
        interface = view.__cuda_array_interface__
        assert interface == {"shape": (4, 8), "typestr": "<f4", "data": (0x7F00_0000_0080, False), "strides": None,
                             "version": 3, "stream": None}
        assert not hasattr(view, "__array_interface__")
        with pytest.raises(cco.FailedPrecondition, match="GPU memory"):
            view.numpy()
        assert window.export_count == 1  # The consumer of the interface keeps the view.
        del view
        assert window.export_count == 0


def test_a_window_as_an_array(window):
    array = numpy.asarray(window)
    assert (array.dtype, array.shape, array.ctypes.data) == (numpy.uint8, (4096,), window.address())
    array[3] = 7
    assert numpy.from_dlpack(window)[3] == 7 and window.export_count == 1
    copied, wider = numpy.array(window), numpy.asarray(window, dtype="int16")
    array[3] = 8
    assert (copied[3], wider[3]) == (7, 7)
    del array
    assert window.export_count == 0
    with pytest.raises(ValueError, match="copy"):
        window.__array__("int16", copy=False)


def test_a_gpus_window_as_an_array(daemon):
    """Method  the group says that its memory is a GPU's; closed, the consumer has the window object alone."""
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        window = cco.Window(group, "w", 4096)
        assert not hasattr(window, "__cuda_array_interface__")
        client.driver = "cuda"
        expected = {"shape": (4096,), "typestr": "|u1", "data": (window.address(), False), "strides": None,
                    "version": 3, "stream": None}
        assert window.__cuda_array_interface__ == window.__cuda_array_interface__ == expected
        assert window.export_count == 1
        for made in (window, window.view()):
            with pytest.raises(cco.FailedPrecondition, match="GPU memory"):
                numpy.asarray(made)
        window.close()
        assert daemon.counts()["window"] == 1, "the consumer has no memory any more"
        del window, made
        assert group.export_count == 0 and daemon.counts()["window"] == 0


def test_nothing_becomes_an_array_of_objects(window):
    """Goal    what NumPy cannot have is an error, never an array of one Python object."""
    for made in (window.view(dtype="bfloat16"), window.view(dtype="float8_e5m2")):
        with pytest.raises(cco.InvalidArgument, match="NumPy has no"):
            numpy.asarray(made)
    window.close()
    with pytest.raises(cco.FailedPrecondition, match="closed"):
        numpy.asarray(window)


def test_memory_for_reading(window):
    view = View(window, Place(window.address(), 64, "host", 0, read_only=True), "uint8", None, 0)
    assert not numpy.from_dlpack(view).flags.writeable and not view.numpy().flags.writeable
    with pytest.raises(BufferError, match="for reading"):
        view.__dlpack__()
