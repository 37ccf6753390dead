#include "client/mori/local_memory.h"

#include <limits>

#include "client/base/status_macros.h"
#include "client/mori/errors.h"
#include "device/runtime/open_driver.h"

namespace cco::compat {

absl::StatusOr<std::unique_ptr<LocalMemory>> LocalMemory::open(const ::cco::Client& client,
                                                               int device) {
  cco_client_info node{};
  CCO_RETURN_IF_ERROR(from_client(client.get_info(&node)));
  cco_gpu_info gpu{};
  CCO_RETURN_IF_ERROR(from_client(client.get_gpu(device, &gpu)));
  DriverOptions options;
  CCO_ASSIGN_OR_RETURN(options.kind, parse_driver_kind(node.driver));
  if (options.kind == DriverKind::kHost) options.host_devices = node.gpu_count;
  std::unique_ptr<LocalMemory> memory(new LocalMemory(client, device));
  memory->granularity_bytes_ = gpu.granularity_bytes;
  CCO_ASSIGN_OR_RETURN(memory->driver_, open_driver(options));
  CCO_ASSIGN_OR_RETURN(memory->context_, memory->driver_->open(device));
  return memory;
}

absl::StatusOr<std::unique_ptr<LocalPiece>> LocalMemory::describe(::cco::Memory memory) {
  cco_memory_info info{};
  CCO_RETURN_IF_ERROR(from_client(memory.get_info(&info)));
  return std::unique_ptr<LocalPiece>(new LocalPiece(std::move(memory), info));
}

absl::StatusOr<std::unique_ptr<LocalPiece>> LocalMemory::allocate(uint64_t size_bytes) {
  if (size_bytes > std::numeric_limits<uint64_t>::max() - granularity_bytes_) {
    return absl::ResourceExhaustedError("that is more than there can be");
  }
  const uint64_t rounded =
      (size_bytes + granularity_bytes_ - 1) / granularity_bytes_ * granularity_bytes_;
  ::cco::Memory made;
  CCO_RETURN_IF_ERROR(from_client(::cco::Memory::create(client_, device_, rounded, &made)));
  return describe(std::move(made));
}

absl::StatusOr<std::unique_ptr<LocalPiece>> LocalMemory::import(const void* pointer,
                                                                uint64_t size_bytes) {
  ::cco::Memory made;
  CCO_RETURN_IF_ERROR(
      from_client(::cco::Memory::import(client_, device_, pointer, size_bytes, &made)));
  return describe(std::move(made));
}

}  // namespace cco::compat
