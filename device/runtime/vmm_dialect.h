// What CUDA and HIP do differently. vmm_driver.cc and vmm_context.cc do the rest, once for both.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "device/runtime/gpu_driver.h"
#include "device/runtime/vmm_api.h"

namespace cco {

/// Keeps one device's execution context alive, and makes it current around calls.
class VmmScope {
 public:
  virtual ~VmmScope() = default;
  /// The calling thread's current device is afterwards what it was before.
  virtual vmm::Result run(absl::FunctionRef<vmm::Result()> call) = 0;
};

/// Thread safe. `device` is an ordinal, which for both libraries is also the index into
/// GpuDriver::devices().
class VmmDialect {
 public:
  virtual ~VmmDialect() = default;

  virtual std::string_view name() const = 0;
  virtual std::string version() const = 0;
  virtual std::string error_name(vmm::Result result) const = 0;

  /// Runs one call of the memory half, with whatever it needs around it.
  virtual vmm::Result run(int device, absl::FunctionRef<vmm::Result()> call) = 0;

  /// How to allocate on `device`.
  virtual vmm::AllocationProp properties(int device, MemoryKind kind) = 0;
  /// INVALID_ARGUMENT: certainly not memory of this library, or too small.
  virtual absl::Status check_import(BorrowedFd fd, uint64_t size_bytes) const = 0;
  /// What the library's import call takes for `fd`, which must outlive the call.
  virtual void* import_argument(int& fd) const = 0;
  /// The device that imported memory lies on, if the library can tell, else `importer`.
  virtual int locate(vmm::Handle handle, int importer) = 0;
  virtual vmm::Result set_access(const vmm::Api& api, vmm::Address address, uint64_t size_bytes,
                                 const vmm::AccessDesc& access) = 0;
  /// Whether an allocation must be exported only once, and the fd be kept.
  virtual bool keeps_exported_fd() const = 0;

  virtual absl::StatusOr<std::unique_ptr<VmmScope>> open_scope(int device) = 0;
  virtual uint32_t clock_khz(int device) const = 0;
  virtual uint32_t multiprocessor_count(int device) const = 0;
  /// Loads the function's code, so that its first launch waits for nothing that runs.
  virtual vmm::Result prepare(vmm::Function function) = 0;
  /// GpuStream::write_words() by one call of the library. kNotSupported, kInvalidValue: none does
  /// that, or not at these addresses; nothing is stored.
  virtual vmm::Result write_words(vmm::Stream stream, absl::Span<const StreamWord> words) = 0;
  /// Lets a launch ask for this much dynamic shared memory.
  virtual vmm::Result allow_shared(vmm::Function function, uint32_t shared_bytes) = 0;
};

/// The status of a failed library call. `what` says what was tried, with its values. Lack of memory
/// or of file descriptors is RESOURCE_EXHAUSTED and says which; otherwise the code follows the
/// library's error.
absl::Status vmm_error(const VmmDialect& dialect, std::string_view symbol, vmm::Result result,
                       std::string_view what);

/// Fills `api` from `library`. FAILED_PRECONDITION names the first function that is missing.
enum class VmmVendor { kCuda, kHip };
absl::Status resolve(const DynamicLibrary& library, VmmVendor vendor, vmm::Api* api);

/// What both libraries say in the same way of one device: name, PCI address, size, granularity. The
/// caller adds uuid, arch and has_vmm. `granularity` is the option asked for.
absl::StatusOr<GpuDevice> describe_device(const vmm::Api& api, VmmDialect& dialect, int device,
                                          bool has_vmm, int granularity);

}  // namespace cco
