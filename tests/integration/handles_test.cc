// Handles: any order of ending them, any nonsense instead of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class HandlesTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

struct Handles {
  cco_client* client = nullptr;
  cco_group* group = nullptr;
  cco_window* window = nullptr;
  cco_comm* comm = nullptr;
  cco_memory* memory = nullptr;

  explicit Handles(const std::string& socket_path) {
    const cco_client_options client_options{sizeof client_options, 0, socket_path.c_str()};
    EXPECT_TRUE(succeeded(cco_client_create(&client_options, &client)));
    cco_group_options group_options{};
    group_options.struct_size = sizeof group_options;
    group_options.size = 1;
    group_options.name = "job";
    EXPECT_TRUE(succeeded(cco_group_create(client, &group_options, &group)));
    const cco_window_options window_options{sizeof window_options, 0, 4096, 0, 0, 0, 0};
    EXPECT_TRUE(succeeded(cco_window_create(group, "w", &window_options, &window)));
    cco_comm_options comm_options{};
    comm_options.struct_size = sizeof comm_options;
    comm_options.signal_count = 1;
    comm_options.barrier_count = 1;
    EXPECT_TRUE(succeeded(cco_comm_create(group, &comm_options, &comm)));
    EXPECT_TRUE(succeeded(cco_memory_create(client, 0, 4096, &memory)));
  }
};

// Goal    ending a client's handles in any order, each twice, is safe and leaves nothing.
// Method  all 24 orders; a sanitizer sees what touches freed memory.
TEST_F(HandlesTest, EveryOrderOfDestruction) {
  std::vector<int> order = {0, 1, 2, 3};
  do {
    const Handles handles(daemon->socket_path());
    for (int repeat = 0; repeat < 2; ++repeat) {
      for (const int which : order) {
        if (which == 0) cco_window_destroy(handles.window);
        if (which == 1) cco_comm_destroy(handles.comm);
        if (which == 2) cco_group_destroy(handles.group);
        if (which == 3) cco_client_destroy(handles.client);
        if (which == 3) cco_memory_destroy(handles.memory);
      }
    }
    EXPECT_TRUE(nothing_left());
  } while (std::next_permutation(order.begin(), order.end()) && !HasFailure());
}

template <typename T>
T* as(const void* handle) {
  return static_cast<T*>(const_cast<void*>(handle));
}

// Calls every function that takes a handle with `handle`; the outcomes, by name.
std::vector<std::pair<std::string, Outcome>> call_everything(const void* handle) {
  std::vector<std::pair<std::string, Outcome>> results;
  const auto add = [&](const char* name, cco_status status) {
    results.emplace_back(name, outcome(status));
  };
  cco_client_info client_info{};
  client_info.struct_size = sizeof client_info;
  add("client_get_info", cco_client_get_info(as<cco_client>(handle), &client_info));
  cco_gpu_info gpu_info{};
  gpu_info.struct_size = sizeof gpu_info;
  add("client_get_gpu", cco_client_get_gpu(as<cco_client>(handle), 0, &gpu_info));
  cco_group_options group_options{};
  group_options.struct_size = sizeof group_options;
  group_options.size = 1;
  group_options.name = "job";
  cco_group* group = nullptr;
  add("group_create", cco_group_create(as<cco_client>(handle), &group_options, &group));
  cco_group_info group_info{};
  group_info.struct_size = sizeof group_info;
  add("group_get_info", cco_group_get_info(as<cco_group>(handle), &group_info));
  add("group_barrier", cco_group_barrier(as<cco_group>(handle), 0));
  add("group_check", cco_group_check(as<cco_group>(handle)));
  add("group_abort", cco_group_abort(as<cco_group>(handle)));
  const cco_window_options window_options{sizeof window_options, 0, 4096, 0, 0, 0, 0};
  cco_window* window = nullptr;
  add("window_create", cco_window_create(as<cco_group>(handle), "w", &window_options, &window));
  const cco_external_memory memory{sizeof memory, 0, 65536, 0};
  add("window_register",
      cco_window_register(as<cco_group>(handle), "w", &window_options, &memory, &window));
  cco_window_device device{};
  add("window_get_device", cco_window_get_device(as<cco_window>(handle), &device));
  const cco_window_device* pointer = nullptr;
  add("window_get_device_pointer", cco_window_get_device_pointer(as<cco_window>(handle), &pointer));
  void* address = nullptr;
  add("window_get_address", cco_window_get_address(as<cco_window>(handle), 0, 0, &address));
  cco_memory_info memory_info{};
  memory_info.struct_size = sizeof memory_info;
  cco_comm_options comm_options{};
  comm_options.struct_size = sizeof comm_options;
  comm_options.signal_count = 1;
  comm_options.barrier_count = 1;
  cco_comm* comm = nullptr;
  add("comm_create", cco_comm_create(as<cco_group>(handle), &comm_options, &comm));
  cco_device_comm device_comm{};
  add("comm_get_device", cco_comm_get_device(as<cco_comm>(handle), &device_comm));
  const cco_device_comm* comm_pointer = nullptr;
  add("comm_get_device_pointer", cco_comm_get_device_pointer(as<cco_comm>(handle), &comm_pointer));
  cco_memory* memory_made = nullptr;
  add("memory_create", cco_memory_create(as<cco_client>(handle), 0, 4096, &memory_made));
  add("memory_import",
      cco_memory_import(as<cco_client>(handle), 0, &memory_info, 16, &memory_made));
  add("memory_get_info", cco_memory_get_info(as<cco_memory>(handle), &memory_info));
  EXPECT_TRUE(group == nullptr && window == nullptr && comm == nullptr && pointer == nullptr &&
              address == nullptr && comm_pointer == nullptr && memory_made == nullptr &&
              memory_info.address == 0);
  cco_client_destroy(as<cco_client>(handle));
  cco_group_destroy(as<cco_group>(handle));
  cco_window_destroy(as<cco_window>(handle));
  cco_comm_destroy(as<cco_comm>(handle));
  cco_memory_destroy(as<cco_memory>(handle));
  return results;
}

