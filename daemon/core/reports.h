// What a rank reports of its peers: nobody needs it but people who look, so it takes little memory
// whatever is said. Words that are used of many peers are kept once, and all of them have a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cco::memd {

/// Findings by number: a peer, or a peer and transport. One thread's.
class Reports {
 public:
  struct Finding {
    bool is_good = false;
    std::string provider;
    std::string detail;
    bool operator==(const Finding&) const = default;
  };
  /// Of all findings that differ, their texts and kFindingBytes for each.
  static constexpr size_t kMaxBytes = 32 << 10;
  static constexpr size_t kFindingBytes = 64;

  /// Replaces what there is at `key`. Without room, only whether it is good is kept, with a detail
  /// that says so.
  void set(uint32_t key, Finding finding);
  /// Null: none there. Until the next set().
  const Finding* find(uint32_t key) const;
  /// Above each key at which there is one.
  uint32_t end() const { return static_cast<uint32_t>(slots_.size()); }
  /// Of which at most kMaxBytes.
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    Finding finding;
    uint32_t user_count = 0;  // 0: it is free.
  };
  static size_t cost(const Finding& finding);
  void release(uint16_t slot);
  /// Index of an equal entry, or of a new one.
  size_t intern(Finding finding);

  std::vector<uint16_t> slots_;  // By key: 1 + the index of its entry; 0: none.
  std::vector<Entry> entries_;
  size_t bytes_ = 0;
};

}  // namespace cco::memd
