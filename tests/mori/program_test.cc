// Whole programs as written for MORI CCO: host calls, then kernels, on host threads.
#include <algorithm>
#include <cstring>
#include <string>

#include "tests/device/module_launch.h"
#include "tests/mori/node.h"

namespace cco::kernels {
const KernelModule& mori_lsa();
const KernelModule& mori_sdma();
const KernelModule& mori_gda();
}  // namespace cco::kernels

namespace cco::test {
namespace {

using device::HostLaunch;
using mori::cco::ccoBarrierAll;
using mori::cco::ccoDevComm;
using mori::cco::ccoDevCommCopyToDevice;
using mori::cco::ccoDevCommCreate;
using mori::cco::ccoDevCommFreeDeviceCopy;
using mori::cco::ccoDevCommRequirements;
using mori::cco::ccoMemAlloc;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowRegister;
using testing::launch;

// A word that tells sender, receiver, place and round apart.
uint64_t word_of(int from, int to, size_t at, uint64_t round) {
  return round << 48 | uint64_t(from) << 40 | uint64_t(to) << 32 | at;
}

class ProgramTest : public MoriTest {
 protected:
  void TearDown() override {
    for (const char* name : {"CCO_LSA_SIZE", "CCO_GDA_PROVIDER", "CCO_SDMA_PROVIDER"}) {
      ::unsetenv(name);
    }
    MoriTest::TearDown();
  }
  void set(const char* name, const char* value) { ASSERT_EQ(::setenv(name, value, 1), 0); }
};

// A rank's window of words, in memory of its own.
struct Words {
  Words(mori::cco::ccoComm* comm, size_t count) {
    void* memory = nullptr;
    CCO_EXPECT_OK(ccoMemAlloc(comm, count * 8, &memory));
    CCO_EXPECT_OK(ccoWindowRegister(comm, memory, count * 8, &window));
    data = static_cast<uint64_t*>(memory);
    std::fill_n(data, count, ~uint64_t{0});
  }
  ccoWindow_t window = nullptr;
  uint64_t* data = nullptr;
};

// Goal    LSA programs: sums over all copies, with every group of threads, on the first and the
//         last barrier of both handles.
// Method  three ranks; a device copy of the communicator; each rank checks its sums.
TEST_F(ProgramTest, LsaSum) {
  run(3, [](const Rank& self) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.lsaBarrierCount = 2;
    wanted.barrierCount = 3;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    ccoDevComm* const on_device = ccoDevCommCopyToDevice(&dev_comm);
    ASSERT_NE(on_device, nullptr) << mori::cco::ccoGetLastErrorText();
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, 4096, &window, &local));
    const int* const sums = static_cast<int*>(local) + 100;
    for (int scope = 0; scope < 3; ++scope) {
      for (int hybrid = 0; hybrid < 2; ++hybrid) {
        std::memset(local, 0xff, 4096);
        CCO_ASSERT_OK(ccoBarrierAll(self.comm));
        int late = -1;
        launch(kernels::mori_lsa(), "lsa_sum", HostLaunch{1, 4, 0}, on_device, window, 100, scope,
               hybrid, &late);
        EXPECT_EQ(late, 0);
        for (int i = 0; i < 100; ++i) ASSERT_EQ(sums[i], 0 + 1 + 2 + 3 * i) << i;
        CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      }
    }
    ccoDevCommFreeDeviceCopy(on_device);
  });
}

// Goal    a kernel sees its place in a group of several nodes, and finds windows by address.
// Method  four ranks on two nodes of two.
TEST_F(ProgramTest, Places) {
  set("CCO_LSA_SIZE", "2");
  run(4, [](const Rank& self) {
    const ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    int seen[16] = {};
    launch(kernels::mori_lsa(), "lsa_places", HostLaunch{1, 2, 0}, dev_comm, seen);
    const int node = self.rank / 2, lsa_rank = self.rank % 2;
    const int expected[] = {self.rank,
                            4,
                            lsa_rank,
                            2,
                            2 * node,
                            400 + 10 * self.rank + 1,
                            200 + 10 * lsa_rank + 1,
                            201,
                            102,
                            2 * node,
                            node == 0 ? 2 : 0,
                            (node == 0 ? 2 : 0) + lsa_rank,
                            1,
                            2,
                            mori::cco::CCO_GDA_CONNECTION_CROSSNODE,
                            0};
    for (int i = 0; i < 16; ++i) EXPECT_EQ(seen[i], expected[i]) << i;
    Words words(self.comm, 16);
    ccoWindow_t found[2] = {};
    launch(kernels::mori_lsa(), "lsa_find", HostLaunch{1, 1, 0}, &dev_comm,
           static_cast<const void*>(words.data + 15), static_cast<const void*>(words.data + 16),
           static_cast<ccoWindow_t*>(found));
    EXPECT_EQ(found[0], words.window);
    EXPECT_EQ(found[1], nullptr);
  });
}

