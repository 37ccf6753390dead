// Copies, streams, events, modules. Work is done before the call returns; AMD kernels cannot run
// here.
#include <chrono>
#include <cstring>
#include <iterator>
#include <string_view>

#include "state.h"

namespace fake_hip {
namespace {

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

/// Whether the current device may touch the bytes: a mapping it was given, or registered host
/// memory.
bool reachable(uint64_t address, size_t size, bool write) {
  State& all = state();
  auto mapping = all.mappings.upper_bound(address);
  if (mapping != all.mappings.begin()) {
    const auto& [start, facts] = *std::prev(mapping);
    auto access = facts.access.find(current_device());
    const int needed = write ? cco::vmm::kAccessReadWrite : cco::vmm::kAccessRead;
    if (address - start + size <= facts.size_bytes && access != facts.access.end()) {
      return (access->second & needed) == needed;
    }
  }
  auto registered = all.registrations.upper_bound(address);
  if (registered == all.registrations.begin()) return false;
  --registered;
  return address - registered->first + size <= registered->second;
}

Result copy(const char* function, uint64_t destination, bool check_destination, uint64_t source,
            bool check_source, size_t size, uint64_t stream) {
  if (Result injected = injected_failure(function)) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (stream != 0 && state().streams.count(stream) == 0)
    return misuse(function, "no such stream", stream);
  if (check_destination && !reachable(destination, size, true)) return kIllegalAddress;
  if (check_source && !reachable(source, size, false)) return kIllegalAddress;
  std::memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source), size);
  return kSuccess;
}

}  // namespace
FAKE_HIP_EXPORT Result hipMemcpyHtoDAsync(uint64_t destination, uint64_t source, size_t size,
                                          uint64_t stream) {
  return copy("hipMemcpyHtoDAsync", destination, true, source, false, size, stream);
}
FAKE_HIP_EXPORT Result hipMemcpyDtoHAsync(uint64_t destination, uint64_t source, size_t size,
                                          uint64_t stream) {
  return copy("hipMemcpyDtoHAsync", destination, false, source, true, size, stream);
}
FAKE_HIP_EXPORT Result hipMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t size,
                                          uint64_t stream) {
  return copy("hipMemcpyDtoDAsync", destination, true, source, true, size, stream);
}
FAKE_HIP_EXPORT Result hipStreamWriteValue64(uint64_t stream, uint64_t address, uint64_t value,
                                             unsigned flags) {
  if (Result injected = injected_failure("hipStreamWriteValue64")) return injected;
  if (flags != 0 || address % sizeof value != 0) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (state().streams.count(stream) == 0)
    return misuse("hipStreamWriteValue64", "no such stream", stream);
  if (!reachable(address, sizeof value, true)) return kIllegalAddress;
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), value, __ATOMIC_RELEASE);
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipMemsetD8Async(uint64_t destination, unsigned char value, size_t size,
                                        uint64_t stream) {
  if (Result injected = injected_failure("hipMemsetD8Async")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (stream != 0 && state().streams.count(stream) == 0)
    return misuse("hipMemsetD8Async", "no such stream", stream);
  if (!reachable(destination, size, true)) return kIllegalAddress;
  std::memset(reinterpret_cast<void*>(destination), value, size);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipStreamCreateWithPriority(uint64_t* stream, unsigned flags, int) {
  if (Result injected = injected_failure("hipStreamCreateWithPriority")) return injected;
  if (flags > 1) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().streams.insert(*stream = new_id());
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipStreamDestroy(uint64_t stream) {
  if (Result injected = injected_failure("hipStreamDestroy")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().streams.erase(stream) == 1 ? kSuccess
                                            : misuse("hipStreamDestroy", "no such stream", stream);
}
FAKE_HIP_EXPORT Result hipStreamSynchronize(uint64_t stream) {
  if (Result injected = injected_failure("hipStreamSynchronize")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().streams.count(stream) == 1
             ? kSuccess
             : misuse("hipStreamSynchronize", "no such stream", stream);
}

FAKE_HIP_EXPORT Result hipEventCreateWithFlags(uint64_t* event, unsigned flags) {
  if (Result injected = injected_failure("hipEventCreateWithFlags")) return injected;
  if (flags != 0) return kInvalidValue;
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().events.emplace(*event = new_id(), -1.0);
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipEventDestroy(uint64_t event) {
  if (Result injected = injected_failure("hipEventDestroy")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().events.erase(event) == 1 ? kSuccess
                                          : misuse("hipEventDestroy", "no such event", event);
}
FAKE_HIP_EXPORT Result hipEventRecord(uint64_t event, uint64_t stream) {
  if (Result injected = injected_failure("hipEventRecord")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto found = state().events.find(event);
  if (found == state().events.end()) return misuse("hipEventRecord", "no such event", event);
  if (state().streams.count(stream) == 0) return misuse("hipEventRecord", "no such stream", stream);
  found->second = now_ms();
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipEventElapsedTime(float* ms, uint64_t start, uint64_t stop) {
  if (Result injected = injected_failure("hipEventElapsedTime")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  auto first = state().events.find(start);
  auto second = state().events.find(stop);
  if (first == state().events.end() || second == state().events.end()) {
    return misuse("hipEventElapsedTime", "no such event", start);
  }
  if (first->second < 0 || second->second < 0) return kInvalidHandle;
  *ms = static_cast<float>(second->second - first->second);
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipHostRegister(uint64_t address, size_t size, unsigned flags) {
  if (Result injected = injected_failure("hipHostRegister")) return injected;
  if (address == 0 || size == 0 || flags != 3)
    return kInvalidValue;  // Portable and mapped: what cco needs.
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().registrations.emplace(address, size).second ? kSuccess : kAlreadyRegistered;
}
FAKE_HIP_EXPORT Result hipHostUnregister(uint64_t address) {
  if (Result injected = injected_failure("hipHostUnregister")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().registrations.erase(address) == 1 ? kSuccess : kNotRegistered;
}
FAKE_HIP_EXPORT Result hipHostGetDevicePointer(uint64_t* out, uint64_t address, unsigned flags) {
  if (Result injected = injected_failure("hipHostGetDevicePointer")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (flags != 0 || state().registrations.count(address) == 0) return kInvalidValue;
  *out = address;
  return kSuccess;
}

FAKE_HIP_EXPORT Result hipModuleLoadData(uint64_t* module, const void* image) {
  if (Result injected = injected_failure("hipModuleLoadData")) return injected;
  constexpr std::string_view kElf("\177ELF");
  constexpr std::string_view kBundle("__CLANG_OFFLOAD_BUNDLE__");
  const bool known =
      std::memcmp(image, kElf.data(), kElf.size()) == 0 ||
      std::strncmp(static_cast<const char*>(image), kBundle.data(), kBundle.size()) == 0;
  if (!known) return kInvalidImage;
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().modules.insert(*module = new_id());
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipModuleUnload(uint64_t module) {
  if (Result injected = injected_failure("hipModuleUnload")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  return state().modules.erase(module) == 1 ? kSuccess
                                            : misuse("hipModuleUnload", "no such module", module);
}
/// The function is the module's own id: there is nothing to call in it.
FAKE_HIP_EXPORT Result hipModuleGetFunction(uint64_t* function, uint64_t module, const char* name) {
  if (Result injected = injected_failure("hipModuleGetFunction")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (state().modules.count(module) == 0)
    return misuse("hipModuleGetFunction", "no such module", module);
  if (*name == '\0') return kNotFound;
  *function = module;
  return kSuccess;
}
FAKE_HIP_EXPORT Result hipModuleLaunchKernel(uint64_t function, unsigned, unsigned, unsigned,
                                             unsigned, unsigned, unsigned, unsigned,
                                             uint64_t stream, void**, void**) {
  if (Result injected = injected_failure("hipModuleLaunchKernel")) return injected;
  const std::lock_guard<std::mutex> lock(state().mutex);
  if (state().modules.count(function) == 0)
    return misuse("hipModuleLaunchKernel", "no such function", function);
  if (state().streams.count(stream) == 0)
    return misuse("hipModuleLaunchKernel", "no such stream", stream);
  return kNotSupported;
}

}  // namespace fake_hip
