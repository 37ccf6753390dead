// Statuses about a peer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cco {

inline constexpr char kPeerPayload[] = "cco/peer";

/// `status`, with the world rank that it is about.
inline absl::Status about_peer(absl::Status status, uint32_t rank) {
  status.SetPayload(kPeerPayload, absl::Cord(absl::StrCat(rank)));
  return status;
}

inline std::optional<uint32_t> peer_of(const absl::Status& status) {
  const absl::optional<absl::Cord> text = status.GetPayload(kPeerPayload);
  uint32_t rank = 0;
  if (!text.has_value() || !absl::SimpleAtoi(std::string(*text), &rank)) return std::nullopt;
  return rank;
}

}  // namespace cco
