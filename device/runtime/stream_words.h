// What every driver refuses of GpuStream::write_words().
#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "device/runtime/gpu_driver.h"

namespace cco {

inline absl::Status check_words(absl::Span<const StreamWord> words) {
  if (words.size() > kMaxStreamWords) {
    return absl::InvalidArgumentError(
        absl::StrFormat("write %d words: at most %d in one call", words.size(), kMaxStreamWords));
  }
  for (const StreamWord& word : words) {
    if (word.address % sizeof word.value == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("write %d to the word at %#x: not a multiple "
                        "of %d",
                        word.value, word.address, sizeof word.value));
  }
  return absl::OkStatus();
}

}  // namespace cco
