// Work that comes from several sources and takes turns, so that nobody's flood holds up the others.
// On the executor's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "daemon/ports/executor.h"

namespace cco::memd {

class FairQueue {
 public:
  using Source = uint64_t;
  /// What is done before the executor's other tasks, and descriptors, have their turn.
  static constexpr size_t kAtOnce = 32;

  /// It outlives this.
  explicit FairQueue(Executor& executor) : executor_(executor) {}

  /// `task` runs later: after what the same source has waiting, and after at most one of every
  /// other's for each of these.
  void add(Source source, Executor::Task task);
  size_t waiting(Source source) const;

 private:
  void run();

  Executor& executor_;
  std::map<Source, std::deque<Executor::Task>> waiting_;  // None is empty.
  Source last_ = 0;                                       // Had its turn.
  bool is_posted_ = false;
};

}  // namespace cco::memd
