// The daemon's records in one SQLite file, state.db: they survive this process, however it ends.
//
// They are not meant to survive the machine: with it, what they describe is gone. So a commit waits
// for no disk (synchronous=NORMAL in WAL mode): it is in the kernel's hands when it returns, after
// some 20 us for one record and 0.6 ms for a hundred. The disk is waited for only when the log is
// folded into the file, once in 256 pages of log, which can take 20 ms and more on a busy disk, and
// no time on tmpfs: the right place for state_dir. After a loss of power the file can then still be
// read, and its boot id tells that all of it is void. synchronous=OFF would never wait, but leave a
// file that may be damaged, and a daemon that refuses to start. To open 1,100 records takes 1.5 ms,
// to load them 0.6 ms.
//
// Limit    SQLite takes the log (state.db-wal) up to the first frame whose checksum is wrong, so
//          damage to the log costs the commits after it, and is not told. Damage to state.db is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/ports/state_store.h"

namespace cco::memd {

/// Used by one thread at a time. No other code of the process may open state.db, not even to read:
/// closing it drops the lock that keeps other daemons out.
class SqliteStore final : public StateStore {
 public:
  /// Makes the folder (mode 0700; not those above it) and the file (0600) if needed. Records of
  /// another boot are removed, all at once. Any error leaves on disk what was there.
  ///
  /// INVALID_ARGUMENT     the path is not absolute
  /// FAILED_PRECONDITION  folder or file cannot be used, may be written by others, or belongs to
  ///                      another user; or another version wrote the file
  /// ALREADY_EXISTS       a process, named if possible, has the file open
  /// DATA_LOSS            the file is damaged; the message tells what to move away
  /// RESOURCE_EXHAUSTED   no room on the disk
  /// UNAVAILABLE          any other failure of the disk
  static absl::StatusOr<std::unique_ptr<SqliteStore>> open(const std::string& state_dir,
                                                           const std::string& boot_id);
  ~SqliteStore() override;

  /// DATA_LOSS if a record is not what was committed. A kind that this build does not know comes as
  /// its number.
  absl::StatusOr<std::vector<Record>> load() override;
  absl::Status commit(const std::vector<RecordChange>& changes) override;

  /// How many records open() removed because the machine had been started anew.
  uint64_t discarded() const { return discarded_; }

 private:
  class Connection;
  SqliteStore(std::unique_ptr<Connection> connection, uint64_t discarded);

  std::unique_ptr<Connection> connection_;
  uint64_t discarded_;
};

}  // namespace cco::memd
