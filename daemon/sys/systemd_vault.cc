#include "daemon/sys/systemd_vault.h"

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "daemon/sys/notify.h"

namespace cco::memd {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<uint64_t> read_limit() {
  const std::string text = variable("FDSTORE");
  if (text.empty()) {
    return absl::FailedPreconditionError(
        "there is no $FDSTORE: the unit needs FileDescriptorStoreMax=, and with a systemd before "
        "254 also Environment=FDSTORE= with the same number");
  }
  uint64_t limit = 0;
  if (!absl::SimpleAtoi(text, &limit) || limit == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "$FDSTORE is '", text, "': the unit needs FileDescriptorStoreMax= of at least 1"));
  }
  return limit;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SystemdVault>> SystemdVault::open(
    std::map<std::string, UniqueFd> kept) {
  if (variable("NOTIFY_SOCKET").empty()) {
    return absl::FailedPreconditionError(
        "there is no $NOTIFY_SOCKET: systemd did not start us, or the unit is not Type=notify");
  }
  CCO_ASSIGN_OR_RETURN(const uint64_t limit, read_limit());
  std::unique_ptr<SystemdVault> vault(new SystemdVault(limit));
  for (const auto& [name, fd] : kept) vault->names_.adopt(name);
  vault->kept_ = std::move(kept);
  return vault;
}

absl::StatusOr<std::map<std::string, UniqueFd>> SystemdVault::take_over() {
  return std::move(kept_);
}

absl::Status SystemdVault::put(const std::string& name, BorrowedFd fd) {
  CCO_RETURN_IF_ERROR(names_.add(name));
  // FDPOLL=0: without it systemd closes a descriptor that reports an end or an error.
  const absl::Status sent = send_to_systemd(absl::StrCat("FDSTORE=1\nFDPOLL=0\nFDNAME=", name), fd);
  if (!sent.ok()) names_.remove(name);
  return sent;
}

absl::Status SystemdVault::remove(const std::string& name) {
  if (!names_.has(name)) return absl::OkStatus();
  CCO_RETURN_IF_ERROR(
      send_to_systemd(absl::StrCat("FDSTOREREMOVE=1\nFDNAME=", name), std::nullopt));
  names_.remove(name);
  return absl::OkStatus();
}

}  // namespace cco::memd
