// Windows of memory that ranks already have.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/node_test.h"

namespace cco::test {
namespace {

constexpr uint64_t kUnit = 65536;  // The host driver's granularity.

// A rank's own memory: a memfd, mapped.
struct Memory {
  explicit Memory(uint64_t size_bytes, bool sealable = true)
      : fd(::memfd_create("own", MFD_CLOEXEC | (sealable ? MFD_ALLOW_SEALING : 0))) {
    EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
    void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(address, MAP_FAILED);
    mapping = UniqueMapping({address, size_bytes});
  }
  unsigned char* bytes() const { return static_cast<unsigned char*>(mapping.get().address); }

  UniqueFd fd;
  UniqueMapping mapping;
};

class ExternalTest : public NodeTest {
 protected:
  void SetUp() override { start(); }

  // One rank registers `fd`.
  Outcome offer(int fd, uint64_t allocation_bytes, uint64_t offset, uint64_t size_bytes) {
    Window window;
    return outcome(Window::register_memory(groups_[0], "w", {.size_bytes = size_bytes},
                                           {fd, allocation_bytes, offset}, &window));
  }
  void form() {
    client_ = attach();
    groups_ = form_group(client_, "job", 1);
    with_group_ = watch->now();
  }
  void TearDown() override {
    groups_.clear();
    client_ = Client();
    NodeTest::TearDown();
  }

