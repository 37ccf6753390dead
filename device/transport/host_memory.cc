#include "device/transport/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco {

absl::StatusOr<HostMemory> HostMemory::allocate(GpuContext* context, uint64_t size_bytes) {
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  HostMemory memory;
  const uint64_t rounded = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* const data =
      ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("mmap of %d bytes for queues", rounded));
  }
  memory.data_ = static_cast<char*>(data);
  memory.size_bytes_ = rounded;
  CCO_ASSIGN_OR_RETURN(memory.address_, context->register_host(data, rounded));
  memory.context_ = context;
  return memory;
}

HostMemory::~HostMemory() {
  if (context_ != nullptr) context_->unregister_host(data_);
  if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

}  // namespace cco
