#include "device/runtime/foreign_memory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/runtime/dynamic_library.h"
#include "device/runtime/fd_facts.h"
#include "device/runtime/hip_dialect.h"
#include "device/runtime/vmm_api.h"

namespace cco {
namespace {

// Names of the calls below in libcuda and libamdhip64, whose signatures agree.
struct Vendor {
  const char* variable;
  std::vector<const char*> libraries;
  const char* current_device;
  const char* address_range;
  const char* retain;
  const char* release;
  const char* export_handle;
  const char* plain_allocation;  // As programs name them.
  const char* vmm_allocation;
};

Vendor vendor_of(std::string_view driver) {
  if (driver == "cuda") {
    return {"CCO_CUDA_LIBRARY",
            {"libcuda.so.1"},
            "cuCtxGetDevice",
            "cuMemGetAddressRange_v2",
            "cuMemRetainAllocationHandle",
            "cuMemRelease",
            "cuMemExportToShareableHandle",
            "cudaMalloc()",
            "cuMemCreate()"};
  }
  return {"CCO_HIP_LIBRARY",
          {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"},
          "hipGetDevice",
          "hipMemGetAddressRange",
          "hipMemRetainAllocationHandle",
          "hipMemRelease",
          "hipMemExportToShareableHandle",
          "hipMalloc()",
          "hipMemCreate()"};
}

template <typename Signature>
absl::StatusOr<LibraryCall<Signature>> find_call(const DynamicLibrary& library, const char* name) {
  LibraryCall<Signature> call;
  if (call.resolve(library, name)) return call;
  return absl::FailedPreconditionError(absl::StrFormat("%s has no %s", library.path(), name));
}

absl::Status no_such_memory(const void* pointer, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrFormat("%p: %s", pointer, why));
}

// ---- CUDA and HIP ----

absl::StatusOr<ForeignMemory> find_on_gpu(std::string_view driver, const void* pointer) {
  const Vendor vendor = vendor_of(driver);
  CCO_ASSIGN_OR_RETURN(const DynamicLibrary library,
                       DynamicLibrary::open(vendor.variable, vendor.libraries));
  CCO_ASSIGN_OR_RETURN(const auto address_range,
                       (find_call<vmm::Result(vmm::Address*, size_t*, vmm::Address)>(
                           library, vendor.address_range)));
  CCO_ASSIGN_OR_RETURN(const auto retain,
                       (find_call<vmm::Result(vmm::Handle*, void*)>(library, vendor.retain)));
  CCO_ASSIGN_OR_RETURN(const auto release,
                       (find_call<vmm::Result(vmm::Handle)>(library, vendor.release)));
  CCO_ASSIGN_OR_RETURN(const auto export_handle,
                       (find_call<vmm::Result(void*, vmm::Handle, int, unsigned long long)>(
                           library, vendor.export_handle)));

  std::unique_lock<std::mutex> turn;
  if (driver == "hip") turn = std::unique_lock(hip_memory_mutex());
  const auto address = reinterpret_cast<vmm::Address>(pointer);
  vmm::Address base = 0;
  size_t bytes = 0;
  vmm::Result result = address_range(&base, &bytes, address);
  vmm::Handle handle = 0;
  if (result == vmm::kSuccess) result = retain(&handle, reinterpret_cast<void*>(base));
  if (result != vmm::kSuccess) {
    return no_such_memory(
        pointer,
        absl::StrFormat("not memory of %s's virtual memory management (error %d), as what %s gives "
                        "is not: make it with cco_memory_create() or ccoMemAlloc(), with %s and an "
                        "exportable handle, or, from torch, with "
                        "PYTORCH_ALLOC_CONF=expandable_segments:True",
                        driver, result, vendor.plain_allocation, vendor.vmm_allocation));
  }
  int fd = -1;
  result = export_handle(&fd, handle, vmm::kHandlePosixFd, 0);
  release(handle);
  if (result != vmm::kSuccess) {
    return no_such_memory(pointer,
                          absl::StrFormat("%s fails with %d: was the memory made exportable as a "
                                          "file descriptor, by this process? torch's expandable "
                                          "segments are with TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1 "
                                          "in the environment before its first allocation",
                                          vendor.export_handle, result));
  }
  UniqueFd own(fd);
  ::fcntl(own.get(), F_SETFD, FD_CLOEXEC);
  return ForeignMemory{std::move(own), bytes, address - base};
}

// ---- host ----

struct MappedFile {
  uint64_t device;
  uint64_t inode;
  uint64_t offset;  // Of the address in the file.
};

// As /proc/self/maps tells it: "start-end perms offset major:minor inode path".
std::optional<MappedFile> mapped_file_at(uint64_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long long start = 0, end = 0, offset = 0, inode = 0;
    unsigned major_number = 0, minor_number = 0;
    char rights[5] = "";
    if (std::sscanf(line.c_str(), "%llx-%llx %4s %llx %x:%x %llu", &start, &end, rights, &offset,
                    &major_number, &minor_number, &inode) != 7) {
      continue;
    }
    if (address < start || address >= end) continue;
    if (rights[3] != 's' || inode == 0) return std::nullopt;
    return MappedFile{makedev(major_number, minor_number), inode, offset + (address - start)};
  }
  return std::nullopt;
}

bool is_file(const struct stat& facts, const MappedFile& file) {
  return S_ISREG(facts.st_mode) && facts.st_dev == file.device && facts.st_ino == file.inode;
}

// By name: other threads may close their descriptors, and reuse the numbers, meanwhile.
absl::StatusOr<ForeignMemory> find_on_host(const void* pointer) {
  const std::optional<MappedFile> file = mapped_file_at(reinterpret_cast<uint64_t>(pointer));
  if (!file) return no_such_memory(pointer, "not a shared mapping of a memfd");
  const std::unique_ptr<DIR, int (*)(DIR*)> open_files(::opendir("/proc/self/fd"), ::closedir);
  if (open_files == nullptr) return system_error(errno, "list /proc/self/fd");
  while (const dirent* entry = ::readdir(open_files.get())) {
    const std::string name = absl::StrFormat("/proc/self/fd/%s", entry->d_name);
    struct stat facts {};
    if (::stat(name.c_str(), &facts) != 0 || !is_file(facts, *file)) continue;
    UniqueFd own(::open(name.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (!own && out_of_fds()) return absl::ResourceExhaustedError(fd_shortage());
    if (!own || ::fstat(own.get(), &facts) != 0 || !is_file(facts, *file)) continue;
    return ForeignMemory{std::move(own), static_cast<uint64_t>(facts.st_size), file->offset};
  }
  return no_such_memory(pointer,
                        "a shared mapping whose descriptor has been closed: keep the memfd open "
                        "until its memory is imported");
}

}  // namespace

std::optional<int> current_device(std::string_view driver) {
  if (driver == "host") return std::nullopt;
  const Vendor vendor = vendor_of(driver);
  const auto library = DynamicLibrary::open(vendor.variable, vendor.libraries);
  if (!library.ok()) return std::nullopt;
  const auto get = find_call<vmm::Result(int*)>(*library, vendor.current_device);
  int device = -1;
  if (!get.ok() || (*get)(&device) != vmm::kSuccess) return std::nullopt;
  return device;
}

absl::StatusOr<ForeignMemory> find_foreign_memory(std::string_view driver, const void* pointer,
                                                  uint64_t size_bytes) {
  CCO_ASSIGN_OR_RETURN(ForeignMemory found,
                       driver == "host" ? find_on_host(pointer) : find_on_gpu(driver, pointer));
  if (found.offset > found.allocation_bytes || size_bytes > found.allocation_bytes - found.offset) {
    return no_such_memory(pointer,
                          absl::StrFormat("%d bytes from offset %d of an allocation of %d "
                                          "bytes: a window lies in one allocation",
                                          size_bytes, found.offset, found.allocation_bytes));
  }
  return found;
}

}  // namespace cco
