// Work that comes from several connections of several users and takes turns: users among each
// other, and each user's connections, so that nobody's flood holds up the others. On the executor's
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "daemon/ports/executor.h"

namespace cco::memd {

class FairQueue {
 public:
  struct Source {
    uint64_t owner = 0;
    uint64_t connection = 0;
  };
  /// What is done before the executor's other tasks, and descriptors, have their turn.
  static constexpr size_t kAtOnce = 32;

  /// It outlives this.
  explicit FairQueue(Executor& executor) : executor_(executor) {}

  /// `task` runs later: after what the same connection has waiting, and after at most one of every
  /// other of its owner's, and of every other owner's, for each of these.
  void add(const Source& source, Executor::Task task);
  size_t waiting(const Source& source) const;

 private:
  void run();

  struct Owner {
    std::map<uint64_t, std::deque<Executor::Task>> waiting;  // By connection; none is empty.
    uint64_t last = 0;                                       // Had its turn.
  };

  Executor& executor_;
  std::map<uint64_t, Owner> owners_;  // None is without work.
  uint64_t last_ = 0;                 // Had its turn.
  bool is_posted_ = false;
};

}  // namespace cco::memd
