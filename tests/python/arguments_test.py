"""Goal    a wrong argument is refused by its name, with what it was and what is taken, before anything has happened.
Method  every argument of every public call, with values of every wrong type; then numbers of NumPy, and requirements
        at and over their limits."""

import inspect
import os
import pickle
from pathlib import Path

import pytest

import cco

numpy = pytest.importorskip("numpy")

# What an argument takes: values that it does not, and one that it does (a name of `made`, if there is one).
KINDS = {
    "integer": (["1", 1.5, 4.0, b"1", [1], object()], 1),
    "text": ([1, 1.5, b"x", ["x"], object()], "x"),
    "path": ([1, 1.5, ["x"], object()], "/nowhere"),
    "bytes16": (["x" * 16, 5, [1], object()], b"x" * 16),
    "bytes128": (["x" * 128, 5, [1], object()], b"x" * 128),
    "Client": ([1, "client", object()], "Client"),
    "Group": ([1, "group", object(), "Client"], "Group"),
    "UniqueId": ([b"x" * 128, "x", 5], "UniqueId"),
    "ExternalMemory": ([5, (1, 2, 3), "memory", "Memory"], "ExternalMemory"),
    "requirements": ([5, {}, "x"], None),
    "shape": (["ab", (2.0,), 2.5, [[1]], object(), b"ab"], 1),
    "any": ([], None),  # dtype: views_test.py.
}

OF_A_GROUP = dict(rank="integer", size="integer", name="text", unique_id="UniqueId", device="integer", gpu_uuid="text",
                  slot_bytes="integer", lsa_size="integer", lease="text", timeout_ms="integer")
CALLS = {
    "Client": dict(socket_path="path", timeout_ms="integer"),
    "Client.gpu": dict(device="integer"),
    "Memory": dict(client="Client", size_bytes="integer", device="integer"),
    "Memory.at": dict(client="Client", address="integer", size_bytes="integer", device="integer"),
    "Memory.view": dict(dtype="any", shape="shape", offset="integer"),
    "Group": dict(client="Client", **OF_A_GROUP),
    "Group.from_env": dict(socket_path="path", **OF_A_GROUP),
    "Group.barrier": dict(timeout_ms="integer"),
    "Group.agree": dict(problem="text", timeout_ms="integer"),
    "Group.shrink": dict(timeout_ms="integer"),
    "Window": dict(group="Group", name="text", size_bytes="integer", alignment_bytes="integer",
                   wait_for_memory_ms="integer", keep_ms="integer", timeout_ms="integer"),
    "Window.open": dict(group="Group", name="text"),
    "Window.register": dict(group="Group", name="text", size_bytes="integer", memory="ExternalMemory",
                            timeout_ms="integer"),
    "Window.address": dict(rank="integer", offset="integer"),
    "Window.view": dict(rank="integer", dtype="any", shape="shape", offset="integer"),
    "Window.grant": dict(tenant="text", access="integer"),
    "Window.revoke": dict(token="bytes16"),
    "Attachment": dict(client="Client", token="bytes16", device="integer"),
    "Attachment.address": dict(rank="integer", offset="integer"),
    "Attachment.view": dict(rank="integer", dtype="any", shape="shape", offset="integer"),
    "Comm": dict(group="Group", signal_count="integer", barrier_count="integer", transports="integer",
                 sdma_queue_count="integer", sdma_provider="text", gda_provider="text", gda_connection="integer",
                 gda_context_count="integer", gda_signal_count="integer", gda_counter_count="integer",
                 gda_queue_depth="integer", gda_traffic_class="integer", rail_barrier_count="integer",
                 world_barrier_count="integer", timeout_ms="integer"),
    "UniqueId": dict(raw="bytes128"),
    "UniqueId.from_bytes": dict(raw="bytes128"),
    "Communicator.init": dict(nranks="integer", rank="integer", unique_id="UniqueId", per_rank_vmm="integer"),
    "Communicator.alloc_mem": dict(size="integer"),
    "Communicator.register_window": dict(ptr="integer", size="integer"),
    "Communicator.register_external_window": dict(ext_ptr="integer", size="integer"),
    "Communicator.create_dev_comm": dict(requirements="requirements"),
}
# Given although they have defaults, or because no other value will do.
ALWAYS = {"Group": {"rank": 0, "size": 1, "name": "new"}, "Group.from_env": {"rank": 0, "size": 1, "name": "new"},
          "Attachment.view": {"rank": 0}}
