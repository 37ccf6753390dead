#include "client/src/group_options.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"

namespace cco::client {
namespace {

constexpr size_t kMaxNameBytes = 127;

std::string list_of(absl::Span<const GpuDevice> devices) {
  std::string list;
  for (size_t i = 0; i < devices.size(); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", i, ": ", devices[i].uuid);
  }
  return list.empty() ? "none" : list;
}

absl::StatusOr<int> find_device(const cco_group_options& options, uint32_t rank,
                                absl::Span<const GpuDevice> devices,
                                const absl::StatusOr<Environment>& environment) {
  if (options.gpu_uuid != nullptr) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].uuid == options.gpu_uuid) return static_cast<int>(i);
    }
    return absl::NotFoundError(absl::StrFormat("no GPU '%s' in this process; it sees %s",
                                               options.gpu_uuid, list_of(devices)));
  }
  int64_t device = options.device;
  if (options.device == CCO_DEVICE_BY_LOCAL_RANK && !devices.empty()) {
    if (!environment.ok() && !absl::IsNotFound(environment.status())) return environment.status();
    const uint32_t local_rank = environment.ok() ? environment->local_rank : rank;
    device = static_cast<int64_t>(local_rank % devices.size());
  }
  if (device >= 0 && device < static_cast<int64_t>(devices.size())) return static_cast<int>(device);
  return absl::NotFoundError(absl::StrFormat("no device %d in this process; it sees %s",
                                             options.device, list_of(devices)));
}

absl::Status find_ranks(const cco_group_options& options,
                        const absl::StatusOr<Environment>& environment, Group::Options* result) {
  result->rank = options.rank;
  result->size = options.size;
  if (options.rank == CCO_RANK_FROM_ENVIRONMENT) {
    CCO_RETURN_IF_ERROR(environment.status());
    result->rank = environment->rank;
    result->size = environment->size;
  }
  if (result->size >= 1 && result->size <= CCO_MAX_RANKS && result->rank < result->size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("rank %d of %d: a group has 1 to %d ranks, counted from 0", result->rank,
                      result->size, CCO_MAX_RANKS));
}

absl::Status find_name(const cco_group_options& options,
                       const absl::StatusOr<Environment>& environment, Group::Options* result) {
  if (options.name != nullptr && options.unique_id != nullptr) {
    return absl::InvalidArgumentError("both name and unique_id are given: give one");
  }
  if (options.unique_id != nullptr) {
    result->unique_id.assign(reinterpret_cast<const char*>(options.unique_id->bytes),
                             sizeof options.unique_id->bytes);
    return absl::OkStatus();
  }
  if (options.name != nullptr) {
    CCO_ASSIGN_OR_RETURN(result->name, checked_name(options.name, "group"));
    return absl::OkStatus();
  }
  if (options.rank != CCO_RANK_FROM_ENVIRONMENT) {
    return absl::InvalidArgumentError("neither name nor unique_id is given: give one");
  }
  if (environment->job.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the launcher %s gives this job no name: give a name or a unique_id",
                        environment->launcher));
  }
  result->name = environment->job;
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> find_lsa_size(const cco_group_options& options, uint32_t size) {
  const char* const variable = std::getenv("CCO_LSA_SIZE");
  uint32_t lsa_size = options.lsa_size;
  if (lsa_size == 0 && variable != nullptr &&
      (!absl::SimpleAtoi(variable, &lsa_size) || lsa_size == 0)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "CCO_LSA_SIZE is '%s'; it takes a divisor of the group's size, %d", variable, size));
  }
  if (lsa_size == 0 || size % lsa_size == 0) return lsa_size;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %d; it takes a divisor of the group's size, %d",
                      options.lsa_size == 0 ? "CCO_LSA_SIZE" : "lsa_size", lsa_size, size));
}

absl::StatusOr<std::string> find_lease(const cco_group_options& options) {
  constexpr size_t kDigits = 32;
  const char* const variable = std::getenv("CCO_LEASE");
  const char* const given = options.lease != nullptr ? options.lease : variable;
  if (given == nullptr) return std::string();
  const std::string text = given;
  if (text.size() == kDigits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return absl::ascii_isxdigit(c);
      })) {
    return absl::HexStringToBytes(text);
  }
  // The text may be a secret with a slip of the pen in it: it is not shown.
  return absl::InvalidArgumentError(
      absl::StrFormat("%s has %d characters; it takes the %d hex digits that `ccoctl lease create` "
                      "printed",
                      options.lease != nullptr ? "lease" : "CCO_LEASE", text.size(), kDigits));
}

}  // namespace

absl::StatusOr<std::string> checked_name(const char* name, const char* what) {
  const size_t length = std::strlen(name);
  if (length >= 1 && length <= kMaxNameBytes) return std::string(name);
  return absl::InvalidArgumentError(
      absl::StrFormat("the %s's name has %d bytes; it takes 1 to %d", what, length, kMaxNameBytes));
}

absl::StatusOr<Group::Options> resolve_group_options(
    const cco_group_options& options, absl::Span<const GpuDevice> devices,
    const absl::StatusOr<Environment>& environment) {
  Group::Options result;
  CCO_RETURN_IF_ERROR(find_ranks(options, environment, &result));
  CCO_RETURN_IF_ERROR(find_name(options, environment, &result));
  CCO_ASSIGN_OR_RETURN(result.device, find_device(options, result.rank, devices, environment));
  if (options.slot_bytes % kSlotUnitBytes != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "slot_bytes is %d; it takes a multiple of 4 GiB (%d), or 0 for the daemon's choice",
        options.slot_bytes, kSlotUnitBytes));
  }
  result.slot_bytes = options.slot_bytes;
  CCO_ASSIGN_OR_RETURN(result.lsa_size, find_lsa_size(options, result.size));
  CCO_ASSIGN_OR_RETURN(result.lease, find_lease(options));
  CCO_ASSIGN_OR_RETURN(result.timeout, Client::collective_timeout(options.timeout_ms));
  return result;
}

}  // namespace cco::client
