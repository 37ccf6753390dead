#include "daemon/sys/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {

class SpdlogJournal final : public Journal {
 public:
  explicit SpdlogJournal(spdlog::level::level_enum level)
      : logger_("memd", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger_.set_pattern("%v");
    logger_.set_level(level);
    logger_.flush_on(spdlog::level::trace);
  }

  void record(Severity severity, const std::string& event, const std::string& fields) override {
    logger_.log(level(severity), "<{}>event={}{}{}", static_cast<int>(severity), event,
                fields.empty() ? "" : " ", fields);
  }

 private:
  static spdlog::level::level_enum level(Severity severity) {
    switch (severity) {
      case Severity::kError:
        return spdlog::level::err;
      case Severity::kWarning:
        return spdlog::level::warn;
      case Severity::kInfo:
        return spdlog::level::info;
      case Severity::kDebug:
        return spdlog::level::debug;
    }
    return spdlog::level::err;
  }

  spdlog::logger logger_;
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
