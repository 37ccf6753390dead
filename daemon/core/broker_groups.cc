// Broker: forming groups, leaving them, barriers.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/base/status_macros.h"
#include "daemon/core/broker.h"

namespace cco::memd {
namespace {

constexpr uint64_t kSlotUnit = uint64_t{4} << 30;
constexpr uint64_t kMaxSlotBytes = uint64_t{4} << 40;
constexpr size_t kMinUniqueIdBytes = 16, kMaxUniqueIdBytes = 128;
constexpr Milliseconds kMaxTimeout{3'600'000};

// What ranks must agree on.
std::string describe(const JoinRequest& request) {
  const std::string lease =
      request.lease_id == LeaseId{} ? "no lease" : absl::StrCat("lease ", number(request.lease_id));
  return absl::StrCat("slot_bytes ", request.slot_bytes, " and lsa_size ", request.lsa_size,
                      " under ", lease);
}

// How a forming group is called in messages.
std::string call_name(const JoinRequest& request) {
  return request.name.empty() ? "forming a group by unique id"
                              : absl::StrCat("forming group '", request.name, "'");
}

}  // namespace

absl::StatusOr<Milliseconds> Broker::check_timeout(Milliseconds timeout) const {
  if (timeout.count() == 0) return options_.default_timeout;
  if (timeout <= kMaxTimeout) return timeout;
  return absl::InvalidArgumentError(
      absl::StrCat("timeout_ms is ", timeout.count(), "; it takes 1 to ", kMaxTimeout.count()));
}

absl::StatusOr<Broker::Member> Broker::find_member(const Session& session, GroupId id,
                                                   uint32_t rank) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  const auto found = groups_.find(id);
  if (found == groups_.end() || rank >= found->second->size() ||
      found->second->ranks[rank].session != session.id ||
      found->second->ranks[rank].state != MemberState::kLive) {
    return absl::NotFoundError(
        absl::StrCat("this process is not rank ", rank, " of a group ", number(id),
                     ": it has never joined, has left, or the group has ended"));
  }
  return Member{found->second.get(), &found->second->ranks[rank]};
}

absl::Status Broker::check_collective(const Member& member) const {
  const Group& group = *member.group;
  if (group.abort_reason.empty()) return absl::OkStatus();
  return about_rank(
      absl::AbortedError(absl::StrCat("group ", number(group.id),
                                      " has ended its collective work: ", group.abort_reason,
                                      ". Leave it, and form a new one")),
      *group.abort_rank);
}

absl::Status Broker::check_join(const JoinRequest& request) const {
  const auto invalid = [](auto... parts) {
    return absl::InvalidArgumentError(absl::StrCat(parts...));
  };
  if (request.unique_id.empty() == request.name.empty()) {
    return invalid("a group takes a name or a unique id, and not both");
  }
  CCO_RETURN_IF_ERROR(check_name("group", request.name));
  const size_t id_bytes = request.unique_id.size();
  if (id_bytes != 0 && (id_bytes < kMinUniqueIdBytes || id_bytes > kMaxUniqueIdBytes)) {
    return invalid("the unique id has ", id_bytes, " bytes; it takes ", kMinUniqueIdBytes, " to ",
                   kMaxUniqueIdBytes);
  }
  if (request.size == 0) return invalid("the group's size is 0; it takes at least one rank");
  if (request.size > options_.limits.ranks_per_group) {
    return over_limit("ranks_per_group", options_.limits.ranks_per_group,
                      absl::StrCat("a group of ", request.size, " ranks"));
  }
  if (request.rank >= request.size) {
    return invalid("rank ", request.rank, " is out of range: the group has ", request.size,
                   " ranks, 0 to ", request.size - 1);
  }
  if (request.slot_bytes % kSlotUnit != 0 || request.slot_bytes > kMaxSlotBytes) {
    return invalid("slot_bytes is ", request.slot_bytes, "; it takes a multiple of ", kSlotUnit,
                   " (4 GiB) up to ", kMaxSlotBytes);
  }
  if (request.lsa_size != 0 && request.size % request.lsa_size != 0) {
    return invalid("lsa_size is ", request.lsa_size, "; it takes a divisor of the group's size, ",
                   request.size, ", or 0 for all ranks of the node");
  }
  return absl::OkStatus();
}

absl::Status Broker::complete_join(const Session& session, JoinRequest* request) const {
  CCO_ASSIGN_OR_RETURN(request->gpu, slabs_.find_gpu(request->gpu_uuid));
  CCO_ASSIGN_OR_RETURN(request->lease_id, find_lease(session, *request));
  request->session = session.id;
  request->who = session.who;
  return absl::OkStatus();
}

