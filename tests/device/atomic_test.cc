#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "emulated_node.h"

namespace cco::device {
namespace {

using testing::EmulatedNode;

template <typename T>
class Words : public ::testing::Test {};
using WordTypes = ::testing::Types<uint32_t, uint64_t>;
TYPED_TEST_SUITE(Words, WordTypes);

// Goal    every operation does to the word what its name says, in both scopes.
// Method  one after the other on one word.
TYPED_TEST(Words, Arithmetic) {
  TypeParam word = 1;
  store_relaxed_system(&word, 2);
  EXPECT_EQ(load_relaxed_system(&word), 2u);
  store_release_device(&word, 3);
  EXPECT_EQ(load_acquire_device(&word), 3u);
  add_relaxed_system(&word, 4);
  add_release_device(&word, 5);
  add_published_system(&word, 6);
  EXPECT_EQ(fetch_add_relaxed_device(&word, 1), 18u);
  EXPECT_EQ(fetch_add_acq_rel_system(&word, static_cast<TypeParam>(-19)), 19u);
  EXPECT_EQ(load_acquire_system(&word), 0u);
  store_published_device(&word, 7);
  acquire_system(&word);
  EXPECT_EQ(load_relaxed_device(&word), 7u);
}

// Goal    each release-acquire pair publishes plain data; TSan would report a missing order.
// Method  one thread stores data and releases, the other polls and reads, in every combination.
TYPED_TEST(Words, PublishPlainData) {
  for (int way = 0; way < 6; ++way) {
    TypeParam word = 0;
    uint32_t data = 0, seen = 0;
    EmulatedNode::run_on(0, 1, 2, [&](uint32_t) {
      if (thread_index() == 0) {
        data = 42;
        if (way % 3 == 0) store_release_system(&word, 1);
        if (way % 3 == 1) add_release_system(&word, 1);
        if (way % 3 == 2) {
          publish_system();
          store_published_system(&word, 1);
        }
        return;
      }
      if (way < 3) {
        while (load_acquire_system(&word) == 0) pause();
      } else {
        while (load_relaxed_system(&word) == 0) pause();
        acquire_system(&word);
      }
      seen = data;
    });
    EXPECT_EQ(seen, 42u) << way;
  }
}

// Goal    an exchange stores if the word is what was expected, and only then, and says what it was.
// Method  one that fits and one that does not, in every order and scope.
TYPED_TEST(Words, CompareExchange) {
  TypeParam word = 1;
  EXPECT_EQ(compare_exchange_relaxed_system(&word, 1, 2), 1u);
  EXPECT_EQ(compare_exchange_relaxed_system(&word, 1, 9), 2u);
  EXPECT_EQ(compare_exchange_relaxed_device(&word, 2, 3), 2u);
  EXPECT_EQ(compare_exchange_acq_rel_system(&word, 2, 9), 3u);
  EXPECT_EQ(compare_exchange_acq_rel_system(&word, 3, 4), 3u);
  EXPECT_EQ(compare_exchange_acq_rel_device(&word, 4, 5), 4u);
  EXPECT_EQ(word, 5u);
}

// Goal    an acquiring and releasing exchange makes a lock of a word.
// Method  8 threads count in plain memory under it; TSan would report a missing order.
TYPED_TEST(Words, ExchangesMakeALock) {
  TypeParam lock = 0;
  uint32_t count = 0;
  EmulatedNode::run_on(0, 1, 8, [&](uint32_t) {
    for (int i = 0; i < 100; ++i) {
      while (compare_exchange_acq_rel_device(&lock, 0, 1) != 0) pause();
      ++count;
      store_release_device(&lock, 0);
    }
  });
  EXPECT_EQ(count, 800u);
}

// Goal    additions of many threads are all counted.
// Method  16 threads add 1 a thousand times.
TYPED_TEST(Words, AdditionsAreAtomic) {
  TypeParam word = 0;
  EmulatedNode::run_on(0, 2, 8, [&](uint32_t) {
    for (int i = 0; i < 500; ++i) {
      add_relaxed_system(&word, 1);
      fetch_add_acq_rel_device(&word, 1);
    }
  });
  EXPECT_EQ(word, 16000u);
}

}  // namespace
}  // namespace cco::device
