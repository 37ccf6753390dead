#include "daemon/core/reports.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cco::memd {

namespace {

// For the two findings, good and bad, that say there is no room for more.
constexpr size_t kReservedBytes = 512;

Reports::Finding no_room(bool is_good) {
  return {is_good, "",
          absl::StrCat("not kept: a rank's reports take at most ", Reports::kMaxBytes, " bytes")};
}

}  // namespace

static_assert(Reports::kMaxBytes / Reports::kFindingBytes < std::numeric_limits<uint16_t>::max());

size_t Reports::cost(const Finding& finding) {
  return kFindingBytes + finding.provider.size() + finding.detail.size();
}

void Reports::set(uint32_t key, Finding finding) {
  if (key >= slots_.size()) slots_.resize(size_t{key} + 1);
  release(std::exchange(slots_[key], 0));
  const size_t index = intern(std::move(finding));
  ++entries_[index].user_count;
  slots_[key] = static_cast<uint16_t>(index + 1);
}

const Reports::Finding* Reports::find(uint32_t key) const {
  if (key >= slots_.size() || slots_[key] == 0) return nullptr;
  return &entries_[slots_[key] - 1u].finding;
}

void Reports::release(uint16_t slot) {
  if (slot == 0) return;
  Entry& entry = entries_[slot - 1u];
  if (--entry.user_count > 0) return;
  bytes_ -= cost(entry.finding);
  entry.finding = Finding();
}

size_t Reports::intern(Finding finding) {
  const auto equal = [&](const Entry& entry) {
    return entry.user_count > 0 && entry.finding == finding;
  };
  if (const auto known = std::find_if(entries_.begin(), entries_.end(), equal);
      known != entries_.end()) {
    return static_cast<size_t>(known - entries_.begin());
  }
  Finding substitute = no_room(finding.is_good);
  if (finding != substitute && bytes_ + cost(finding) > kMaxBytes - kReservedBytes) {
    return intern(std::move(substitute));
  }
  auto free = std::find_if(entries_.begin(), entries_.end(),
                           [](const Entry& entry) { return entry.user_count == 0; });
  if (free == entries_.end()) free = entries_.insert(free, Entry());
  bytes_ += cost(finding);
  free->finding = std::move(finding);
  return static_cast<size_t>(free - entries_.begin());
}

}  // namespace cco::memd
