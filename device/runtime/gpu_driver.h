// Port: what daemon and client need from GPUs. Back-ends: host (memfd as HBM), cuda, hip.
//
// Two halves. GpuDriver is memory alone and needs no GPU context: the daemon uses nothing else.
// GpuContext is execution (copies, kernels) and is opened by clients and by helpers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/base/unique.h"

namespace cco {

class GpuContext;
class GpuDriver;

/// What memory is for. Control words are polled by kernels while peers write them: where a driver
/// distinguishes cached and uncached (fine-grained) memory, kControl is the latter.
enum class MemoryKind { kData, kControl };
enum class Access { kReadOnly, kReadWrite };

/// One GPU as this process sees it. `uuid` names it everywhere outside this process; ordinals never
/// leave it.
struct GpuDevice {
  std::string uuid;        ///< "GPU-<hex>" (cuda, hip), "HOST-<n>" (host).
  std::string pci_bus_id;  ///< "0000:18:00.0"; empty on host.
  std::string name;        ///< The vendor's product name.
  std::string arch;        ///< "sm_90", "gfx942", "host": which kernel image it runs.
  uint64_t total_bytes = 0;
  uint64_t granularity_bytes =
      0;  ///< Sizes and addresses of allocations and mappings are multiples of this.
  uint64_t preferred_slab_bytes =
      0;                ///< What the daemon allocates at a time unless configured otherwise.
  bool has_vmm = true;  ///< False: no virtual memory management, so no heap on this device.
};

enum class GpuAllocationId : uint64_t {};

/// Owner of one reference to a physical allocation, created here or imported. The memory itself
/// lives while any reference, exported fd or mapping of it does. The driver must outlive its owner.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(GpuDriver* driver, GpuAllocationId id, uint64_t size_bytes)
      : driver_(driver), id_(id), size_bytes_(size_bytes) {}
  GpuMemory(GpuMemory&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        id_(other.id_),
        size_bytes_(other.size_bytes_) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(id_, other.id_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~GpuMemory();

  explicit operator bool() const { return driver_ != nullptr; }
  GpuAllocationId id() const { return id_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  GpuDriver* driver_ = nullptr;
  GpuAllocationId id_{};
  uint64_t size_bytes_ = 0;
};

/// Owner of a range of device virtual addresses. Everything mapped in it must be gone first.
class VaRange {
 public:
  VaRange() = default;
  VaRange(GpuDriver* driver, uint64_t address, uint64_t size_bytes)
      : driver_(driver), address_(address), size_bytes_(size_bytes) {}
  VaRange(VaRange&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        address_(other.address_),
        size_bytes_(other.size_bytes_) {}
  VaRange& operator=(VaRange&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~VaRange();

  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  GpuDriver* driver_ = nullptr;
  uint64_t address_ = 0;
  uint64_t size_bytes_ = 0;
};

/// Owner of one mapping inside a VaRange. Its GpuMemory may be destroyed before it.
class GpuMapping {
 public:
  GpuMapping() = default;
  GpuMapping(GpuDriver* driver, uint64_t address, uint64_t size_bytes)
      : driver_(driver), address_(address), size_bytes_(size_bytes) {}
  GpuMapping(GpuMapping&& other) noexcept
      : driver_(std::exchange(other.driver_, nullptr)),
        address_(other.address_),
        size_bytes_(other.size_bytes_) {}
  GpuMapping& operator=(GpuMapping&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(address_, other.address_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~GpuMapping();

  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  GpuDriver* driver_ = nullptr;
  uint64_t address_ = 0;
  uint64_t size_bytes_ = 0;
};

/// Thread safety: every call may come from any thread; a back-end serialises what its library
/// cannot take. Messages of all failures name the call, its arguments and the library's own error.
class GpuDriver {
 public:
  virtual ~GpuDriver() = default;

  virtual std::string_view name() const = 0;  ///< "host", "cuda", "hip".
  virtual std::string version() const = 0;    ///< Of the library below, for people.
  /// File of that library. Empty: there is none. A library keeps device files open, even of GPUs
  /// that nothing is left of, until the process ends.
  virtual std::string library() const = 0;
  /// The devices this process can see, in its own order; an index into this is what `device` means
  /// below.
  virtual const std::vector<GpuDevice>& devices() const = 0;

  /// `size_bytes`: a positive multiple of the device's granularity, else INVALID_ARGUMENT.
  /// RESOURCE_EXHAUSTED: no memory, or no file descriptor (the message says which).
  virtual absl::StatusOr<GpuMemory> allocate(int device, uint64_t size_bytes, MemoryKind kind) = 0;

  /// A new fd for the allocation, O_CLOEXEC. Only its creator can export (FAILED_PRECONDITION on
  /// imported memory).
  virtual absl::StatusOr<UniqueFd> export_fd(const GpuMemory& memory) = 0;

  /// Whether read_only_fd() is to be had. False: whoever has an export can map it for writing, even
  /// if it was given to him for reading.
  virtual bool enforces_read_only() const = 0;
  /// A new fd for memory that this user's process has exported, O_CLOEXEC, by which other users'
  /// processes cannot come to write there, whatever they do with it. UNIMPLEMENTED: see above.
  virtual absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd exported) = 0;

  /// A reference to memory exported by any process. `size_bytes` is the whole allocation's size.
  /// The caller keeps the fd, and must keep it open until set_access() of every mapping has
  /// returned (older ROCr imports only there). INVALID_ARGUMENT: not an fd of this driver's memory,
  /// or smaller than `size_bytes` (CUDA tells no sizes: there, map() finds out).
  virtual absl::StatusOr<GpuMemory> import_fd(int device, BorrowedFd fd, uint64_t size_bytes) = 0;

  /// Address space for `device`'s kernels, aligned to `alignment_bytes` (a power of two, at least
  /// the granularity).
  virtual absl::StatusOr<VaRange> reserve(int device, uint64_t size_bytes,
                                          uint64_t alignment_bytes) = 0;

  /// Maps the whole of `memory` at `address` inside a reserved range. No device can touch it before
  /// set_access(). ALREADY_EXISTS: something is mapped there.
  virtual absl::StatusOr<GpuMapping> map(uint64_t address, const GpuMemory& memory) = 0;

  /// Lets `device`'s kernels touch a mapping. FAILED_PRECONDITION: that device cannot reach that
  /// memory.
  virtual absl::Status set_access(const GpuMapping& mapping, int device, Access access) = 0;

  /// Execution on one device. The driver must outlive the context.
  virtual absl::StatusOr<std::unique_ptr<GpuContext>> open(int device) = 0;

 private:
  friend class GpuMemory;
  friend class VaRange;
  friend class GpuMapping;
  virtual void release(GpuAllocationId id) noexcept = 0;
  virtual void free_range(uint64_t address, uint64_t size_bytes) noexcept = 0;
  virtual void unmap(uint64_t address, uint64_t size_bytes) noexcept = 0;
};

inline GpuMemory::~GpuMemory() {
  if (driver_ != nullptr) driver_->release(id_);
}
inline VaRange::~VaRange() {
  if (driver_ != nullptr) driver_->free_range(address_, size_bytes_);
}
inline GpuMapping::~GpuMapping() {
  if (driver_ != nullptr) driver_->unmap(address_, size_bytes_);
}

// Execution: what clients and helpers use beside the memory half above.

/// One thread's share of a kernel on the host: `arguments` as for a GPU launch, one pointer per
/// parameter.
using HostKernel = void (*)(void** arguments);

/// A set of kernels, compiled once per target into this binary. Static data; see device/kernels/.
struct KernelImage {
  std::string_view arch;            ///< "sm_90", "ptx", "gfx942", ….
  absl::Span<const uint8_t> bytes;  ///< What the driver's module loader takes.
};
struct HostFunction {
  std::string_view name;
  HostKernel function;
  absl::Span<const uint32_t> argument_bytes;  ///< sizeof of every parameter: a launch copies them.
};
struct KernelModule {
  std::string_view name;
  absl::Span<const KernelImage> images;
  absl::Span<const HostFunction> host_functions;
};

struct LaunchShape {
  uint32_t blocks = 1;
  uint32_t threads = 1;       ///< Per block, 1..1024.
  uint32_t shared_bytes = 0;  ///< Dynamic shared memory per block.
};

/// A loaded kernel. Copyable; valid while its context is.
class GpuFunction {
 public:
  GpuFunction() = default;
  explicit GpuFunction(void* handle) : handle_(handle) {}
  void* handle() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

/// A word, and where to store it.
struct StreamWord {
  uint64_t address = 0;
  uint64_t value = 0;
};
/// Of one GpuStream::write_words().
inline constexpr size_t kMaxStreamWords = 64;

/// What a stream is for. Drivers put the streams of a process on few hardware queues (CUDA: 8), and
/// work waits there for whatever was queued before it: a copy behind a kernel that waits for this
/// very copy never starts. Streams of the two kinds share no queue.
enum class StreamUse {
  kKernels,
  kEngine,  ///< Copies and words that running kernels wait for.
};

/// An ordered queue of work. Work of two streams may run at the same time, and never waits for the
/// process's other streams.
class GpuStream {
 public:
  virtual ~GpuStream() = default;

  /// `arguments`: one pointer per kernel parameter; read before the call returns.
  virtual absl::Status launch(GpuFunction function, LaunchShape shape,
                              absl::Span<void* const> arguments) = 0;
  /// By the copy engine where there is one. Addresses are device addresses: of this device's
  /// memory, of a peer's that is mapped here, or of registered host memory.
  virtual absl::Status copy(uint64_t destination, uint64_t source, uint64_t size_bytes) = 0;
  /// Stores 8-byte aligned words in their order once all earlier work of the stream has taken
  /// effect: whoever sees one, be it a kernel, a peer or the CPU, sees that and the words before it
  /// too. Addresses as of copy(). At most kMaxStreamWords; by one call of the library where that
  /// keeps the order. Too many words, or one that is not aligned: none is stored; after other
  /// failures perhaps the first few.
  virtual absl::Status write_words(absl::Span<const StreamWord> words) = 0;
  absl::Status write_word(uint64_t address, uint64_t value) {
    const StreamWord word{address, value};
    return write_words(absl::MakeConstSpan(&word, 1));
  }
  /// Blocks until all earlier work has ended. Kernels bound themselves by deadlines; this adds
  /// none.
  virtual absl::Status synchronize() = 0;
  /// Time between the ends of the work before mark(0) and before mark(1), after synchronize(), in
  /// microseconds.
  virtual absl::Status mark(int index) = 0;
  virtual absl::StatusOr<double> elapsed_us() = 0;
};

/// Execution on one device, in the process's shared (primary) context. Thread safe. None of the
/// copies waits for kernels that are running.
class GpuContext {
 public:
  virtual ~GpuContext() = default;

  virtual int device() const = 0;
  /// Ticks per millisecond of the clock that cco::device::ticks() reads.
  virtual uint32_t clock_khz() const = 0;
  /// Blocks of `threads` threads that can be resident at once; bounds kernels that wait for one
  /// another.
  virtual uint32_t multiprocessor_count() const = 0;

  virtual absl::Status copy_to_device(uint64_t destination, const void* source,
                                      uint64_t size_bytes) = 0;
  virtual absl::Status copy_to_host(void* destination, uint64_t source, uint64_t size_bytes) = 0;
  virtual absl::Status fill_zero(uint64_t destination, uint64_t size_bytes) = 0;

  /// Makes a page-aligned range of host memory readable and writable by kernels; returns its device
  /// address. unregister_host() must come before the memory goes away.
  virtual absl::StatusOr<uint64_t> register_host(void* address, uint64_t size_bytes) = 0;
  virtual void unregister_host(void* address) noexcept = 0;

  /// FAILED_PRECONDITION: the module has no image for this device (the message lists what it has).
  /// NOT_FOUND: no kernel of that name in it.
  virtual absl::StatusOr<GpuFunction> load(const KernelModule& module, std::string_view kernel) = 0;

  virtual absl::StatusOr<std::unique_ptr<GpuStream>> create_stream(StreamUse use) = 0;
};

}  // namespace cco
