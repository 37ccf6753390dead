// ccoctl drain, undrain: takes GPUs out of the daemon's service, and brings them back.
#include <CLI/CLI.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/base/status_macros.h"
#include "client/ctl/command.h"
#include "client/ctl/table.h"
#include "client/src/backoff.h"

namespace cco::ctl {
namespace {

// What comes after the deadline: the daemon closes what it holds, and may have to start anew.
constexpr std::chrono::seconds kGrace{30};

struct Options {
  std::string gpu;
  std::string deadline = "30s";
  bool no_wait = false;
};

std::string describe(const v1::GpuUser& user) {
  const std::string group =
      absl::StrCat("group ", user.group_id(), user.group_name().empty() ? "" : " ",
                   user.group_name(), ", ", human_bytes(user.bytes()));
  return absl::StrCat(
      "  pid ", user.pid(), " (uid ", user.uid(), ", tenant ", user.tenant(), "): ",
      user.rank_count() == 0
          ? absl::StrCat("maps peers' memory there, ", group)
          : absl::StrCat(user.rank_count(), user.rank_count() == 1 ? " rank of " : " ranks of ",
                         group),
      "\n");
}

std::string describe(const v1::Gpu& gpu) {
  std::string text = absl::StrCat(gpu.uuid(), " is ", gpu.state());
  if (gpu.state() == "draining") {
    absl::StrAppend(&text, ", ", human_duration(gpu.drain_left_ms()), " left");
    if (gpu.users_size() > 0) absl::StrAppend(&text, "; in the way:");
  } else if (gpu.revoked_bytes() > 0) {
    absl::StrAppend(&text, "; ", human_bytes(gpu.revoked_bytes()),
                    " that it has let go of may still be mapped by:");
  }
  absl::StrAppend(&text, "\n");
  for (const v1::GpuUser& user : gpu.users()) absl::StrAppend(&text, describe(user));
  return text;
}

// Of what is worth a new line: not the time that is left.
std::string essence(v1::Gpu gpu) {
  gpu.clear_drain_left_ms();
  gpu.clear_busy_ms();
  return absl::StrCat(gpu.state(), gpu.revoked_bytes(), " ", describe(gpu));
}

// Prints what changes of `gpus` until all are in `state`; what they are at the end.
absl::StatusOr<std::vector<v1::Gpu>> follow(Connection& connection, std::vector<v1::Gpu> gpus,
                                            const std::string& state,
                                            std::chrono::milliseconds timeout,
                                            const Settings& settings) {
  const Deadline deadline(timeout);
  Backoff backoff;  // The daemon tells nobody how far it is.
  std::map<std::string, std::string> printed;
  for (;;) {
    bool all = true;
    for (const v1::Gpu& gpu : gpus) {
      if (!settings.json && printed[gpu.uuid()] != essence(gpu)) print(describe(gpu));
      printed[gpu.uuid()] = essence(gpu);
      all &= gpu.state() == state;
      const bool is_turned = state == "drained" ? gpu.state() == "serving" : gpu.state()[0] == 'd';
      if (is_turned) {
        return absl::AbortedError(absl::StrCat(gpu.uuid(), " is ", gpu.state(),
                                               ": somebody else has asked for that meanwhile"));
      }
    }
    if (all) return gpus;
    if (deadline.has_passed()) {
      std::string text = absl::StrCat("not ", state, " after ", human_duration(timeout.count()));
      for (const v1::Gpu& gpu : gpus) absl::StrAppend(&text, "; ", describe(gpu));
      return absl::DeadlineExceededError(text + "See the daemon's log, and call again to wait on");
    }
    std::fflush(stdout);
    backoff.pause(deadline);
    CCO_ASSIGN_OR_RETURN(const v1::GetNodeResponse node, get_node(connection, settings));
    for (v1::Gpu& gpu : gpus) {
      for (const v1::Gpu& now : node.gpus()) {
        if (now.uuid() == gpu.uuid()) gpu = now;
      }
    }
  }
}

template <typename Request, typename Response>
absl::StatusOr<int> call_until_done(Connection::Method<Request, Response> method, Request request,
                                    const std::string& state, bool wait,
                                    std::chrono::milliseconds timeout, const Settings& settings) {
  CCO_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, connect(settings));
  request.set_request_id(new_request_id());
  Response response;
  CCO_RETURN_IF_ERROR(connection->call(method, request, &response, settings.timeout()));
  if (wait) {
    CCO_ASSIGN_OR_RETURN(const std::vector<v1::Gpu> gpus,
                         follow(*connection, {response.gpus().begin(), response.gpus().end()},
                                state, timeout, settings));
    *response.mutable_gpus() = {gpus.begin(), gpus.end()};
  }
  if (settings.json) return print_json(response);
  if (!wait) {
    for (const v1::Gpu& gpu : response.gpus()) print(describe(gpu));
  }
  return kExitOk;
}

absl::StatusOr<int> drain(const Options& options, const Settings& settings) {
  absl::Duration deadline;
  if (!absl::ParseDuration(options.deadline, &deadline) || deadline < absl::ZeroDuration() ||
      deadline > absl::Hours(1)) {
    return absl::InvalidArgumentError(absl::StrCat("--deadline is '", options.deadline,
                                                   "'; it takes 0 to 1h, as 500ms, 30s or 5m"));
  }
  v1::DrainGpuRequest request;
  request.set_gpu_uuid(options.gpu);
  request.set_deadline_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(deadline)));
  return call_until_done(&v1::MemdService::Stub::DrainGpu, request, "drained", !options.no_wait,
                         absl::ToChronoMilliseconds(deadline) + kGrace, settings);
}

absl::StatusOr<int> undrain(const Options& options, const Settings& settings) {
  v1::UndrainGpuRequest request;
  request.set_gpu_uuid(options.gpu);
  return call_until_done(&v1::MemdService::Stub::UndrainGpu, request, "serving", !options.no_wait,
                         kGrace, settings);
}

std::shared_ptr<Options> add_options(CLI::App& app) {
  auto options = std::make_shared<Options>();  // Filled by the parser, read by the runner.
  app.add_option("--gpu", options->gpu, "UUID, as `ccoctl gpus` shows it (default: all GPUs)");
  app.add_flag("--no-wait", options->no_wait, "return at once");
  return options;
}

}  // namespace

Runner define_drain(CLI::App& app, const Settings& settings) {
  const std::shared_ptr<Options> options = add_options(app);
  app.add_option("--deadline", options->deadline,
                 "how long those who use it may take to leave, 0 to 1h; then it is revoked")
      ->capture_default_str();
  return [options, &settings] { return drain(*options, settings); };
}

Runner define_undrain(CLI::App& app, const Settings& settings) {
  const std::shared_ptr<Options> options = add_options(app);
  return [options, &settings] { return undrain(*options, settings); };
}

}  // namespace cco::ctl
