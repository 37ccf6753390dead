// How many bytes of each GPU are taken: by slabs, by tenants, and by leases, which keep bytes for
// slabs that are still to come.
//
//   limit = slabs | kept by leases, and not used | free
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/core/ids.h"
#include "daemon/core/limits.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

/// Whose a slab's bytes are. A lease that has ended is none.
struct Payer {
  TenantId tenant{};
  LeaseId lease{};
};

class MemoryLedger {
 public:
  /// Both outlive this.
  MemoryLedger(const std::vector<GpuDevice>& gpus, const Limits& limits);

  uint64_t limit_bytes(int gpu) const;
  /// Of slabs, those that are being allocated included.
  uint64_t slab_bytes(int gpu) const { return slab_bytes_[static_cast<size_t>(gpu)]; }
  /// What leases keep there, and no slab uses.
  uint64_t reserved_bytes(int gpu) const;
  uint64_t free_bytes(int gpu) const;
  /// Of the tenant's slabs there.
  uint64_t tenant_bytes(TenantId tenant, int gpu) const;
  const std::map<std::pair<int, TenantId>, uint64_t>& by_tenant() const { return tenant_bytes_; }

  /// For a slab, whatever the limit.
  void add(const Payer& payer, int gpu, uint64_t size_bytes);
  void refund(const Payer& payer, int gpu, uint64_t size_bytes);

  struct Reservation {
    uint64_t bytes_per_gpu = 0;
    std::map<int, uint64_t> used;  // By GPU; it has no bytes on others.

    uint64_t unused(int gpu) const;
  };
  /// Keeps bytes, whatever the limit.
  void reserve(LeaseId lease, const std::vector<int>& gpus, uint64_t bytes_per_gpu);
  /// What is unused is free, what is used is like everybody's.
  void release(LeaseId lease) { reservations_.erase(lease); }
  /// Null: there is none, or not any more.
  const Reservation* reservation(LeaseId lease) const;
  const std::map<LeaseId, Reservation>& reservations() const { return reservations_; }

 private:
  /// What the lease has used there, if that is where the payer's bytes come from.
  uint64_t* used_of(const Payer& payer, int gpu);

  const std::vector<GpuDevice>& gpus_;
  const Limits& limits_;
  std::vector<uint64_t> slab_bytes_;  // By GPU.
  std::map<std::pair<int, TenantId>, uint64_t> tenant_bytes_;
  std::map<LeaseId, Reservation> reservations_;
};

}  // namespace cco::memd
