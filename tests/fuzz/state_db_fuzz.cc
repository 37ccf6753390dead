// Goal    whatever lies in state.db, opening it ends, in an error or in records that were once
//         committed; what is refused is left as it was.
// Method  the input is the file. Records carry checksums, so that each one loaded is known.
#include <sqlite3.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/state/sqlite_store.h"
#include "tests/fuzz/fuzz.h"

namespace {

using cco::memd::Record;
using cco::memd::RecordKind;
using cco::memd::SqliteStore;

constexpr char kBoot[] = "boot";

/// One folder for all inputs; it goes with the process.
class Folder {
 public:
  Folder() { CCO_ASSERT(::mkdtemp(path_) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  std::string file() const { return path() + "/state.db"; }
  void clear() const {
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      std::filesystem::remove(entry.path());
    }
  }

 private:
  char path_[32] = "/tmp/cco-state-fuzz-XXXXXX";
};

const Folder& folder() {
  static const Folder kept;
  return kept;
}

std::string read_file() {
  std::ifstream file(folder().file(), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string key_of(int i) { return absl::StrCat("key ", i); }
std::string body_of(int i) { return std::string(static_cast<size_t>(40 * i), 'b'); }

bool was_committed(const Record& record) {
  for (int i = 0; i < 20; ++i) {
    if (record.kind == RecordKind::kWindow && record.key == key_of(i)) {
      return record.body == body_of(i);
    }
  }
  return false;
}

/// A store of `count` records with small pages, as the bytes of its file; `sql` is done to it.
std::string make_file(int count, const std::string& sql) {
  folder().clear();
  {
    const auto store = SqliteStore::open(folder().path(), kBoot);
    CCO_ASSERT(store.ok());
    for (int i = 0; i < count; ++i) {
      CCO_ASSERT((*store)->commit({{RecordKind::kWindow, key_of(i), body_of(i)}}).ok());
    }
  }
  sqlite3* database = nullptr;
  CCO_ASSERT(sqlite3_open(folder().file().c_str(), &database) == SQLITE_OK);
  const std::string all = "PRAGMA journal_mode=DELETE; PRAGMA page_size=512; VACUUM;" + sql;
  CCO_ASSERT(sqlite3_exec(database, all.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
  CCO_ASSERT(sqlite3_close(database) == SQLITE_OK);
  return read_file();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string input(reinterpret_cast<const char*>(bytes), size);
  folder().clear();
  std::ofstream(folder().file(), std::ios::binary) << input;
  CCO_ASSERT(::chmod(folder().file().c_str(), 0600) == 0);
  const auto store = SqliteStore::open(folder().path(), kBoot);
  if (!store.ok()) {
    CCO_ASSERT(!store.status().message().empty());
    CCO_ASSERT(read_file() == input);
    return 0;
  }
  const auto records = (*store)->load();
  CCO_ASSERT(records.ok());
  for (const Record& record : *records) CCO_ASSERT(was_committed(record));
  // What is unsound beyond the records may still come up here, as an error.
  const absl::Status committed = (*store)->commit(
      {{RecordKind::kWindow, key_of(1), std::nullopt}, {RecordKind::kSlab, "new", body_of(30)}});
  CCO_ASSERT(committed.ok() || !committed.message().empty());
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"",
          make_file(0, ""),
          make_file(5, ""),
          make_file(12, "PRAGMA journal_mode=WAL"),
          make_file(12, "DELETE FROM records WHERE key<CAST('key 5' AS BLOB)"),
          make_file(3, "PRAGMA user_version=0"),
          make_file(3,
                    "CREATE VIEW v AS SELECT 1; CREATE TRIGGER t AFTER INSERT ON records BEGIN "
                    "DELETE FROM records; END")};
}
