// Every rank passes its number to the right: ccoctl run -n 4 -- ./first
#include <cstdio>

#include "cco/client.hpp"
#include "cco/device.hpp"
#include "cco/device/host_launch.h"

namespace dev = cco::device;

CCO_KERNEL void pass_right(dev::DeviceComm comm, dev::Window window, uint64_t* received) {
  const dev::ThreadCoop self;
  const uint32_t right = (comm.lsa_rank + 1) % comm.lsa_size;
  dev::put_value<uint64_t>(right, dev::at(window, 0), comm.rank);
  dev::signal_add(self, comm, right, /*index=*/0, /*delta=*/1);
  const auto ten_seconds = dev::Deadline::after(comm, 10'000'000'000);
  const dev::WaitResult wait = dev::wait_at_least(self, comm, 0, /*target=*/1, ten_seconds);
  *received = wait.status == dev::WaitStatus::kArrived ? *dev::local_ptr<uint64_t>(window) : ~0ull;
}
CCO_KERNEL_TABLE(first, pass_right);

int main() {
  cco::Client client;
  cco::Group group;
  cco::Window window;
  cco::Comm comm;
  dev::DeviceComm comm_view;
  dev::Window window_view;
  cco::or_throw(cco::Client::create({}, &client));
  cco::or_throw(cco::Group::create(client, {}, &group));  // Rank and size: from the launcher.
  cco::or_throw(cco::Window::create(group, "mailbox", {.size_bytes = 4096}, &window));
  cco::or_throw(cco::Comm::create(group, {.signal_count = 1}, &comm));
  cco::or_throw(window.get_device(&window_view));
  cco::or_throw(comm.get_device(&comm_view));
  uint64_t received = 0, *result = &received;
  void* arguments[] = {&comm_view, &window_view, &result};
  dev::launch_on_host({}, cco_kernel_table_first.entries[0].function, arguments);
  std::printf("rank %u received %zu\n", comm_view.rank, size_t{received});
  cco::or_throw(group.barrier());  // Nobody leaves while a neighbour still waits.
}
