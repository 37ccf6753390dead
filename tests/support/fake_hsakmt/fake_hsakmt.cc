#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "device/transport/kfd_api.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using cco::kfd::QueueResource;
using cco::kfd::Result;

constexpr Result kError = 1, kInvalidParameter = 3, kNotOpen = 20;
constexpr uint32_t kEngines = 16;

struct Ring {
  uint64_t bytes = 0;
  bool is_mapped = false;
  uint32_t queues = 0;
};
struct Queue {
  void* ring = nullptr;
  uint32_t engine = 0;
  void* words = nullptr;
};

std::mutex mutex;
bool is_open = false;
std::map<void*, Ring> rings;
std::map<uint64_t, Queue> queues;
std::string engines;
uint64_t last_id = 0;

[[noreturn]] void misuse(const char* what) {
  std::fprintf(stderr, "fake_hsakmt: %s\n", what);
  std::abort();
}

/// Counts the call; whether it is the one that shall fail.
bool fails() {
  static std::string wanted;
  static long calls = 0;
  const char* const set = std::getenv("FAKE_HSAKMT_FAIL");
  const std::string now = set == nullptr ? "" : set;
  if (now != wanted) calls = 0;
  wanted = now;
  return ++calls == std::atol(now.c_str());
}

uint32_t queues_of(uint32_t engine) {
  uint32_t count = 0;
  for (const auto& [id, queue] : queues) count += queue.engine == engine;
  return count;
}

}  // namespace

FAKE_EXPORT Result hsaKmtOpenKFD() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (fails()) return kError;
  if (is_open) misuse("opened twice");
  is_open = true;
  return 0;
}

FAKE_EXPORT Result hsaKmtCloseKFD() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!is_open) misuse("closed and not open");
  if (!rings.empty() || !queues.empty()) misuse("closed with rings or queues alive");
  is_open = false;
  return 0;
}

FAKE_EXPORT Result hsaKmtAllocMemory(uint32_t node, uint64_t bytes, cco::kfd::MemoryFlags flags,
                                     void** address) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (fails()) return cco::kfd::kNoMemory;
  if (!is_open) return kNotOpen;
  if (node == 0 || bytes == 0 || bytes % 4096 != 0 || flags.value != 0x31041) {
    return kInvalidParameter;
  }
  *address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*address == MAP_FAILED) return cco::kfd::kNoMemory;
  rings[*address] = {bytes, false, 0};
  return 0;
}

FAKE_EXPORT Result hsaKmtFreeMemory(void* address, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = rings.find(address);
  if (found == rings.end() || found->second.bytes != bytes) misuse("freed what is not there");
  if (found->second.is_mapped) misuse("freed a ring that is mapped");
  ::munmap(address, bytes);
  rings.erase(found);
  return 0;
}

FAKE_EXPORT Result hsaKmtMapMemoryToGPU(void* address, uint64_t bytes, uint64_t* gpu_address) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (fails()) return kError;
  const auto found = rings.find(address);
  if (found == rings.end() || found->second.bytes != bytes) return kInvalidParameter;
  if (found->second.is_mapped) misuse("mapped twice");
  found->second.is_mapped = true;
  *gpu_address = 0;  // The same address.
  return 0;
}

FAKE_EXPORT Result hsaKmtUnmapMemoryToGPU(void* address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = rings.find(address);
  if (found == rings.end() || !found->second.is_mapped) misuse("unmapped what is not mapped");
  if (found->second.queues != 0) misuse("unmapped a ring under a queue");
  found->second.is_mapped = false;
  return 0;
}

FAKE_EXPORT Result hsaKmtCreateQueueExt(uint32_t node, int type, uint32_t percent, int priority,
                                        uint32_t engine, void* ring, uint64_t ring_bytes,
                                        void* event, QueueResource* resource) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (fails()) return kError;
  const auto found = rings.find(ring);
  if (node == 0 || type != 6 || percent != 100 || priority != 3 || engine >= kEngines ||
      event != nullptr || found == rings.end() || !found->second.is_mapped ||
      found->second.bytes != ring_bytes || (ring_bytes & (ring_bytes - 1)) != 0) {
    return kInvalidParameter;
  }
  const char* const limit = std::getenv("FAKE_HSAKMT_QUEUES");
  if (queues_of(engine) >= (limit == nullptr ? 8u : static_cast<uint32_t>(std::atol(limit)))) {
    return cco::kfd::kNoMemory;
  }
  ++found->second.queues;
  auto* const words = static_cast<uint64_t*>(std::calloc(3, 64));
  *resource = {++last_id, reinterpret_cast<uint64_t>(words), reinterpret_cast<uint64_t>(words + 8),
               reinterpret_cast<uint64_t>(words + 16), 0};
  queues[last_id] = {ring, engine, words};
  engines += (engines.empty() ? "" : ",") + std::to_string(engine);
  return 0;
}

FAKE_EXPORT Result hsaKmtDestroyQueue(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = queues.find(id);
  if (found == queues.end()) misuse("destroyed a queue that is not there");
  --rings.at(found->second.ring).queues;
  std::free(found->second.words);
  queues.erase(found);
  if (queues.empty()) engines.clear();
  return 0;
}

FAKE_EXPORT uint32_t fakeHsakmtAlive() {
  const std::lock_guard<std::mutex> lock(mutex);
  return static_cast<uint32_t>(rings.size() + queues.size()) + (is_open ? 1 : 0);
}

FAKE_EXPORT const char* fakeHsakmtEngines() { return engines.c_str(); }
