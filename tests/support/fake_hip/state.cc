#include "state.h"

#include <sys/stat.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fake_hip.h"

namespace fake_hip {
namespace {

thread_local int current_ordinal = 0;
std::atomic<uint32_t> calls_in_flight{0};
std::atomic<uint32_t> overlaps{0};
std::mutex calls_mutex;
std::map<std::string, uint32_t> calls_by_function;  // Under calls_mutex.

/// The next number of a comma-separated list, as HIP reads HIP_VISIBLE_DEVICES.
bool next_number(std::istream& list, long* number) {
  std::string entry;
  if (!std::getline(list, entry, ',')) return false;
  char* end = nullptr;
  *number = std::strtol(entry.c_str(), &end, 10);
  return end != entry.c_str() && *end == '\0';
}

/// What ROCR_VISIBLE_DEVICES leaves of the machine. Only UUIDs: ordinals are not needed here.
std::vector<int> named_devices(int count) {
  const char* text = std::getenv("ROCR_VISIBLE_DEVICES");
  std::vector<int> named;
  if (text == nullptr) {
    for (int device = 0; device < count; ++device) named.push_back(device);
    return named;
  }
  std::istringstream list(text);
  for (std::string uuid; std::getline(list, uuid, ',');) {
    for (int device = 0; device < count; ++device) {
      if (uuid == "GPU-" + serial_number(device)) named.push_back(device);
    }
  }
  return named;
}

}  // namespace

bool ForeignFd::still_open() const {
  struct stat facts {};
  return ::fstat(number, &facts) == 0 && facts.st_ino == inode;
}

State& state() {
  static State* const instance =
      new State;  // Never destroyed: calls may come from other exit handlers.
  return *instance;
}

uint64_t new_id() { return 0x5000'0000 + 16 * ++state().last_id; }

long setting(const char* variable, long fallback) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtol(text, nullptr, 10) : fallback;
}

int claimed_version() { return static_cast<int>(setting("FAKE_HIP_VERSION", 70253211)); }

std::string serial_number(int device) {
  char text[17];
  std::snprintf(text, sizeof text, "fa4e%012x", device);
  return text;
}

std::vector<int> visible_devices() {
  const long count = setting("FAKE_HIP_DEVICES", 8);
  std::vector<int> machine = named_devices(static_cast<int>(count));
  const char* text = std::getenv("HIP_VISIBLE_DEVICES");
  if (text == nullptr) return machine;
  std::vector<int> visible;
  std::istringstream list(text);
  const long known = static_cast<long>(machine.size());
  for (long device = 0; next_number(list, &device) && device >= 0 && device < known;) {
    visible.push_back(machine[static_cast<size_t>(device)]);
  }
  return visible;
}

bool valid_device(int device) {
  return device >= 0 && static_cast<size_t>(device) < visible_devices().size();
}

int current_device() {
  return valid_device(current_ordinal) ? visible_devices()[static_cast<size_t>(current_ordinal)]
                                       : 0;
}

bool can_reach(int device, int memory_device) {
  if (device == memory_device) return true;
  const char* text = std::getenv("FAKE_HIP_NO_PEER");
  std::istringstream list(text != nullptr ? text : "");
  for (std::string pair; std::getline(list, pair, ',');) {
    int a = -1;
    int b = -1;
    if (std::sscanf(pair.c_str(), "%d-%d", &a, &b) != 2) continue;
    if ((a == device && b == memory_device) || (b == device && a == memory_device)) return false;
  }
  return true;
}

Result injected_failure(const char* function) {
  static std::string seen;
  static int calls = 0;
  const std::lock_guard<std::mutex> lock(calls_mutex);
  ++calls_by_function[function];
  const char* text = std::getenv("FAKE_HIP_FAIL");
  if (seen != (text != nullptr ? text : "")) {
    seen = text != nullptr ? text : "";
    calls = 0;
  }
  const size_t colon = seen.find(':');
  if (colon == std::string::npos || seen.compare(0, colon, function) != 0) return kSuccess;
  int wanted = 0;
  int error = kUnknown;
  if (std::sscanf(seen.c_str() + colon, ":%d:%d", &wanted, &error) < 1) return kSuccess;
  return ++calls == wanted ? error : kSuccess;
}

Result misuse(const char* function, const char* text, uint64_t value) {
  if (setting("FAKE_HIP_LENIENT", 0) != 0) return kInvalidValue;
  std::fprintf(stderr, "fake HIP: %s: %s: %#llx\n", function, text,
               static_cast<unsigned long long>(value));
  std::abort();
}

MemoryCall::MemoryCall() {
  if (calls_in_flight.fetch_add(1) != 0) overlaps.fetch_add(1);
}
MemoryCall::~MemoryCall() { calls_in_flight.fetch_sub(1); }

FAKE_HIP_EXPORT void fakeHipLedger(FakeHipLedger* ledger) {
  State& all = state();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto size = [](const auto& container) { return static_cast<uint32_t>(container.size()); };
  *ledger = {size(all.handles), size(all.ranges),  size(all.mappings),      size(all.streams),
             size(all.events),  size(all.modules), size(all.registrations), overlaps.load()};
}

FAKE_HIP_EXPORT uint32_t fakeHipCalls(const char* function) {
  const std::lock_guard<std::mutex> lock(calls_mutex);
  return calls_by_function[function];
}

FAKE_HIP_EXPORT Result hipGetDevice(int* device) {
  *device = current_ordinal;
  return injected_failure("hipGetDevice");
}

FAKE_HIP_EXPORT Result hipSetDevice(int device) {
  if (Result injected = injected_failure("hipSetDevice")) return injected;
  if (!valid_device(device)) return kInvalidDevice;
  current_ordinal = device;
  return kSuccess;
}

}  // namespace fake_hip
