// Goal    whatever a kernel writes into a send queue, its doorbell and its tables, a software NIC
//         touches nothing outside the windows, comes to rest, and goes on serving other queues.
// Method  the first byte chooses format and schedule, and whether doorbell and message numbers are
//         those of the input or made to fit; then come both, and the bytes of the ring. Memory is
//         reached through a port that refuses to leave the windows. All decoders get the ring too.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "client/base/status_macros.h"
#include "device/transport/nic_bnxt.h"
#include "device/transport/nic_ionic.h"
#include "device/transport/nic_mlx5.h"
#include "device/transport/soft_nic.h"
#include "tests/fuzz/fuzz.h"

namespace {

constexpr uint64_t kWindowBytes = 8192;
constexpr uint32_t kRingBytes = 1024, kOperations = 16, kHeaderBytes = 16;
constexpr uint32_t kQpn = 0x12a, kOtherQpn = 0x12b;

/// Of the input's first byte.
constexpr uint8_t kRawDoorbell = 0x04, kWild = 0x08, kRawMsn = 0x10;

struct Rank {
  alignas(8) std::array<uint8_t, kWindowBytes> window{};
};

uint64_t address_of(const void* place) { return reinterpret_cast<uint64_t>(place); }

class StrictPort final : public cco::MemoryPort {
 public:
  explicit StrictPort(const std::array<Rank, 2>& ranks)
      : ranks_(ranks), host_(cco::open_host_port()) {}

  absl::Status copy(uint64_t destination, uint64_t source, uint64_t bytes) override {
    check(destination, bytes);
    check(source, bytes);
    return host_->copy(destination, source, bytes);
  }
  absl::Status read(absl::Span<uint8_t> into, uint64_t source) override {
    check(source, into.size());
    return host_->read(into, source);
  }
  absl::Status write(uint64_t destination, absl::Span<const uint8_t> from) override {
    check(destination, from.size());
    return host_->write(destination, from);
  }
  absl::StatusOr<uint64_t> fetch_add(uint64_t address, uint64_t delta) override {
    check_word(address);
    return host_->fetch_add(address, delta);
  }
  absl::StatusOr<uint64_t> compare_swap(uint64_t address, uint64_t expected,
                                        uint64_t desired) override {
    check_word(address);
    return host_->compare_swap(address, expected, desired);
  }

 private:
  void check(uint64_t address, uint64_t bytes) const {
    const bool is_inside = std::any_of(ranks_.begin(), ranks_.end(), [=](const Rank& rank) {
      const uint64_t begin = address_of(rank.window.data());
      return address >= begin && bytes <= kWindowBytes && address - begin <= kWindowBytes - bytes;
    });
    CCO_ASSERT(is_inside);
  }
  void check_word(uint64_t address) const {
    CCO_ASSERT(address % sizeof(uint64_t) == 0);
    check(address, sizeof(uint64_t));
  }

  const std::array<Rank, 2>& ranks_;
  const std::unique_ptr<cco::MemoryPort> host_;
};

/// The memory of one queue pair, as kernels have it.
struct QueueMemory {
  alignas(64) std::array<uint8_t, kRingBytes> ring{};
  alignas(64) std::array<uint8_t, 64> cq{};
  std::array<uint64_t, 64> msn{};
  std::array<uint32_t, 2> record{};
  uint64_t doorbell = 0;
};

cco::NicQueue queue_over(QueueMemory& memory, const cco::NicFormat& format, uint32_t qpn) {
  cco::NicQueue queue;
  queue.qpn = qpn;
  queue.peer = 1;
  queue.depth_units = kRingBytes / format.unit_bytes();
  queue.sq = memory.ring.data();
  queue.cq = memory.cq.data();
  queue.doorbell = &memory.doorbell;
  queue.doorbell_record = memory.record.data();
  queue.msn_table = reinterpret_cast<const uint8_t*>(memory.msn.data());
  queue.msn_depth = format.msn_depth(queue.depth_units);
  CCO_ASSERT(queue.msn_depth <= memory.msn.size());
  return queue;
}

/// Announces `units` as a well-behaved kernel would.
void ring(QueueMemory& memory, const cco::NicQueue& queue, const cco::NicFormat& format,
          uint32_t units) {
  if (format.name() == "mlx5") {
    memory.record[1] = __builtin_bswap32(units);
    memory.doorbell =
        uint64_t{__builtin_bswap32(queue.qpn << 8)} << 32 | __builtin_bswap32(units << 8);
  } else if (format.name() == "bnxt") {
    const uint64_t low = units == queue.depth_units ? 1 << 24 : units;
    memory.doorbell = low | uint64_t{queue.qpn | 1 << 26} << 32;
  } else {
    memory.doorbell = uint64_t{queue.qpn} << 24 | units % queue.depth_units;
  }
}

/// Message numbers that fit the entries, as far as these are any.
void number_messages(QueueMemory& memory, const cco::NicQueue& queue, uint32_t units) {
  uint64_t psn = 0;
  size_t message = 0;
  for (uint32_t slot = 0; slot < units;) {
    const auto entry = cco::decode_bnxt(
        absl::MakeConstSpan(memory.ring)
            .subspan(slot * cco::kBnxtSlotBytes, (units - slot) * cco::kBnxtSlotBytes));
    if (!entry.ok()) return;
    const uint64_t next = psn + cco::nic_packets(entry->bytes, queue.mtu_bytes);
    memory.msn[message++] = psn | (next & 0xffffff) << 24 | uint64_t{slot} << 48;
    psn = next & 0xffffff;
    slot += entry->units;
  }
}

void check_decoded(const absl::StatusOr<cco::NicOperation>& operation) {
  if (!operation.ok()) return;
  CCO_ASSERT(operation->units >= 1 && operation->units <= 8);
  CCO_ASSERT(operation->bytes <= cco::kNicMessageBytes);
  CCO_ASSERT(operation->opcode != cco::NicOpcode::kInlineWrite ||
             operation->bytes <= cco::kNicInlineBytes);
  CCO_ASSERT(!operation->is_atomic() || operation->bytes == sizeof(uint64_t));
}

void decode_all(absl::Span<const uint8_t> bytes) {
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const absl::Span<const uint8_t> rest =
        bytes.subspan(at).first(std::min<size_t>(bytes.size() - at, cco::kNicWqeBytes));
    check_decoded(cco::decode_mlx5(rest, at / 64, kQpn));
    check_decoded(cco::decode_bnxt(rest));
    check_decoded(cco::decode_ionic(rest, at / 64, kOperations));
  }
}

