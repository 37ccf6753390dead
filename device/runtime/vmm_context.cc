#include "device/runtime/vmm_context.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "device/runtime/stream_words.h"

namespace cco {
namespace {

constexpr uint32_t kSharedBytesWithoutAsking = 48u << 10;
constexpr uint64_t kZeroChunkBytes = 4u << 20;

/// What a context and its streams share. Outlived by the driver's api and dialect.
struct Execution {
  const vmm::Api& api;
  VmmDialect& dialect;
  const std::unique_ptr<VmmScope> scope;

  absl::Status call(std::string_view symbol, std::string_view what,
                    absl::FunctionRef<vmm::Result()> function) const {
    return call(
        symbol, [what] { return std::string(what); }, function);
  }
  /// `what` is asked only after a failure: making the text takes about as long as some calls.
  absl::Status call(std::string_view symbol, absl::FunctionRef<std::string()> what,
                    absl::FunctionRef<vmm::Result()> function) const {
    const vmm::Result result = scope->run(function);
    return result == vmm::kSuccess ? absl::OkStatus() : vmm_error(dialect, symbol, result, what());
  }
};

class VmmStream final : public GpuStream {
 public:
  /// INTERNAL or RESOURCE_EXHAUSTED from the library.
  static absl::StatusOr<std::unique_ptr<VmmStream>> create(const Execution& execution,
                                                           StreamUse use) {
    const int priority = use == StreamUse::kEngine ? vmm::kHighestPriority : vmm::kDefaultPriority;
    std::unique_ptr<VmmStream> stream(new VmmStream(execution));
    const vmm::Api& api = execution.api;
    CCO_RETURN_IF_ERROR(execution.call(api.stream_create.symbol(), "create a stream", [&] {
      return api.stream_create(&stream->stream_, vmm::kStreamNonBlocking, priority);
    }));
    for (vmm::Event& event : stream->marks_) {
      CCO_RETURN_IF_ERROR(execution.call(api.event_create.symbol(), "create a stream's event", [&] {
        return api.event_create(&event, vmm::kEventDefault);
      }));
    }
    return stream;
  }

  ~VmmStream() override {
    execution_.scope->run([&] {
      for (vmm::Event event : marks_) {
        if (event != nullptr) execution_.api.event_destroy(event);
      }
      return stream_ != nullptr ? execution_.api.stream_destroy(stream_) : vmm::kSuccess;
    });
  }

  vmm::Stream handle() const { return stream_; }

  absl::Status launch(GpuFunction function, LaunchShape shape,
                      absl::Span<void* const> arguments) override {
    const auto kernel = static_cast<vmm::Function>(function.handle());
    const auto what = [&] {
      return absl::StrFormat("launch %d blocks of %d threads with %d bytes of shared memory",
                             shape.blocks, shape.threads, shape.shared_bytes);
    };
    if (shape.shared_bytes > kSharedBytesWithoutAsking) {
      CCO_RETURN_IF_ERROR(execution_.call("dynamic shared memory", what, [&] {
        return execution_.dialect.allow_shared(kernel, shape.shared_bytes);
      }));
    }
    return execution_.call(api().launch.symbol(), what, [&] {
      return api().launch(kernel, shape.blocks, 1, 1, shape.threads, 1, 1, shape.shared_bytes,
                          stream_, const_cast<void**>(arguments.data()), nullptr);
    });
  }

  absl::Status copy(uint64_t destination, uint64_t source, uint64_t size_bytes) override {
    const auto what = [&] {
      return absl::StrFormat("copy %d bytes from %#x to %#x", size_bytes, source, destination);
    };
    return execution_.call(api().copy_on_device.symbol(), what, [&] {
      return api().copy_on_device(destination, source, size_bytes, stream_);
    });
  }

  absl::Status write_words(absl::Span<const StreamWord> words) override {
    CCO_RETURN_IF_ERROR(check_words(words));
    if (words.size() > 1) {
      const vmm::Result result =
          execution_.scope->run([&] { return execution_.dialect.write_words(stream_, words); });
      if (result == vmm::kSuccess) return absl::OkStatus();
      if (result != vmm::kNotSupported && result != vmm::kInvalidValue) {
        return vmm_error(execution_.dialect, "write words", result,
                         absl::StrFormat("write %d words, from %d at %#x to %d at %#x",
                                         words.size(), words.front().value, words.front().address,
                                         words.back().value, words.back().address));
      }
    }
    for (const StreamWord& word : words) CCO_RETURN_IF_ERROR(store(word));
    return absl::OkStatus();
  }

