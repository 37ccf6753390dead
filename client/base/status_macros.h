// Early return on error, for functions that return absl::Status or absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define CCO_CONCAT_INNER(a, b) a##b
#define CCO_CONCAT(a, b) CCO_CONCAT_INNER(a, b)

/// Evaluates an absl::Status; returns it from the enclosing function unless it is OK.
#define CCO_RETURN_IF_ERROR(expr)                                              \
  do {                                                                         \
    if (absl::Status cco_status = (expr); !cco_status.ok()) return cco_status; \
  } while (0)

/// Evaluates an absl::StatusOr; returns its status, or declares `decl` from its value.
#define CCO_ASSIGN_OR_RETURN(decl, expr) \
  CCO_ASSIGN_OR_RETURN_INNER(CCO_CONCAT(cco_or_, __LINE__), decl, expr)
#define CCO_ASSIGN_OR_RETURN_INNER(temporary, decl, expr) \
  auto temporary = (expr);                                \
  if (!temporary.ok()) return temporary.status();         \
  decl = *std::move(temporary)

/// A broken promise of our own: always compiled in, ends the process. Never for input.
#define CCO_ASSERT(condition)                                               \
  do {                                                                      \
    if (!(condition)) ::cco::assert_failed(#condition, __FILE__, __LINE__); \
  } while (0)

namespace cco {
[[noreturn]] void assert_failed(const char* condition, const char* file, int line);
}  // namespace cco