void Broker::join(Session& session, JoinRequest request, Reply<JoinResult> reply) {
  if (stopping_) return reply(absl::UnavailableError("cco-memd is stopping"));
  if (absl::Status status = check_join(request); !status.ok()) return reply(status);
  const absl::StatusOr<Milliseconds> timeout = check_timeout(request.timeout);
  if (!timeout.ok()) return reply(timeout.status());
  if (absl::Status status = complete_join(session, &request); !status.ok()) return reply(status);
  if (absl::Status status = check_serving(request.gpu); !status.ok()) return reply(status);
  const TenantId tenant = session.tenant;
  const uint32_t rank = request.rank;
  for (const auto& [id, group] : groups_) {
    if (group->tenant == tenant && group->name == request.name &&
        group->unique_id == request.unique_id) {
      return reply(absl::AlreadyExistsError(absl::StrCat(
          "a group of ", group->size(), " ranks with that ",
          request.name.empty() ? "unique id" : "name", " is running (group ", number(id),
          "): rank ", rank, " cannot join it. Wait until it has ended, or take another name")));
    }
  }
  const FormingKey key{tenant, request.name.empty() ? absl::StrCat("id ", request.unique_id)
                                                    : absl::StrCat("name ", request.name)};
  auto forming = forming_.find(key);
  if (forming == forming_.end()) {
    absl::Status status = check_another_group(tenant, call_name(request));
    if (status.ok()) status = check_kept(tenant, uint64_t{2} * request.size, call_name(request));
    if (!status.ok()) {
      return reply(status);
    }
    const auto forget_if_empty = [this, key] {
      executor_.post([this, key] {
        const auto found = forming_.find(key);
        if (found != forming_.end() && found->second.call->is_idle()) forming_.erase(found);
      });
    };
    auto call = std::make_unique<Rendezvous<JoinRequest, JoinResult>>(
        executor_, call_name(request), request.size, forget_if_empty);
    forming =
        forming_.emplace(key, Forming{tenant, request.name, request.unique_id, std::move(call)})
            .first;
  }
  auto& call = *forming->second.call;
  if (call.size() != request.size) {
    uint32_t other = 0;
    while (other < call.size() && !call.has(other)) ++other;
    const absl::Status status =
        about_rank(absl::InvalidArgumentError(
                       absl::StrCat(call.what(), ": rank ", rank, " says it has ", request.size,
                                    " ranks, rank ", other, " says ", call.size())),
                   rank);
    call.fail(status);
    if (!call.is_doing()) forming_.erase(forming);
    return reply(status);
  }
  if (call.has(rank)) {
    return reply(about_rank(absl::AlreadyExistsError(absl::StrCat(
                                call.what(), ": rank ", rank, " has been taken by pid ",
                                call.args(rank).who.pid, ". Every rank joins once")),
                            rank));
  }
  if (call.is_doing()) {
    return reply(absl::UnavailableError(
        absl::StrCat(call.what(), ": an earlier attempt is still ending; try again")));
  }
  call.arrive(rank, std::move(request), *timeout, std::move(reply));
  if (call.complete()) form_group(key);
}

absl::StatusOr<std::unique_ptr<Group>> Broker::make_group(const Forming& forming) {
  const auto& call = *forming.call;
  uint64_t granularity = 1, largest = 0;
  for (uint32_t rank = 0; rank < call.size(); ++rank) {
    const GpuDevice& gpu = slabs_.gpus()[call.args(rank).gpu];
    granularity = std::max(granularity, gpu.granularity_bytes);
    largest = std::max(largest, gpu.total_bytes);
  }
  const uint64_t asked = call.args(0).slot_bytes;
  const uint64_t slot_bytes =
      asked != 0 ? asked : round_up(std::max<uint64_t>(largest, 1), kSlotUnit);
  const uint64_t control_bytes =
      round_up(std::max(options_.control_bytes, 2 * kSelfTestBytes), granularity);
  auto group = std::make_unique<Group>(GroupId{++last_group_id_},
                                       Heap(slot_bytes, control_bytes, granularity));
  group->generation = ++last_generation_;
  group->tenant = forming.tenant;
  group->lease = call.args(0).lease_id;
  group->name = forming.name;
  group->unique_id = forming.unique_id;
  for (uint32_t rank = 0; rank < call.size(); ++rank) {
    const JoinRequest& request = call.args(rank);
    CCO_ASSIGN_OR_RETURN(std::shared_ptr<NoticePage> page, notices_.create_page(call.size()));
    group->ranks.push_back({request.session,
                            request.who,
                            request.gpu,
                            MemberState::kLive,
                            true,
                            std::move(page),
                            {},
                            {}});
  }
  return group;
}

