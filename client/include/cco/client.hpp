// C++ owners over cco.h: header-only, C++17, nothing but the standard library.
//
// Each class owns one handle: empty after default construction and after being moved from; its
// destructor ends what it owns. create() is cco_*_create(): it returns the status, and on failure
// leaves `*result` alone. Errors in full: cco_error_message(), or or_throw().
#pragma once

#include <cstdint>
#include <stdexcept>
#include <utility>

#include "cco/cco.h"

namespace cco {

/// What or_throw() throws.
class Error : public std::runtime_error {
 public:
  Error(cco_status status, const char* message, int32_t rank)
      : std::runtime_error(message), status_(status), rank_(rank) {}
  cco_status status() const { return status_; }
  int32_t rank() const { return rank_; }  ///< The rank it is about; -1: none.

 private:
  cco_status status_;
  int32_t rank_;
};

/// For callers who prefer exceptions; the library itself never throws. On the thread that made the
/// call.
inline void or_throw(cco_status status) {
  if (status != CCO_OK) throw Error(status, cco_error_message(), cco_error_rank());
}

namespace detail {

/// Move-only owner of one handle.
template <typename Handle, void (*destroy)(Handle*)>
class Owner {
 public:
  Owner() = default;
  explicit Owner(Handle* handle) : handle_(handle) {}
  Owner(Owner&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owner& operator=(Owner&& other) noexcept {
    if (this != &other) destroy(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
    return *this;
  }
  ~Owner() { destroy(handle_); }
  Handle* get() const { return handle_; }

 private:
  Handle* handle_ = nullptr;
};

}  // namespace detail

/// This process's session with the node's daemon. It outlives a daemon that keeps its state: see
/// "Restarts" in cco.h.
class Client {
 public:
  struct Options {
    const char* socket_path = nullptr;  ///< $CCO_SOCKET, else /run/cco/memd.sock.
    uint32_t timeout_ms = 0;            ///< For calls that wait for no other rank; 0: 5000.
  };

  [[nodiscard]] static cco_status create(const Options& options, Client* result) {
    const cco_client_options raw{sizeof raw, options.timeout_ms, options.socket_path};
    cco_client* made = nullptr;
    const cco_status status = cco_client_create(&raw, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_client, cco_client_destroy>(made);
    return status;
  }

  [[nodiscard]] cco_status get_info(cco_client_info* info) const {
    info->struct_size = sizeof *info;
    return cco_client_get_info(get(), info);
  }
  [[nodiscard]] cco_status get_gpu(int32_t device, cco_gpu_info* info) const {
    info->struct_size = sizeof *info;
    return cco_client_get_gpu(get(), device, info);
  }

  explicit operator bool() const { return get() != nullptr; }
  cco_client* get() const { return handle_.get(); }

 private:
  detail::Owner<cco_client, cco_client_destroy> handle_;
};

/// One rank's membership in a group.
class Group {
 public:
  struct Options {
    uint32_t rank = CCO_RANK_FROM_ENVIRONMENT;
    uint32_t size = 0;                          ///< Ignored with CCO_RANK_FROM_ENVIRONMENT.
    int32_t device = CCO_DEVICE_BY_LOCAL_RANK;  ///< Whose memory this rank brings.
    const char* gpu_uuid = nullptr;             ///< The same by UUID; null: `device` counts.
    const char* name = nullptr;                 ///< Or unique_id; neither: the launcher's job.
    const cco_unique_id* unique_id = nullptr;
    uint64_t slot_bytes = 0;      ///< 0: the largest GPU's memory rounded up.
    uint32_t timeout_ms = 0;      ///< 0: one minute.
    uint32_t lsa_size = 0;        ///< Ranks per LSA team; 0: $CCO_LSA_SIZE, else all of the node.
    const char* lease = nullptr;  ///< A lease's token; null: $CCO_LEASE, else the cgroup's, if any.
  };

