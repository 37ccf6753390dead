#include "client/ctl/launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cco::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Output goes into files: nobody has to read while the ranks run.
UniqueFd memory_file(const char* name) { return UniqueFd(::memfd_create(name, MFD_CLOEXEC)); }

std::string contents(const UniqueFd& file) {
  std::string text(static_cast<size_t>(::lseek(file.get(), 0, SEEK_END)), '\0');
  EXPECT_EQ(::pread(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::sort(lines.begin(), lines.end());
  return lines;
}

struct Outcome {
  int exit_code = -1;
  std::string out;
  std::string err;
};

LaunchOptions shell(uint32_t size, const std::string& script) {
  LaunchOptions options;
  options.size = size;
  options.command = {"/bin/sh", "-c", script};
  options.stop_grace = milliseconds(500);
  options.timeout = seconds(30);
  return options;
}

Outcome run(const LaunchOptions& options) {
  const UniqueFd out = memory_file("out");
  const UniqueFd err = memory_file("err");
  const absl::StatusOr<int> code = launch(options, out, err);
  EXPECT_TRUE(code.ok()) << code.status();
  return {code.value_or(-1), contents(out), contents(err)};
}

// Goal    every rank runs once, knows its place, and its output is told apart.
// Method  three ranks print their variables to both streams.
TEST(Launcher, TellsRanksWhoTheyAre) {
  LaunchOptions options = shell(3,
                                "echo $CCO_RANK/$CCO_SIZE $CCO_LOCAL_RANK/$CCO_LOCAL_SIZE $EXTRA;"
                                "echo to-err >&2; test -n \"$CCO_JOB\"");
  options.environment = {{"EXTRA", "given"}};
  const Outcome outcome = run(options);
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(
      sorted_lines(outcome.out),
      (std::vector<std::string>{"[0] 0/3 0/3 given", "[1] 1/3 1/3 given", "[2] 2/3 2/3 given"}));
  EXPECT_EQ(sorted_lines(outcome.err),
            (std::vector<std::string>{"[0] to-err", "[1] to-err", "[2] to-err"}));
}

// Goal    all ranks of a run share a job name, and no two runs do.
// Method  collect $CCO_JOB from two runs of two ranks.
TEST(Launcher, NamesEachRunApart) {
  LaunchOptions options = shell(2, "echo $CCO_JOB");
  options.prefix = false;
  const std::vector<std::string> first = sorted_lines(run(options).out);
  const std::vector<std::string> second = sorted_lines(run(options).out);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0], first[1]);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_NE(first[0], second[0]);
}

// Goal    a last line without a newline is not lost and not glued to another rank's.
// Method  two ranks print half a line.
TEST(Launcher, EndsPartialLines) {
  EXPECT_EQ(sorted_lines(run(shell(2, "printf half")).out),
            (std::vector<std::string>{"[0] half", "[1] half"}));
}

// Goal    without prefixes output passes byte for byte.
// Method  print bytes without a newline.
TEST(Launcher, PassesOutputOnAsItIs) {
  LaunchOptions options = shell(1, "printf 'a\\nb'");
  options.prefix = false;
  EXPECT_EQ(run(options).out, "a\nb");
}

// Goal    the first failure stops all others and is the exit code.
// Method  rank 1 fails while the others would sleep past the test's time.
TEST(Launcher, FirstFailureStopsAll) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run(shell(3, "[ $CCO_RANK = 1 ] && exit 7; exec sleep 60"));
  EXPECT_EQ(outcome.exit_code, 7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
  EXPECT_NE(outcome.err.find("rank 1 exited with code 7; stopping the others"), std::string::npos)
      << outcome.err;
}

// Goal    a rank that a signal ends counts as 128 + signal.
// Method  the rank kills itself.
TEST(Launcher, SignalIsAFailure) {
  const Outcome outcome = run(shell(1, "kill -KILL $$"));
  EXPECT_EQ(outcome.exit_code, 128 + SIGKILL);
  EXPECT_NE(outcome.err.find("rank 0 was ended by signal 9"), std::string::npos) << outcome.err;
}

// Goal    ranks that ignore SIGTERM are killed once the grace is over.
// Method  rank 0 ignores it (and so do its children); rank 1 fails after rank 0 is ready.
TEST(Launcher, KillsWhatDoesNotStop) {
  char directory[] = "/tmp/cco-launcher-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string fifo = absl::StrCat(directory, "/ready");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome =
      run(shell(2, absl::StrCat("if [ $CCO_RANK = 0 ]; then trap '' TERM; echo go >", fifo,
                                "; sleep 60; else read line <", fifo, "; exit 3; fi")));
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
  ::unlink(fifo.c_str());
  ::rmdir(directory);
}