  absl::Status synchronize() override {
    return execution_.call(api().stream_synchronize.symbol(), "wait for a stream's work",
                           [&] { return api().stream_synchronize(stream_); });
  }

  absl::Status mark(int index) override {
    if (index != 0 && index != 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("mark %d: a stream has marks 0 and 1", index));
    }
    return execution_.call(api().event_record.symbol(), absl::StrFormat("mark %d", index),
                           [&] { return api().event_record(marks_[index], stream_); });
  }

  absl::StatusOr<double> elapsed_us() override {
    float elapsed_ms = 0;
    CCO_RETURN_IF_ERROR(
        execution_.call(api().event_elapsed.symbol(), "time between mark 0 and mark 1",
                        [&] { return api().event_elapsed(&elapsed_ms, marks_[0], marks_[1]); }));
    return double{elapsed_ms} * 1000.0;
  }

 private:
  explicit VmmStream(const Execution& execution) : execution_(execution) {}
  const vmm::Api& api() const { return execution_.api; }

  absl::Status store(const StreamWord& word) {
    const auto what = [&] {
      return absl::StrFormat("write %d to the word at %#x", word.value, word.address);
    };
    // Flags 0: a system-wide barrier comes before the store.
    const absl::Status status = execution_.call(api().write_word.symbol(), what, [&] {
      return api().write_word(stream_, word.address, word.value, 0);
    });
    if (!absl::IsFailedPrecondition(status) && !absl::IsInvalidArgument(status)) return status;
    // Not for this memory. A copy of so few bytes has read its source when the call returns.
    return execution_.call(api().copy_to_device.symbol(), what, [&] {
      return api().copy_to_device(word.address, &word.value, sizeof word.value, stream_);
    });
  }

  const Execution& execution_;
  vmm::Stream stream_ = nullptr;
  vmm::Event marks_[2] = {};
};

class VmmContext final : public GpuContext {
 public:
  VmmContext(const vmm::Api& api, VmmDialect& dialect, std::unique_ptr<VmmScope> scope, int device,
             const GpuDevice& facts)
      : execution_{api, dialect, std::move(scope)}, device_(device), facts_(facts) {}

  ~VmmContext() override {
    copies_.reset();
    const std::lock_guard lock(mutex_);
    for (const auto& [module, handle] : modules_) {
      execution_.scope->run([&, handle = handle] { return api().module_unload(handle); });
    }
  }

  absl::Status start() {
    CCO_ASSIGN_OR_RETURN(copies_, VmmStream::create(execution_, StreamUse::kEngine));
    return absl::OkStatus();
  }

  int device() const override { return device_; }
  uint32_t clock_khz() const override { return execution_.dialect.clock_khz(device_); }
  uint32_t multiprocessor_count() const override {
    return execution_.dialect.multiprocessor_count(device_);
  }

  absl::Status copy_to_device(uint64_t destination, const void* source,
                              uint64_t size_bytes) override {
    CCO_RETURN_IF_ERROR(execution_.call(
        api().copy_to_device.symbol(),
        absl::StrFormat("copy %d bytes to %#x", size_bytes, destination),
        [&] { return api().copy_to_device(destination, source, size_bytes, copies_->handle()); }));
    return copies_->synchronize();
  }

  absl::Status copy_to_host(void* destination, uint64_t source, uint64_t size_bytes) override {
    CCO_RETURN_IF_ERROR(execution_.call(
        api().copy_to_host.symbol(), absl::StrFormat("copy %d bytes from %#x", size_bytes, source),
        [&] { return api().copy_to_host(destination, source, size_bytes, copies_->handle()); }));
    return copies_->synchronize();
  }

  absl::Status fill_zero(uint64_t destination, uint64_t size_bytes) override {
    const absl::Status status = execution_.call(
        api().fill.symbol(), absl::StrFormat("zero %d bytes at %#x", size_bytes, destination),
        [&] { return api().fill(destination, 0, size_bytes, copies_->handle()); });
    if (status.ok()) return copies_->synchronize();
    // hipMemset is reported to fail so on memory that copies reach (ROCm 7.15, see ROCm/mori
    // src/cco/cco_init.cpp).
    if (absl::IsResourceExhausted(status)) return copy_zeros(destination, size_bytes);
    return status;
  }

