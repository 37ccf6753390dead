// The daemon as an object: everything wired together. main() runs one; tests run several in one
// process, on drivers of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/config.h"
#include "daemon/ports/fd_vault.h"
#include "daemon/ports/journal.h"
#include "daemon/ports/state_store.h"
#include "daemon/state/records.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

/// Where the state lies that outlives the daemon.
struct Keeping {
  StateStore& store;
  FdVault& vault;
};

class Memd {
 public:
  /// Takes the sockets, goes on with what an earlier daemon left, and starts to listen; run()
  /// serves. `driver`, `journal` and what `keeping` names outlive this; null: nothing is kept.
  /// `sockets`: those that systemd listens on for us; none: they are made as configured. Errors as
  /// of Listeners and Recorder; NOT_FOUND: a configured Unix group does not exist.
  static absl::StatusOr<std::unique_ptr<Memd>> create(const Config& config, GpuDriver& driver,
                                                      Journal& journal,
                                                      const Keeping* keeping = nullptr,
                                                      std::vector<UniqueFd> sockets = {});
  ~Memd();

  /// Serves until stop() or, with `handle_signals`, SIGTERM or SIGINT, which must be blocked in
  /// every thread.
  absl::Status run(bool handle_signals);

  /// From any thread. Calls in progress end with UNAVAILABLE; run() returns within seconds.
  void stop();

  /// After run(): false if a GPU still holds a thread inside its driver, so that only _exit() ends
  /// the process.
  bool drained() const;

  /// After run(): it has ended because the next one is to open other GPUs, and keeps all else.
  bool wants_restart() const;

 private:
  struct Parts;
  explicit Memd(std::unique_ptr<Parts> parts);
  absl::Status adopt(Decoded left, const FdVault& vault);
  absl::Status listen();
  void restart();
  absl::Status watch_driver();
  void tell_driver_change();
  void accept_rpc();
  void hang_up_if_silent(int fd, uint64_t inode);
  std::unique_ptr<Parts> parts_;
};

}  // namespace cco::memd
