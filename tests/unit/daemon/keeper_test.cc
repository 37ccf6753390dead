// The keeper as a process: whom it serves, when it ends, and what the daemon does when it dies.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/base/fd_frame.h"
#include "daemon/sys/keeper_vault.h"
#include "tests/support/patience.h"
#include "tests/unit/daemon/vault_rig.h"

namespace cco::test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using StatusCode = absl::StatusCode;

std::string text(const absl::Status& status) { return std::string(status.message()); }

UniqueFd open_pidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

class Keeper : public ::testing::Test {
 protected:
  std::vector<std::string> names_after_restart() {
    const auto actor = rig_.start();
    const auto kept = actor->take_over();
    EXPECT_TRUE(kept.ok()) << kept.status();
    std::vector<std::string> names;
    if (!kept.ok()) return names;
    for (const auto& [name, fd] : *kept) names.push_back(name);
    actor->kill();
    return names;
  }

  // A connection that is no actor's; the answer to it.
  absl::Status connect_raw(UniqueFd* connection) {
    absl::StatusOr<UniqueFd> connected = connect_unix(rig_.file("keeper.sock"), SOCK_SEQPACKET);
    if (!connected.ok()) return connected.status();
    *connection = *std::move(connected);
    return answer(*connection);
  }
  absl::Status answer(const UniqueFd& connection) {
    const absl::Status readable = wait_readable(connection, patience());
    if (!readable.ok()) return readable;
    const absl::StatusOr<FdFrame> frame = receive_frame(connection);
    if (!frame.ok()) return frame.status();
    EXPECT_EQ(frame->type, FdFrameType::kReady);
    return absl::Status(frame->code, frame->payload);
  }

  KeeperRig rig_;
};

// Goal    the keeper has nothing of its daemon's: no descriptor, no session, no parent.
TEST_F(Keeper, StandsApart) {
  const auto actor = rig_.start();
  const pid_t keeper = rig_.keeper_pid();
  EXPECT_EQ(count_open_fds(keeper), 6u) << "standard streams, listener, lock, connection";
  EXPECT_NE(::getsid(keeper), ::getsid(actor->pid()));
  EXPECT_NE(::getpgid(keeper), ::getpgid(actor->pid()));
  EXPECT_NE(::getsid(keeper), keeper) << "it could get a terminal";
  actor->kill();
}

TEST_F(Keeper, EndsWhenItHoldsNothingAndNobodyIsThere) {
  const auto actor = rig_.start();
  const UniqueFd keeper = open_pidfd(rig_.keeper_pid());
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  ASSERT_EQ(actor->remove("slab-1"), absl::OkStatus());
  EXPECT_FALSE(wait_readable(keeper, milliseconds(0)).ok());
  actor->kill();
  EXPECT_TRUE(wait_readable(keeper, patience()).ok());
  EXPECT_THAT(names_after_restart(), ElementsAre()) << "the next one starts its own";
}

// Goal    it stays as long as any session's process lives, and ends soon after the last.
TEST_F(Keeper, EndsAfterTheLastSession) {
  rig_.options.linger = milliseconds(1);
  Process first({{"tail", "-f", "/dev/null"}, {}, {}}),
      second({{"tail", "-f", "/dev/null"}, {}, {}});
  const auto actor = rig_.start();
  const UniqueFd keeper = open_pidfd(rig_.keeper_pid());
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  ASSERT_EQ(actor->put("session-1", first.pidfd()), absl::OkStatus());
  ASSERT_EQ(actor->put("session-2", second.pidfd()), absl::OkStatus());
  actor->kill();
  first.signal(SIGKILL);
  ASSERT_TRUE(first.wait(patience()).has_value());
  EXPECT_THAT(names_after_restart(), ElementsAre("session-1", "session-2", "slab-1"));
  // An end too early would come within this time on most machines.
  EXPECT_FALSE(wait_readable(keeper, milliseconds(50)).ok());
  second.signal(SIGKILL);
  EXPECT_TRUE(wait_readable(keeper, patience()).ok());
  EXPECT_THAT(names_after_restart(), ElementsAre());
}

