#include "daemon/core/slab_table.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/error.h"

namespace cco::memd {
namespace {

constexpr SlabState kTransitions[3][3] = {
    // others may map it, nobody else does, and it is kept
    {SlabState::kLive, SlabState::kLive, SlabState::kLive},                       // kLive
    {SlabState::kQuarantined, SlabState::kQuarantined, SlabState::kQuarantined},  // kLost
    {SlabState::kHeld, SlabState::kFreed, SlabState::kKept},                      // kGone
};

}  // namespace

SlabState slab_state(OwnerState owner, bool others_may_map, bool is_kept) {
  return kTransitions[static_cast<int>(owner)][others_may_map ? 0 : is_kept ? 2 : 1];
}

struct SlabTable::Batch {
  Payer payer;
  std::vector<int> gpus;
  bool is_external = false;
  std::vector<uint64_t> sizes;
  std::vector<absl::StatusOr<SlabMemory>> results;
  size_t outstanding = 0;
  Done done;
};

class SlabTable::Charge {
 public:
  Charge(SlabTable& table, const Payer& payer, int gpu, uint64_t size_bytes)
      : table_(table), payer_(payer), gpu_(gpu), size_bytes_(size_bytes) {
    table_.ledger_.add(payer_, gpu_, size_bytes_);
    table_.revoked_bytes_[gpu_] += size_bytes_;
  }
  ~Charge() {
    table_.revoked_bytes_[gpu_] -= size_bytes_;
    table_.give_back(payer_, gpu_, size_bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

 private:
  SlabTable& table_;
  Payer payer_;
  int gpu_;
  uint64_t size_bytes_;
};

SlabTable::SlabTable(GpuPool& pool, const Limits& limits, Changes& changes)
    : pool_(pool),
      changes_(changes),
      ledger_(pool.gpus(), limits),
      present_(pool.gpus().size(), 0),
      revoked_bytes_(pool.gpus().size(), 0) {}

SlabTable::~SlabTable() {
  for (auto& [id, slab] : slabs_) pool_.release(slab.gpu, std::move(slab.memory));
}

void SlabTable::create(const Payer& payer, const std::vector<int>& gpus, uint64_t size_bytes,
                       MemoryKind kind, Done done) {
  for (const int gpu : gpus) ledger_.add(payer, gpu, size_bytes);
  auto batch = std::make_shared<Batch>();
  batch->payer = payer;
  batch->gpus = gpus;
  batch->sizes.assign(gpus.size(), size_bytes);
  batch->results.resize(gpus.size());
  batch->outstanding = gpus.size();
  batch->done = std::move(done);
  for (const int gpu : gpus) ++present_[gpu];
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
  for (const int gpu : batch->gpus) ++present_[gpu];
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
                              *std::move(batch->results[i]), batch->payer});
      changes_.slabs.insert(id);
      ids.push_back(id);
      continue;
    }
    if (!batch->is_external) ledger_.refund(batch->payer, gpu, batch->sizes[i]);
    if (batch->results[i].ok()) pool_.release(gpu, *std::move(batch->results[i]));
  }
  if (failure.ok()) return batch->done(std::move(ids));
  batch->done(std::move(failure));
  for (const int gpu : batch->gpus) take_away(gpu);
}

void SlabTable::take_away(int gpu) {
  if (--present_[gpu] == 0 && on_empty_ != nullptr) on_empty_(gpu);
}

void SlabTable::restore(SlabId id, Slab slab) {
  ++present_[slab.gpu];
  if (!slab.is_external) ledger_.add(slab.payer, slab.gpu, slab.size_bytes);
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
  pool_.release(slab.gpu, std::move(slab.memory));
  take_away(slab.gpu);
  if (!slab.is_external) give_back(slab.payer, slab.gpu, slab.size_bytes);
}

void SlabTable::give_back(const Payer& payer, int gpu, uint64_t size_bytes) {
  ledger_.refund(payer, gpu, size_bytes);
  on_freed_(gpu);
}

SlabTable::SharedCharge SlabTable::charge(const Payer& payer, int gpu, uint64_t size_bytes) {
  return std::make_shared<const Charge>(*this, payer, gpu, size_bytes);
}

SlabTable::SharedCharge SlabTable::revoke(SlabId id) {
  const Slab& slab = slabs_.at(id);
  SharedCharge charged;  // First, so that the bytes are never free.
  if (!slab.is_external) charged = charge(slab.payer, slab.gpu, slab.size_bytes);
  set_state(id, SlabState::kFreed);
  return charged;
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

SlabTable::Usage SlabTable::usage(int gpu, std::optional<TenantId> tenant) const {
  Usage usage;
  if (!tenant.has_value()) usage.revoked_bytes = revoked_bytes_[gpu];
  usage.bytes =
      (tenant.has_value() ? bytes(*tenant, gpu) : ledger_.slab_bytes(gpu)) - usage.revoked_bytes;
  for (const auto& [id, slab] : slabs_) {
    if (slab.gpu != gpu || (tenant.has_value() && slab.payer.tenant != *tenant)) continue;
    ++usage.slab_count;
    if (slab.state == SlabState::kQuarantined) usage.quarantined_bytes += slab.size_bytes;
    if (slab.state == SlabState::kHeld) usage.held_bytes += slab.size_bytes;
    if (slab.state == SlabState::kKept) usage.kept_bytes += slab.size_bytes;
  }
  return usage;
}

}  // namespace cco::memd