# Made by other calls, plain data, or exceptions.
NO_CALLS = {"View", "CCOResource", "AllocatedMemory", "RegisteredWindow", "ImportedWindow", "DevCommHandle",
            "Communicator", "CCODevCommRequirements", "ExternalMemory", "Gpu", "Environment", "WindowInfo", "Status",
            "Condition", "DeviceComm", "WindowDevice"}


@pytest.fixture
def made(make_daemon):
    """One of each object, by class name."""
    make_daemon(f'tenants {{ name: "us" uid: {os.getuid()} }}')
    with cco.Client() as client, cco.Group(client, rank=0, size=1, name="g") as group:
        memory, window, secret = cco.Memory(client, 4096), cco.Window(group, "w", 64, keep_ms=1), cco.get_unique_id()
        with cco.Attachment(client, window.grant("us")) as attachment, \
                cco.Communicator.init(1, 0, secret) as communicator:
            yield {"Client": client, "Group": group, "Memory": memory, "Window": window, "Communicator": communicator,
                   "UniqueId": secret, "ExternalMemory": memory.external, "Attachment": attachment}


def function_of(made, name):
    """What a user calls: a class, a class's method, or an object's."""
    owner, _, method = name.partition(".")
    kind = getattr(cco, owner)
    if method == "":
        return kind
    is_bound = isinstance(inspect.getattr_static(kind, method), (classmethod, staticmethod))
    return getattr(kind if is_bound else made[owner], method)


def parameters_of(function):
    """Name -> whether it must be given."""
    return {name: one.default is inspect.Parameter.empty for name, one in inspect.signature(function).parameters.items()
            if name != "self" and one.kind is not inspect.Parameter.VAR_KEYWORD}


def public_calls():
    for name in cco.__all__:
        kind = getattr(cco, name)
        if not isinstance(kind, type) or issubclass(kind, BaseException):
            continue
        if name not in NO_CALLS:
            yield name, parameters_of(kind.__init__)
        for method, value in inspect.getmembers(kind, callable):
            if method[0] != "_" and method not in dir(tuple) and name not in NO_CALLS - {"Communicator"}:
                yield f"{name}.{method}", parameters_of(value)


def test_every_argument_is_tried():
    for name, parameters in public_calls():
        tried = set(CALLS.get(name, {}))
        assert tried - {"socket_path"} == parameters.keys() - {"socket_path"}, name


@pytest.mark.parametrize("name, argument", [(name, argument) for name, known in CALLS.items() for argument in known])
def test_a_wrong_type_is_named(made, name, argument):
    function = function_of(made, name)
    good = {}
    for needed, must in parameters_of(function).items():
        if must:
            value = KINDS[CALLS[name][needed]][1]
            good[needed] = made.get(value, value) if isinstance(value, str) else value
    good.update(ALWAYS.get(name, {}))
    default = inspect.signature(function).parameters.get(argument)
    wrong = list(KINDS[CALLS[name][argument]][0])
    if default is not None and default.default is not None and CALLS[name][argument] != "any":
        # Without a name ranks match windows by order; without a problem there is none.
        wrong += [] if (name, argument) in {("Window", "name"), ("Window.register", "name")} else [None]
    for value in wrong:
        value = made.get(value, value) if isinstance(value, str) else value
        with pytest.raises(TypeError) as caught:
            function(**{**good, argument: value})
        told = str(caught.value)
        assert told.startswith(f"{argument} is {value!r}, of type {type(value).__name__}; it takes "), told
    assert made["Window"].export_count == 0


