#include <fcntl.h>

#include <bit>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/runtime/foreign_memory.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/peer_process.h"

namespace cco {
namespace {

class Memory : public ContractTest {
 protected:
  /// A peer with the same driver.
  std::unique_ptr<PeerProcess> start_peer() {
    auto peer = std::make_unique<PeerProcess>();
    const auto opened = peer->call("open " + kind_text(GetParam().kind));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return peer;
  }
};

// Goal    devices are named uniquely, and the facts that others compute with are usable.
// Method  look at every device that this process sees.
TEST_P(Memory, DevicesAreDescribed) {
  ASSERT_FALSE(gpu().devices().empty());
  std::set<std::string> uuids;
  for (const GpuDevice& device : gpu().devices()) {
    EXPECT_TRUE(uuids.insert(device.uuid).second) << device.uuid << " twice";
    EXPECT_FALSE(device.arch.empty());
    EXPECT_GT(device.total_bytes, 0u);
    EXPECT_TRUE(device.has_vmm);
    EXPECT_TRUE(std::has_single_bit(device.granularity_bytes)) << device.granularity_bytes;
    EXPECT_EQ(device.preferred_slab_bytes % device.granularity_bytes, 0u);
  }
  EXPECT_FALSE(gpu().version().empty());
}

// Goal    the flat map works: three ranks' memory, each in its slot of 4 GiB, reachable by own and
//         peer device.
// Method  allocate three, map them (one through export and import) at slot offsets, write as one
//         device, read as the other.
TEST_P(Memory, ThreeSlotsAtAStrideAreSharedByTwoDevices) {
  const uint64_t size = 2 * granularity();
  const uint64_t offset = 4 * granularity();
  const int peer = peer_device();
  const auto range = gpu().reserve(0, 3 * kSlotBytes, kSlotBytes);
  ASSERT_OK(range);
  EXPECT_EQ(range->address() % kSlotBytes, 0u);
  std::vector<GpuMapping> mappings;
  for (uint64_t slot = 0; slot < 3; ++slot) {
    const auto memory = gpu().allocate(slot == 1 ? peer : 0, size, MemoryKind::kData);
    ASSERT_OK(memory);
    const auto fd = gpu().export_fd(*memory);
    ASSERT_OK(fd);
    const auto imported = gpu().import_fd(0, *fd, size);
    ASSERT_OK(imported);
    auto mapping =
        gpu().map(range->address() + slot * kSlotBytes + offset, slot == 2 ? *imported : *memory);
    ASSERT_OK(mapping);
    mappings.push_back(*std::move(mapping));  // Memory and fd end here, the mapping does not.
    ASSERT_OK(gpu().set_access(mappings.back(), 0, Access::kReadWrite));
    ASSERT_OK(gpu().set_access(mappings.back(), peer, Access::kReadWrite));
  }
  for (size_t slot = 0; slot < 3; ++slot) {
    ASSERT_OK(write(0, mappings[slot].address() + size - 8, absl::StrCat("slot ", slot, "..")));
  }
  for (size_t slot = 0; slot < 3; ++slot) {
    const auto text = read(peer, mappings[slot].address() + size - 8, 8);
    ASSERT_OK(text);
    EXPECT_EQ(*text, absl::StrCat("slot ", slot, ".."));
  }
}

// Goal    two processes see one memory, in both directions.
// Method  create here, import there; write here, read there, and back.
TEST_P(Memory, AnotherProcessSharesIt) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  ASSERT_OK(write(0, area->mapping.address(), "from-us"));

  const auto peer = start_peer();
  ASSERT_OK(peer->call(absl::StrCat("import 0 ", granularity()), &*fd));
  EXPECT_EQ(peer->call("read 0 0 7").value_or("unreadable"), "from-us");
  ASSERT_OK(peer->call("write 0 512 from-them"));
  EXPECT_EQ(read(0, area->mapping.address() + 512, 9).value_or("unreadable"), "from-them");
}

// Goal    what a software engine adds to a word is not lost beside what another process's adds.
// Method  both add to the same word at the same time; the sum.
TEST_P(Memory, EnginesOfTwoProcessesAddToOneWord) {
  constexpr uint64_t kTimes = 300;
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kControl);
  ASSERT_OK(memory);
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  ASSERT_OK(context(0).fill_zero(area->mapping.address(), granularity()));
  const auto peer = start_peer();
  ASSERT_OK(peer->call(absl::StrCat("import 0 ", granularity()), &*fd));
  ASSERT_OK(peer->call("add 0 4096 1"));  // Has opened what it needs.

  absl::StatusOr<std::string> theirs;
  std::thread other([&] { theirs = peer->call(absl::StrCat("add 0 4096 ", kTimes)); });
  const absl::Status ours =
      add_ones(&context(0), gpu().name() == "host", area->mapping.address() + 4096, kTimes);
  other.join();
  ASSERT_OK(theirs);
  ASSERT_OK(ours);
  uint64_t sum = 0;
  ASSERT_OK(context(0).copy_to_host(&sum, area->mapping.address() + 4096, sizeof sum));
  EXPECT_EQ(sum, 2 * kTimes + 1);
}

