#include "daemon/state/sqlite_store.h"

#include <sqlite3.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/state/state_folder.h"

namespace cco::memd {
namespace {

// A change of the table is a new version; so is a record that older builds would misread.
constexpr int64_t kVersion = 1;
constexpr char kCreate[] =
    "CREATE TABLE records(kind INTEGER NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL,"
    " checksum INTEGER NOT NULL, PRIMARY KEY(kind, key)) STRICT, WITHOUT ROWID";
// The store's own record, beside those of RecordKind: its key is the boot id.
constexpr int64_t kOwnKind = 0;
// 1 MiB of log, then it starts over. SQLite's own 1000 cost 10 ms at each start.
constexpr int kCheckpointPages = 256;

struct Close {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, Close>;
using Statement = std::unique_ptr<sqlite3_stmt, Close>;

struct Row {
  int64_t kind;
  std::string key;
  std::string body;
};

// SQLite keeps no checksums, and a record with a wrong bit in it would be believed.
int64_t checksum(int64_t kind, const std::string& key, const std::string& body) {
  const std::string head = absl::StrCat(kind, " ", key.size(), " ");
  uLong sum = crc32(0, nullptr, 0);
  for (const std::string& part : {std::cref(head), std::cref(key), std::cref(body)}) {
    sum = crc32_z(sum, reinterpret_cast<const Bytef*>(part.data()), part.size());
  }
  return static_cast<int64_t>(sum);
}

std::string column_bytes(sqlite3_stmt* statement, int column) {
  const void* data = sqlite3_column_blob(statement, column);
  const int size = sqlite3_column_bytes(statement, column);
  return size == 0 ? "" : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

int bind_bytes(sqlite3_stmt* statement, int index, const std::string& bytes) {
  return sqlite3_bind_blob64(statement, index, bytes.data(), bytes.size(), SQLITE_STATIC);
}

}  // namespace

class SqliteStore::Connection {
 public:
  explicit Connection(std::string path) : path_(std::move(path)) {}

  /// How many records of another boot it has removed.
  absl::StatusOr<uint64_t> open(const std::string& boot_id);
  absl::StatusOr<std::vector<Row>> rows();
  absl::Status commit(const std::vector<RecordChange>& changes);

 private:
  absl::Status connect();
  absl::StatusOr<bool> check_version();
  absl::Status check_table(bool is_new);
  absl::Status check_pages();
  absl::Status start_log();
  absl::Status prepare_statements();
  absl::Status create(const std::string& boot_id);
  absl::StatusOr<uint64_t> discard_other_boot(const std::string& boot_id);

  absl::Status begin() { return run("BEGIN IMMEDIATE"); }
  absl::Status end(absl::Status status);
  absl::Status put(int64_t kind, const std::string& key, const std::string& body);
  absl::Status remove(int64_t kind, const std::string& key);

  absl::StatusOr<Statement> prepare(const char* sql);
  absl::Status run(const std::string& sql);
  /// The first column of all rows.
  absl::StatusOr<std::vector<std::string>> query(const char* sql);
  absl::Status finish(sqlite3_stmt* statement, bool bound);
  /// What SQLite says of the last call.
  absl::Status failure();
  absl::Status no_room(const std::string& why) const;
  absl::Status damaged(const std::string& why) const;
  std::string how_to_give_up() const;

