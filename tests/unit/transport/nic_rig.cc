#include "tests/unit/transport/nic_rig.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "client/base/status_macros.h"

namespace cco::testing {
namespace {

// Most significant byte first.
void put_be(std::vector<uint8_t>& into, size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) into[at + i] = static_cast<uint8_t>(value >> 8 * (bytes - 1 - i));
}
void put_le(std::vector<uint8_t>& into, size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) into[at + i] = static_cast<uint8_t>(value >> 8 * i);
}
uint64_t get_be(const uint8_t* from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | from[i];
  return value;
}
uint64_t get_le(const uint8_t* from, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; --i) value = value << 8 | from[i];
  return value;
}

std::vector<uint8_t> encode_mlx5(const NicOperation& operation, uint64_t index, uint32_t qpn) {
  static const std::map<NicOpcode, uint8_t> kOpcodes = {
      {NicOpcode::kNop, 0x00},      {NicOpcode::kWrite, 0x08},    {NicOpcode::kInlineWrite, 0x08},
      {NicOpcode::kRead, 0x10},     {NicOpcode::kFetchAdd, 0x12}, {NicOpcode::kCompareSwap, 0x14},
      {NicOpcode::kLocalRead, 0x23}};
  std::vector<uint8_t> wqe(128, 0);
  size_t at = 16;
  if (operation.opcode != NicOpcode::kNop && operation.opcode != NicOpcode::kLocalRead) {
    put_be(wqe, at, operation.remote_offset, 8);
    put_be(wqe, at + 8, operation.remote_key, 4);
    at += 16;
  }
  if (operation.opcode == NicOpcode::kInlineWrite) {
    put_be(wqe, at, operation.bytes | 0x80000000u, 4);
    std::copy_n(operation.inline_data.begin(), operation.bytes, wqe.begin() + at + 4);
    at += (4 + operation.bytes + 15) / 16 * 16;
  } else if (operation.is_atomic()) {
    put_be(wqe, at, operation.operand, 8);
    put_be(wqe, at + 8, operation.compare, 8);
    at += 16;
    if (operation.opcode == NicOpcode::kCompareSwap) {
      put_be(wqe, at, operation.swap_mask, 8);
      put_be(wqe, at + 8, operation.compare_mask, 8);
      at += 16;
    }
  }
  if (operation.opcode != NicOpcode::kNop && operation.opcode != NicOpcode::kInlineWrite) {
    put_be(wqe, at, operation.bytes, 4);
    put_be(wqe, at + 4, operation.local_key, 4);
    put_be(wqe, at + 8, operation.local_offset, 8);
    at += 16;
  }
  const uint32_t opmod = operation.opcode == NicOpcode::kCompareSwap ? 9 : 0;
  put_be(wqe, 0, opmod << 24 | (index & 0xffff) << 8 | kOpcodes.at(operation.opcode), 4);
  put_be(wqe, 4, qpn << 8 | at / 16, 4);
  wqe[11] = operation.signaled ? 0x08 : 0;
  wqe.resize((at + 63) / 64 * 64);
  return wqe;
}

std::vector<uint8_t> encode_bnxt(const NicOperation& operation) {
  static const std::map<NicOpcode, uint8_t> kOpcodes = {{NicOpcode::kWrite, 0x04},
                                                        {NicOpcode::kInlineWrite, 0x04},
                                                        {NicOpcode::kRead, 0x06},
                                                        {NicOpcode::kCompareSwap, 0x08},
                                                        {NicOpcode::kFetchAdd, 0x0b}};
  const bool is_inline = operation.opcode == NicOpcode::kInlineWrite;
  const size_t slots = is_inline ? 2 + (operation.bytes + 15) / 16 : 3;
  std::vector<uint8_t> wqe(slots * 16, 0);
  wqe[0] = kOpcodes.at(operation.opcode);
  wqe[1] = (operation.signaled ? 0x01 : 0) | (is_inline ? 0x10 : 0);
  wqe[2] = static_cast<uint8_t>(slots);
  if (operation.is_atomic()) {
    put_le(wqe, 4, operation.remote_key, 4);
    put_le(wqe, 8, operation.remote_offset, 8);
    put_le(wqe, 16, operation.operand, 8);
    put_le(wqe, 24, operation.compare, 8);
  } else {
    put_le(wqe, 8, operation.bytes, 8);
    put_le(wqe, 16, operation.remote_offset, 8);
    put_le(wqe, 24, operation.remote_key, 4);
  }
  if (is_inline) {
    std::copy_n(operation.inline_data.begin(), operation.bytes, wqe.begin() + 32);
  } else {
    put_le(wqe, 32, operation.local_offset, 8);
    put_le(wqe, 40, operation.local_key, 4);
    put_le(wqe, 44, operation.bytes, 4);
  }
  return wqe;
}

