#include "device/transport/work_consumer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/device/work_rings.h"

namespace cco {
namespace {

using testing::DirectBackend;
using testing::EmulatedNode;
using testing::plain_meaning;
using testing::team_of;
using testing::TestRing;

constexpr uint64_t kWindowBytes = 4096;
constexpr uint32_t kSignals = 4;
constexpr uint64_t kGeneration = EmulatedNode::kWindowGeneration;

/// Notes every call, holds words of `completed` back while told to, and fails on demand.
class NotingBackend : public DirectBackend {
 public:
  absl::Status copy(uint32_t ring, uint64_t destination, uint64_t source, uint64_t bytes) override {
    if (copies_fail) return absl::InternalError("injected");
    copies.push_back(bytes);
    calls += 'c';
    return DirectBackend::copy(ring, destination, source, bytes);
  }
  absl::Status write_words(uint32_t ring, absl::Span<const StreamWord> words) override {
    for (const StreamWord& word : words) {
      if (word.address == failing_word) return absl::InternalError("injected");
    }
    calls += std::to_string(words.size());
    for (const StreamWord& word : words) {
      if (word.address == held_word) continue;
      ++word_count;
      EXPECT_TRUE(DirectBackend::write_words(ring, absl::MakeConstSpan(&word, 1)).ok());
    }
    return absl::OkStatus();
  }

  std::vector<uint64_t> copies;
  std::string calls;  ///< c: a copy; a number: so many words.
  uint64_t word_count = 0;
  bool copies_fail = false;
  uint64_t failing_word = 0;
  uint64_t held_word = 0;
};

/// Rank 0 of three, of which rank 2 is on another node.
class Consumer : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<uint64_t> bases = node_.bases();
    bases[2] = 0;
    team_.words[2] = 0;
    ASSERT_TRUE(windows_.add({kGeneration, kWindowBytes, bases}).ok());
    std::iota(node_.data(0), node_.data(0) + kWindowBytes, '\0');
    make({});
  }
  void make(const WorkConsumer::Options& options, uint64_t first = 0) {
    ring_.emplace(kDepth, first);
    consumer_.emplace(team_, plain_meaning(node_, kSignals), std::vector{ring_->host()}, &backend_,
                      options);
    next_ = first;
  }

  /// A put of 16 bytes to rank 1 that raises signal 2 on both sides by 5.
  static cco_work_item good() {
    return {CCO_WORK_HEADER(0, CCO_WORK_PUT, CCO_WORK_SIGNAL_REMOTE | CCO_WORK_SIGNAL_LOCAL, 1),
            16,
            kGeneration,
            100,
            kGeneration,
            200,
            2,
            5};
  }
  static cco_work_item with_header(uint32_t operation, uint32_t signals, uint32_t peer) {
    cco_work_item item = good();
    item.header = CCO_WORK_HEADER(0, operation, signals, peer);
    return item;
  }
  void post(const cco_work_item& item) {
    const device::impl::WorkWords words = device::impl::encode_work(item, next_, kDepth);
    std::memcpy(&ring_->items()[next_ % kDepth], &words, sizeof words);
    ++next_;
  }
  bool perform(const cco_work_item& item) {
    post(item);
    return consumer_->step();
  }
  uint64_t signal(uint32_t rank, uint32_t index) const {
    return reinterpret_cast<const uint64_t*>(node_.control_bases()[rank] +
                                             node_.transport_offset())[index];
  }
  std::string bytes(uint32_t rank) const { return {node_.data(rank), kWindowBytes}; }

  static constexpr uint32_t kDepth = 64;
  EmulatedNode node_{{.ranks = 3, .window_bytes = kWindowBytes, .transport_bytes = 4096}};
  WindowRegistry windows_;
  TransportTeam team_ = team_of(node_, 0, &windows_);
  NotingBackend backend_;
  std::optional<TestRing> ring_;
  std::optional<WorkConsumer> consumer_;
  uint64_t next_ = 0;
};

