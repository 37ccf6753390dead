#include "client/bench/results.h"

#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/ctl/json.h"
#include "client/ctl/statistics.h"
#include "client/ctl/table.h"

namespace cco::bench {
namespace {

constexpr char kMet[] = "met";
constexpr char kNotMet[] = "not met";
constexpr char kNotApplicable[] = "not applicable: ";

void fill(const std::vector<double>& samples, const std::string& unit,
          report::Distribution* distribution) {
  const Spread spread = spread_of(samples);
  distribution->set_unit(unit);
  distribution->set_samples(static_cast<uint32_t>(spread.samples));
  distribution->set_median(spread.median);
  distribution->set_p10(spread.p10);
  distribution->set_p90(spread.p90);
  distribution->set_p99(spread.p99);
}

std::string number(double value) {
  return absl::StrFormat(value >= 100 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
}

std::string spread_text(const report::Distribution& time) {
  return absl::StrCat(number(time.p10()), "-", number(time.p90()));
}

}  // namespace

double Results::add(const Subject& subject, const std::vector<double>& samples,
                    const std::string& baseline_name, const std::vector<double>& baseline) {
  report::Measurement* measurement = report_.add_measurements();
  measurement->set_benchmark(subject.benchmark);
  measurement->set_variant(subject.variant);
  measurement->set_size_bytes(subject.size_bytes);
  measurement->set_ranks(subject.ranks);
  measurement->set_blocks(subject.blocks);
  measurement->set_threads(subject.threads);
  fill(samples, "us", measurement->mutable_time());
  const double median = measurement->time().median();
  if (subject.size_bytes > 0 && median > 0) {
    measurement->set_gb_per_s(static_cast<double>(subject.size_bytes) / median / 1000);
  }
  if (baseline_name.empty()) return 0;
  CCO_ASSERT(samples.size() == baseline.size());
  std::vector<double> ratios;
  for (size_t i = 0; i < samples.size(); ++i) ratios.push_back(baseline[i] / samples[i]);
  measurement->set_baseline(baseline_name);
  fill(baseline, "us", measurement->mutable_baseline_time());
  fill(ratios, "", measurement->mutable_speed_ratio());
  return measurement->speed_ratio().median();
}

void Results::promise(const std::string& name, double value, Bound bound, double target,
                      const std::string& unit) {
  const bool at_least = bound == Bound::kAtLeast;
  report::Figure* figure = report_.add_figures();
  figure->set_name(name);
  figure->set_value(value);
  figure->set_unit(unit);
  figure->set_target(absl::StrCat(at_least ? "at least " : "at most ", target));
  figure->set_verdict((at_least ? value >= target : value <= target) ? kMet : kNotMet);
}

void Results::note(const std::string& name, double value, const std::string& unit) {
  report::Figure* figure = report_.add_figures();
  figure->set_name(name);
  figure->set_value(value);
  figure->set_unit(unit);
}

void Results::not_applicable(const std::string& name, const std::string& why) {
  report::Figure* figure = report_.add_figures();
  figure->set_name(name);
  figure->set_verdict(absl::StrCat(kNotApplicable, why));
}

std::string Results::table(const std::string& benchmark) const {
  Table table({{"VARIANT"},
               {"SIZE", Align::kRight},
               {"TIME us", Align::kRight},
               {"P10-P90", Align::kRight},
               {"GB/s", Align::kRight},
               {"BASELINE"},
               {"TIME us", Align::kRight},
               {"RATIO", Align::kRight},
               {"P10-P90", Align::kRight}});
  for (const report::Measurement& measurement : report_.measurements()) {
    if (measurement.benchmark() != benchmark) continue;
    const bool moves = measurement.gb_per_s() > 0;
    const bool compared = !measurement.baseline().empty();
    table.add({measurement.variant(), moves ? human_bytes(measurement.size_bytes()) : "-",
               number(measurement.time().median()), spread_text(measurement.time()),
               moves ? absl::StrFormat("%.2f", measurement.gb_per_s()) : "-",
               compared ? measurement.baseline() : "-",
               compared ? number(measurement.baseline_time().median()) : "-",
               compared ? absl::StrFormat("%.3f", measurement.speed_ratio().median()) : "-",
               compared ? spread_text(measurement.speed_ratio()) : "-"});
  }
  return table.empty() ? "" : absl::StrCat(benchmark, "\n", table.text(), "\n");
}

std::string Results::figures() const {
  Table table({{"FIGURE"}, {"VALUE", Align::kRight}, {"UNIT"}, {"TARGET"}, {"VERDICT"}});
  for (const report::Figure& figure : report_.figures()) {
    const bool applicable = figure.verdict().rfind(kNotApplicable, 0) != 0;
    table.add({figure.name(), applicable ? number(figure.value()) : "-", figure.unit(),
               figure.target().empty() ? "-" : figure.target(),
               figure.verdict().empty() ? "-" : figure.verdict()});
  }
  return table.empty() ? "" : table.text();
}

bool Results::all_met() const {
  for (const report::Figure& figure : report_.figures()) {
    if (figure.verdict() == kNotMet) return false;
  }
  return true;
}

absl::Status Results::write_json(const std::string& path) const {
  CCO_ASSIGN_OR_RETURN(const std::string text, to_json(report_));
  FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "we");
  if (file == nullptr) return absl::ErrnoToStatus(errno, "writing " + path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = (file == stdout ? std::fflush(file) : std::fclose(file)) == 0;
  return written && closed ? absl::OkStatus() : absl::ErrnoToStatus(errno, "writing " + path);
}

}  // namespace cco::bench
