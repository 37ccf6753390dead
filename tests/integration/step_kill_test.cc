// A client that dies at any step of its work.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/step_killer.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

class StepKillTest : public NodeTest {
 protected:
  void SetUp() override { start(); }
};

// Everything that a rank does in its life, once.
cco_status live(const Rank& rank, const char* name, uint32_t timeout_ms) {
  Client client;
  cco_status status = Client::create({rank.socket_path.c_str(), 20000}, &client);
  if (status != CCO_OK) return status;
  Group group;
  status = Group::create(
      client, {.rank = rank.rank, .size = 2, .name = name, .timeout_ms = timeout_ms}, &group);
  if (status != CCO_OK) return status;
  Window window, external;
  Comm comm;
  const UniqueFd memory(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::ftruncate(memory.get(), 65536) != 0) return CCO_INTERNAL;
  status = Window::create(group, "w", {.size_bytes = 5000, .timeout_ms = timeout_ms}, &window);
  if (status != CCO_OK) return status;
  status = Window::register_memory(group, "e", {.size_bytes = 16, .timeout_ms = timeout_ms},
                                   {memory.get(), 65536, 0}, &external);
  if (status != CCO_OK) return status;
  status =
      Comm::create(group, {.signal_count = 2, .barrier_count = 1, .timeout_ms = timeout_ms}, &comm);
  if (status != CCO_OK) return status;
  return group.barrier(timeout_ms);
}

// Rank 1 dies at the step that the argument names; rank 0 must get through or be told why not.
void live_or_die(Rank& rank) {
  const std::vector<std::string> words = absl::StrSplit(rank.argument, ' ');
  uint32_t step = 0;
  ASSERT_TRUE(absl::SimpleAtoi(words[0], &step));
  const std::string name = "job " + rank.argument;
  if (rank.rank == 1) die_at_message(step, words[1] == "after");
  const auto timeout = patient(std::chrono::milliseconds(1500));
  const cco_status status = live(rank, name.c_str(), static_cast<uint32_t>(timeout.count()));
  const Outcome result = outcome(status);
  EXPECT_TRUE(status == CCO_OK || status == CCO_ABORTED || status == CCO_DEADLINE_EXCEEDED)
      << cco_status_name(status) << ": " << result.message;
  EXPECT_TRUE(status == CCO_OK || result.rank == 1 - static_cast<int32_t>(rank.rank))
      << result.message;
}

// Goal    whatever step a client dies at, its peer goes on or learns it, the daemon serves others,
//         and nothing is left of it.
// Method  two processes for every message that the client sends: killed right before it and right
//         after; some at a time; until the client gets through.
TEST_F(StepKillTest, EveryStep) {
  for (const char* when : {"before", "after"}) {
    constexpr uint32_t kAtOnce = 6, kMost = 600;
    bool got_through = false;
    for (uint32_t step = 0; !got_through && !HasFailure(); step += kAtOnce) {
      ASSERT_LT(step, kMost) << "the client never gets through";
      std::vector<std::unique_ptr<Ranks>> pairs;
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        pairs.push_back(
            std::make_unique<Ranks>(2, live_or_die, ranks(absl::StrCat(step + i, " ", when))));
      }
      for (const std::unique_ptr<Ranks>& pair : pairs) {
        pair->expect_success();
        got_through = pair->wait(1) == 0;
      }
      EXPECT_TRUE(nothing_left()) << "killed " << when << " messages from " << step;
    }
  }
  EXPECT_EQ(daemon->log().find("<3>"), std::string::npos) << daemon->log();
}

}  // namespace
}  // namespace cco::test