  absl::StatusOr<uint64_t> register_host(void* address, uint64_t size_bytes) override {
    const std::string what =
        absl::StrFormat("register %d bytes of host memory at %p", size_bytes, address);
    CCO_RETURN_IF_ERROR(execution_.call(api().host_register.symbol(), what, [&] {
      return api().host_register(address, size_bytes,
                                 vmm::kHostRegisterPortable | vmm::kHostRegisterMapped);
    }));
    uint64_t device_address = 0;
    const absl::Status status = execution_.call(api().host_address.symbol(), what, [&] {
      return api().host_address(&device_address, address, 0);
    });
    if (status.ok()) return device_address;
    unregister_host(address);
    return status;
  }

  void unregister_host(void* address) noexcept override {
    execution_.scope->run([&] { return api().host_unregister(address); });
  }

  absl::StatusOr<GpuFunction> load(const KernelModule& module, std::string_view kernel) override {
    CCO_ASSIGN_OR_RETURN(const vmm::Module loaded, load_module(module));
    vmm::Function function = nullptr;
    const std::string what = absl::StrFormat("kernel \"%s\" of module \"%s\" on %s (%s)", kernel,
                                             module.name, facts_.uuid, facts_.arch);
    CCO_RETURN_IF_ERROR(execution_.call(api().module_function.symbol(), what, [&] {
      return api().module_function(&function, loaded, std::string(kernel).c_str());
    }));
    CCO_RETURN_IF_ERROR(
        execution_.call("load", what, [&] { return execution_.dialect.prepare(function); }));
    return GpuFunction(function);
  }

  absl::StatusOr<std::unique_ptr<GpuStream>> create_stream(StreamUse use) override {
    return VmmStream::create(execution_, use);
  }

 private:
  const vmm::Api& api() const { return execution_.api; }

  absl::Status copy_zeros(uint64_t destination, uint64_t size_bytes) {
    const std::vector<uint8_t> zeros(std::min(size_bytes, kZeroChunkBytes));
    for (uint64_t offset = 0; offset < size_bytes; offset += zeros.size()) {
      CCO_RETURN_IF_ERROR(copy_to_device(destination + offset, zeros.data(),
                                         std::min<uint64_t>(zeros.size(), size_bytes - offset)));
    }
    return absl::OkStatus();
  }

  /// The image for exactly this architecture, else one that the library compiles.
  const KernelImage* choose_image(const KernelModule& module) const {
    const KernelImage* portable = nullptr;
    for (const KernelImage& image : module.images) {
      if (image.arch == facts_.arch) return &image;
      if (image.arch == "ptx" && execution_.dialect.name() == "cuda") portable = &image;
    }
    return portable;
  }

  absl::StatusOr<vmm::Module> load_module(const KernelModule& module) {
    const std::lock_guard lock(mutex_);
    if (const auto found = modules_.find(&module); found != modules_.end()) return found->second;
    const KernelImage* image = choose_image(module);
    if (image == nullptr) {
      const auto arch = [](std::string* out, const KernelImage& each) { out->append(each.arch); };
      return absl::FailedPreconditionError(absl::StrFormat(
          "module \"%s\" has no kernels for %s (%s), only for: %s; build it with that target",
          module.name, facts_.arch, facts_.uuid, absl::StrJoin(module.images, ", ", arch)));
    }
    // PTX is text and must end in a zero byte. Code objects go as they are: HIP may keep a pointer
    // to them.
    std::string text;
    const void* bytes = image->bytes.data();
    if (image->arch == "ptx") {
      text.assign(image->bytes.begin(), image->bytes.end());
      bytes = text.c_str();
    }
    vmm::Module loaded = nullptr;
    CCO_RETURN_IF_ERROR(
        execution_.call(api().module_load.symbol(),
                        absl::StrFormat("load module \"%s\" for %s on %s (%s)", module.name,
                                        image->arch, facts_.uuid, facts_.arch),
                        [&] { return api().module_load(&loaded, bytes); }));
    modules_.emplace(&module, loaded);
    return loaded;
  }

  const Execution execution_;
  const int device_;
  const GpuDevice facts_;
  std::unique_ptr<VmmStream> copies_;  ///< So that a copy waits for no kernel.
  std::mutex mutex_;
  std::map<const KernelModule*, vmm::Module> modules_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuContext>> create_vmm_context(const vmm::Api& api,
                                                               VmmDialect& dialect, int device,
                                                               const GpuDevice& facts) {
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<VmmScope> scope, dialect.open_scope(device));
  auto context = std::make_unique<VmmContext>(api, dialect, std::move(scope), device, facts);
  CCO_RETURN_IF_ERROR(context->start());
  return context;
}

}  // namespace cco
