#include "client/src/self_test.h"

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/group.h"

namespace cco::client {
namespace {

using Nonce = std::array<uint64_t, 2>;
static_assert(sizeof(Nonce) == kSelfTestSlotBytes);

// A bijective mix, so that close inputs give bytes that have nothing in common.
uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

Nonce nonce(const Topology& topology, uint32_t writer, uint32_t reader) {
  const uint64_t pair = uint64_t{writer} << 32 | reader;
  const uint64_t first = mix(mix(topology.generation + 1) ^ pair);
  return {first | 1, mix(first ^ topology.group_id)};
}

struct PeerResult {
  std::string fault;  // Empty: reached.
  double write_us = 0;
};

class SelfTest {
 public:
  explicit SelfTest(Group& group)
      : group_(group), topology_(group.topology()), results_(topology_.size) {}

  void write_all() {
    for (uint32_t peer = 0; peer < topology_.size; ++peer) {
      const Nonce sent = nonce(topology_, topology_.rank, peer);
      const auto start = std::chrono::steady_clock::now();
      const absl::Status status =
          group_.context().copy_to_device(slot(peer, topology_.rank), sent.data(), sizeof sent);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - start;
      results_[peer].write_us = took.count();
      if (!status.ok()) set_fault(peer, "store failed: " + std::string(status.message()));
    }
  }

  void check_all() {
    std::vector<Nonce> arrived(topology_.size);
    const absl::Status own = group_.context().copy_to_host(arrived.data(), slot(topology_.rank, 0),
                                                           arrived.size() * sizeof(Nonce));
    for (uint32_t peer = 0; peer < topology_.size; ++peer) {
      Nonce read_back{};
      const absl::Status theirs = group_.context().copy_to_host(
          read_back.data(), slot(peer, topology_.rank), sizeof read_back);
      if (!own.ok()) {
        set_fault(peer, "load from own memory failed: " + std::string(own.message()));
      } else if (!theirs.ok()) {
        set_fault(peer, "load failed: " + std::string(theirs.message()));
      } else if (read_back != nonce(topology_, topology_.rank, peer)) {
        set_fault(peer, "its memory does not hold what this rank stored there");
      } else if (arrived[peer] != nonce(topology_, peer, topology_.rank)) {
        set_fault(peer, "its store did not arrive in this rank's memory");
      }
    }
  }

  absl::Status report() {
    v1::ReportPeersRequest request;
    request.set_group_id(topology_.group_id);
    request.set_rank(topology_.rank);
    for (uint32_t peer = 0; peer < topology_.size; ++peer) {
      const PeerResult& result = results_[peer];
      v1::PeerReport* report = request.add_peers();
      report->set_rank(peer);
      report->set_reachable(result.fault.empty());
      report->set_detail(result.fault.empty()
                             ? absl::StrFormat("load/store through the flat map, self-test %.1f us",
                                               result.write_us)
                             : result.fault);
    }
    v1::ReportPeersResponse answer;
    return group_.client().call(&v1::MemdService::Stub::ReportPeers, std::move(request), &answer);
  }

  absl::Status verdict() const {
    for (uint32_t peer = 0; peer < topology_.size; ++peer) {
      if (results_[peer].fault.empty()) continue;
      const uint32_t rank = peer;
      return with_error_rank(absl::FailedPreconditionError(absl::StrFormat(
                                 "rank %d does not reach rank %d: %s. See ccoctl doctor",
                                 topology_.rank, rank, results_[peer].fault)),
                             static_cast<int>(rank));
    }
    return absl::OkStatus();
  }

 private:
  uint64_t slot(uint32_t reader, uint32_t writer) const {
    return group_.address(reader, writer * kSelfTestSlotBytes);
  }
  void set_fault(uint32_t peer, std::string fault) {
    if (results_[peer].fault.empty()) results_[peer].fault = std::move(fault);
  }

  Group& group_;
  const Topology& topology_;
  std::vector<PeerResult> results_;
};

}  // namespace

absl::Status run_self_test(Group& group, const Deadline& deadline) {
  CCO_ASSIGN_OR_RETURN(const Gate::Pass turn, group.take_turn());
  SelfTest test(group);
  // Own parts are zero everywhere after the first barrier, and written everywhere after the second.
  CCO_RETURN_IF_ERROR(group.barrier_in_turn(turn, deadline.left()));
  test.write_all();
  CCO_RETURN_IF_ERROR(group.barrier_in_turn(turn, deadline.left()));
  test.check_all();
  CCO_RETURN_IF_ERROR(test.report());
  CCO_RETURN_IF_ERROR(test.verdict());
  return group.barrier_in_turn(turn, deadline.left());
}

}  // namespace cco::client
