#include "client/bench/window_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::bench {
namespace {

constexpr uint64_t kSampleBytes = 32 << 20;
constexpr uint64_t kMaxCopies = 1000;

}  // namespace

const char* name_of(Direction direction) { return direction == Direction::kPut ? "put" : "get"; }

uint64_t max_bytes_of(const Context& context) {
  if (context.settings.max_bytes != 0) return context.settings.max_bytes;
  return context.is_host() ? 64 << 20 : 256 << 20;
}

absl::StatusOr<Copy> make_copy(const Rank& rank, const Window& window, Direction direction,
                               uint64_t bytes, uint64_t max_bytes) {
  Copy copy{};
  copy.direction = direction;
  copy.peer = (rank.rank() + 1) % rank.size();
  copy.destination_offset = max_bytes;
  copy.bytes = bytes;
  copy.count = std::clamp<uint64_t>(kSampleBytes / std::max<uint64_t>(bytes, 1), 1, kMaxCopies);
  CCO_ASSIGN_OR_RETURN(copy.window, Rank::descriptor(window));
  const bool puts = direction == Direction::kPut;
  CCO_ASSIGN_OR_RETURN(copy.source,
                       Rank::address(window, puts ? rank.rank() : copy.peer, copy.source_offset));
  CCO_ASSIGN_OR_RETURN(copy.destination, Rank::address(window, puts ? copy.peer : rank.rank(),
                                                       copy.destination_offset));
  return copy;
}

Operation stream_operation(Rank& rank, const Copy& copy, std::function<absl::Status()> once) {
  return [&rank, copy, once = std::move(once)]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double elapsed_us,
                         stream_time_us(rank.stream(), [&]() -> absl::Status {
                           for (uint64_t i = 0; i < copy.count; ++i) CCO_RETURN_IF_ERROR(once());
                           return absl::OkStatus();
                         }));
    return elapsed_us / static_cast<double>(copy.count);
  };
}

absl::Status verify(Rank& rank, const Copy& copy, const Operation& operation) {
  std::vector<uint64_t> sent(copy.bytes / sizeof(uint64_t));
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = (copy.bytes + i) * 0x9e3779b97f4a7c15;
  std::vector<uint64_t> arrived(sent.size());
  GpuContext& context = rank.context();
  CCO_RETURN_IF_ERROR(context.fill_zero(copy.destination, copy.bytes));
  CCO_RETURN_IF_ERROR(context.copy_to_device(copy.source, sent.data(), copy.bytes));
  CCO_RETURN_IF_ERROR(operation().status());
  CCO_RETURN_IF_ERROR(context.copy_to_host(arrived.data(), copy.destination, copy.bytes));
  if (sent == arrived) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(name_of(copy.direction), " of ", copy.bytes,
                                          " bytes delivered other bytes than were sent"));
}

absl::StatusOr<std::vector<double>> compare(Context& context, Rank& rank, const Copy& copy,
                                            const Subject& subject,
                                            const std::vector<Contestant>& contestants) {
  CCO_RETURN_IF_ERROR(verify(rank, copy, contestants[0].operation));
  std::vector<Operation> operations;
  for (const Contestant& contestant : contestants) operations.push_back(contestant.operation);
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context.settings, operations));
  std::vector<double> ratios;
  for (size_t i = 1; i < contestants.size(); ++i) {
    ratios.push_back(context.results.add(subject, samples[0], contestants[i].name, samples[i]));
  }
  return ratios;
}

}  // namespace cco::bench
