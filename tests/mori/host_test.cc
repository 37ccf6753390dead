// The host functions of MORI CCO over a real daemon.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "client/base/unique.h"
#include "tests/mori/node.h"

namespace cco::test {
namespace {

using mori::cco::ccoBarrierAll;
using mori::cco::ccoComm;
using mori::cco::ccoCommCreate;
using mori::cco::ccoCommDestroy;
using mori::cco::ccoDevComm;
using mori::cco::ccoDevCommCopyToDevice;
using mori::cco::ccoDevCommCreate;
using mori::cco::ccoDevCommDestroy;
using mori::cco::ccoDevCommFreeDeviceCopy;
using mori::cco::ccoDevCommRequirements;
using mori::cco::ccoDevResourceRequirements;
using mori::cco::ccoGetLastErrorText;
using mori::cco::ccoGetPeerPtr;
using mori::cco::ccoGetUniqueId;
using mori::cco::ccoMemAlloc;
using mori::cco::ccoMemFree;
using mori::cco::ccoMemImport;
using mori::cco::ccoUniqueId;
using mori::cco::ccoWindow_t;
using mori::cco::ccoWindowDeregister;
using mori::cco::ccoWindowRegister;
using mori::cco::findWindow;

constexpr size_t kFourGib = size_t{1} << 32;

char* copy_of(ccoWindow_t window, int lsa_rank) {
  return window->winBase + ((uint64_t{window->stride4G} * static_cast<uint64_t>(lsa_rank)) << 32);
}

// Writes this rank's mark into its copy, and reads everybody's.
void exchange_marks(const ccoWindow_t window, char* local, int rank, int size, ccoComm* comm) {
  local[0] = static_cast<char>('a' + rank);
  CCO_ASSERT_OK(ccoBarrierAll(comm));
  for (int peer = 0; peer < size; ++peer) {
    EXPECT_EQ(copy_of(window, peer)[0], 'a' + peer);
    const char* const by_host = static_cast<char*>(ccoGetPeerPtr(comm, local, peer));
    ASSERT_NE(by_host, nullptr) << ccoGetLastErrorText();
    EXPECT_EQ(by_host[0], 'a' + peer);
  }
  CCO_ASSERT_OK(ccoBarrierAll(comm));
}

class HostTest : public MoriTest {};

// Goal    the typical program: a window of new memory is one range at the same stride on all ranks.
// Method  three ranks; each reads all copies by winBase and stride4G, and by ccoGetPeerPtr().
TEST_F(HostTest, WindowOfNewMemory) {
  run(3, [](const Rank& self) {
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, 100'000, &window, &local));
    EXPECT_EQ(window->lsaRank, self.rank);
    EXPECT_EQ(local, copy_of(window, self.rank));
    EXPECT_EQ(ccoGetPeerPtr(self.comm, local, self.rank), local);
    exchange_marks(window, static_cast<char*>(local), self.rank, self.size, self.comm);
    CCO_EXPECT_OK(ccoWindowDeregister(self.comm, window));
    EXPECT_EQ(static_cast<char*>(local)[0], 'a' + self.rank) << "memory outlives its window";
    CCO_EXPECT_OK(ccoMemFree(self.comm, local));
  });
}

// Goal    memory of one rank becomes a window, ends it, and can become one again.
// Method  two ranks with allocations of different sizes; the pointer and the window are the same
//         memory.
TEST_F(HostTest, WindowOfAllocatedMemory) {
  run(2, [](const Rank& self) {
    void* memory = nullptr;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 70'000 + 100'000 * self.rank, &memory));
    for (int round = 0; round < 2; ++round) {
      ccoWindow_t window = nullptr;
      CCO_ASSERT_OK(ccoWindowRegister(self.comm, memory, 70'000, &window));
      exchange_marks(window, static_cast<char*>(memory), self.rank, self.size, self.comm);
      static_cast<char*>(memory)[69'999] = 'z';
      EXPECT_EQ(copy_of(window, self.rank)[69'999], 'z');
      CCO_EXPECT_OK(ccoWindowDeregister(self.comm, window));
    }
    CCO_EXPECT_OK(ccoMemFree(self.comm, memory));
  });
}

// Goal    localPtr of a window that has ended can be registered again.
// Method  deregister, register the pointer, exchange marks through it.
TEST_F(HostTest, WindowAgain) {
  run(2, [](const Rank& self) {
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, 4096, &window, &local));
    CCO_ASSERT_OK(ccoWindowDeregister(self.comm, window));
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, local, 4096, &window));
    exchange_marks(window, static_cast<char*>(local), self.rank, self.size, self.comm);
  });
}

// Goal    memory of somebody else is imported without a copy, and outlives its first owner.
// Method  a mapped memfd on each rank, of which the second half is imported at one offset; the
//         first mapping goes while the window stays.
TEST_F(HostTest, WindowOfForeignMemory) {
  constexpr size_t kHalf = 65536;
  run(2, [](const Rank& self) {
    UniqueFd fd(::memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), 2 * kHalf), 0);
    void* const mapped =
        ::mmap(nullptr, 2 * kHalf, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    ASSERT_NE(mapped, MAP_FAILED);
    char* const foreign = static_cast<char*>(mapped) + kHalf;
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, foreign, kHalf, &window, &local));
    exchange_marks(window, static_cast<char*>(local), self.rank, self.size, self.comm);
    EXPECT_EQ(foreign[0], 'a' + self.rank);
    foreign[kHalf - 1] = 'z';
    EXPECT_EQ(::munmap(mapped, 2 * kHalf), 0);
    fd.reset();
    EXPECT_EQ(copy_of(window, self.rank)[kHalf - 1], 'z');
    CCO_EXPECT_OK(ccoWindowDeregister(self.comm, window));
    CCO_EXPECT_OK(ccoMemFree(self.comm, local));
  });
}

