// The main job's input: a text, as tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cco::job {

/// FNV-1a, 64 bits (Fowler, Noll, Vo): a word's token id.
constexpr uint64_t token_id(std::string_view word) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : word) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// One token for each word; words are what white space separates.
std::vector<uint64_t> tokenize(std::string_view text);

/// The text that ships with this project: share/cco/ of the installation or tests/data/ of the
/// source tree that this program lies in. NOT_FOUND says to name a text by --text.
absl::StatusOr<std::string> default_text_path();

absl::StatusOr<std::vector<uint64_t>> read_tokens(const std::string& path);

}  // namespace cco::job
