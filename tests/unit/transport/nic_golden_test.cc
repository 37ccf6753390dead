#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "device/transport/nic_bnxt.h"
#include "device/transport/nic_ionic.h"
#include "device/transport/nic_mlx5.h"
#include "tests/support/golden.h"

namespace cco {
namespace {

using testing::GoldenVector;
using testing::read_golden;

uint64_t word_of(const std::vector<uint8_t>& bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word;
}

template <size_t kSize>
std::vector<uint8_t> bytes_of(const std::array<uint8_t, kSize>& entry) {
  return {entry.begin(), entry.end()};
}

// What all formats say in the same words. A parameter that a vector lacks is zero in its entry.
void expect_operation(const GoldenVector& vector, const absl::StatusOr<NicOperation>& decoded,
                      NicOpcode opcode, uint8_t wire_opcode) {
  ASSERT_TRUE(decoded.ok()) << vector.name << ": " << decoded.status();
  EXPECT_EQ(decoded->opcode, opcode) << vector.name;
  EXPECT_EQ(decoded->wire_opcode, wire_opcode) << vector.name;
  EXPECT_EQ(decoded->remote_offset, vector.number("raddr", 0)) << vector.name;
  EXPECT_EQ(decoded->remote_key, vector.number("rkey", 0)) << vector.name;
  EXPECT_EQ(decoded->local_offset, vector.number("laddr", 0)) << vector.name;
  EXPECT_EQ(decoded->local_key, vector.number("lkey", 0)) << vector.name;
  if (vector.has("data")) {
    const std::vector<uint8_t> data = vector.raw("data");
    ASSERT_EQ(decoded->bytes, data.size()) << vector.name;
    EXPECT_TRUE(std::equal(data.begin(), data.end(), decoded->inline_data.begin())) << vector.name;
  } else {
    const uint64_t implied = decoded->is_atomic() ? sizeof(uint64_t) : 0;
    EXPECT_EQ(decoded->bytes, vector.number("length", implied)) << vector.name;
  }
  if (decoded->is_atomic()) {
    EXPECT_EQ(decoded->operand,
              vector.number("swap_add", vector.number("add", vector.number("swap", 0))))
        << vector.name;
    EXPECT_EQ(decoded->compare, vector.number("compare", 0)) << vector.name;
    EXPECT_EQ(decoded->swap_mask, vector.number("swap_mask", ~uint64_t{0})) << vector.name;
    EXPECT_EQ(decoded->compare_mask, vector.number("compare_mask", ~uint64_t{0})) << vector.name;
  }
}

NicOpcode opcode_of(const GoldenVector& vector, const std::map<uint64_t, NicOpcode>& opcodes) {
  const NicOpcode opcode = opcodes.at(vector.number("opcode"));
  return opcode == NicOpcode::kWrite && vector.has("data") ? NicOpcode::kInlineWrite : opcode;
}

void check_mlx5_wqe(const GoldenVector& vector) {
  static const std::map<uint64_t, NicOpcode> kOpcodes = {
      {0x00, NicOpcode::kNop},      {0x08, NicOpcode::kWrite},
      {0x10, NicOpcode::kRead},     {0x11, NicOpcode::kCompareSwap},
      {0x12, NicOpcode::kFetchAdd}, {0x14, NicOpcode::kCompareSwap},
      {0x15, NicOpcode::kFetchAdd}, {0x23, NicOpcode::kLocalRead}};
  // There is no receive side, no CORE-Direct, and no 32-bit atomic.
  static const std::set<std::string> kNotPerformed = {"mlx5/rdma_write_imm",     "mlx5/masked_cs32",
                                                      "mlx5/masked_fa32",        "mlx5/send",
                                                      "mlx5/send_imm_solicited", "mlx5/wait"};
  const absl::StatusOr<NicOperation> decoded =
      decode_mlx5(vector.bytes, vector.number("index"), vector.number("qpn"));
  if (kNotPerformed.count(vector.name) != 0) {
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kUnimplemented) << vector.name;
    return;
  }
  expect_operation(vector, decoded, opcode_of(vector, kOpcodes), vector.number("opcode"));
  EXPECT_EQ(decoded->signaled, (vector.number("fm_ce_se") & 0x08) != 0) << vector.name;
  EXPECT_EQ(decoded->fence, vector.number("fm_ce_se") >= 0x20) << vector.name;
  EXPECT_EQ(decoded->units, (vector.bytes.size() + 63) / 64) << vector.name;
}

void check_mlx5_cqe(const GoldenVector& vector) {
  const uint64_t opcode = vector.number("opcode");
  if (opcode != kMlx5CqeRequest && opcode != kMlx5CqeRequestError) return;  // Not a requester's.
  EXPECT_EQ(bytes_of(encode_mlx5_cqe(
                {.opcode = static_cast<uint8_t>(opcode),
                 .owner = static_cast<uint8_t>(vector.number("owner")),
                 .wqe_opcode = static_cast<uint8_t>(vector.number("wqe_opcode")),
                 .syndrome = static_cast<uint8_t>(vector.number("syndrome", 0)),
                 .vendor_syndrome = static_cast<uint8_t>(vector.number("vendor_syndrome", 0)),
                 .wqe_counter = static_cast<uint16_t>(vector.number("wqe_counter")),
                 .qpn = static_cast<uint32_t>(vector.number("qpn"))})),
            vector.bytes)
      << vector.name;
}

// Goal    ConnectX entries, doorbells and completions mean what their public structs say.
// Method  decode every golden entry and doorbell and compare with its parameters; encode every
//         requester completion and compare bytes. What this NIC does not perform is refused.
TEST(NicGolden, Mlx5) {
  size_t entries = 0;
  for (const GoldenVector& vector : read_golden("mlx5.txt")) {
    if (vector.layout == "mlx5.wqe") {
      check_mlx5_wqe(vector);
      ++entries;
    } else if (vector.layout == "mlx5.doorbell_next") {
      const Mlx5Doorbell doorbell = decode_mlx5_doorbell(word_of(vector.bytes));
      EXPECT_EQ(doorbell.qpn, vector.number("qpn"));
      EXPECT_EQ(doorbell.next, vector.number("next_index"));
    } else if (vector.layout == "mlx5.doorbell_ctrl") {
      const Mlx5Doorbell doorbell = decode_mlx5_doorbell(word_of(vector.bytes));
      EXPECT_EQ(doorbell.qpn, vector.number("qpn"));
      EXPECT_EQ(doorbell.next, vector.number("index") + 1);
    } else if (vector.layout == "mlx5.cqe") {
      check_mlx5_cqe(vector);
    }
  }
  EXPECT_EQ(entries, 18u);
}

void check_bnxt_wqe(const GoldenVector& vector) {
  static const std::map<uint64_t, NicOpcode> kOpcodes = {{0x04, NicOpcode::kWrite},
                                                         {0x06, NicOpcode::kRead},
                                                         {0x08, NicOpcode::kCompareSwap},
                                                         {0x0b, NicOpcode::kFetchAdd}};
  const absl::StatusOr<NicOperation> decoded = decode_bnxt(vector.bytes);
  if (vector.name == "bnxt/rdma_write_imm" || vector.name == "bnxt/send") {
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kUnimplemented) << vector.name;
    return;
  }
  expect_operation(vector, decoded, opcode_of(vector, kOpcodes), vector.number("opcode"));
  EXPECT_EQ(decoded->signaled, (vector.number("flags") & 0x01) != 0) << vector.name;
  EXPECT_EQ(decoded->fence, (vector.number("flags") & 0x06) != 0) << vector.name;
  EXPECT_EQ(decoded->units, 3u) << vector.name;
}