// Goal    a sound item moves exactly its bytes and raises exactly its signals.
// Method  put, get, nothing; look at all of both windows and at all signals.
TEST_F(Consumer, PerformsSoundItems) {
  std::string expected(kWindowBytes, '\0');
  EXPECT_TRUE(perform(good()));
  expected.replace(100, 16, bytes(0).substr(200, 16));
  EXPECT_EQ(bytes(1), expected);
  EXPECT_EQ(signal(1, 2), 5u);
  EXPECT_EQ(signal(0, 2), 5u);

  std::string own = bytes(0);
  cco_work_item get = with_header(CCO_WORK_GET, CCO_WORK_SIGNAL_LOCAL, 1);
  get.local_offset = 3000;
  EXPECT_TRUE(perform(get));
  own.replace(3000, 16, expected.substr(100, 16));
  EXPECT_EQ(bytes(0), own);
  EXPECT_EQ(signal(0, 2), 10u) << "a signal counts";

  cco_work_item none = with_header(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 1);
  none.remote_generation = none.local_generation = 0;
  none.signal_index = 3;
  EXPECT_TRUE(perform(none));
  cco_work_item empty = good();
  empty.bytes = 0;
  EXPECT_TRUE(perform(empty));
  EXPECT_EQ(bytes(1), expected);
  EXPECT_EQ(signal(1, 3), 5u);
  EXPECT_EQ(signal(1, 2), 10u) << "no bytes still signal";

  EXPECT_EQ(ring_->completed(), 4u);
  EXPECT_EQ(ring_->error(), 0u);
  EXPECT_EQ(consumer_->failure().reason, 0u);
  EXPECT_FALSE(consumer_->step()) << "nothing is waiting";
}

// Goal    values of every size land at any place, and nothing beside them changes.
// Method  all sizes at odd and even offsets.
TEST_F(Consumer, Values) {
  std::string expected(kWindowBytes, '\0');
  uint64_t value = 0x8877665544332211;
  for (const uint64_t size : {1, 2, 4, 8}) {
    for (const uint64_t offset : {64 * size, 64 * size + 17}) {
      cco_work_item item = with_header(CCO_WORK_VALUE, 0, 1);
      item.bytes = size;
      item.remote_offset = offset;
      ++value;
      item.local_generation = value >> 32;
      item.local_offset = value & 0xffffffff;
      EXPECT_TRUE(perform(item));
      std::memcpy(expected.data() + offset, &value, size);
    }
  }
  EXPECT_EQ(bytes(1), expected);
  EXPECT_EQ(ring_->error(), 0u);
}

struct BadItem {
  const char* name;
  uint32_t reason;
  std::function<void(cco_work_item&)> spoil;
};

