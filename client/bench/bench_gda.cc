// cco-bench gda: what a warp pays to post to a NIC, beside bare stores of the same bytes; what a
// descriptor's way to the proxy and back takes, beside a bare flag; and messages per second.
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cco/device/abi_gda.h"
#include "client/base/status_macros.h"
#include "client/bench/window_copy.h"
#include "device/kernels/kernels.h"
#include "device/transport/host_memory.h"

namespace cco::bench {
namespace {

constexpr uint64_t kDeadlineNs = 20'000'000'000;
constexpr uint32_t kContext = 0;
constexpr uint64_t kPostBytes = 8;
constexpr uint64_t kPosts = 256;  // Fit into a queue of 1024.
constexpr uint64_t kMessageBytes = 64;
constexpr uint64_t kWindowBytes = 64 << 10;
constexpr double kProxyTarget = 1.5;

// A thread that answers the kernel's word at once: the least that a proxy could do.
class FlagThread {
 public:
  FlagThread(HostMemory memory, bool yields)
      : memory_(std::move(memory)), thread_([this, yields] { answer(yields); }) {}
  ~FlagThread() {
    stop_ = true;
    thread_.join();
  }
  FlagThread(const FlagThread&) = delete;
  FlagThread& operator=(const FlagThread&) = delete;

  uint64_t request_address() const { return memory_.address(); }
  uint64_t answer_address() const { return memory_.address() + kAnswer; }

 private:
  static constexpr uint64_t kAnswer = 2048;  // On another cache line.

  void answer(bool yields) {
    auto* const request = reinterpret_cast<const uint64_t*>(memory_.data());
    auto* const answer = reinterpret_cast<uint64_t*>(memory_.data() + kAnswer);
    uint64_t answered = 0;
    while (!stop_) {
      const uint64_t asked = __atomic_load_n(request, __ATOMIC_RELAXED);
      if (asked != answered) {
        __atomic_store_n(answer, asked, __ATOMIC_RELAXED);
        answered = asked;
      } else if (yields) {
        std::this_thread::yield();
      }
    }
  }

  const HostMemory memory_;
  std::atomic<bool> stop_{false};
  std::thread thread_;  // Last: it uses the others.
};

// What gda_put waits for after each of its posts.
enum class Flush : uint32_t { kLast, kEach, kEachStamped };

// One provider on the rank that measures.
class GdaBench {
 public:
  static absl::StatusOr<std::unique_ptr<GdaBench>> create(Context& context, Rank& rank,
                                                          const std::string& provider,
                                                          const Window& window);
  absl::Status measure_posts();
  absl::Status measure_round_trip();
  absl::Status measure_messages();

 private:
  GdaBench(Context& context, Rank& rank, std::string provider)
      : context_(context), rank_(rank), provider_(std::move(provider)) {}

  Subject subject(const std::string& what, uint64_t bytes, uint32_t threads) const {
    return {"gda", absl::StrCat(what, ", ", provider_), bytes, rank_.size(), 1, threads};
  }
  double elapsed_us() const {
    const double ticks =
        static_cast<double>(*reinterpret_cast<const volatile uint64_t*>(elapsed_.data()));
    return ticks * 1000 / rank_.comm().clock_khz;
  }
  absl::StatusOr<double> put(const Copy& copy, Flush flush);
  absl::StatusOr<double> put_lanes(const Copy& copy, uint64_t calls);
  absl::StatusOr<double> write_bare(const cco_gda_queue& queue, uint32_t format, bool ordered);
  absl::StatusOr<cco_gda_queue> unserved_queue(const cco_gda_device& device);
  absl::Status measure_lanes();
  absl::Status measure_post_of_round_trip(const Copy& copy);

