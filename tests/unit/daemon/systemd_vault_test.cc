// What take_given_fds() and SystemdVault make of what systemd gives to a service.
#include "daemon/sys/systemd_vault.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/sys/given_fds.h"
#include "daemon/sys/listener.h"
#include "tests/unit/daemon/vault_rig.h"

namespace cco::test {
namespace {

using ::testing::HasSubstr;
using Environment = std::map<std::string, std::string>;

absl::Status open_with(const Environment& environment) {
  VaultActor::Options options;
  options.environment = {{"NOTIFY_SOCKET", ""}, {"FDSTORE", ""}};
  for (const auto& [name, value] : environment) options.environment[name] = value;
  VaultActor actor(options);
  return actor.open();
}

// Goal    a vault that would hold nothing is refused, and the message says what the unit lacks.
TEST(SystemdVault, RefusesAUnitWithoutAStore) {
  absl::Status status = open_with({{"FDSTORE", "10"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("$NOTIFY_SOCKET"));
  for (const char* limit : {"", "0", "-1", "many"}) {
    status = open_with({{"NOTIFY_SOCKET", "/nowhere"}, {"FDSTORE", limit}});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << limit;
    EXPECT_THAT(std::string(status.message()), HasSubstr("FileDescriptorStoreMax=")) << limit;
  }
}

TEST(SystemdVault, SaysThatNobodyListens) {
  VaultActor::Options options;
  options.environment = {{"NOTIFY_SOCKET", "/nowhere/notify"}, {"FDSTORE", "10"}};
  VaultActor actor(options);
  ASSERT_EQ(actor.open(), absl::OkStatus());
  const absl::Status status = actor.put("slab-1", make_memfd("x"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/notify"));
}

// Goal    listening sockets are no part of the vault, whatever their name.
TEST(SystemdVault, LeavesSocketsToTheListener) {
  TempDir folder;
  const std::string path = folder.file("memd.sock");
  const auto listener = memd::listen_on(path, SOCK_STREAM, {path, 0600, -1});
  ASSERT_TRUE(listener.ok()) << listener.status();
  VaultActor::Options options;
  options.environment = {{"NOTIFY_SOCKET", folder.file("notify")}, {"FDSTORE", "10"}};
  FakeSystemd systemd(folder.file("notify"), 10);
  VaultActor actor(options);
  actor.give("cco-memd.socket", *listener);
  actor.give("slab-7", make_memfd("seven"));
  actor.give("rpc", *listener);
  ASSERT_EQ(actor.open(), absl::OkStatus());
  EXPECT_EQ(actor.socket_count(), 2);
  const auto kept = actor.take_over();
  ASSERT_TRUE(kept.ok()) << kept.status();
  ASSERT_EQ(kept->size(), 1u);
  EXPECT_EQ(read_text(kept->at("slab-7")), "seven");
}

// Goal    what was meant for another process is not taken, and what contradicts itself is refused.
TEST(GivenFds, ReadsOnlyItsOwnDescriptors) {
  const auto take_here = [&](const Environment& environment) {
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    auto given = memd::take_given_fds();
    for (const auto& [name, value] : environment) ::unsetenv(name.c_str());
    return given;
  };
  const std::string me = absl::StrCat(::getpid());
  const auto other = take_here({{"LISTEN_PID", "1"}, {"LISTEN_FDS", "1"}, {"LISTEN_FDNAMES", "x"}});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(other->kept.empty() && other->sockets.empty());
  for (const auto& [count, names] : std::map<std::string, std::string>{
           {"2", "one"}, {"-1", "x"}, {"many", "x"}, {"1", "a:b"}, {"1048577", "x"}}) {
    const auto given =
        take_here({{"LISTEN_PID", me}, {"LISTEN_FDS", count}, {"LISTEN_FDNAMES", names}});
    EXPECT_EQ(given.status().code(), absl::StatusCode::kInvalidArgument) << count << " " << names;
  }
}

}  // namespace
}  // namespace cco::test
