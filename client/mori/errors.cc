#include "client/mori/errors.h"

#include <new>

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
