#include "device/transport/engine_stream.h"

#include "client/base/status_macros.h"

namespace cco {

absl::StatusOr<std::unique_ptr<GpuStream>> open_engine_stream(GpuContext* context,
                                                              uint64_t scratch) {
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream,
                       context->create_stream(StreamUse::kEngine));
  constexpr uint64_t kHalf = kWarmUpBytes / 2;
  for (const uint64_t bytes : {1, 2, 4, 8, 16, 32}) {
    CCO_RETURN_IF_ERROR(stream->copy(scratch, scratch + kHalf, bytes));
    if (bytes == kHalf) continue;
    CCO_RETURN_IF_ERROR(stream->copy(scratch + 1, scratch + kHalf, bytes));  // Unlike alignment.
  }
  CCO_RETURN_IF_ERROR(stream->write_word(scratch, 0));
  CCO_RETURN_IF_ERROR(stream->write_words({{scratch, 0}, {scratch + sizeof(uint64_t), 0}}));
  CCO_RETURN_IF_ERROR(stream->synchronize());
  return stream;
}

}  // namespace cco
