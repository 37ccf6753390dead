#include "daemon/sys/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {

using Clock = std::chrono::steady_clock;

// Of refusals of one kind, how many are recorded in full within how long; how many kinds are told
// apart.
constexpr uint32_t kInFull = 5;
constexpr std::chrono::minutes kPeriod{1};
constexpr size_t kMaxKinds = 1024;

class SpdlogJournal final : public Journal {
 public:
  explicit SpdlogJournal(spdlog::level::level_enum level)
      : logger_("memd", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_pattern("%v");
    logger_.set_level(level);
    logger_.flush_on(spdlog::level::trace);
  }
  ~SpdlogJournal() override { record_repeated(); }

  void record(Severity severity, const std::string& event, const std::string& fields) override {
    const std::lock_guard lock(mutex_);
    end_period();
    write(severity, event, fields);
  }

  void record_refusal(Severity severity, const std::string& event, const std::string& of,
                      const std::string& fields) override {
    const std::lock_guard lock(mutex_);
    end_period();
    std::pair<std::string, std::string> kind(event, of);
    if (refusals_.size() >= kMaxKinds && refusals_.count(kind) == 0) kind.second = "others";
    Refusals& refusals = refusals_[kind];
    refusals.severity = severity;
    if (++refusals.count <= kInFull) write(severity, event, fields);
  }

 private:
  struct Refusals {
    Severity severity = Severity::kError;
    uint64_t count = 0;
  };

  // There is no timer: how often something was repeated is told before the next line.
  void end_period() {
    if (Clock::now() < period_start_ + kPeriod) return;
    record_repeated();
    refusals_.clear();
    period_start_ = Clock::now();
  }

  void record_repeated() {
    for (const auto& [kind, refusals] : refusals_) {
      if (refusals.count <= kInFull) continue;
      write(refusals.severity, kind.first,
            absl::StrCat("of=\"", kind.second, "\" more_like_these=", refusals.count - kInFull));
    }
  }

  void write(Severity severity, const std::string& event, const std::string& fields) {
    logger_.log(level(severity), "<{}>event={}{}{}", static_cast<int>(severity), event,
                fields.empty() ? "" : " ", fields);
  }

  static spdlog::level::level_enum level(Severity severity) {
    switch (severity) {
      case Severity::kError:
        return spdlog::level::err;
      case Severity::kWarning:
        return spdlog::level::warn;
      case Severity::kNotice:
        return spdlog::level::critical;  // Above all levels that a log can be set to.
      case Severity::kInfo:
        return spdlog::level::info;
      case Severity::kDebug:
        return spdlog::level::debug;
    }
    return spdlog::level::err;
  }

  spdlog::logger logger_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Refusals> refusals_;  // By event, and whose.
  Clock::time_point period_start_ = Clock::now();
};

}  // namespace

absl::StatusOr<std::unique_ptr<Journal>> open_log(const std::string& level) {
  for (const char* known : {"debug", "info", "warning", "error"}) {
    if (level == known) return std::make_unique<SpdlogJournal>(spdlog::level::from_str(level));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("log_level is '", level, "'; it takes debug, info, warning or error"));
}

}  // namespace cco::memd
