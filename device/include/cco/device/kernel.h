// Kernels from one source for every target.
//
//   CCO_KERNEL void fill(cco::device::Window window, uint32_t value) { ... }
//   CCO_KERNEL_TABLE(my_module, fill)       // last in the file: makes the kernels callable on the
//   host
//
// Both work inside namespaces. On GPUs a kernel is an extern "C" entry point that the driver's
// module loader finds by name. On the host it is a plain function, run by launch_on_host(), and the
// table tells how to pass it arguments.
#pragma once

#include "cco/device/platform.h"

#if CCO_GPU

#define CCO_KERNEL extern "C" __attribute__((global))
#define CCO_KERNEL_TABLE(module, ...) static_assert(true, "")

#else

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>

#define CCO_KERNEL extern "C"
#define CCO_KERNEL_TABLE(module, ...)                                                    \
  static constexpr auto cco_kernel_entries_##module =                                    \
      ::cco::device::host::list_kernels<__VA_ARGS__>(#__VA_ARGS__);                      \
  extern "C" {                                                                           \
  extern const ::cco::device::HostKernelTable cco_kernel_table_##module;                 \
  const ::cco::device::HostKernelTable cco_kernel_table_##module = {                     \
      cco_kernel_entries_##module.data(), uint32_t{cco_kernel_entries_##module.size()}}; \
  }                                                                                      \
  static_assert(true, "")

namespace cco::device {

struct HostKernelEntry {
  std::string_view name;
  void (*function)(void** arguments);  ///< One thread's share; one pointer per parameter.
  const uint32_t* argument_bytes;      ///< Size of each parameter.
  uint32_t argument_count;
};

struct HostKernelTable {
  const HostKernelEntry* entries;
  uint32_t count;
};

namespace host {

template <auto kernel>
struct Thunk;

template <typename... Parameters, void (*kernel)(Parameters...)>
struct Thunk<kernel> {
  static constexpr uint32_t kCount = sizeof...(Parameters);
  static constexpr std::array<uint32_t, kCount + 1> kBytes{sizeof(Parameters)..., 0};

  static void run(void** arguments) { call(arguments, std::make_index_sequence<kCount>()); }

 private:
  template <size_t... i>
  static void call([[maybe_unused]] void** arguments, std::index_sequence<i...>) {
    kernel(*static_cast<Parameters*>(arguments[i])...);
  }
};

/// `names` is the macro's argument list as written: "first, second".
template <auto... kernels>
constexpr std::array<HostKernelEntry, sizeof...(kernels)> list_kernels(std::string_view names) {
  const auto next_name = [&names] {
    const size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const size_t next = names.find_first_not_of(", ", name.size());
    names.remove_prefix(next == std::string_view::npos ? names.size() : next);
    return name;
  };
  return {HostKernelEntry{next_name(), Thunk<kernels>::run, Thunk<kernels>::kBytes.data(),
                          Thunk<kernels>::kCount}...};
}

}  // namespace host
}  // namespace cco::device

#endif
