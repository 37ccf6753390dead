// What exists inside the fake, and the rules that every entry point shares.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client/base/unique.h"
#include "device/runtime/hip_api.h"

#define FAKE_HIP_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake_hip {

using cco::vmm::Result;

inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kInvalidImage = 200;
inline constexpr Result kInvalidHandle = 400;
inline constexpr Result kNotFound = 500;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kAlreadyRegistered = 712;
inline constexpr Result kNotRegistered = 713;
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidDevice = 101;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kUnknown = 999;

inline constexpr size_t kGranularityBytes = 4096;  ///< As on Instinct: the minimum…
inline constexpr size_t kRecommendedGranularityBytes =
    2 << 20;  ///< …and what memory is really made of.
inline constexpr int kVersionShares =
    60200000;  ///< Claimed versions below refuse memory that can be exported.
inline constexpr int kVersionKeepsFd =
    70200000;  ///< Claimed versions below need the caller's fds to stay open.

/// An fd as somebody else holds it: the number, and what it referred to.
struct ForeignFd {
  int number = -1;
  uint64_t inode = 0;
  bool still_open() const;
};

struct Handle {
  std::shared_ptr<cco::UniqueFd> fd;  ///< Co-owners: other handles, and mappings.
  size_t size_bytes = 0;
  int device = 0;  ///< Physical.
  bool rdma = false;
  bool imported = false;
  bool retained = false;  ///< A further handle of memory that has one, or had.
  ForeignFd foreign;      ///< The imported or first exported fd.
};
struct Mapping {
  std::shared_ptr<cco::UniqueFd> fd;  ///< Of the memory, whose handle may be released.
  bool imported = false;
  size_t size_bytes = 0;
  int device = 0;  ///< Physical, of the memory.
  bool rdma = false;
  ForeignFd foreign;
  int refusals = 0;           ///< By FAKE_HIP_FLAKY_ACCESS so far.
  std::map<int, int> access;  ///< By physical device.
};

struct State {
  std::mutex mutex;
  std::map<uint64_t, Handle> handles;
  std::map<uint64_t, size_t> ranges;
  std::map<uint64_t, Mapping> mappings;
  std::set<uint64_t> streams;
  std::map<uint64_t, double> events;  ///< Milliseconds; negative: not recorded.
  std::set<uint64_t> modules;
  std::map<uint64_t, size_t> registrations;
  std::map<int, size_t> used_bytes;  ///< By physical device.
  uint64_t last_id = 0;  ///< Ids are never used twice, so that a stale one is always known as such.
};
State& state();
uint64_t new_id();

/// Of a physical device: 16 hexadecimal digits.
std::string serial_number(int device);
/// Physical ordinals that ROCR_VISIBLE_DEVICES leaves, in the order of HIP_VISIBLE_DEVICES; a wrong
/// entry ends the list, as in HIP.
std::vector<int> visible_devices();
bool valid_device(int device);
/// Of the calling thread, physical.
int current_device();

int claimed_version();
/// The variable's number, or `fallback`.
long setting(const char* variable, long fallback);
bool can_reach(int device, int memory_device);

/// Counts the call; non-zero if FAKE_HIP_FAIL wants it to fail.
Result injected_failure(const char* function);

/// Misuse that would corrupt a real runtime: says so and ends the process, or returns kInvalidValue
/// if lenient.
Result misuse(const char* function, const char* text, uint64_t value);

/// Notices memory calls of two threads at once.
class MemoryCall {
 public:
  MemoryCall();
  ~MemoryCall();
};

}  // namespace fake_hip