// Goal    the memory of another communicator can be imported.
// Method  import half of an allocation of one communicator into a second one of the same rank.
TEST_F(HostTest, MemoryOfAnotherCommunicator) {
  run(1, [](const Rank& self) {
    ccoUniqueId id;
    ccoComm* other = nullptr;
    CCO_ASSERT_OK(ccoGetUniqueId(&id));
    CCO_ASSERT_OK(ccoCommCreate(id, 1, 0, 0, &other));
    void* memory = nullptr;
    void* imported = nullptr;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 131072, &memory));
    CCO_ASSERT_OK(ccoMemImport(other, static_cast<char*>(memory) + 65536, 65536, &imported));
    static_cast<char*>(imported)[5] = 'x';
    EXPECT_EQ(static_cast<char*>(memory)[65536 + 5], 'x');
    CCO_EXPECT_OK(ccoMemFree(self.comm, memory));
    EXPECT_EQ(static_cast<char*>(imported)[5], 'x');
    CCO_EXPECT_OK(ccoCommDestroy(other));
  });
}

// Goal    allocation is local, takes size 0, and counts against perRankVmmSize until it is freed.
// Method  one rank of two allocates; 4 GiB are reached by allocations that are never touched.
TEST_F(HostTest, Allocation) {
  run(
      2,
      [](const Rank& self) {
        if (self.rank != 0) return;
        void* memory = &memory;
        CCO_EXPECT_OK(ccoMemAlloc(self.comm, 0, &memory));
        EXPECT_EQ(memory, nullptr);
        CCO_EXPECT_OK(ccoMemFree(self.comm, nullptr));
        CCO_ASSERT_OK(ccoMemAlloc(self.comm, 1, &memory));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 65536, 0u);
        void* large = nullptr;
        EXPECT_TRUE(refused(ccoMemAlloc(self.comm, kFourGib, &large), "perRankVmmSize"));
        EXPECT_EQ(large, nullptr);
        EXPECT_TRUE(refused(ccoMemAlloc(self.comm, ~size_t{0}, &large), "perRankVmmSize"));
        CCO_EXPECT_OK(ccoMemFree(self.comm, memory));
        EXPECT_TRUE(refused(ccoMemFree(self.comm, memory), "freed"));
        EXPECT_TRUE(refused(ccoMemFree(self.comm, &memory), "no memory"));
      },
      1);
}

