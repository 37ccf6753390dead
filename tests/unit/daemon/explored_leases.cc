// Leases and quotas: what the world knows of who has how many bytes.
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/base/inode.h"
#include "tests/unit/daemon/explored_world.h"

namespace cco::memd {
namespace {

constexpr uint64_t kTtlMs = 3'600'000;

bool is_over(uint64_t limit, uint64_t used, uint64_t more) {
  return limit != 0 && used + more > limit;
}

}  // namespace

const World::MadeLease* World::last_lease(size_t spec) const {
  const auto found = std::find_if(leases_.rbegin(), leases_.rend(),
                                  [spec](const MadeLease& lease) { return lease.spec == spec; });
  return found == leases_.rend() ? nullptr : &*found;
}

const World::MadeLease* World::find_lease(LeaseId id) const {
  const auto found = std::find_if(leases_.begin(), leases_.end(),
                                  [id](const MadeLease& lease) { return lease.id == id; });
  return found == leases_.end() ? nullptr : &*found;
}

bool World::holds(const MadeLease& lease) const {
  return !lease.is_ended && daemon_->executor.now() < lease.expires;
}

bool World::serves(const LeaseSpec& lease, size_t program) const {
  return lease.tenant.empty() || lease.tenant == tenant_name(program);
}

// By its cgroup: the innermost, then the oldest.
LeaseId World::lease_for(size_t program) const {
  const MadeLease* found = nullptr;
  for (const MadeLease& lease : leases_) {
    const LeaseSpec& spec = options_.leases[lease.spec];
    const bool is_inside =
        !spec.cgroup.empty() && is_below(options_.programs[program].cgroup, spec.cgroup);
    if (!holds(lease) || !is_inside || !serves(spec, program)) continue;
    const size_t depth = found == nullptr ? 0 : options_.leases[found->spec].cgroup.size();
    if (spec.cgroup.size() > depth) found = &lease;
  }
  return found == nullptr ? LeaseId{} : found->id;
}

// Of slabs, those in the making excluded.
uint64_t World::used_of(LeaseId id, int gpu) const {
  uint64_t used = 0;
  for (const auto& [slab_id, slab] : daemon_->broker.slabs().all()) {
    const auto paid = paid_by_.find(inode_of(slab.memory.fd.get()));
    if (slab.gpu == gpu && paid != paid_by_.end() && paid->second == id) used += slab.size_bytes;
  }
  return used;
}

// What nobody has, and no lease keeps.
uint64_t World::free_bytes(int gpu) const {
  uint64_t taken = daemon_->pool.unsettled_bytes()[static_cast<size_t>(gpu)];
  for (const auto& [id, slab] : daemon_->broker.slabs().all()) {
    if (slab.gpu == gpu && !slab.is_external) taken += slab.size_bytes;
  }
  for (const MadeLease& lease : leases_) {
    if (holds(lease)) taken += daemon_->broker.slabs().ledger().reservation(lease.id)->unused(gpu);
  }
  const uint64_t total = daemon_->pool.gpus()[static_cast<size_t>(gpu)].total_bytes;
  return total - std::min(total, taken);
}

bool World::make_lease(size_t program, size_t spec) {
  const MadeLease* last = last_lease(spec);
  if (session(program) == nullptr || (last != nullptr && holds(*last))) return false;
  const LeaseSpec& wanted = options_.leases[spec];
  const uint64_t bytes = static_cast<uint64_t>(wanted.units_per_gpu) * kUnitBytes;
  bool fits = true;
  for (int gpu = 0; gpu < options_.gpu_count; ++gpu) fits &= bytes <= free_bytes(gpu);
  const auto made = daemon_->broker.create_lease(*session(program),
                                                 {{}, bytes, kTtlMs, wanted.tenant, wanted.cgroup});
  expect(made.ok() == fits, "a lease is made without the bytes, or not made with them");
  if (!made.ok()) return true;
  leases_.push_back(
      {made->id, made->token, spec, daemon_->executor.now() + Milliseconds(kTtlMs), false});
  return true;
}

bool World::end_lease(size_t program, size_t spec) {
  const MadeLease* last = last_lease(spec);
  if (session(program) == nullptr || last == nullptr) return false;
  MadeLease& lease = leases_[static_cast<size_t>(last - leases_.data())];
  const bool may = holds(lease);
  const absl::Status status = daemon_->broker.end_lease(*session(program), lease.id);
  expect(status.ok() == may, "a lease ends twice, or does not end");
  lease.is_ended = true;
  return may;
}

bool World::join_under(size_t program, const Membership& as, size_t spec) {
  const MadeLease* lease = last_lease(spec);
  const bool may = lease != nullptr && holds(*lease) && serves(options_.leases[spec], program);
  if (session(program) == nullptr || seat_of(program, as) || !may) return false;
  join_by(program, as, lease->token, lease->id);
  return true;
}

// Whoever is told that there is not enough is told so rightly.
void World::check_refusal(const absl::Status& status, TenantId tenant, LeaseId lease,
                          std::vector<int> gpus) {
  if (!absl::IsResourceExhausted(status)) return;
  if (absl::StrContains(status.message(), "told to fail")) return;  // By the driver.
  const Broker& broker = daemon_->broker;
  const Quotas& quotas = options_.quotas;
  const MadeLease* paying = find_lease(lease);
  bool lacks = false;
  if (absl::StrContains(status.message(), "quotas.windows")) {
    lacks = is_over(quotas.windows, broker.use_of(tenant).windows, 1);
    gpus.clear();
  }
  for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
    const uint64_t asked =
        kUnitBytes * static_cast<uint64_t>(std::count(gpus.begin(), gpus.end(), gpu));
    uint64_t there = free_bytes(gpu);
    if (paying != nullptr && holds(*paying)) {
      there = broker.slabs().ledger().reservation(lease)->unused(gpu);
    }
    lacks |=
        asked > there || is_over(quotas.bytes_per_gpu, broker.slabs().bytes(tenant, gpu), asked);
  }
  expect(lacks, "refused, and there is enough: ", status.message());
}

