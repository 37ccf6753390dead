#include "daemon/sys/driver_library.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cco::memd {
namespace {

// "550.54.15".
bool is_version(const std::string& word) {
  return std::count(word.begin(), word.end(), '.') >= 1 &&
         std::all_of(word.begin(), word.end(), [](unsigned char character) {
           return absl::ascii_isdigit(character) || character == '.';
         });
}

// "550.54.15" of "/usr/lib/libcuda.so.550.54.15"; empty: the name has none.
std::string version_of(const std::string& path) {
  const size_t suffix = path.rfind(".so.");
  const std::string version = suffix == std::string::npos ? "" : path.substr(suffix + 4);
  return is_version(version) ? version : "";
}

}  // namespace

DriverLibrary::DriverLibrary(std::string file, std::string root)
    : file_(std::move(file)), root_(std::move(root)), opened_(look()) {}

std::optional<DriverLibrary::Identity> DriverLibrary::look() const {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(file_, error);
  struct stat facts {};
  if (error || ::stat(path.c_str(), &facts) != 0) return std::nullopt;
  return Identity{path, facts.st_dev, facts.st_ino,
                  facts.st_mtim.tv_sec * int64_t{1'000'000'000} + facts.st_mtim.tv_nsec};
}

std::string DriverLibrary::module_version() const {
  std::ifstream file(root_ + "/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(line, ' '))) {
    if (is_version(word)) return word;
  }
  return "";
}

std::string DriverLibrary::change() const {
  if (!opened_.has_value()) return "";
  const std::optional<Identity> now = look();
  if (now == opened_) return "";
  const std::string running = absl::StrCat("running ", opened_->path, ", ");
  if (!now.has_value()) {
    return absl::StrCat(running, "and ", file_,
                        " is not on disk any more: install the driver again before cco-memd, or a "
                        "client, is started");
  }
  const std::string text = absl::StrCat(
      running, "on disk ", now->path == opened_->path ? "another file of that name" : now->path);
  const std::string module = module_version(), library = version_of(now->path);
  if (!module.empty() && !library.empty() && module != library) {
    return absl::StrCat(text, ", which does not work with the kernel's module ", module,
                        ": no client and no cco-memd can be started until the module is loaded "
                        "anew (`ccoctl drain` lets go of it), or the machine is");
  }
  return absl::StrCat(text,
                      ": new clients get that one. Restart cco-memd, which with a state_dir keeps "
                      "all groups, and clients when they can be");
}

absl::StatusOr<UniqueFd> DriverLibrary::watch() const {
  if (!opened_.has_value()) return UniqueFd();
  UniqueFd fd(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  constexpr uint32_t kEvents =
      IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR;
  // The link's folder, and the file's.
  for (const std::string& path : std::set<std::string>{file_, opened_->path}) {
    const std::string folder = std::filesystem::path(path).parent_path();
    if (!fd || ::inotify_add_watch(fd.get(), folder.c_str(), kEvents) < 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat("inotify on ", folder, ": ", std::strerror(errno)));
    }
  }
  return fd;
}

void DriverLibrary::drain(BorrowedFd watch) {
  char events[4096];
  while (::read(watch.get(), events, sizeof events) > 0) {
  }
}

}  // namespace cco::memd