std::vector<uint8_t> encode_ionic(const NicOperation& operation, uint64_t index, uint32_t depth) {
  static const std::map<NicOpcode, uint8_t> kOpcodes = {{NicOpcode::kWrite, 0x21},
                                                        {NicOpcode::kInlineWrite, 0x21},
                                                        {NicOpcode::kRead, 0x02},
                                                        {NicOpcode::kCompareSwap, 0x04},
                                                        {NicOpcode::kFetchAdd, 0x05}};
  const bool is_inline = operation.opcode == NicOpcode::kInlineWrite;
  std::vector<uint8_t> wqe(64, 0);
  put_le(wqe, 0, index % depth, 8);
  wqe[8] = kOpcodes.at(operation.opcode);
  wqe[9] = is_inline ? 0 : 1;
  const bool odd_lap = index / depth % 2 != 0;
  put_be(wqe, 10, (odd_lap ? 0 : 0x10) | (operation.signaled ? 0x08 : 0) | (is_inline ? 0x04 : 0),
         2);
  put_be(wqe, 16, operation.remote_offset, 8);
  put_be(wqe, 24, operation.remote_key, 4);
  if (operation.is_atomic()) {
    put_be(wqe, 28, operation.operand, 8);
    put_be(wqe, 36, operation.compare, 8);
    put_be(wqe, 44, operation.local_key, 4);
    put_be(wqe, 48, operation.local_offset, 8);
    return wqe;
  }
  put_be(wqe, 28, operation.bytes, 4);
  if (is_inline) {
    std::copy_n(operation.inline_data.begin(), operation.bytes, wqe.begin() + 32);
  } else {
    put_be(wqe, 32, operation.local_offset, 8);
    put_be(wqe, 40, operation.bytes, 4);
    put_be(wqe, 44, operation.local_key, 4);
  }
  return wqe;
}

const NicFormat& format_of(const std::string& name) {
  return name == "mlx5" ? nic_mlx5() : name == "bnxt" ? nic_bnxt() : nic_ionic();
}

}  // namespace

RecordingPort::RecordingPort() : host_(open_host_port()) {}

absl::Status RecordingPort::record(char kind, uint64_t destination, uint64_t bytes) {
  calls.push_back({kind, destination, bytes});
  return failure;
}
absl::Status RecordingPort::copy(uint64_t destination, uint64_t source, uint64_t bytes) {
  CCO_RETURN_IF_ERROR(record('c', destination, bytes));
  return host_->copy(destination, source, bytes);
}
absl::Status RecordingPort::read(absl::Span<uint8_t> into, uint64_t source) {
  return host_->read(into, source);
}
absl::Status RecordingPort::write(uint64_t destination, absl::Span<const uint8_t> from) {
  CCO_RETURN_IF_ERROR(record('w', destination, from.size()));
  return host_->write(destination, from);
}
absl::StatusOr<uint64_t> RecordingPort::fetch_add(uint64_t address, uint64_t delta) {
  CCO_RETURN_IF_ERROR(record('a', address, sizeof delta));
  return host_->fetch_add(address, delta);
}
absl::StatusOr<uint64_t> RecordingPort::compare_swap(uint64_t address, uint64_t expected,
                                                     uint64_t desired) {
  CCO_RETURN_IF_ERROR(record('s', address, sizeof desired));
  return host_->compare_swap(address, expected, desired);
}

