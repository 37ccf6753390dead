// Checks of sockets, limits and machine: what needs no GPU.
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/fd_frame.h"
#include "client/ctl/doctor.h"

namespace cco::ctl {
namespace {

constexpr uint64_t kWantedDescriptors = 1024;

std::string user_name(uid_t uid) {
  const passwd* entry = ::getpwuid(uid);
  return entry != nullptr ? entry->pw_name : absl::StrCat("uid ", uid);
}

std::string group_name(gid_t gid) {
  const ::group* entry = ::getgrgid(gid);
  return entry != nullptr ? entry->gr_name : absl::StrCat("gid ", gid);
}

std::string my_groups() {
  const int count = ::getgroups(0, nullptr);
  std::vector<gid_t> gids(count > 0 ? static_cast<size_t>(count) : 0);
  if (::getgroups(static_cast<int>(gids.size()), gids.data()) < 0) return "unknown";
  gids.push_back(::getegid());
  std::sort(gids.begin(), gids.end());
  gids.erase(std::unique(gids.begin(), gids.end()), gids.end());
  return absl::StrJoin(gids, ",", [](std::string* out, gid_t gid) { *out += group_name(gid); });
}

std::string describe_socket(const std::string& path, const struct stat& status) {
  return absl::StrFormat("%s: mode %04o, owner %s, group %s", path, status.st_mode & 07777,
                         user_name(status.st_uid), group_name(status.st_gid));
}

void check_socket(const std::string& what, const std::string& path, report::Doctor* doctor) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    const bool hidden = errno == EACCES;
    return add_check(doctor, what, report::VERDICT_BAD,
                     absl::StrCat(path, ": ", std::strerror(errno)),
                     hidden ? "ask for access to the directory"
                            : "start cco-memd, or name its socket by --socket or $CCO_SOCKET");
  }
  const std::string detail = describe_socket(path, status);
  if (!S_ISSOCK(status.st_mode)) {
    return add_check(doctor, what, report::VERDICT_BAD, detail + " is not a socket",
                     "remove it and start cco-memd");
  }
  if (::access(path.c_str(), R_OK | W_OK) != 0) {
    return add_check(
        doctor, what, report::VERDICT_BAD,
        absl::StrCat(detail, "; you are ", user_name(::geteuid()), " in ", my_groups()),
        "join the socket's group and log in again");
  }
  add_check(doctor, what, report::VERDICT_OK, detail);
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : absl::StrCat(value);
}

// "cco-memd.service is active", or nothing where there is no systemd.
std::string unit_state() {
  FILE* pipe = ::popen("systemctl show -p ActiveState --value cco-memd.service 2>/dev/null", "re");
  if (pipe == nullptr) return "";
  char line[64] = "";
  const bool read = std::fgets(line, sizeof(line), pipe) != nullptr;
  const bool succeeded = ::pclose(pipe) == 0;
  std::string state(line);
  state.erase(state.find_last_not_of('\n') + 1);
  return read && succeeded && !state.empty() ? "cco-memd.service is " + state : "";
}

}  // namespace

void add_check(report::Doctor* doctor, const std::string& name, report::Verdict verdict,
               const std::string& detail, const std::string& next_step) {
  report::Check* check = doctor->add_checks();
  check->set_name(name);
  check->set_verdict(verdict);
  check->set_detail(detail);
  check->set_next_step(next_step);
}

void check_sockets(const std::string& socket, report::Doctor* doctor) {
  const absl::Status fits = check_socket_path(socket);
  if (!fits.ok()) {
    return add_check(doctor, "socket", report::VERDICT_BAD, std::string(fits.message()),
                     "choose a shorter path");
  }
  check_socket("socket", socket, doctor);
  check_socket("fd socket", fd_socket_path(socket), doctor);
}

void check_limits(report::Doctor* doctor) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const std::string detail =
      absl::StrCat("soft ", limit_text(files.rlim_cur), ", hard ", limit_text(files.rlim_max));
  if (files.rlim_cur < kWantedDescriptors) {
    add_check(doctor, "descriptors", report::VERDICT_BAD, detail,
              absl::StrCat("drivers keep one per allocation: ulimit -n ", kWantedDescriptors));
  } else {
    add_check(doctor, "descriptors", report::VERDICT_OK, detail);
  }
  add_check(doctor, "/dev/shm", report::VERDICT_OK, "not used: any size will do");
}

void check_machine(report::Doctor* doctor) {
  std::error_code error;
  const bool has_iommu = !std::filesystem::is_empty("/sys/class/iommu", error) && !error;
  if (error) {
    return add_check(doctor, "iommu", report::VERDICT_UNKNOWN,
                     "/sys/class/iommu: " + error.message(),
                     "the trials of peer access below decide");
  }
  if (!has_iommu) return add_check(doctor, "iommu", report::VERDICT_OK, "none is active");
  std::ifstream file("/proc/cmdline");
  std::string command_line;
  std::getline(file, command_line);
  for (absl::string_view word : absl::StrSplit(command_line, ' ')) {
    if (word == "iommu=pt") {
      return add_check(doctor, "iommu", report::VERDICT_OK, "active, iommu=pt");
    }
  }
  add_check(doctor, "iommu", report::VERDICT_UNKNOWN, "active, without iommu=pt",
            "PCIe peer access may be slow or wrong: the trials below decide");
}

std::string describe_absent_daemon(const std::string& socket) {
  std::string text;
  for (const std::string& path : {socket, fd_socket_path(socket)}) {
    struct stat status;
    const bool exists = ::stat(path.c_str(), &status) == 0;
    absl::StrAppend(
        &text, "socket    ",
        exists ? describe_socket(path, status) : absl::StrCat(path, ": ", std::strerror(errno)),
        "\n");
  }
  const std::string lock_path = socket + ".lock";
  std::ifstream lock(lock_path);
  int64_t pid = 0;
  if (!lock) {
    absl::StrAppend(&text, "lock      ", lock_path, ": not there, or not readable\n");
  } else if (!(lock >> pid) || pid <= 0) {
    absl::StrAppend(&text, "lock      ", lock_path, ": names no process\n");
  } else {
    const bool lives = ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
    absl::StrAppend(&text, "lock      ", lock_path, ": process ", pid,
                    lives ? " is there\n" : " has gone\n");
  }
  const std::string unit = unit_state();
  if (!unit.empty()) absl::StrAppend(&text, "systemd   ", unit, "\n");
  return text;
}

}  // namespace cco::ctl