void Broker::form_group(const FormingKey& key) {
  Forming& forming = forming_.at(key);
  auto& call = *forming.call;
  const auto fail = [&](const absl::Status& status) {
    call.fail(status);
    forming_.erase(key);
  };
  const auto same_layout = [](const JoinRequest& a, const JoinRequest& b) {
    return a.slot_bytes == b.slot_bytes && a.lsa_size == b.lsa_size && a.lease_id == b.lease_id;
  };
  if (const auto rank = call.first_different(same_layout); rank.has_value()) {
    return fail(about_rank(
        absl::InvalidArgumentError(absl::StrCat(call.what(), ": rank ", *rank, " asks for ",
                                                describe(call.args(*rank)), ", rank 0 for ",
                                                describe(call.args(0)))),
        *rank));
  }
  absl::StatusOr<std::unique_ptr<Group>> group = make_group(forming);
  if (!group.ok()) return fail(group.status());
  call.set_doing("the allocation of the control regions");
  Allocation wanted;
  wanted.payer = {forming.tenant, (*group)->lease};
  wanted.gpus = (*group)->gpus();
  wanted.size_bytes = (*group)->heap.control_bytes();
  wanted.kind = MemoryKind::kControl;
  wanted.done = [this, key,
                 group = std::move(*group)](absl::StatusOr<std::vector<SlabId>> control) mutable {
    finish_forming(key, std::move(group), std::move(control));
  };
  create_slabs(std::move(wanted));
}

void Broker::finish_forming(const FormingKey& key, std::unique_ptr<Group> group,
                            absl::StatusOr<std::vector<SlabId>> control) {
  const auto found = forming_.find(key);
  CCO_ASSERT(found != forming_.end());  // Kept while it is doing something.
  auto call = std::move(found->second.call);
  forming_.erase(found);
  absl::Status failure = control.status();
  if (failure.ok() && !call->complete()) {
    failure =
        about_rank(absl::AbortedError(absl::StrCat(call->what(), ": ", rank_list(call->missing()),
                                                   " went away while memory was being allocated")),
                   call->missing().front());
  }
  if (!failure.ok()) {
    for (SlabId id : control.ok() ? *control : std::vector<SlabId>())
      slabs_.set_state(id, SlabState::kFreed);
    return call->fail(failure);
  }
  for (Rank& rank : group->ranks) tell_pressure(*group, rank);
  group->slabs.emplace(group->next_slab_index++,
                       control_set(*std::move(control), group->heap.control_bytes()));
  const uint32_t asked_lsa_size = call->args(0).lsa_size;
  group->lsa_size = asked_lsa_size == 0 ? group->size() : asked_lsa_size;
  const JoinResult result = join_result(*group);
  for (uint32_t rank = 0; rank < group->size(); ++rank) {
    sessions_.find(group->ranks[rank].session)->ranks.emplace(group->id, rank);
    changes_.ranks.emplace(group->id, rank);
  }
  journal_.record(
      Severity::kInfo, "group_formed",
      absl::StrCat("group=", number(group->id), " name=\"", absl::Utf8SafeCEscape(group->name),
                   "\" tenant=", tenants().name(group->tenant), " ranks=", group->size()));
  changes_.groups.insert(group->id);
  groups_.emplace(group->id, std::move(group));
  call->finish([&](uint32_t) { return result; });
}

JoinResult Broker::join_result(const Group& group) const {
  JoinResult result{group.id,
                    group.generation,
                    group.heap.slot_bytes(),
                    group.heap.control_bytes(),
                    group.lsa_size,
                    {},
                    {}};
  for (const Rank& member : group.ranks) {
    result.gpu_uuids.push_back(slabs_.gpus()[member.gpu].uuid);
    result.pids.push_back(member.who.pid);
  }
  return result;
}

SlabSet Broker::control_set(std::vector<SlabId> ids, uint64_t control_bytes) {
  SlabSet set;
  set.offsets.assign(ids.size(), 0);
  set.sizes.assign(ids.size(), control_bytes);
  set.ids = std::move(ids);
  return set;
}

absl::Status Broker::leave(Session& session, GroupId id, uint32_t rank) {
  CCO_ASSIGN_OR_RETURN(Member member, find_member(session, id, rank));
  session.ranks.erase({id, rank});
  desk_.forget({session.id, id, rank});
  set_out(*member.group, rank, MemberState::kLeft);
  retire(*member.group);
  return absl::OkStatus();
}