void step_until_idle(cco::SoftNic& nic) {
  constexpr uint32_t kMany = 2000;
  for (uint32_t steps = 0; nic.step(); ++steps) CCO_ASSERT(steps < kMany);
}

/// A write of no bytes on a queue that nobody has spoilt.
void expect_other_queue_served(QueueMemory& memory, const cco::NicQueue& queue,
                               const cco::NicFormat& format, cco::SoftNic& nic) {
  if (format.name() == "mlx5") {
    memory.ring[5] = kOtherQpn >> 8 & 0xff;  // A NOP that asks for a completion.
    memory.ring[6] = kOtherQpn & 0xff;
    memory.ring[7] = 1;
    memory.ring[11] = 0x08;
  } else if (format.name() == "bnxt") {
    memory.ring[0] = 0x04;
    memory.ring[1] = 0x11;
    memory.ring[2] = 2;
    memory.msn[0] = uint64_t{1} << 24;
  } else {
    memory.ring[8] = 0x21;
    memory.ring[11] = 0x1c;
  }
  const std::array<uint8_t, 64> before = memory.cq;
  ring(memory, queue, format, format.name() == "bnxt" ? 2 : 1);
  step_until_idle(nic);
  CCO_ASSERT(memory.cq != before);
  CCO_ASSERT(memory.cq[63] >> 4 != 0xd && memory.cq[25] == 0 && (memory.cq[31] & 2) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < kHeaderBytes) return 0;
  const absl::Span<const uint8_t> entries(bytes + kHeaderBytes, size - kHeaderBytes);
  decode_all(entries);

  const cco::NicFormat* const formats[] = {&cco::nic_mlx5(), &cco::nic_bnxt(), &cco::nic_ionic()};
  const cco::NicFormat& format = *formats[(bytes[0] & 3) % 3];
  std::array<Rank, 2> ranks;
  cco::WindowRegistry windows;
  CCO_ASSERT(windows
                 .add({5,
                       kWindowBytes,
                       {address_of(ranks[0].window.data()), address_of(ranks[1].window.data())}})
                 .ok());
  // The peer's copy of another window is not on this node.
  CCO_ASSERT(windows.add({6, kWindowBytes, {address_of(ranks[0].window.data()), 0}}).ok());

  QueueMemory spoilt, other;
  const cco::NicQueue queue = queue_over(spoilt, format, kQpn);
  const cco::NicQueue other_queue = queue_over(other, format, kOtherQpn);
  std::copy_n(entries.begin(), std::min<size_t>(entries.size(), kRingBytes), spoilt.ring.begin());
  const uint32_t units = bytes[1] % (queue.depth_units + 1);
  ring(spoilt, queue, format, units);
  number_messages(spoilt, queue, units);
  if ((bytes[0] & kRawDoorbell) != 0) {
    std::memcpy(&spoilt.doorbell, bytes + 2, sizeof spoilt.doorbell);
    std::memcpy(&spoilt.record[1], bytes + 10, sizeof spoilt.record[1]);
  }
  if ((bytes[0] & kRawMsn) != 0) std::memcpy(&spoilt.msn[0], bytes + 2, sizeof spoilt.msn[0]);

  StrictPort port(ranks);
  cco::NicSchedule schedule;
  if ((bytes[0] & kWild) != 0) {
    schedule = {.seed = bytes[14],
                .delay_percent = 20,
                .merge_percent = 20,
                .late_percent = 50,
                .shuffles_queues = true,
                .piece_bytes = 64};
  }
  cco::SoftNic nic({&format, 0, &port, &windows, schedule}, {queue, other_queue});
  step_until_idle(nic);
  expect_other_queue_served(other, other_queue, format, nic);
  return 0;
}

std::vector<std::string> fuzz_seeds() { return read_corpus("nic"); }
