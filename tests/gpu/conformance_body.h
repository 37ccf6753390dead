// The contract of all transports as kernels: one body, over a Way. A Way is one transport in the
// hands of one group of threads C:
//
//   ByThread                   true_type if a ThreadCoop may have it
//   Way(C, const Given&)
//   put, get                   (peer, to, from, bytes, deadline), (peer, from, to, …)
//   put_and_signal             (peer, to, from, bytes, deadline)
//   put_value<T>               (peer, to, value, deadline)
//   signal, flush              (peer, deadline)
//   wait_signals               (sender, total, deadline): all that `sender` has ever raised here
//
// Peers and senders are world ranks. All return a WaitResult, the same for the whole group.
#pragma once

#include <type_traits>

#include "cco/device.hpp"
#include "tests/gpu/conformance_cases.h"

namespace cco::device::conformance {

/// Groups of the grid share out what there is to do.
struct Groups {
  uint32_t index;
  uint32_t count;
};

/// Calls `run(way, groups)` in every group of the scope.
template <template <typename> class Way, typename F>
CCO_DEVICE void by_scope(const Given& given, F run) {
  const uint32_t warps = (thread_count() + warp_size() - 1) / warp_size();
  if (given.scope == Scope::kBlock) {
    Way<BlockCoop> way(BlockCoop{}, given);
    run(way, Groups{block_index(), block_count()});
  } else if (given.scope == Scope::kWarp) {
    Way<WarpCoop> way(WarpCoop{}, given);
    run(way, Groups{block_index() * warps + thread_index() / warp_size(), block_count() * warps});
  } else if constexpr (Way<ThreadCoop>::ByThread::value) {
    Way<ThreadCoop> way(ThreadCoop{}, given);
    run(way,
        Groups{block_index() * thread_count() + thread_index(), block_count() * thread_count()});
  }
}

/// Notes what is not as it should be, for the host to find.
class Findings {
 public:
  explicit CCO_DEVICE Findings(const Given& given)
      : words_(local_ptr<uint64_t>(given.window, report_offset(given.window.size_bytes),
                                   sizeof(Report))) {}

  CCO_DEVICE bool arrived(WaitResult seen, uint32_t step) const {
    return holds(seen.status == WaitStatus::kArrived, step, seen.encode());
  }
  CCO_DEVICE bool refused(WaitResult seen, uint32_t rank, uint32_t step) const {
    return holds(seen.status == WaitStatus::kRefused && seen.rank == rank, step, seen.encode());
  }
  CCO_DEVICE bool holds(bool sound, uint32_t step, uint64_t seen) const {
    if (sound) return true;
    if (fetch_add_relaxed_system(words_, uint64_t{1}) == 0) {
      store_relaxed_system(words_ + 1, uint64_t{step});
      store_relaxed_system(words_ + 2, seen);
    }
    return false;
  }

 private:
  uint64_t* const words_;
};

/// Copies every cell to or from the peer.
template <template <typename> class Way>
CCO_DEVICE void run_cells(const Given& given, bool get_instead) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  by_scope<Way>(given, [&](auto& way, Groups groups) {
    for (uint32_t i = groups.index; i < cells::kCount; i += groups.count) {
      const cells::Cell cell = cells::cell(i);
      const Place from = at(given.window, cell.source);
      const Place to = at(given.window, cell.destination);
      findings.arrived(get_instead ? way.get(given.peer, from, to, cell.bytes, deadline)
                                   : way.put(given.peer, to, from, cell.bytes, deadline),
                       i);
    }
    findings.arrived(way.flush(given.peer, deadline), cells::kCount);
  });
}