NicRig::NicRig(const Options& options) : options_(options), format_(format_of(options.format)) {
  for (uint32_t rank = 0; rank < 2; ++rank) {
    data_[rank].resize(kWindowBytes / 8);
    signals_[rank].resize(4096 / 8);
  }
  const auto base = [](const std::vector<uint64_t>& words) {
    return reinterpret_cast<uint64_t>(words.data());
  };
  EXPECT_TRUE(windows_.add({kWindow, kWindowBytes, {base(data_[0]), base(data_[1])}}).ok());
  EXPECT_TRUE(windows_.add({kSignals, 4096, {base(signals_[0]), base(signals_[1])}}).ok());
  EXPECT_TRUE(windows_.add({kOwnOnly, kWindowBytes, {base(data_[0]), 0}}).ok());

  queues_.resize(options.queue_count);
  std::vector<NicQueue> nic_queues;
  for (uint32_t i = 0; i < options.queue_count; ++i) {
    make_queue(i);
    nic_queues.push_back(queues_[i].nic);
  }
  nic_ = std::make_unique<SoftNic>(
      SoftNic::Options{&format_, kRank, &port_, &windows_, options.schedule},
      std::move(nic_queues));
}

void NicRig::make_queue(uint32_t index) {
  Queue& queue = queues_[index];
  const uint32_t depth = format_.depth_units(options_.operations);
  queue.sq.resize(uint64_t{depth} * format_.unit_bytes() / 8);
  queue.cq.resize(8);
  queue.msn.resize(format_.msn_depth(depth));
  queue.record.resize(2);
  queue.next_units = options_.schedule.first_index;
  queue.operations = queue.next_units / (options_.format == "bnxt" ? 3 : 1);
  queue.nic.qpn = 0x12a + index;
  queue.nic.peer = kPeer;
  queue.nic.depth_units = depth;
  queue.nic.sq = reinterpret_cast<uint8_t*>(queue.sq.data());
  queue.nic.cq = reinterpret_cast<uint8_t*>(queue.cq.data());
  queue.nic.doorbell = &queue.doorbell;
  queue.nic.doorbell_record = queue.record.data();
  queue.nic.msn_table = reinterpret_cast<const uint8_t*>(queue.msn.data());
  queue.nic.msn_depth = format_.msn_depth(depth);
  queue.nic.consumed_units = queue.next_units;
  queue.nic.operations = queue.operations;
  queue.nic.psn = queue.psn = options_.first_psn;
  format_.reset_completion(queue.nic);
}

NicOperation NicRig::write(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes) const {
  NicOperation operation;
  operation.opcode = NicOpcode::kWrite;
  operation.signaled = true;
  operation.bytes = bytes;
  operation.local_key = operation.remote_key = window_key(kWindow);
  operation.local_offset = local_offset;
  operation.remote_offset = remote_offset;
  return operation;
}
NicOperation NicRig::read(uint64_t local_offset, uint64_t remote_offset, uint64_t bytes) const {
  NicOperation operation = write(local_offset, remote_offset, bytes);
  operation.opcode = NicOpcode::kRead;
  return operation;
}
NicOperation NicRig::inline_write(uint64_t remote_offset, const std::vector<uint8_t>& data) const {
  NicOperation operation = write(0, remote_offset, data.size());
  operation.opcode = NicOpcode::kInlineWrite;
  std::copy(data.begin(), data.end(), operation.inline_data.begin());
  return operation;
}
NicOperation NicRig::add(uint64_t remote_offset, uint64_t delta, uint64_t local_offset) const {
  NicOperation operation = write(local_offset, remote_offset, sizeof delta);
  operation.opcode = NicOpcode::kFetchAdd;
  operation.local_key = operation.remote_key = window_key(kSignals);
  operation.operand = delta;
  return operation;
}
NicOperation NicRig::nothing() const {
  NicOperation operation = inline_write(0, {});
  operation.remote_key = 0;
  if (options_.format == "mlx5") operation.opcode = NicOpcode::kNop;
  return operation;
}

std::vector<uint8_t> NicRig::encode(const NicOperation& operation, const Queue& queue) const {
  if (options_.format == "mlx5") return encode_mlx5(operation, queue.next_units, queue.nic.qpn);
  if (options_.format == "bnxt") return encode_bnxt(operation);
  return encode_ionic(operation, queue.next_units, queue.nic.depth_units);
}

uint32_t NicRig::post(const NicOperation& operation, uint32_t index) {
  Queue& queue = queues_[index];
  const std::vector<uint8_t> wqe = encode(operation, queue);
  const uint32_t units = static_cast<uint32_t>(wqe.size()) / format_.unit_bytes();
  queue.last_units = queue.next_units;
  for (uint32_t at = 0; at < wqe.size(); ++at) byte(at, index) = wqe[at];
  if (!queue.msn.empty()) {
    const uint64_t packets = operation.bytes == 0 ? 1 : (operation.bytes + 4095) / 4096;
    const uint64_t next_psn = (queue.psn + packets) % (1 << 24);
    const uint64_t slot = queue.next_units % queue.nic.depth_units;
    queue.msn[queue.operations % queue.msn.size()] = queue.psn | next_psn << 24 | slot << 48;
    queue.psn = static_cast<uint32_t>(next_psn);
  }
  queue.next_units += units;
  ++queue.operations;
  return units;
}