const std::vector<BadItem>& bad_items() {
  const auto header = [](uint32_t operation, uint32_t signals, uint32_t peer) {
    return [=](cco_work_item& item) { item.header = CCO_WORK_HEADER(0, operation, signals, peer); };
  };
  constexpr uint64_t k4GiB = uint64_t{4} << 30;
  static const std::vector<BadItem> items = {
      {"operation", CCO_WORK_BAD_OPERATION, header(4, 1, 1)},
      {"operation 255", CCO_WORK_BAD_OPERATION, header(255, 1, 1)},
      {"signal bits", CCO_WORK_BAD_OPERATION, header(CCO_WORK_PUT, 4, 1)},
      {"value of 3", CCO_WORK_BAD_OPERATION,
       [](cco_work_item& item) {
         item.header = CCO_WORK_HEADER(0, CCO_WORK_VALUE, 1, 1);
         item.bytes = 3;
       }},
      {"value of 0", CCO_WORK_BAD_OPERATION,
       [](cco_work_item& item) {
         item.header = CCO_WORK_HEADER(0, CCO_WORK_VALUE, 1, 1);
         item.bytes = 0;
       }},
      {"peer", CCO_WORK_BAD_PEER, header(CCO_WORK_PUT, 1, 3)},
      {"peer 65535", CCO_WORK_BAD_PEER, header(CCO_WORK_NONE, 1, 0xffff)},
      {"peer elsewhere", CCO_WORK_BAD_PEER, header(CCO_WORK_NONE, 1, 2)},
      {"remote window", CCO_WORK_BAD_WINDOW, [](cco_work_item& i) { i.remote_generation = 77; }},
      {"no remote window", CCO_WORK_BAD_WINDOW, [](cco_work_item& i) { i.remote_generation = 0; }},
      {"local window", CCO_WORK_BAD_WINDOW, [](cco_work_item& i) { i.local_generation = 77; }},
      {"remote offset", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.remote_offset = 4081; }},
      {"local offset", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.local_offset = 4081; }},
      {"offset past", CCO_WORK_BAD_RANGE,
       [](cco_work_item& i) { i.remote_offset = kWindowBytes + 1, i.bytes = 0; }},
      {"sum wraps", CCO_WORK_BAD_RANGE,
       [](cco_work_item& i) { i.bytes = ~CCO_WORK_TOP, i.remote_offset = ~CCO_WORK_TOP; }},
      {"longest", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.bytes = ~CCO_WORK_TOP; }},
      {"farthest", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.remote_offset = ~CCO_WORK_TOP; }},
      {"4 GiB", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.bytes = k4GiB; }},
      {"4 GiB and 16", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.bytes = k4GiB + 16; }},
      {"offset of 4 GiB", CCO_WORK_BAD_RANGE, [](cco_work_item& i) { i.local_offset = k4GiB; }},
      {"signal", CCO_WORK_BAD_SIGNAL, [](cco_work_item& i) { i.signal_index = kSignals; }},
      {"signal wraps", CCO_WORK_BAD_SIGNAL,
       [](cco_work_item& i) { i.signal_index = uint64_t{1} << 61; }},
  };
  return items;
}

// Goal    no wrong field gets anything moved or raised; each is told by name, completes, and does
//         not stop what comes behind it.
// Method  every wrong field alone in an otherwise good item, on a consumer of its own.
TEST_F(Consumer, RefusesEveryWrongField) {
  const std::string own = bytes(0);
  const std::string peers = bytes(1);
  for (const BadItem& bad : bad_items()) {
    make({});
    cco_work_item item = good();
    bad.spoil(item);
    EXPECT_TRUE(perform(item)) << bad.name;
    EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), bad.reason) << bad.name;
    EXPECT_EQ(CCO_WORK_ERROR_PEER(ring_->error()), CCO_WORK_PEER(item.header)) << bad.name;
    EXPECT_EQ(consumer_->failure().reason, bad.reason) << bad.name;
    EXPECT_EQ(ring_->completed(), 1u) << bad.name;
    EXPECT_TRUE(ring_->has_failed()) << bad.name;
    EXPECT_EQ(bytes(0), own) << bad.name;
    EXPECT_EQ(bytes(1), peers) << bad.name;
    for (uint32_t index = 0; index < kSignals; ++index) {
      EXPECT_EQ(signal(0, index) + signal(1, index), 0u) << bad.name;
    }
  }
  post(with_header(9, 1, 0));
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(signal(1, 2), 5u) << "the ring goes on";
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), bad_items().back().reason)
      << "the first error stays";
}

// Goal    a window that was taken away is not touched any more, whatever still names it.
// Method  an item that was good before.
TEST_F(Consumer, StaleGenerationsAreRefused) {
  EXPECT_TRUE(perform(good()));
  const std::string before = bytes(1);
  node_.data(0)[200] = 'x';
  windows_.remove(kGeneration);
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), CCO_WORK_BAD_WINDOW);
  EXPECT_EQ(bytes(1), before);
  EXPECT_EQ(signal(1, 2), 5u);
}

