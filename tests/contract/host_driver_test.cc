#include "device/runtime/host_driver.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "device/runtime/host_devices.h"
#include "tests/contract/contract_test.h"

namespace cco {
namespace {

using Code = absl::StatusCode;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kUnit = kHostGranularityBytes;

std::unique_ptr<HostDriver> make_driver(uint64_t bytes_per_device = 16 * kUnit) {
  return HostDriver::create(4, bytes_per_device).value();
}

/// For death tests: sanitizers put a handler of their own in the way.
void without_handler(const std::function<void()>& touch) {
  ::signal(SIGSEGV, SIG_DFL);
  touch();
}

// Goal    memory given out read-only cannot be written.
// Method  map it read-only and write: the process must die of it; reading is fine. With write
//         access it lives.
TEST(HostDriver, ReadOnlyMemoryFaultsOnWrite) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto driver = make_driver();
  const auto memory = driver->allocate(0, kUnit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto area = map_area(*driver, 0, *memory, Access::kReadOnly);
  ASSERT_OK(area);
  auto* word = reinterpret_cast<volatile uint32_t*>(area->mapping.address());
  EXPECT_EQ(*word, 0u);
  EXPECT_EXIT(without_handler([&] { *word = 1; }), testing::KilledBySignal(SIGSEGV), "");
  ASSERT_OK(driver->set_access(area->mapping, 1, Access::kReadWrite));
  *word = 1;
  ASSERT_OK(driver->set_access(area->mapping, 1, Access::kReadOnly));
  EXPECT_EXIT(without_handler([&] { *word = 2; }), testing::KilledBySignal(SIGSEGV), "");
}

// Goal    memory that was mapped but given to nobody cannot even be read.
// Method  map without set_access and read: the process must die of it.
TEST(HostDriver, MemoryWithoutAccessFaultsOnRead) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto driver = make_driver();
  const auto memory = driver->allocate(0, kUnit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto range = driver->reserve(0, kUnit, kUnit);
  ASSERT_OK(range);
  const auto mapping = driver->map(range->address(), *memory);
  ASSERT_OK(mapping);
  const auto* word = reinterpret_cast<const volatile uint32_t*>(mapping->address());
  EXPECT_EXIT(without_handler([&] { static_cast<void>(*word); }), testing::KilledBySignal(SIGSEGV),
              "");
}

// Goal    a peer can neither shrink nor grow memory that it was given.
// Method  try both on an exported fd.
TEST(HostDriver, ExportedMemoryIsSealed) {
  const auto driver = make_driver();
  const auto memory = driver->allocate(0, kUnit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = driver->export_fd(*memory);
  ASSERT_OK(fd);
  EXPECT_NE(::ftruncate(fd->get(), 0), 0);
  EXPECT_NE(::ftruncate(fd->get(), 2 * kUnit), 0);
  EXPECT_NE(::fcntl(fd->get(), F_ADD_SEALS, F_SEAL_WRITE), 0)
      << "a peer could make it read-only for all";
}

// Goal    a device's memory is exactly what it says, and is free again when it is given back.
// Method  fill it to the last unit, fail by one, free one, fit again; another device is not touched
//         by it.
TEST(HostDriver, EnforcesItsMemoryExactly) {
  const auto driver = make_driver(4 * kUnit);
  auto most = driver->allocate(0, 3 * kUnit, MemoryKind::kData);
  ASSERT_OK(most);
  EXPECT_TRUE(says(driver->allocate(0, 2 * kUnit, MemoryKind::kData).status(),
                   Code::kResourceExhausted, {"131072 bytes", "65536 of 262144", "HOST-0"}));
  {
    const auto last = driver->allocate(0, kUnit, MemoryKind::kData);
    ASSERT_OK(last);
    EXPECT_FALSE(driver->allocate(0, kUnit, MemoryKind::kData).ok());
    ASSERT_OK(driver->allocate(1, 4 * kUnit, MemoryKind::kData));
  }
  ASSERT_OK(driver->allocate(0, kUnit, MemoryKind::kData));
}

// Goal    an import of a read-only fd gives read-only memory, and says why it is not more.
// Method  open the exported memory again for reading only, import that, ask for both kinds of
//         access.
TEST(HostDriver, AReadOnlyFdGivesReadOnlyMemory) {
  const auto driver = make_driver();
  const auto memory = driver->allocate(0, kUnit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = driver->export_fd(*memory);
  ASSERT_OK(fd);
  const std::string path = "/proc/self/fd/" + std::to_string(fd->get());
  const UniqueFd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only);
  const auto imported = driver->import_fd(0, read_only, kUnit);
  ASSERT_OK(imported);
  const auto area = map_area(*driver, 0, *imported, Access::kReadOnly);
  ASSERT_OK(area);
  EXPECT_TRUE(says(driver->set_access(area->mapping, 0, Access::kReadWrite),
                   Code::kFailedPrecondition, {"opened read-only"}));
}

// What another user's process can do with an fd, in a child: "maps" and "opens" for writing.
std::string writes_as_another_user(BorrowedFd fd) {
  const std::string path = absl::StrCat("/proc/self/fd/", fd.get());
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t kOther = 65533;
    int can = 0;
    // Without the last a process that has changed its user may not see its own fds.
    if (::setgroups(0, nullptr) != 0 || ::setgid(kOther) != 0 || ::setuid(kOther) != 0 ||
        ::prctl(PR_SET_DUMPABLE, 1) != 0 || ::open(path.c_str(), O_PATH) < 0) {
      ::_exit(64);
    }
    void* mapped = ::mmap(nullptr, kUnit, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (::mmap(nullptr, kUnit, PROT_WRITE, MAP_SHARED, fd.get(), 0) != MAP_FAILED ||
        mapped == MAP_FAILED || ::mprotect(mapped, kUnit, PROT_WRITE) == 0) {
      can |= 1;
    }
    if (::open(path.c_str(), O_RDWR) >= 0 || ::open(path.c_str(), O_WRONLY) >= 0 ||
        (::fchmod(fd.get(), 0666) == 0 && ::open(path.c_str(), O_RDWR) >= 0)) {
      can |= 2;
    }
    ::_exit(can);
  }
  int status = -1;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) > 3) {
    return absl::StrCat("status ", status);
  }
  return absl::StrCat((WEXITSTATUS(status) & 1) != 0 ? "maps " : "",
                      (WEXITSTATUS(status) & 2) != 0 ? "opens " : "");
}

// Goal    another user's process that has a read-only fd cannot come to write by any way.
// Method  it tries all; as a check of the ways, with an fd that is open for writing, and with one
//         that was merely opened for reading, of memory that lets everybody in.
TEST(HostDriver, AReadOnlyFdStaysReadOnlyForOthers) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  const auto driver = make_driver();
  const auto memory = driver->allocate(0, kUnit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = driver->export_fd(*memory);
  ASSERT_OK(fd);
  EXPECT_EQ(writes_as_another_user(*fd), "maps opens ");
  const std::string path = absl::StrCat("/proc/self/fd/", fd->get());
  const UniqueFd naive(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(writes_as_another_user(naive), "opens ");
  const auto read_only = driver->read_only_fd(*fd);
  ASSERT_OK(read_only);
  EXPECT_EQ(writes_as_another_user(*read_only), "");
  EXPECT_EQ(writes_as_another_user(naive), "");
}

// Goal    the list of visible devices is obeyed, and a wrong one is an error that says what there
//         is.
// Method  orders, uuids, and every way to get it wrong.
TEST(HostDriver, VisibleDevicesAreObeyed) {
  const auto create = [](const char* list) {
    const ScopedVariable variable("CCO_HOST_VISIBLE_DEVICES", list);
    return HostDriver::create(4, kUnit);
  };
  const auto chosen = create("3,HOST-1");
  ASSERT_OK(chosen);
  ASSERT_EQ((*chosen)->devices().size(), 2u);
  EXPECT_EQ((*chosen)->devices()[0].uuid, "HOST-3");
  EXPECT_EQ((*chosen)->devices()[1].uuid, "HOST-1");
  for (const char* wrong : {"", "4", "-1", "0,,1", "0x1", "HOST-9", "1 2", "0,zero"}) {
    EXPECT_TRUE(says(create(wrong).status(), Code::kInvalidArgument,
                     {"CCO_HOST_VISIBLE_DEVICES", "HOST-0"}))
        << wrong;
  }
  EXPECT_TRUE(says(create("2,HOST-2").status(), Code::kInvalidArgument, {"HOST-2", "twice"}));
}

// Goal    options out of range are refused with the range.
// Method  no device, too many, memory that is no multiple.
TEST(HostDriver, OptionsAreChecked) {
  EXPECT_TRUE(says(HostDriver::create(0, kUnit).status(), Code::kInvalidArgument, {"1 to 64"}));
  EXPECT_TRUE(
      says(HostDriver::create(65, kUnit).status(), Code::kInvalidArgument, {"65", "1 to 64"}));
  EXPECT_TRUE(says(HostDriver::create(1, kUnit + 1).status(), Code::kInvalidArgument, {"65536"}));
  const auto shared_out = HostDriver::create(8, 0);
  ASSERT_OK(shared_out);
  EXPECT_LE((*shared_out)->devices()[0].total_bytes * 16, available_memory_bytes());
  EXPECT_GT((*shared_out)->devices()[0].total_bytes, 0u);
}

/// Two kernels that need each other: each says it is here and waits, at most 20 seconds, for the
/// other.
struct Rendezvous {
  std::atomic<int> here{0};
  std::atomic<int> met{0};
};
void meet(void** arguments) {
  auto* rendezvous = *static_cast<Rendezvous**>(arguments[0]);
  const auto give_up = Clock::now() + std::chrono::seconds(20);
  rendezvous->here.fetch_add(1);
  while (rendezvous->here.load() < 2 && Clock::now() < give_up) std::this_thread::yield();
  if (rendezvous->here.load() == 2) rendezvous->met.fetch_add(1);
}
constexpr uint32_t kMeetArguments[] = {sizeof(void*)};
constexpr HostFunction kMeetFunctions[] = {{"meet", meet, kMeetArguments}};
constexpr KernelModule kMeetModule = {"meet", {}, kMeetFunctions};

// Goal    two streams run at once, as ranks that share a process need; launch does not wait.
// Method  two kernels on two streams that each wait for the other.
TEST(HostDriver, TwoStreamsRunAtOnce) {
  const auto driver = make_driver();
  const auto context = driver->open(0);
  ASSERT_OK(context);
  const auto function = (*context)->load(kMeetModule, "meet");
  ASSERT_OK(function);
  auto one = (*context)->create_stream(StreamUse::kKernels);
  auto two = (*context)->create_stream(StreamUse::kKernels);
  ASSERT_OK(one);
  ASSERT_OK(two);
  Rendezvous rendezvous;
  Rendezvous* pointer = &rendezvous;
  void* arguments[] = {&pointer};
  ASSERT_OK((*one)->launch(*function, {}, arguments));
  ASSERT_OK((*two)->launch(*function, {}, arguments));
  ASSERT_OK((*one)->synchronize());
  ASSERT_OK((*two)->synchronize());
  EXPECT_EQ(rendezvous.met.load(), 2);
}

// Goal    launches that cannot be are refused with the bounds.
// Method  no blocks, no threads, too many threads, too few arguments.
TEST(HostDriver, LaunchesAreChecked) {
  const auto driver = make_driver();
  const auto context = driver->open(0);
  ASSERT_OK(context);
  const auto function = (*context)->load(kMeetModule, "meet");
  ASSERT_OK(function);
  auto stream = (*context)->create_stream(StreamUse::kKernels);
  ASSERT_OK(stream);
  void* argument = nullptr;
  void* arguments[] = {&argument};
  for (const LaunchShape shape :
       {LaunchShape{.blocks = 0}, LaunchShape{.threads = 0}, LaunchShape{.threads = 1025}}) {
    EXPECT_TRUE(says((*stream)->launch(*function, shape, arguments), Code::kInvalidArgument,
                     {"meet", "1024"}));
  }
  EXPECT_TRUE(says((*stream)->launch(*function, {}, {}), Code::kInvalidArgument,
                   {"0 arguments", "takes 1"}));
}

}  // namespace
}  // namespace cco
