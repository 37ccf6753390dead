// cco-memd: parse, wire, serve.
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/config.h"
#include "daemon/kept_state.h"
#include "daemon/memd.h"
#include "daemon/sys/given_fds.h"
#include "daemon/sys/log.h"
#include "device/runtime/open_driver.h"

namespace {

// sysexits(3): what systemd and people are used to.
constexpr int kBadUsage = 64, kUnavailable = 69, kBadConfiguration = 78;
// Nothing is wrong, but another process has to go on. The unit calls it a success.
constexpr int kStartAnew = 75;
constexpr char kDefaultConfig[] = "/etc/cco/memd.textproto";
// Slabs and clients each take a descriptor or three. Bounded, since some systems allow a billion.
constexpr rlim_t kMaxDescriptors = 1 << 20;

int fail(const absl::Status& status, int code) {
  std::fprintf(stderr, "<3>event=start_refused reason=\"%s\"\n",
               std::string(status.message()).c_str());
  return code;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMaxDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct Arguments {
  std::string config;
  std::string socket;
  std::string driver;
  std::string state_dir;
  std::string log_level;
  bool check = false;
  bool print = false;
};

absl::StatusOr<cco::memd::Config> configure(const Arguments& arguments) {
  cco::memd::Config config;
  struct stat info {};
  const std::string path = !arguments.config.empty()            ? arguments.config
                           : ::stat(kDefaultConfig, &info) == 0 ? kDefaultConfig
                                                                : "";
  if (!path.empty()) {
    CCO_ASSIGN_OR_RETURN(config, cco::memd::load_config(path));
  }
  if (!arguments.socket.empty()) config.socket_path = arguments.socket;
  if (!arguments.state_dir.empty()) config.state_dir = arguments.state_dir;
  if (!arguments.log_level.empty()) config.log_level = arguments.log_level;
  if (!arguments.driver.empty()) {
    CCO_ASSIGN_OR_RETURN(config.driver.kind, cco::parse_driver_kind(arguments.driver));
  }
  return cco::memd::parse_config(cco::memd::print_config(config),
                                 "configuration with the command line's options");
}

// What this process has open closes, as at its end. Clients and their memory notice no more than of
// a crash.
int start_anew(char** arguments) {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error || !std::filesystem::exists(program, error)) program = "/proc/self/exe";  // Replaced.
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // Those of libraries, too.
  ::execv(program.c_str(), arguments);
  return fail(
      absl::UnavailableError(absl::StrCat("execv ", program.string(), ": ", std::strerror(errno))),
      kUnavailable);
}

int serve(const cco::memd::Config& config, char** arguments) {
  absl::StatusOr<cco::memd::GivenFds> given = cco::memd::take_given_fds();
  if (!given.ok()) return fail(given.status(), kUnavailable);
  // Then the next one's sockets and descriptors come from there.
  const bool is_of_systemd = !given->sockets.empty() || std::getenv("FDSTORE") != nullptr;
  raise_descriptor_limit();
  // Before any thread starts: run() takes these from a descriptor, and gRPC and the drivers start
  // threads.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<cco::memd::Journal>> journal =
      cco::memd::open_log(config.log_level);
  if (!journal.ok()) return fail(journal.status(), kBadConfiguration);
  std::unique_ptr<cco::memd::KeptState> kept;
  std::optional<cco::memd::Keeping> keeping;
  cco::DriverOptions wanted = config.driver;
  if (!config.state_dir.empty()) {
    auto opened = cco::memd::KeptState::open(config, **journal, std::move(given->kept));
    if (!opened.ok()) return fail(opened.status(), kUnavailable);
    kept = *std::move(opened);
    keeping.emplace(kept->keeping());
    const absl::Status chosen = kept->choose_gpus(&wanted);
    if (!chosen.ok()) return fail(chosen, kUnavailable);
  }
  absl::StatusOr<std::unique_ptr<cco::GpuDriver>> driver = cco::open_driver(wanted);
  if (!driver.ok()) return fail(driver.status(), kUnavailable);
  absl::StatusOr<std::unique_ptr<cco::memd::Memd>> memd =
      cco::memd::Memd::create(config, **driver, **journal,
                              keeping.has_value() ? &*keeping : nullptr, std::move(given->sockets));
  if (!memd.ok()) return fail(memd.status(), kUnavailable);
  (*journal)->record(
      cco::memd::Severity::kInfo, "started",
      absl::StrCat("version=", CCO_VERSION, " pid=", ::getpid(), " socket=", config.socket_path,
                   " driver=", std::string((*driver)->name()), " driver_version=\"",
                   (*driver)->version(), "\" gpus=", (*driver)->devices().size()));
  const absl::Status status = (*memd)->run(/*handle_signals=*/true);
  if (!status.ok()) return fail(status, kUnavailable);
  (*journal)->record(cco::memd::Severity::kInfo, "stopped", "");
  if ((*memd)->wants_restart()) {
    if (!(*memd)->drained()) {
      (*journal)->record(cco::memd::Severity::kError, "gpu_stuck",
                         "action=\"start anew, which waits for its driver's call\"");
    }
    if (!is_of_systemd) return start_anew(arguments);
    ::_exit(kStartAnew);  // Not later than a driver that does not answer.
  }
  if (!(*memd)->drained()) {
    (*journal)->record(cco::memd::Severity::kError, "gpu_stuck",
                       "action=\"exit without waiting for its driver\"");
    ::_exit(0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("cco-memd: owns the GPU memory of this node's symmetric heaps");
  app.set_version_flag("--version", CCO_VERSION);
  Arguments arguments;
  app.add_option("--config", arguments.config,
                 absl::StrCat("configuration file; default ", kDefaultConfig, " if it is there"));
  app.add_option("--socket", arguments.socket,
                 "path of the RPC socket, instead of the configuration's");
  app.add_option("--driver", arguments.driver,
                 "auto, host, cuda or hip, instead of the configuration's");
  app.add_option("--state-dir", arguments.state_dir,
                 "folder for what outlives the daemon, instead of the configuration's");
  app.add_option("--log-level", arguments.log_level, "debug, info, warning or error");
  app.add_flag("--check-config", arguments.check, "check the configuration and exit");
  app.add_flag("--print-config", arguments.print,
               "print the whole configuration, defaults included, and exit");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : kBadUsage;
  }
  const absl::StatusOr<cco::memd::Config> config = configure(arguments);
  if (!config.ok()) return fail(config.status(), kBadConfiguration);
  if (arguments.print) std::fputs(cco::memd::print_config(*config).c_str(), stdout);
  if (arguments.check && !arguments.print) std::puts("configuration: ok");
  return arguments.check || arguments.print ? 0 : serve(*config, argv);
}