  Client client_;
  std::vector<Group> groups_;
  NodeLedger with_group_;
};

// Goal    what is no memory of this driver is refused, and the message says what it is.
// Method  a pipe, a socket, a directory, a device, a number that is no fd, an ordinary file.
TEST_F(ExternalTest, NotMemory) {
  form();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]), write_end(ends[1]);
  EXPECT_TRUE(refused(offer(read_end.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"a pipe"}));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(refused(offer(socket.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"a socket"}));
  const UniqueFd directory(::open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(refused(offer(directory.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"a directory"}));
  const UniqueFd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(
      refused(offer(device.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"character device"}));
  EXPECT_TRUE(refused(offer(9999, kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"fd 9999"}));
  EXPECT_TRUE(refused(offer(-1, kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"fd -1"}));
  const TempDir folder;
  const std::string path = folder.file("plain");
  std::ofstream(path) << std::string(kUnit, 'x');
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(refused(offer(file.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT,
                      {"regular file", "made smaller"}));
  EXPECT_TRUE(watch->settles_at(with_group_));
}

// Goal    memory that could shrink under its users is refused.
// Method  a memfd that cannot be sealed, and one whose seals are sealed.
TEST_F(ExternalTest, NotSealable) {
  form();
  const Memory unsealable(kUnit, false);
  EXPECT_TRUE(refused(offer(unsealable.fd.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT,
                      {"made smaller", "F_SEAL_SHRINK"}));
  const Memory closed(kUnit);
  ASSERT_EQ(::fcntl(closed.fd.get(), F_ADD_SEALS, F_SEAL_SEAL), 0);
  EXPECT_TRUE(
      refused(offer(closed.fd.get(), kUnit, 0, 16), CCO_INVALID_ARGUMENT, {"made smaller"}));
  EXPECT_TRUE(watch->settles_at(with_group_));
}

// Goal    sizes and offsets that do not fit are refused, also where a sum would wrap at 2^32 or
//         2^64.
// Method  one call for each, at the borders.
TEST_F(ExternalTest, DoesNotFit) {
  form();
  const Memory memory(4 * kUnit);
  const int fd = memory.fd.get();
  const uint64_t whole = 4 * kUnit, four_gib = uint64_t{1} << 32;
  EXPECT_TRUE(refused(offer(fd, 8 * kUnit, 0, 16), CCO_INVALID_ARGUMENT,
                      {"smaller than the 524288 bytes"}));
  EXPECT_TRUE(refused(offer(fd, kUnit + 1, 0, 16), CCO_INVALID_ARGUMENT, {"65537", "granularity"}));
  EXPECT_TRUE(refused(offer(fd, 0, 0, 16), CCO_INVALID_ARGUMENT, {"0 bytes"}));
  EXPECT_TRUE(refused(offer(fd, whole, 8, 16), CCO_INVALID_ARGUMENT, {"8", "multiple of 16"}));
  EXPECT_TRUE(
      refused(offer(fd, whole, whole - 16, 17), CCO_INVALID_ARGUMENT, {"262128", "inside"}));
  EXPECT_TRUE(refused(offer(fd, whole, whole + 16, 1), CCO_INVALID_ARGUMENT, {"262160"}));
  EXPECT_TRUE(refused(offer(fd, whole, four_gib, 16), CCO_INVALID_ARGUMENT, {"4294967296"}));
  EXPECT_TRUE(refused(offer(fd, whole, 0, four_gib + 16), CCO_INVALID_ARGUMENT, {"4294967312"}));
  EXPECT_TRUE(refused(offer(fd, whole, UINT64_MAX - 15, 32), CCO_INVALID_ARGUMENT,
                      {"18446744073709551600"}));
  EXPECT_TRUE(
      refused(offer(fd, whole, 16, UINT64_MAX), CCO_INVALID_ARGUMENT, {"18446744073709551615"}));
  EXPECT_TRUE(watch->settles_at(with_group_));
  EXPECT_TRUE(succeeded(offer(fd, whole, whole - 16, 16)));  // The last 16 bytes do fit.
}

// Goal    memory larger than the slot, or than anything, is refused in words, without a crash.
// Method  allocation_bytes near 2^63 and 2^64 with a memfd of as much as a memfd can have.
TEST_F(ExternalTest, LargerThanTheSlot) {
  form();
  const UniqueFd huge(::memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const uint64_t most = (uint64_t{1} << 63) - kUnit;
  ASSERT_EQ(::ftruncate(huge.get(), static_cast<off_t>(most)), 0);
  EXPECT_TRUE(
      refused(offer(huge.get(), most, 0, 16), CCO_RESOURCE_EXHAUSTED, {"slot", "slot_bytes"}));
  EXPECT_TRUE(refused(offer(huge.get(), uint64_t{0} - kUnit, 0, 16), CCO_RESOURCE_EXHAUSTED,
                      {"slot", "slot_bytes"}));
  EXPECT_TRUE(watch->settles_at(with_group_));
}

// Goal    memory that the library makes for a process alone becomes a window on every rank, and an
//         address of somebody else's memory is as good as its descriptor; neither is copied.
// Method  two processes; each registers a part of what it made, or of a memfd by an address inside
//         it, gives its own handle up, and reads the peer's copy.
TEST_F(ExternalTest, MemoryOfAProcess) {
  run_ranks(
      2,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        const Memory other(4 * kUnit);
        ::cco::Memory made, found;
        ASSERT_TRUE(succeeded(::cco::Memory::create(client, 0, kUnit + 1, &made)));
        ASSERT_TRUE(
            succeeded(::cco::Memory::import(client, 0, other.bytes() + kUnit, 2 * kUnit, &found)));
        for (::cco::Memory* memory : {&made, &found}) {
          cco_memory_info info{};
          ASSERT_TRUE(succeeded(memory->get_info(&info)));
          EXPECT_EQ(info.allocation_offset, memory == &found ? kUnit : 0u);
          EXPECT_EQ(info.allocation_bytes, memory == &found ? 4 * kUnit : 2 * kUnit);
          reinterpret_cast<unsigned char*>(info.address)[7] =
              static_cast<unsigned char>('a' + rank.rank);
          Window window;
          ASSERT_TRUE(succeeded(Window::register_memory(
              group, nullptr, {.size_bytes = 100},
              {info.fd, info.allocation_bytes, info.allocation_offset}, &window)));
          *memory = ::cco::Memory();
          ASSERT_TRUE(succeeded(group.barrier()));
          unsigned char* theirs = nullptr;
          ASSERT_TRUE(succeeded(window.get_address(1 - rank.rank, 7, &theirs)));
          EXPECT_EQ(*theirs, 'a' + (1 - rank.rank));
          ASSERT_TRUE(succeeded(group.barrier()));
        }
        EXPECT_EQ(other.bytes()[kUnit + 7], 'a' + rank.rank);
      },
      ranks());
}

// Goal    an address that is nobody's exportable memory is refused, and the message says why.
// Method  a private page, a mapping whose descriptor is closed, one byte too many, no device.
TEST_F(ExternalTest, NoMemoryAtThatAddress) {
  form();
  ::cco::Memory made;
  const auto import = [&](const void* address, uint64_t size_bytes, int32_t device = 0) {
    return outcome(::cco::Memory::import(client_, device, address, size_bytes, &made));
  };
  int local = 0;
  EXPECT_TRUE(refused(import(&local, 4), CCO_INVALID_ARGUMENT, {"not a shared mapping"}));
  EXPECT_TRUE(refused(import(nullptr, 4), CCO_INVALID_ARGUMENT, {"address is null"}));
  Memory memory(kUnit);
  EXPECT_TRUE(refused(import(memory.bytes(), 0), CCO_INVALID_ARGUMENT, {"size_bytes is 0"}));
  EXPECT_TRUE(refused(import(memory.bytes() + 1, kUnit), CCO_INVALID_ARGUMENT, {"one allocation"}));
  EXPECT_TRUE(refused(import(memory.bytes(), 4, 99), CCO_NOT_FOUND, {"no device 99"}));
  memory.fd.reset();
  EXPECT_TRUE(refused(import(memory.bytes(), 4), CCO_INVALID_ARGUMENT, {"has been closed"}));
  EXPECT_TRUE(watch->settles_at(with_group_));
}

// Goal    a window of external memory is that memory, on every rank, also where offsets differ by
//         whole granules: then at one stride.
// Method  two processes, each with its own memfd and offset; each writes through its own mapping
//         and reads the peer's through the window, by stride and by table, and writes back.
TEST_F(ExternalTest, SeenByPeersAtTheStride) {
  run_ranks(
      2,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        const uint64_t offset = rank.rank == 0 ? 48 : 2 * kUnit + 48;
        const Memory memory(4 * kUnit);
        std::memset(memory.bytes() + offset, 'a' + static_cast<int>(rank.rank), 1000);
        Window window;
        ASSERT_TRUE(succeeded(Window::register_memory(
            group, "w", {.size_bytes = 1000}, {memory.fd.get(), 4 * kUnit, offset}, &window)));
        ASSERT_TRUE(succeeded(group.barrier()));
        cco_window_device device{};
        ASSERT_TRUE(succeeded(window.get_device(&device)));
        ASSERT_NE(device.stride_4g, 0u);
        const uint32_t peer = 1 - rank.rank;
        auto* theirs = reinterpret_cast<unsigned char*>(device.win_base +
                                                        (uint64_t{device.stride_4g} << 32) * peer);
        EXPECT_EQ(reinterpret_cast<const uint64_t*>(device.peer_bases)[peer],
                  reinterpret_cast<uint64_t>(theirs));
        EXPECT_EQ(theirs[0], 'a' + peer);
        EXPECT_EQ(theirs[999], 'a' + peer);
        ASSERT_TRUE(succeeded(group.barrier()));
        theirs[999] = 'A' + static_cast<unsigned char>(rank.rank);
        ASSERT_TRUE(succeeded(group.barrier()));
        EXPECT_EQ(memory.bytes()[offset + 999], 'A' + peer);
        EXPECT_EQ(memory.bytes()[offset + 1000], 0);
      },
      ranks());
}

// Goal    offsets that differ inside a granule give a window that only the table reaches.
// Method  as above, with offsets 16 and 4096.
TEST_F(ExternalTest, SeenByPeersByTableOnly) {
  run_ranks(
      2,
      [](Rank& rank) {
        const Client client = test::attach(rank);
        const Group group = join(client, rank);
        const uint64_t offset = rank.rank == 0 ? 16 : 4096;
        const Memory memory(kUnit * (1 + rank.rank));
        std::memset(memory.bytes() + offset, 'a' + static_cast<int>(rank.rank), 100);
        Window window;
        ASSERT_TRUE(succeeded(
            Window::register_memory(group, nullptr, {.size_bytes = 100},
                                    {memory.fd.get(), kUnit * (1 + rank.rank), offset}, &window)));
        ASSERT_TRUE(succeeded(group.barrier()));
        cco_window_device device{};
        ASSERT_TRUE(succeeded(window.get_device(&device)));
        EXPECT_EQ(device.stride_4g, 0u);
        unsigned char* theirs = nullptr;
        ASSERT_TRUE(succeeded(window.get_address(1 - rank.rank, 99, &theirs)));
        EXPECT_EQ(*theirs, 'a' + (1 - rank.rank));
        ASSERT_TRUE(succeeded(group.barrier()));
      },
      ranks());
}

// Goal    the memory outlives the owner's own handles, and is given back when its users have gone.
// Method  the owner closes its fd and mapping after registering; the peer still reads; both leave.
TEST_F(ExternalTest, LivesUntilTheLastUser) {
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  const NodeLedger with_groups = watch->now();
  std::vector<Window> windows(2);
  EXPECT_TRUE(all_succeeded(on_threads(2, [&](uint32_t rank) {
    const Memory memory(kUnit);
    memory.bytes()[0] = static_cast<unsigned char>(7 + rank);
    return Window::register_memory(groups[rank], "w", {.size_bytes = 16},
                                   {memory.fd.get(), kUnit, 0}, &windows[rank]);
  })));
  unsigned char* theirs = nullptr;
  ASSERT_TRUE(succeeded(windows[0].get_address(1, 0, &theirs)));
  EXPECT_EQ(*theirs, 8);
  windows.clear();
  EXPECT_TRUE(watch->settles_at(with_groups));
}

// Goal    nobody can make shared memory smaller or punch holes under others: the daemon's or ours.
// Method  after registering, the owner tries ftruncate and fallocate on its own fd.
TEST_F(ExternalTest, OwnerCannotShrinkIt) {
  form();
  const Memory memory(kUnit);
  Window window;
  ASSERT_TRUE(succeeded(Window::register_memory(groups_[0], "w", {.size_bytes = 16},
                                                {memory.fd.get(), kUnit, 0}, &window)));
  EXPECT_EQ(::ftruncate(memory.fd.get(), 0), -1);
  EXPECT_EQ(::ftruncate(memory.fd.get(), 2 * kUnit), -1);
}

}  // namespace
}  // namespace cco::test
