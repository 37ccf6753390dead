// The C interface: translates, and decides nothing.
#include <fcntl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "cco/cco.h"
#include "client/base/status_macros.h"
#include "client/src/c_handles.h"
#include "client/src/c_support.h"
#include "client/src/environment.h"
#include "client/src/group_options.h"
#include "device/runtime/foreign_memory.h"

namespace cco::client {
namespace {

constexpr uint32_t kDefaultTimeoutMs = 5000;
constexpr uint64_t kExternalAlignmentBytes = 16;

absl::StatusOr<WindowSpec> window_spec(const char* name, const cco_window_options* options) {
  CCO_ASSIGN_OR_RETURN(const cco_window_options known, read_struct(options, "options"));
  WindowSpec spec;
  if (name != nullptr && *name != '\0') {
    CCO_ASSIGN_OR_RETURN(spec.name, checked_name(name, "window"));
  }
  if (known.size_bytes == 0) return absl::InvalidArgumentError("size_bytes is 0");
  spec.size_bytes = known.size_bytes;
  spec.alignment_bytes = known.alignment_bytes;
  spec.wait_for_memory_ms = known.wait_for_memory_ms;
  spec.keep_ms = known.keep_ms;
  CCO_ASSIGN_OR_RETURN(spec.timeout, Client::collective_timeout(known.timeout_ms));
  return spec;
}

absl::Status add_external(const cco_external_memory& memory, WindowSpec* spec) {
  if (memory.allocation_offset % kExternalAlignmentBytes != 0 ||
      memory.allocation_offset > memory.allocation_bytes ||
      spec->size_bytes > memory.allocation_bytes - memory.allocation_offset) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "size_bytes %d at allocation_offset %d of an allocation of %d bytes: the window must lie "
        "inside, at a multiple of %d",
        spec->size_bytes, memory.allocation_offset, memory.allocation_bytes,
        kExternalAlignmentBytes));
  }
  spec->memory.reset(::fcntl(memory.fd, F_DUPFD_CLOEXEC, 0));
  if (!spec->memory) {
    const std::string text = absl::StrFormat("duplicating fd %d of the external memory: %s",
                                             memory.fd, std::strerror(errno));
    return errno == EBADF ? absl::InvalidArgumentError(text) : absl::ResourceExhaustedError(text);
  }
  spec->placement = v1::PLACEMENT_EXTERNAL;
  spec->alignment_bytes = 0;
  spec->allocation_bytes = memory.allocation_bytes;
  spec->allocation_offset = memory.allocation_offset;
  return absl::OkStatus();
}

void fill_info(const Group& group, cco_group_info* info) {
  const Topology& topology = group.topology();
  info->rank = topology.rank;
  info->size = topology.size;
  info->lsa_rank = topology.lsa_rank;
  info->lsa_size = topology.lsa_size;
  info->lsa_first = topology.lsa_first;
  info->device = group.device();
  info->slab_count = group.slab_count();
  info->group_id = topology.group_id;
  info->generation = topology.generation;
  info->flat_base = group.flat_base();
  info->slot_bytes = topology.slot_bytes;
}

}  // namespace

// With C linkage these are the functions that cco.h declares outside of all namespaces; g++ does
// not carry the visibility over from there.
#pragma GCC visibility push(default)
extern "C" {

const char* cco_error_message(void) { return last_message(); }

int32_t cco_error_rank(void) { return last_rank(); }

const char* cco_status_name(cco_status status) {
  static constexpr const char* kNames[] = {"CCO_OK",
                                           "CCO_CANCELLED",
                                           "CCO_UNKNOWN",
                                           "CCO_INVALID_ARGUMENT",
                                           "CCO_DEADLINE_EXCEEDED",
                                           "CCO_NOT_FOUND",
                                           "CCO_ALREADY_EXISTS",
                                           "CCO_PERMISSION_DENIED",
                                           "CCO_RESOURCE_EXHAUSTED",
                                           "CCO_FAILED_PRECONDITION",
                                           "CCO_ABORTED",
                                           "CCO_OUT_OF_RANGE",
                                           "CCO_UNIMPLEMENTED",
                                           "CCO_INTERNAL",
                                           "CCO_UNAVAILABLE",
                                           "CCO_DATA_LOSS",
                                           "CCO_UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(status);
  return index < std::size(kNames) ? kNames[index] : "CCO_UNKNOWN";
}

uint32_t cco_version(void) {
  return CCO_VERSION_MAJOR * 10000 + CCO_VERSION_MINOR * 100 + CCO_VERSION_PATCH;
}

cco_status cco_client_create(const cco_client_options* options, cco_client** client) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(client, "client"));
    cco_client_options known{};
    if (options != nullptr) {
      CCO_ASSIGN_OR_RETURN(known, read_struct(options, "options"));
    }
    CCO_ASSIGN_OR_RETURN(
        const std::chrono::milliseconds timeout,
        Client::collective_timeout(known.timeout_ms == 0 ? kDefaultTimeoutMs : known.timeout_ms));
    std::string path;
    if (known.socket_path != nullptr) {
      path = known.socket_path;
    } else {
      CCO_ASSIGN_OR_RETURN(path, Connection::default_socket_path());
    }
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Client> made, Client::create(path, timeout));
    return publish(std::move(made), 0, client);
  });
}

