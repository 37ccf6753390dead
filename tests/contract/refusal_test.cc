#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>
#include <vector>

#include "tests/contract/contract_test.h"

namespace cco {
namespace {

using Code = absl::StatusCode;

class Refusal : public ContractTest {
 protected:
  absl::Status import(const UniqueFd& fd) { return gpu().import_fd(0, fd, granularity()).status(); }
};

UniqueFd make_memfd(uint64_t size_bytes, unsigned flags) {
  UniqueFd fd(::memfd_create("contract", MFD_CLOEXEC | flags));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  return fd;
}

/// The fewest descriptors that keep what is open: the next one fails.
class NoMoreFds {
 public:
  NoMoreFds() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit lowered = {static_cast<rlim_t>(next.get()), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &lowered);
  }
  ~NoMoreFds() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// Goal    sizes that are no multiple of the granularity are refused, with the granularity in the
//         message.
// Method  zero, one, one too many, and a size whose end would not fit in an address.
TEST_P(Refusal, SizesMustFitTheGranularity) {
  const std::string granularity_text = std::to_string(granularity());
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, granularity() + 1, granularity() / 2}) {
    EXPECT_TRUE(says(gpu().allocate(0, size, MemoryKind::kData).status(), Code::kInvalidArgument,
                     {granularity_text, "granularity"}))
        << size;
    EXPECT_TRUE(says(gpu().reserve(0, size, granularity()).status(), Code::kInvalidArgument,
                     {granularity_text}))
        << size;
  }
  EXPECT_FALSE(gpu().reserve(0, uint64_t{0} - granularity(), granularity()).ok());
  EXPECT_TRUE(says(gpu().reserve(0, granularity(), granularity() * 3).status(),
                   Code::kInvalidArgument, {"power of two"}));
  EXPECT_TRUE(says(gpu().reserve(0, granularity(), 1).status(), Code::kInvalidArgument,
                   {granularity_text}));
}

// Goal    a device that is not there is refused by every call that takes one.
// Method  -1 and one past the last.
TEST_P(Refusal, DevicesMustExist) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  const auto area = map_area(gpu(), 0, *memory);
  ASSERT_OK(area);
  const int count = static_cast<int>(gpu().devices().size());
  for (const int device : {-1, count}) {
    const std::string text = "device " + std::to_string(device);
    EXPECT_TRUE(says(gpu().allocate(device, granularity(), MemoryKind::kData).status(),
                     Code::kInvalidArgument, {text}));
    EXPECT_TRUE(
        says(gpu().import_fd(device, *fd, granularity()).status(), Code::kInvalidArgument, {text}));
    EXPECT_TRUE(says(gpu().reserve(device, granularity(), granularity()).status(),
                     Code::kInvalidArgument, {text}));
    EXPECT_TRUE(says(gpu().set_access(area->mapping, device, Access::kReadWrite),
                     Code::kInvalidArgument, {text}));
    EXPECT_TRUE(says(gpu().open(device).status(), Code::kInvalidArgument, {text}));
  }
}

// Goal    nothing is mapped over something else, nor outside what was reserved.
// Method  the same place twice, a partial overlap, before, across the end, and a crooked address.
TEST_P(Refusal, MapsOnlyIntoFreeReservedSpace) {
  const uint64_t unit = granularity();
  const auto memory = gpu().allocate(0, 2 * unit, MemoryKind::kData);
  ASSERT_OK(memory);
  const auto range = gpu().reserve(0, 8 * unit, unit);
  ASSERT_OK(range);
  const uint64_t base = range->address();
  const auto mapping = gpu().map(base + 2 * unit, *memory);
  ASSERT_OK(mapping);
  for (const uint64_t offset : {2 * unit, 1 * unit, 3 * unit}) {
    EXPECT_TRUE(
        says(gpu().map(base + offset, *memory).status(), Code::kAlreadyExists, {"mapped already"}))
        << offset;
  }
  EXPECT_TRUE(
      says(gpu().map(base + 7 * unit, *memory).status(), Code::kInvalidArgument, {"reserve"}));
  EXPECT_TRUE(
      says(gpu().map(base + 8 * unit, *memory).status(), Code::kInvalidArgument, {"reserve"}));
  EXPECT_TRUE(says(gpu().map(base + 5 * unit + 512, *memory).status(), Code::kInvalidArgument,
                   {"multiples"}));
  ASSERT_OK(gpu().map(base + 4 * unit, *memory));  // Beside it is free.
}

// Goal    only the creator exports: on some GPUs a second-hand export fails late, so it does early
//         on all.
// Method  export, import, export the import.
TEST_P(Refusal, ImportedMemoryIsNotExported) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  const auto imported = gpu().import_fd(0, *fd, granularity());
  ASSERT_OK(imported);
  EXPECT_TRUE(says(gpu().export_fd(*imported).status(), Code::kFailedPrecondition,
                   {"imported", "created"}));
}