absl::Status Broker::abort(Session& session, GroupId id, uint32_t rank) {
  if (stopping_) return absl::UnavailableError("cco-memd is stopping");
  if (const absl::StatusOr<Member> member = find_member(session, id, rank); member.ok()) {
    abort_group(*member->group, CCO_ABORT_WORD(CCO_ABORT_REQUESTED, rank),
                absl::StrCat("rank ", rank, " aborted it"), rank);
    return absl::OkStatus();
  }
  const auto found = groups_.find(id);
  const bool is_there = found != groups_.end();
  absl::Status status;
  if (!is_there || !session.who.is_operator) {
    status =
        absl::NotFoundError(absl::StrCat("no group ", number(id), " that this process may abort"));
  }
  audit(session, "AbortGroup",
        absl::StrCat("group=", number(id),
                     " owner=", is_there ? tenants().name(found->second->tenant) : "none"),
        status);
  if (!status.ok()) return status;
  abort_group(*found->second, CCO_ABORT_WORD(CCO_ABORT_REQUESTED, 0),
              absl::StrCat("an operator (user ", session.who.uid, ") aborted it"), 0);
  return absl::OkStatus();
}

void Broker::barrier(Session& session, BarrierRequest request, Reply<BarrierResult> reply) {
  const absl::StatusOr<Member> member = find_member(session, request.group, request.rank);
  if (!member.ok()) return reply(member.status());
  if (absl::Status status = check_collective(*member); !status.ok()) return reply(status);
  const absl::StatusOr<Milliseconds> timeout = check_timeout(request.timeout);
  if (!timeout.ok()) return reply(timeout.status());
  if (request.problem.size() > kMaxProblemBytes) {
    return reply(absl::InvalidArgumentError(absl::StrCat("the problem's text has ",
                                                         request.problem.size(), " bytes; at most ",
                                                         kMaxProblemBytes, " are allowed")));
  }
  Group& group = *member->group;
  const uint64_t sequence = request.sequence;
  std::unique_ptr<BarrierCall>& call = group.barrier_calls[sequence];
  if (call == nullptr) {
    call = std::make_unique<BarrierCall>(
        executor_, absl::StrCat("barrier #", sequence), group.size(),
        [this, id = group.id, sequence] { forget_if_idle(id, &Group::barrier_calls, sequence); },
        [this, id = group.id](uint32_t rank) { return describe_missing(id, rank); });
  }
  const uint32_t rank = request.rank;
  if (call->has(rank)) {
    return reply(absl::AlreadyExistsError(
        absl::StrCat(call->what(), ": rank ", rank, " waits in it already, from another thread")));
  }
  call->arrive(rank, std::move(request), *timeout, std::move(reply));
  if (!call->complete()) return;
  const std::unique_ptr<BarrierCall> done = std::move(call);
  group.barrier_calls.erase(sequence);
  for (uint32_t other = 0; other < group.size(); ++other) {
    const std::string& problem = done->args(other).problem;
    if (problem.empty()) continue;
    return done->fail(about_rank(
        absl::FailedPreconditionError(absl::StrCat("rank ", other, " can not go on: ", problem)),
        other));
  }
  done->finish([&](uint32_t) { return BarrierResult{group.epoch}; });
}

absl::Status Broker::report_peers(Session& session, GroupId id, uint32_t rank,
                                  std::vector<PeerReport> peers) {
  CCO_ASSIGN_OR_RETURN(Member member, find_member(session, id, rank));
  for (const PeerReport& report : peers) {
    if (report.rank >= member.group->size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("report on rank ", report.rank, " of a group of ", member.group->size()));
    }
  }
  for (PeerReport& report : peers) {
    member.rank->peers.set(report.rank, {report.reachable, "", std::move(report.detail)});
  }
  changes_.ranks.emplace(id, rank);
  return absl::OkStatus();
}

absl::Status Broker::report_transports(Session& session, GroupId id, uint32_t rank,
                                       std::vector<TransportReport> reports) {
  CCO_ASSIGN_OR_RETURN(Member member, find_member(session, id, rank));
  const auto find = [](const TransportReport& report) {
    return absl::c_find(kReportedTransports, report.transport);
  };
  for (const TransportReport& report : reports) {
    if (report.peer >= member.group->size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("report on peer ", report.peer, " of a group of ", member.group->size()));
    }
    if (find(report) == kReportedTransports.end()) {
      return absl::InvalidArgumentError(absl::StrCat("report on transport '", report.transport,
                                                     "': there are ",
                                                     absl::StrJoin(kReportedTransports, ", ")));
    }
  }
  for (TransportReport& report : reports) {
    const auto index = static_cast<uint32_t>(find(report) - kReportedTransports.begin());
    member.rank->transports.set(
        report.peer * static_cast<uint32_t>(kReportedTransports.size()) + index,
        {report.usable, std::move(report.provider), std::move(report.detail)});
  }
  changes_.ranks.emplace(id, rank);
  return absl::OkStatus();
}

}  // namespace cco::memd