// Goal    where nobody lives it holds on for as long as the daemon said that it may be asked, and
//         no longer; what a dead daemon said goes for the next one's death, too, and for another
//         keeper's, until that daemon says otherwise.
TEST_F(Keeper, HoldsOnForAsLongAsTheDaemonSaid) {
  constexpr milliseconds kTooEarly{50};  // An end would come within this time on most machines.
  rig_.options.linger = milliseconds(1);
  auto actor = rig_.start();
  ASSERT_TRUE(actor->take_over().ok());
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  ASSERT_EQ(actor->hold_for(std::chrono::hours(1)), absl::OkStatus());
  ASSERT_EQ(::kill(rig_.keeper_pid(), SIGKILL), 0);
  ASSERT_EQ(actor->wait_until_broken(), absl::OkStatus());
  ASSERT_EQ(actor->recover(), absl::OkStatus());
  const UniqueFd keeper = open_pidfd(rig_.keeper_pid());
  actor->kill();
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(wait_readable(keeper, kTooEarly).ok());
    EXPECT_THAT(names_after_restart(), ElementsAre("slab-1"));
  }
  actor = rig_.start();
  ASSERT_EQ(actor->take_over()->size(), 1u);
  ASSERT_EQ(actor->hold_for(kTooEarly), absl::OkStatus());
  const Stopwatch time;
  actor->kill();
  EXPECT_TRUE(wait_readable(keeper, patience()).ok());
  EXPECT_GE(time.elapsed(), kTooEarly);
  EXPECT_THAT(names_after_restart(), ElementsAre());
}

// Goal    being asked by processes that it refuses does not keep it.
TEST_F(Keeper, LingersNoLongerForWhomItRefuses) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's connection takes root";
  rig_.options.linger = milliseconds(200);
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  const UniqueFd keeper = open_pidfd(rig_.keeper_pid());
  ASSERT_EQ(::chmod(rig_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(rig_.file("keeper.sock").c_str(), 0666), 0);
  actor->kill();
  ASSERT_EQ(::seteuid(65534), 0);
  const Stopwatch time;
  bool has_ended = false;
  while (!has_ended && time.elapsed() < patience()) {
    UniqueFd connection;
    EXPECT_FALSE(connect_raw(&connection).ok());
    has_ended = wait_readable(keeper, milliseconds(20)).ok();
  }
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(has_ended);
}

// Goal    while it lingers a new daemon finds all.
TEST_F(Keeper, LingersForANewDaemon) {
  Process session({{"tail", "-f", "/dev/null"}, {}, {}});
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("session-1", session.pidfd()), absl::OkStatus());
  session.signal(SIGKILL);
  ASSERT_TRUE(session.wait(patience()).has_value());
  actor->kill();
  EXPECT_THAT(names_after_restart(), ElementsAre("session-1"));
}

