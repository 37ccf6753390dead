// Opens what a configured state_dir stands for: the records, and what holds the descriptors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/config.h"
#include "daemon/memd.h"
#include "daemon/state/sqlite_store.h"
#include "device/runtime/open_driver.h"

namespace cco::memd {

class KeptState {
 public:
  /// systemd's descriptor store if $FDSTORE says that there is one, with what it gave to us as
  /// `kept`; else a keeper. Errors as of SqliteStore, SystemdVault and KeeperVault.
  static absl::StatusOr<std::unique_ptr<KeptState>> open(const Config& config, Journal& journal,
                                                         std::map<std::string, UniqueFd> kept = {});

  /// What the state says of the driver to open: without the GPUs that are drained.
  absl::Status choose_gpus(DriverOptions* options) const;

  Keeping keeping() { return {*store_, *vault_}; }

 private:
  KeptState() = default;
  std::unique_ptr<SqliteStore> store_;
  std::unique_ptr<FdVault> vault_;
};

}  // namespace cco::memd
