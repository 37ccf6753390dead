#include "client/ctl/statistics.h"

#include <algorithm>

namespace cco {
namespace {

double percentile(const std::vector<double>& sorted, double fraction) {
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples.size(), percentile(samples, 0.5), percentile(samples, 0.1),
          percentile(samples, 0.9), percentile(samples, 0.99)};
}

}  // namespace cco
