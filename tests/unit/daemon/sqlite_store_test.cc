// What the daemon keeps on disk, and everything that can happen to it there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/unit/daemon/store_folder.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Code = absl::StatusCode;
using SqliteStoreTest = StoreFolder;

// Runs SQL behind the store's back. The log is folded into the file when it ends.
void run_sql(const std::string& file, const std::string& sql) {
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &database), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(database);
  ASSERT_EQ(sqlite3_close(database), SQLITE_OK);
}
void fold_log(const std::string& file) { run_sql(file, "PRAGMA wal_checkpoint(TRUNCATE)"); }

// Goal    what was committed is there after the store was opened again: binary, empty, replaced,
//         removed, and the same key of two kinds.
TEST_F(SqliteStoreTest, KeepsWhatWasCommitted) {
  const std::string binary("\0\xff'\n", 4);
  Contents expected;
  {
    const auto store = open();
    EXPECT_THAT(contents(*store), IsEmpty());
    EXPECT_TRUE(store->commit({}).ok());
    EXPECT_TRUE(store
                    ->commit({window("a", "old"),
                              window("b", "b"),
                              window(binary, binary),
                              window("", ""),
                              {RecordKind::kSlab, "a", "slab"}})
                    .ok());
    EXPECT_TRUE(store
                    ->commit({window("a", "new"), window("b", std::nullopt),
                              window("unknown", std::nullopt), window("c", "1"), window("c", "2"),
                              window("d", "1"), window("d", std::nullopt)})
                    .ok());
    expected = {{{RecordKind::kWindow, "a"}, "new"},
                {{RecordKind::kWindow, binary}, binary},
                {{RecordKind::kWindow, ""}, ""},
                {{RecordKind::kWindow, "c"}, "2"},
                {{RecordKind::kSlab, "a"}, "slab"}};
    EXPECT_EQ(contents(*store), expected);
  }
  const auto store = open();
  EXPECT_EQ(contents(*store), expected);
  EXPECT_EQ(store->discarded(), 0u);
}

// Goal    nobody else can read the sessions' secrets, whatever the umask.
TEST_F(SqliteStoreTest, FilesArePrivate) {
  const mode_t before = ::umask(0);
  const auto store = open();
  EXPECT_TRUE(store->commit({window("a", "a")}).ok());
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat(dir().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const auto& entry : std::filesystem::directory_iterator(dir())) {
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << entry.path();
  }
}

// Goal    records of another boot go, and are counted once.
TEST_F(SqliteStoreTest, AnotherBootDiscardsAll) {
  EXPECT_TRUE(open()->commit({window("a", "a"), window("b", "b")}).ok());
  {
    const auto store = open("boot-2");
    EXPECT_EQ(store->discarded(), 2u);
    EXPECT_THAT(contents(*store), IsEmpty());
    EXPECT_TRUE(store->commit({window("c", "c")}).ok());
  }
  const auto store = open("boot-2");
  EXPECT_EQ(store->discarded(), 0u);
  EXPECT_EQ(contents(*store).size(), 1u);
}

// Goal    a second store on the folder is refused, names who has it, and takes nothing from it.
TEST_F(SqliteStoreTest, OneAtATime) {
  auto store = open();
  for (int i = 0; i < 2; ++i) {  // The first refusal must not loosen the lock.
    const int status = wait_for(start_child([&] {
      const auto second = try_open();
      EXPECT_EQ(second.status().code(), Code::kAlreadyExists);
      EXPECT_THAT(std::string(second.status().message()),
                  AllOf(HasSubstr(file()), HasSubstr(absl::StrCat("pid ", ::getppid())),
                        HasSubstr("state_dir")));
    }));
    EXPECT_EQ(status, 0);
    EXPECT_EQ(try_open().status().code(), Code::kAlreadyExists) << "in the same process";
  }
  EXPECT_TRUE(store->commit({window("a", "a")}).ok());
  store.reset();
  EXPECT_EQ(contents(*open()).size(), 1u);
}

// Goal    a folder or file that cannot be used, or that others may write, is refused with its name.
TEST_F(SqliteStoreTest, RefusesUnsafePlaces) {
  const auto refused = [&](const std::string& words) {
    const absl::Status status = try_open().status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(dir()), HasSubstr(words)));
  };
  EXPECT_EQ(SqliteStore::open("state", kBoot).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SqliteStore::open("", kBoot).status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(SqliteStore::open(dir() + "/below", kBoot).status().message()),
              HasSubstr("No such file"));
  write_file(dir(), "");
  refused("no folder");
  ::unlink(dir().c_str());
  open();
  for (const mode_t mode : {0500, 0600, 0770, 0702}) {
    ASSERT_EQ(::chmod(dir().c_str(), mode), 0);
    refused(absl::StrFormat("mode %03o", mode));
  }
  ASSERT_EQ(::chmod(dir().c_str(), 0700), 0);
  for (const mode_t mode : {0400, 0200, 0620, 0602}) {
    ASSERT_EQ(::chmod(file().c_str(), mode), 0);
    refused("state.db has mode");
  }
  ::unlink(log().c_str());
  ::unlink(file().c_str());
  ASSERT_EQ(::symlink("/dev/null", file().c_str()), 0);
  refused("no regular file");
}