  Context& context_;
  Rank& rank_;
  const std::string provider_;
  const Window* window_ = nullptr;
  LaunchShape warp_;
  uint32_t lanes_ = 1;
  uint64_t iterations_ = 0;
  cco_gda_device device_{};
  HostMemory elapsed_;
  HostMemory queue_memory_;
  GpuFunction put_;
  GpuFunction put_lanes_;
  GpuFunction write_bare_;
  GpuFunction flag_ring_;
};

absl::StatusOr<std::unique_ptr<GdaBench>> GdaBench::create(Context& context, Rank& rank,
                                                           const std::string& provider,
                                                           const Window& window) {
  std::unique_ptr<GdaBench> bench(new GdaBench(context, rank, provider));
  const Settings& settings = context.settings;
  bench->window_ = &window;
  bench->lanes_ = context.is_host() ? 4 : 32;
  bench->warp_.threads = context.is_host() ? 1 : 32;
  bench->iterations_ = settings.iterations != 0 ? settings.iterations : 1000;
  GpuContext& gpu = rank.context();
  CCO_RETURN_IF_ERROR(gpu.copy_to_host(&bench->device_, rank.comm().gda, sizeof bench->device_));
  CCO_ASSIGN_OR_RETURN(bench->elapsed_, HostMemory::allocate(&gpu, sizeof(uint64_t)));
  CCO_ASSIGN_OR_RETURN(bench->put_, gpu.load(kernels::gda_bench(), "gda_put"));
  CCO_ASSIGN_OR_RETURN(bench->put_lanes_, gpu.load(kernels::gda_bench(), "gda_put_lanes"));
  CCO_ASSIGN_OR_RETURN(bench->write_bare_, gpu.load(kernels::gda_bench(), "gda_write_bare"));
  CCO_ASSIGN_OR_RETURN(bench->flag_ring_, gpu.load(kernels::gda_bench(), "flag_ring"));
  return bench;
}

// Returns the time from launch to end; elapsed_us() is that of the posts alone, unless kEach.
absl::StatusOr<double> GdaBench::put(const Copy& copy, Flush flush) {
  rank_.results().reset();
  CCO_ASSIGN_OR_RETURN(const double took_us, stream_time_us(rank_.stream(), [&] {
                         return launch(rank_.stream(), put_, warp_, rank_.comm(), copy.window,
                                       copy.peer, kContext, copy.destination_offset,
                                       copy.source_offset, copy.bytes, copy.count,
                                       static_cast<uint32_t>(flush), kDeadlineNs,
                                       elapsed_.address(), rank_.results().device_address());
                       }));
  CCO_RETURN_IF_ERROR(rank_.results().check("gda_put"));
  return took_us;
}

absl::StatusOr<double> GdaBench::put_lanes(const Copy& copy, uint64_t calls) {
  rank_.results().reset();
  CCO_RETURN_IF_ERROR(stream_time_us(rank_.stream(), [&] {
                        return launch(rank_.stream(), put_lanes_, {1, lanes_, 0}, rank_.comm(),
                                      copy.window, copy.peer, kContext, copy.destination_offset,
                                      copy.source_offset, copy.bytes / lanes_, calls, kDeadlineNs,
                                      elapsed_.address(), rank_.results().device_address());
                      }).status());
  CCO_RETURN_IF_ERROR(rank_.results().check("gda_put_lanes"));
  return elapsed_us() / static_cast<double>(calls * lanes_);
}

absl::StatusOr<double> GdaBench::write_bare(const cco_gda_queue& queue, uint32_t format,
                                            bool ordered) {
  CCO_RETURN_IF_ERROR(launch(rank_.stream(), write_bare_, warp_, queue, format, uint32_t{ordered},
                             kPostBytes, kPosts, elapsed_.address()));
  CCO_RETURN_IF_ERROR(rank_.stream().synchronize());
  return elapsed_us() / static_cast<double>(kPosts);
}

// As the provider's, in memory of the same kind that no NIC looks at.
absl::StatusOr<cco_gda_queue> GdaBench::unserved_queue(const cco_gda_device& device) {
  constexpr uint64_t kLine = 64;
  const uint64_t peer = (rank_.rank() + 1) % rank_.size();
  cco_gda_queue queue{};
  CCO_RETURN_IF_ERROR(rank_.context().copy_to_host(
      &queue, device.queues + peer * device.context_count * sizeof queue, sizeof queue));
  const uint64_t sq_bytes = uint64_t{queue.sq_depth} * (device.provider == CCO_GDA_BNXT ? 16 : 64);
  const uint64_t msn_bytes = (queue.msn_depth * sizeof(uint64_t) + kLine - 1) / kLine * kLine;
  CCO_ASSIGN_OR_RETURN(queue_memory_,
                       HostMemory::allocate(&rank_.context(), sq_bytes + msn_bytes + 2 * kLine));
  queue.sq = queue_memory_.address();
  queue.msn_table = queue.sq + sq_bytes;
  queue.doorbell_record = queue.msn_table + msn_bytes;
  queue.doorbell = queue.doorbell_record + kLine;
  return queue;
}

absl::Status GdaBench::measure_posts() {
  if (device_.provider == CCO_GDA_PROXY) return absl::OkStatus();
  CCO_ASSIGN_OR_RETURN(Copy copy,
                       make_copy(rank_, *window_, Direction::kPut, kPostBytes, kWindowBytes / 2));
  copy.count = kPosts;
  CCO_ASSIGN_OR_RETURN(const cco_gda_queue queue, unserved_queue(device_));
  const Operation ours = [&]() -> absl::StatusOr<double> {
    CCO_RETURN_IF_ERROR(put(copy, Flush::kLast).status());
    return elapsed_us() / static_cast<double>(kPosts);
  };
  CCO_ASSIGN_OR_RETURN(
      const std::vector<double> ratios,
      compare(
          context_, rank_, copy, subject("post and doorbell", 0, warp_.threads),
          {{"cco", ours},
           {"bare stores, same order", [&] { return write_bare(queue, device_.provider, true); }},
           {"bare stores, no order", [&] { return write_bare(queue, device_.provider, false); }}}));
  const double median_us = context_.results.report().measurements().rbegin()->time().median();
  const std::string name = absl::StrCat("gda post and doorbell by a warp, ", provider_);
  context_.results.note(name, median_us * 1000, "ns");
  context_.results.note(absl::StrCat(name, ", of bare stores in the same order"), ratios[0], "");
  return measure_lanes();
}

absl::Status GdaBench::measure_lanes() {
  CCO_ASSIGN_OR_RETURN(Copy copy, make_copy(rank_, *window_, Direction::kPut, kPostBytes * lanes_,
                                            kWindowBytes / 2));
  const Operation lanes = [&] { return put_lanes(copy, kPosts / lanes_); };
  CCO_RETURN_IF_ERROR(verify(rank_, copy, lanes));
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context_.settings, {lanes}));
  context_.results.add(subject("posts of all lanes, one doorbell, each", 0, lanes_), samples[0], "",
                       {});
  return absl::OkStatus();
}

