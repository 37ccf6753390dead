// Whole programs as written for MORI CCO: host calls, then kernels, on whatever driver there is.
#include <algorithm>
#include <string>
#include <vector>

#include "device/kernels/kernels.h"
#include "tests/mori/program_node.h"

namespace cco::kernels {
const KernelModule& mori_lsa();
const KernelModule& mori_sdma();
const KernelModule& mori_gda();
}  // namespace cco::kernels

namespace cco::test {
namespace {

using mori::cco::ccoBarrierAll;
using mori::cco::ccoDevComm;
using mori::cco::ccoDevCommCopyToDevice;
using mori::cco::ccoDevCommCreate;
using mori::cco::ccoDevCommFreeDeviceCopy;
using mori::cco::ccoDevCommRequirements;
using mori::cco::ccoMemAlloc;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowRegister;

constexpr size_t kOutWords = 16;

// A word that tells sender, receiver, place and round apart.
uint64_t word_of(int from, int to, size_t at, uint64_t round) {
  return round << 48 | uint64_t(from) << 40 | uint64_t(to) << 32 | at;
}

// A rank's window of words, in memory of its own, and behind it what a kernel has to say.
class Words {
 public:
  Words(ProgramRank& rank, size_t count) : rank_(rank), count_(count) {
    void* memory = nullptr;
    CCO_EXPECT_OK(ccoMemAlloc(rank.comm, (count + kOutWords) * 8, &memory));
    CCO_EXPECT_OK(ccoWindowRegister(rank.comm, memory, (count + kOutWords) * 8, &window));
    data = static_cast<uint64_t*>(memory);
    set(std::vector<uint64_t>(count, ~uint64_t{0}));
    reset_out(0);
  }
  /// The first ones.
  void set(const std::vector<uint64_t>& words) { rank_.write(data, words); }
  std::vector<uint64_t> get() const { return rank_.read<uint64_t>(data, count_); }

  uint64_t* out() const { return data + count_; }
  void reset_out(uint64_t value) { rank_.write(out(), std::vector<uint64_t>(kOutWords, value)); }
  std::vector<uint64_t> get_out() const { return rank_.read<uint64_t>(out(), kOutWords); }

  ccoWindow_t window = nullptr;
  uint64_t* data = nullptr;  ///< An address for kernels.

 private:
  ProgramRank& rank_;
  const size_t count_;
};

// Goal    LSA programs: sums over all copies, with every group of threads, on the first and the
//         last barrier of both handles.
// Method  three ranks; a device copy of the communicator; each rank checks its sums.
TEST_F(ProgramTest, LsaSum) {
  run(3, [this](ProgramRank& self) {
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
    int* const late = static_cast<int*>(local) + 200;
    for (int scope = 0; scope < 3; ++scope) {
      for (int hybrid = 0; hybrid < 2; ++hybrid) {
        self.write(local, std::vector<int>(1024, -1));
        self.launch(kernels::mori_lsa(), "lsa_sum", warp(), on_device, window, 100, scope, hybrid,
                    late);
        const std::vector<int> seen = self.read<int>(local, 1024);
        EXPECT_EQ(seen[200], 0) << "late";
        for (int i = 0; i < 100; ++i) ASSERT_EQ(seen[100 + i], 0 + 1 + 2 + 3 * i) << i;
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
  run(4, [this](ProgramRank& self) {
    const ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    Words words(self, 16);
    self.launch(kernels::mori_lsa(), "lsa_places", warp(), dev_comm,
                reinterpret_cast<int*>(words.data));
    const std::vector<int> seen = self.read<int>(words.data, 16);
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
                            static_cast<int>(warp()),
                            mori::cco::CCO_GDA_CONNECTION_CROSSNODE,
                            0};
    for (int i = 0; i < 16; ++i) EXPECT_EQ(seen[i], expected[i]) << i;
    ccoDevComm* const on_device = ccoDevCommCopyToDevice(&dev_comm);
    ASSERT_NE(on_device, nullptr) << mori::cco::ccoGetLastErrorText();
    const auto* const last = words.out() + kOutWords - 1;
    self.launch(kernels::mori_lsa(), "lsa_find", 1, on_device, static_cast<const void*>(last),
                static_cast<const void*>(last + 1), reinterpret_cast<ccoWindow_t*>(words.out()));
    const std::vector<uint64_t> found = words.get_out();
    EXPECT_EQ(found[0], reinterpret_cast<uint64_t>(words.window));
    EXPECT_EQ(found[1], 0u);
  });
}

// What every rank has to send to each, and room for what it gets.
void fill_outgoing(Words* words, int rank, int size, size_t chunk_words, uint64_t round) {
  std::vector<uint64_t> outgoing;
  for (int to = 0; to < size; ++to) {
    for (size_t i = 0; i < chunk_words; ++i) outgoing.push_back(word_of(rank, to, i, round));
  }
  words->set(outgoing);
}
void expect_incoming(const Words& words, int rank, int size, size_t chunk_words, uint64_t round,
                     bool own) {
  const std::vector<uint64_t> seen = words.get();
  for (int from = 0; from < size; ++from) {
    if (from == rank && !own) continue;
    for (size_t i = 0; i < chunk_words; ++i) {
      ASSERT_EQ(seen[size_t(size + from) * chunk_words + i], word_of(from, rank, i, round))
          << "from " << from << " at " << i;
    }
  }
}

class SdmaProgramTest : public ProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    set("CCO_SDMA_PROVIDER", GetParam());
  }
  static void create(const ProgramRank& self, ccoDevComm* dev_comm) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.sdmaQueueCount = 2;
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, dev_comm));
    EXPECT_EQ(dev_comm->sdma.sdmaNumQueue, 2u);
  }
};

