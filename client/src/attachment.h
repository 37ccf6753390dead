// This process's use of a window that another tenant has granted: every rank's copy, mapped for one
// device. And what the owner of a window grants.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/client.h"
#include "client/src/window.h"
#include "device/runtime/gpu_driver.h"

namespace cco::client {

/// The token that processes of `tenant` attach with.
absl::StatusOr<std::string> grant(Window& window, const std::string& tenant, v1::Access access);
absl::Status revoke(Window& window, const std::string& token);

/// Thread safe: constant once made.
class Attachment {
 public:
  /// `device` is whose kernels will use it.
  static absl::StatusOr<std::shared_ptr<Attachment>> create(std::shared_ptr<Client> client,
                                                            const std::string& token, int device);

  /// Unmaps it and tells the daemon. Not needed when the client ends too.
  void give_up();

  const v1::AttachWindowResponse& facts() const { return facts_; }
  uint32_t rank_count() const { return static_cast<uint32_t>(facts_.gpu_uuids_size()); }
  /// OUT_OF_RANGE: no such rank, or offset >= size.
  absl::StatusOr<uint64_t> address(uint32_t rank, uint64_t offset) const;

 private:
  struct Copy {
    VaRange range;
    GpuMapping mapping;  // Goes before its range.
    uint64_t base = 0;   // Of the window.
  };

  Attachment(std::shared_ptr<Client> client, int device)
      : client_(std::move(client)), device_(device) {}
  absl::Status map_all();
  absl::StatusOr<Copy> map(const v1::SlabExport& slab);

  const std::shared_ptr<Client> client_;
  const int device_;
  v1::AttachWindowResponse facts_;
  std::vector<Copy> copies_;  // By rank.
};

}  // namespace cco::client