uint8_t& NicRig::byte(uint32_t at, uint32_t index) {
  Queue& queue = queues_[index];
  const uint64_t ring_bytes = queue.sq.size() * 8;
  return queue.nic.sq[(queue.last_units * format_.unit_bytes() + at) % ring_bytes];
}

uint8_t& NicRig::msn_byte(uint32_t at, uint32_t index) {
  Queue& queue = queues_[index];
  const uint64_t entry = (queue.operations - 1) % queue.msn.size();
  return reinterpret_cast<uint8_t*>(queue.msn.data())[entry * 8 + at];
}

uint64_t NicRig::doorbell_value(uint32_t index) const {
  const Queue& queue = queues_[index];
  std::vector<uint8_t> bytes(8, 0);
  const uint64_t place = queue.next_units % queue.nic.depth_units;
  if (options_.format == "mlx5" && options_.rings_last_entry) {
    const uint64_t at = queue.last_units % queue.nic.depth_units * 64;
    std::copy_n(queue.nic.sq + at, 8, bytes.begin());
  } else if (options_.format == "mlx5") {
    put_be(bytes, 0, (queue.next_units & 0xffff) << 8, 4);
    put_be(bytes, 4, uint64_t{queue.nic.qpn} << 8, 4);
  } else if (options_.format == "bnxt") {
    const uint64_t epoch = queue.next_units / queue.nic.depth_units % 2;
    put_le(bytes, 0, place | epoch << 24, 4);
    put_le(bytes, 4, queue.nic.qpn | 1 << 26, 4);
  } else {
    put_le(bytes, 0, uint64_t{queue.nic.qpn} << 24 | place, 8);
  }
  return get_le(bytes.data(), 8);
}

void NicRig::ring(uint32_t index) {
  set_doorbell_record(static_cast<uint32_t>(queues_[index].next_units & 0xffff), index);
  set_doorbell(doorbell_value(index), index);
}

void NicRig::set_doorbell(uint64_t value, uint32_t index) { queues_[index].doorbell = value; }

void NicRig::set_doorbell_record(uint32_t next, uint32_t index) {
  std::vector<uint8_t> bytes(4);
  put_be(bytes, 0, next, 4);
  std::memcpy(&queues_[index].record[1], bytes.data(), 4);
}

void NicRig::run(const NicOperation& operation, uint32_t queue) {
  post(operation, queue);
  ring(queue);
  step_until_idle();
}

uint32_t NicRig::step_until_idle() {
  constexpr uint32_t kMany = 1000000;
  uint32_t steps = 0;
  while (nic_->step()) {
    if (++steps == kMany) {
      ADD_FAILURE() << "the NIC is never idle";
      break;
    }
  }
  return steps;
}

NicRig::Completion NicRig::look(uint32_t index) const {
  const Queue& queue = queues_[index];
  const uint8_t* const cqe = queue.nic.cq;
  Completion seen;
  uint64_t low = 0;
  uint64_t range = 0;
  if (options_.format == "mlx5") {
    if (cqe[63] >> 4 == 0xd) seen.syndrome = cqe[55];
    low = get_be(cqe + 60, 2);
    range = 1 << 16;
  } else if (options_.format == "bnxt") {
    seen.syndrome = static_cast<uint32_t>(get_le(cqe + 24, 4) >> 8 & 0xff);
    low = get_le(cqe + 8, 4);
    range = queue.nic.depth_units;
  } else {
    if ((cqe[31] & 2) != 0) seen.syndrome = static_cast<uint32_t>(get_be(cqe + 24, 4));
    low = get_be(cqe + 4, 4);
    range = 1 << 24;
  }
  EXPECT_LT(low, range) << "more bits than hardware has";
  if (options_.format == "mlx5") ++low;  // It names the last entry, the others the next.
  // The largest count of that remainder which is not above what was posted.
  seen.units = queue.next_units - (queue.next_units - low) % range;
  return seen;
}

}  // namespace cco::testing