// Goal    another user's folder, or file, is refused.
TEST_F(SqliteStoreTest, RefusesAnotherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  open();
  for (const std::string& path : {file(), dir()}) {
    ASSERT_EQ(::chown(path.c_str(), 12345, 0), 0);
    const absl::Status status = try_open().status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path + " belongs to uid 12345"), HasSubstr("uid 0")));
  }
}

// Goal    a file of another version is refused by number, and stays.
TEST_F(SqliteStoreTest, RefusesOtherVersions) {
  EXPECT_TRUE(open()->commit({window("a", "a")}).ok());
  for (const int version : {2, 1000, -1}) {
    run_sql(file(), absl::StrCat("PRAGMA user_version=", version));
    const Files before = files_of(dir());
    const absl::Status status = try_open("boot-2").status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(absl::StrCat("version ", version)),
                                                     HasSubstr("version 1"), HasSubstr("move")));
    EXPECT_TRUE(files_of(dir())["state.db"] == before.at("state.db"));
  }
}

// Goal    what is no state of ours, or a part of one, is refused by name, and stays.
TEST_F(SqliteStoreTest, RefusesDamagedFiles) {
  {
    const auto store = open();
    std::vector<RecordChange> changes;
    for (int i = 0; i < 100; ++i) changes.push_back(window(absl::StrCat(i), std::string(200, 'x')));
    EXPECT_TRUE(store->commit(changes).ok());
  }
  fold_log(file());
  const std::string whole = read_file(file());
  ASSERT_GT(whole.size(), 5 * 4096u);
  std::vector<std::string> damaged = {"x", std::string(10000, 'x'), std::string(10000, '\0'),
                                      "SQLite format 3"};
  for (size_t size = 1; size < whole.size(); size += 1019) damaged.push_back(whole.substr(0, size));
  for (size_t page = 0; page < whole.size(); page += 4096) {
    damaged.push_back(std::string(whole).replace(page, 4096, 4096, '\0'));
  }
  for (const std::string& bytes : damaged) {
    put_back(dir(), {{"state.db", bytes}});
    const absl::Status status = try_open("boot-2").status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << bytes.size() << " bytes: " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(file()), HasSubstr("damaged"), HasSubstr("move it away")));
    EXPECT_TRUE(read_file(file()) == bytes);
  }
  for (const char* sql : {"CREATE TABLE other(a)",
                          "CREATE TRIGGER t AFTER DELETE ON records BEGIN "
                          "SELECT 1; END",
                          "PRAGMA user_version=0", "DELETE FROM records"}) {
    put_back(dir(), {{"state.db", whole}});
    run_sql(file(), sql);
    const std::string before = read_file(file());
    EXPECT_EQ(try_open("boot-2").status().code(), Code::kDataLoss) << sql;
    EXPECT_TRUE(read_file(file()) == before) << sql;
  }
}

// Goal    no flipped bit changes a record: it is refused and left, or it was not in use.
TEST_F(SqliteStoreTest, NoFlippedBitIsBelieved) {
  Contents expected;
  {
    const auto store = open();
    for (int i = 0; i < 60; ++i) {
      const std::string body = i == 7 ? std::string(9000, 'o') : absl::StrCat("body of ", i);
      EXPECT_TRUE(store->commit({window(absl::StrCat("key-", i), body)}).ok());
      expected[{RecordKind::kWindow, absl::StrCat("key-", i)}] = body;
    }
  }
  fold_log(file());
  const std::string whole = read_file(file());
  for (size_t at = 0; at < whole.size(); at += at < 200 ? 1 : 29) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    put_back(dir(), {{"state.db", bytes}});
    auto store = try_open();
    if (!store.ok()) {
      EXPECT_THAT(store.status().code(), AnyOf(Code::kDataLoss, Code::kFailedPrecondition))
          << at << ": " << store.status();
      EXPECT_TRUE(read_file(file()) == bytes) << at;
      continue;
    }
    EXPECT_EQ(contents(**store), expected) << at;
    EXPECT_EQ((*store)->discarded(), 0u) << at;
    if (at >= 100) continue;  // The file's own header may forbid to write.
    EXPECT_TRUE((*store)->commit({window("one", "more")}).ok()) << at;
  }
}

// Goal    a file that was emptied or moved away without its log is not taken for a new one.
TEST_F(SqliteStoreTest, RefusesLogWithoutFile) {
  EXPECT_TRUE(open()->commit({window("a", "a")}).ok());
  const std::string log_before = read_file(log());
  ASSERT_FALSE(log_before.empty());
  const std::string whole = read_file(file());
  write_file(file(), "");
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = try_open().status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(log()), HasSubstr("move both")));
    EXPECT_TRUE(read_file(log()) == log_before);
    ::unlink(file().c_str());
  }
  write_file(file(), whole);
  EXPECT_EQ(contents(*open()).size(), 1u);
}

// Goal    hours of commits let neither the file nor its log grow.
TEST_F(SqliteStoreTest, LogIsBounded) {
  const auto store = open();
  for (int i = 0; i < 5000; ++i) {  // 20 MiB of log and more, were it only written on.
    const std::string body(500 + i % 7, 'x');
    ASSERT_TRUE(store->commit({window(absl::StrCat(i % 100), body)}).ok());
    ASSERT_LT(std::filesystem::file_size(log()), 2u << 20) << "after " << i << " commits";
  }
  EXPECT_GT(std::filesystem::file_size(file()), 50'000u);
  EXPECT_LT(std::filesystem::file_size(file()), 200'000u);
}

}  // namespace
}  // namespace cco::memd
