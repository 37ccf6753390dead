#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "cco/cco.h"

namespace {

struct Object {
  cco_release_header header;
  uint64_t id;
};

// An interpreter that runs what it was asked for when the test says so.
struct Interpreter {
  int (*work)(void*) = nullptr;
  void* argument = nullptr;
  int asked = 0;
  bool full = false;
  std::vector<uint64_t> returned;
};
Interpreter* interpreter;

int schedule(int (*work)(void*), void* argument) {
  ++interpreter->asked;
  if (interpreter->full) return -1;
  interpreter->work = work;
  interpreter->argument = argument;
  return 0;
}

void released(void* object) { interpreter->returned.push_back(*static_cast<uint64_t*>(object)); }

class ReleaseQueue : public testing::Test {
 protected:
  ReleaseQueue() {
    interpreter = &interpreter_;
    const cco_release_queue_options options = {sizeof options, 0,        schedule,
                                               released,       is_valid, pointer};
    EXPECT_EQ(cco_release_queue_create(&options, &queue_), CCO_OK) << cco_error_message();
  }

  // A capsule here is an object whose name is its id: even ones have been taken by a consumer.
  static int is_valid(void* capsule, const char* name) {
    return std::string(name) == "dltensor_versioned" && static_cast<Object*>(capsule)->id % 2 == 1;
  }
  static void* pointer(void* capsule, const char*) { return &static_cast<Object*>(capsule)->id; }

  Object object(uint64_t id) const { return {{nullptr, queue_}, id}; }
  void run() { interpreter_.work(interpreter_.argument); }

  Interpreter interpreter_;
  cco_release_queue* queue_ = nullptr;
};

// Goal    releases run nothing of the binding's, ask once for a drain, and come back each once.
TEST_F(ReleaseQueue, AsksOnceAndGivesBackInADrain) {
  Object objects[] = {object(1), object(2), object(3)};
  for (Object& one : objects) cco_release(&one.id);
  cco_release(nullptr);
  EXPECT_EQ(interpreter_.asked, 1);
  EXPECT_TRUE(interpreter_.returned.empty());
  run();
  EXPECT_EQ(interpreter_.returned, (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(cco_release_queue_drain(queue_), 0);
  EXPECT_EQ(interpreter_.returned.size(), 3u);
  cco_release(&objects[0].id);
  EXPECT_EQ(interpreter_.asked, 2);
}

// Goal    an interpreter that cannot be asked is asked again, and nothing is lost meanwhile.
TEST_F(ReleaseQueue, AsksAgainWhenThereWasNoPlace) {
  Object objects[] = {object(1), object(2), object(3)};
  interpreter_.full = true;
  cco_release(&objects[0].id);
  cco_release(&objects[1].id);
  EXPECT_EQ(interpreter_.asked, 2);
  interpreter_.full = false;
  cco_release(&objects[2].id);
  run();
  EXPECT_EQ(interpreter_.returned.size(), 3u);
}

// Goal    only capsules that no consumer has taken are released.
TEST_F(ReleaseQueue, CapsulesThatNobodyTook) {
  Object objects[] = {object(1), object(2)};
  cco_release_capsule(&objects[0]);
  cco_release_capsule(&objects[1]);
  cco_release_queue_drain(queue_);
  EXPECT_EQ(interpreter_.returned, (std::vector<uint64_t>{1}));
}

TEST_F(ReleaseQueue, AClosedOneCallsNobody) {
  Object objects[] = {object(1), object(2)};
  cco_release(&objects[0].id);
  cco_release_queue_close(queue_);
  cco_release(&objects[1].id);
  run();
  EXPECT_EQ(interpreter_.asked, 1);
  EXPECT_TRUE(interpreter_.returned.empty());
}

// Goal    a child does not go into an interpreter whose locks may be held by nobody; it drains.
TEST_F(ReleaseQueue, AForkedChildAsksNobody) {
  Object one = object(1);
  const pid_t child = ::fork();
  if (child == 0) {
    cco_release(&one.id);
    bool well = interpreter_.asked == 0;
    cco_release_queue_drain(queue_);
    well = well && interpreter_.returned.size() == 1;
    cco_release_queue_close(queue_);
    ::_exit(well ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ReleaseQueue, RefusesWhatItCannotUse) {
  cco_release_queue* made = nullptr;
  const cco_release_queue_options options = {sizeof options, 0,        schedule,
                                             nullptr,        is_valid, pointer};
  EXPECT_EQ(cco_release_queue_create(&options, &made), CCO_INVALID_ARGUMENT);
  EXPECT_STREQ(cco_error_message(), "cco_release_queue_create: options->released is null");
  EXPECT_EQ(cco_release_queue_create(nullptr, &made), CCO_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
}

std::atomic<bool> closed;
std::atomic<bool> called_when_closed;
std::atomic<uint64_t> sum;
int schedule_unless_closed(int (*)(void*), void*) {
  if (closed) called_when_closed = true;
  return -1;  // Every release asks.
}
void add(void* object) { sum += *static_cast<uint64_t*>(object); }

// Goal    threads that release, one that drains and one that closes lose nothing, and nothing is
//         called after the close.
// Method  four threads release 10000 objects each; another drains until all have come back, then
//         closes, while the four release once more.
TEST(ReleaseQueueThreads, ReleaseDrainAndClose) {
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kObjects = 10'000;
  closed = called_when_closed = false;
  sum = 0;
  cco_release_queue* queue = nullptr;
  const cco_release_queue_options options = {sizeof options, 0,      schedule_unless_closed, add,
                                             nullptr,        nullptr};
  ASSERT_EQ(cco_release_queue_create(&options, &queue), CCO_OK);
  std::vector<Object> objects(2 * kThreads * kObjects, Object{{nullptr, queue}, 1});
  std::atomic<bool> again{false};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, mine = &objects[2 * thread * kObjects]] {
      for (uint64_t i = 0; i < kObjects; ++i) cco_release(&mine[i].id);
      again.wait(false);
      for (uint64_t i = kObjects; i < 2 * kObjects; ++i) cco_release(&mine[i].id);
    });
  }
  while (sum < kThreads * kObjects) cco_release_queue_drain(queue);
  again = true;
  again.notify_all();
  cco_release_queue_close(queue);
  closed = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(called_when_closed);
  EXPECT_EQ(sum, kThreads * kObjects);
}

}  // namespace
