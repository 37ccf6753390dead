// This process's session with cco-memd, and how device resources end.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "api.h"

namespace cco_torch {

/// Set when the interpreter ends. From then on nothing is given back: kernels may still run, other
/// libraries are half gone, and cco-memd learns of the process's end from the kernel.
inline std::atomic<bool>& is_exiting() {
  static std::atomic<bool>& flag = *new std::atomic<bool>(false);
  return flag;
}

/// Lets other Python threads run while this one waits, if it holds the interpreter: torch's
/// bindings keep it. Found by name, since this is compiled without Python's headers.
class WithoutInterpreter {
 public:
  WithoutInterpreter() {
    static const auto holds = find<int()>("PyGILState_Check");
    static const auto save = find<void*()>("PyEval_SaveThread");
    if (holds != nullptr && save != nullptr && holds() == 1) state_ = save();
  }
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;
  ~WithoutInterpreter() {
    static const auto restore = find<void(void*)>("PyEval_RestoreThread");
    if (state_ != nullptr) restore(state_);
  }

 private:
  template <typename Call>
  static Call* find(const char* name) {
    return reinterpret_cast<Call*>(::dlsym(RTLD_DEFAULT, name));
  }
  void* state_ = nullptr;
};

class Node {
 public:
  /// Attaches at the first call. Throws: no daemon, or its driver is not for this kind of tensor.
  static Node& get(c10::DeviceType type) {
    static Node& node = *new Node;
    const std::lock_guard<std::mutex> lock(node.mutex_);
    node.attach();
    const bool is_cpu = type == c10::DeviceType::CPU;
    const bool is_host = std::string(node.info_.driver) == "host";
    TORCH_CHECK(is_cpu == is_host, "cco.torch: a tensor on ", type,
                " cannot be symmetric memory of a cco-memd whose driver is \"", node.info_.driver,
                "\": that driver serves ", is_host ? "CPU tensors" : "GPU tensors",
                " only. Start cco-memd with another driver, or set CCO_SOCKET to one that has");
    return node;
  }

  cco_client* client() const { return client_; }
  uint64_t incarnation() const { return info_.incarnation; }
  uint32_t device_count() const { return info_.gpu_count; }

 private:
  void attach() {
    if (client_ != nullptr) return;
    cco_client* made = nullptr;
    check(api().cco_client_create(nullptr, &made), "attaching to cco-memd");
    auto info = options_of<cco_client_info>();
    check(api().cco_client_get_info(made, &info), "asking cco-memd what it is");
    info_ = info;
    client_ = made;
  }

  std::mutex mutex_;
  cco_client* client_ = nullptr;  // Ends with the process.
  cco_client_info info_{};
};

inline c10::impl::VirtualGuardImpl guard_of(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

/// Runs `end` once the device is idle: now, or, if it cannot be waited for now (a stream is being
/// captured), with a later call. Never throws.
inline void retire(c10::Device device, std::function<void()> end) noexcept {
  struct Waiting {
    std::mutex mutex;
    std::vector<std::pair<c10::Device, std::function<void()>>> list;
  };
  static Waiting& waiting = *new Waiting;
  if (is_exiting()) return;
  std::vector<std::pair<c10::Device, std::function<void()>>> todo;
  {
    const std::lock_guard<std::mutex> lock(waiting.mutex);
    todo.swap(waiting.list);
  }
  if (end) todo.emplace_back(device, std::move(end));
  for (auto& one : todo) {
    try {
      if (!one.first.is_cpu()) guard_of(one.first).synchronizeDevice(one.first.index());
      one.second();
    } catch (const std::exception&) {
      const std::lock_guard<std::mutex> lock(waiting.mutex);
      waiting.list.push_back(std::move(one));
    }
  }
}

}  // namespace cco_torch
