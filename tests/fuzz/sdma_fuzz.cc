// Goal    no bytes in a ring, and no indices, make the software copy engine touch memory that it
//         may not, loop for ever, or crash; a queue that stops says why.
// Method  the input is packet form, schedule, doorbell (in units) and ring; packets may name one
//         window, and the memory behind it refuses everything else.
#include <algorithm>
#include <cstring>

#include "client/base/status_macros.h"
#include "device/transport/sdma_engine.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr uint64_t kRingBytes = 1024, kWindowBytes = 256, kWindow = 0x10000;

/// The window's bytes stand for addresses from kWindow on; anything else ends the test.
class WindowPort final : public cco::MemoryPort {
 public:
  absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) override {
    std::memmove(at(destination, bytes), at(source, bytes), bytes);
    return absl::OkStatus();
  }
  absl::Status read(absl::Span<uint8_t> into, uint64_t source) override {
    std::memcpy(into.data(), at(source, into.size()), into.size());
    return absl::OkStatus();
  }
  absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) override {
    std::memcpy(at(destination, from.size()), from.data(), from.size());
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override {
    uint64_t before = 0;
    std::memcpy(&before, at(address, sizeof before), sizeof before);
    const uint64_t after = before + delta;
    std::memcpy(at(address, sizeof after), &after, sizeof after);
    return before;
  }
  absl::StatusOr<uint64_t> compare_swap(uint64_t, uint64_t, uint64_t) override {
    CCO_ASSERT(!"no packet swaps");
    return absl::InternalError("");
  }
  static bool may_touch(uint64_t address, uint64_t bytes) {
    return address >= kWindow && address - kWindow <= kWindowBytes &&
           bytes <= kWindowBytes - (address - kWindow);
  }

 private:
  uint8_t* at(uint64_t address, uint64_t bytes) {
    CCO_ASSERT(may_touch(address, bytes));
    return window_ + (address - kWindow);
  }
  alignas(8) uint8_t window_[kWindowBytes] = {};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 3) return 0;
  const uint32_t packets = bytes[0] % 2 == 0 ? CCO_SDMA_PACKETS_GFX1250 : CCO_SDMA_PACKETS_GFX9;
  uint32_t ring[kRingBytes / 4] = {};
  std::memcpy(ring, bytes + 3, std::min<size_t>(size - 3, kRingBytes));
  uint64_t read_index = 0;
  uint64_t write_index = uint64_t{bytes[2]} * 32;
  WindowPort port;
  cco::SdmaEngine engine(packets, &port,
                         {{ring, kRingBytes, &read_index, &write_index, &write_index, "queue"}},
                         WindowPort::may_touch, cco::SdmaSchedule{bytes[1]});
  int steps = 0;
  while (engine.step()) CCO_ASSERT(++steps < 10000);
  if (engine.status().ok()) {
    CCO_ASSERT(read_index == write_index);
  } else {
    CCO_ASSERT(!engine.status().message().empty());
    CCO_ASSERT(read_index == CCO_SDMA_STOPPED);
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() { return read_corpus("sdma"); }
