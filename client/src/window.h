// One rank's use of a window.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cco/device/abi.h"
#include "client/base/unique.h"
#include "client/src/group.h"

namespace cco::client {

struct WindowSpec {
  std::string name;  ///< Empty: matched by order.
  uint64_t size_bytes = 0;
  uint64_t alignment_bytes = 0;
  uint32_t wait_for_memory_ms = 0;  ///< 0: not at all.
  std::chrono::milliseconds timeout{};
  v1::Placement placement = v1::PLACEMENT_HEAP;
  UniqueFd memory;  ///< With PLACEMENT_EXTERNAL, as the next two.
  uint64_t allocation_bytes = 0;
  uint64_t allocation_offset = 0;
  uint64_t keep_ms = 0;  ///< 0: not kept.
};

/// Thread safe: constant once made.
class Window {
 public:
  /// Collective.
  static absl::StatusOr<std::shared_ptr<Window>> create(std::shared_ptr<Group> group,
                                                        const WindowSpec& spec);
  /// The same, matched by order, for a caller whose turn it is.
  static absl::StatusOr<std::shared_ptr<Window>> create_in_turn(std::shared_ptr<Group> group,
                                                                const Gate::Pass& turn,
                                                                const WindowSpec& spec);

  /// One that came along when the group was shrunk. Local. NOT_FOUND: none of that name did.
  /// ALREADY_EXISTS: this rank has opened it.
  static absl::StatusOr<std::shared_ptr<Window>> open(std::shared_ptr<Group> group,
                                                      const std::string& name);

  /// Tells the daemon that this rank has no more use for it. Not needed when the group ends too.
  void give_up();

  Group& group() { return *group_; }
  const cco_window_device& device() const { return device_; }
  /// Its copies, by world rank.
  const std::vector<uint64_t>& bases() const { return bases_; }
  uint64_t device_pointer() const { return device_pointer_; }
  uint64_t id() const { return window_id_; }
  /// In every rank's slot; of external memory: in rank 0's.
  uint64_t offset() const { return offset_; }
  /// Its contents are those of an earlier use.
  bool is_found() const { return is_found_; }
  /// OUT_OF_RANGE: no such rank, or offset >= size.
  absl::StatusOr<uint64_t> address(uint32_t lsa_rank, uint64_t offset) const;

 private:
  Window(std::shared_ptr<Group> group, const v1::CreateWindowResponse& answer)
      : group_(std::move(group)),
        window_id_(answer.window_id()),
        offset_(answer.offset()),
        is_found_(answer.found()) {
    device_.generation = answer.generation();
  }
  /// From the daemon's answer: maps what is not mapped yet. The window is given up if that fails.
  static absl::StatusOr<std::shared_ptr<Window>> build(std::shared_ptr<Group> group,
                                                       const WindowSpec& spec,
                                                       const v1::CreateWindowResponse& answer);
  absl::Status place(const WindowSpec& spec, const v1::CreateWindowResponse& answer);
  absl::Status write_descriptor(uint64_t descriptor_offset);

  const std::shared_ptr<Group>
      group_;  // Co-owned by its windows, so that calls in progress end well.
  const uint64_t window_id_;
  const uint64_t offset_;
  const bool is_found_;
  std::optional<uint32_t>
      own_slab_;  // External memory, or to be kept: mapped for this window alone.
  cco_window_device device_{};
  uint64_t device_pointer_ = 0;
  std::vector<uint64_t> bases_;  // By world rank.
};

}  // namespace cco::client
