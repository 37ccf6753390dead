// The GPU libraries that torch has loaded, found by name: this extension is compiled without any
// GPU toolkit's headers. NVIDIA's and AMD's calls agree in their signatures.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

namespace cco_torch {

inline void require_gpu(int result, const std::string& what) {
  TORCH_CHECK(result == 0, "cco.torch: ", what, " fails with error ", result);
}

class GpuLibraries {
 public:
  static GpuLibraries& get() {
    static GpuLibraries& libraries = *new GpuLibraries;
    return libraries;
  }
  /// torch/lib. Before anything else.
  void set_folder(const std::string& folder) { folder_ = folder; }

  bool is_hip() {
    load();
    return is_hip_;
  }
  /// Of torch, or of what it needs: the run-time library. Throws: there is none.
  template <typename Call>
  void find_in_torch(const char* name, Call** call) {
    load();
    find(torch_, name, call);
  }
  /// Of the driver or of the run-time compiler.
  template <typename Call>
  void find_in_vendor(const char* name, Call** call) {
    load();
    find(vendor_, name, call);
  }

 private:
  template <typename Call>
  static void find(void* library, const char* name, Call** call) {
    *call = reinterpret_cast<Call*>(::dlsym(library, name));
    TORCH_CHECK(*call != nullptr, "cco.torch: torch's GPU libraries have no ", name, "()");
  }

  void load() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (vendor_ != nullptr) return;
    torch_ = open("libtorch_cuda.so");
    is_hip_ = torch_ == nullptr;
    if (is_hip_) torch_ = open("libtorch_hip.so");
    // A library of torch's that links the driver and the compiler of its own installation.
    if (torch_ != nullptr) vendor_ = open("libcaffe2_nvrtc.so");
    TORCH_CHECK(vendor_ != nullptr, "cco.torch: no GPU libraries of torch in ", folder_, ": ",
                problem_);
  }
  void* open(const std::string& name) {
    void* library = ::dlopen((folder_ + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) problem_ = ::dlerror();
    return library;
  }

  std::mutex mutex_;
  std::string folder_;
  std::string problem_;
  void* torch_ = nullptr;
  void* vendor_ = nullptr;
  bool is_hip_ = false;
};

/// Copies from the host to memory that nobody uses yet, and has done so when it returns. Not by
/// torch's operations: those may be traced or replaced around the caller.
inline void upload(void* address, const void* source, uint64_t size_bytes, c10::Device device) {
  if (device.is_cpu()) {
    std::memcpy(address, source, size_bytes);
    return;
  }
  static int (*copy)(void*, const void*, size_t, int) = nullptr;
  static int (*synchronize)(void*) = nullptr;
  static std::once_flag& once = *new std::once_flag;
  std::call_once(once, [] {
    GpuLibraries& libraries = GpuLibraries::get();
    const bool is_hip = libraries.is_hip();
    libraries.find_in_torch(is_hip ? "hipMemcpy" : "cudaMemcpy", &copy);
    libraries.find_in_torch(is_hip ? "hipStreamSynchronize" : "cudaStreamSynchronize",
                            &synchronize);
  });
  constexpr int kHostToDevice = 1;
  require_gpu(copy(address, source, size_bytes, kHostToDevice), "copying to " + device.str());
  // The copy returns when it has left the host's memory.
  require_gpu(synchronize(nullptr), "copying to " + device.str());
}

}  // namespace cco_torch
