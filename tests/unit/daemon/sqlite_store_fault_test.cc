// The store when its disk is full, and when its process is killed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "client/base/unique.h"
#include "tests/unit/daemon/store_folder.h"

namespace cco::memd {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;
using SqliteStoreFault = StoreFolder;

// What SQLite's writes meet, by SQLite's own way to replace system calls.
enum class Fault { kNone, kError, kKill };
struct {
  Fault fault = Fault::kNone;
  int error = 0;
  int before = 0;  ///< Writes that still succeed.
  bool was_met = false;
} disk;

// The first write that fails does half of its work.
ssize_t faulty_pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  if (disk.fault == Fault::kNone || disk.before-- > 0) return ::pwrite(fd, bytes, size, offset);
  const bool is_first = !std::exchange(disk.was_met, true);
  const ssize_t done = is_first && size > 1 ? ::pwrite(fd, bytes, size / 2, offset) : -1;
  if (disk.fault == Fault::kKill) ::raise(SIGKILL);
  if (done < 0) errno = disk.error;
  return done;
}

class FaultyDisk : public StoreFolder {
 protected:
  FaultyDisk() {
    sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
    for (const char* name : {"pwrite", "pwrite64"}) {  // Which one depends on how it was built.
      vfs->xSetSystemCall(vfs, name, reinterpret_cast<sqlite3_syscall_ptr>(faulty_pwrite));
    }
  }
  ~FaultyDisk() override {
    sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
    vfs->xSetSystemCall(vfs, nullptr, nullptr);
    disk = {};
  }
};

// A commit of which each part tells which commit it was, large enough that the log is folded.
constexpr int kParts = 4;
std::vector<RecordChange> commit_of(int number, size_t part_bytes) {
  std::vector<RecordChange> changes;
  for (int part = 0; part < kParts; ++part) {
    std::string body(part_bytes, 'x');
    std::memcpy(body.data(), &number, sizeof number);
    changes.push_back(window(absl::StrCat("part-", part), std::move(body)));
  }
  return changes;
}
// The number of the commit that is there: all of it, or -1.
int number_in(SqliteStore& store) {
  const Contents all = contents(store);
  if (all.empty()) return 0;
  EXPECT_EQ(all.size(), size_t{kParts});
  int number = -1;
  for (const auto& [key, body] : all) {
    int here = -1;
    std::memcpy(&here, body.data(), sizeof here);
    EXPECT_TRUE(number == -1 || number == here) << "parts of commits " << number << " and " << here;
    number = here;
  }
  return number;
}
constexpr size_t kLargePart = 300'000;

// Goal    whichever write of a commit fails, it leaves the store as it was, and the same commit
//         succeeds once the disk takes it; no room is told from other failures.
TEST_F(FaultyDisk, FailedCommitIsTriedAgain) {
  const auto store = open();
  constexpr int kErrors[] = {ENOSPC, EDQUOT, EIO};
  int number = 0, failed = 0;
  ASSERT_TRUE(store->commit(commit_of(number, kLargePart)).ok());
  bool met = true;
  for (int step = 0; met; step += 1 + step / 4) {
    const int error = kErrors[++number % std::size(kErrors)];
    const auto commit = commit_of(number, kLargePart);
    disk = {Fault::kError, error, step, false};
    const absl::Status status = store->commit(commit);
    met = disk.was_met;
    if (!status.ok()) {
      ++failed;
      EXPECT_EQ(status.code(), error == EIO ? Code::kUnavailable : Code::kResourceExhausted)
          << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(file()));
      EXPECT_EQ(number_in(*store), number - 1) << "write " << step;
      EXPECT_FALSE(store->commit(commit).ok()) << "the disk still fails";
      disk.fault = Fault::kNone;
      EXPECT_TRUE(store->commit(commit).ok()) << "write " << step;
    }
    disk.fault = Fault::kNone;
    EXPECT_EQ(number_in(*store), number);
  }
  EXPECT_GT(failed, 10);
}

// Goal    the kernel's own refusal, here by a limit on file sizes, is told as no room.
TEST_F(SqliteStoreFault, FileSizeLimitIsNoRoom) {
  const int status = wait_for(start_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    const auto store = open();
    const rlimit low{100'000, limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
    int number = 1;
    absl::Status committed;
    while ((committed = store->commit(commit_of(number, 1000))).ok() && number < 1000) ++number;
    EXPECT_EQ(committed.code(), Code::kResourceExhausted) << committed;
    EXPECT_EQ(number_in(*store), number - 1);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_TRUE(store->commit(commit_of(number, 1000)).ok());
    EXPECT_EQ(number_in(*store), number);
  }));
  EXPECT_EQ(status, 0);
}

