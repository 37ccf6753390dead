#include "client/src/group.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/deadline.h"
#include "client/src/self_test.h"

namespace cco::client {
namespace {

using Stub = v1::MemdService::Stub;

constexpr size_t kMostProblemBytes = 1024;  // What the daemon takes.

absl::Status check_answer(const v1::JoinGroupResponse& answer, uint32_t rank, uint32_t size) {
  const bool sound = answer.members_size() == static_cast<int>(size) && answer.lsa_size() >= 1 &&
                     answer.lsa_size() <= size && answer.lsa_rank() < answer.lsa_size() &&
                     answer.lsa_first() <= size - answer.lsa_size() &&
                     answer.lsa_first() + answer.lsa_rank() == rank &&
                     answer.control_bytes() >= kSelfTestBytes &&
                     answer.control_bytes() <= answer.slot_bytes();
  if (sound) return absl::OkStatus();
  return absl::InternalError(absl::StrFormat(
      "cco-memd answered rank %d of a group of %d with %d members, LSA rank %d of %d from %d, "
      "control region %d of slot %d bytes: client and daemon do not match",
      rank, size, answer.members_size(), answer.lsa_rank(), answer.lsa_size(), answer.lsa_first(),
      answer.control_bytes(), answer.slot_bytes()));
}

std::string abort_cause(uint32_t reason, uint32_t rank) {
  switch (reason) {
    case CCO_ABORT_PEER_LOST:
      return absl::StrCat("rank ", rank, " is lost");
    case CCO_ABORT_REVOKED:
      return absl::StrCat("an operator has taken the GPU of rank ", rank, " out of service");
    default:
      return absl::StrCat("the group was aborted in the name of rank ", rank);
  }
}

}  // namespace

absl::StatusOr<std::shared_ptr<Group>> Group::create(std::shared_ptr<Client> client,
                                                     const Options& options) {
  const Deadline deadline(options.timeout);
  std::shared_ptr<Group> group(new Group(std::move(client), options.device));
  // Before anybody waits for this rank: what can only fail here.
  CCO_ASSIGN_OR_RETURN(group->context_, group->client_->driver().open(options.device));
  CCO_RETURN_IF_ERROR(group->join(options));
  CCO_RETURN_IF_ERROR(group->map_control());
  CCO_RETURN_IF_ERROR(run_self_test(*group, deadline));
  return group;
}

absl::Status Group::join(const Options& options) {
  v1::JoinGroupRequest request;
  request.set_rank(options.rank);
  request.set_size(options.size);
  request.set_name(options.name);
  request.set_unique_id(options.unique_id);
  request.set_gpu_uuid(client_->driver().devices()[device_].uuid);
  request.set_slot_bytes(options.slot_bytes);
  request.set_lsa_size(options.lsa_size);
  request.set_lease(options.lease);
  v1::JoinGroupResponse answer;
  CCO_RETURN_IF_ERROR(
      client_->call_collective(&Stub::JoinGroup, std::move(request), &answer, options.timeout));
  return take(answer, options.rank, options.size);
}

absl::Status Group::take(const v1::JoinGroupResponse& answer, uint32_t rank, uint32_t size) {
  topology_ = {.group_id = answer.group_id(),
               .generation = answer.generation(),
               .rank = rank,
               .size = size,
               .lsa_rank = answer.lsa_rank(),
               .lsa_size = answer.lsa_size(),
               .lsa_first = answer.lsa_first(),
               .slot_bytes = answer.slot_bytes(),
               .control_bytes = answer.control_bytes()};
  for (const v1::Member& member : answer.members()) gpu_uuids_.push_back(member.gpu_uuid());
  return check_answer(answer, rank, size);
}

absl::StatusOr<std::shared_ptr<Group>> Group::shrink(Group& old,
                                                     std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, old.take_turn());
  const Topology& last = old.successor_ == nullptr ? old.topology_ : old.successor_->topology_;
  std::shared_ptr<Group> group(new Group(old.client_, old.device_));
  CCO_ASSIGN_OR_RETURN(group->context_, group->client_->driver().open(group->device_));
  v1::ShrinkGroupRequest request;
  request.set_group_id(last.group_id);
  request.set_rank(last.rank);
  v1::ShrinkGroupResponse answer;
  CCO_RETURN_IF_ERROR(group->client_->call_collective(&Stub::ShrinkGroup, std::move(request),
                                                      &answer, deadline.left()));
  CCO_RETURN_IF_ERROR(group->take(answer.group(), answer.rank(),
                                  static_cast<uint32_t>(answer.group().members_size())));
  old.successor_ = group;
  CCO_RETURN_IF_ERROR(group->map_control());
  CCO_RETURN_IF_ERROR(run_self_test(*group, deadline));
  old.successor_.reset();
  return group;
}

absl::Status Group::map_control() {
  CCO_ASSIGN_OR_RETURN(
      heap_, Heap::create(&client_->driver(), device_, topology_.size, topology_.slot_bytes));
  const std::vector<uint64_t> offsets(topology_.size, 0);
  CCO_RETURN_IF_ERROR(map_range(0, offsets, topology_.control_bytes));
  CCO_ASSIGN_OR_RETURN(const uint64_t page,
                       context_->register_host(notice_page_->address(), NoticePage::kBytes));
  abort_word_address_ = page + offsetof(cco_notice_page, abort_word);
  return context_->fill_zero(own_address(0), topology_.control_bytes);
}