// Goal    what a driver does not perform is told, raises nothing, and does not stop the ring.
// Method  a copy, a signal and a completion that fail.
TEST_F(Consumer, DriverFailures) {
  backend_.copies_fail = true;
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), CCO_WORK_COPY_FAILED);
  EXPECT_EQ(signal(1, 2), 0u);
  EXPECT_EQ(ring_->completed(), 1u);
  backend_.copies_fail = false;
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(signal(1, 2), 5u);

  make({}, 8);
  backend_.failing_word = team_.words[1] + node_.transport_offset() + 16;
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), CCO_WORK_COPY_FAILED);
  EXPECT_EQ(CCO_WORK_ERROR_PEER(ring_->error()), 1u);
  EXPECT_EQ(ring_->completed(), 9u);
  EXPECT_EQ(signal(1, 2), 5u) << "as it was";
  EXPECT_EQ(backend_.calls, "1c3c1") << "the completion is tried without the signals";

  make({}, 8);
  backend_.failing_word = ring_->host().completed_address;
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), CCO_WORK_COPY_FAILED);
  EXPECT_EQ(ring_->completed(), 9u) << "nobody waits for ever";
}

// Goal    no signal rises, not even with a later one, for a value that was not stored.
TEST_F(Consumer, ValueThatFailsRaisesNothing) {
  cco_work_item value = with_header(CCO_WORK_VALUE, CCO_WORK_SIGNAL_REMOTE, 1);
  value.bytes = 8;
  value.remote_offset = 1024;
  value.local_generation = 0;
  backend_.failing_word = node_.bases()[1] + 1024;
  EXPECT_TRUE(perform(value));
  EXPECT_EQ(CCO_WORK_ERROR_REASON(ring_->error()), CCO_WORK_COPY_FAILED);
  EXPECT_EQ(ring_->completed(), 1u);
  backend_.failing_word = 0;
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(signal(1, 2), 5u);
}

