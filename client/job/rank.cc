#include "client/job/rank.h"

#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"

namespace cco {

absl::Status to_status(cco_status status, const std::string& what) {
  if (status == CCO_OK) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status), what + ": " + cco_error_message());
}

absl::StatusOr<Place> find_place(const std::string& program) {
  cco_environment environment{};
  environment.struct_size = sizeof(environment);
  const cco_status status = cco_environment_get(&environment);
  if (status == CCO_NOT_FOUND) {
    return Place{
        0, 1, 0, 1,
        absl::StrCat(program, "-", ::getpid(), "-", absl::BytesToHexString(random_bytes(4)))};
  }
  CCO_RETURN_IF_ERROR(to_status(status, "asking the launcher's variables for this rank"));
  return Place{environment.rank, environment.size, environment.local_rank, environment.local_size,
               absl::StrCat(program, "-", environment.job)};
}

absl::Status run_ranks(const Place& place, uint32_t count,
                       const std::function<absl::Status(uint32_t rank)>& body) {
  const uint32_t first_rank = place.process * count;
  std::vector<absl::Status> outcomes(count);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { outcomes[i] = body(first_rank + i); });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status first;
  for (uint32_t i = 0; i < count; ++i) {
    if (outcomes[i].ok() || !(first.ok() || absl::IsAborted(first))) continue;
    if (absl::IsAborted(first) && absl::IsAborted(outcomes[i])) continue;
    first = absl::Status(outcomes[i].code(),
                         absl::StrCat("rank ", first_rank + i, ": ", outcomes[i].message()));
  }
  return first;
}

int32_t device_of(const Place& place, uint32_t count, uint32_t rank, size_t gpu_count) {
  const size_t own_count = std::max<size_t>(gpu_count / place.local_process_count, 1);
  const size_t first = place.local_process * own_count;
  return static_cast<int32_t>((first + rank % count % own_count) % gpu_count);
}

absl::StatusOr<std::unique_ptr<Rank>> Rank::join(const Client& client, GpuSet& gpus,
                                                 const Plan& plan) {
  std::unique_ptr<Rank> rank(new Rank(plan));
  const absl::Status status = rank->set_up(client, gpus);
  if (status.ok()) return rank;
  if (rank->group_) rank->call_off();
  return status;
}

absl::Status Rank::set_up(const Client& client, GpuSet& gpus) {
  CCO_ASSIGN_OR_RETURN(context_, gpus.context(plan_.device));
  CCO_ASSIGN_OR_RETURN(stream_, context_->create_stream(StreamUse::kKernels));
  CCO_ASSIGN_OR_RETURN(ResultWords results, ResultWords::create(*context_, plan_.result_count));
  results_ = std::make_unique<ResultWords>(std::move(results));

  Group::Options group;
  group.rank = plan_.rank;
  group.size = plan_.size;
  group.device = plan_.device;
  group.name = plan_.group.c_str();
  group.timeout_ms = plan_.timeout_ms;
  group.lsa_size = plan_.lsa_size;
  CCO_RETURN_IF_ERROR(
      to_status(Group::create(client, group, &group_), "joining group " + plan_.group));
  Comm::Options comm = plan_.comm;
  comm.timeout_ms = plan_.timeout_ms;
  CCO_RETURN_IF_ERROR(to_status(Comm::create(group_, comm, &comm_), "creating a communicator"));
  return to_status(comm_.get_device(&comm_device_), "asking for the communicator's descriptor");
}

absl::StatusOr<Window> Rank::create_window(uint64_t size_bytes, const std::string& what) const {
  Window::Options options;
  options.size_bytes = size_bytes;
  options.timeout_ms = plan_.timeout_ms;
  Window window;
  CCO_RETURN_IF_ERROR(to_status(Window::create(group_, nullptr, options, &window),
                                absl::StrCat("creating the window for ", what)));
  return window;
}

absl::StatusOr<cco_window_device> Rank::descriptor(const Window& window) {
  cco_window_device device;
  CCO_RETURN_IF_ERROR(to_status(window.get_device(&device), "asking for a window's descriptor"));
  return device;
}

absl::StatusOr<uint64_t> Rank::address(const Window& window, uint32_t rank, uint64_t offset) {
  char* pointer = nullptr;
  CCO_RETURN_IF_ERROR(
      to_status(window.get_address(rank, offset, &pointer),
                absl::StrCat("asking for offset ", offset, " of rank ", rank, "'s window")));
  return reinterpret_cast<uint64_t>(pointer);
}

absl::Status Rank::barrier() const {
  return to_status(group_.barrier(plan_.timeout_ms), "host barrier");
}

}  // namespace cco
