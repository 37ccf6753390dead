#include "daemon/core/error.h"

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {
constexpr char kRankUrl[] = "cco/rank", kUntilChangedUrl[] = "cco/until_changed";
}

absl::Status about_rank(absl::Status status, uint32_t rank) {
  status.SetPayload(kRankUrl, absl::Cord(absl::StrCat(rank)));
  return status;
}

std::optional<uint32_t> rank_of(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kRankUrl);
  uint32_t rank = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &rank)) return std::nullopt;
  return rank;
}

absl::Status until_changed(absl::Status status) {
  status.SetPayload(kUntilChangedUrl, absl::Cord());
  return status;
}

bool retryable(const absl::Status& status) {
  if (status.GetPayload(kUntilChangedUrl).has_value()) return false;
  return status.code() == absl::StatusCode::kDeadlineExceeded ||
         status.code() == absl::StatusCode::kResourceExhausted ||
         status.code() == absl::StatusCode::kUnavailable;
}

}  // namespace cco::memd
