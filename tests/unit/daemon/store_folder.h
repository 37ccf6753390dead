// A store in a folder of its own, and children that use it.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/state/sqlite_store.h"

namespace cco::memd {

using Contents = std::map<std::pair<RecordKind, std::string>, std::string>;

inline constexpr char kBoot[] = "boot-1";

/// state_dir is not there yet.
class StoreFolder : public ::testing::Test {
 protected:
  StoreFolder() { CCO_ASSERT(::mkdtemp(root_) != nullptr); }
  ~StoreFolder() override { std::filesystem::remove_all(root_); }

  std::string dir() const { return absl::StrCat(root_, "/state"); }
  std::string file() const { return dir() + "/state.db"; }
  std::string log() const { return dir() + "/state.db-wal"; }
  absl::StatusOr<std::unique_ptr<SqliteStore>> try_open(const std::string& boot = kBoot) const {
    return SqliteStore::open(dir(), boot);
  }
  std::unique_ptr<SqliteStore> open(const std::string& boot = kBoot) const {
    auto store = try_open(boot);
    EXPECT_TRUE(store.ok()) << store.status();
    CCO_ASSERT(store.ok());
    return *std::move(store);
  }

 private:
  char root_[32] = "/tmp/cco-store-XXXXXX";
};

inline Contents contents(SqliteStore& store) {
  const absl::StatusOr<std::vector<Record>> records = store.load();
  EXPECT_TRUE(records.ok()) << records.status();
  Contents contents;
  if (!records.ok()) return contents;
  for (const Record& record : *records) {
    EXPECT_TRUE(contents.emplace(std::pair(record.kind, record.key), record.body).second);
  }
  return contents;
}

inline RecordChange window(const std::string& key, std::optional<std::string> body) {
  return {RecordKind::kWindow, key, std::move(body)};
}

using Files = std::map<std::string, std::string>;

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  CCO_ASSERT(::chmod(path.c_str(), 0600) == 0);
}
inline Files files_of(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename()] = read_file(entry.path());
  }
  return files;
}
inline void put_back(const std::string& folder, const Files& files) {
  std::filesystem::remove_all(folder);
  CCO_ASSERT(::mkdir(folder.c_str(), 0700) == 0);
  for (const auto& [name, bytes] : files) write_file(absl::StrCat(folder, "/", name), bytes);
}

/// A child that runs `body` and dies by itself after a minute.
inline pid_t start_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  CCO_ASSERT(child >= 0);
  if (child != 0) return child;
  ::alarm(60);
  body();
  ::_exit(::testing::Test::HasFailure() ? 1 : 0);
}
inline int wait_for(pid_t child) {
  int status = 0;
  CCO_ASSERT(::waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace cco::memd