// Goal    a driver says of itself whether it keeps a process that may only read from writing.
// Method  another process gets what it would get for reading, and does its worst: maps it for
//         writing. It must fail, or the bytes must change, as the driver says.
TEST_P(Memory, ReadOnlyIsEnforcedOrSaidNotToBe) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  ASSERT_OK(write(0, area->mapping.address(), "ours...."));
  const auto whole = gpu().export_fd(*memory);
  ASSERT_OK(whole);
  const auto read_only = gpu().read_only_fd(*whole);
  const std::string import = absl::StrCat("import 0 ", granularity());
  const auto hostile = start_peer();
  if (gpu().enforces_read_only()) {
    ASSERT_OK(read_only);
    EXPECT_NE(::fcntl(read_only->get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_FALSE(hostile->call(import, &*read_only).ok());
    const auto theirs = gpu().import_fd(0, *read_only, granularity());
    ASSERT_OK(theirs);
    const auto reading = map_area(gpu(), 0, *theirs, Access::kReadOnly);
    ASSERT_OK(reading);
    EXPECT_EQ(read(0, reading->mapping.address(), 8).value_or("unreadable"), "ours....");
  } else {
    EXPECT_TRUE(says(read_only.status(), absl::StatusCode::kUnimplemented, {"for writing"}));
    ASSERT_OK(hostile->call(import, &*whole));
    ASSERT_OK(hostile->call("write 0 0 theirs.."));
    EXPECT_EQ(read(0, area->mapping.address(), 8).value_or("unreadable"), "theirs..");
  }
}

// Goal    external memory, which another program filled and of which a part in the middle is meant,
//         needs no copy.
// Method  the peer allocates and writes at an odd offset; import the whole here, read at that
//         offset.
TEST_P(Memory, ExternalMemoryKeepsItsContentsAtAnyOffset) {
  const uint64_t offset = granularity() / 2 + 24;
  const auto peer = start_peer();
  ASSERT_OK(peer->call(absl::StrCat("allocate 0 ", 2 * granularity())));
  const UniqueFd fd = peer->take_fd();
  ASSERT_TRUE(fd);
  ASSERT_OK(peer->call(absl::StrCat("write 0 ", offset, " in-the-middle")));

  const auto memory = gpu().import_fd(0, fd, 2 * granularity());
  ASSERT_OK(memory);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  EXPECT_EQ(read(0, area->mapping.address() + offset, 13).value_or("unreadable"), "in-the-middle");
}

// Goal    control memory is memory like any other to host code.
// Method  allocate, map, zero, write, read.
TEST_P(Memory, ControlMemoryWorks) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kControl);
  ASSERT_OK(memory);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  ASSERT_OK(context(0).fill_zero(area->mapping.address(), granularity()));
  ASSERT_OK(write(0, area->mapping.address() + 8, "word"));
  EXPECT_EQ(read(0, area->mapping.address(), 16).value_or(""),
            std::string("\0\0\0\0\0\0\0\0word\0\0\0\0", 16));
}

// Goal    exporting is repeatable, and fds do not leak into programs that this process starts.
// Method  export, close, export again; look at the flags; the second fd imports.
TEST_P(Memory, ExportsAgainAfterTheFirstFdIsClosed) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  ASSERT_OK(gpu().export_fd(*memory));
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_OK(gpu().import_fd(0, *fd, granularity()));
}

// Goal    a place that was unmapped can be used again, by other memory.
// Method  map one, unmap, map another at the same address, and see its contents.
TEST_P(Memory, AnAddressIsReusableAfterUnmap) {
  const auto first = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(first);
  const auto second = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(second);
  const auto range = gpu().reserve(0, granularity(), granularity());
  ASSERT_OK(range);
  for (const GpuMemory* memory : {&*first, &*second}) {
    const auto mapping = gpu().map(range->address(), *memory);
    ASSERT_OK(mapping);
    ASSERT_OK(gpu().set_access(*mapping, 0, Access::kReadWrite));
    ASSERT_OK(write(0, range->address(), memory == &*first ? "first." : "second"));
  }
  const auto area = map_area(gpu(), 0, *first);
  ASSERT_OK(area);
  EXPECT_EQ(read(0, area->mapping.address(), 6).value_or("unreadable"), "first.");
}

// Goal    somebody's memory is found by an address inside it, as what it is, and shared by an
//         export; what is no memory of the driver is refused.
// Method  memory of the driver stands for somebody's; write where it was found and read by the
//         first address; an address on the stack, and one byte more than there is.
TEST_P(Memory, IsFoundByItsAddress) {
  if (is_cuda()) GTEST_SKIP() << "a current context, which tests/gpu/python/core.py has";
  const uint64_t size = 2 * granularity();
  const uint64_t offset = granularity() + 48;
  const auto memory = gpu().allocate(0, size, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto first = map_area(gpu(), 0, *memory);
  ASSERT_OK(first);
  const auto* inside = reinterpret_cast<const char*>(first->mapping.address() + offset);
  const auto found = find_foreign_memory(gpu().name(), inside, size - offset);
  ASSERT_OK(found);
  EXPECT_EQ(found->offset, offset);
  EXPECT_EQ(::fcntl(found->fd.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(found->allocation_bytes, size);
  const auto imported = gpu().import_fd(0, found->fd, found->allocation_bytes);
  ASSERT_OK(imported);
  const auto second = map_area(gpu(), 0, *imported);
  ASSERT_OK(second);
  ASSERT_OK(write(0, second->mapping.address() + offset, "found"));
  EXPECT_EQ(*read(0, first->mapping.address() + offset, 5), "found");

  EXPECT_TRUE(says(find_foreign_memory(gpu().name(), inside, size - offset + 1).status(),
                   absl::StatusCode::kInvalidArgument, {"one allocation"}));
  const int local = 0;
  EXPECT_TRUE(says(find_foreign_memory(gpu().name(), &local, 4).status(),
                   absl::StatusCode::kInvalidArgument,
                   {is_host() ? "not a shared mapping" : "not memory of hip's"}));
}

CCO_INSTANTIATE_CONTRACT(Memory);

}  // namespace
}  // namespace cco