// Goal    whatever a client passes instead of memory, the answer says what it was.
// Method  a pipe, a socket, a directory, a device, a closed number.
TEST_P(Refusal, OtherFdsAreNamedAndRefused) {
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  const UniqueFd pipe_in(pipe_ends[0]);
  const UniqueFd pipe_out(pipe_ends[1]);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_TRUE(says(import(pipe_in), Code::kInvalidArgument, {"a pipe"}));
  EXPECT_TRUE(says(import(socket), Code::kInvalidArgument, {"a socket"}));
  EXPECT_TRUE(says(import(folder), Code::kInvalidArgument, {"a directory"}));
  EXPECT_TRUE(says(import(null), Code::kInvalidArgument, {"/dev/null"}));
  EXPECT_TRUE(says(gpu().import_fd(0, BorrowedFd(987654), granularity()).status(),
                   Code::kInvalidArgument, {"987654", "no open file descriptor"}));
}

// Goal    memory that could shrink under its users is not taken, and the answer says how to make
//         memory that is.
// Method  a file on disk, a memfd that cannot be sealed; a memfd that can be is taken by the host
//         driver alone.
TEST_P(Refusal, FilesThatCanShrinkAreRefused) {
  char path[] = "/tmp/cco-contract-XXXXXX";
  const UniqueFd file(::mkostemp(path, O_CLOEXEC));
  ASSERT_TRUE(file);
  ::unlink(path);
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(granularity())), 0);
  EXPECT_TRUE(says(import(file), Code::kInvalidArgument, {"regular file", path}));

  const UniqueFd unsealable = make_memfd(granularity(), 0);
  EXPECT_TRUE(says(import(unsealable), Code::kInvalidArgument, {"regular file"}));
  const UniqueFd sealable = make_memfd(granularity(), MFD_ALLOW_SEALING);
  if (!is_host()) {
    EXPECT_TRUE(says(import(sealable), Code::kInvalidArgument, {"memfd"}));
    return;
  }
  EXPECT_TRUE(
      says(import(unsealable), Code::kInvalidArgument, {"MFD_ALLOW_SEALING", "F_SEAL_SHRINK"}));
  ASSERT_OK(import(sealable));
  EXPECT_NE(::ftruncate(sealable.get(), 0), 0) << "a peer can still shrink what is mapped";
}

// Goal    memory that is smaller than its user thinks is found out before it is touched.
// Method  import one unit as two; libraries that do not tell sizes answer when it is mapped.
TEST_P(Refusal, SmallerMemoryThanAskedFor) {
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  const auto fd = gpu().export_fd(*memory);
  ASSERT_OK(fd);
  const auto imported = gpu().import_fd(0, *fd, 2 * granularity());
  const absl::Status status =
      imported.ok() ? map_area(gpu(), 0, *imported).status() : imported.status();
  EXPECT_TRUE(says(status, Code::kInvalidArgument, {std::to_string(2 * granularity())}));
}

// Goal    lack of memory is told with numbers, and costs nothing.
// Method  ask for more than there is; then for a little, which works.
TEST_P(Refusal, MoreMemoryThanThereIs) {
  const GpuDevice& device = gpu().devices()[0];
  const uint64_t size = (device.total_bytes / granularity() + 1) * granularity();
  EXPECT_TRUE(says(gpu().allocate(0, size, MemoryKind::kData).status(), Code::kResourceExhausted,
                   {std::to_string(size), std::to_string(device.total_bytes), device.uuid}));
  ASSERT_OK(gpu().allocate(0, granularity(), MemoryKind::kData));
}

// Goal    a process at its limit of file descriptors is told so, not that memory is short, and
//         recovers.
// Method  lower RLIMIT_NOFILE to what is open; allocate and export until something fails; raise it
//         again.
TEST_P(Refusal, LackOfFileDescriptorsIsNamed) {
  std::vector<GpuMemory> memories;
  std::vector<UniqueFd> fds;
  absl::Status status;
  {
    const NoMoreFds limit;
    for (int i = 0; i < 8 && status.ok(); ++i) {
      auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
      status = memory.status();
      if (!status.ok()) break;
      auto fd = gpu().export_fd(*memory);
      status = fd.status();
      memories.push_back(*std::move(memory));
      if (fd.ok()) fds.push_back(*std::move(fd));
    }
  }
  EXPECT_TRUE(says(status, Code::kResourceExhausted, {"file descriptor", "RLIMIT_NOFILE"}));
  const auto memory = gpu().allocate(0, granularity(), MemoryKind::kData);
  ASSERT_OK(memory);
  ASSERT_OK(gpu().export_fd(*memory));
}

CCO_INSTANTIATE_CONTRACT(Refusal);

}  // namespace
}  // namespace cco
