// cco-memd that kills itself at a chosen step of keeping its state: a step is a commit, or a
// descriptor put into the vault or taken out, each before and after it is done; or the end of
// filling a vault anew, before which the state is lost by right: the vault has died, too.
//   crashing_memd <step> cco-memd --config <file> ...
// Steps count from 0; one that never comes kills nobody. The rest is what it stands in for. Where
// cco-memd would start itself anew, so does this, and counts on.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/config.h"
#include "daemon/kept_state.h"
#include "daemon/sys/log.h"
#include "device/runtime/open_driver.h"

namespace cco::memd {
namespace {

class Steps {
 public:
  explicit Steps(int64_t last) : left_(last) {}
  template <typename Action>
  auto around(Action action) {
    pass();
    auto result = action();
    pass();
    return result;
  }
  void pass() {
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }
  int64_t left() const { return left_; }

 private:
  int64_t left_;
};

class CrashingStore final : public StateStore {
 public:
  CrashingStore(StateStore& store, Steps& steps) : store_(store), steps_(steps) {}
  absl::StatusOr<std::vector<Record>> load() override { return store_.load(); }
  absl::Status commit(const std::vector<RecordChange>& changes) override {
    return steps_.around([&] { return store_.commit(changes); });
  }

 private:
  StateStore& store_;
  Steps& steps_;
};

class CrashingVault final : public FdVault {
 public:
  CrashingVault(FdVault& vault, Steps& steps) : vault_(vault), steps_(steps) {}
  absl::StatusOr<std::map<std::string, UniqueFd>> take_over() override {
    return vault_.take_over();
  }
  absl::Status put(const std::string& name, BorrowedFd fd) override {
    return steps_.around([&] { return vault_.put(name, fd); });
  }
  absl::Status remove(const std::string& name) override {
    return steps_.around([&] { return vault_.remove(name); });
  }
  absl::Status hold_for(std::chrono::milliseconds keep) override {
    return steps_.around([&] { return vault_.hold_for(keep); });
  }
  uint64_t limit() const override { return vault_.limit(); }
  BorrowedFd broken() const override { return vault_.broken(); }
  absl::Status recover(const std::map<std::string, BorrowedFd>& all) override {
    absl::Status status = vault_.recover(all);
    steps_.pass();
    return status;
  }

 private:
  FdVault& vault_;
  Steps& steps_;
};

// The steps that are left for the next one, if it is to start anew.
absl::StatusOr<std::optional<int64_t>> serve(const std::string& config_path, int64_t last_step) {
  CCO_ASSIGN_OR_RETURN(const Config config, load_config(config_path));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal, open_log(config.log_level));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<KeptState> kept, KeptState::open(config, *journal));
  DriverOptions wanted = config.driver;
  CCO_RETURN_IF_ERROR(kept->choose_gpus(&wanted));
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<GpuDriver> driver, open_driver(wanted));
  Steps steps(last_step);
  const Keeping keeping = kept->keeping();
  CrashingStore store(keeping.store, steps);
  CrashingVault vault(keeping.vault, steps);
  const Keeping crashing{store, vault};
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Memd> memd,
                       Memd::create(config, *driver, *journal, &crashing));
  CCO_RETURN_IF_ERROR(memd->run(/*handle_signals=*/true));
  if (!memd->wants_restart()) return std::nullopt;
  return steps.left();
}

// As cco-memd does it.
int start_anew(char** argv, int64_t step) {
  std::string text = absl::StrCat(step);
  argv[1] = text.data();
  ::close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
  ::execv("/proc/self/exe", argv);
  std::perror("execv");
  return 1;
}

}  // namespace
}  // namespace cco::memd

int main(int argc, char** argv) {
  int64_t step = 0;
  if (argc < 5 || !absl::SimpleAtoi(argv[1], &step)) return 64;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const auto next_step = cco::memd::serve(argv[4], step);
  if (!next_step.ok()) {
    std::fprintf(stderr, "%s\n", next_step.status().ToString().c_str());
    return 1;
  }
  return next_step->has_value() ? cco::memd::start_anew(argv, **next_step) : 0;
}