  std::string path_;
  Database database_;
  Statement put_, remove_, select_;
};

absl::StatusOr<uint64_t> SqliteStore::Connection::open(const std::string& boot_id) {
  CCO_RETURN_IF_ERROR(connect());
  // Nothing is written before all of this has been read.
  CCO_ASSIGN_OR_RETURN(const bool is_new, check_version());
  CCO_RETURN_IF_ERROR(check_table(is_new));
  CCO_RETURN_IF_ERROR(check_pages());
  if (is_new) {
    CCO_RETURN_IF_ERROR(start_log());
    CCO_RETURN_IF_ERROR(create(boot_id));
    return 0;
  }
  CCO_RETURN_IF_ERROR(prepare_statements());
  return discard_other_boot(boot_id);
}

absl::Status SqliteStore::Connection::connect() {
  sqlite3* database = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int code = sqlite3_open_v2(path_.c_str(), &database, flags, nullptr);
  database_.reset(database);
  if (database == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory to open ", path_));
  }
  if (code != SQLITE_OK) return failure();
  // A refused file stays as it is; and as long as the log is there, an empty state.db is known to
  // have been cut off.
  sqlite3_db_config(database, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_wal_autocheckpoint(database, kCheckpointPages);
  return run("PRAGMA locking_mode=EXCLUSIVE; PRAGMA synchronous=NORMAL");
}

// Version 0 is a file that nothing has been written to. So is one of one byte to SQLite.
absl::StatusOr<bool> SqliteStore::Connection::check_version() {
  std::error_code error;
  if (std::filesystem::file_size(path_, error) == 1) return damaged("it has one byte");
  CCO_ASSIGN_OR_RETURN(const auto version, query("PRAGMA user_version"));
  if (version.at(0) == "0") return true;
  if (version.at(0) == absl::StrCat(kVersion)) return false;
  return absl::FailedPreconditionError(
      absl::StrCat(path_, " has version ", version.at(0), ", this cco-memd reads version ",
                   kVersion, ". Start the cco-memd that wrote it. ", how_to_give_up()));
}

absl::Status SqliteStore::Connection::check_table(bool is_new) {
  CCO_ASSIGN_OR_RETURN(const auto tables, query("SELECT sql FROM sqlite_schema"));
  const std::vector<std::string> expected(is_new ? 0 : 1, kCreate);
  return tables == expected ? absl::OkStatus() : damaged("its tables are not those of cco-memd");
}

absl::Status SqliteStore::Connection::check_pages() {
  CCO_ASSIGN_OR_RETURN(const auto found, query("PRAGMA quick_check(1)"));
  if (found != std::vector<std::string>{"ok"}) return damaged(found.at(0));
  return sqlite3_db_readonly(database_.get(), "main") == 0 ? absl::OkStatus()
                                                           : damaged("it can only be read");
}

absl::Status SqliteStore::Connection::start_log() {
  CCO_ASSIGN_OR_RETURN(const auto mode, query("PRAGMA journal_mode=WAL"));
  if (mode.at(0) == "wal") return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path_, " stays in journal mode ", mode.at(0)));
}

absl::Status SqliteStore::Connection::prepare_statements() {
  CCO_ASSIGN_OR_RETURN(put_, prepare("INSERT OR REPLACE INTO records VALUES(?, ?, ?, ?)"));
  CCO_ASSIGN_OR_RETURN(remove_, prepare("DELETE FROM records WHERE kind=? AND key=?"));
  CCO_ASSIGN_OR_RETURN(select_, prepare("SELECT kind, key, body, checksum FROM records"));
  return absl::OkStatus();
}

absl::Status SqliteStore::Connection::create(const std::string& boot_id) {
  absl::Status status = begin();
  if (status.ok()) status = run(absl::StrCat(kCreate, "; PRAGMA user_version=", kVersion));
  if (status.ok()) status = prepare_statements();
  if (status.ok()) status = put(kOwnKind, boot_id, "");
  return end(status);
}

absl::StatusOr<uint64_t> SqliteStore::Connection::discard_other_boot(const std::string& boot_id) {
  CCO_ASSIGN_OR_RETURN(const std::vector<Row> all, rows());
  const auto own =
      std::find_if(all.begin(), all.end(), [](const Row& row) { return row.kind == kOwnKind; });
  if (own == all.end()) return damaged("it does not say since when the machine ran");
  CCO_RETURN_IF_ERROR(start_log());
  if (own->key == boot_id) return 0;
  absl::Status status = begin();
  if (status.ok()) status = run("DELETE FROM records");
  if (status.ok()) status = put(kOwnKind, boot_id, "");
  CCO_RETURN_IF_ERROR(end(status));
  return all.size() - 1;
}

absl::StatusOr<std::vector<Row>> SqliteStore::Connection::rows() {
  std::vector<Row> rows;
  sqlite3_stmt* select = select_.get();
  while (sqlite3_step(select) == SQLITE_ROW) {
    Row row{sqlite3_column_int64(select, 0), column_bytes(select, 1), column_bytes(select, 2)};
    if (sqlite3_column_int64(select, 3) != checksum(row.kind, row.key, row.body)) {
      sqlite3_reset(select);
      return damaged("a record is not what was written");
    }
    rows.push_back(std::move(row));
  }
  if (sqlite3_reset(select) != SQLITE_OK) return failure();
  return rows;
}

absl::Status SqliteStore::Connection::commit(const std::vector<RecordChange>& changes) {
  absl::Status status = begin();
  for (const RecordChange& change : changes) {
    if (!status.ok()) break;
    const auto kind = static_cast<int64_t>(change.kind);
    CCO_ASSERT(kind != kOwnKind);
    status = change.body ? put(kind, change.key, *change.body) : remove(kind, change.key);
  }
  return end(status);
}

// Ends the transaction as `status` wants it, and returns the first error.
absl::Status SqliteStore::Connection::end(absl::Status status) {
  if (status.ok()) status = run("COMMIT");
  // After some errors SQLite has rolled back by itself.
  if (sqlite3_get_autocommit(database_.get()) == 0) run("ROLLBACK").IgnoreError();
  return status;
}

absl::Status SqliteStore::Connection::put(int64_t kind, const std::string& key,
                                          const std::string& body) {
  sqlite3_stmt* put = put_.get();
  const bool bound = sqlite3_bind_int64(put, 1, kind) == SQLITE_OK &&
                     bind_bytes(put, 2, key) == SQLITE_OK &&
                     bind_bytes(put, 3, body) == SQLITE_OK &&
                     sqlite3_bind_int64(put, 4, checksum(kind, key, body)) == SQLITE_OK;
  return finish(put, bound);
}

absl::Status SqliteStore::Connection::remove(int64_t kind, const std::string& key) {
  sqlite3_stmt* remove = remove_.get();
  const bool bound =
      sqlite3_bind_int64(remove, 1, kind) == SQLITE_OK && bind_bytes(remove, 2, key) == SQLITE_OK;
  return finish(remove, bound);
}

// Runs a statement that gives no rows, unless binding has failed; ready for the next time.
absl::Status SqliteStore::Connection::finish(sqlite3_stmt* statement, bool bound) {
  absl::Status status;
  if (!bound || sqlite3_step(statement) != SQLITE_DONE) status = failure();
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

absl::StatusOr<Statement> SqliteStore::Connection::prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement,
                         nullptr) != SQLITE_OK) {
    return failure();
  }
  return Statement(statement);
}