absl::Status GdaBench::measure_round_trip() {
  CCO_ASSIGN_OR_RETURN(Copy copy, make_copy(rank_, *window_, Direction::kPut, 0, kWindowBytes / 2));
  copy.count = iterations_;
  const Operation ours = [&]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double took_us, put(copy, Flush::kEach));
    return took_us / static_cast<double>(copy.count);
  };
  CCO_ASSIGN_OR_RETURN(HostMemory flags, HostMemory::allocate(&rank_.context(), 4096));
  const FlagThread flag_thread(std::move(flags), context_.is_host());
  uint64_t trips = 0;
  const Operation bare = [&]() -> absl::StatusOr<double> {
    rank_.results().reset();
    CCO_ASSIGN_OR_RETURN(const double took_us, stream_time_us(rank_.stream(), [&] {
                           return launch(rank_.stream(), flag_ring_, {1, 1, 0}, rank_.comm(),
                                         flag_thread.request_address(),
                                         flag_thread.answer_address(), trips, copy.count,
                                         kDeadlineNs, rank_.results().device_address());
                         }));
    trips += copy.count;
    CCO_RETURN_IF_ERROR(rank_.results().check("flag_ring"));
    return took_us / static_cast<double>(copy.count);
  };
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context_.settings, {ours, bare}));
  const double ratio = context_.results.add(subject("no bytes and flush", 0, warp_.threads),
                                            samples[0], "bare flag", samples[1]);
  const std::string name =
      absl::StrCat("gda round trip of no bytes, ", provider_, ", in bare flags there and back");
  if (device_.provider == CCO_GDA_PROXY && !context_.is_host()) {
    context_.results.promise(name, 1 / ratio, Bound::kAtMost, kProxyTarget, "");
  } else {
    context_.results.note(name, 1 / ratio, "");
  }
  return measure_post_of_round_trip(copy);
}

