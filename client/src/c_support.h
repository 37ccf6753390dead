// What every function of the C interface does the same way: errors, options, results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "cco/cco.h"
#include "client/src/fork_guard.h"

namespace cco::client {

/// Keeps text and rank for this thread's last_message() and last_rank(); returns the code.
cco_status record(const char* function, const absl::Status& status);
void record_text(const char* function, std::string_view text) noexcept;
const char* last_message();
int32_t last_rank();

/// Runs one function of the C interface: no exception leaves it.
template <typename Body>
cco_status guarded(const char* function, Body&& body) noexcept {
  try {
    return record(function, body());
  } catch (const std::bad_alloc&) {
    record_text(function, "this process is out of memory");
    return CCO_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    record_text(function, error.what());
    return CCO_INTERNAL;
  }
}

/// The same for functions that use a session: refused in a forked child.
template <typename Body>
cco_status guarded_session(const char* function, Body&& body) noexcept {
  return guarded(function, [&]() -> absl::Status {
    absl::Status usable = check_not_forked();
    return usable.ok() ? body() : usable;
  });
}

/// INVALID_ARGUMENT: `pointer` is null.
absl::Status require(const void* pointer, const char* name);

/// The size that the caller wrote into a struct that begins with struct_size.
absl::StatusOr<uint32_t> struct_size_of(const void* given, const char* name, size_t known_bytes);

/// A caller's struct in this library's version: fields it does not have are zero.
/// INVALID_ARGUMENT: null, no struct_size, or it uses a field that this library does not know.
template <typename T>
absl::StatusOr<T> read_struct(const T* given, const char* name) {
  const absl::StatusOr<uint32_t> size = struct_size_of(given, name, sizeof(T));
  if (!size.ok()) return size.status();
  T result{};
  std::memcpy(&result, given, std::min<size_t>(*size, sizeof(T)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t i = sizeof(T); i < *size; ++i) {
    if (bytes[i] == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s uses byte %d, which this version of the library (%d.%d.%d) does not know", name, i,
        CCO_VERSION_MAJOR, CCO_VERSION_MINOR, CCO_VERSION_PATCH));
  }
  return result;
}

/// Fills the part of `*result` that the caller has, and zeroes what only a newer caller has.
template <typename T>
absl::Status write_struct(T value, T* result, const char* name) {
  const absl::StatusOr<uint32_t> size = struct_size_of(result, name, sizeof(T));
  if (!size.ok()) return size.status();
  value.struct_size = *size;
  std::memcpy(result, &value, std::min<size_t>(*size, sizeof(T)));
  if (*size > sizeof(T))
    std::memset(reinterpret_cast<char*>(result) + sizeof(T), 0, *size - sizeof(T));
  return absl::OkStatus();
}

/// Copies what fits and always ends with a zero byte.
template <size_t N>
void copy_text(std::string_view text, char (&result)[N]) {
  const size_t count = std::min(text.size(), N - 1);
  std::memcpy(result, text.data(), count);
  result[count] = '\0';
}

}  // namespace cco::client
