#include "client/src/c_support.h"

#include <cstdio>

#include "client/src/connection.h"

namespace cco::client {
namespace {

constexpr size_t kMaxMessageBytes = 1024;
constexpr uint32_t kMaxStructBytes = 4096;

// Trivial, so that calls from destructors at thread or process exit still find it.
struct LastError {
  char message[kMaxMessageBytes];
  int32_t rank;
  bool set;
};
thread_local LastError last_error;

}  // namespace

const char* last_message() { return last_error.message; }

int32_t last_rank() { return last_error.set ? last_error.rank : -1; }

cco_status record(const char* function, const absl::Status& status) {
  if (status.ok()) return CCO_OK;
  record_text(function, {status.message().data(), status.message().size()});
  last_error.rank = error_rank(status);
  return static_cast<cco_status>(status.code());
}

void record_text(const char* function, std::string_view text) noexcept {
  std::snprintf(last_error.message, sizeof last_error.message, "%s: %.*s", function,
                static_cast<int>(std::min(text.size(), kMaxMessageBytes)), text.data());
  last_error.rank = -1;
  last_error.set = true;
}

absl::Status require(const void* pointer, const char* name) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is null", name));
}

absl::StatusOr<uint32_t> struct_size_of(const void* given, const char* name, size_t known_bytes) {
  absl::Status present = require(given, name);
  if (!present.ok()) return present;
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= 2 * sizeof size && size <= kMaxStructBytes) return size;
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s->struct_size is %d; set it to sizeof *%s, %d here", name, size, name, known_bytes));
}

}  // namespace cco::client