void cco_client_destroy(cco_client* client) {
  destroy(client, [](Client&) {});
}

cco_status cco_client_get_info(cco_client* client, cco_client_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Client> found, find(client));
    cco_client_info known{};
    known.gpu_count = static_cast<uint32_t>(found->driver().devices().size());
    known.incarnation = found->connection().incarnation();
    copy_text(found->node().version(), known.daemon_version);
    copy_text(found->driver().name(), known.driver);
    copy_text(found->driver().version(), known.driver_version);
    return write_struct(known, info, "info");
  });
}

cco_status cco_client_get_gpu(cco_client* client, int32_t device, cco_gpu_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Client> found, find(client));
    const std::vector<GpuDevice>& devices = found->driver().devices();
    if (device < 0 || static_cast<size_t>(device) >= devices.size()) {
      return absl::NotFoundError(absl::StrFormat(
          "no device %d: this process sees %d, counted from 0", device, devices.size()));
    }
    const GpuDevice& gpu = devices[static_cast<size_t>(device)];
    cco_gpu_info known{};
    known.device = device;
    known.total_bytes = gpu.total_bytes;
    known.granularity_bytes = gpu.granularity_bytes;
    copy_text(gpu.uuid, known.uuid);
    copy_text(gpu.pci_bus_id, known.pci_bus_id);
    copy_text(gpu.name, known.name);
    copy_text(gpu.arch, known.arch);
    return write_struct(known, info, "info");
  });
}

cco_status cco_unique_id_create(cco_unique_id* id) {
  return guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(id, "id"));
    std::memcpy(id->bytes, random_bytes(sizeof id->bytes).data(), sizeof id->bytes);
    return absl::OkStatus();
  });
}

cco_status cco_environment_get(cco_environment* environment) {
  return guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(environment, "environment"));
    CCO_ASSIGN_OR_RETURN(const Environment read, read_environment());
    cco_environment known{};
    known.rank = read.rank;
    known.size = read.size;
    known.local_rank = read.local_rank;
    known.local_size = read.local_size;
    copy_text(read.launcher, known.launcher);
    copy_text(read.job, known.job);
    return write_struct(known, environment, "environment");
  });
}

cco_status cco_group_create(cco_client* client, const cco_group_options* options,
                            cco_group** group) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(group, "group"));
    CCO_ASSIGN_OR_RETURN(cco_group_options known, read_struct(options, "options"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Client> found, find(client));
    if (known.device == CCO_DEVICE_CURRENT) {
      known.device = current_device(found->driver().name()).value_or(CCO_DEVICE_BY_LOCAL_RANK);
    }
    CCO_ASSIGN_OR_RETURN(
        const Group::Options resolved,
        resolve_group_options(known, found->driver().devices(), read_environment()));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> made, Group::create(std::move(found), resolved));
    return publish(std::move(made), token_of(client), group);
  });
}

cco_status cco_group_shrink(cco_group* group, const cco_shrink_options* options,
                            cco_group** survivors) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(survivors, "survivors"));
    cco_shrink_options known{};
    if (options != nullptr) {
      CCO_ASSIGN_OR_RETURN(known, read_struct(options, "options"));
    }
    CCO_ASSIGN_OR_RETURN(const std::chrono::milliseconds timeout,
                         Client::collective_timeout(known.timeout_ms));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> made, Group::shrink(*found, timeout));
    CCO_ASSIGN_OR_RETURN(
        const HandleTable::Replaced replaced,
        table().replace(HandleKind::kGroup, token_of(group), std::move(made),
                        "the group has been shrunk: its live ranks go on in the group that "
                        "cco_group_shrink() gave. Destroy this handle, and use that one"));
    *survivors = reinterpret_cast<cco_group*>(replaced.token);
    return absl::OkStatus();
  });
}

void cco_group_destroy(cco_group* group) {
  destroy(group, [](Group&) {});
}

cco_status cco_group_get_info(cco_group* group, cco_group_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    cco_group_info known{};
    fill_info(*found, &known);
    return write_struct(known, info, "info");
  });
}