absl::Status SqliteStore::Connection::run(const std::string& sql) {
  return sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK
             ? absl::OkStatus()
             : failure();
}

absl::StatusOr<std::vector<std::string>> SqliteStore::Connection::query(const char* sql) {
  CCO_ASSIGN_OR_RETURN(const Statement statement, prepare(sql));
  std::vector<std::string> values;
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    values.push_back(column_bytes(statement.get(), 0));
  }
  if (code != SQLITE_DONE) return failure();
  return values;
}

absl::Status SqliteStore::Connection::failure() {
  const int error = errno;  // SQLite keeps it for some calls only.
  const int code = sqlite3_extended_errcode(database_.get());
  const std::string text = sqlite3_errmsg(database_.get());
  switch (code & 0xff) {
    case SQLITE_BUSY:
      return absl::AlreadyExistsError(absl::StrCat(
          "another process", lock_holder(path_), " has ", path_,
          " open, most likely another cco-memd. Stop it, or choose another state_dir"));
    case SQLITE_ERROR:  // Our SQL is right: it does not fit to what is in the file.
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return damaged(text);
    case SQLITE_FULL:
      return no_room(text);
    case SQLITE_IOERR:
      if (error == ENOSPC || error == EDQUOT || error == EFBIG)
        return no_room(std::strerror(error));
      return absl::UnavailableError(absl::StrCat(path_, ": ", text, " (SQLite's code ", code, ", ",
                                                 std::strerror(error), "). Is its disk in order?"));
    default:
      return absl::UnavailableError(absl::StrCat(path_, ": ", text, " (SQLite's code ", code,
                                                 "). May cco-memd read and write there?"));
  }
}

absl::Status SqliteStore::Connection::no_room(const std::string& why) const {
  return absl::ResourceExhaustedError(
      absl::StrCat("no room for ", path_, " or its log: ", why, ". Make some on their disk"));
}

absl::Status SqliteStore::Connection::damaged(const std::string& why) const {
  return absl::DataLossError(absl::StrCat(path_, " is damaged: ", why, ". ", how_to_give_up()));
}

std::string SqliteStore::Connection::how_to_give_up() const {
  return absl::StrCat("It was left as it is. To start without it, move it away, and ", path_,
                      "-wal with it; every session, group and window that they knew is given up");
}

SqliteStore::SqliteStore(std::unique_ptr<Connection> connection, uint64_t discarded)
    : connection_(std::move(connection)), discarded_(discarded) {}

SqliteStore::~SqliteStore() = default;

absl::StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::open(const std::string& state_dir,
                                                               const std::string& boot_id) {
  CCO_ASSIGN_OR_RETURN(std::string path, prepare_state_file(state_dir));
  auto connection = std::make_unique<Connection>(std::move(path));
  CCO_ASSIGN_OR_RETURN(const uint64_t discarded, connection->open(boot_id));
  return std::unique_ptr<SqliteStore>(new SqliteStore(std::move(connection), discarded));
}

absl::StatusOr<std::vector<Record>> SqliteStore::load() {
  CCO_ASSIGN_OR_RETURN(std::vector<Row> rows, connection_->rows());
  std::vector<Record> records;
  for (Row& row : rows) {
    if (row.kind == kOwnKind) continue;
    records.push_back({static_cast<RecordKind>(row.kind), std::move(row.key), std::move(row.body)});
  }
  return records;
}

absl::Status SqliteStore::commit(const std::vector<RecordChange>& changes) {
  const absl::Status status = connection_->commit(changes);
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace cco::memd
