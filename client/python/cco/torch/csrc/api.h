// The functions of libcco_client that this extension calls, taken from the library that Python has
// loaded: the extension is linked against torch alone.
#pragma once

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <string>

#include "cco/cco.h"

namespace cco_torch {

#define CCO_TORCH_CALLS(X)         \
  X(cco_error_message)             \
  X(cco_status_name)               \
  X(cco_client_create)             \
  X(cco_client_get_info)           \
  X(cco_client_get_gpu)            \
  X(cco_unique_id_create)          \
  X(cco_group_create)              \
  X(cco_group_destroy)             \
  X(cco_group_agree)               \
  X(cco_group_check)               \
  X(cco_memory_create)             \
  X(cco_memory_destroy)            \
  X(cco_memory_get_info)           \
  X(cco_window_register)           \
  X(cco_window_destroy)            \
  X(cco_window_get_address)        \
  X(cco_window_get_device_pointer) \
  X(cco_comm_create)               \
  X(cco_comm_destroy)              \
  X(cco_comm_get_device)           \
  X(cco_comm_get_device_pointer)

struct Api {
#define CCO_TORCH_MEMBER(name) decltype(&::name) name = nullptr;
  CCO_TORCH_CALLS(CCO_TORCH_MEMBER)
#undef CCO_TORCH_MEMBER
};

// Never destroyed, as all state of this extension: torch frees tensors while the process ends.
inline Api& api() {
  static Api& table = *new Api;
  return table;
}

inline void load_api(const char* library) {
  void* handle = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(handle != nullptr, "cco.torch: loading ", library, ": ", ::dlerror());
#define CCO_TORCH_FIND(name)                                                \
  api().name = reinterpret_cast<decltype(&::name)>(::dlsym(handle, #name)); \
  TORCH_CHECK(api().name != nullptr, "cco.torch: ", library,                \
              " has no " #name                                              \
              "(): it is older than this package; install the two from one release");
  CCO_TORCH_CALLS(CCO_TORCH_FIND)
#undef CCO_TORCH_FIND
}

// A failed call as text: what, the code, and the library's own words.
inline std::string failure(cco_status status, const std::string& what) {
  return "cco.torch: " + what + ": " + api().cco_status_name(status) + ": " +
         api().cco_error_message();
}

inline void check(cco_status status, const std::string& what) {
  if (status != CCO_OK) TORCH_CHECK(false, failure(status, what));
}

template <typename T>
T options_of() {
  T options{};
  options.struct_size = sizeof options;
  return options;
}

}  // namespace cco_torch
