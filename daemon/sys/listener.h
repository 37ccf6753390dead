// The daemon's two listening sockets, and the promise that no other daemon has them.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::memd {

struct ListenerOptions {
  std::string socket_path;  ///< Of the RPC socket; the fd channel's is derived.
  mode_t mode = 0660;
  int64_t gid = -1;  ///< Owner of both; < 0: the process's own.
};

/// A non-blocking listening socket at `path`, with the mode and group of `options`. A stale socket
/// is replaced; the caller holds a lock that keeps others from doing the same.
absl::StatusOr<UniqueFd> listen_on(const std::string& path, int type,
                                   const ListenerOptions& options);

/// Removes what it made when it goes.
class Listeners {
 public:
  /// ALREADY_EXISTS      another cco-memd runs there (its pid is named), or something else listens
  /// INVALID_ARGUMENT    a path is over 107 bytes
  /// FAILED_PRECONDITION the directory is missing or not writable, or a file of that name is no
  /// socket
  static absl::StatusOr<Listeners> create(const ListenerOptions& options);

  /// Those that systemd listens on: their mode and group are its socket unit's, and it removes
  /// them. INVALID_ARGUMENT: they are others than `socket_path` and the fd channel's, or one is
  /// missing; the message says what the socket unit needs.
  static absl::StatusOr<Listeners> adopt(const std::string& socket_path,
                                         std::vector<UniqueFd> sockets);

  Listeners(Listeners&&) = default;
  Listeners& operator=(Listeners&&) = delete;
  ~Listeners();

  const UniqueFd& rpc() const { return rpc_; }
  const UniqueFd& fds() const { return fds_; }

 private:
  Listeners() = default;
  std::string path_;
  UniqueFd lock_;  // Held for life; the kernel drops it even if we are killed. None: adopted.
  UniqueFd rpc_;
  UniqueFd fds_;
};

}  // namespace cco::memd