// Goal    Thor2 entries, MSN entries, doorbells and completions mean what their public structs say.
// Method  as Mlx5. A doorbell of another type than the send queue's is refused.
TEST(NicGolden, Bnxt) {
  size_t entries = 0;
  for (const GoldenVector& vector : read_golden("bnxt.txt")) {
    if (vector.layout == "bnxt.wqe") {
      check_bnxt_wqe(vector);
      ++entries;
    } else if (vector.layout == "bnxt.msn") {
      const BnxtMsn msn = decode_bnxt_msn(word_of(vector.bytes));
      EXPECT_EQ(msn.start_slot, vector.number("start_slot"));
      EXPECT_EQ(msn.start_psn, vector.number("start_psn"));
      EXPECT_EQ(msn.next_psn, vector.number("next_psn"));
    } else if (vector.layout == "bnxt.doorbell") {
      const absl::StatusOr<BnxtDoorbell> doorbell = decode_bnxt_doorbell(word_of(vector.bytes));
      ASSERT_EQ(doorbell.ok(), vector.number("type") == 0) << vector.name << doorbell.status();
      if (!doorbell.ok()) continue;
      EXPECT_EQ(doorbell->qid, vector.number("qid"));
      EXPECT_EQ(doorbell->index, vector.number("index"));
      EXPECT_EQ(doorbell->epoch, vector.number("epoch"));
    } else if (vector.layout == "bnxt.cqe") {
      EXPECT_EQ(bytes_of(encode_bnxt_cqe(
                    {.qp_handle = vector.number("qp_handle"),
                     .consumer_index = static_cast<uint32_t>(vector.number("consumer_index")),
                     .phase = static_cast<uint8_t>(vector.number("phase")),
                     .status = static_cast<uint8_t>(vector.number("status"))})),
                vector.bytes)
          << vector.name;
    }
  }
  EXPECT_EQ(entries, 8u);
}

