// Collects measurements and figures; prints them for people and writes them for programs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/ctl/report.pb.h"

namespace cco::bench {

namespace report = ::cco::report::v1;

/// What was measured, before its samples.
struct Subject {
  std::string benchmark;  ///< "put"
  std::string variant;    ///< "cco", "release-acquire"
  uint64_t size_bytes = 0;
  uint32_t ranks = 0;
  uint32_t blocks = 0;
  uint32_t threads = 0;
};

enum class Bound { kAtLeast, kAtMost };

class Results {
 public:
  /// `baseline` was sampled in turn with `samples`, pair by pair; its name may be empty, and it
  /// too. Returns the median ratio: baseline's time over this one's, 1 and more is as fast or
  /// faster.
  double add(const Subject& subject, const std::vector<double>& samples,
             const std::string& baseline_name, const std::vector<double>& baseline);

  /// A figure that this project promises, and whether it holds. `unit` follows both numbers.
  void promise(const std::string& name, double value, Bound bound, double target,
               const std::string& unit);
  /// A figure that is worth knowing and promised by nobody.
  void note(const std::string& name, double value, const std::string& unit);

  /// A figure that is promised, and cannot be had where this runs.
  void not_applicable(const std::string& name, const std::string& why);

  /// Of all measurements of `benchmark`, as communication benchmarks print them.
  std::string table(const std::string& benchmark) const;
  std::string figures() const;
  /// Of those that are promised and applicable.
  bool all_met() const;

  report::Bench& report() { return report_; }
  /// "-": standard output.
  absl::Status write_json(const std::string& path) const;

 private:
  report::Bench report_;
};

}  // namespace cco::bench