TEST_F(Keeper, RefusesASecondDaemon) {
  const auto first = rig_.start();
  ASSERT_EQ(first->put("slab-1", make_memfd("x")), absl::OkStatus());
  UniqueFd connection;
  const absl::Status refused = connect_raw(&connection);
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(text(refused), HasSubstr(absl::StrCat("pid ", first->pid())));
  rig_.options.answer_timeout = milliseconds(20);
  VaultActor second(rig_.options);
  const absl::Status second_refused = second.open();
  EXPECT_EQ(second_refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(text(second_refused), HasSubstr(absl::StrCat("pid ", first->pid())));
  EXPECT_THAT(text(second_refused), HasSubstr(rig_.path()));
  EXPECT_EQ(first->put("slab-2", make_memfd("x")), absl::OkStatus()) << "the first is as it was";
}

// Goal    a daemon that starts before its predecessor is quite dead waits for its place.
TEST_F(Keeper, WaitsForItsPredecessorsEnd) {
  const auto first = rig_.start();
  ASSERT_EQ(first->put("slab-1", make_memfd("x")), absl::OkStatus());
  VaultActor second(rig_.options);
  second.begin_open();
  UniqueFd connection;
  EXPECT_FALSE(connect_raw(&connection).ok());
  first->kill();
  ASSERT_EQ(second.end_open(), absl::OkStatus());
  EXPECT_EQ(second.take_over()->count("slab-1"), 1u);
}

TEST_F(Keeper, RefusesAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "another user's connection takes root";
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  actor->kill();
  struct stat info {};
  ASSERT_EQ(::stat(rig_.file("keeper.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(::chmod(rig_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(rig_.file("keeper.sock").c_str(), 0666), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  UniqueFd connection;
  const absl::Status refused = connect_raw(&connection);
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(text(refused), HasSubstr("uid 65534"));
  EXPECT_THAT(names_after_restart(), ElementsAre("slab-1"));
}

// Goal    daemons and keepers of all builds understand each other: what is said is, byte for byte,
//         what was said by the first.
TEST_F(Keeper, SpeaksAsEver) {
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  actor->kill();
  const auto connected = connect_unix(rig_.file("keeper.sock"), SOCK_SEQPACKET);
  ASSERT_TRUE(connected.ok()) << connected.status();
  const UniqueFd& connection = *connected;
  const auto frame = [](char type, const std::string& payload) {
    return absl::StrCat("CCO1", std::string(1, type), std::string(7, '\0'),
                        std::string(1, static_cast<char>(payload.size())), std::string(3, '\0'),
                        payload);
  };
  const auto heard = [&] {
    char bytes[64];
    EXPECT_TRUE(wait_readable(connection, patience()).ok());
    const ssize_t size = ::recv(connection.get(), bytes, sizeof bytes, 0);
    return std::string(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  };
  constexpr char kKeep = 33, kDrop = 34, kList = 35;
  constexpr char kReady = '\xa1', kKept = '\xa2', kListEnd = '\xa3';
  const std::string ready = heard();
  EXPECT_EQ(ready.size(), 24u) << "a number of 8 bytes";
  EXPECT_EQ(ready.substr(0, 16), frame(kReady, std::string(8, '\0')).substr(0, 16));
  const UniqueFd fd = make_memfd("y");
  ASSERT_EQ(send_datagram(connection, frame(kKeep, "slab-2"), "", fd), absl::OkStatus());
  ASSERT_EQ(send_datagram(connection, frame(kDrop, "slab-1"), "", std::nullopt), absl::OkStatus());
  ASSERT_EQ(send_datagram(connection, frame(kList, ""), "", std::nullopt), absl::OkStatus());
  EXPECT_EQ(heard(), frame(kKept, "slab-2"));
  EXPECT_EQ(heard(), frame(kListEnd, ""));
}

// Goal    garbage ends the connection that it came by, with a reason, and nothing else.
TEST_F(Keeper, SurvivesGarbage) {
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  actor->kill();
  const UniqueFd fd = make_memfd("x");
  const auto send_raw = [](const std::string& bytes) {
    return [bytes](const UniqueFd& c) { return send_datagram(c, bytes, {}, std::nullopt); };
  };
  const auto send_type = [](FdFrameType type, const std::string& payload, const UniqueFd* with) {
    return [=](const UniqueFd& c) { return send_frame(c, type, StatusCode::kOk, payload, with); };
  };
  const std::function<absl::Status(const UniqueFd&)> garbage[] = {
      send_raw("short"),
      send_raw(std::string(5000, 'x')),
      send_raw(std::string(16, '\0')),
      send_type(FdFrameType::kKeep, "slab-2", nullptr),
      send_type(FdFrameType::kKeep, "", &fd),
      send_type(FdFrameType::kHello, "", nullptr),
      send_type(FdFrameType::kKept, "slab-2", &fd),
      send_type(static_cast<FdFrameType>(999), "", nullptr),
  };
  for (const auto& send : garbage) {
    UniqueFd connection;
    ASSERT_EQ(connect_raw(&connection).code(), StatusCode::kOk);
    ASSERT_EQ(send(connection), absl::OkStatus());
    EXPECT_EQ(answer(connection).code(), StatusCode::kInvalidArgument) << &send - garbage;
    EXPECT_EQ(answer(connection).code(), StatusCode::kUnavailable) << "it hangs up";
  }
  EXPECT_THAT(names_after_restart(), ElementsAre("slab-1"));
}

// Goal    more than it can hold ends the connection, so that the daemon hears of it.
TEST_F(Keeper, SaysThatItCanHoldNoMore) {
  rig_.set_limit(2);
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("x")), absl::OkStatus());
  actor->kill();
  UniqueFd connection;
  ASSERT_EQ(connect_raw(&connection).code(), StatusCode::kOk);
  const UniqueFd fd = make_memfd("x");
  for (const char* name : {"slab-2", "slab-2", "slab-3"}) {
    ASSERT_EQ(send_frame(connection, FdFrameType::kKeep, name, fd), absl::OkStatus());
  }
  EXPECT_EQ(answer(connection).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(names_after_restart(), ElementsAre("slab-1", "slab-2"));
}

// Goal    a keeper's death is noticed, and a new one holds all again.
TEST_F(Keeper, IsReplacedWhenItDies) {
  const UniqueFd slab = make_memfd("slab");
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", slab), absl::OkStatus());
  ASSERT_EQ(actor->put("slab-2", make_memfd("2")), absl::OkStatus());
  const pid_t first = rig_.keeper_pid();
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  ASSERT_EQ(actor->wait_until_broken(), absl::OkStatus());
  const absl::Status refused = actor->put("slab-3", make_memfd("3"));
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(text(refused), HasSubstr(rig_.path()));
  ASSERT_EQ(actor->recover(), absl::OkStatus());
  EXPECT_NE(rig_.keeper_pid(), first);
  EXPECT_EQ(actor->put("slab-3", make_memfd("3")), absl::OkStatus());
  EXPECT_EQ(actor->put("slab-1", slab).code(), StatusCode::kAlreadyExists);
  actor->kill();
  const auto successor = rig_.start();
  const auto kept = successor->take_over();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->size(), 3u);
  EXPECT_TRUE(is_same_file(kept->at("slab-1"), slab));
}

// Goal    after recover() a keeper that lived on holds what the daemon has, no more and no less.
TEST_F(Keeper, RecoverLeavesNothingThatIsNotNamed) {
  const auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("1")), absl::OkStatus());
  ASSERT_EQ(actor->put("slab-2", make_memfd("2")), absl::OkStatus());
  ASSERT_EQ(actor->forget("slab-1"), absl::OkStatus());
  const pid_t keeper = rig_.keeper_pid();
  ASSERT_EQ(actor->recover(), absl::OkStatus());
  EXPECT_EQ(rig_.keeper_pid(), keeper);
  actor->kill();
  EXPECT_THAT(names_after_restart(), ElementsAre("slab-2"));
}

// Goal    a stopped keeper makes the start fail in time, with a reason; no second one is started.
TEST_F(Keeper, StoppedOneMakesTheStartFail) {
  auto actor = rig_.start();
  ASSERT_EQ(actor->put("slab-1", make_memfd("1")), absl::OkStatus());
  actor->kill();
  rig_.stop();
  rig_.options.answer_timeout = milliseconds(50);
  VaultActor late(rig_.options);
  const absl::Status status = late.open();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(text(status), HasSubstr("stopped"));
  rig_.resume();
  late.kill();
  rig_.options.answer_timeout = std::chrono::seconds(20);
  EXPECT_THAT(names_after_restart(), ElementsAre("slab-1"));
}

TEST_F(Keeper, MissingProgramIsNamed) {
  rig_.options.keeper_program = "/nonexistent/cco-keeper";
  VaultActor actor(rig_.options);
  const absl::Status status = actor.open();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(status), HasSubstr("/nonexistent/cco-keeper: No such file"));
  rig_.options.keeper_program = "/bin/false";
  VaultActor other(rig_.options);
  EXPECT_THAT(text(other.open()), HasSubstr("/bin/false ended with exit code 1"));
}

TEST_F(Keeper, MissingFolderIsNamed) {
  rig_.options.state_dir = rig_.file("nothing");
  VaultActor actor(rig_.options);
  const absl::Status status = actor.open();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(text(status), HasSubstr(rig_.file("nothing")));
}

TEST_F(Keeper, IsOfNoUseByHand) {
  Process keeper({{CCO_KEEPER_PROGRAM, "60000"}, {}, {{::open("/dev/null", O_RDWR), 2}}});
  const auto status = keeper.wait(patience());
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(describe_status(*status), "exit code 64");
}

TEST(FindKeeperProgram, SaysWhereItLooked) {
  const absl::StatusOr<std::string> found = memd::find_keeper_program();
  if (found.ok()) {
    EXPECT_EQ(::access(found->c_str(), X_OK), 0) << *found;
  } else {
    EXPECT_THAT(text(found.status()), HasSubstr("/../libexec/cco/cco-keeper"));
  }
}

}  // namespace
}  // namespace cco::test
