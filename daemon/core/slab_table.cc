#include "daemon/core/slab_table.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/error.h"

namespace cco::memd {
namespace {

constexpr SlabState kTransitions[3][2] = {
    // nobody else               others may map it
    {SlabState::kLive, SlabState::kLive},                // kLive
    {SlabState::kQuarantined, SlabState::kQuarantined},  // kLost
    {SlabState::kFreed, SlabState::kHeld},               // kGone
};

}  // namespace

SlabState slab_state(OwnerState owner, bool others_may_map) {
  return kTransitions[static_cast<int>(owner)][others_may_map ? 1 : 0];
}

struct SlabTable::Batch {
  TenantId tenant{};
  std::vector<int> gpus;
  bool is_external = false;
  std::vector<uint64_t> sizes;
  std::vector<absl::StatusOr<SlabMemory>> results;
  size_t outstanding = 0;
  Done done;
};

SlabTable::SlabTable(GpuPool& pool, const Limits& limits, Changes& changes)
    : pool_(pool), limits_(limits), changes_(changes), charged_bytes_(pool.gpus().size(), 0) {}

SlabTable::~SlabTable() {
  for (auto& [id, slab] : slabs_) pool_.release(slab.gpu, std::move(slab.memory));
}

uint64_t SlabTable::limit_bytes(int gpu) const {
  const uint64_t total = pool_.gpus()[gpu].total_bytes;
  return limits_.bytes_per_gpu == 0 ? total : std::min(limits_.bytes_per_gpu, total);
}

uint64_t SlabTable::free_bytes(int gpu) const {
  return limit_bytes(gpu) - std::min(charged_bytes_[gpu], limit_bytes(gpu));
}

absl::Status SlabTable::charge(TenantId tenant, const std::vector<int>& gpus, uint64_t size_bytes) {
  for (size_t i = 0; i < gpus.size(); ++i) {
    const int gpu = gpus[i];
    if (size_bytes <= free_bytes(gpu)) {
      charged_bytes_[gpu] += size_bytes;
      tenant_bytes_[{tenant, gpu}] += size_bytes;
      continue;
    }
    while (i-- > 0) refund(tenant, gpus[i], size_bytes);
    return absl::ResourceExhaustedError(
        absl::StrCat("slab of ", size_bytes, " bytes on ", pool_.gpus()[gpu].uuid, ": slabs hold ",
                     charged_bytes_[gpu], " of ", limit_bytes(gpu),
                     " bytes there (limits.bytes_per_gpu, or all of the GPU's memory), free ",
                     free_bytes(gpu), ". End groups, or raise the limit"));
  }
  return absl::OkStatus();
}

void SlabTable::refund(TenantId tenant, int gpu, uint64_t size_bytes) {
  charged_bytes_[gpu] -= size_bytes;
  const auto found = tenant_bytes_.find({tenant, gpu});
  if ((found->second -= size_bytes) == 0) tenant_bytes_.erase(found);
}

void SlabTable::create(TenantId tenant, const std::vector<int>& gpus, uint64_t size_bytes,
                       MemoryKind kind, Done done) {
  if (absl::Status status = charge(tenant, gpus, size_bytes); !status.ok()) return done(status);
  auto batch = std::make_shared<Batch>();
  batch->tenant = tenant;
  batch->gpus = gpus;
  batch->sizes.assign(gpus.size(), size_bytes);
  batch->results.resize(gpus.size());
  batch->outstanding = gpus.size();
  batch->done = std::move(done);
  for (size_t i = 0; i < gpus.size(); ++i) {
    pool_.allocate(gpus[i], size_bytes, kind, [this, batch, i](absl::StatusOr<SlabMemory> memory) {
      settle(batch, i, std::move(memory));
    });
  }
}

void SlabTable::adopt(std::vector<Import> imports, Done done) {
  auto batch = std::make_shared<Batch>();
  batch->is_external = true;
  for (const Import& import : imports) {
    batch->gpus.push_back(import.gpu);
    batch->sizes.push_back(import.size_bytes);
  }
  batch->results.resize(imports.size());
  batch->outstanding = imports.size();
  batch->done = std::move(done);
  for (size_t i = 0; i < imports.size(); ++i) {
    pool_.adopt(imports[i].gpu, std::move(imports[i].fd), imports[i].size_bytes,
                [this, batch, i](absl::StatusOr<SlabMemory> memory) {
                  settle(batch, i, std::move(memory));
                });
  }
}

void SlabTable::settle(const std::shared_ptr<Batch>& batch, size_t index,
                       absl::StatusOr<SlabMemory> memory) {
  batch->results[index] = std::move(memory);
  if (--batch->outstanding > 0) return;
  absl::Status failure;
  for (size_t i = 0; i < batch->results.size() && failure.ok(); ++i) {
    if (!batch->results[i].ok())
      failure = about_rank(batch->results[i].status(), static_cast<uint32_t>(i));
  }
  std::vector<SlabId> ids;
  for (size_t i = 0; i < batch->results.size(); ++i) {
    const int gpu = batch->gpus[i];
    if (failure.ok()) {
      const SlabId id{++last_id_};
      slabs_.emplace(id, Slab{gpu, batch->is_external, batch->sizes[i], SlabState::kLive,
                              *std::move(batch->results[i]), batch->tenant});
      changes_.slabs.insert(id);
      ids.push_back(id);
      continue;
    }
    if (!batch->is_external) refund(batch->tenant, gpu, batch->sizes[i]);
    if (batch->results[i].ok()) pool_.release(gpu, *std::move(batch->results[i]));
  }
  if (failure.ok()) return batch->done(std::move(ids));
  batch->done(std::move(failure));
}

void SlabTable::restore(SlabId id, Slab slab) {
  if (!slab.is_external) {
    charged_bytes_[slab.gpu] += slab.size_bytes;
    tenant_bytes_[{slab.tenant, slab.gpu}] += slab.size_bytes;
  }
  slabs_.emplace(id, std::move(slab));
}

const UniqueFd* SlabTable::fd(SlabId id) const {
  const auto found = slabs_.find(id);
  return found == slabs_.end() ? nullptr : &found->second.memory.fd;
}

void SlabTable::set_state(SlabId id, SlabState state) {
  const auto found = slabs_.find(id);
  CCO_ASSERT(found != slabs_.end());
  found->second.state = state;
  if (state != SlabState::kFreed) return;
  Slab slab = std::move(found->second);
  slabs_.erase(found);
  changes_.slabs.insert(id);
  if (!slab.is_external) refund(slab.tenant, slab.gpu, slab.size_bytes);
  pool_.release(slab.gpu, std::move(slab.memory));
}

absl::StatusOr<int> SlabTable::find_gpu(const std::string& uuid) const {
  std::vector<std::string> known;
  for (size_t i = 0; i < pool_.gpus().size(); ++i) {
    if (pool_.gpus()[i].uuid == uuid) return static_cast<int>(i);
    known.push_back(pool_.gpus()[i].uuid);
  }
  return absl::NotFoundError(absl::StrCat("cco-memd has no GPU '", uuid, "' on this node; it has ",
                                          known.empty() ? "none" : absl::StrJoin(known, ", ")));
}

uint64_t SlabTable::bytes(TenantId tenant, int gpu) const {
  const auto found = tenant_bytes_.find({tenant, gpu});
  return found == tenant_bytes_.end() ? 0 : found->second;
}

SlabTable::Usage SlabTable::usage(int gpu) const {
  Usage usage;
  usage.bytes = charged_bytes_[gpu];
  for (const auto& [id, slab] : slabs_) {
    if (slab.gpu != gpu) continue;
    ++usage.slab_count;
    if (slab.state == SlabState::kQuarantined) usage.quarantined_bytes += slab.size_bytes;
    if (slab.state == SlabState::kHeld) usage.held_bytes += slab.size_bytes;
  }
  return usage;
}

}  // namespace cco::memd