// Goal    SDMA programs: puts with remote signals, which only grow, gets with every group of
//         threads, and what makes no sense is told.
// Method  three ranks, all to all, several rounds.
TEST_P(SdmaProgramTest, AllToAll) {
  constexpr size_t kChunkWords = 513;
  run(3, [this](ProgramRank& self) {
    ccoDevComm dev_comm{};
    create(self, &dev_comm);
    Words words(self, 2 * 3 * kChunkWords);
    for (uint64_t round = 1; round <= 3; ++round) {
      fill_outgoing(&words, self.rank, 3, kChunkWords, round);
      self.launch(kernels::mori_sdma(), "sdma_all_to_all", block(), dev_comm, words.window,
                  kChunkWords * 8, round, words.out());
      EXPECT_EQ(words.get_out()[0], 0u) << "failure";
      expect_incoming(words, self.rank, 3, kChunkWords, round, true);
      EXPECT_EQ(self.read<uint64_t>(dev_comm.sdma.signalBuf, 1)[0], round) << "sender 0, queue 0";
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
    for (int scope = 0; scope < 3; ++scope) {
      const uint64_t round = 10 + uint64_t(scope);
      fill_outgoing(&words, self.rank, 3, kChunkWords, round);
      self.launch(kernels::mori_sdma(), "sdma_pull", warp(), dev_comm, words.window,
                  kChunkWords * 8, scope, words.out());
      EXPECT_EQ(words.get_out()[0], 0u) << "failure";
      expect_incoming(words, self.rank, 3, kChunkWords, round, true);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
    self.launch(kernels::mori_sdma(), "sdma_refused", 1, dev_comm, words.window, words.out());
    EXPECT_NE(words.get_out()[0], 0u);
  });
}

// Goal    aggregated pieces arrive, local signals count copies, and zero bytes signal.
// Method  two ranks; each sends four pieces to the other.
TEST_P(SdmaProgramTest, Pieces) {
  constexpr size_t kPieceWords = 32;
  run(2, [this](ProgramRank& self) {
    ccoDevComm dev_comm{};
    create(self, &dev_comm);
    Words words(self, 4 * 4 * kPieceWords);
    fill_outgoing(&words, self.rank, 2, 4 * kPieceWords, 1);
    self.launch(kernels::mori_sdma(), "sdma_pieces", warp(), dev_comm, words.window,
                kPieceWords * 8, words.out());
    EXPECT_EQ(words.get_out()[0], 0u) << "failure";
    const int peer = 1 - self.rank;
    const std::vector<uint64_t> seen = words.get();
    for (size_t i = 0; i < 4 * kPieceWords; ++i) {
      ASSERT_EQ(seen[size_t(2 + peer) * 4 * kPieceWords + i], word_of(peer, 0, i, 1)) << i;
    }
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
  });
}

INSTANTIATE_TEST_SUITE_P(Providers, SdmaProgramTest, ::testing::Values("host", "copy-engine"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

struct GdaCase {
  const char* provider;
  const char* lsa_size;
  int size;
  mori::cco::ccoGdaConnectionType connection;
};

std::string text_of(const GdaCase& way) {
  return std::string(way.provider) + "_" + std::to_string(way.size) + "_" +
         std::to_string(way.connection);
}
void PrintTo(const GdaCase& way, std::ostream* out) { *out << text_of(way); }

class GdaProgramTest : public ProgramTest, public ::testing::WithParamInterface<GdaCase> {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    set("CCO_LSA_SIZE", GetParam().lsa_size);
    set("CCO_GDA_PROVIDER", GetParam().provider);
  }
  static void create(const ProgramRank& self, ccoDevComm* dev_comm) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.gdaConnectionType = GetParam().connection;
    wanted.gdaContextCount = 2;
    wanted.railGdaBarrierCount = 2;
    wanted.barrierCount = 2;
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, dev_comm));
  }
};

// What needs a connection to everybody.
class GdaFullProgramTest : public GdaProgramTest {};