// Goal    MORI's wrong order, ccoMemFree() before ccoWindowDeregister(), harms nobody.
// Method  the window works until it is deregistered; its pointer is gone for registration.
TEST_F(HostTest, FreedBeforeDeregistered) {
  run(2, [](const Rank& self) {
    void* memory = nullptr;
    ccoWindow_t window = nullptr;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 4096, &memory));
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, memory, 4096, &window));
    CCO_ASSERT_OK(ccoMemFree(self.comm, memory));
    EXPECT_TRUE(refused(ccoMemFree(self.comm, memory), "freed"));
    exchange_marks(window, static_cast<char*>(memory), self.rank, self.size, self.comm);
    CCO_EXPECT_OK(ccoWindowDeregister(self.comm, window));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, memory, 4096, &window), "is not what"));
  });
}

// Goal    every wrong argument is -1 with a reason, and changes nothing.
// Method  null pointers, unknown ones, sizes and ranks out of range, for each function.
TEST_F(HostTest, WrongArguments) {
  ccoUniqueId id;
  EXPECT_TRUE(refused(ccoGetUniqueId(nullptr), "uniqueId"));
  CCO_ASSERT_OK(ccoGetUniqueId(&id));
  ccoComm* none = nullptr;
  EXPECT_TRUE(refused(ccoCommCreate(id, 1, 0, 0, nullptr), "comm"));
  EXPECT_TRUE(refused(ccoCommCreate(id, 0, 0, 0, &none), "rank 0 of 0"));
  EXPECT_TRUE(refused(ccoCommCreate(id, 2, 2, 0, &none), "rank 2 of 2"));
  EXPECT_TRUE(refused(ccoCommCreate(id, 2, -1, 0, &none), "rank -1 of 2"));
  EXPECT_TRUE(refused(ccoCommCreate(id, 1, 0, ~size_t{0}, &none), "perRankVmmSize"));
  EXPECT_EQ(none, nullptr);
  CCO_EXPECT_OK(ccoCommDestroy(nullptr));
  void* pointer = nullptr;
  ccoWindow_t window = nullptr;
  ccoDevComm dev_comm{};
  ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
  EXPECT_TRUE(refused(ccoMemAlloc(none, 1, &pointer), "no communicator"));
  EXPECT_TRUE(refused(ccoMemFree(none, nullptr), "no communicator"));
  EXPECT_TRUE(refused(ccoMemImport(none, &id, 1, &pointer), "no communicator"));
  EXPECT_TRUE(refused(ccoWindowRegister(none, 1, &window, &pointer), "no communicator"));
  EXPECT_TRUE(refused(ccoWindowRegister(none, &id, 1, &window), "no communicator"));
  EXPECT_TRUE(refused(ccoWindowRegister(none, &id, 1, &window, &pointer), "no communicator"));
  EXPECT_TRUE(refused(ccoWindowDeregister(none, window), "no communicator"));
  EXPECT_TRUE(refused(ccoDevCommCreate(none, &wanted, &dev_comm), "no communicator"));
  EXPECT_TRUE(refused(ccoDevCommDestroy(none, &dev_comm), "no communicator"));
  EXPECT_TRUE(refused(ccoBarrierAll(none), "no communicator"));
  EXPECT_EQ(ccoGetPeerPtr(none, &id, 0), nullptr);
  EXPECT_EQ(ccoDevCommCopyToDevice(nullptr), nullptr);
  EXPECT_EQ(ccoDevCommCopyToDevice(&dev_comm), nullptr);
  ccoDevCommFreeDeviceCopy(nullptr);
  run(1, [&](const Rank& self) {
    EXPECT_TRUE(refused(ccoMemAlloc(self.comm, 1, nullptr), "ptr"));
    EXPECT_TRUE(refused(ccoMemImport(self.comm, nullptr, 1, &pointer), "externalPtr"));
    EXPECT_TRUE(refused(ccoMemImport(self.comm, &id, 16, &pointer), "memfd"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, 0, &window, &pointer), "0 bytes"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, 16, nullptr, &pointer), "win"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, 16, &window, nullptr), "localPtr"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, &id, 16, &window), "is not what"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, &id, 16, &window, &pointer), "memfd"));
    EXPECT_TRUE(refused(ccoWindowDeregister(self.comm, nullptr), "no window"));
    EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, nullptr, &dev_comm), "requirements"));
    EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, &wanted, nullptr), "devComm"));
    EXPECT_TRUE(refused(ccoDevCommDestroy(self.comm, &dev_comm), "no device communicator"));
    CCO_EXPECT_OK(ccoDevCommDestroy(self.comm, nullptr));
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 65536, &pointer));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, pointer, 65537, &window), "65537"));
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, pointer, 0, &window), "0 bytes"));
    EXPECT_EQ(ccoGetPeerPtr(self.comm, pointer, 0), nullptr) << "not registered";
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, pointer, 65536, &window));
    ccoWindow_t second = nullptr;
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, pointer, 65536, &second), "already"));
    EXPECT_EQ(ccoGetPeerPtr(self.comm, pointer, 1), nullptr) << "no such rank";
    EXPECT_EQ(ccoGetPeerPtr(self.comm, pointer, -1), nullptr) << "no such rank";
    EXPECT_EQ(ccoGetPeerPtr(self.comm, static_cast<char*>(pointer) + 65536, 0), nullptr);
  });
}