// Goal    a run ends when its time is over, with the exit code of timeout(1), naming who ran on.
// Method  rank 0 ends at once, rank 1 sleeps.
TEST(Launcher, TimeIsBounded) {
  LaunchOptions options = shell(2, "[ $CCO_RANK = 0 ] || exec sleep 60");
  options.timeout = milliseconds(300);
  const Outcome outcome = run(options);
  EXPECT_EQ(outcome.exit_code, kExitTimedOut);
  EXPECT_NE(outcome.err.find("time is over (0.3 s); stopping ranks 1"), std::string::npos)
      << outcome.err;
}

// Goal    a command that cannot run says which and why.
// Method  name a file that is not there.
TEST(Launcher, NamesACommandThatCannotRun) {
  LaunchOptions options;
  options.command = {"/nonexistent/program"};
  options.prefix = false;
  const Outcome outcome = run(options);
  EXPECT_EQ(outcome.exit_code, 127);
  EXPECT_NE(outcome.err.find("cannot start /nonexistent/program: No such file or directory"),
            std::string::npos)
      << outcome.err;
}

// Goal    SIGTERM to the launcher reaches the ranks, and is the exit code.
// Method  launch in a child; the rank says when it runs, and on SIGTERM exits 0.
TEST(Launcher, PassesSignalsOn) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe2(pipe_fds, O_CLOEXEC), 0);
  const UniqueFd read_end(pipe_fds[0]);
  UniqueFd write_end(pipe_fds[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const LaunchOptions options =
        shell(1, "trap 'echo stopped; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
    ::_exit(launch(options, write_end, write_end).value_or(99));
  }
  write_end.reset();
  std::string text;
  char byte;
  while (text.find("ready\n") == std::string::npos && ::read(read_end.get(), &byte, 1) == 1) {
    text += byte;
  }
  ::kill(child, SIGTERM);
  while (::read(read_end.get(), &byte, 1) == 1) text += byte;
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM) << text;
  EXPECT_NE(text.find("[0] stopped"), std::string::npos) << text;
}

// Goal    no rank outlives a launcher that is killed.
// Method  SIGKILL the launcher; the rank's end closes a pipe only it holds.
TEST(Launcher, RanksDieWithIt) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);  // Inherited by the rank, on purpose.
  const UniqueFd read_end(pipe_fds[0]);
  UniqueFd write_end(pipe_fds[1]);
  ::fcntl(read_end.get(), F_SETFD, FD_CLOEXEC);
  const pid_t child = ::fork();
  if (child == 0) {
    const UniqueFd out = memory_file("out");
    const LaunchOptions options =
        shell(1, absl::StrCat("echo x >&", write_end.get(), "; exec sleep 60"));
    ::_exit(launch(options, out, out).value_or(99));
  }
  write_end.reset();
  char byte;
  ASSERT_EQ(::read(read_end.get(), &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_EQ(::read(read_end.get(), &byte, 1), 1);  // The newline.
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 0) << "the rank still runs";
}

// Goal    what a rank left in the background neither holds the run up nor survives it.
// Method  the rank exits at once; its child would hold the output open for a minute.
TEST(Launcher, EndsWhatRanksLeaveBehind) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run(shell(1, "sleep 60 & echo done"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "[0] done\n");
  EXPECT_LT(std::chrono::steady_clock::now() - start, seconds(20));
}

// Goal    impossible requests are refused, naming the value.
// Method  no command; no ranks; too many ranks.
TEST(Launcher, RefusesImpossibleRequests) {
  const UniqueFd out = memory_file("out");
  LaunchOptions options;
  EXPECT_EQ(launch(options, out, out).status().code(), absl::StatusCode::kInvalidArgument);
  options.command = {"true"};
  for (uint32_t size : {0u, 1025u}) {
    options.size = size;
    const absl::Status status = launch(options, out, out).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(absl::StrCat(size, " ranks")), std::string::npos) << status;
  }
}

// Goal    chosen GPUs are visible under every driver, ordinals and UUIDs alike.
// Method  compare the variables.
TEST(VisibleGpus, SetsTheVariablesOfEveryDriver) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(visible_gpus({}), Variables{});
  EXPECT_EQ(visible_gpus({"3", "1"}), (Variables{{"CCO_HOST_VISIBLE_DEVICES", "3,1"},
                                                 {"CUDA_VISIBLE_DEVICES", "3,1"},
                                                 {"HIP_VISIBLE_DEVICES", "3,1"}}));
  EXPECT_EQ(visible_gpus({"GPU-ab"})[2].first, "ROCR_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace cco::ctl
