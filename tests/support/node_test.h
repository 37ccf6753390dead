// Fixture: a daemon of the test's own, which must hold nothing more at the end than at the start.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/support/calls.h"
#include "tests/support/daemon_process.h"
#include "tests/support/node_watch.h"
#include "tests/support/patience.h"
#include "tests/support/ranks.h"

namespace cco::test {

class NodeTest : public ::testing::Test {
 protected:
  void start(const DaemonProcess::Options& options = DaemonProcess::Options()) {
    auto started = DaemonProcess::start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    daemon = *std::move(started);
    watch = std::make_unique<NodeWatch>(daemon->socket_path());
    before = watch->now();
  }
  void start_with(const std::string& config) {
    DaemonProcess::Options options;
    options.config = config;
    start(options);
  }

  Client attach(uint32_t timeout_ms = 0) {
    Client client;
    EXPECT_TRUE(succeeded(Client::create({daemon->socket_path().c_str(), timeout_ms}, &client)));
    return client;
  }
  Ranks::Options ranks(const std::string& argument = "") const {
    Ranks::Options options;
    options.socket_path = daemon->socket_path();
    options.argument = argument;
    return options;
  }
  ::testing::AssertionResult nothing_left() { return watch->settles_at(before); }

  void TearDown() override {
    if (watch == nullptr) return;
    EXPECT_TRUE(nothing_left()) << daemon->log();
    watch.reset();
    EXPECT_EQ(daemon->stop(), 0) << daemon->log();  // A sanitizer has its say at the end.
  }
  /// For tests that end the daemon themselves.
  void forget_daemon() { watch.reset(); }

  std::unique_ptr<DaemonProcess> daemon;
  std::unique_ptr<NodeWatch> watch;
  NodeLedger before;
};

/// A client in a child.
inline Client attach(const Rank& rank, uint32_t timeout_ms = 0) {
  Client client;
  EXPECT_TRUE(succeeded(Client::create({rank.socket_path.c_str(), timeout_ms}, &client)));
  return client;
}

/// This child's membership in a group of all ranks.
inline Group join(const Client& client, const Rank& rank, const char* name = "job") {
  Group group;
  Group::Options options;
  options.rank = rank.rank;
  options.size = rank.size;
  options.name = name;
  EXPECT_TRUE(succeeded(Group::create(client, options, &group)));
  return group;
}

}  // namespace cco::test
