// The main job: every rank stores into every peer's window, signals, and waits.
//
// Rounds count from 0 and never repeat on one device communicator. Between two rounds the ranks
// meet (host barrier, or any other), because a round overwrites what the one before has delivered.
// A block serves a peer; with fewer blocks than ranks a block serves several.
#include "cco/device.hpp"
#include "device/kernels/exchange_pattern.h"
#include "device/kernels/routing.h"
#include "device/kernels/store_result.h"

namespace cco::device {
namespace {

using kernels::kChoices;
using kernels::kExperts;
using kernels::kLanes;
using kernels::kThreadsMax;
using kernels::RoutedToken;
using kernels::RoutingLayout;
using kernels::store_result;

/// Generates this rank's chunk in place at `to`.
CCO_DEVICE void fill_chunk(BlockCoop block, uint8_t* to, uint64_t bytes, uint32_t rank,
                           uint64_t round) {
  const bool aligned = reinterpret_cast<uint64_t>(to) % 8 == 0;
  for (uint64_t i = block.thread_rank(); 8 * i < bytes; i += block.size()) {
    const uint64_t word = kernels::exchange_word(rank, round, i);
    const uint64_t left = bytes - 8 * i;
    if (aligned && left >= 8) {
      reinterpret_cast<uint64_t*>(to)[i] = word;
    } else {
      for (uint64_t k = 0; k < 8 && k < left; ++k) {
        to[8 * i + k] = static_cast<uint8_t>(word >> (8 * k));
      }
    }
  }
}

struct Choice {
  uint32_t expert;
  uint32_t score;
};

/// Calls use(k, choice) for the 8 choices of a token, best first. Keeps no table: each choice is
/// the best that comes after the one before.
template <typename Use>
CCO_DEVICE void for_each_choice(uint64_t token_id, Use use) {
  uint64_t previous = ~uint64_t{0};
  for (uint32_t k = 0; k < kChoices; ++k) {
    uint64_t best = 0;  // Score above, then the lower expert first.
    for (uint32_t expert = 0; expert < kExperts; ++expert) {
      const uint64_t key =
          uint64_t{kernels::expert_score(token_id, expert)} << 32 | (kExperts - 1 - expert);
      if (key < previous && key > best) best = key;
    }
    use(k, Choice{kExperts - 1 - static_cast<uint32_t>(best & 0xffffffffu),
                  static_cast<uint32_t>(best >> 32)});
    previous = best;
  }
}

/// What the parts of route() share.
struct Routing {
  const DeviceComm& comm;
  const Window& window;
  RoutingLayout layout;
  uint64_t token_count;
};

/// Sends every (token, choice) whose expert `peer` owns to it, in token order, then their number.
CCO_DEVICE void dispatch(BlockCoop block, const Routing& routing, uint32_t peer) {
  const uint32_t ranks = routing.comm.lsa_size;
  const uint64_t* const ids = local_ptr<uint64_t>(routing.window, routing.layout.ids);
  // Each thread takes consecutive tokens. First it counts, so that all know where theirs begin.
  const uint64_t share = (routing.token_count + block.size() - 1) / block.size();
  const uint64_t first = share * block.thread_rank();
  const uint64_t end = first + share < routing.token_count ? first + share : routing.token_count;
  uint64_t mine = 0;
  for (uint64_t token = first; token < end; ++token) {
    for_each_choice(ids[token], [&](uint32_t, Choice choice) {
      mine += kernels::expert_owner(choice.expert, ranks) == peer;
    });
  }
  uint64_t* const counted = local_ptr<uint64_t>(
      routing.window, routing.layout.scratch + 8 * uint64_t{peer} * kThreadsMax, 8 * block.size());
  counted[block.thread_rank()] = mine;
  block.sync();
  uint64_t slot = 0;
  for (uint32_t thread = 0; thread < block.thread_rank(); ++thread) slot += counted[thread];

  const uint64_t inbox = routing.layout.inbox + sizeof(RoutedToken) *
                                                    routing.layout.inbox_capacity *
                                                    routing.comm.lsa_rank;
  for (uint64_t token = first; token < end; ++token) {
    const uint64_t id = ids[token];
    for_each_choice(id, [&](uint32_t k, Choice choice) {
      if (kernels::expert_owner(choice.expert, ranks) != peer) return;
      RoutedToken* const to = peer_ptr<RoutedToken>(
          routing.window, peer, inbox + sizeof(RoutedToken) * slot++, sizeof(RoutedToken));
      for (uint32_t lane = 0; lane < kLanes; ++lane)
        to->lanes[lane] = kernels::token_lane(id, lane);
      to->token = static_cast<uint32_t>(token);
      to->choice = k;
      to->expert = choice.expert;
      to->reserved = 0;
    });
  }
  if (block.thread_rank() == block.size() - 1) {
    put_value<uint64_t>(
        peer, at(routing.window, routing.layout.counts + 8 * uint64_t{routing.comm.lsa_rank}),
        slot);
  }
}

/// Applies the experts to what `peer` has sent and stores the results back at their source.
CCO_DEVICE void serve(BlockCoop block, const Routing& routing, uint32_t peer) {
  const uint64_t count =
      *local_ptr<uint64_t>(routing.window, routing.layout.counts + 8 * uint64_t{peer}, 8);
  const RoutedToken* const inbox = local_ptr<RoutedToken>(
      routing.window,
      routing.layout.inbox + sizeof(RoutedToken) * routing.layout.inbox_capacity * peer,
      sizeof(RoutedToken) * count);
  for (uint64_t i = block.thread_rank(); i < count; i += block.size()) {
    const RoutedToken& from = inbox[i];
    const uint64_t slot = uint64_t{from.token} * kChoices + from.choice;
    uint32_t* const to = peer_ptr<uint32_t>(routing.window, peer,
                                            routing.layout.results + slot * kLanes * 4, kLanes * 4);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      to[lane] =
          kernels::expert_lane(from.expert, from.lanes[lane], from.lanes[(lane + 1) % kLanes]);
    }
  }
}

CCO_DEVICE WaitResult route_with(BlockCoop block, const Routing& routing, uint32_t peer,
                                 uint64_t round, const Deadline& deadline) {
  const uint32_t ranks = routing.comm.lsa_size;
  const uint32_t self = routing.comm.lsa_rank;
  dispatch(block, routing, peer);
  signal_add(block, routing.comm, peer, kernels::dispatch_signal(self, ranks), 1);
  const WaitResult received = wait_at_least(
      block, routing.comm, kernels::dispatch_signal(peer, ranks), round + 1, deadline);
  if (received.status != WaitStatus::kArrived) return received;
  serve(block, routing, peer);
  signal_add(block, routing.comm, peer, kernels::return_signal(self, ranks), 1);
  return wait_at_least(block, routing.comm, kernels::return_signal(peer, ranks), round + 1,
                       deadline);
}

}  // namespace