// Goal    GDA programs: puts with signals between all ranks; a wait consumes.
// Method  all to all over a full connection, twice; nothing of the signal is left.
TEST_P(GdaFullProgramTest, AllToAll) {
  constexpr size_t kChunkWords = 65;
  run(GetParam().size, [this](ProgramRank& self) {
    ccoDevComm dev_comm{};
    create(self, &dev_comm);
    Words words(self, 2 * size_t(self.size) * kChunkWords);
    for (uint64_t round = 1; round <= 2; ++round) {
      fill_outgoing(&words, self.rank, self.size, kChunkWords, round);
      words.reset_out(99);
      self.launch(kernels::mori_gda(), "gda_all_to_all", block(), dev_comm, words.window,
                  kChunkWords * 8, words.out());
      const std::vector<uint64_t> out = words.get_out();
      EXPECT_EQ(out[0], 0u) << "failure";
      EXPECT_EQ(out[1], 0u) << "consumed";
      EXPECT_EQ(out[2], uint64_t(self.rank));
      EXPECT_EQ(out[3], uint64_t(self.size));
      EXPECT_EQ(out[4], 0u) << "context";
      expect_incoming(words, self.rank, self.size, kChunkWords, round, false);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
  });
}

// What gda_operations leaves, in the window and beside it.
void expect_operations(const Words& words, int size, int to, int from, int scope) {
  const std::vector<uint64_t> out = words.get_out();
  EXPECT_EQ(out[0], 0u) << "7 were signalled, 3 and 4 consumed";
  EXPECT_EQ(out[1], 1u) << "counter";
  EXPECT_EQ(out[2], 0u) << "counter reset";
  EXPECT_EQ(out[3], 0u) << "signal reset";
  EXPECT_EQ(out[4], 0u) << "failure";
  EXPECT_EQ(out[5], uint64_t(to));
  EXPECT_EQ(out[6], uint64_t(size));
  const auto theirs = [scope](int rank, size_t i) { return word_of(rank, 0, i, uint64_t(scope)); };
  const std::vector<uint64_t> seen = words.get();
  EXPECT_EQ(seen[64], 0x1122334455667788u);
  EXPECT_EQ(seen[65], 0xffffffff00000007u) << "four bytes";
  EXPECT_EQ(seen[66], theirs(from, 0));
  EXPECT_EQ(seen[67], theirs(from, 1));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(seen[70 + i], theirs(to, 1 + i));
  EXPECT_EQ(seen[73], theirs(to, 0));
  EXPECT_EQ(seen[80], theirs(from, 0));
  EXPECT_EQ(seen[81], theirs(from, 0));
}

// Goal    every other operation does what MORI's does.
// Method  each rank with its counterpart on the next node, by warp and by block.
TEST_P(GdaProgramTest, Operations) {
  run(GetParam().size, [this](ProgramRank& self) {
    ccoDevComm dev_comm{};
    create(self, &dev_comm);
    EXPECT_EQ(dev_comm.ibgda.numQpPerPe, 2);
    EXPECT_EQ(dev_comm.ibgda.signalCount, 16);
    const int to = (self.rank + dev_comm.lsaSize) % self.size;
    const int from = (self.rank + self.size - dev_comm.lsaSize) % self.size;
    Words words(self, 128);
    for (int scope = 1; scope <= 2; ++scope) {
      std::vector<uint64_t> own(128, ~uint64_t{0});
      for (size_t i = 0; i < 64; ++i) own[i] = word_of(self.rank, 0, i, uint64_t(scope));
      words.set(own);
      words.reset_out(99);
      self.launch(kernels::mori_gda(), "gda_operations", warp(), dev_comm, words.window, to, scope,
                  words.out());
      expect_operations(words, self.size, to, from, scope);
      CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    }
  });
}

// Goal    the barrier session meets the whole GDA team, on rail and hybrid handles.
// Method  several rounds of values to the whole team, which must be there after each barrier.
TEST_P(GdaProgramTest, Barrier) {
  run(GetParam().size, [this](ProgramRank& self) {
    ccoDevComm dev_comm{};
    create(self, &dev_comm);
    ccoDevComm* const on_device = ccoDevCommCopyToDevice(&dev_comm);
    ASSERT_NE(on_device, nullptr) << mori::cco::ccoGetLastErrorText();
    Words words(self, 64);
    for (int hybrid = 0; hybrid < 2; ++hybrid) {
      self.launch(kernels::mori_gda(), "gda_meet", block(), on_device, words.window, 3, hybrid,
                  words.out());
      const std::vector<uint64_t> out = words.get_out();
      EXPECT_EQ(out[0], 0u) << "failure";
      EXPECT_EQ(out[1], 0u) << "words that were not there";
    }
  });
}

std::string name_of(const ::testing::TestParamInfo<GdaCase>& info) { return text_of(info.param); }

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
