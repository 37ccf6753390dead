// Broker: windows whose memory is kept once nobody uses them, and found again by their names.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

constexpr Milliseconds kMostKeep{std::chrono::hours(24 * 30)};

std::string fields_of(const KeptWindow& window, const std::string& tenant) {
  return absl::StrCat("window=", number(window.id), " name=\"", absl::Utf8SafeCEscape(window.name),
                      "\" group=\"", absl::Utf8SafeCEscape(window.group), "\" tenant=", tenant,
                      " bytes=", window.all_bytes());
}

}  // namespace

absl::Status Broker::check_keep(const Group& group, const WindowRequest& request) const {
  if (request.keep.count() == 0) return absl::OkStatus();
  const auto invalid = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (request.keep > kMostKeep) {
    return invalid("keep_ms is ", request.keep.count(), "; it takes 0 to ", kMostKeep.count(),
                   " (30 days)");
  }
  if (request.name.empty() || group.name.empty()) {
    return invalid("keep_ms is ", request.keep.count(), ", and the ",
                   request.name.empty() ? "window" : "group",
                   " has no name: a kept window is found again by the names of its group and "
                   "itself. Give it one, or leave keep_ms 0");
  }
  if (request.placement == Placement::kHeap) return absl::OkStatus();
  return invalid("keep_ms is ", request.keep.count(),
                 ", and the window is not of the heap: only memory of the heap can be kept");
}

uint64_t Broker::kept_window_count(TenantId tenant) const {
  const bool of_all = tenant == TenantId{};
  uint64_t count = of_all ? kept_windows_.all().size() : kept_windows_.count(tenant);
  for (const auto& [id, group] : groups_) {
    if (!of_all && group->tenant != tenant) continue;
    for (const auto& [index, set] : group->slabs) count += set.is_kept ? 1 : 0;
    for (const auto& [key, call] : group->window_calls) {
      count += call->is_doing() && call->has(0) && call->args(0).keep.count() != 0 ? 1 : 0;
    }
  }
  return count;
}

absl::Status Broker::check_another_kept(const Group& group, const std::string& what) const {
  const uint64_t limit = options_.limits.kept_windows, used = kept_window_count();
  if (used >= limit) {
    return over_limit(
        "kept_windows", limit,
        absl::StrCat(what, ": ", used, " windows are kept, or in use and will be (`ccoctl kept`)"));
  }
  const uint64_t share = options_.limits.share(limit), mine = kept_window_count(group.tenant);
  if (mine < share) return absl::OkStatus();
  return over_quota({what,
                     tenants().name(group.tenant),
                     "limits.tenant_share_percent of limits.kept_windows",
                     share,
                     mine,
                     "windows that are kept, or in use and will be (`ccoctl kept`)",
                     {}});
}

void Broker::place_kept(Group& group, const std::string& key) {
  const WindowCall& call = *group.window_calls.at(key);
  const KeptWindow* kept = kept_windows_.find(
      {group.tenant, group.name, call.args(0).name, call.args(0).size_bytes, group.gpus()});
  absl::Status status = check_another_window(group, call.what(), kept != nullptr);
  if (status.ok()) status = check_another_slab(group, call.what(), kept != nullptr);
  if (status.ok() && kept == nullptr) status = check_another_kept(group, call.what());
  if (!status.ok()) return fail_window(group, key, status);
  if (kept != nullptr) return take_kept(group, key, *kept);
  make_kept(group, key);
}

// With slabs of its own, so that they can change their group.
void Broker::make_kept(Group& group, const std::string& key) {
  WindowCall& call = *group.window_calls.at(key);
  const WindowRequest& request = call.args(0);
  const uint64_t size = round_up(request.size_bytes, group.heap.granularity_bytes());
  const absl::StatusOr<uint64_t> offset = group.heap.reserve(size, request.alignment);
  if (!offset.ok()) return fail_window(group, key, offset.status());
  SlabSet set;
  set.is_kept = true;
  set.offsets.assign(group.size(), *offset);
  set.sizes.assign(group.size(), size);
  set.reserved_offset = *offset;
  set.reserved_bytes = size;
  call.set_doing(absl::StrCat("the allocation of slabs of ", size, " bytes"));
  Allocation wanted;
  wanted.payer = {group.tenant, group.lease};
  wanted.group = group.id;
  wanted.gpus = group.gpus();
  wanted.size_bytes = size;
  wanted.kind = MemoryKind::kData;
  wanted.deadline = may_wait_until(call);
  wanted.done = [this, id = group.id, key,
                 set = std::move(set)](absl::StatusOr<std::vector<SlabId>> ids) mutable {
    finish_own_slabs(id, key, std::move(set), std::move(ids));
  };
  create_slabs(std::move(wanted));
}

