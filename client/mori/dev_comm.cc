// Device communicators: a communicator of libcco_client, and what MORI's struct shows of it.
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "cco/device/abi_gda.h"
#include "cco/device/abi_sdma.h"
#include "client/base/status_macros.h"
#include "client/mori/comm.h"
#include "client/mori/errors.h"

namespace cco::compat {
namespace {

using mori::cco::ccoDevComm;
using mori::cco::ccoDevCommRequirements;
using mori::cco::ccoWindowDevice;

constexpr uint32_t kTimeoutMs = 300'000;

static_assert(CCO_GDA_CONNECT_FULL == mori::cco::CCO_GDA_CONNECTION_FULL);
static_assert(CCO_GDA_CONNECT_CROSS_NODE == mori::cco::CCO_GDA_CONNECTION_CROSSNODE);
static_assert(CCO_GDA_CONNECT_RAIL == mori::cco::CCO_GDA_CONNECTION_RAIL);

uint64_t word_address(const cco_window_device& control, uint32_t lsa_rank, uint64_t offset) {
  return control.win_base + (uint64_t{control.stride_4g} * lsa_rank << 32) + offset;
}

cco_comm_options options_for(const Requirements& wanted) {
  cco_comm_options options{};
  options.struct_size = sizeof options;
  options.timeout_ms = kTimeoutMs;
  options.barrier_count = wanted.lsa_barrier_count + wanted.world_barrier_count;
  options.transports = CCO_TRANSPORT_SDMA;
  options.sdma_queue_count = wanted.sdma_queue_count;
  if (!wanted.has_gda()) return options;
  options.transports |= CCO_TRANSPORT_GDA;
  options.gda_connection = wanted.connection;
  options.gda_context_count = wanted.context_count;
  options.gda_signal_count = wanted.signal_count;
  options.gda_counter_count = wanted.counter_count;
  options.gda_queue_depth = wanted.queue_depth;
  options.gda_traffic_class = wanted.traffic_class;
  options.rail_barrier_count = wanted.rail_barrier_count + wanted.world_barrier_count;
  return options;
}

}  // namespace

absl::StatusOr<cco_comm*> Comm::create_native(const Requirements& wanted) {
  cco_comm_options options = options_for(wanted);
  cco_comm* made = nullptr;
  cco_status status = cco_comm_create(group_.get(), &options, &made);
  if (status == CCO_FAILED_PRECONDITION && wanted.sdma_queue_count == 0) {
    // Nobody has asked for SDMA by name; every rank has got the same answer.
    options.transports &= ~CCO_TRANSPORT_SDMA;
    status = cco_comm_create(group_.get(), &options, &made);
  }
  CCO_RETURN_IF_ERROR(from_client(status));
  return made;
}

absl::StatusOr<ccoDevComm> Comm::create_dev_comm(const absl::Status& mine,
                                                 const ccoDevCommRequirements* given) {
  const absl::StatusOr<Requirements> read =
      mine.ok() ? read_requirements(*given, info_.lsa_size != info_.size) : mine;
  CCO_RETURN_IF_ERROR(agree(read.status()));
  const Requirements& wanted = *read;
  DevComm made;
  CCO_ASSIGN_OR_RETURN(cco_comm* const comm, create_native(wanted));
  made.comm = ::cco::detail::Owner<cco_comm, cco_comm_destroy>(comm);
  if (wanted.buffer_bytes != 0) {
    ::cco::Window::Options options;
    options.size_bytes = wanted.buffer_bytes;
    options.alignment_bytes = memory_->granularity_bytes();
    options.timeout_ms = kTimeoutMs;
    CCO_RETURN_IF_ERROR(
        from_client(::cco::Window::create(group_, nullptr, options, &made.buffers)));
  }
  const std::lock_guard lock(mutex_);
  absl::StatusOr<ccoDevComm> result = describe(wanted, &made);
  if (!result.ok()) {
    for (const uint64_t address : made.placed) arena_->remove(address);
    return result;
  }
  assign_resources(*given);
  dev_comms_[result->native.generation] = std::move(made);
  return result;
}

absl::StatusOr<uint64_t> Comm::place(const void* contents, uint64_t bytes, DevComm* made) {
  CCO_ASSIGN_OR_RETURN(const uint64_t address, arena_->place(contents, bytes));
  made->placed.push_back(address);
  return address;
}

absl::StatusOr<ccoDevComm> Comm::describe(const Requirements& wanted, DevComm* made) {
  cco_device_comm native{};
  CCO_RETURN_IF_ERROR(from_client(cco_comm_get_device(made->comm.get(), &native)));
  ccoDevComm result = mori::cco::ccoDevCommFromNative(native);
  CCO_ASSIGN_OR_RETURN(result.windowTable, table_->head());
  if (made->buffers) {
    cco_window_device buffers{};
    CCO_RETURN_IF_ERROR(from_client(made->buffers.get_device(&buffers)));
    std::memcpy(&result.resourceWindow_inlined, &buffers, sizeof buffers);
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t window, place(&result.resourceWindow_inlined,
                                                    sizeof result.resourceWindow_inlined, made));
  result.resourceWindow = reinterpret_cast<ccoWindowDevice*>(window);

  result.lsaBarrier.nBarriers = static_cast<int>(wanted.lsa_barrier_count);
  if (wanted.world_barrier_count != 0) {
    const uint64_t barrier_bytes = 8 * (uint64_t{native.lsa_size} + 1);
    result.hybridLsaBarrier = {
        static_cast<uint32_t>(native.barrier_offset + barrier_bytes * wanted.lsa_barrier_count),
        static_cast<int>(wanted.world_barrier_count)};
  }
  CCO_RETURN_IF_ERROR(describe_sdma(made, &result));
  if (!wanted.has_gda()) return result;
  result.gdaConnType = wanted.connection;
  CCO_RETURN_IF_ERROR(describe_gda(wanted, &result));
  return result;
}

absl::Status Comm::describe_sdma(DevComm* made, ccoDevComm* result) {
  const cco_device_comm& native = result->native;
  if (native.sdma == 0) return absl::OkStatus();
  cco_sdma_device sdma{};
  CCO_RETURN_IF_ERROR(memory_->context().copy_to_host(&sdma, native.sdma, sizeof sdma));
  result->sdma.sdmaNumQueue = sdma.queue_count;
  result->sdma.signalBuf = reinterpret_cast<uint64_t*>(
      word_address(native.control, native.lsa_rank, sdma.signal_offset));
  std::vector<uint64_t> pools;
  for (uint32_t lsa_rank = 0; lsa_rank < native.lsa_size; ++lsa_rank) {
    pools.push_back(word_address(native.control, lsa_rank, sdma.signal_offset));
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t table,
                       place(pools.data(), pools.size() * sizeof pools[0], made));
  result->sdma.peerSignalPtrs = reinterpret_cast<uint64_t**>(table);
  return absl::OkStatus();
}

absl::Status Comm::describe_gda(const Requirements& wanted, ccoDevComm* result) {
  const cco_device_comm& native = result->native;
  cco_gda_device gda{};
  CCO_RETURN_IF_ERROR(memory_->context().copy_to_host(&gda, native.gda, sizeof gda));
  const auto own = [&](uint64_t offset) {
    return reinterpret_cast<uint64_t*>(word_address(native.control, native.lsa_rank, offset));
  };
  result->ibgda.numQpPerPe = static_cast<int>(gda.context_count);
  result->ibgda.signalCount = static_cast<int>(gda.signal_count);
  // Where every sender has a slot of its own, a signal is no single word.
  result->ibgda.signalBuf = gda.signal_slots == 1 ? own(gda.signal_offset) : nullptr;
  result->ibgda.signalShadows = own(gda.shadow_offset);
  result->ibgda.counterCount = static_cast<int>(gda.counter_count);
  result->ibgda.counterBuf = own(gda.counter_offset);
  result->railGdaBarrier = {gda.rail_signal_first, static_cast<int>(wanted.rail_barrier_count)};
  if (wanted.world_barrier_count != 0) {
    result->hybridRailGdaBarrier = {
        gda.rail_signal_first + gda.rail_barrier_slots * wanted.rail_barrier_count,
        static_cast<int>(wanted.world_barrier_count)};
  }
  return absl::OkStatus();
}

absl::Status Comm::destroy_dev_comm(const ccoDevComm& dev_comm) {
  std::map<uint64_t, DevComm>::node_type ended;  // Destroyed without the lock.
  const std::lock_guard lock(mutex_);
  ended = dev_comms_.extract(dev_comm.native.generation);
  if (ended.empty()) {
    return absl::InvalidArgumentError("no device communicator of this communicator, or destroyed");
  }
  for (const uint64_t address : ended.mapped().placed) arena_->remove(address);
  return absl::OkStatus();
}

absl::StatusOr<ccoDevComm*> Comm::copy_to_device(const ccoDevComm& dev_comm) {
  const std::lock_guard lock(mutex_);
  if (dev_comms_.count(dev_comm.native.generation) == 0) {
    return absl::InvalidArgumentError("no device communicator of this process, or destroyed");
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t address, arena_->place(&dev_comm, sizeof dev_comm));
  const auto copy = reinterpret_cast<ccoDevComm*>(address);
  copies_.insert(copy);
  return copy;
}

bool Comm::free_device_copy(const ccoDevComm* copy) {
  const std::lock_guard lock(mutex_);
  if (copies_.erase(copy) == 0) return false;
  return arena_->remove(reinterpret_cast<uint64_t>(copy));
}

}  // namespace cco::compat
