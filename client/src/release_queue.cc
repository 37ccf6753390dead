// Objects that foreign code gives back where the owner's interpreter must not run.
#include <atomic>
#include <cstdint>

#include "cco/cco.h"
#include "client/base/status_macros.h"
#include "client/src/c_support.h"
#include "client/src/fork_guard.h"

// Never freed, and reachable always. All orders are sequential: releases are rare, and `scheduled`
// needs them.
struct cco_release_queue {
  decltype(cco_release_queue_options::schedule) schedule;
  decltype(cco_release_queue_options::released) released;
  std::atomic<cco_release_header*> noted{nullptr};  // A stack, only ever taken as a whole.
  std::atomic<bool> scheduled{false};  // A drain is to come, and finds what is noted until then.
  std::atomic<uint32_t> callers{0};    // Threads that may be in schedule().
  std::atomic<bool> closed{false};
  cco_release_queue* made_before = nullptr;
};

namespace cco::client {
namespace {

// One process has one interpreter of a kind, so these are not a queue's: a capsule does not tell
// its queue before they are called.
std::atomic<decltype(cco_release_queue_options::capsule_is_valid)> capsule_is_valid{nullptr};
std::atomic<decltype(cco_release_queue_options::capsule_pointer)> capsule_pointer{nullptr};

std::atomic<cco_release_queue*> last_made{nullptr};

constexpr const char* kCapsuleNames[] = {"dltensor", "dltensor_versioned"};

void schedule_drain(cco_release_queue* queue) noexcept {
  queue->callers.fetch_add(1);
  if (!queue->closed && check_not_forked().ok() && !queue->scheduled.exchange(true) &&
      queue->schedule(cco_release_queue_drain, queue) != 0) {
    queue->scheduled = false;
  }
  queue->callers.fetch_sub(1);
  queue->callers.notify_all();
}

absl::StatusOr<cco_release_queue*> make_queue(const cco_release_queue_options* options) {
  CCO_ASSIGN_OR_RETURN(const cco_release_queue_options known, read_struct(options, "options"));
  CCO_RETURN_IF_ERROR(require(reinterpret_cast<const void*>(known.schedule), "options->schedule"));
  CCO_RETURN_IF_ERROR(require(reinterpret_cast<const void*>(known.released), "options->released"));
  CCO_RETURN_IF_ERROR(arm_fork_guard());
  capsule_is_valid = known.capsule_is_valid;
  capsule_pointer = known.capsule_pointer;
  auto* const queue = new cco_release_queue{known.schedule, known.released};
  queue->made_before = last_made.exchange(queue);
  return queue;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

cco_status cco_release_queue_create(const cco_release_queue_options* options,
                                    cco_release_queue** queue) {
  return guarded(__func__, [&]() -> absl::Status {
    CCO_RETURN_IF_ERROR(require(queue, "queue"));
    CCO_ASSIGN_OR_RETURN(*queue, make_queue(options));
    return absl::OkStatus();
  });
}

int32_t cco_release_queue_drain(void* queue) {
  auto* const known = static_cast<cco_release_queue*>(queue);
  if (known == nullptr) return 0;
  known->scheduled = false;  // First: what is noted from here on asks for another drain.
  if (known->closed) return 0;
  cco_release_header* header = known->noted.exchange(nullptr);
  while (header != nullptr) {
    cco_release_header* const next = header->next;  // The binding may free the object.
    known->released(header + 1);
    header = next;
  }
  return 0;
}

void cco_release_queue_close(cco_release_queue* queue) {
  if (queue == nullptr) return;
  queue->closed = true;
  // In a forked child, the threads that it counts do not exist.
  while (check_not_forked().ok()) {
    const uint32_t callers = queue->callers;
    if (callers == 0) return;
    queue->callers.wait(callers);
  }
}

void cco_release(void* object) {
  if (object == nullptr) return;
  cco_release_header* const header = static_cast<cco_release_header*>(object) - 1;
  cco_release_queue* const queue = header->queue;
  cco_release_header* first = queue->noted;
  do {
    header->next = first;
  } while (!queue->noted.compare_exchange_weak(first, header));
  schedule_drain(queue);
}

void cco_release_capsule(void* capsule) {
  const auto is_valid = capsule_is_valid.load();
  const auto pointer = capsule_pointer.load();
  if (is_valid == nullptr || pointer == nullptr) return;
  for (const char* name : kCapsuleNames) {
    if (is_valid(capsule, name) != 0) cco_release(pointer(capsule, name));
  }
}

}  // extern "C"
#pragma GCC visibility pop

}  // namespace cco::client
