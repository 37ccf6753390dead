// How a failure leaves this library: -1, and a text for the thread.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cco/cco.h"

namespace cco::compat {

/// What the last call into libcco_client on this thread returned, as a Status.
absl::Status from_client(cco_status status);

/// INVALID_ARGUMENT, with the parameter's name, if it is null.
absl::Status require(const void* pointer, const char* name);

/// Keeps the text for this thread's ccoGetLastErrorText().
void record(const char* function, std::string_view text) noexcept;
const char* last_error_text() noexcept;

/// Runs one function of the interface: no exception leaves it.
template <typename Body>
int guarded(const char* function, Body&& body) noexcept {
  try {
    const absl::Status status = body();
    if (status.ok()) return 0;
    record(function, std::string(status.message()));
  } catch (const std::exception& error) {
    record(function, error.what());
  }
  return -1;
}

}  // namespace cco::compat