def test_what_numpy_and_pathlib_give_will_do(daemon):
    two, eight = numpy.int64(2), numpy.uint32(8)
    with cco.Client(socket_path=Path(daemon.socket), timeout_ms=numpy.int32(5000)) as client:
        assert client.gpu(numpy.int8(1)).device == 1
        with cco.Group(client, rank=numpy.int64(0), size=numpy.int64(1), name="g", device=numpy.int64(1)) as group:
            group.barrier(numpy.int64(1000))
            with cco.Memory(client, eight, device=two - 1) as memory:
                assert memory.size_bytes == 8
            with cco.Window(group, None, numpy.int64(4096)) as window:
                assert type(window.size_bytes) is int and window.size_bytes == 4096
                assert window.address(numpy.int64(0), eight) == window.address() + 8
                for shape in (two, (two, 3), numpy.array([2, 3]), [2, eight], numpy.zeros((2, 2)).shape):
                    view = window.view(numpy.int64(0), shape=shape, offset=eight)
                    assert all(type(length) is int for length in view.shape) and view.ptr == window.address(0, 8)
                    assert numpy.from_dlpack(view).shape == view.shape
                assert cco.Comm(group, signal_count=two).device.signal_count == 2
    with cco.Communicator.init(numpy.int64(1), numpy.int64(0), cco.get_unique_id(), eight) as communicator:
        memory = communicator.alloc_mem(numpy.int64(4096))
        assert communicator.register_window(numpy.uint64(memory.ptr), numpy.int64(64)).size == 64


# ---- Requirements ----

LIMITS = {"gda_connection_type": (0, 3), "gda_context_count": (0, 64), "gda_signal_count": (0, 65536),
          "gda_counter_count": (0, 65536), "gda_queue_depth": (0, 32768), "gda_traffic_class": (-1, 255),
          "lsa_barrier_count": (0, 4096), "rail_gda_barrier_count": (0, 4096), "sdma_queue_count": (0, 8),
          "barrier_count": (0, 4096), "signal_count": (0, 65536)}


@pytest.mark.parametrize("field", LIMITS)
def test_a_requirement_over_its_limit(made, field):
    """Method  one rank on one node, where most transports are not used."""
    low, high = LIMITS[field]
    for value in (low - 1, high + 1, 1 << 40, -(1 << 40)):
        wanted = cco.CCODevCommRequirements()
        setattr(wanted, field, value)
        with pytest.raises(cco.InvalidArgument, match=f"{field} is {value}; it takes {low} to {high}"):
            made["Communicator"].create_dev_comm(wanted)
    for value in ("1", 1.5, None):
        setattr(wanted, field, value)
        with pytest.raises(TypeError, match=f"{field} is {value!r}, .*{low} to {high}"):
            made["Communicator"].create_dev_comm(wanted)


def test_requirements_have_these_fields_alone(made):
    wanted = cco.CCODevCommRequirements()
    assert wanted.__slots__ == tuple(LIMITS)
    with pytest.raises(AttributeError, match="no lsa_barrier_cont; its fields are .*lsa_barrier_count"):
        wanted.lsa_barrier_cont = 7
    with pytest.raises(AttributeError):
        del wanted.anything
    wanted.lsa_barrier_count = 3
    assert "lsa_barrier_count=3" in repr(wanted) and pickle.loads(pickle.dumps(wanted)).lsa_barrier_count == 3
    wanted.gda_queue_depth = 100
    with pytest.raises(cco.InvalidArgument, match="gda_queue_depth is 100; it takes a power of two, 16 to 32768, or 0"):
        made["Communicator"].create_dev_comm(wanted)


def test_the_limits_are_the_librarys(made):
    """Method  what is at its limit here makes sense there, room or not, and what is over it does not."""
    both = cco.TRANSPORT_GDA | cco.TRANSPORT_SDMA
    for field, transports in (("signal_count", 0), ("barrier_count", 0), ("gda_context_count", both),
                              ("gda_signal_count", both), ("gda_counter_count", both), ("gda_queue_depth", both),
                              ("gda_traffic_class", both), ("sdma_queue_count", both)):
        given = {"transports": transports, field: LIMITS[field][1]}
        try:
            cco.Comm(made["Group"], **given).close()
        except cco.ResourceExhausted:
            pass
        given[field] += 1
        with pytest.raises(cco.InvalidArgument):
            cco.Comm(made["Group"], **given)