cco_status cco_group_barrier(cco_group* group, uint32_t timeout_ms) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(const std::chrono::milliseconds timeout,
                         Client::collective_timeout(timeout_ms));
    return found->barrier(timeout);
  });
}

cco_status cco_group_agree(cco_group* group, const char* problem, uint32_t timeout_ms) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(const std::chrono::milliseconds timeout,
                         Client::collective_timeout(timeout_ms));
    return found->barrier(timeout, problem == nullptr ? "" : problem);
  });
}

cco_status cco_group_check(cco_group* group) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    return found->check();
  });
}

cco_status cco_group_get_conditions(cco_group* group, uint32_t* conditions) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    if (conditions == nullptr) return absl::InvalidArgumentError("conditions is null");
    *conditions = found->conditions();
    return absl::OkStatus();
  });
}

cco_status cco_group_abort(cco_group* group) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Group> found, find(group));
    return found->abort();
  });
}

cco_status cco_window_create(cco_group* group, const char* name, const cco_window_options* options,
                             cco_window** window) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(window, "window"));
    CCO_ASSIGN_OR_RETURN(const WindowSpec spec, window_spec(name, options));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Window> made, Window::create(std::move(found), spec));
    return publish(std::move(made), token_of(group), window);
  });
}

cco_status cco_window_register(cco_group* group, const char* name,
                               const cco_window_options* options, const cco_external_memory* memory,
                               cco_window** window) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(window, "window"));
    CCO_ASSIGN_OR_RETURN(WindowSpec spec, window_spec(name, options));
    CCO_ASSIGN_OR_RETURN(const cco_external_memory known, read_struct(memory, "memory"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> found, find(group));
    CCO_RETURN_IF_ERROR(add_external(known, &spec));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Window> made, Window::create(std::move(found), spec));
    return publish(std::move(made), token_of(group), window);
  });
}

cco_status cco_window_open(cco_group* group, const char* name, cco_window** window) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(window, "window"));
    CCO_RETURN_IF_ERROR(require(name, "name"));
    CCO_ASSIGN_OR_RETURN(std::string checked, checked_name(name, "window"));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Window> opened, Window::open(std::move(found), checked));
    return publish(std::move(opened), token_of(group), window);
  });
}

void cco_window_destroy(cco_window* window) {
  destroy(window, [](Window& last) { last.give_up(); });
}

cco_status cco_window_get_info(cco_window* window, cco_window_info* info) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    cco_window_info known{};
    known.is_found = found->is_found() ? 1 : 0;
    known.window_id = found->id();
    known.generation = found->device().generation;
    known.size_bytes = found->device().size_bytes;
    known.offset = found->offset();
    return write_struct(known, info, "info");
  });
}

cco_status cco_window_get_device(cco_window* window, cco_window_device* device) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(device, "device"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    *device = found->device();
    return absl::OkStatus();
  });
}

cco_status cco_window_get_device_pointer(cco_window* window, const cco_window_device** pointer) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(pointer, "pointer"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    *pointer = reinterpret_cast<const cco_window_device*>(found->device_pointer());
    return absl::OkStatus();
  });
}

cco_status cco_window_get_address(cco_window* window, uint32_t lsa_rank, uint64_t offset,
                                  void** address) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(address, "address"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Window> found, find(window));
    CCO_ASSIGN_OR_RETURN(const uint64_t value, found->address(lsa_rank, offset));
    *address = reinterpret_cast<void*>(value);
    return absl::OkStatus();
  });
}

cco_status cco_comm_create(cco_group* group, const cco_comm_options* options, cco_comm** comm) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(comm, "comm"));
    CCO_ASSIGN_OR_RETURN(const cco_comm_options known, read_struct(options, "options"));
    CCO_ASSIGN_OR_RETURN(CommOptions resolved, resolve_comm_options(known));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Group> found, find(group));
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<Comm> made,
                         Comm::create(std::move(found), std::move(resolved)));
    return publish(std::move(made), token_of(group), comm);
  });
}

void cco_comm_destroy(cco_comm* comm) {
  destroy(comm, [](Comm& last) { last.give_up(); });
}

cco_status cco_comm_check(cco_comm* comm) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> found, find(comm));
    return found->check();
  });
}

cco_status cco_comm_get_device(cco_comm* comm, cco_device_comm* device) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(device, "device"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> found, find(comm));
    *device = found->device();
    return absl::OkStatus();
  });
}

cco_status cco_comm_get_device_pointer(cco_comm* comm, const cco_device_comm** pointer) {
  return guarded_session(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(pointer, "pointer"));
    CCO_ASSIGN_OR_RETURN(const std::shared_ptr<Comm> found, find(comm));
    *pointer = reinterpret_cast<const cco_device_comm*>(found->device_pointer());
    return absl::OkStatus();
  });
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace cco::client
