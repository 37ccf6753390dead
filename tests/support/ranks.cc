#include "tests/support/ranks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "tests/support/patience.h"

namespace cco::test {
namespace {

constexpr char kFlag[] = "--as-rank";
constexpr int kLine = 3;
constexpr size_t kMaxText = 4096;

// Where code lies differs between the two processes; the distance between two functions does not.
void anchor(Rank&) {}
int64_t offset_of(RankBody body) {
  return reinterpret_cast<intptr_t>(body) - reinterpret_cast<intptr_t>(&anchor);
}
RankBody body_at(int64_t offset) {
  return reinterpret_cast<RankBody>(reinterpret_cast<intptr_t>(&anchor) + offset);
}

std::string receive(int fd, bool* ended) {
  pollfd ready{fd, POLLIN, 0};
  char text[kMaxText];
  ssize_t size = -1;
  if (::poll(&ready, 1, static_cast<int>(patience().count())) > 0) {
    size = ::recv(fd, text, sizeof text, 0);
  }
  *ended = size <= 0;
  return *ended ? "" : std::string(text, static_cast<size_t>(size));
}

}  // namespace

void Rank::say(const std::string& text) const {
  ::send(kLine, text.data(), std::min(text.size(), kMaxText), MSG_NOSIGNAL);
}

std::string Rank::hear() const {
  bool ended = false;
  std::string text = receive(kLine, &ended);
  if (ended) std::_Exit(2);
  return text;
}

Ranks::Ranks(uint32_t count, RankBody body, const Options& options) {
  for (uint32_t rank = 0; rank < count; ++rank) {
    int line[2];
    CCO_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) == 0);
    Child child;
    child.line.reset(line[0]);
    const UniqueFd theirs(line[1]);
    Process::Options process;
    process.arguments = options.wrapper;
    process.arguments.insert(
        process.arguments.end(),
        {"/proc/self/exe", kFlag, absl::StrCat(offset_of(body)), absl::StrCat(rank),
         absl::StrCat(count), options.socket_path, options.argument, absl::StrCat(::getpid())});
    if (!options.wrapper.empty()) {
      char self[4096] = {};
      CCO_ASSERT(::readlink("/proc/self/exe", self, sizeof self - 1) > 0);
      process.arguments[options.wrapper.size()] = self;
    }
    process.environment = options.environment;
    if (options.environment_of) {
      for (const auto& [name, value] : options.environment_of(rank)) {
        process.environment[name] = value;
      }
    }
    process.fds = {{theirs.get(), kLine}};
    child.process = std::make_unique<Process>(process);
    children_.push_back(std::move(child));
  }
}

std::string Ranks::hear(uint32_t rank) {
  bool ended = false;
  return receive(children_[rank].line.get(), &ended);
}

std::vector<std::string> Ranks::hear_all() {
  std::vector<std::string> texts;
  for (uint32_t rank = 0; rank < size(); ++rank) texts.push_back(hear(rank));
  return texts;
}

void Ranks::tell(uint32_t rank, const std::string& text) {
  ::send(children_[rank].line.get(), text.data(), std::min(text.size(), kMaxText), MSG_NOSIGNAL);
}

void Ranks::tell_all(const std::string& text) {
  for (uint32_t rank = 0; rank < size(); ++rank) tell(rank, text);
}

int Ranks::wait(uint32_t rank) { return children_[rank].process->wait(patience()).value_or(-1); }

void Ranks::expect_success() {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    const int status = wait(rank);
    if (status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    EXPECT_EQ(status, 0) << "rank " << rank << ": "
                         << (status < 0 ? "it did not end" : describe_status(status));
  }
}

void run_ranks(uint32_t count, RankBody body, const Ranks::Options& options) {
  Ranks(count, body, options).expect_success();
}

bool run_as_rank(int argc, char** argv, int* exit_code) {
  if (argc != 8 || std::strcmp(argv[1], kFlag) != 0) return false;
  int64_t offset = 0;
  pid_t parent = 0;
  Rank rank;
  CCO_ASSERT(absl::SimpleAtoi(argv[2], &offset) && absl::SimpleAtoi(argv[3], &rank.rank) &&
             absl::SimpleAtoi(argv[4], &rank.size) && absl::SimpleAtoi(argv[7], &parent));
  rank.socket_path = argv[5];
  rank.argument = argv[6];
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent && ::getppid() != 0) std::_Exit(2);  // 0: in another pid namespace.
  body_at(offset)(rank);
  *exit_code = ::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed() ? 1 : 0;
  return true;
}

}  // namespace cco::test
