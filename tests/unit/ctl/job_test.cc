#include <gtest/gtest.h>

#include "client/job/rank.h"
#include "client/job/rank_job.h"
#include "client/job/text.h"
#include "client/job/verify.h"
#include "device/kernels/exchange_pattern.h"
#include "device/kernels/routing_reference.h"

namespace cco::job {
namespace {

std::vector<uint8_t> chunk_of(uint32_t sender, uint64_t round, size_t bytes) {
  std::vector<uint8_t> chunk(bytes);
  for (size_t i = 0; i < bytes; ++i) chunk[i] = kernels::exchange_byte(sender, round, i);
  return chunk;
}

// Goal    words are what white space separates, wherever it stands.
// Method  blanks at both ends, runs of them, every kind; an empty text.
TEST(Text, SplitsAtWhiteSpace) {
  EXPECT_EQ(tokenize(" one\ttwo\r\n\n one "),
            (std::vector<uint64_t>{token_id("one"), token_id("two"), token_id("one")}));
  EXPECT_TRUE(tokenize("").empty());
  EXPECT_TRUE(tokenize(" \n ").empty());
  EXPECT_EQ(tokenize("last").size(), 1u);
}

// Goal    the hash is FNV-1a, so that others can compute the same ids.
// Method  the published values of the empty string and of "foobar".
TEST(Text, HashesAsPublished) {
  static_assert(token_id("") == 0xcbf29ce484222325);
  EXPECT_EQ(token_id("foobar"), 0x85944171f73967e8u);
}

// Goal    a text that is not there is named.
// Method  read one.
TEST(Text, NamesAMissingFile) {
  const absl::Status status = read_tokens("/nonexistent/text").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("/nonexistent/text"), std::string::npos);
}

// Goal    no GPU is two processes' while there are GPUs enough, and every GPU is somebody's.
// Method  all ranks of a node, by processes, ranks of each, and GPUs.
TEST(Rank, ProcessesShareOutGpus) {
  const auto devices = [](uint32_t processes, uint32_t count, size_t gpus) {
    std::vector<int32_t> found;
    for (uint32_t process = 0; process < processes; ++process) {
      const Place place{process, processes, process, processes, "job"};
      for (uint32_t i = 0; i < count; ++i) {
        found.push_back(device_of(place, count, process * count + i, gpus));
      }
    }
    return found;
  };
  using Devices = std::vector<int32_t>;
  EXPECT_EQ(devices(2, 2, 2), (Devices{0, 0, 1, 1}));
  EXPECT_EQ(devices(1, 4, 2), (Devices{0, 1, 0, 1}));
  EXPECT_EQ(devices(4, 1, 4), (Devices{0, 1, 2, 3}));
  EXPECT_EQ(devices(4, 1, 2), (Devices{0, 1, 0, 1}));
  EXPECT_EQ(devices(2, 3, 4), (Devices{0, 1, 0, 2, 3, 2}));
  EXPECT_EQ(devices(2, 2, 1), (Devices{0, 0, 0, 0}));
}

// Goal    every differing byte of a chunk is found, and named with both values, at any length.
// Method  flip each byte of chunks of odd and even lengths in turn.
TEST(Verify, FindsEveryByte) {
  for (const size_t bytes : {1u, 7u, 8u, 31u}) {
    std::vector<uint8_t> chunk = chunk_of(3, 5, bytes);
    EXPECT_TRUE(verify_chunk(chunk, 3, 5).ok());
    for (size_t i = 0; i < bytes; ++i) {
      chunk[i] ^= 0x10;
      const absl::Status status = verify_chunk(chunk, 3, 5);
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_NE(status.message().find(absl::StrCat("offset ", i, " of ", bytes, ": expected 0x")),
                std::string::npos)
          << status;
      chunk[i] ^= 0x10;
    }
  }
}

// Goal    bytes of another sender or round do not pass.
// Method  verify a chunk as what it is not.
TEST(Verify, TellsSendersAndRoundsApart) {
  const std::vector<uint8_t> chunk = chunk_of(1, 1, 4096);
  EXPECT_FALSE(verify_chunk(chunk, 2, 1).ok());
  EXPECT_FALSE(verify_chunk(chunk, 1, 2).ok());
}

// Goal    a wrong lane of a sum is found and named.
// Method  the reference's own sums, then one bit of the last lane flipped.
TEST(Verify, FindsAWrongSum) {
  const std::vector<uint64_t> ids = tokenize("it is a truth universally acknowledged");
  std::vector<uint32_t> sums;
  for (const uint64_t id : ids) {
    const kernels::TokenVector sum = kernels::route_reference(id);
    sums.insert(sums.end(), sum.begin(), sum.end());
  }
  EXPECT_TRUE(verify_routing(ids, sums).ok());
  sums.back() ^= 1;
  const absl::Status status = verify_routing(ids, sums);
  EXPECT_NE(status.message().find("token 5"), std::string::npos) << status;
  EXPECT_NE(status.message().find("lane 15"), std::string::npos) << status;
}

// Goal    ranks that are two processes on one GPU are named; one process's, or other GPUs, are not.
// Method  three constellations.
TEST(SharedGpu, IsNamed) {
  const auto rank = [](uint64_t pid, uint64_t gpu) {
    RankSummary summary{};
    summary.pid = pid;
    summary.gpu = gpu;
    return summary;
  };
  EXPECT_EQ(shared_gpu_warning({rank(1, 10), rank(1, 10), rank(2, 11)}), "");
  const std::string warning = shared_gpu_warning({rank(1, 10), rank(2, 11), rank(3, 11)});
  EXPECT_NE(warning.find("ranks 1 and 2"), std::string::npos) << warning;
  EXPECT_NE(warning.find("--ranks-per-process"), std::string::npos) << warning;
}

}  // namespace
}  // namespace cco::job
