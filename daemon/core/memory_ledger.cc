#include "daemon/core/memory_ledger.h"

#include <algorithm>

#include "client/base/status_macros.h"

namespace cco::memd {

MemoryLedger::MemoryLedger(const std::vector<GpuDevice>& gpus, const Limits& limits)
    : gpus_(gpus), limits_(limits), slab_bytes_(gpus.size(), 0) {}

uint64_t MemoryLedger::limit_bytes(int gpu) const {
  const uint64_t total = gpus_[static_cast<size_t>(gpu)].total_bytes;
  return limits_.bytes_per_gpu == 0 ? total : std::min(limits_.bytes_per_gpu, total);
}

uint64_t MemoryLedger::Reservation::unused(int gpu) const {
  const auto found = used.find(gpu);
  return found == used.end() ? 0 : bytes_per_gpu - std::min(found->second, bytes_per_gpu);
}

uint64_t MemoryLedger::reserved_bytes(int gpu) const {
  uint64_t bytes = 0;
  for (const auto& [id, reservation] : reservations_) bytes += reservation.unused(gpu);
  return bytes;
}

uint64_t MemoryLedger::free_bytes(int gpu) const {
  const uint64_t limit = limit_bytes(gpu);
  return limit - std::min(slab_bytes(gpu) + reserved_bytes(gpu), limit);
}

uint64_t MemoryLedger::tenant_bytes(TenantId tenant, int gpu) const {
  const auto found = tenant_bytes_.find({gpu, tenant});
  return found == tenant_bytes_.end() ? 0 : found->second;
}

uint64_t* MemoryLedger::used_of(const Payer& payer, int gpu) {
  const auto reservation = reservations_.find(payer.lease);
  if (reservation == reservations_.end()) return nullptr;
  const auto used = reservation->second.used.find(gpu);
  return used == reservation->second.used.end() ? nullptr : &used->second;
}

void MemoryLedger::add(const Payer& payer, int gpu, uint64_t size_bytes) {
  slab_bytes_[static_cast<size_t>(gpu)] += size_bytes;
  tenant_bytes_[{gpu, payer.tenant}] += size_bytes;
  if (uint64_t* used = used_of(payer, gpu); used != nullptr) *used += size_bytes;
}

void MemoryLedger::refund(const Payer& payer, int gpu, uint64_t size_bytes) {
  slab_bytes_[static_cast<size_t>(gpu)] -= size_bytes;
  const auto found = tenant_bytes_.find({gpu, payer.tenant});
  CCO_ASSERT(found != tenant_bytes_.end() && found->second >= size_bytes);
  if ((found->second -= size_bytes) == 0) tenant_bytes_.erase(found);
  if (uint64_t* used = used_of(payer, gpu); used != nullptr) *used -= size_bytes;
}

void MemoryLedger::reserve(LeaseId lease, const std::vector<int>& gpus, uint64_t bytes_per_gpu) {
  Reservation& reservation = reservations_[lease];
  reservation.bytes_per_gpu = bytes_per_gpu;
  for (const int gpu : gpus) reservation.used.emplace(gpu, 0);
}

const MemoryLedger::Reservation* MemoryLedger::reservation(LeaseId lease) const {
  const auto found = reservations_.find(lease);
  return found == reservations_.end() ? nullptr : &found->second;
}

}  // namespace cco::memd
