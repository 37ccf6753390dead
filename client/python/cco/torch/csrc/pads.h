// Signal pads: words by which ranks wait for one another, in torch's layout and protocol. A put
// turns the word of (channel, sender) at the receiver from 0 to 1 and a wait turns it back, so that
// torch's own kernels and these can use one pad, and a pad is zero again after each use.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gpu.h"
#include "group.h"

namespace cco_torch {

/// Where torch says 0, "for ever", a wait takes this long: every wait has an end.
inline constexpr uint64_t kLongestMs = 600'000;

/// What one call does: put to and wait for one peer, or all others.
struct Signal {
  static constexpr int kNone = -1;
  static constexpr int kAll = -2;
  const char* name;
  int put_to = kNone;
  int wait_for = kNone;
};

struct PadUse {
  const std::vector<void*>& pads;  // By rank.
  void** pads_on_device;
  const Group& group;
  int channel;
  uint64_t timeout_ms;

  uint64_t limit_ms() const { return timeout_ms == 0 ? kLongestMs : timeout_ms; }
};

// ---- CPU tensors: on the calling thread ----

/// Sleeps until somebody turns the word, it is not `seen` any more, or a while is over.
inline void sleep_on(uint32_t* word, uint32_t seen) {
  const timespec a_while{0, 10'000'000};
  ::syscall(SYS_futex, word, FUTEX_WAIT, seen, &a_while, nullptr, 0);
}
inline void wake(uint32_t* word) {
  ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

inline void turn_word(const PadUse& use, const Signal& signal, int peer, bool is_put) {
  const int holder = is_put ? peer : use.group.rank();
  const int sender = is_put ? use.group.rank() : peer;
  uint32_t* word = static_cast<uint32_t*>(use.pads[static_cast<size_t>(holder)]) +
                   use.channel * use.group.size() + sender;
  const uint32_t from = is_put ? 0 : 1;
  const auto deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(use.limit_ms());
  for (uint32_t attempt = 1;; ++attempt) {
    uint32_t expected = from;
    if (__atomic_compare_exchange_n(word, &expected, 1 - from, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED)) {
      return wake(word);
    }
    if (attempt % 64 != 0) continue;
    sleep_on(word, 1 - from);
    const std::string lost = use.group.problem();
    const bool is_late = std::chrono::steady_clock::now() > deadline;
    TORCH_CHECK(lost.empty() && !is_late, "cco.torch: ", signal.name, " on channel ", use.channel,
                ", rank ", use.group.rank(), is_put ? " to " : " from ", "rank ", peer,
                is_put ? ": its last signal has not been waited for" : ": no signal",
                lost.empty() ? " within " + std::to_string(use.limit_ms()) + " ms" : "; " + lost);
  }
}

inline void run_on_host(const PadUse& use, const Signal& signal) {
  const WithoutInterpreter others_run;
  for (const bool is_put : {true, false}) {
    const int wanted = is_put ? signal.put_to : signal.wait_for;
    for (int peer = 0; peer < use.group.size(); ++peer) {
      if (peer == wanted || (wanted == Signal::kAll && peer != use.group.rank())) {
        turn_word(use, signal, peer, is_put);
      }
    }
  }
}

// ---- GPU tensors: one small kernel on the current stream, which graphs can capture ----

// Compiled when first needed, by the run-time compiler that torch brings. One thread for each peer.
// Late or bereft of a peer it stops the stream by a trap, as torch's own kernels do: a stream has
// no other way to fail, and going on would use what has not been written.
inline constexpr char kPadKernel[] = R"(
typedef unsigned long long u64;
#if defined(__CUDACC_RTC__)
__device__ inline u64 now_ns() {
  u64 value;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value)::"memory");
  return value;
}
__device__ inline unsigned swap_if(unsigned* word, unsigned from, bool is_put) {
  unsigned seen;
  if (is_put) {
    asm volatile("atom.release.sys.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(seen) : "l"(word), "r"(from), "r"(1 - from) : "memory");
  } else {
    asm volatile("atom.acquire.sys.cas.b32 %0, [%1], %2, %3;"
                 : "=r"(seen) : "l"(word), "r"(from), "r"(1 - from) : "memory");
  }
  return seen;
}
__device__ inline void stop() { asm volatile("trap;"); }
#else
__device__ inline u64 now_ns() { return wall_clock64() * 10; }  // 100 MHz.
__device__ inline unsigned swap_if(unsigned* word, unsigned from, bool is_put) {
  unsigned seen = from;
  if (is_put) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");  // System scope.
#if defined(__GFX9__)
    __builtin_amdgcn_s_waitcnt(0);  // Some compilers drop the one after the write-back.
#endif
    __atomic_compare_exchange_n(word, &seen, 1 - from, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  } else {
    __atomic_compare_exchange_n(word, &seen, 1 - from, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
  }
  return seen;
}
__device__ inline void stop() { __builtin_trap(); }
#endif
__device__ void turn_word(unsigned* word, int rank, int peer, int channel, bool is_put,
                          u64 limit_ns, const volatile u64* abort_word) {
  const unsigned from = is_put ? 0 : 1;
  u64 begin = 0;
  for (unsigned attempt = 1; swap_if(word, from, is_put) != from; ++attempt) {
    if (begin == 0) begin = now_ns();
    const bool is_late = now_ns() - begin > limit_ns;
    const bool is_lost = (attempt & 1023) == 0 && *abort_word != 0;
    if (!is_late && !is_lost) continue;
    printf("cco.torch: rank %d, channel %d, %s rank %d: %s\n", rank, channel,
           is_put ? "signal to" : "signal from", peer,
           is_lost ? "a rank of the group is lost" : "not in time");
    stop();
  }
}
extern "C" __global__ void cco_torch_pad(unsigned** pads, int rank, int size, int channel,
                                         int put_to, int wait_for, u64 limit_ns,
                                         const volatile u64* abort_word) {
  const int peer = threadIdx.x;
  if (peer >= size) return;
  const bool is_other = peer != rank;
  if (peer == put_to || (put_to == -2 && is_other)) {
    turn_word(pads[peer] + channel * size + rank, rank, peer, channel, true, limit_ns, abort_word);
  }
  if (peer == wait_for || (wait_for == -2 && is_other)) {
    turn_word(pads[rank] + channel * size + peer, rank, peer, channel, false, limit_ns, abort_word);
  }
}
)";

class PadKernels {
 public:
  static PadKernels& get() {
    static PadKernels& kernels = *new PadKernels;
    return kernels;
  }

  /// Loads the kernel for the current device, if that has not been done: not during a capture.
  void prepare(c10::Device device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (functions_.count(device.index()) != 0) return;
    if (code_.empty()) {
      find_calls();
      compile();
    }
    void* module = nullptr;
    require_gpu(load_module_(&module, code_.data()), "loading the signal kernel");
    void* function = nullptr;
    require_gpu(get_function_(&function, module, "cco_torch_pad"), "finding the signal kernel");
    functions_[device.index()] = function;
  }

  void launch(const PadUse& use, const Signal& signal, c10::Device device) {
    void* function = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      function = functions_.at(device.index());
    }
    void* stream = nullptr;
    require_gpu(current_stream_(device.index(), &stream), "asking torch for the current stream");
    void* pads = use.pads_on_device;
    int rank = use.group.rank(), size = use.group.size(), channel = use.channel;
    int put_to = signal.put_to, wait_for = signal.wait_for;
    uint64_t limit_ns = use.limit_ms() * 1'000'000, abort_word = use.group.abort_word();
    void* arguments[] = {&pads, &rank, &size, &channel, &put_to, &wait_for, &limit_ns, &abort_word};
    const unsigned threads = (static_cast<unsigned>(size) + 63) / 64 * 64;
    require_gpu(launch_(function, 1, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
                std::string("launching ") + signal.name);
  }

 private:
  void find_calls() {
    GpuLibraries& libraries = GpuLibraries::get();
    const bool is_hip = libraries.is_hip();
    libraries.find_in_torch("aoti_torch_get_current_cuda_stream", &current_stream_);
    libraries.find_in_vendor(is_hip ? "hipModuleLoadData" : "cuModuleLoadData", &load_module_);
    libraries.find_in_vendor(is_hip ? "hipModuleGetFunction" : "cuModuleGetFunction",
                             &get_function_);
    libraries.find_in_vendor(is_hip ? "hipModuleLaunchKernel" : "cuLaunchKernel", &launch_);
  }

  void compile() {
    const bool is_hip = GpuLibraries::get().is_hip();
    const auto find = [&](const char* name, auto** call) {
      GpuLibraries::get().find_in_vendor(
          ((is_hip ? "hiprtc" : "nvrtc") + std::string(name)).c_str(), call);
    };
    int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
    int (*build)(void*, int, const char* const*);
    int (*log_size)(void*, size_t*);
    int (*log)(void*, char*);
    int (*code_size)(void*, size_t*);
    int (*code)(void*, char*);
    int (*destroy)(void**);
    find("CreateProgram", &create);
    find("CompileProgram", &build);
    find("GetProgramLogSize", &log_size);
    find("GetProgramLog", &log);
    find(is_hip ? "GetCodeSize" : "GetPTXSize", &code_size);
    find(is_hip ? "GetCode" : "GetPTX", &code);
    find("DestroyProgram", &destroy);
    void* program = nullptr;
    require_gpu(create(&program, kPadKernel, "cco_torch_pad.cu", 0, nullptr, nullptr),
                "making a program");
    // PTX of the oldest kind there is, which the driver finishes for its GPU. HIP asks the device.
    const char* const oldest = "--gpu-architecture=compute_75";
    const int built = build(program, is_hip ? 0 : 1, &oldest);
    size_t size = 0;
    std::string text;
    if (built != 0 && log_size(program, &size) == 0) {
      text.resize(size);
      log(program, text.data());
    }
    TORCH_CHECK(built == 0, "cco.torch: compiling the signal kernel: ", text);
    require_gpu(code_size(program, &size), "compiling the signal kernel");
    code_.resize(size);
    require_gpu(code(program, code_.data()), "compiling the signal kernel");
    destroy(&program);
  }

  std::mutex mutex_;
  std::string code_;
  std::map<int, void*> functions_;  // By device.
  int (*current_stream_)(int32_t, void**) = nullptr;
  int (*load_module_)(void**, const void*) = nullptr;
  int (*get_function_)(void**, void*, const char*) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                 void**, void**) = nullptr;
};

inline void run(const PadUse& use, const Signal& signal, c10::Device device) {
  if (device.is_cpu()) return run_on_host(use, signal);
  const c10::DeviceGuard guard(device);
  PadKernels::get().launch(use, signal, device);
}

}  // namespace cco_torch