// What every rank has to send to each, and room for what it gets.
void fill_outgoing(Words* words, int rank, int size, size_t chunk_words, uint64_t round) {
  for (int to = 0; to < size; ++to) {
    for (size_t i = 0; i < chunk_words; ++i) {
      words->data[size_t(to) * chunk_words + i] = word_of(rank, to, i, round);
    }
  }
}
void expect_incoming(const Words& words, int rank, int size, size_t chunk_words, uint64_t round,
                     bool own) {
  for (int from = 0; from < size; ++from) {
    if (from == rank && !own) continue;
    for (size_t i = 0; i < chunk_words; ++i) {
      ASSERT_EQ(words.data[size_t(size + from) * chunk_words + i], word_of(from, rank, i, round))
          << "from " << from << " at " << i;
    }
  }
}

// Goal    SDMA programs: puts with remote signals, which only grow, gets with every group of
//         threads, aggregation, signals per copy, and zero bytes that signal.
// Method  three ranks, all to all, several rounds, through the daemon's choice of provider.
TEST_F(ProgramTest, Sdma) {
  constexpr size_t kChunkWords = 513;
  run(3, [](const Rank& self) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.sdmaQueueCount = 2;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    EXPECT_EQ(dev_comm.sdma.sdmaNumQueue, 2u);
    Words words(self.comm, 2 * 3 * kChunkWords);
    uint64_t failure = 0;
    for (uint64_t round = 1; round <= 3; ++round) {
      fill_outgoing(&words, self.rank, 3, kChunkWords, round);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      launch(kernels::mori_sdma(), "sdma_all_to_all", HostLaunch{1, 2, 0}, dev_comm, words.window,
             kChunkWords * 8, round, &failure);
      EXPECT_EQ(failure, 0u);
      expect_incoming(words, self.rank, 3, kChunkWords, round, true);
      EXPECT_EQ(dev_comm.sdma.signalBuf[2 * 0], round) << "sender 0, queue 0";
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
    for (int scope = 0; scope < 3; ++scope) {
      const uint64_t round = 10 + uint64_t(scope);
      fill_outgoing(&words, self.rank, 3, kChunkWords, round);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      launch(kernels::mori_sdma(), "sdma_pull", HostLaunch{1, 2, 0}, dev_comm, words.window,
             kChunkWords * 8, scope, &failure);
      EXPECT_EQ(failure, 0u);
      expect_incoming(words, self.rank, 3, kChunkWords, round, true);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
    launch(kernels::mori_sdma(), "sdma_refused", HostLaunch{1, 1, 0}, dev_comm, words.window,
           &failure);
    EXPECT_NE(failure, 0u);
  });
}

// Goal    aggregated pieces arrive, and local signals count copies.
// Method  two ranks; each sends four pieces to the other.
TEST_F(ProgramTest, SdmaPieces) {
  constexpr size_t kPieceWords = 32;
  run(2, [](const Rank& self) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.sdmaQueueCount = 2;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    Words words(self.comm, 4 * 4 * kPieceWords);
    fill_outgoing(&words, self.rank, 2, 4 * kPieceWords, 1);
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    uint64_t failure = 0;
    launch(kernels::mori_sdma(), "sdma_pieces", HostLaunch{1, 3, 0}, dev_comm, words.window,
           kPieceWords * 8, &failure);
    EXPECT_EQ(failure, 0u);
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    const int peer = 1 - self.rank;
    for (size_t i = 0; i < 4 * kPieceWords; ++i) {
      ASSERT_EQ(words.data[size_t(2 + peer) * 4 * kPieceWords + i], word_of(peer, 0, i, 1)) << i;
    }
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
  });
}

struct GdaCase {
  const char* provider;
  const char* lsa_size;
  int size;
  mori::cco::ccoGdaConnectionType connection;
};

class GdaProgramTest : public ProgramTest, public ::testing::WithParamInterface<GdaCase> {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    set("CCO_LSA_SIZE", GetParam().lsa_size);
    set("CCO_GDA_PROVIDER", GetParam().provider);
  }
  static ccoDevCommRequirements wanted() {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.gdaConnectionType = GetParam().connection;
    wanted.gdaContextCount = 2;
    wanted.railGdaBarrierCount = 2;
    wanted.barrierCount = 2;
    return wanted;
  }
};

// What needs a connection to everybody.
class GdaFullProgramTest : public GdaProgramTest {};

// Goal    GDA programs: puts with signals between all ranks; a wait consumes.
// Method  all to all over a full connection, twice; nothing of the signal is left.
TEST_P(GdaFullProgramTest, AllToAll) {
  constexpr size_t kChunkWords = 65;
  run(GetParam().size, [](const Rank& self) {
    const ccoDevCommRequirements requirements = wanted();
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &requirements, &dev_comm));
    Words words(self.comm, 2 * size_t(self.size) * kChunkWords);
    for (uint64_t round = 1; round <= 2; ++round) {
      fill_outgoing(&words, self.rank, self.size, kChunkWords, round);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      uint64_t out[5] = {99, 99, 99, 99, 99};
      launch(kernels::mori_gda(), "gda_all_to_all", HostLaunch{1, 3, 0}, dev_comm, words.window,
             kChunkWords * 8, static_cast<uint64_t*>(out));
      EXPECT_EQ(out[0], 0u);
      EXPECT_EQ(out[1], 0u) << "consumed";
      EXPECT_EQ(out[2], uint64_t(self.rank));
      EXPECT_EQ(out[3], uint64_t(self.size));
      EXPECT_EQ(out[4], 0u);
      expect_incoming(words, self.rank, self.size, kChunkWords, round, false);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
  });
}

