// Entries, doorbells and completions of NICs, as kernels write and read them.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "cco/device/impl/nic_queue.h"
#include "tests/support/golden.h"

namespace cco::device::impl {
namespace {

using testing::GoldenVector;
using testing::read_golden;

template <typename T>
std::vector<uint8_t> bytes_of(const T& value) {
  std::vector<uint8_t> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

GoldenVector find(const std::string& file, const std::string& name) {
  for (const GoldenVector& vector : read_golden(file)) {
    if (vector.name == name) return vector;
  }
  ADD_FAILURE() << name << " is not in " << file;
  return {};
}

/// What a vector asks for, but for its fences.
NicRequest request_of(const GoldenVector& vector, NicKind kind, bool completion) {
  NicRequest request{};
  request.kind = kind;
  request.completion = completion;
  request.remote_key = static_cast<uint32_t>(vector.number("rkey", 0));
  request.local_key = static_cast<uint32_t>(vector.number("lkey", 0));
  request.remote_offset = vector.number("raddr", 0);
  request.local_offset = vector.number("laddr", 0);
  request.bytes = static_cast<uint32_t>(vector.number("length", 0));
  request.value = vector.number("swap_add", 0);
  if (kind == NicKind::kInline) {
    const std::vector<uint8_t> data = vector.raw("data");
    request.bytes = static_cast<uint32_t>(data.size());
    std::memcpy(&request.value, data.data(), data.size());
  }
  return request;
}

struct Case {
  const char* name;
  NicKind kind;
  bool completion;
};

// Goal    kernels write ConnectX entries as the vendor's structs lay them out.
// Method  the golden vectors of the operations that are used. The read's vector has a fence, which
//         is not used, in byte 11.
TEST(NicGolden, Mlx5Entries) {
  for (const Case& c : {Case{"mlx5/rdma_write_signaled", NicKind::kWrite, true},
                        Case{"mlx5/rdma_write_index_wrap", NicKind::kWrite, true},
                        Case{"mlx5/rdma_read_signaled_fence", NicKind::kRead, true},
                        Case{"mlx5/rdma_write_inline_8", NicKind::kInline, false},
                        Case{"mlx5/atomic_fa", NicKind::kFetchAdd, true},
                        Case{"mlx5/nop", NicKind::kNothing, true}}) {
    GoldenVector vector = find("mlx5.txt", c.name);
    ASSERT_FALSE(vector.bytes.empty());
    if (c.kind == NicKind::kRead) vector.bytes[11] &= 0x1f;
    vector.bytes.resize(64);  // Of a nop only the control segment is given.
    // The index counts on beyond the 16 bits that the NIC is told.
    const uint64_t index = 0x70000 + vector.number("index");
    const auto qpn = static_cast<uint32_t>(vector.number("qpn"));
    EXPECT_EQ(bytes_of(Mlx5::encode(request_of(vector, c.kind, c.completion), index, qpn)),
              vector.bytes)
        << c.name;
  }
}

// Goal    ConnectX doorbells and doorbell records, also where the index wraps.
// Method  golden vectors, with running counts.
TEST(NicGolden, Mlx5Doorbells) {
  const GoldenVector next = find("mlx5.txt", "mlx5/doorbell_next");
  EXPECT_EQ(bytes_of(Mlx5::doorbell(0x12a, 0x30000 + next.number("next_index"))), next.bytes);
  for (const char* const name : {"mlx5/qp_dbr_send", "mlx5/qp_dbr_send_wrap"}) {
    const GoldenVector record = find("mlx5.txt", name);
    ASSERT_EQ(record.bytes.size(), 8u);
    EXPECT_EQ(bytes_of(Mlx5::doorbell_record(record.number("send"))),
              std::vector<uint8_t>(record.bytes.begin() + 4, record.bytes.end()))
        << name;
  }
}

// Goal    kernels write Thor2 entries as the vendor's structs lay them out.
// Method  golden vectors.
TEST(NicGolden, BnxtEntries) {
  for (const Case& c : {Case{"bnxt/rdma_write_signaled", NicKind::kWrite, true},
                        Case{"bnxt/rdma_write_inline_8", NicKind::kInline, true},
                        Case{"bnxt/rdma_read_signaled", NicKind::kRead, true},
                        Case{"bnxt/atomic_fa", NicKind::kFetchAdd, true}}) {
    const GoldenVector vector = find("bnxt.txt", c.name);
    EXPECT_EQ(bytes_of(Bnxt::encode(request_of(vector, c.kind, c.completion))), vector.bytes)
        << c.name;
  }
}

// Goal    Thor2 doorbells, whose epoch flips with each lap, and message table entries.
// Method  golden vectors; the index counts on over laps of a ring of 64.
TEST(NicGolden, BnxtDoorbellsAndMessageTable) {
  for (const char* const name : {"bnxt/doorbell_sq", "bnxt/doorbell_sq_second_lap"}) {
    const GoldenVector vector = find("bnxt.txt", name);
    const uint64_t next = (8 + vector.number("epoch")) * 64 + vector.number("index");
    EXPECT_EQ(bytes_of(Bnxt::doorbell(static_cast<uint32_t>(vector.number("qid")), next, 64)),
              vector.bytes)
        << name;
  }
  for (const char* const name : {"bnxt/msn_one_packet", "bnxt/msn_psn_wrap"}) {
    const GoldenVector vector = find("bnxt.txt", name);
    const uint64_t psn = 0x5000000 + vector.number("start_psn");
    EXPECT_EQ(bytes_of(Bnxt::msn_entry(vector.number("start_slot"), psn, psn + 1)), vector.bytes)
        << name;
  }
}

// Goal    every message takes the sequence numbers that the NIC will count: none less than one.
// Method  lengths around the packet's, of both directions.
TEST(Bnxt, CountsPackets) {
  const auto packets = [](NicKind kind, uint32_t bytes) {
    NicRequest request{};
    request.kind = kind;
    request.bytes = bytes;
    return Bnxt::packets(request, 4096);
  };
  for (const NicKind kind : {NicKind::kWrite, NicKind::kRead}) {
    EXPECT_EQ(packets(kind, 1), 1u);
    EXPECT_EQ(packets(kind, 4096), 1u);
    EXPECT_EQ(packets(kind, 4097), 2u);
    EXPECT_EQ(packets(kind, CCO_GDA_MAX_MESSAGE_BYTES), 0x40000u);
  }
  EXPECT_EQ(packets(NicKind::kNothing, 0), 1u);
  EXPECT_EQ(packets(NicKind::kInline, 8), 1u);
  EXPECT_EQ(packets(NicKind::kFetchAdd, 8), 1u);
}

// Goal    kernels write Pollara entries as the vendor's structs lay them out, colour included.
// Method  golden vectors in a ring of 256; the index counts on over two, or three, laps.
TEST(NicGolden, IonicEntriesAndDoorbell) {
  for (const Case& c : {Case{"ionic/v2_rdma_write", NicKind::kWrite, true},
                        Case{"ionic/v2_rdma_write_second_lap", NicKind::kWrite, true},
                        Case{"ionic/v2_rdma_write_inline_8", NicKind::kInline, false},
                        Case{"ionic/v2_rdma_read", NicKind::kRead, true},
                        Case{"ionic/v2_atomic_fa", NicKind::kFetchAdd, true}}) {
    const GoldenVector vector = find("ionic.txt", c.name);
    const uint64_t lap = (vector.number("flags") & 0x10) != 0 ? 2 : 3;
    EXPECT_EQ(bytes_of(Ionic::encode(request_of(vector, c.kind, c.completion),
                                     lap * 256 + vector.number("index"), 256)),
              vector.bytes)
        << c.name;
  }
  const GoldenVector doorbell = find("ionic.txt", "ionic/doorbell_sq");
  EXPECT_EQ(bytes_of(Ionic::doorbell(static_cast<uint32_t>(doorbell.number("qid")),
                                     5 * 256 + doorbell.number("index"), 256)),
            doorbell.bytes);
}

// Goal    an entry that moves nothing never has a data segment of no bytes, which mlx5 and its
//         ancestors read as 2 GiB; where there is no such operation it is a write of no bytes.
// Method  the three encoders' control bytes.
TEST(Encoders, MoveNothing) {
  NicRequest request{};
  request.remote_key = 7;
  EXPECT_EQ(be32(Mlx5::encode(request, 0, 0x12a).word[1]) & 0x3f, 1u);
  const Bnxt::Entry bnxt = Bnxt::encode(request);
  EXPECT_EQ(bnxt.word[0], 0x04u | 0x10u << 8 | 3u << 16);
  EXPECT_EQ(bnxt.word[2], 0u);
  const Ionic::Entry ionic = Ionic::encode(request, 0, 16);
  EXPECT_EQ(ionic.word[2], 0x21u | be32(0x14));
  EXPECT_EQ(ionic.word[7], 0u);
}

// Goal    values of less than 8 bytes are sent with nothing of their neighbours.
// Method  a word whose high bytes are dirty, in each length and format.
TEST(Encoders, InlineValuesAreCut) {
  for (const uint32_t bytes : {1u, 2u, 4u}) {
    NicRequest request{};
    request.kind = NicKind::kInline;
    request.bytes = bytes;
    request.value = ~uint64_t{0};
    const uint32_t low = static_cast<uint32_t>((uint64_t{1} << 8 * bytes) - 1);
    EXPECT_EQ(Mlx5::encode(request, 0, 1).word[9], low);
    EXPECT_EQ(Mlx5::encode(request, 0, 1).word[10], 0u);
    EXPECT_EQ(Bnxt::encode(request).word[8], low);
    EXPECT_EQ(Bnxt::encode(request).word[9], 0u);
    EXPECT_EQ(Ionic::encode(request, 0, 16).word[8], low);
    EXPECT_EQ(Ionic::encode(request, 0, 16).word[9], 0u);
  }
}

/// A queue's completion entry, its state, and what `look` makes of them.
struct Completion {
  alignas(64) uint8_t entry[64] = {};
  uint64_t rung = 0;

  template <typename N>
  NicProgress look(uint64_t done, uint32_t depth) {
    cco_gda_queue queue{};
    queue.sq_depth = depth;
    queue.cq = reinterpret_cast<uint64_t>(entry);
    return N::look(queue, done, &rung);
  }
  void fill(const GoldenVector& vector) {
    ASSERT_LE(vector.bytes.size(), sizeof entry);
    std::memcpy(entry, vector.bytes.data(), vector.bytes.size());
  }
};

// Goal    completions of all formats are read: success, error with its status, and nothing yet.
// Method  golden vectors, read with running counts far beyond what the entries hold.
TEST(NicGolden, Completions) {
  Completion completion;
  completion.rung = 0x51240;
  completion.fill(find("mlx5.txt", "mlx5/cqe_req_ok"));  // Block 0x1234.
  EXPECT_EQ(completion.look<Mlx5>(0x51200, 1024).completed, 0x51235u);
  completion.fill(find("mlx5.txt", "mlx5/cqe_req_err"));
  EXPECT_TRUE(completion.look<Mlx5>(0x51200, 1024).failed);
  EXPECT_EQ(completion.look<Mlx5>(0x51200, 1024).syndrome, 0x13u);
  completion.fill(find("mlx5.txt", "mlx5/cqe_flushed"));
  EXPECT_EQ(completion.look<Mlx5>(0x51200, 1024).syndrome, 5u);
  completion.fill(find("mlx5.txt", "mlx5/cqe_initial"));
  EXPECT_EQ(completion.look<Mlx5>(0x51200, 1024).completed, 0x51200u);
  EXPECT_FALSE(completion.look<Mlx5>(0x51200, 1024).failed);

  completion.rung = 0x700c;
  completion.fill(find("bnxt.txt", "bnxt/cqe_req_ok"));  // Index 9.
  EXPECT_EQ(completion.look<Bnxt>(0x7003, 64).completed, 0x7009u);
  completion.fill(find("bnxt.txt", "bnxt/cqe_req_flushed"));
  EXPECT_TRUE(completion.look<Bnxt>(0x7003, 64).failed);
  EXPECT_EQ(completion.look<Bnxt>(0x7003, 64).syndrome, 0xbu);

  completion.rung = 0x3000130;
  completion.fill(find("ionic.txt", "ionic/cqe_send_msn"));  // Message 0x123.
  EXPECT_EQ(completion.look<Ionic>(0x3000100, 256).completed, 0x3000123u);
  completion.fill(find("ionic.txt", "ionic/cqe_send_npg_error"));
  EXPECT_TRUE(completion.look<Ionic>(0x3000100, 256).failed);
  EXPECT_EQ(completion.look<Ionic>(0x3000100, 256).syndrome, 9u);
}

// Goal    before the first completion nothing is completed, whatever the entry's first bytes say.
// Method  mlx5 entries of all ones, the other formats' of zeros, with work outstanding.
TEST(Completions, NoneYet) {
  Completion completion;
  completion.rung = 60;
  EXPECT_EQ(completion.look<Bnxt>(0, 64).completed, 0u);
  EXPECT_EQ(completion.look<Ionic>(0, 64).completed, 0u);
  std::memset(completion.entry, 0xff, sizeof completion.entry);
  EXPECT_EQ(completion.look<Mlx5>(0, 64).completed, 0u);
  EXPECT_FALSE(completion.look<Mlx5>(0, 64).failed);
}

// Goal    counts are rebuilt from 16 or 24 bits across every wrap; a word that is older than what
//         is known, or newer than what was rung, changes nothing.
// Method  windows around the wraps of 16, 24, 32 and 64 bits, every distance in them.
TEST(Counts, WidenAcrossWraps) {
  for (const uint64_t mask : {uint64_t{0xffff}, uint64_t{0xffffff}}) {
    for (const uint64_t start : {uint64_t{0}, uint64_t{0xfff0}, uint64_t{0xfffff0},
                                 uint64_t{0xfffffff0}, ~uint64_t{0} - 15}) {
      for (uint64_t ahead = 0; ahead <= 40; ++ahead) {
        const uint64_t done = start;
        const uint64_t rung = start + 32;
        const uint64_t expected = ahead <= 32 ? start + ahead : start;
        EXPECT_EQ(widen_count((start + ahead) & mask, mask, done, rung), expected);
      }
      EXPECT_EQ(widen_count((start - 1) & mask, mask, start, start + 32), start);
      EXPECT_EQ(widen_count((start - 4096) & mask, mask, start, start + 32), start);
      EXPECT_EQ(widen_count((start - 1) & mask, mask, start, start), start);
    }
  }
}

// Goal    a count moves up to a target and never back, also where it wraps: a maximum of numbers
//         would stick at the wrap.
// Method  targets around the wrap of 64 bits, in both orders.
TEST(Counts, RaiseBySignedDifference) {
  uint64_t word = ~uint64_t{0} - 3;
  raise_to(&word, ~uint64_t{0});
  EXPECT_EQ(word, ~uint64_t{0});
  raise_to(&word, 5);
  EXPECT_EQ(word, 5u);
  raise_to(&word, ~uint64_t{0});
  EXPECT_EQ(word, 5u);
  raise_to(&word, 5);
  EXPECT_EQ(word, 5u);
}

// Goal    every length is cut into the fewest messages; none is empty but that of no bytes.
// Method  lengths around multiples of the largest message, beyond 4 GiB included.
TEST(Counts, PartsOfALength) {
  constexpr uint64_t kMost = CCO_GDA_MAX_MESSAGE_BYTES;
  EXPECT_EQ(count_parts(0, kMost), 1u);
  EXPECT_EQ(count_parts(1, kMost), 1u);
  EXPECT_EQ(count_parts(kMost, kMost), 1u);
  EXPECT_EQ(count_parts(kMost + 1, kMost), 2u);
  EXPECT_EQ(count_parts(5 * kMost, kMost), 5u);
  NicWork work{};
  work.data.kind = NicKind::kWrite;
  work.data.remote_offset = 3;
  work.data_bytes = 4 * kMost + 7;
  work.data_count = count_parts(work.data_bytes, kMost);
  ASSERT_EQ(work.data_count, 5u);
  EXPECT_EQ(work.operation(3, kMost).bytes, kMost);
  EXPECT_EQ(work.operation(4, kMost).bytes, 7u);
  EXPECT_EQ(work.operation(4, kMost).remote_offset, 3 + 4 * kMost);
  EXPECT_EQ(work.operation(4, kMost).local_offset, 4 * kMost);
}

}  // namespace
}  // namespace cco::device::impl