// Goal    null, freed and foreign handles are refused by every function, which says what they are.
// Method  every function with null, with freed handles of each kind, with numbers and addresses.
TEST_F(HandlesTest, NonsenseInstead) {
  for (const auto& [name, result] : call_everything(nullptr)) {
    EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT, {name, "is null"}));
  }
  int local = 0;
  const void* const foreign[] = {&local, reinterpret_cast<const void*>(uintptr_t{1}),
                                 reinterpret_cast<const void*>(UINTPTR_MAX)};
  for (const void* handle : foreign) {
    for (const auto& [name, result] : call_everything(handle)) {
      EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT, {name, "not made by this library"}));
    }
  }
  const Handles handles(daemon->socket_path());
  cco_client_destroy(handles.client);
  for (const void* handle :
       {static_cast<const void*>(handles.client), static_cast<const void*>(handles.group),
        static_cast<const void*>(handles.window), static_cast<const void*>(handles.comm),
        static_cast<const void*>(handles.memory)}) {
    for (const auto& [name, result] : call_everything(handle)) {
      EXPECT_TRUE(refused(result, CCO_INVALID_ARGUMENT, {name, "destroyed"}));
    }
  }
}

// Goal    a living handle of another kind is refused and named, and is not ended by the wrong
//         function.
// Method  a client where a group belongs, a group where a window belongs, and so on.
TEST_F(HandlesTest, WrongKind) {
  const Handles handles(daemon->socket_path());
  EXPECT_TRUE(refused(cco_group_check(as<cco_group>(handles.client)), CCO_INVALID_ARGUMENT,
                      {"should be a group", "is a client"}));
  cco_window_device device{};
  EXPECT_TRUE(refused(cco_window_get_device(as<cco_window>(handles.group), &device),
                      CCO_INVALID_ARGUMENT, {"should be a window", "is a group"}));
  cco_device_comm comm{};
  EXPECT_TRUE(refused(cco_comm_get_device(as<cco_comm>(handles.window), &comm),
                      CCO_INVALID_ARGUMENT, {"should be a communicator", "is a window"}));
  cco_client_destroy(as<cco_client>(handles.comm));
  cco_group_destroy(as<cco_group>(handles.window));
  cco_window_destroy(as<cco_window>(handles.client));
  EXPECT_TRUE(succeeded(cco_comm_get_device(handles.comm, &comm)));
  EXPECT_TRUE(succeeded(cco_group_check(handles.group)));
  cco_client_destroy(handles.client);
}

// Goal    null and short option structs, and null outputs, are refused by name.
// Method  each function that takes them.
TEST_F(HandlesTest, NullArguments) {
  const Handles handles(daemon->socket_path());
  cco_window* window = nullptr;
  EXPECT_TRUE(
      refused(cco_client_create(nullptr, nullptr), CCO_INVALID_ARGUMENT, {"client is null"}));
  EXPECT_TRUE(refused(cco_window_create(handles.group, "x", nullptr, &window), CCO_INVALID_ARGUMENT,
                      {"options is null"}));
  cco_window_options options{0, 0, 4096, 0, 0, 0, 0};
  EXPECT_TRUE(refused(cco_window_create(handles.group, "x", &options, &window),
                      CCO_INVALID_ARGUMENT, {"struct_size is 0"}));
  options.struct_size = sizeof options;
  EXPECT_TRUE(refused(cco_window_create(handles.group, "x", &options, nullptr),
                      CCO_INVALID_ARGUMENT, {"window is null"}));
  EXPECT_TRUE(refused(cco_window_register(handles.group, "x", &options, nullptr, &window),
                      CCO_INVALID_ARGUMENT, {"memory is null"}));
  EXPECT_TRUE(refused(cco_window_get_address(handles.window, 0, 0, nullptr), CCO_INVALID_ARGUMENT,
                      {"address is null"}));
  EXPECT_TRUE(refused(cco_group_create(handles.client, nullptr, nullptr), CCO_INVALID_ARGUMENT,
                      {"is null"}));
  options.timeout_ms = 3600001;
  EXPECT_TRUE(refused(cco_window_create(handles.group, "x", &options, &window),
                      CCO_INVALID_ARGUMENT, {"timeout_ms is 3600001"}));
  cco_client_destroy(handles.client);
}

}  // namespace
}  // namespace cco::test