// Goal    words go in as few calls as keep a signal from waiting for a copy behind it, and a
//         value's from rising without it: with the words around them, and before the next copy.
// Method  a put with two signals alone; then two puts, signals, an aligned value, one more put.
TEST_F(Consumer, WordsGoTogether) {
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(backend_.calls, "c3");
  backend_.calls.clear();
  cco_work_item value = with_header(CCO_WORK_VALUE, CCO_WORK_SIGNAL_REMOTE, 1);
  value.bytes = 8;
  value.remote_offset = 1024;
  value.local_generation = 0;  // The high half.
  post(good());
  post(good());
  post(with_header(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 1));
  post(value);
  EXPECT_TRUE(perform(good()));
  EXPECT_EQ(backend_.calls, "c2c41c3");
  EXPECT_EQ(signal(1, 2), 6 * 5u);
  EXPECT_EQ(signal(0, 2), 4 * 5u);
  EXPECT_EQ(bytes(1).substr(1024, 8), std::string("\xc8\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(ring_->completed(), 6u);
}

// Goal    items longer than a driver's copy become several, without a gap.
// Method  copies of at most 100 bytes.
TEST_F(Consumer, LongItemsAreSplit) {
  make({.max_copy_bytes = 100});
  cco_work_item item = good();
  item.bytes = 350;
  EXPECT_TRUE(perform(item));
  EXPECT_EQ(backend_.copies, (std::vector<uint64_t>{100, 100, 100, 50}));
  EXPECT_EQ(bytes(1).substr(100, 350), bytes(0).substr(200, 350));
}

// Goal    what waits is handed on in batches with one completion each, in order, and no more than
//         the back-end may hold is on its way.
// Method  60 waiting items; a back-end that holds completions back, then does not.
TEST_F(Consumer, BatchesAndBoundsItems) {
  make({.max_in_flight = 20});
  for (int i = 0; i < 60; ++i) post(with_header(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 1));
  backend_.held_word = ring_->host().completed_address;
  while (consumer_->step()) {
  }
  EXPECT_EQ(signal(1, 2), 20 * 5u);
  backend_.held_word = 0;
  const StreamWord completed{ring_->host().completed_address, 20};
  ASSERT_TRUE(backend_.write_words(0, absl::MakeConstSpan(&completed, 1)).ok());
  backend_.word_count = 0;
  backend_.calls.clear();
  uint32_t steps = 0;
  while (consumer_->step()) ++steps;
  EXPECT_EQ(signal(1, 2), 60 * 5u);
  EXPECT_EQ(ring_->completed(), 60u);
  EXPECT_EQ(backend_.word_count, 40u + steps);
  EXPECT_EQ(backend_.calls, "17179") << "batches of 16, 16 and 8 items";
  EXPECT_LE(steps, 4u);
}

// Goal    an item that asks for nothing is completed at once, but never before what came ahead of
//         it.
// Method  a back-end that holds completions back: an empty item alone, behind a put, and behind a
//         put of an earlier step.
TEST_F(Consumer, EmptyItemsTakeTheShortWay) {
  const cco_work_item empty = with_header(CCO_WORK_NONE, 0, 1);
  const uint64_t completed_address = ring_->host().completed_address;
  backend_.held_word = completed_address;
  EXPECT_TRUE(perform(empty));
  EXPECT_EQ(ring_->completed(), 1u);
  post(good());
  EXPECT_TRUE(perform(empty));
  EXPECT_EQ(ring_->completed(), 1u);
  EXPECT_TRUE(perform(empty));
  EXPECT_EQ(ring_->completed(), 1u);
  const StreamWord completed{completed_address, 4};
  ASSERT_TRUE(backend_.DirectBackend::write_words(0, absl::MakeConstSpan(&completed, 1)).ok());
  EXPECT_TRUE(perform(empty));
  EXPECT_EQ(ring_->completed(), 5u);
}

// Goal    an item is taken when all of its words are there, in whatever order they come, and not
//         before; the lap before does not look like it, nor does zeroed memory.
// Method  a full ring of items, performed; then one of the next lap, without one word; all
//         sequences but the right one.
TEST_F(Consumer, WaitsForEveryWord) {
  for (uint32_t lap = 0; lap < 3; ++lap) {
    const cco_work_item before = ring_->items()[0];
    const device::impl::WorkWords words = device::impl::encode_work(good(), next_, kDepth);
    for (size_t missing = 0; missing < std::size(words.word); ++missing) {
      device::impl::WorkWords partial = words;
      std::memcpy(&partial.word[missing], reinterpret_cast<const uint64_t*>(&before) + missing,
                  sizeof(uint64_t));
      std::memcpy(&ring_->items()[0], &partial, sizeof partial);
      EXPECT_FALSE(consumer_->step()) << lap << ": " << missing;
    }
    for (const uint32_t sequence : {next_, next_ + 2, next_ + 1 + kDepth, next_ + 1 - kDepth}) {
      device::impl::WorkWords wrong = words;
      wrong.word[0] = (words.word[0] & ~uint64_t{0xffffffff}) | sequence;
      std::memcpy(&ring_->items()[0], &wrong, sizeof wrong);
      EXPECT_FALSE(consumer_->step()) << lap << ": " << sequence;
    }
    for (uint32_t i = 0; i < kDepth; ++i) EXPECT_TRUE(perform(good()));
  }
  EXPECT_EQ(ring_->completed(), 3 * kDepth);
  EXPECT_EQ(ring_->error(), 0u);
}

// Goal    a signal rises by any delta, the top bit included.
// Method  take one away; add 2^63.
TEST_F(Consumer, AnyDelta) {
  cco_work_item item = with_header(CCO_WORK_NONE, CCO_WORK_SIGNAL_REMOTE, 1);
  item.signal_delta = ~uint64_t{0};
  EXPECT_TRUE(perform(item));
  EXPECT_EQ(signal(1, 2), ~uint64_t{0});
  item.signal_delta = uint64_t{1} << 63;
  EXPECT_TRUE(perform(item));
  EXPECT_EQ(signal(1, 2), ~uint64_t{0} >> 1);
}

// Goal    every reason has words of its own.
// Method  all of them, and one that there is not.
TEST(WorkError, IsDescribed) {
  std::vector<std::string> texts;
  for (uint32_t reason = CCO_WORK_BAD_OPERATION; reason <= CCO_WORK_COPY_FAILED + 1; ++reason) {
    for (const std::string& other : texts) EXPECT_NE(describe_work_error(reason), other);
    texts.emplace_back(describe_work_error(reason));
  }
}

}  // namespace
}  // namespace cco
