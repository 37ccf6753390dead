#include "daemon/kept_state.h"

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/sys/keeper_vault.h"
#include "daemon/sys/systemd_vault.h"

namespace cco::memd {
namespace {

// random(4): new with every start of the machine.
absl::StatusOr<std::string> boot_id() {
  constexpr char kPath[] = "/proc/sys/kernel/random/boot_id";
  std::ifstream file(kPath);
  std::string id;
  if (std::getline(file, id) && !id.empty()) return id;
  return absl::UnavailableError(absl::StrCat(
      "cannot read ", kPath, ", which tells whether the state is of this boot. Is /proc mounted?"));
}

absl::StatusOr<std::unique_ptr<FdVault>> open_vault(const Config& config,
                                                    std::map<std::string, UniqueFd> kept) {
  if (std::getenv("FDSTORE") != nullptr) return SystemdVault::open(std::move(kept));
  KeeperVault::Options options;
  options.state_dir = config.state_dir;
  options.linger = config.keeper_linger;
  CCO_ASSIGN_OR_RETURN(options.program, find_keeper_program());
  return KeeperVault::open(options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<KeptState>> KeptState::open(const Config& config, Journal& journal,
                                                           std::map<std::string, UniqueFd> kept) {
  CCO_ASSIGN_OR_RETURN(const std::string boot, boot_id());
  std::unique_ptr<KeptState> state(new KeptState);
  CCO_ASSIGN_OR_RETURN(state->store_, SqliteStore::open(config.state_dir, boot));
  if (state->store_->discarded() > 0) {
    journal.record(Severity::kWarning, "state_discarded",
                   absl::StrCat("records=", state->store_->discarded(),
                                " reason=\"the machine has been started anew since: all memory and "
                                "all processes that they tell of are gone\""));
  }
  CCO_ASSIGN_OR_RETURN(state->vault_, open_vault(config, std::move(kept)));
  return state;
}

absl::Status KeptState::choose_gpus(DriverOptions* options) const {
  CCO_ASSIGN_OR_RETURN(const std::vector<Record> records, store_->load());
  CCO_ASSIGN_OR_RETURN(RecordedGpus gpus, decode_gpus(records));
  if (!gpus.any_drained) return absl::OkStatus();
  // With GPUs of it hidden, "auto" could take another.
  if (options->kind == DriverKind::kAuto) {
    CCO_ASSIGN_OR_RETURN(options->kind, parse_driver_kind(gpus.driver));
  }
  options->hides_gpus = true;
  options->visible_gpus = std::move(gpus.visible);
  return absl::OkStatus();
}

}  // namespace cco::memd
