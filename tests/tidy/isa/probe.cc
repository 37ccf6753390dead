// One kernel per primitive, for the check of the emitted instructions.
#include "cco/device.hpp"

namespace cco::device {

CCO_KERNEL void store_release(uint64_t* word, uint64_t value) { store_release_system(word, value); }
CCO_KERNEL void add_release(uint64_t* word, uint64_t value) { add_release_system(word, value); }
CCO_KERNEL void fetch_add(uint64_t* word, uint64_t value, uint64_t* before) {
  *before = fetch_add_acq_rel_system(word, value);
}
CCO_KERNEL void publish(uint64_t* first, uint64_t* second, uint64_t value) {
  publish_system();
  store_published_system(first, value);
  store_published_system(second, value);
}
CCO_KERNEL void load_acquire(const uint64_t* word, const uint32_t* data, uint32_t* out) {
  if (load_acquire_system(word) != 0) *out = *data;
}
CCO_KERNEL void poll_then_acquire(const uint64_t* word, const uint32_t* data, uint32_t* out) {
  while (load_relaxed_system(word) == 0) pause();
  acquire_system(word);
  *out = *data;
}
CCO_KERNEL void store_release_gpu(uint64_t* word, uint64_t value) {
  store_release_device(word, value);
}
CCO_KERNEL void load_acquire_gpu(const uint64_t* word, const uint32_t* data, uint32_t* out) {
  if (load_acquire_device(word) != 0) *out = *data;
}
CCO_KERNEL void put_block(Window window, uint64_t bytes) {
  put(BlockCoop{}, 1, at(window, 0), at(window, 1 << 20), bytes);
}
CCO_KERNEL void put_and_signal(DeviceComm comm, Window window, const void* source, uint64_t bytes) {
  put(BlockCoop{}, 1, at(window, 0), source, bytes);
  signal_add(BlockCoop{}, comm, 1, 0, 1);
}
CCO_KERNEL void meet(DeviceComm comm, uint64_t deadline_ns, uint64_t* result) {
  LsaBarrier<BlockCoop> barrier(BlockCoop{}, comm, 0);
  *result = barrier.sync(Deadline::after(comm, deadline_ns)).encode();
}

CCO_KERNEL void tdm_tile(DeviceComm comm, Window window, TdmTile tile, uint64_t deadline_ns) {
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  Tdm<WarpCoop, 2> tdm(WarpCoop{}, dynamic_shared_memory(), 1024);
  tdm.load_async(tdm.stage(0), 1, at(window, 0), tile);
  tdm.wait_loads<0>(deadline);
  tdm.store_async(1, at(window, 1 << 20), tdm.stage(0), tile);
  tdm.finish_stores();
  signal_add(WarpCoop{}, comm, 1, 0, 1);
}

}  // namespace cco::device