// What stands in the way: the post, and, the rest, the wait. Clock reads take time of their own.
absl::Status GdaBench::measure_post_of_round_trip(const Copy& copy) {
  const Operation posts = [&]() -> absl::StatusOr<double> {
    CCO_RETURN_IF_ERROR(put(copy, Flush::kEachStamped).status());
    return elapsed_us() / static_cast<double>(copy.count);
  };
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context_.settings, {posts}));
  context_.results.add(subject("no bytes and flush, of it the post", 0, warp_.threads), samples[0],
                       "", {});
  return absl::OkStatus();
}

absl::Status GdaBench::measure_messages() {
  CCO_ASSIGN_OR_RETURN(
      Copy copy, make_copy(rank_, *window_, Direction::kPut, kMessageBytes, kWindowBytes / 2));
  copy.count = iterations_;
  const Operation messages = [&]() -> absl::StatusOr<double> {
    CCO_ASSIGN_OR_RETURN(const double took_us, put(copy, Flush::kLast));
    return took_us / static_cast<double>(copy.count);
  };
  CCO_RETURN_IF_ERROR(verify(rank_, copy, messages));
  CCO_ASSIGN_OR_RETURN(const auto samples, sample_in_turn(context_.settings, {messages}));
  context_.results.add(subject("messages", kMessageBytes, warp_.threads), samples[0], "", {});
  const double median_us = context_.results.report().measurements().rbegin()->time().median();
  context_.results.note(absl::StrCat("gda messages of 64 bytes, ", provider_), 1e6 / median_us,
                        "/s");
  return absl::OkStatus();
}

absl::Status measure(Context& context, Rank& rank, const std::string& provider) {
  if (rank.size() < 2) return absl::InvalidArgumentError("gda needs two ranks: --ranks 2");
  CCO_ASSIGN_OR_RETURN(const Window window, rank.create_window(kWindowBytes, "messages"));
  if (rank.rank() == 0) {
    CCO_ASSIGN_OR_RETURN(const std::unique_ptr<GdaBench> bench,
                         GdaBench::create(context, rank, provider, window));
    CCO_RETURN_IF_ERROR(bench->measure_posts());
    CCO_RETURN_IF_ERROR(bench->measure_round_trip());
    CCO_RETURN_IF_ERROR(bench->measure_messages());
  }
  CCO_RETURN_IF_ERROR(rank.barrier());
  return rank.check_comm();
}

}  // namespace

absl::Status bench_gda(Context& context) {
  std::vector<std::string> providers{"mlx5", "bnxt", "ionic", "proxy"};
  if (!context.settings.gda_provider.empty()) providers = {context.settings.gda_provider};
  if (context.is_host()) {
    context.results.not_applicable("gda round trip by proxy, at most 1.5 bare flags",
                                   "host threads share the CPU with the proxy");
  }
  for (const std::string& provider : providers) {
    Rank::Plan plan;
    plan.comm.transports = CCO_TRANSPORT_GDA;
    plan.comm.gda_provider = provider.c_str();
    plan.comm.gda_context_count = 1;
    CCO_RETURN_IF_ERROR(on_team(context, "gda-" + provider, pair_of(context), plan,
                                [&](Rank& rank) { return measure(context, rank, provider); }));
  }
  return absl::OkStatus();
}

}  // namespace cco::bench
