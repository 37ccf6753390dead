"""Who may include whom. A layer is a folder or a file; the longest match counts."""

import re

# Layer: what its files may include, beside the C++ standard library and their own layer.
# `system` is the operating system's C headers.
ARROWS = {
    "device/include/cco/device/abi.h": [],
    "device/include/cco/device/abi_work.h": ["device/include/cco/device/abi.h"],
    "device/include/cco/device/abi_sdma.h": ["device/include/cco/device/abi.h",
                                             "device/include/cco/device/abi_work.h"],
    "device/include/cco/device/abi_gda.h": ["device/include/cco/device/abi.h",
                                            "device/include/cco/device/abi_work.h"],
    "device/include": ["device/include/cco/device/abi.h", "device/include/cco/device/abi_work.h",
                       "device/include/cco/device/abi_sdma.h", "device/include/cco/device/abi_gda.h"],
    "device/include/mori": ["device/include", "device/include/cco/device/abi.h"],
    "client/include/cco/cco.h": ["device/include/cco/device/abi.h", "device/include/cco/device/abi_sdma.h",
                                 "device/include/cco/device/abi_gda.h"],
    "client/include": ["client/include/cco/cco.h", "device/include/cco/device/abi.h"],
    "client/base": ["absl", "system"],
    "device/runtime/gpu_driver.h": ["absl", "client/base"],
    "device/runtime/dynamic_library.h": ["absl"],
    "device/runtime": ["absl", "system", "client/base", "device/runtime/dynamic_library.h",
                       "device/runtime/gpu_driver.h", "device/include"],
    "device/transport": ["absl", "system", "client/base", "device/runtime/gpu_driver.h", "device/include",
                         "device/runtime/dynamic_library.h",
                         "device/include/cco/device/abi.h", "device/include/cco/device/abi_work.h",
                         "device/include/cco/device/abi_sdma.h", "device/include/cco/device/abi_gda.h"],
    "device/bitcode": ["device/include"],
    "device/kernels": ["device/runtime/gpu_driver.h", "device/include", "absl"],
    "daemon/ports": ["absl", "client/base", "device/runtime/gpu_driver.h"],
    "daemon/core": ["absl", "client/base", "daemon/ports", "device/runtime/gpu_driver.h",
                    "device/include/cco/device/abi.h"],
    "daemon/sys": ["absl", "system", "log", "client/base", "daemon/ports", "device/runtime/gpu_driver.h",
                   "device/include/cco/device/abi.h"],
    "daemon/state/sqlite_store.cc": ["absl", "system", "sqlite", "client/base", "daemon/ports", "daemon/state"],
    "daemon/state": ["absl", "system", "protobuf", "proto", "client/base", "daemon/ports", "daemon/core",
                     "device/runtime/gpu_driver.h"],
    "daemon/service": ["absl", "system", "log", "grpc", "protobuf", "proto", "client/base", "daemon/ports",
                       "daemon/core", "daemon/sys", "device/runtime/gpu_driver.h"],  # sys: it serves a socket.
    "daemon/keeper": ["absl", "system", "client/base"],
    "daemon": ["*"],
    "client/src": ["absl", "system", "grpc", "protobuf", "proto", "client/base", "client/include",
                   "client/include/cco/cco.h", "device/runtime", "device/runtime/gpu_driver.h", "device/transport",
                   "device/kernels", "device/include", "device/include/cco/device/abi.h",
                   "device/include/cco/device/abi_sdma.h", "device/include/cco/device/abi_gda.h"],
    "client/mori": ["absl", "system", "client/base", "client/include", "client/include/cco/cco.h", "device/runtime",
                    "device/runtime/dynamic_library.h",
                    "device/runtime/gpu_driver.h", "device/include", "device/include/mori",
                    "device/include/cco/device/abi_sdma.h", "device/include/cco/device/abi_gda.h"],
    "client/ctl": ["absl", "system", "grpc", "protobuf", "proto", "cli", "client/base", "client/include",
                   "client/include/cco/cco.h", "client/src", "device/runtime", "device/runtime/gpu_driver.h",
                   "device/include/cco/device/abi.h"],
    "client/bench": ["absl", "system", "protobuf", "proto", "cli", "client/base", "client/ctl", "client/src",
                     "client/job", "client/include", "client/include/cco/cco.h", "device/runtime",
                     "device/runtime/gpu_driver.h", "device/kernels", "device/transport", "device/include",
                     "device/include/cco/device/abi.h", "device/include/cco/device/abi_sdma.h",
                     "device/include/cco/device/abi_gda.h"],
    "client/job": ["absl", "system", "protobuf", "proto", "cli", "client/base", "client/ctl", "client/src",
                   "client/include", "client/include/cco/cco.h", "device/runtime",
                   "device/runtime/gpu_driver.h", "device/kernels", "device/include",
                   "device/include/cco/device/abi.h"],
    "client/python/cco/torch/csrc": ["torch", "system", "client/include/cco/cco.h"],
    "tests": ["*"],
}

# Includes that name no file of ours, by prefix or pattern; the first match counts.
OUTSIDE = [
    ("absl", r"absl/"),
    ("grpc", r"grpc(pp)?/|cco/.*\.grpc\.pb\.h$"),
    ("proto", r".*\.pb\.h$"),
    ("protobuf", r"google/protobuf/"),
    ("torch", r"(ATen|c10|torch)/"),
    ("log", r"spdlog/|fmt/"),
    ("sqlite", r"sqlite3\.h$"),
    ("cli", r"CLI/"),
    ("test", r"gtest/|gmock/|benchmark/"),
    ("std", r"[a-z_]+$|std(int|def|arg|bool|io|lib)\.h$|string\.h$|(assert|errno|limits|math)\.h$"),
    ("system", r"(sys|linux|arpa|netinet)/|[a-z]+\.h$"),
]
INCLUDE_ROOTS = ["", "client/include/", "device/include/"]


def layer_of(path):
    matching = [layer for layer in ARROWS if path == layer or path.startswith(layer + "/")]
    return max(matching, key=len, default=None)


def target_of(name, including, existing):
    """The layer or outside group that an include means; None if nothing is known of it."""
    folder = including.rsplit("/", 1)[0]
    for candidate in [root + name for root in INCLUDE_ROOTS] + [f"{folder}/{name}"]:
        if candidate in existing:
            return layer_of(candidate)
    for group, pattern in OUTSIDE:
        if re.match(pattern, name):
            return group
    return None


def is_allowed(source_layer, target):
    return target in ("std", source_layer) or "*" in ARROWS[source_layer] or target in ARROWS[source_layer]
