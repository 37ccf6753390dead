#include "tests/unit/daemon/told_pool.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/inode.h"

namespace cco::memd {
namespace {

UniqueFd fresh_file() { return UniqueFd(::memfd_create("slab", MFD_CLOEXEC)); }

}  // namespace

ToldPool::ToldPool(int gpu_count, int units_per_gpu, Problems& problems)
    : make_file(fresh_file), problems_(problems) {
  for (int gpu = 0; gpu < gpu_count; ++gpu) {
    GpuDevice device;
    device.uuid = absl::StrCat("TOLD-", gpu);
    device.total_bytes = static_cast<uint64_t>(units_per_gpu) * kUnitBytes;
    device.granularity_bytes = device.preferred_slab_bytes = kUnitBytes;
    gpus_.push_back(std::move(device));
  }
  calls_.resize(gpus_.size());
}

absl::StatusOr<UniqueFd> ToldPool::read_only_fd(BorrowedFd fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd.get());
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

void ToldPool::begin_batch(const std::string& name) {
  batch_ = std::make_shared<Batch>();
  batch_->name = name;
  batch_->charged.resize(gpus_.size());
}

void ToldPool::allocate(int gpu, uint64_t size_bytes, MemoryKind, Done done) {
  batch_->charged[static_cast<size_t>(gpu)] += size_bytes;
  adopt(gpu, UniqueFd(), size_bytes, std::move(done));
}

void ToldPool::adopt(int gpu, UniqueFd fd, uint64_t size_bytes, Done done) {
  ++batch_->outstanding;
  calls_[static_cast<size_t>(gpu)].push_back({batch_, size_bytes, std::move(fd), std::move(done)});
}

void ToldPool::answer(int gpu, bool ok) {
  Call call = std::move(calls_[static_cast<size_t>(gpu)].front());
  calls_[static_cast<size_t>(gpu)].pop_front();
  begin_batch(absl::StrCat(call.batch->name, " again"));
  --call.batch->outstanding;
  call.batch->failed |= !ok;
  if (!ok) return call.done(absl::ResourceExhaustedError("told to fail"));
  const bool is_external = static_cast<bool>(call.external);
  UniqueFd fd = is_external ? std::move(call.external) : make_file();
  const uint64_t inode = inode_of(fd.get());
  live_[inode] = {gpu, call.size_bytes, is_external};
  call.batch->made.insert(inode);
  call.done(SlabMemory{GpuMemory(), std::move(fd)});
}

void ToldPool::release(int gpu, SlabMemory memory) {
  if (dying_) return;
  const uint64_t inode = inode_of(memory.fd.get());
  const auto found = live_.find(inode);
  if (found == live_.end()) {
    return problems_.push_back("memory is freed that was never allocated, or freed before");
  }
  if (found->second.gpu != gpu) problems_.push_back("memory is freed on another GPU than its own");
  // External memory is its owner's to keep.
  if (!found->second.is_external && is_mapped(inode)) {
    problems_.push_back("memory is freed while a process that may use it maps it");
  }
  live_.erase(found);
}

std::vector<std::shared_ptr<ToldPool::Batch>> ToldPool::batches() const {
  std::vector<std::shared_ptr<Batch>> batches;
  for (const auto& calls : calls_) {
    for (const Call& call : calls) {
      if (std::find(batches.begin(), batches.end(), call.batch) == batches.end()) {
        batches.push_back(call.batch);
      }
    }
  }
  return batches;
}

std::vector<uint64_t> ToldPool::unsettled_bytes() const {
  std::vector<uint64_t> bytes(gpus_.size(), 0);
  for (const auto& batch : batches()) {
    for (size_t gpu = 0; gpu < bytes.size(); ++gpu) bytes[gpu] += batch->charged[gpu];
  }
  return bytes;
}

std::set<uint64_t> ToldPool::unsettled() const {
  std::set<uint64_t> inodes;
  for (const auto& batch : batches()) inodes.insert(batch->made.begin(), batch->made.end());
  return inodes;
}

std::string ToldPool::text() const {
  std::string text;
  for (size_t gpu = 0; gpu < calls_.size(); ++gpu) {
    for (const Call& call : calls_[gpu]) {
      absl::StrAppend(&text, "gpu ", gpu, ": ", call.batch->name, " ", call.size_bytes, " made ",
                      call.batch->made.size(), call.batch->failed ? " failed\n" : "\n");
    }
  }
  return text;
}

}  // namespace cco::memd
