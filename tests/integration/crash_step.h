// Fixture: a daemon that dies at a chosen step of keeping its state, and one that does not after
// it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/src/connection.h"
#include "tests/support/kept_node.h"

namespace cco::test {

/// Until `open` no longer finds no daemon: there is no session to come back to before the first
/// answer.
template <typename Open>
void open_patiently(Open open) {
  Outcome opened;
  const Stopwatch time;
  do {
    opened = open();
  } while (opened.status == CCO_UNAVAILABLE && time.elapsed() < patience());
  EXPECT_TRUE(succeeded(opened));
}
inline void connect_patiently(const std::string& socket_path,
                              std::unique_ptr<Connection>* connection) {
  open_patiently([&] {
    auto opened = Connection::open(socket_path, patience());
    if (opened.ok()) *connection = *std::move(opened);
    return Outcome{static_cast<cco_status>(opened.status().code()),
                   std::string(opened.status().message())};
  });
}

/// Until the GPU is that, as the daemon says.
inline void expect_state(Connection& connection, int gpu, const std::string& state) {
  v1::GetNodeResponse node;
  const Stopwatch time;
  do {
    const absl::Status status =
        connection.call(&v1::MemdService::Stub::GetNode, v1::GetNodeRequest(), &node, patience());
    ASSERT_TRUE(status.ok()) << status;
  } while (node.gpus(gpu).state() != state && time.elapsed() < patience());
  EXPECT_EQ(node.gpus(gpu).state(), state);
}

class CrashStepTest : public KeptNodeTest {
 protected:
  void SetUp() override {}
  void TearDown() override {}

  // A daemon that dies at `step`, and then one that does not, as an operating system's supervisor
  // would start it.
  void start_dying_at(int64_t step) {
    watched_ = true;
    deaths_ = 0;
    DaemonProcess::Options options = kept_options();
    options.wrapper = {CRASHING_MEMD, absl::StrCat(step)};
    auto started = DaemonProcess::start(options);
    if (started.ok()) {
      daemon = *std::move(started);
    } else {
      ++deaths_;
      start_kept();
    }
    supervisor_ = std::thread([this] {
      while (watched_) {
        if (!daemon->wait(std::chrono::milliseconds(20)).has_value()) continue;
        ++deaths_;
        start_kept();
      }
    });
  }

  // `work` beside a daemon for every step, until it needs no more. It runs in processes of its own,
  // and leaves nothing. Returns the last step.
  int64_t at_every_step(RankBody work, std::initializer_list<RankBody> checks) {
    constexpr int64_t kMost = 2000;
    const int64_t stride = patience() > std::chrono::seconds(20) ? 7 : 1;  // Sanitizers are slow.
    Ranks::Options options;
    options.socket_path = socket_path();
    int64_t step = 0;
    for (; !HasFailure(); step += stride) {
      SCOPED_TRACE(absl::StrCat("killed at step ", step));
      EXPECT_LT(step, kMost) << "the work never ends";
      start_dying_at(step);
      run_ranks(1, work, options);
      for (const RankBody check : checks) run_ranks(1, check, options);
      stop_supervisor();
      if (daemon->stop() != 0) {  // It died at this last step.
        ++deaths_;
        start_kept();
        EXPECT_EQ(daemon->stop(), 0) << daemon->log();
      }
      expect_no_keeper();  // Which a session would keep, too.
      EXPECT_LE(deaths_, 1) << daemon->log();
      if (deaths_ == 0) break;
    }
    return step;
  }

 private:
  void stop_supervisor() {
    watched_ = false;
    supervisor_.join();
  }

  std::atomic<bool> watched_{false};
  std::atomic<int> deaths_{0};
  std::thread supervisor_;
};

}  // namespace cco::test
