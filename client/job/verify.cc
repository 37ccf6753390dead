#include "client/job/verify.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/kernels/exchange_pattern.h"
#include "device/kernels/routing_reference.h"

namespace cco::job {
namespace {

absl::Status describe_chunk(absl::Span<const uint8_t> chunk, uint32_t sender, uint64_t round,
                            uint64_t from) {
  for (uint64_t offset = from; offset < chunk.size(); ++offset) {
    const uint8_t expected = kernels::exchange_byte(sender, round, offset);
    if (chunk[offset] == expected) continue;
    return absl::DataLossError(
        absl::StrFormat("round %d, chunk of rank %d, offset %d of %d: expected 0x%02x, got 0x%02x",
                        round, sender, offset, chunk.size(), expected, chunk[offset]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status verify_chunk(absl::Span<const uint8_t> chunk, uint32_t sender, uint64_t round) {
  const uint64_t words = chunk.size() / sizeof(uint64_t);
  for (uint64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, chunk.data() + i * sizeof(word), sizeof(word));
    if (word != kernels::exchange_word(sender, round, i)) {
      return describe_chunk(chunk, sender, round, i * sizeof(word));
    }
  }
  return describe_chunk(chunk, sender, round, words * sizeof(uint64_t));
}

absl::Status verify_routing(absl::Span<const uint64_t> ids, absl::Span<const uint32_t> sums) {
  CCO_ASSERT(sums.size() == ids.size() * kernels::kLanes);
  for (size_t token = 0; token < ids.size(); ++token) {
    const kernels::TokenVector expected = kernels::route_reference(ids[token]);
    for (uint32_t lane = 0; lane < kernels::kLanes; ++lane) {
      const uint32_t got = sums[token * kernels::kLanes + lane];
      if (got == expected[lane]) continue;
      return absl::DataLossError(
          absl::StrFormat("token %d (id %016x), lane %d: expected 0x%08x, got 0x%08x", token,
                          ids[token], lane, expected[lane], got));
    }
  }
  return absl::OkStatus();
}

}  // namespace cco::job