Group::~Group() {
  if (abort_word_address_ != 0) context_->unregister_host(notice_page_->address());
  heap_.reset();
  if (topology_.group_id == 0) return;
  v1::LeaveGroupRequest request;
  request.set_group_id(topology_.group_id);
  request.set_rank(topology_.rank);
  client_->call_farewell(&Stub::LeaveGroup, std::move(request));
}

absl::Status Group::map_range(uint32_t slab_index, absl::Span<const uint64_t> offsets,
                              uint64_t size_bytes) {
  const Deadline deadline(client_->connection().timeout());
  const Gate::Pass pass = map_gate_.enter(deadline);
  if (!pass) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "another thread has been mapping memory of this group for %d ms. Is cco-memd stopped?",
        client_->connection().timeout().count()));
  }
  if (!heap_->has_slab(slab_index)) {
    CCO_RETURN_IF_ERROR(
        client_->connection().repeat_if_resumed(deadline, [&] { return fetch_slab(slab_index); }));
  }
  for (uint32_t rank = 0; rank < topology_.size; ++rank) {
    if (heap_->holds(slab_index, rank, offsets[rank], size_bytes)) continue;
    return absl::InternalError(absl::StrFormat(
        "cco-memd says that slab %d holds %d bytes at offset %d of rank %d; it does not",
        slab_index, size_bytes, offsets[rank], rank));
  }
  return absl::OkStatus();
}

absl::Status Group::fetch_slab(uint32_t slab_index) {
  v1::ExportSlabsRequest request;
  request.set_group_id(topology_.group_id);
  request.set_rank(topology_.rank);
  request.set_slab_index(slab_index);
  v1::ExportSlabsResponse answer;
  CCO_RETURN_IF_ERROR(client_->call(&Stub::ExportSlabs, std::move(request), &answer));
  if (slab_index == 0) {
    CCO_ASSIGN_OR_RETURN(UniqueFd notice, client_->connection().redeem(answer.notice_ticket()));
    CCO_ASSIGN_OR_RETURN(notice_page_, NoticePage::map(std::move(notice)));
  }
  std::vector<SlabPlace> places;
  for (const v1::SlabExport& slab : answer.exports()) {
    places.push_back({.offset = slab.offset(), .size_bytes = slab.size_bytes()});
  }
  CCO_RETURN_IF_ERROR(heap_->map_slab(slab_index, places, [&](uint32_t rank) {
    return client_->connection().redeem(answer.exports(static_cast<int>(rank)).ticket());
  }));
  slab_count_.store(static_cast<uint32_t>(heap_->slab_count()), std::memory_order_relaxed);
  return absl::OkStatus();
}

void Group::unmap_slab(uint32_t slab_index) {
  // Nobody holds the gate for longer than one mapping, which ends by itself.
  const Gate::Pass pass = map_gate_.enter(Deadline(std::chrono::hours(1)));
  heap_->unmap_slab(slab_index);
  slab_count_.store(static_cast<uint32_t>(heap_->slab_count()), std::memory_order_relaxed);
}

absl::StatusOr<Gate::Pass> Group::take_turn() {
  Gate::Pass turn = turn_gate_.try_enter();
  if (turn) return turn;
  return absl::FailedPreconditionError(
      "another thread is in a call on this group that is matched by order (barrier, communicator, "
      "unnamed window): make such calls one after the other, in the same order on every rank");
}

absl::Status Group::barrier(std::chrono::milliseconds timeout, const std::string& problem) {
  CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, take_turn());
  return barrier_in_turn(turn, timeout, problem);
}

absl::Status Group::barrier_in_turn(const Gate::Pass& turn, std::chrono::milliseconds timeout,
                                    const std::string& problem) {
  CCO_ASSERT(turn);
  v1::BarrierRequest request;
  request.set_group_id(topology_.group_id);
  request.set_rank(topology_.rank);
  request.set_sequence(barrier_count_);
  request.set_problem(problem.substr(0, kMostProblemBytes));
  v1::BarrierResponse answer;
  CCO_RETURN_IF_ERROR(
      client_->call_collective(&Stub::Barrier, std::move(request), &answer, timeout));
  ++barrier_count_;
  return absl::OkStatus();
}

uint64_t& Group::unnamed_count(const Gate::Pass& turn) {
  CCO_ASSERT(turn);
  return unnamed_count_;
}

absl::Status Group::check() const {
  const uint64_t word = notice_page_->abort_word();
  if (word == CCO_ABORT_NONE) return absl::OkStatus();
  const uint32_t rank = CCO_ABORT_RANK(word);
  const char* const next = CCO_ABORT_REASON(word) == CCO_ABORT_PEER_LOST
                               ? ": go on without it (cco_group_shrink()), or leave the group and "
                                 "form a new one"
                               : ": leave the group and form a new one";
  return with_error_rank(
      absl::AbortedError(absl::StrCat(abort_cause(CCO_ABORT_REASON(word), rank), next)),
      static_cast<int>(rank));
}

absl::Status Group::abort() {
  v1::AbortGroupRequest request;
  request.set_group_id(topology_.group_id);
  request.set_rank(topology_.rank);
  v1::AbortGroupResponse answer;
  return client_->call(&Stub::AbortGroup, std::move(request), &answer);
}

}  // namespace cco::client
