#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>

#include "cco/device/abi_gda.h"
#include "cco/device/abi_sdma.h"
#include "cco/device/impl/work_ring.h"
#include "tests/device/emulated_transports.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;
using testing::EmulatedTransports;
using testing::kLongNs;

const cco_gda_device& gda_of(const DeviceComm& comm) {
  return *global_pointer<const cco_gda_device>(comm.gda);
}
const cco_work_ring& proxy_ring(const DeviceComm& comm, uint32_t context) {
  return global_pointer<const cco_work_ring>(gda_of(comm).rings)[context];
}
const cco_work_ring& copy_ring(const DeviceComm& comm, uint32_t queue) {
  return global_pointer<const cco_work_ring>(
      global_pointer<const cco_sdma_device>(comm.sdma)->rings)[queue];
}

cco_work_item make_item(uint32_t operation, uint32_t signals, uint32_t peer) {
  cco_work_item item{};
  item.header = CCO_WORK_HEADER(0, operation, signals, peer);
  item.remote_generation = item.local_generation = EmulatedNode::kWindowGeneration;
  item.signal_delta = 1;
  return item;
}

uint64_t post(const DeviceComm& comm, const cco_work_ring& ring, const cco_work_item& item,
              uint64_t nanoseconds = kLongNs) {
  const Deadline deadline = Deadline::after(comm, nanoseconds);
  Poll poll(deadline);
  impl::WorkGuess guess;
  return impl::post_work(ring, guess, item, poll);
}

bool complete(const DeviceComm& comm, const cco_work_ring& ring, uint64_t position) {
  const Deadline deadline = Deadline::after(comm, kLongNs);
  Poll poll(deadline);
  uint64_t completed = 0;
  while (!impl::work_completed(ring, position, &completed)) {
    if (!poll.again()) return false;
  }
  return position != 0;
}

/// Why `item` was refused; 0: it was not.
uint32_t refusal(const DeviceComm& comm, const cco_work_ring& ring, const cco_work_item& item) {
  EXPECT_TRUE(complete(comm, ring, post(comm, ring, item)));
  return CCO_WORK_ERROR_REASON(impl::work_error(ring));
}

EmulatedTransports::Options proxy_options(uint32_t ranks) {
  EmulatedTransports::Options options;
  options.node.ranks = ranks;
  options.gda = "proxy";
  return options;
}

// Goal    contexts of one rank that raise the same signal of a peer lose no increment, whatever the
//         order in which they are served.
// Method  both ranks, 8 contexts, each with several threads, raise signal 3 of the other by turns
//         of 1 and 2, with bytes before it; the slot must hold the sum.
TEST(Proxy, ContextsShareSignals) {
  constexpr uint32_t kContexts = 8, kThreads = 16, kRounds = 20;
  EmulatedTransports::Options options = proxy_options(2);
  options.gda_plan.context_count = kContexts;
  options.gda_plan.queue_depth = 16;
  EmulatedTransports transports(options);
  std::atomic<uint32_t> wrong{0};
  transports.node().run(1, kThreads, [&](uint32_t rank) {
    const DeviceComm comm = transports.comm(rank);
    const cco_work_ring& ring = proxy_ring(comm, thread_index() % kContexts);
    uint64_t position = 0;
    for (uint32_t round = 0; round < kRounds; ++round) {
      cco_work_item item = make_item(CCO_WORK_PUT, CCO_WORK_SIGNAL_REMOTE, 1 - rank);
      item.bytes = 8;
      item.local_offset = 8 * thread_index();
      item.remote_offset = 2048 + 8 * thread_index();
      item.signal_index = 3;
      item.signal_delta = 1 + round % 2;
      position = post(comm, ring, item);
    }
    if (!complete(comm, ring, position)) ++wrong;
  });
  EXPECT_EQ(wrong, 0u);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const DeviceComm comm = transports.comm(rank);
    const cco_gda_device& gda = gda_of(comm);
    ASSERT_EQ(gda.signal_slots, 2u);
    const auto* const slots =
        peer_ptr<const uint64_t>(comm.control, rank, gda.signal_offset + 8 * 3 * 2, 16);
    EXPECT_EQ(load_acquire_system(slots + (1 - rank)), uint64_t{kThreads} * kRounds / 2 * 3);
    EXPECT_EQ(load_acquire_system(slots + rank), 0u);
    EXPECT_TRUE(transports.gda(rank).status().ok());
  }
}