// Those that were made and neither ended nor ran out; each with what its slabs use.
void World::check_leases() {
  const Broker& broker = daemon_->broker;
  const MemoryLedger& ledger = broker.slabs().ledger();
  size_t due = 0;
  std::vector<uint64_t> kept(static_cast<size_t>(options_.gpu_count), 0);
  std::vector<uint64_t> coming = kept;
  for (const MadeLease& lease : leases_) {
    if (!holds(lease)) continue;
    ++due;
    const Lease* there = broker.leases().find(lease.id);
    const auto* reservation = ledger.reservation(lease.id);
    expect(there != nullptr && reservation != nullptr, "a lease has gone before its time");
    if (there == nullptr || reservation == nullptr) return;
    const LeaseSpec& spec = options_.leases[lease.spec];
    const uint64_t bytes = static_cast<uint64_t>(spec.units_per_gpu) * kUnitBytes;
    expect(there->bytes_per_gpu == bytes && reservation->bytes_per_gpu == bytes &&
               there->expires == lease.expires && there->token == lease.token &&
               there->tenant == spec.tenant && there->cgroup == spec.cgroup,
           "a lease is not what it was made");
    for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
      const uint64_t slabs = used_of(lease.id, gpu), used = reservation->used.at(gpu);
      expect(slabs <= used && used <= bytes, "a lease counts less than its slabs, or has too many");
      kept[static_cast<size_t>(gpu)] += bytes - std::min(bytes, used);
      coming[static_cast<size_t>(gpu)] += used - std::min(slabs, used);
    }
  }
  expect(broker.leases().all().size() == due && ledger.reservations().size() == due, "there are ",
         broker.leases().all().size(), " leases, due are ", due);
  for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
    const size_t index = static_cast<size_t>(gpu);
    expect(coming[index] <= daemon_->pool.unsettled_bytes()[index],
           "a lease counts bytes that no slab has");
    expect(ledger.reserved_bytes(gpu) == kept[index], "leases keep more or less than they may");
    expect(ledger.slab_bytes(gpu) + kept[index] <= ledger.limit_bytes(gpu),
           "slabs and leases have more than there is");
    expect(ledger.free_bytes(gpu) == ledger.limit_bytes(gpu) - ledger.slab_bytes(gpu) - kept[index],
           "what is free is more or less than what is left");
  }
}

// A slab is paid for by the lease that its group was formed under, for as long as it is there.
void World::note_payers() {
  if (options_.leases.empty()) return;
  std::map<uint64_t, LeaseId> paid_by;
  for (const auto& [id, slab] : daemon_->broker.slabs().all()) {
    const uint64_t inode = inode_of(slab.memory.fd.get());
    const auto known = paid_by_.find(inode);
    if (known != paid_by_.end()) paid_by[inode] = known->second;
  }
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const auto& [index, set] : group->slabs) {
      for (const SlabId slab : set.ids) {
        const UniqueFd* fd = daemon_->broker.slabs().fd(slab);
        const LeaseId lease = set.is_external ? LeaseId{} : group->lease;
        if (fd != nullptr) paid_by.emplace(inode_of(fd->get()), lease);
      }
    }
  }
  paid_by_ = std::move(paid_by);
}

void World::check_payers() {
  for (const auto& [id, group] : daemon_->broker.groups()) {
    for (const Process& process : processes_) {
      for (const Rank& rank : group->ranks) {
        if (rank.session != process.session) continue;
        expect(group->lease == process.lease_of.at(group->name), "a group is of another lease");
      }
    }
  }
  if (options_.leases.empty()) return;
  for (const auto& [id, slab] : daemon_->broker.slabs().all()) {
    const auto paid = paid_by_.find(inode_of(slab.memory.fd.get()));
    expect(paid != paid_by_.end() && paid->second == slab.payer.lease,
           "a slab is paid for by another lease");
  }
}

void World::check_quotas() {
  const Broker& broker = daemon_->broker;
  const auto within = [this](uint64_t limit, uint64_t used) {
    expect(!is_over(limit, used, 0), "a quota of ", limit, " is used by ", used);
  };
  for (size_t program = 0; program < processes_.size(); ++program) {
    const TenantId tenant = broker.tenants().find(identity(program));
    const Broker::TenantUse use = broker.use_of(tenant);
    within(options_.quotas.groups, use.groups);
    within(options_.quotas.windows, use.windows);
    within(options_.quotas.sessions, use.sessions);
    for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
      within(options_.quotas.bytes_per_gpu, broker.slabs().bytes(tenant, gpu));
      uint64_t slabs = 0;
      for (const auto& [id, slab] : broker.slabs().all()) {
        const bool is_its = !slab.is_external && slab.payer.tenant == tenant;
        if (is_its && slab.gpu == gpu) slabs += slab.size_bytes;
      }
      expect(slabs <= broker.slabs().bytes(tenant, gpu), "a tenant pays for less than it has");
    }
  }
}

std::string World::leases_text() const {
  std::string text;
  for (const auto& [id, lease] : daemon_->broker.leases().all()) {
    const MadeLease* made = find_lease(id);
    absl::StrAppend(&text, "lease ", made == nullptr ? 99 : made->spec, " used");
    for (int gpu = 0; gpu < options_.gpu_count; ++gpu) {
      absl::StrAppend(&text, " ", used_of(id, gpu));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace cco::memd
