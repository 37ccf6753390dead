// What the launcher says of this process.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cco::client {

struct Environment {
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t local_rank = 0;  ///< `rank` if the launcher does not say.
  uint32_t local_size = 0;  ///< `size` if the launcher does not say.
  std::string launcher;
  std::string job;  ///< Up to 63 bytes; empty if the launcher gives the job no name.
};

/// The value of an environment variable, or null.
using Variables = absl::FunctionRef<const char*(const char* name)>;

/// Which variables, in which order: see cco_environment_get().
/// NOT_FOUND         no launcher's variables are set
/// INVALID_ARGUMENT  names the variable, its value, and what it takes
absl::StatusOr<Environment> read_environment(Variables variables);

/// The same from this process's environment.
absl::StatusOr<Environment> read_environment();

}  // namespace cco::client