void Broker::take_kept(Group& group, const std::string& key, const KeptWindow& kept) {
  const WindowRequest& request = group.window_calls.at(key)->args(0);
  if (kept.size_bytes != request.size_bytes || kept.gpus != group.gpus()) {
    const auto uuids = [this](const std::vector<int>& gpus) {
      return absl::StrJoin(gpus, ",", [this](std::string* out, int gpu) {
        absl::StrAppend(out, slabs_.gpus()[static_cast<size_t>(gpu)].uuid);
      });
    };
    return fail_window(
        group, key,
        absl::FailedPreconditionError(
            absl::StrCat("window '", request.name, "' of group '", group.name, "' is kept with ",
                         kept.size_bytes, " bytes on ", uuids(kept.gpus), " (by rank); asked for ",
                         request.size_bytes, " bytes on ", uuids(group.gpus()),
                         ". Ask for the same, take another name, or free it: `ccoctl evict '",
                         group.name, "' '", request.name, "'`")));
  }
  absl::StatusOr<uint64_t> offset = kept.offset;  // So that addresses stay.
  if (kept.offset % request.alignment != 0 ||
      !group.heap.take_reserved(kept.offset, kept.slab_bytes)) {
    offset = group.heap.reserve(kept.slab_bytes, request.alignment);
  }
  if (!offset.ok()) return fail_window(group, key, offset.status());
  executor_.cancel(kept.timer);
  const KeptWindow taken = kept_windows_.take(kept.id);
  changes_.kept_windows.insert(taken.id);
  for (const SlabId id : taken.slabs) slabs_.set_state(id, SlabState::kLive);
  Window window;
  window.name = request.name;
  window.size_bytes = request.size_bytes;
  window.keep = request.keep;
  window.found = true;
  window.place = {group.next_slab_index++, *offset};
  SlabSet set;
  set.is_kept = true;
  set.ids = taken.slabs;
  set.offsets.assign(group.size(), *offset);
  set.sizes.assign(group.size(), taken.slab_bytes);
  set.reserved_offset = *offset;
  set.reserved_bytes = taken.slab_bytes;
  group.slabs.emplace(window.place.slab_index, std::move(set));
  journal_.record(Severity::kInfo, "kept_window_found",
                  fields_of(taken, tenants().name(taken.tenant)));
  finish_window(group, key, std::move(window));
}

void Broker::keep_window(Group& group, const Window& window) {
  auto node = group.slabs.extract(window.place.slab_index);
  SlabSet& set = node.mapped();
  group.heap.unreserve(set.reserved_offset, set.reserved_bytes);
  changes_.groups.insert(group.id);
  desk_.forget(group.id, set.ids);
  const bool is_whole = std::find(set.ids.begin(), set.ids.end(), SlabId{}) == set.ids.end();
  if (!is_whole || window.keep.count() == 0) {
    for (const SlabId id : set.ids) {
      if (id != SlabId{}) free_slab(id);
    }
    return;
  }
  KeptWindow kept;
  kept.id = window.id;
  kept.tenant = group.tenant;
  kept.owner = group.ranks[0].who;
  kept.group = group.name;
  kept.name = window.name;
  kept.size_bytes = window.size_bytes;
  kept.slabs = std::move(set.ids);
  kept.gpus = group.gpus();
  kept.offset = set.reserved_offset;
  kept.slab_bytes = set.reserved_bytes;
  kept.keep = window.keep;
  kept.expires = executor_.now() + window.keep;
  journal_.record(
      Severity::kInfo, "window_kept",
      absl::StrCat(fields_of(kept, tenants().name(kept.tenant)), " keep_ms=", kept.keep.count()));
  changes_.kept_windows.insert(kept.id);
  add_kept(std::move(kept));
}

void Broker::keep_unused_windows(Group& group) {
  for (auto window = group.windows.begin(); window != group.windows.end();) {
    Window& one = (window++)->second;
    if (!one.is_used()) give_up(group, one, 0);
  }
}

void Broker::add_kept(KeptWindow window) {
  // Both stay: nobody has said which of them is wanted.
  const KeptWindow* other = kept_windows_.find(
      {window.tenant, window.group, window.name, window.size_bytes, window.gpus});
  if (other != nullptr) {
    journal_.record(
        Severity::kWarning, "kept_windows_alike",
        absl::StrCat(fields_of(window, tenants().name(window.tenant)), " uid=", window.owner.uid,
                     " other_window=", number(other->id), " other_uid=", other->owner.uid));
  }
  for (const SlabId id : window.slabs) slabs_.set_state(id, SlabState::kKept);
  window.timer = executor_.call_at(
      window.expires, [this, id = window.id] { drop_kept(id, "kept_window_expired"); });
  kept_windows_.add(std::move(window));
}

Broker::Evicted Broker::drop_kept(WindowId id, const char* event) {
  const KeptWindow window = kept_windows_.take(id);
  executor_.cancel(window.timer);
  changes_.kept_windows.insert(id);
  Evicted evicted;
  for (const SlabId slab : window.slabs) {
    (free_slab(slab) ? evicted.freed : evicted.held) += window.slab_bytes;
  }
  journal_.record(
      Severity::kInfo, event,
      absl::StrCat(fields_of(window, tenants().name(window.tenant)), " held_bytes=", evicted.held));
  return evicted;
}

absl::StatusOr<Broker::Evicted> Broker::evict_kept(Session& session, WindowId id) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  const KeptWindow* kept = kept_windows_.find(id);
  absl::Status status;
  if (kept == nullptr || !may_see(session, kept->tenant)) {
    status = absl::NotFoundError(
        absl::StrCat("no kept window ", number(id),
                     " that this process may evict: it has been evicted, its "
                     "time is over, or a group uses it. `ccoctl kept` lists them"));
  }
  if (kept != nullptr && kept->tenant != session.tenant) {
    audit(session, "EvictKept",
          absl::StrCat("window=", number(id), " owner=", tenants().name(kept->tenant)), status);
  }
  if (!status.ok()) return status;
  return drop_kept(id, "kept_window_evicted");
}

absl::Status Broker::mention_kept(absl::Status status, TenantId tenant,
                                  const std::vector<int>& gpus) const {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  uint64_t bytes = 0;
  for (const int gpu : std::set<int>(gpus.begin(), gpus.end())) {
    bytes += kept_windows_.bytes(tenant, gpu);
  }
  if (bytes == 0) return status;
  absl::Status more(
      status.code(),
      absl::StrCat(status.message(), ". Kept windows of tenant '", tenants().name(tenant),
                   "', which nobody uses, hold ", bytes,
                   " bytes there: `ccoctl kept` lists them, `ccoctl evict` frees them"));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { more.SetPayload(url, payload); });
  return more;
}

}  // namespace cco::memd
