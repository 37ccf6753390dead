#include "device/transport/work_engine.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"
#include "device/transport/engine_stream.h"

namespace cco {
namespace {

/// Of one stream. An item is usually a copy, two signals and a share of a completion; drivers make
/// a caller wait from about 1024 pieces of work on.
constexpr uint32_t kItemsPerStream = 256;

}  // namespace

class WorkEngine::Streams final : public WorkBackend {
 public:
  static absl::StatusOr<std::unique_ptr<Streams>> create(GpuContext* context, uint64_t scratch,
                                                         uint32_t count) {
    auto streams = std::make_unique<Streams>();
    for (uint32_t i = 0; i < count; ++i) {
      CCO_ASSIGN_OR_RETURN(std::unique_ptr<GpuStream> stream, open_engine_stream(context, scratch));
      streams->streams_.push_back(std::move(stream));
    }
    return streams;
  }
  /// Rings and windows may go away once what was asked for is done; that of a failed stream is not
  /// waited for.
  ~Streams() override {
    for (const std::unique_ptr<GpuStream>& stream : streams_) stream->synchronize().IgnoreError();
  }

  absl::Status copy(uint32_t ring, uint64_t destination, uint64_t source, uint64_t bytes) override {
    return of(ring).copy(destination, source, bytes);
  }
  absl::Status write_words(uint32_t ring, absl::Span<const StreamWord> words) override {
    return of(ring).write_words(words);
  }

 private:
  GpuStream& of(uint32_t ring) { return *streams_[ring % streams_.size()]; }

  std::vector<std::unique_ptr<GpuStream>> streams_;
};

absl::StatusOr<std::unique_ptr<WorkEngine>> WorkEngine::start(const TransportTeam& team,
                                                              WorkMeaning meaning,
                                                              const Options& options) {
  CCO_ASSIGN_OR_RETURN(WorkRings rings,
                       WorkRings::allocate(team.context, options.ring_count, options.depth));
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<Streams> streams,
                       Streams::create(team.context, options.scratch, options.stream_count));
  const uint32_t rings_per_stream =
      (options.ring_count + options.stream_count - 1) / options.stream_count;
  WorkConsumer::Options limits;
  limits.max_in_flight = std::max(kItemsPerStream / rings_per_stream, 1u);
  std::unique_ptr<WorkEngine> engine(
      new WorkEngine(team, std::move(meaning), std::move(rings), std::move(streams), limits));
  try {
    engine->thread_ =
        std::make_unique<EngineThread>([&consumer = engine->consumer_] { return consumer.step(); },
                                       team.is_host ? kHostPace : kGpuPace);
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("start the thread behind rings of work items: ", error.what()));
  }
  return engine;
}

WorkEngine::WorkEngine(const TransportTeam& team, WorkMeaning meaning, WorkRings rings,
                       std::unique_ptr<Streams> streams, const WorkConsumer::Options& options)
    : team_(team),
      rings_(std::move(rings)),
      streams_(std::move(streams)),
      consumer_(team_, std::move(meaning), rings_.rings(), streams_.get(), options) {}

WorkEngine::~WorkEngine() = default;

}  // namespace cco