/// Writes this rank's chunk into every rank's window at lsa_rank * chunk_bytes, and waits for
/// theirs. result[peer]: an encoded WaitResult. Signals 0 .. lsa_size - 1.
CCO_KERNEL void exchange(DeviceComm comm, Window window, uint64_t chunk_bytes, uint64_t round,
                         uint64_t deadline_ns, uint64_t* result) {
  const BlockCoop block;
  const Deadline deadline = Deadline::after(comm, deadline_ns);
  for (uint32_t peer = block_index(); peer < comm.lsa_size; peer += block_count()) {
    uint8_t* const to = peer_ptr<uint8_t>(window, peer, comm.lsa_rank * chunk_bytes, chunk_bytes);
    fill_chunk(block, to, chunk_bytes, comm.lsa_rank, round);
    signal_set(block, comm, peer, kernels::exchange_signal(comm.lsa_rank), round + 1);
  }
  for (uint32_t peer = block_index(); peer < comm.lsa_size; peer += block_count()) {
    const uint32_t signal = kernels::exchange_signal(peer);
    store_result(result + peer, wait_at_least(block, comm, signal, round + 1, deadline));
  }
}

/// Dispatches this rank's tokens (`ids` of the layout) to the owners of their experts, serves
/// theirs, and collects the results in `results`. Needs one block per rank, 1..1024 threads each.
/// result[peer]: an encoded WaitResult. Signals lsa_size .. 3 * lsa_size - 1.
CCO_KERNEL void route(DeviceComm comm, Window window, uint64_t tokens_max, uint64_t token_count,
                      uint64_t round, uint64_t deadline_ns, uint64_t* result) {
  const BlockCoop block;
  const uint32_t peer = block_index();
  if (peer >= comm.lsa_size) return;
  CCO_DEVICE_CHECK(token_count <= tokens_max, "more tokens than the window was laid out for",
                   token_count, tokens_max);
  const Routing routing{comm, window, kernels::routing_layout(tokens_max, comm.lsa_size),
                        token_count};
  store_result(result + peer,
               route_with(block, routing, peer, round, Deadline::after(comm, deadline_ns)));
}

/// After route(): adds up each token's results in the order of choice. Any grid.
CCO_KERNEL void combine(DeviceComm comm, Window window, uint64_t tokens_max, uint64_t token_count) {
  const RoutingLayout layout = kernels::routing_layout(tokens_max, comm.lsa_size);
  const uint64_t* const ids = local_ptr<uint64_t>(window, layout.ids, 8 * token_count);
  const uint32_t* const results = local_ptr<uint32_t>(window, layout.results);
  uint32_t* const output = local_ptr<uint32_t>(window, layout.output);
  const uint64_t step = uint64_t{block_count()} * thread_count();
  uint64_t token = uint64_t{block_index()} * thread_count() + thread_index();
  for (; token < token_count; token += step) {
    uint32_t* const sum = output + token * kLanes;
    for (uint32_t lane = 0; lane < kLanes; ++lane) sum[lane] = 0;
    for_each_choice(ids[token], [&](uint32_t k, Choice choice) {
      const uint32_t* const from = results + (token * kChoices + k) * kLanes;
      const uint32_t weight = kernels::choice_weight(choice.score);
      for (uint32_t lane = 0; lane < kLanes; ++lane) sum[lane] += weight * from[lane];
    });
  }
}

CCO_KERNEL_TABLE(main_job, exchange, route, combine);

}  // namespace cco::device
