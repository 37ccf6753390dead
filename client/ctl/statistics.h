// Medians and spread of samples; nothing more is needed here, and means mislead on shared machines.
#pragma once

#include <cstddef>
#include <vector>

namespace cco {

struct Spread {
  size_t samples = 0;
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double p99 = 0;
};

/// Percentiles by linear interpolation between the nearest samples (as numpy's default). All zero
/// without samples.
Spread spread_of(std::vector<double> samples);

}  // namespace cco