// Goal    a file system that is full, or cannot be written, is said to be; room made is used.
TEST_F(SqliteStoreFault, FullAndReadOnlyFileSystem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a small file system";
  ASSERT_EQ(::mkdir(dir().c_str(), 0700), 0);
  constexpr int kSkipped = 77;
  const int status = wait_for(start_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("", "/", "", MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("", dir().c_str(), "tmpfs", 0, "size=256k,mode=0700") != 0) {
      ::_exit(kSkipped);
    }
    auto store = open();
    const auto commit = commit_of(1, 100'000);
    EXPECT_EQ(store->commit(commit).code(), Code::kResourceExhausted);
    EXPECT_EQ(number_in(*store), 0);
    ASSERT_EQ(::mount("", dir().c_str(), "", MS_REMOUNT, "size=4m"), 0);
    EXPECT_TRUE(store->commit(commit).ok());
    store.reset();
    ASSERT_EQ(::mount("", dir().c_str(), "", MS_REMOUNT | MS_RDONLY, "size=4m"), 0);
    const absl::Status refused = try_open().status();
    EXPECT_EQ(refused.code(), Code::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("Read-only file system"));
    ASSERT_EQ(::mount("", dir().c_str(), "", MS_REMOUNT, "size=4m"), 0);
    EXPECT_EQ(number_in(*open()), 1);
  }));
  if (WIFEXITED(status) && WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << "mount is not allowed";
  EXPECT_EQ(status, 0);
}

// Goal    a process killed in the middle of any write leaves the commit before it, or all of it.
TEST_F(FaultyDisk, KilledAtEachWrite) {
  ASSERT_TRUE(open()->commit(commit_of(0, kLargePart)).ok());
  int number = 0, kills = 0;
  bool killed = true;
  for (int step = 0; killed; step += 1 + step / 4) {
    const int status = wait_for(start_child([&] {
      const auto store = open();
      disk = {Fault::kKill, 0, step, false};
      EXPECT_TRUE(store->commit(commit_of(number + 1, kLargePart)).ok());
    }));
    killed = WIFSIGNALED(status);
    kills += killed;
    ASSERT_TRUE(status == 0 || (killed && WTERMSIG(status) == SIGKILL)) << status;
    const int found = number_in(*open());
    EXPECT_TRUE(found == number + 1 || (killed && found == number)) << "write " << step;
    number = found;
  }
  EXPECT_GT(kills, 10);
  EXPECT_GT(number, 1) << "none was killed after its commit";
}

// Goal    a process killed while it makes the store leaves something that can be opened.
TEST_F(FaultyDisk, KilledWhileItIsMade) {
  bool killed = true;
  int step = 0;
  for (; killed; ++step) {
    std::filesystem::remove_all(dir());
    killed = WIFSIGNALED(wait_for(start_child([&] {
      disk = {Fault::kKill, 0, step, false};
      open();
    })));
    const auto store = open();
    EXPECT_EQ(number_in(*store), 0) << "write " << step;
    EXPECT_TRUE(store->commit(commit_of(1, 1000)).ok());
  }
  EXPECT_GT(step, 5);
}

// Goal    damage to the log costs the commits after it, and no part of one is left.
TEST_F(SqliteStoreFault, DamagedLogIsReadUpToThere) {
  constexpr int kCommits = 5;
  {
    const auto store = open();
    for (int i = 1; i <= kCommits; ++i) ASSERT_TRUE(store->commit(commit_of(i, 1500)).ok());
  }
  const Files whole = files_of(dir());
  const size_t size = whole.at("state.db-wal").size();
  int earlier = kCommits;
  for (size_t at = size; at > 0; at -= std::min<size_t>(at, 1013)) {
    Files flipped = whole, cut = whole;
    if (at < size) flipped["state.db-wal"][at] ^= 1;
    cut["state.db-wal"].resize(at);
    put_back(dir(), flipped);
    const int found = number_in(*open());
    EXPECT_LE(found, earlier) << at;
    put_back(dir(), cut);
    EXPECT_EQ(number_in(*open()), found) << at;
    earlier = found;
  }
  EXPECT_EQ(earlier, 0);
}

// Goal    SIGKILL at any moment of a stream of commits costs none that was answered.
TEST_F(SqliteStoreFault, KilledBetweenAndDuringCommits) {
  int number = 0;
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    UniqueFd reader(ends[0]), writer(ends[1]);
    const pid_t child = start_child([&] {
      const auto store = open();
      for (int i = number + 1; store->commit(commit_of(i, 5000)).ok(); ++i) {
        if (::write(writer.get(), &i, sizeof i) != sizeof i) break;
      }
    });
    writer.reset();
    int answered = number;
    for (int acks = 0; ::read(reader.get(), &answered, sizeof answered) == sizeof answered;) {
      if (++acks == 1 + round * 3) ::kill(child, SIGKILL);
    }
    EXPECT_TRUE(WIFSIGNALED(wait_for(child)));
    EXPECT_GE(answered, number + 1 + round * 3);
    number = number_in(*open());
    EXPECT_TRUE(number == answered || number == answered + 1) << number << " after " << answered;
  }
}

}  // namespace
}  // namespace cco::memd