// Goal    a rank whose arguments make no sense does not keep the others waiting: all get -1 at
//         once, with its number and reason, and can go on.
// Method  rank 1 of three makes each collective call wrongly, the others rightly; then all rightly.
TEST_F(HostTest, OneRankRefuses) {
  run(3, [](const Rank& self) {
    const bool wrong = self.rank == 1;
    const auto told = [&](int result, const char* reason) {
      if (result == 0) return ::testing::AssertionFailure() << "succeeded";
      if (wrong) return refused(result, reason);
      return refused(result, std::string("rank 1 can not go on: ") + reason);
    };
    void* memory = nullptr;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 65536, &memory));
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    int own = 0;
    EXPECT_TRUE(told(ccoWindowRegister(self.comm, wrong ? &own : memory, 4096, &window),
                     wrong ? "is not what" : "0x"));
    EXPECT_TRUE(told(ccoWindowRegister(self.comm, memory, wrong ? 65537 : 4096, &window), "65537"));
    EXPECT_TRUE(told(ccoWindowRegister(self.comm, memory, 4096, wrong ? nullptr : &window), "win"));
    EXPECT_TRUE(told(ccoWindowRegister(self.comm, wrong ? 0 : 4096, &window, &local),
                     "a window of 0 bytes"));
    EXPECT_TRUE(
        told(ccoWindowRegister(self.comm, 4096, &window, wrong ? nullptr : &local), "localPtr"));
    EXPECT_TRUE(told(
        ccoWindowRegister(self.comm, wrong ? static_cast<void*>(&own) : memory, 4, &window, &local),
        wrong ? "memfd" : "cco_memory_import: 0x"));
    ccoDevCommRequirements requirements = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    if (wrong) requirements.barrierCount = -3;
    ccoDevComm dev_comm{};
    EXPECT_TRUE(told(ccoDevCommCreate(self.comm, &requirements, &dev_comm), "barrierCount"));
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(local, nullptr);
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, memory, 4096, &window));
    exchange_marks(window, static_cast<char*>(memory), self.rank, self.size, self.comm);
  });
}

// Goal    a destroyed communicator is refused, not touched.
// Method  use its pointer afterwards.
TEST_F(HostTest, DestroyedCommunicator) {
  ccoUniqueId id;
  ccoComm* comm = nullptr;
  CCO_ASSERT_OK(ccoGetUniqueId(&id));
  CCO_ASSERT_OK(ccoCommCreate(id, 1, 0, 0, &comm));
  CCO_ASSERT_OK(ccoCommDestroy(comm));
  EXPECT_TRUE(refused(ccoCommDestroy(comm), "destroyed"));
  EXPECT_TRUE(refused(ccoBarrierAll(comm), "destroyed"));
}

