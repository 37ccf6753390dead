// What Python calls by ctypes: no function throws, and a text says what went wrong.
#include <exception>
#include <string>

#include "symm_mem.h"

namespace {

using cco_torch::Allocator;
using cco_torch::api;
using cco_torch::check;
using cco_torch::GpuLibraries;
using cco_torch::Link;
using cco_torch::Pool;
using cco_torch::Rendezvouses;

// The caller's, until the thread's next call.
template <typename Body>
const char* told(Body body) noexcept {
  static thread_local std::string text;
  try {
    body();
    return nullptr;
  } catch (const c10::Error& error) {
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    text = error.what();
  }
  return text.c_str();
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

struct CcoTorchWindow {
  uint64_t window;          // cco_window*.
  uint64_t device_pointer;  // cco_window_device*, in device memory.
  uint64_t offset;          // Of the tensor's memory in the window, on every rank.
  uint64_t size_bytes;
  uint64_t group;         // cco_group*.
  uint64_t comm;          // cco_comm*.
  uint64_t comm_pointer;  // cco_device_comm*, in device memory.
};

struct CcoTorchCounts {
  uint64_t tensors;
  uint64_t chunks;
  uint64_t chunk_bytes;
  uint64_t groups;
};

// `library` is libcco_client, `folder` torch's own libraries.
const char* cco_torch_load(const char* library, const char* folder) {
  return told([&] {
    cco_torch::load_api(library);
    GpuLibraries::get().set_folder(folder);
  });
}

// Makes the back-end known by `name`. CPU tensors have no back-end of torch's: there it is used
// without being asked for.
const char* cco_torch_register(const char* name) {
  return told([&] {
    namespace torch_symm_mem = c10d::symmetric_memory;
    torch_symm_mem::register_availability(
        name, c10::make_intrusive<Allocator>(name, c10::DeviceType::CUDA));
    if (torch_symm_mem::has_allocator(c10::DeviceType::CPU)) return;
    torch_symm_mem::register_allocator(c10::DeviceType::CPU,
                                       c10::make_intrusive<Allocator>(name, c10::DeviceType::CPU));
  });
}

const char* cco_torch_find(const void* address, const char* group_name, CcoTorchWindow* found) {
  return told([&] {
    const std::shared_ptr<Link> link = Allocator::find_link(address, group_name);
    TORCH_CHECK(link != nullptr, "cco.torch: ", address,
                " is no tensor that has been through rendezvous() in group ", group_name);
    const cco_window_device* device = nullptr;
    check(api().cco_window_get_device_pointer(link->window(), &device), "asking for a window");
    const cco_device_comm* comm = nullptr;
    check(api().cco_comm_get_device_pointer(link->group().comm(), &comm),
          "asking for a communicator");
    const cco_torch::Group& group = link->group();
    const auto inside = static_cast<uint64_t>(
        static_cast<const char*>(address) -
        static_cast<char*>(link->buffers()[static_cast<size_t>(group.rank())]));
    *found = {reinterpret_cast<uint64_t>(link->window()),
              reinterpret_cast<uint64_t>(device),
              link->window_offset() + inside,
              link->size_bytes() - inside,
              reinterpret_cast<uint64_t>(link->group().handle()),
              reinterpret_cast<uint64_t>(link->group().comm()),
              reinterpret_cast<uint64_t>(comm)};
  });
}

const char* cco_torch_find_comm(const char* group_name, const char* key, uint32_t barrier_count,
                                uint64_t* found) {
  return told([&] {
    const auto groups = Rendezvouses::get().find(group_name)->groups();
    TORCH_CHECK(!groups.empty(), "cco.torch: group ", group_name,
                " has no communicator yet: its first symm_mem.rendezvous() makes it");
    TORCH_CHECK(groups.size() == 1, "cco.torch: group ", group_name, " has met with tensors of ",
                groups.size(), " sets of devices: ask by one of the tensors, window(tensor)");
    const cco_device_comm* comm = nullptr;
    check(api().cco_comm_get_device_pointer(groups[0]->comm_for(key, barrier_count), &comm),
          "asking for a communicator");
    *found = reinterpret_cast<uint64_t>(comm);
  });
}

const char* cco_torch_count(CcoTorchCounts* counts) {
  return told([&] {
    *counts = {Pool::get().blocks().size(), 0, 0, Rendezvouses::get().count()};
    for (const auto& chunk : Pool::get().chunks()) {
      ++counts->chunks;
      counts->chunk_bytes += chunk->size_bytes();
    }
  });
}

// From now on nothing is given back; the process ends.
void cco_torch_exit(void) { cco_torch::is_exiting() = true; }

}  // extern "C"
#pragma GCC visibility pop
