#include "daemon/state/state_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/base/unique.h"

namespace cco::memd {
namespace {

absl::Status failure(const std::string& what, const std::string& path, const std::string& advice) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " ", path, ": ", std::strerror(errno), ". ", advice));
}

// By mode and owner, not by trying: root may write what the mode forbids.
absl::Status check_access(const std::string& path, const struct stat& info, mode_t needed) {
  if (info.st_uid != ::geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " belongs to uid ", info.st_uid, ", cco-memd runs as uid ", ::geteuid(),
                     ". Change its owner, or choose another state_dir"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 || (info.st_mode & needed) != needed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has mode %03o: its owner has to have %03o, and nobody else may write. Change its mode, "
        "or choose another state_dir",
        path, info.st_mode & 0777, needed));
  }
  if (::access(path.c_str(), R_OK | W_OK) != 0) {
    return failure("cannot write", path, "Choose a state_dir on a file system that is writable");
  }
  return absl::OkStatus();
}

absl::Status prepare_folder(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return failure("cannot make state_dir", path,
                   "Does the folder above exist, and may this user write there?");
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return failure("cannot look at state_dir", path, "May this user reach it?");
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("state_dir ", path, " is no folder. Remove it, or choose another state_dir"));
  }
  return check_access(path, info, S_IRWXU);
}

// SQLite would take an empty file for a new one, and delete the log beside it.
absl::Status check_no_log_alone(const std::string& path) {
  struct stat log {};
  if (::lstat((path + "-wal").c_str(), &log) != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is empty or gone, but ", path, "-wal, which belongs to it, is there. Bring ", path,
      " back, or move both away: every session, group and window that they knew is given up"));
}

}  // namespace

absl::StatusOr<std::string> prepare_state_file(const std::string& state_dir) {
  if (state_dir.empty() || state_dir.front() != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("state_dir is '", state_dir, "'; it has to be an absolute path"));
  }
  CCO_RETURN_IF_ERROR(prepare_folder(state_dir));
  const std::string path = state_dir + "/state.db";
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    CCO_RETURN_IF_ERROR(check_no_log_alone(path));
    // Born here: SQLite's own would be readable by all.
    const UniqueFd fd(
        ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!fd) return failure("cannot make", path, "Does it hold room for a file?");
    return path;
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no regular file. Remove it, or choose another state_dir"));
  }
  CCO_RETURN_IF_ERROR(check_access(path, info, S_IRUSR | S_IWUSR));
  if (info.st_size == 0) CCO_RETURN_IF_ERROR(check_no_log_alone(path));
  return path;
}

// Not by F_GETLK: the descriptor it needs, once closed, takes all locks of this process on the file
// with it.
std::string lock_holder(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return "";
  const std::string file =
      absl::StrFormat("%02x:%02x:%d", major(info.st_dev), minor(info.st_dev), info.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, nature, access, pid, locked;
    words >> number >> kind >> nature >> access >> pid >> locked;
    if (kind == "POSIX" && locked == file) return absl::StrCat(" (pid ", pid, ")");
  }
  return "";
}

}  // namespace cco::memd