/// One round's payload to the peer, in one of several ways.
template <typename Way>
CCO_DEVICE WaitResult send(Way& way, const Given& given, uint64_t round, const Deadline& deadline) {
  const uint64_t bytes = ping::bytes(round);
  const Place from = at(given.window, ping::outgoing(round));
  const Place to = at(given.window, ping::incoming(round));
  if (bytes == sizeof(uint64_t)) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < sizeof value; ++i) {
      value |= uint64_t{ping::byte(round, given.comm.rank, i)} << 8 * i;
    }
    const WaitResult result = way.template put_value<uint64_t>(given.peer, to, value, deadline);
    return result.status == WaitStatus::kArrived ? way.signal(given.peer, deadline) : result;
  }
  if (round % 2 == 0) return way.put_and_signal(given.peer, to, from, bytes, deadline);
  const WaitResult result = way.put(given.peer, to, from, bytes, deadline);
  return result.status == WaitStatus::kArrived ? way.signal(given.peer, deadline) : result;
}

/// In every round: put, signal, flush, spoil the source; wait for the peer's signal, and look
/// whether its bytes are there. One group.
template <template <typename> class Way>
CCO_DEVICE void run_ping(const Given& given, uint64_t rounds) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const uint32_t first = given.scope == Scope::kThread ? 0 : thread_index();
  const uint32_t step = given.scope == Scope::kThread ? 1 : thread_count();
  by_scope<Way>(given, [&](auto& way, Groups) {
    bool good = true;
    for (uint64_t round = 1; round <= rounds && good; ++round) {
      const uint64_t bytes = ping::bytes(round);
      auto* const out = local_ptr<uint8_t>(given.window, ping::outgoing(round), bytes);
      for (uint64_t i = first; i < bytes; i += step) {
        out[i] = ping::byte(round, given.comm.rank, i);
      }
      good = findings.arrived(send(way, given, round, deadline), 1) &&
             findings.arrived(way.flush(given.peer, deadline), 2);
      for (uint64_t i = first; i < bytes; i += step) out[i] = 0xee;  // It is this group's again.
      good = good && findings.arrived(way.wait_signals(given.peer, round, deadline), 3);
      const auto* const in = local_ptr<const uint8_t>(given.window, ping::incoming(round), bytes);
      for (uint64_t i = first; i < bytes && good; i += step) {
        findings.holds(in[i] == ping::byte(round, given.peer, i), 4, round << 32 | i << 8 | in[i]);
      }
    }
  });
}

/// Every thread puts `puts` cells on one queue; a signal of its block follows. Then all of the
/// peer's cells are looked at.
template <template <typename> class Way>
CCO_DEVICE void run_producers(const Given& given, uint32_t puts) {
  const Deadline deadline = Deadline::after(given.comm, given.deadline_ns);
  const Findings findings(given);
  const uint64_t thread = uint64_t{block_index()} * thread_count() + thread_index();
  const uint64_t cell_count = uint64_t{block_count()} * thread_count() * puts;
  Way<ThreadCoop> way(ThreadCoop{}, given);
  for (uint64_t cell = thread * puts; cell < (thread + 1) * puts; ++cell) {
    auto* const words =
        local_ptr<uint64_t>(given.window, producers::source(cell), producers::kCellBytes);
    words[0] = producers::word(cell, given.comm.rank);
    words[1] = ~words[0];
    findings.arrived(
        way.put(given.peer, at(given.window, producers::destination(cell, cell_count)),
                at(given.window, producers::source(cell)), producers::kCellBytes, deadline),
        1);
  }
  Way<BlockCoop> block(BlockCoop{}, given);
  findings.arrived(block.signal(given.peer, deadline), 2);
  const WaitResult told = block.wait_signals(given.peer, block_count(), deadline);
  if (!findings.arrived(told, 3)) return;
  for (uint64_t cell = thread; cell < cell_count; cell += block_count() * thread_count()) {
    const auto* const words = local_ptr<const uint64_t>(
        given.window, producers::destination(cell, cell_count), producers::kCellBytes);
    const uint64_t expected = producers::word(cell, given.peer);
    findings.holds(words[0] == expected && words[1] == ~expected, 4, cell);
  }
}

}  // namespace cco::device::conformance