  /// Collective.
  [[nodiscard]] static cco_status create(const Client& client, const Options& options,
                                         Group* result) {
    cco_group_options raw{};
    raw.struct_size = sizeof raw;
    raw.rank = options.rank;
    raw.size = options.size;
    raw.device = options.device;
    raw.gpu_uuid = options.gpu_uuid;
    raw.name = options.name;
    raw.unique_id = options.unique_id;
    raw.slot_bytes = options.slot_bytes;
    raw.timeout_ms = options.timeout_ms;
    raw.lsa_size = options.lsa_size;
    raw.lease = options.lease;
    cco_group* made = nullptr;
    const cco_status status = cco_group_create(client.get(), &raw, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_group, cco_group_destroy>(made);
    return status;
  }

  /// The live ranks of `old` go on in `*result`, with the same memory; see cco_group_shrink(). The
  /// two may be one object.
  [[nodiscard]] static cco_status shrink(const Group& old, uint32_t timeout_ms, Group* result) {
    const cco_shrink_options raw{sizeof raw, timeout_ms};
    cco_group* made = nullptr;
    const cco_status status = cco_group_shrink(old.get(), &raw, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_group, cco_group_destroy>(made);
    return status;
  }

  /// Waits for all ranks. Collective; 0: one minute.
  [[nodiscard]] cco_status barrier(uint32_t timeout_ms = 0) const {
    return cco_group_barrier(get(), timeout_ms);
  }
  /// A barrier that fails on all if a rank has a `problem`; see cco_group_agree().
  [[nodiscard]] cco_status agree(const char* problem, uint32_t timeout_ms = 0) const {
    return cco_group_agree(get(), problem, timeout_ms);
  }
  /// CCO_ABORTED once a rank is lost or somebody aborted. Cheap.
  [[nodiscard]] cco_status check() const { return cco_group_check(get()); }
  [[nodiscard]] cco_status get_conditions(uint32_t* conditions) const {
    return cco_group_get_conditions(get(), conditions);
  }
  /// Ends the group's calls and device waits, on every rank, for good.
  [[nodiscard]] cco_status abort() const { return cco_group_abort(get()); }
  [[nodiscard]] cco_status get_info(cco_group_info* info) const {
    info->struct_size = sizeof *info;
    return cco_group_get_info(get(), info);
  }

  explicit operator bool() const { return get() != nullptr; }
  cco_group* get() const { return handle_.get(); }

 private:
  detail::Owner<cco_group, cco_group_destroy> handle_;
};

/// Device memory of this process alone, which can become a window; see cco_memory_create().
class Memory {
 public:
  /// Local, as all here.
  [[nodiscard]] static cco_status create(const Client& client, int32_t device, uint64_t size_bytes,
                                         Memory* result) {
    cco_memory* made = nullptr;
    const cco_status status = cco_memory_create(client.get(), device, size_bytes, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_memory, cco_memory_destroy>(made);
    return status;
  }

  /// Of memory that somebody else has allocated, under a second address.
  [[nodiscard]] static cco_status import(const Client& client, int32_t device, const void* address,
                                         uint64_t size_bytes, Memory* result) {
    cco_memory* made = nullptr;
    const cco_status status = cco_memory_import(client.get(), device, address, size_bytes, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_memory, cco_memory_destroy>(made);
    return status;
  }

  [[nodiscard]] cco_status get_info(cco_memory_info* info) const {
    info->struct_size = sizeof *info;
    return cco_memory_get_info(get(), info);
  }

  explicit operator bool() const { return get() != nullptr; }
  cco_memory* get() const { return handle_.get(); }

 private:
  detail::Owner<cco_memory, cco_memory_destroy> handle_;
};

/// One rank's use of a window: the same range of the symmetric heap on every rank. Kernels that use
/// it, and what they posted, must have ended before it does; see cco_window_destroy().
class Window {
 public:
  struct Options {
    uint64_t size_bytes = 0;          ///< Required.
    uint64_t alignment_bytes = 0;     ///< A power of two; 0: 256.
    uint32_t timeout_ms = 0;          ///< 0: one minute.
    uint32_t wait_for_memory_ms = 0;  ///< That others have; 0: not at all.
    uint64_t keep_ms = 0;             ///< How long it is kept once nobody uses it; 0: not at all.
  };

  /// Collective. With a null or empty name matched by order.
  [[nodiscard]] static cco_status create(const Group& group, const char* name,
                                         const Options& options, Window* result) {
    const cco_window_options raw = raw_options(options);
    cco_window* made = nullptr;
    const cco_status status = cco_window_create(group.get(), name, &raw, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_window, cco_window_destroy>(made);
    return status;
  }

  /// One that came along when the group was shrunk. Local.
  [[nodiscard]] static cco_status open(const Group& group, const char* name, Window* result) {
    cco_window* made = nullptr;
    const cco_status status = cco_window_open(group.get(), name, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_window, cco_window_destroy>(made);
    return status;
  }

  struct ExternalMemory {
    int fd = -1;                     ///< Borrowed.
    uint64_t allocation_bytes = 0;   ///< Of the whole allocation.
    uint64_t allocation_offset = 0;  ///< Where in it the window begins, a multiple of 16.
  };

  /// Collective: a window of memory that each rank already has.
  [[nodiscard]] static cco_status register_memory(const Group& group, const char* name,
                                                  const Options& options,
                                                  const ExternalMemory& memory, Window* result) {
    const cco_window_options raw = raw_options(options);
    const cco_external_memory raw_memory{sizeof raw_memory, memory.fd, memory.allocation_bytes,
                                         memory.allocation_offset};
    cco_window* made = nullptr;
    const cco_status status = cco_window_register(group.get(), name, &raw, &raw_memory, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_window, cco_window_destroy>(made);
    return status;
  }

  [[nodiscard]] cco_status get_info(cco_window_info* info) const {
    info->struct_size = sizeof *info;
    return cco_window_get_info(get(), info);
  }
  /// For kernels, by value; valid while this window is.
  [[nodiscard]] cco_status get_device(cco_window_device* device) const {
    return cco_window_get_device(get(), device);
  }
  /// The same struct in device memory.
  [[nodiscard]] cco_status get_device_pointer(const cco_window_device** pointer) const {
    return cco_window_get_device_pointer(get(), pointer);
  }
  /// Address of `offset_bytes` in an LSA rank's copy.
  template <typename T>
  [[nodiscard]] cco_status get_address(uint32_t lsa_rank, uint64_t offset_bytes,
                                       T** address) const {
    void* found = nullptr;
    const cco_status status = cco_window_get_address(get(), lsa_rank, offset_bytes, &found);
    if (status == CCO_OK) *address = static_cast<T*>(found);
    return status;
  }
  /// Lets processes of a tenant attach; `access` is CCO_ACCESS_*.
  [[nodiscard]] cco_status grant(const char* tenant, uint32_t access,
                                 cco_grant_token* token) const {
    return cco_window_grant(get(), tenant, access, token);
  }
  [[nodiscard]] cco_status revoke(const cco_grant_token& token) const {
    return cco_window_revoke(get(), &token);
  }

  explicit operator bool() const { return get() != nullptr; }
  cco_window* get() const { return handle_.get(); }

 private:
  static cco_window_options raw_options(const Options& options) {
    return {sizeof(cco_window_options),
            options.timeout_ms,
            options.size_bytes,
            options.alignment_bytes,
            options.wait_for_memory_ms,
            0,
            options.keep_ms};
  }

  detail::Owner<cco_window, cco_window_destroy> handle_;
};

/// This process's use of a window that another tenant has granted; see cco_attachment_create().
class Attachment {
 public:
  /// Local.
  [[nodiscard]] static cco_status create(const Client& client, const cco_grant_token& token,
                                         int32_t device, Attachment* result) {
    cco_attachment* made = nullptr;
    const cco_status status = cco_attachment_create(client.get(), &token, device, &made);
    if (status == CCO_OK) {
      result->handle_ = detail::Owner<cco_attachment, cco_attachment_destroy>(made);
    }
    return status;
  }

  [[nodiscard]] cco_status get_info(cco_attachment_info* info) const {
    info->struct_size = sizeof *info;
    return cco_attachment_get_info(get(), info);
  }
  /// Address of `offset_bytes` in a rank's copy.
  template <typename T>
  [[nodiscard]] cco_status get_address(uint32_t rank, uint64_t offset_bytes, T** address) const {
    void* found = nullptr;
    const cco_status status = cco_attachment_get_address(get(), rank, offset_bytes, &found);
    if (status == CCO_OK) *address = static_cast<T*>(found);
    return status;
  }

  explicit operator bool() const { return get() != nullptr; }
  cco_attachment* get() const { return handle_.get(); }

 private:
  detail::Owner<cco_attachment, cco_attachment_destroy> handle_;
};

/// One rank's use of a device communicator. Kernels that use it, and what they posted, must have
/// ended before it does; see cco_comm_destroy().
class Comm {
 public:
  struct Options {
    uint32_t signal_count = 0;      ///< 8-byte signals per rank, up to 65536.
    uint32_t barrier_count = 0;     ///< LSA barriers that may be in use at once, up to 4096.
    uint32_t timeout_ms = 0;        ///< 0: one minute.
    uint32_t transports = 0;        ///< CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA: must be there.
    uint32_t sdma_queue_count = 0;  ///< Per peer, up to 8; 0: 2.
    const char* sdma_provider = nullptr;  ///< Null: $CCO_SDMA_PROVIDER, else the best.
    const char* gda_provider = nullptr;   ///< Null: $CCO_GDA_PROVIDER, else the best.
    uint32_t gda_connection = 0;          ///< CCO_GDA_CONNECT_*; 0: FULL.
    uint32_t gda_context_count = 0;       ///< Queue pairs per peer, up to 64; 0: 4.
    uint32_t gda_signal_count = 16;       ///< Up to 65536.
    uint32_t gda_counter_count = 16;      ///< Up to 65536.
    uint32_t gda_queue_depth = 0;         ///< A power of two; 0: 1024.
    int32_t gda_traffic_class = -1;       ///< 0..255; -1: the provider's default.
    uint32_t rail_barrier_count = 0;      ///< With GDA.
    uint32_t world_barrier_count = 0;     ///< With GDA.
  };

  /// Collective, matched by order.
  [[nodiscard]] static cco_status create(const Group& group, const Options& options, Comm* result) {
    const bool gda = (options.transports & CCO_TRANSPORT_GDA) != 0;
    cco_comm_options raw{};
    raw.struct_size = sizeof raw;
    raw.signal_count = options.signal_count;
    raw.barrier_count = options.barrier_count;
    raw.timeout_ms = options.timeout_ms;
    raw.transports = options.transports;
    raw.sdma_queue_count = options.sdma_queue_count;
    raw.sdma_provider = options.sdma_provider;
    raw.gda_provider = options.gda_provider;
    raw.gda_connection = options.gda_connection;
    raw.gda_context_count = options.gda_context_count;
    raw.gda_signal_count = gda ? options.gda_signal_count : 0;
    raw.gda_counter_count = gda ? options.gda_counter_count : 0;
    raw.gda_queue_depth = options.gda_queue_depth;
    raw.gda_traffic_class = options.gda_traffic_class;
    raw.rail_barrier_count = options.rail_barrier_count;
    raw.world_barrier_count = options.world_barrier_count;
    cco_comm* made = nullptr;
    const cco_status status = cco_comm_create(group.get(), &raw, &made);
    if (status == CCO_OK) result->handle_ = detail::Owner<cco_comm, cco_comm_destroy>(made);
    return status;
  }

  /// For kernels, by value; valid while this communicator is.
  [[nodiscard]] cco_status get_device(cco_device_comm* device) const {
    return cco_comm_get_device(get(), device);
  }
  /// The same struct in device memory.
  [[nodiscard]] cco_status get_device_pointer(const cco_device_comm** pointer) const {
    return cco_comm_get_device_pointer(get(), pointer);
  }
  /// CCO_INTERNAL once a transport has reported an error to a kernel. Cheap.
  [[nodiscard]] cco_status check() const { return cco_comm_check(get()); }

  explicit operator bool() const { return get() != nullptr; }
  cco_comm* get() const { return handle_.get(); }

 private:
  detail::Owner<cco_comm, cco_comm_destroy> handle_;
};

}  // namespace cco
