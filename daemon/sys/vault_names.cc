#include "daemon/sys/vault_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cco::memd {
namespace {

constexpr size_t kMaxNameBytes = 64;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_islower(static_cast<unsigned char>(c)) ||
                  absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
         });
}

}  // namespace

absl::Status VaultNames::add(const std::string& name) {
  if (!is_name(name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(name), "' cannot name a descriptor in the vault: it takes 1 to ",
        kMaxNameBytes, " characters of a-z, 0-9 and -"));
  }
  if (has(name)) {
    return absl::AlreadyExistsError(
        absl::StrCat("the vault holds a descriptor named '", name, "' already"));
  }
  if (names_.size() >= limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for '", name, "': the vault holds ",
                                                     names_.size(),
                                                     " descriptors, and its limit is ", limit_));
  }
  names_.insert(name);
  return absl::OkStatus();
}

}  // namespace cco::memd
