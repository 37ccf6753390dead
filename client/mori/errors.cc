#include "client/mori/errors.h"

#include <new>

#include "absl/strings/str_format.h"

namespace cco::compat {
namespace {

std::string& text_of_this_thread() {
  static thread_local std::string text;
  return text;
}

}  // namespace

absl::Status from_client(cco_status status) {
  if (status == CCO_OK) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status), cco_error_message());
}

absl::Status require(const void* pointer, const char* name) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is null", name));
}

void record(const char* function, std::string_view text) noexcept {
  try {
    std::string& kept = text_of_this_thread();
    kept.assign(function);
    kept.append(": ").append(text);
  } catch (const std::bad_alloc&) {
    text_of_this_thread().clear();
  }
}

const char* last_error_text() noexcept { return text_of_this_thread().c_str(); }

}  // namespace cco::compat