// Goal    far more items than a driver takes at once get through, on as many contexts as there may
//         be, and each context stays in order.
// Method  64 contexts of 32 items; each writes 1, 2, … 96 to one word, and its signals count along.
TEST(Proxy, BacklogIsBoundedAndInOrder) {
  constexpr uint32_t kItems = 96;
  EmulatedTransports::Options options = proxy_options(1);
  options.gda_plan.context_count = CCO_GDA_MAX_CONTEXTS;
  options.gda_plan.queue_depth = 32;
  EmulatedTransports transports(options);
  std::atomic<uint32_t> wrong{0};
  EmulatedNode::run_on(0, 1, CCO_GDA_MAX_CONTEXTS, [&](uint32_t) {
    const DeviceComm comm = transports.comm(0);
    const cco_work_ring& ring = proxy_ring(comm, thread_index());
    const auto* const word =
        reinterpret_cast<const uint64_t*>(transports.node().data(0)) + thread_index();
    for (uint64_t value = 1; value <= kItems; ++value) {
      cco_work_item item = make_item(CCO_WORK_VALUE, CCO_WORK_SIGNAL_LOCAL, 0);
      item.bytes = 8;
      item.remote_offset = 8 * thread_index();
      item.local_generation = 0;  // The value's high half.
      item.local_offset = value;
      const uint64_t position = post(comm, ring, item);
      if (value % 32 == 0 && (!complete(comm, ring, position) || *word != value)) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0u);
  const DeviceComm comm = transports.comm(0);
  EXPECT_EQ(
      load_acquire_system(peer_ptr<const uint64_t>(comm.control, 0, gda_of(comm).signal_offset, 8)),
      uint64_t{kItems} * CCO_GDA_MAX_CONTEXTS);
}

// Goal    the proxy serves whom the plan connects, and nobody else, whatever a kernel posts.
// Method  four ranks on two nodes; under every connection type rank 1 posts to all ranks.
TEST(Proxy, ConnectionsAreChecked) {
  struct Case {
    uint32_t connection;
    bool reached[4];
  };
  const Case cases[] = {{CCO_GDA_CONNECT_NONE, {false, false, false, false}},
                        {CCO_GDA_CONNECT_FULL, {true, true, true, true}},
                        {CCO_GDA_CONNECT_CROSS_NODE, {false, false, true, true}},
                        {CCO_GDA_CONNECT_RAIL, {false, false, false, true}}};
  for (const Case& each : cases) {
    for (uint32_t peer = 0; peer < 4; ++peer) {
      EmulatedTransports::Options options = proxy_options(4);
      options.node.ranks_per_node = 2;
      options.gda_plan.connection = each.connection;
      EmulatedTransports transports(options);
      const DeviceComm comm = transports.comm(1);
      const uint32_t reason = refusal(comm, proxy_ring(comm, 0),
                                      make_item(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, peer));
      EXPECT_EQ(reason, each.reached[peer] ? 0u : CCO_WORK_BAD_PEER)
          << "connection " << each.connection << " peer " << peer;
    }
  }
}

// Goal    what is wrong is told to the host too, with context and rank.
// Method  an item for a window that is not there, on context 2.
TEST(Proxy, StatusNamesTheFirstError) {
  EmulatedTransports transports(proxy_options(2));
  EXPECT_NE(transports.gda(0).describe().find("2 ranks are reached"), std::string::npos);
  const DeviceComm comm = transports.comm(0);
  cco_work_item item = make_item(CCO_WORK_PUT, 0, 1);
  item.bytes = 8;
  item.remote_generation = 99;
  EXPECT_EQ(refusal(comm, proxy_ring(comm, 2), item), CCO_WORK_BAD_WINDOW);
  const std::string text(transports.gda(0).status().message());
  EXPECT_NE(text.find("context 2 for rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("no window of that generation"), std::string::npos) << text;
  item.remote_generation = EmulatedNode::kWindowGeneration;
  item.signal_index = gda_of(comm).signal_count;
  item.header |= uint64_t{CCO_WORK_SIGNAL_REMOTE} << 40;
  EXPECT_EQ(refusal(comm, proxy_ring(comm, 1), item), CCO_WORK_BAD_SIGNAL);
  EXPECT_EQ(transports.gda(0).status().message(), text) << "the first one stays";
}

EmulatedTransports::Options copy_options() {
  EmulatedTransports::Options options;
  options.node.ranks = 2;
  options.node.window_bytes = 1 << 20;
  options.sdma = "copy-engine";
  return options;
}

// Goal    a copy engine raises this rank's slot of its queue and no other word.
// Method  signal indices of another rank, of another queue, and past the end.
TEST(CopyEngine, SlotsOfOthersAreRefused) {
  for (const uint64_t index : {0u, 1u, 2u, 4u}) {  // Rank 1's queues have slots 2 and 3.
    EmulatedTransports transports(copy_options());
    const DeviceComm comm = transports.comm(1);
    cco_work_item item = make_item(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 0);
    item.signal_index = index;
    EXPECT_EQ(refusal(comm, copy_ring(comm, 1), item), CCO_WORK_BAD_SIGNAL) << index;
    EXPECT_FALSE(transports.sdma(1).status().ok());
    item.signal_index = 3;
    EXPECT_TRUE(complete(comm, copy_ring(comm, 1), post(comm, copy_ring(comm, 1), item)));
    EXPECT_EQ(refusal(comm, copy_ring(comm, 0), make_item(CCO_WORK_NONE, 0, 2)), CCO_WORK_BAD_PEER);
    const auto* const slots = peer_ptr<const uint64_t>(
        comm.control, 0, global_pointer<const cco_sdma_device>(comm.sdma)->signal_offset, 32);
    for (uint32_t slot = 0; slot < 4; ++slot) {
      EXPECT_EQ(load_acquire_system(slots + slot), slot == 3 ? 1u : 0u) << slot;
    }
  }
}

// Goal    when the engine ends, what it took is done and whole, and nothing is under way any more.
// Method  end it over a ring of copies of 1 MiB; what the peer has afterwards stays as it is.
TEST(CopyEngine, EndsBetweenItems) {
  EmulatedTransports transports(copy_options());
  const DeviceComm comm = transports.comm(0);
  const cco_work_ring ring = copy_ring(comm, 0);
  std::memset(transports.node().data(0), 'x', 1 << 20);
  cco_work_item item = make_item(CCO_WORK_PUT, CCO_WORK_SIGNAL_REMOTE, 1);
  item.bytes = 1 << 20;
  constexpr uint64_t kItems = 200;
  uint64_t first = 0;
  for (uint64_t i = 0; i < kItems; ++i) {
    const uint64_t position = post(comm, ring, item);
    if (i == 0) first = position;
  }
  EXPECT_TRUE(complete(comm, ring, first));
  const auto* const slot = peer_ptr<const uint64_t>(
      comm.control, 1, global_pointer<const cco_sdma_device>(comm.sdma)->signal_offset, 8);
  transports.stop(0);
  const uint64_t performed = load_acquire_system(slot);
  EXPECT_GE(performed, 1u);
  EXPECT_LE(performed, kItems);
  char* const received = transports.node().data(1);
  EXPECT_EQ(std::string(received, 1 << 20), std::string(1 << 20, 'x'));
  std::memset(received, 'y', 1 << 20);  // TSan would report a copy that still runs.
  EXPECT_EQ(load_acquire_system(slot), performed);
}

}  // namespace
}  // namespace cco::device
