// Port: what operators are told.
#pragma once

#include <string>

namespace cco::memd {

/// Of syslog. kNotice is for what must be on record: it is, whatever the log's level.
enum class Severity { kError = 3, kWarning = 4, kNotice = 5, kInfo = 6, kDebug = 7 };

class Journal {
 public:
  virtual ~Journal() = default;
  /// `event` is a stable name; `fields` are "key=value" pairs.
  virtual void record(Severity severity, const std::string& event, const std::string& fields) = 0;
  /// As record(), of something that a client can bring about as often as it likes. Of one kind, an
  /// event `of` somebody, "uid=1000", the log may take the first few in a while and then how many
  /// more there were.
  virtual void record_refusal(Severity severity, const std::string& event, const std::string& of,
                              const std::string& fields) {
    (void)of;
    record(severity, event, fields);
  }
};

}  // namespace cco::memd