void check_ionic_wqe(const GoldenVector& vector) {
  static const std::map<uint64_t, NicOpcode> kOpcodes = {{0x02, NicOpcode::kRead},
                                                         {0x04, NicOpcode::kCompareSwap},
                                                         {0x05, NicOpcode::kFetchAdd},
                                                         {0x21, NicOpcode::kWrite}};
  constexpr uint32_t kDepth = 64;
  const uint64_t flags = vector.number("flags");
  const uint64_t lap = (flags & 0x10) != 0 ? 0 : 1;
  const absl::StatusOr<NicOperation> decoded =
      decode_ionic(vector.bytes, lap * kDepth + vector.number("index"), kDepth);
  if (vector.name == "ionic/v2_rdma_write_imm") {
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kUnimplemented) << vector.name;
    return;
  }
  expect_operation(vector, decoded, opcode_of(vector, kOpcodes), vector.number("opcode"));
  EXPECT_EQ(decoded->signaled, (flags & 0x08) != 0) << vector.name;
  EXPECT_EQ(decoded->fence, (flags & 0x01) != 0) << vector.name;
  EXPECT_EQ(decoded->units, 1u) << vector.name;
  // In the other lap the colour says that the entry is stale.
  EXPECT_FALSE(
      decode_ionic(vector.bytes, (1 - lap) * kDepth + vector.number("index"), kDepth).ok());
}

// Goal    Pollara entries, doorbells and completions mean what their public structs say.
// Method  as Mlx5, with the second generation's entries; those of the first are another NIC's.
TEST(NicGolden, Ionic) {
  size_t entries = 0;
  for (const GoldenVector& vector : read_golden("ionic.txt")) {
    if (vector.layout == "ionic.wqe" && vector.name.rfind("ionic/v2", 0) == 0) {
      check_ionic_wqe(vector);
      ++entries;
    } else if (vector.layout == "ionic.doorbell") {
      const absl::StatusOr<IonicDoorbell> doorbell = decode_ionic_doorbell(word_of(vector.bytes));
      ASSERT_EQ(doorbell.ok(), !vector.has("arm")) << vector.name;
      if (!doorbell.ok()) continue;
      EXPECT_EQ(doorbell->qid, vector.number("qid"));
      EXPECT_EQ(doorbell->index, vector.number("index"));
    } else if (vector.layout == "ionic.cqe") {
      EXPECT_EQ(
          bytes_of(encode_ionic_cqe({.msg_msn = static_cast<uint32_t>(vector.number("msg_msn")),
                                     .wqe_index = static_cast<uint16_t>(vector.number("wqe_index")),
                                     .status = static_cast<uint32_t>(vector.number("status")),
                                     .qid = static_cast<uint32_t>(vector.number("qid")),
                                     .type = static_cast<uint8_t>(vector.number("type")),
                                     .color = static_cast<uint8_t>(vector.number("color"))})),
          vector.bytes)
          << vector.name;
    }
  }
  EXPECT_EQ(entries, 7u);
}

}  // namespace
}  // namespace cco
