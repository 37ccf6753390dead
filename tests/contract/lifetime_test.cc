#include "absl/strings/str_cat.h"
#include "tests/contract/contract_test.h"
#include "tests/contract/peer_process.h"

namespace cco {
namespace {

class Lifetime : public ContractTest {
 protected:
  std::unique_ptr<PeerProcess> start_peer(const PeerEnvironment& environment = {}) {
    auto peer = std::make_unique<PeerProcess>(environment);
    const auto opened = peer->call("open " + kind_text(GetParam().kind));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return peer;
  }
};

// Goal    memory outlives the process that created it, while it is mapped and even when only an fd
//         of it is left.
// Method  one peer creates and writes, is killed while a second has it mapped; that one reads on
//         and is killed; a third imports from the fd that this process kept, and reads.
TEST_P(Lifetime, MemoryOutlivesItsOwner) {
  auto owner = start_peer();
  ASSERT_OK(owner->call(absl::StrCat("allocate 0 ", granularity())));
  const UniqueFd fd = owner->take_fd();
  ASSERT_TRUE(fd);
  ASSERT_OK(owner->call("write 0 64 testament"));

  auto heir = start_peer();
  ASSERT_OK(heir->call(absl::StrCat("import 0 ", granularity()), &fd));
  owner->kill();
  EXPECT_EQ(heir->call("read 0 64 9").value_or("unreadable"), "testament");
  ASSERT_OK(heir->call("write 0 128 codicil"));
  heir->kill();

  const auto finder = start_peer();
  ASSERT_OK(finder->call(absl::StrCat("import 0 ", granularity()), &fd));
  EXPECT_EQ(finder->call("read 0 64 9").value_or("unreadable"), "testament");
  EXPECT_EQ(finder->call("read 0 128 7").value_or("unreadable"), "codicil");
}

// Goal    a mapping outlives its GpuMemory, its fd and every other reference.
// Method  map, drop all else, write and read.
TEST_P(Lifetime, AMappingKeepsItsMemory) {
  std::optional<Area> area;
  {
    const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
    ASSERT_OK(memory);
    auto mapped = map_area(gpu(), 0, *memory);
    ASSERT_OK(mapped);
    area = *std::move(mapped);
  }
  ASSERT_OK(write(0, area->mapping.address(), "kept"));
  EXPECT_EQ(read(0, area->mapping.address(), 4).value_or("unreadable"), "kept");
}

// Goal    a GPU has one name in all processes, whatever order each of them sees the GPUs in.
// Method  a peer with the order reversed allocates on its device 0; it is our device 1 by name; its
//         contents are there.
TEST_P(Lifetime, TwoVisibleOrdersNameTheSameDevice) {
  if (gpu().devices().size() < 2) GTEST_SKIP() << "this needs two devices, there is one";
  const char* variable = is_host()  ? "CCO_HOST_VISIBLE_DEVICES"
                         : is_hip() ? "HIP_VISIBLE_DEVICES"
                                    : "CUDA_VISIBLE_DEVICES";
  const auto peer = start_peer({{variable, "1,0"}});
  EXPECT_EQ(peer->call("uuid 0").value_or("none"), gpu().devices()[1].uuid);
  EXPECT_EQ(peer->call("uuid 1").value_or("none"), gpu().devices()[0].uuid);
  ASSERT_OK(peer->call(absl::StrCat("allocate 0 ", granularity())));
  const UniqueFd fd = peer->take_fd();
  ASSERT_OK(peer->call("write 0 0 same-gpu"));
  const auto memory = gpu().import_fd(1, fd, granularity());
  ASSERT_OK(memory);
  const auto area = map_area(gpu(), 1, *memory);
  ASSERT_OK(area);
  EXPECT_EQ(read(1, area->mapping.address(), 8).value_or("unreadable"), "same-gpu");
}

CCO_INSTANTIATE_CONTRACT(Lifetime);

}  // namespace
}  // namespace cco
