// The daemon as an object: everything wired together. main() runs one; tests run several in one
// process, on drivers of their own.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/config.h"
#include "daemon/ports/journal.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

class Memd {
 public:
  /// Takes the sockets and starts to listen; run() serves. `driver` and `journal` outlive this.
  /// Errors as of Listeners::create(); NOT_FOUND: a configured Unix group does not exist.
  static absl::StatusOr<std::unique_ptr<Memd>> create(const Config& config, GpuDriver& driver,
                                                      Journal& journal);
  ~Memd();

  /// Serves until stop() or, with `handle_signals`, SIGTERM or SIGINT, which must be blocked in
  /// every thread.
  absl::Status run(bool handle_signals);

  /// From any thread. Calls in progress end with UNAVAILABLE; run() returns within seconds.
  void stop();

  /// After run(): false if a GPU still holds a thread inside its driver, so that only _exit() ends
  /// the process.
  bool drained() const;

 private:
  struct Parts;
  explicit Memd(std::unique_ptr<Parts> parts);
  void accept_rpc();
  void hang_up_if_silent(int fd, uint64_t inode);
  std::unique_ptr<Parts> parts_;
};

}  // namespace cco::memd
