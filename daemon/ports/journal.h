// Port: what operators are told.
#pragma once

#include <string>

namespace cco::memd {

enum class Severity { kError = 3, kWarning = 4, kInfo = 6, kDebug = 7 };

class Journal {
 public:
  virtual ~Journal() = default;
  /// `event` is a stable name; `fields` are "key=value" pairs.
  virtual void record(Severity severity, const std::string& event, const std::string& fields) = 0;
};

}  // namespace cco::memd
