// Processes that play ranks: this program again, each running one function of the test.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/base/unique.h"
#include "tests/support/process.h"

namespace cco::test {

/// In the child: who it is, and a line to the test. Expectations of GoogleTest may be used; one
/// that fails makes the child fail.
class Rank {
 public:
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string socket_path;  ///< Of the daemon.
  std::string argument;

  /// Tells the test something; hears from it. A test that says nothing for long ends the child.
  void say(const std::string& text) const;
  std::string hear() const;
};

/// Captures nothing: it runs in another process.
using RankBody = void (*)(Rank&);

class Ranks {
 public:
  struct Options {
    std::string socket_path;
    std::string argument;
    std::vector<std::string> wrapper;                ///< Programs that exec what follows them.
    std::map<std::string, std::string> environment;  ///< Of every rank.
    /// Of one rank.
    std::function<std::map<std::string, std::string>(uint32_t rank)> environment_of;
  };
  Ranks(uint32_t count, RankBody body, const Options& options);

  uint32_t size() const { return static_cast<uint32_t>(children_.size()); }
  pid_t pid(uint32_t rank) const { return children_[rank].process->pid(); }
  void signal(uint32_t rank, int number) { children_[rank].process->signal(number); }

  /// What a rank says next; "" if it has ended, or is silent for too long.
  std::string hear(uint32_t rank);
  std::vector<std::string> hear_all();
  void tell(uint32_t rank, const std::string& text);
  void tell_all(const std::string& text);

  /// Its wait status; -1 if it does not end.
  int wait(uint32_t rank);
  /// Expects that every rank that was not sent a deadly signal ends well.
  void expect_success();

 private:
  struct Child {
    std::unique_ptr<Process> process;
    UniqueFd line;
  };
  std::vector<Child> children_;
};

/// Starts `count` processes and expects that all end well.
void run_ranks(uint32_t count, RankBody body, const Ranks::Options& options);

/// For main(): runs the body that this process was started for, if it was. False: it is the test.
bool run_as_rank(int argc, char** argv, int* exit_code);

}  // namespace cco::test