// Goal    without a daemon creation fails and says where it looked.
// Method  a socket that is not there.
TEST_F(HostTest, NoDaemon) {
  ccoUniqueId id;
  ccoComm* comm = nullptr;
  CCO_ASSERT_OK(ccoGetUniqueId(&id));
  ASSERT_EQ(::setenv("CCO_SOCKET", "/nowhere/memd.sock", 1), 0);
  EXPECT_TRUE(refused(ccoCommCreate(id, 1, 0, 0, &comm), "/nowhere/memd"));
}

// Goal    destroying a communicator ends what its program has left in it.
// Method  every kind of object is left; the fixture counts the daemon's memory.
TEST_F(HostTest, LeftOvers) {
  run(2, [](const Rank& self) {
    void* memory = nullptr;
    ccoWindow_t window = nullptr;
    ccoDevComm dev_comm{};
    const ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 4096, &memory));
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, memory, 4096, &window));
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, 4096, &window, &memory));
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    EXPECT_NE(ccoDevCommCopyToDevice(&dev_comm), nullptr);
  });
}

// Goal    findWindow() knows the windows of the moment, also those made after the device
//         communicator, beyond one node of its list, and by both addresses of registered memory.
// Method  40 windows come and go.
TEST_F(HostTest, WindowTableIsLive) {
  run(1, [](const Rank& self) {
    ccoDevComm dev_comm{};
    const ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    std::vector<std::pair<ccoWindow_t, char*>> made(40);
    for (auto& [window, local] : made) {
      void* pointer = nullptr;
      CCO_ASSERT_OK(ccoWindowRegister(self.comm, 256, &window, &pointer));
      local = static_cast<char*>(pointer);
    }
    for (const auto& [window, local] : made) {
      EXPECT_EQ(findWindow(&dev_comm, local), window);
      EXPECT_EQ(findWindow(&dev_comm, local + 255), window);
    }
    CCO_ASSERT_OK(ccoWindowDeregister(self.comm, made[7].first));
    EXPECT_EQ(findWindow(&dev_comm, made[7].second), nullptr);
    void* memory = nullptr;
    ccoWindow_t window = nullptr;
    CCO_ASSERT_OK(ccoMemAlloc(self.comm, 4096, &memory));
    CCO_ASSERT_OK(ccoWindowRegister(self.comm, memory, 4096, &window));
    EXPECT_EQ(findWindow(&dev_comm, memory), window);
    EXPECT_EQ(findWindow(&dev_comm, copy_of(window, 0) + 4095), window);
    EXPECT_EQ(findWindow(&dev_comm, self.comm), nullptr);
  });
}

// Goal    a device communicator shows the group, and only its own kind of requirements is taken.
// Method  every field that kernels read; a wrong magic, negative counts, an unknown connection.
TEST_F(HostTest, DeviceCommunicator) {
  run(
      2,
      [](const Rank& self) {
        ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
        wanted.lsaBarrierCount = 3;
        wanted.barrierCount = 2;
        ccoDevComm dev_comm{};
        CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
        EXPECT_EQ(dev_comm.rank, self.rank);
        EXPECT_EQ(dev_comm.worldSize, 2);
        EXPECT_EQ(dev_comm.lsaSize, 2);
        EXPECT_EQ(dev_comm.lsaRank, self.rank);
        EXPECT_EQ(dev_comm.myNodeStart, 0);
        EXPECT_EQ(dev_comm.perRankSize, kFourGib);
        EXPECT_EQ(dev_comm.gdaConnType, mori::cco::CCO_GDA_CONNECTION_NONE) << "one node";
        EXPECT_EQ(dev_comm.lsaBarrier.nBarriers, 3);
        EXPECT_EQ(dev_comm.hybridLsaBarrier.nBarriers, 2);
        EXPECT_EQ(dev_comm.railGdaBarrier.nBarriers, 0);
        ASSERT_NE(dev_comm.resourceWindow, nullptr);
        EXPECT_EQ(dev_comm.resourceWindow->winBase, dev_comm.resourceWindow_inlined.winBase);
        ccoDevComm* const copy = ccoDevCommCopyToDevice(&dev_comm);
        ASSERT_NE(copy, nullptr) << ccoGetLastErrorText();
        EXPECT_EQ(std::memcmp(copy, &dev_comm, sizeof dev_comm), 0);
        ccoDevCommFreeDeviceCopy(copy);
        ccoDevComm none{};
        wanted.magic = 1;
        EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, &wanted, &none), "magic"));
        wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
        wanted.lsaBarrierCount = -1;
        EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, &wanted, &none), "lsaBarrierCount"));
        wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
        const unsigned unknown = 4;
        std::memcpy(&wanted.gdaConnectionType, &unknown, sizeof unknown);
        EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, &wanted, &none), "gdaConnectionType"));
        CCO_EXPECT_OK(ccoDevCommDestroy(self.comm, &dev_comm));
        EXPECT_TRUE(refused(ccoDevCommDestroy(self.comm, &dev_comm), "destroyed"));
      },
      kFourGib - 1);
}

