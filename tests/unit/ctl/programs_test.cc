#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ctl/child.h"

namespace cco::ctl {
namespace {

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

std::string contents(const UniqueFd& file) {
  std::string text(static_cast<size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

Outcome run(std::vector<std::string> command) {
  const UniqueFd out(::memfd_create("out", MFD_CLOEXEC));
  const UniqueFd err(::memfd_create("err", MFD_CLOEXEC));
  ChildOptions options;
  options.command = std::move(command);
  options.out = out;
  options.err = err;
  const absl::StatusOr<Child> child = Child::start(options);
  EXPECT_TRUE(child.ok()) << child.status();
  if (!child.ok()) return {};
  const std::optional<Child::Exit> exit = child->wait(std::chrono::seconds(30));
  return {exit ? exit->code() : -1, contents(out), contents(err)};
}

const std::string kNoSocket = "/tmp/cco-no-such-folder/memd.sock";

// Goal    usage errors are 2, whatever the program; help is 0.
// Method  no subcommand, an unknown one, a value out of range; --help.
TEST(Programs, UsageErrorsAreTwo) {
  EXPECT_EQ(run({CCOCTL}).exit_code, 2);
  EXPECT_EQ(run({CCOCTL, "frobnicate"}).exit_code, 2);
  EXPECT_EQ(run({CCOCTL, "run", "-n", "0", "--", "true"}).exit_code, 2);
  EXPECT_EQ(run({CCO_BENCH, "put", "--threads", "2000"}).exit_code, 2);
  EXPECT_EQ(run({CCO_MAIN_JOB, "--bytes", "0"}).exit_code, 2);
  for (const char* program : {CCOCTL, CCO_BENCH, CCO_MAIN_JOB}) {
    EXPECT_EQ(run({program, "--help"}).exit_code, 0) << program;
  }
}

// Goal    without a daemon every program fails with 1 and names the socket.
// Method  a socket in a folder that is not there.
TEST(Programs, NameTheSocketWithoutADaemon) {
  const std::vector<std::vector<std::string>> commands = {
      {CCOCTL, "--socket", kNoSocket, "status"}, {CCOCTL, "--socket", kNoSocket, "gpus", "--json"},
      {CCOCTL, "groups", "--socket", kNoSocket}, {CCOCTL, "--socket", kNoSocket, "abort", "1"},
      {CCO_BENCH, "put", "--socket", kNoSocket}, {CCO_MAIN_JOB, "--socket", kNoSocket}};
  for (const std::vector<std::string>& command : commands) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 1) << command[0];
    EXPECT_NE(outcome.err.find("/tmp/cco-no-such-folder/memd"), std::string::npos) << outcome.err;
  }
}

// Goal    status and doctor say what can be seen without a daemon.
// Method  the same socket; doctor's GPU checks are unknown, never ok.
TEST(Programs, LookWithoutADaemon) {
  const Outcome status = run({CCOCTL, "--socket", kNoSocket, "status"});
  EXPECT_NE(status.out.find("lock"), std::string::npos) << status.out;
  const Outcome doctor = run({CCOCTL, "--socket", kNoSocket, "doctor"});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_NE(doctor.out.find("unknown  peer access"), std::string::npos) << doctor.out;
}

// Goal    ccoctl run passes a rank's exit code and output on, and --json does not get in the way.
// Method  two ranks of a shell.
TEST(Programs, RunsRanks) {
  const Outcome good = run({CCOCTL, "run", "-n", "2", "--", "sh", "-c", "echo $CCO_RANK of 2"});
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_NE(good.out.find("[1] 1 of 2\n"), std::string::npos) << good.out;
  EXPECT_EQ(run({CCOCTL, "run", "-n", "2", "sh", "-c", "exit 9"}).exit_code, 9);
  const Outcome socket = run(
      {CCOCTL, "--socket", "/x/y.sock", "run", "-n", "1", "--", "sh", "-c", "echo $CCO_SOCKET"});
  EXPECT_EQ(socket.out, "[0] /x/y.sock\n");
}

}  // namespace
}  // namespace cco::ctl
