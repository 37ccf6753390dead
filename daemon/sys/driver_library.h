// Whether the file of the driver's library is still the one that was opened: a package manager may
// replace it under a running daemon, and then the next start, and each new client, gets another.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/base/unique.h"

namespace cco::memd {

class DriverLibrary {
 public:
  /// `file`: of the library, which has just been opened; empty: the driver has none. `root` stands
  /// before /proc.
  explicit DriverLibrary(std::string file, std::string root = "");

  /// What runs, what is on disk now, and what to do; empty: they are the same.
  std::string change() const;

  /// Readable when change() may tell something else than before: call drain() then. RESOURCE_…:
  /// the kernel's limit of watches. Null: there is nothing to watch.
  absl::StatusOr<UniqueFd> watch() const;
  static void drain(BorrowedFd watch);

 private:
  struct Identity {
    std::string path;  // No link any more.
    dev_t device = 0;
    ino_t inode = 0;
    int64_t changed_ns = 0;
    friend bool operator==(const Identity&, const Identity&) = default;
  };
  std::optional<Identity> look() const;
  /// Of the kernel's module, where it is NVIDIA's; else empty.
  std::string module_version() const;

  const std::string file_;
  const std::string root_;
  const std::optional<Identity> opened_;
};

}  // namespace cco::memd