// Goal    every other operation does what MORI's does.
// Method  each rank with its counterpart on the next node, by warp and by block.
TEST_P(GdaProgramTest, Operations) {
  run(GetParam().size, [](const Rank& self) {
    const ccoDevCommRequirements requirements = wanted();
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &requirements, &dev_comm));
    EXPECT_EQ(dev_comm.ibgda.numQpPerPe, 2);
    EXPECT_EQ(dev_comm.ibgda.signalCount, 16);
    const int to = (self.rank + dev_comm.lsaSize) % self.size;
    const int from = (self.rank + self.size - dev_comm.lsaSize) % self.size;
    Words words(self.comm, 128);
    for (int scope = 1; scope <= 2; ++scope) {
      for (size_t i = 0; i < 64; ++i) words.data[i] = word_of(self.rank, 0, i, uint64_t(scope));
      std::fill_n(words.data + 64, 64, ~uint64_t{0});
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      uint64_t out[7] = {99, 99, 99, 99, 99, 99, 99};
      launch(kernels::mori_gda(), "gda_operations", HostLaunch{1, 4, 0}, dev_comm, words.window, to,
             scope, static_cast<uint64_t*>(out));
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
      EXPECT_EQ(out[0], 0u) << "7 were signalled, 3 and 4 consumed";
      EXPECT_EQ(out[1], 1u) << "counter";
      EXPECT_EQ(out[2], 0u) << "counter reset";
      EXPECT_EQ(out[3], 0u) << "signal reset";
      EXPECT_EQ(out[4], 0u) << "failure";
      EXPECT_EQ(out[5], uint64_t(to));
      EXPECT_EQ(out[6], uint64_t(self.size));
      const auto theirs = [&](int rank, size_t i) { return word_of(rank, 0, i, uint64_t(scope)); };
      EXPECT_EQ(words.data[64], 0x1122334455667788u);
      EXPECT_EQ(words.data[65], 0xffffffff00000007u) << "four bytes";
      EXPECT_EQ(words.data[66], theirs(from, 0));
      EXPECT_EQ(words.data[67], theirs(from, 1));
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(words.data[70 + i], theirs(to, 1 + i));
      EXPECT_EQ(words.data[73], theirs(to, 0));
      EXPECT_EQ(words.data[80], theirs(from, 0));
      EXPECT_EQ(words.data[81], theirs(from, 0));
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
  });
}

// Goal    the barrier session meets the whole GDA team, on rail and hybrid handles.
// Method  several rounds of values to the whole team, which must be there after each barrier.
TEST_P(GdaProgramTest, Barrier) {
  run(GetParam().size, [](const Rank& self) {
    const ccoDevCommRequirements requirements = wanted();
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &requirements, &dev_comm));
    Words words(self.comm, 64);
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    for (int hybrid = 0; hybrid < 2; ++hybrid) {
      uint64_t out[2] = {0, 0};
      launch(kernels::mori_gda(), "gda_meet", HostLaunch{1, 2, 0}, &dev_comm, words.window, 3,
             hybrid, static_cast<uint64_t*>(out));
      EXPECT_EQ(out[0], 0u) << "failure";
      EXPECT_EQ(out[1], 0u) << "words that were not there";
    }
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
  });
}

std::string name_of(const ::testing::TestParamInfo<GdaCase>& info) {
  return std::string(info.param.provider) + "_" + std::to_string(info.param.size) + "_" +
         std::to_string(info.param.connection);
}

constexpr auto kFull = mori::cco::CCO_GDA_CONNECTION_FULL;
constexpr auto kCrossNode = mori::cco::CCO_GDA_CONNECTION_CROSSNODE;
constexpr auto kRail = mori::cco::CCO_GDA_CONNECTION_RAIL;

INSTANTIATE_TEST_SUITE_P(Providers, GdaFullProgramTest,
                         ::testing::Values(GdaCase{"proxy", "2", 4, kFull},
                                           GdaCase{"mlx5", "1", 2, kFull},
                                           GdaCase{"bnxt", "1", 3, kFull},
                                           GdaCase{"ionic", "2", 2, kFull}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Providers, GdaProgramTest,
    ::testing::Values(GdaCase{"proxy", "1", 2, kFull}, GdaCase{"proxy", "2", 4, kRail},
                      GdaCase{"mlx5", "2", 4, kCrossNode}, GdaCase{"mlx5", "1", 3, kRail},
                      GdaCase{"bnxt", "2", 4, kRail}, GdaCase{"bnxt", "1", 3, kFull},
                      GdaCase{"ionic", "1", 2, kCrossNode}, GdaCase{"ionic", "2", 4, kFull}),
    name_of);

}  // namespace
}  // namespace cco::test
