#include "client/job/rank_gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cco/device/deadline.h"
#include "client/base/status_macros.h"
#include "client/job/rank.h"
#include "device/runtime/open_driver.h"

namespace cco {
namespace {

constexpr uint64_t kNotWritten = ~uint64_t{0};
constexpr uint32_t kMaxHostDevices = 64;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuSet>> GpuSet::open(const Client& client) {
  std::unique_ptr<GpuSet> set(new GpuSet);
  CCO_RETURN_IF_ERROR(to_status(client.get_info(&set->info_), "asking the client for its driver"));
  DriverOptions options;
  CCO_ASSIGN_OR_RETURN(options.kind, parse_driver_kind(set->info_.driver));
  options.host_devices = kMaxHostDevices;  // Whatever the daemon has: devices are found by UUID.
  CCO_ASSIGN_OR_RETURN(set->driver_, open_driver(options));

  const std::vector<GpuDevice>& devices = set->driver_->devices();
  for (uint32_t i = 0; i < set->info_.gpu_count; ++i) {
    cco_gpu_info gpu{};
    CCO_RETURN_IF_ERROR(to_status(client.get_gpu(static_cast<int32_t>(i), &gpu),
                                  absl::StrCat("asking the client for GPU ", i)));
    const auto found = std::find_if(devices.begin(), devices.end(), [&](const GpuDevice& device) {
      return device.uuid == gpu.uuid;
    });
    if (found == devices.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the client's GPU ", gpu.uuid, " is not among the ", devices.size(),
                       " that the ", set->info_.driver, " driver shows this process"));
    }
    set->gpus_.push_back(gpu);
    set->driver_devices_.push_back(static_cast<int>(found - devices.begin()));
  }
  if (set->gpus_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this process sees none of the daemon's GPUs (driver ", set->info_.driver,
                     "): ccoctl doctor says why"));
  }
  set->contexts_.resize(set->gpus_.size());
  return set;
}

absl::StatusOr<GpuContext*> GpuSet::context(int device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t index = static_cast<size_t>(device);
  CCO_ASSERT(index < contexts_.size());
  if (contexts_[index] == nullptr) {
    CCO_ASSIGN_OR_RETURN(contexts_[index], driver_->open(driver_devices_[index]));
  }
  return contexts_[index].get();
}

absl::StatusOr<ResultWords> ResultWords::create(GpuContext& context, size_t count) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t size = (count * sizeof(uint64_t) + page - 1) / page * page;
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap of ", size, " bytes for results"));
  }
  ResultWords words;
  words.memory_ = UniqueMapping({address, size});
  words.count_ = count;
  CCO_ASSIGN_OR_RETURN(words.device_address_, context.register_host(address, size));
  words.context_ = &context;
  return words;
}

ResultWords::~ResultWords() {
  if (memory_ && context_ != nullptr) context_->unregister_host(memory_.get().address);
}

void ResultWords::reset() {
  std::fill_n(static_cast<uint64_t*>(memory_.get().address), count_, kNotWritten);
}

absl::Status ResultWords::check(const std::string& what) const {
  const volatile uint64_t* words = static_cast<const uint64_t*>(memory_.get().address);
  for (size_t i = 0; i < count_; ++i) {
    const uint64_t word = words[i];
    if (word == 0) continue;
    if (word == kNotWritten) {
      return absl::InternalError(absl::StrCat(what, ": result ", i, " was never written"));
    }
    const device::WaitResult result = device::WaitResult::decode(word);
    const std::string whom =
        result.rank == device::kNoRank ? std::string("a peer") : absl::StrCat("rank ", result.rank);
    if (result.status == device::WaitStatus::kTimedOut) {
      return absl::DeadlineExceededError(
          absl::StrCat(what, ": the kernel waited in vain for ", whom, " (result ", i, ")"));
    }
    return absl::AbortedError(
        absl::StrCat(what, ": ", whom, " is lost, or has called the group off (result ", i, ")"));
  }
  return absl::OkStatus();
}

}  // namespace cco