// Goal    an older program's shorter struct is completed with the defaults.
// Method  a struct that ends before barrierCount, which is followed by rubbish.
TEST_F(HostTest, ShorterRequirements) {
  run(1, [](const Rank& self) {
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.size = offsetof(ccoDevCommRequirements, barrierCount);
    wanted.barrierCount = -7;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    EXPECT_EQ(dev_comm.hybridLsaBarrier.nBarriers, 0);
  });
}

// Goal    the resource list, which MORI ignores, is honoured.
// Method  two entries; buffers lie in the resource window at their handles, aligned and apart.
TEST_F(HostTest, ResourceList) {
  run(2, [](const Rank& self) {
    uint32_t handles[2] = {99, 99};
    uint32_t signals[2] = {99, 99};
    ccoDevResourceRequirements second{nullptr, 100, 4096, &handles[1], 2, 0, &signals[1], nullptr};
    ccoDevResourceRequirements first{&second, 50, 0, &handles[0], 3, 1, &signals[0], nullptr};
    ccoDevCommRequirements wanted = CCO_DEV_COMM_REQUIREMENTS_INITIALIZER;
    wanted.resourceRequirementsList = &first;
    ccoDevComm dev_comm{};
    CCO_ASSERT_OK(ccoDevCommCreate(self.comm, &wanted, &dev_comm));
    EXPECT_EQ(handles[0], 0u);
    EXPECT_EQ(handles[1], 4096u);
    EXPECT_EQ(signals[0], 16u);
    EXPECT_EQ(signals[1], 19u);
    char* const mine =
        static_cast<char*>(mori::cco::ccoGetLocalPtr(dev_comm.resourceWindow, handles[1]));
    mine[99] = static_cast<char>('a' + self.rank);
    CCO_ASSERT_OK(ccoBarrierAll(self.comm));
    const int peer = 1 - self.rank;
    EXPECT_EQ(static_cast<char*>(
                  mori::cco::ccoGetLsaPeerPtr(dev_comm.resourceWindow, peer, handles[1]))[99],
              'a' + peer);
    second.bufferAlign = 3;
    ccoDevComm none{};
    EXPECT_TRUE(refused(ccoDevCommCreate(self.comm, &wanted, &none), "power of two"));
  });
}

// Goal    ranks that ask for different sizes are told so, all of them.
// Method  one rank's window is larger.
TEST_F(HostTest, SizesDiffer) {
  run(2, [](const Rank& self) {
    ccoWindow_t window = nullptr;
    void* local = nullptr;
    EXPECT_TRUE(refused(ccoWindowRegister(self.comm, 4096 + 4096 * self.rank, &window, &local),
                        "8192 bytes"));
    EXPECT_EQ(window, nullptr);
    EXPECT_EQ(local, nullptr);
  });
}

}  // namespace
}  // namespace cco::test
