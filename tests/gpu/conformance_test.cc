// One contract, every transport and provider: through a real daemon and client, on whatever driver
// there is. See conformance_body.h for what the kernels do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "device/kernels/kernels.h"
#include "tests/gpu/conformance_cases.h"
#include "tests/gpu/gpu_node.h"

namespace cco::kernels {
const KernelModule& conformance_lsa();
const KernelModule& conformance_tdm();
const KernelModule& conformance_sdma();
const KernelModule& conformance_gda();
const KernelModule& conformance_barrier();
const KernelModule& conformance_mix();
}  // namespace cco::kernels

namespace cco::test {
namespace {

namespace conformance = ::cco::device::conformance;
using conformance::Given;
using conformance::Meeting;
using conformance::Report;
using conformance::Scope;

/// A transport, and who provides it.
struct Way {
  const char* transport;
  const char* provider;
  const KernelModule& (*module)();
  std::string name() const {
    std::string name = std::string(transport) + "_" + provider;
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }
  bool is(const char* which) const { return std::strcmp(transport, which) == 0; }
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name(); }

const Way kWays[] = {
    {"lsa", "stores", kernels::conformance_lsa}, {"tdm", "any", kernels::conformance_tdm},
    {"sdma", "host", kernels::conformance_sdma}, {"sdma", "copy-engine", kernels::conformance_sdma},
    {"gda", "proxy", kernels::conformance_gda},  {"gda", "mlx5", kernels::conformance_gda},
    {"gda", "bnxt", kernels::conformance_gda},   {"gda", "ionic", kernels::conformance_gda},
};

constexpr uint64_t kBudgetNs = 60'000'000'000;  // Ends a broken test, never a working one.

Rank::Plan plan_for(const Way& way) {
  Rank::Plan plan;
  plan.comm.signal_count = 4;
  plan.comm.barrier_count = 2;
  if (way.is("sdma")) {
    plan.comm.transports = CCO_TRANSPORT_SDMA;
    plan.comm.sdma_provider = way.provider;
  }
  if (way.is("gda")) {
    plan.comm.transports = CCO_TRANSPORT_GDA;
    plan.comm.gda_provider = way.provider;
    plan.comm.gda_context_count = 2;
    plan.comm.gda_signal_count = 4;
    plan.comm.gda_counter_count = 4;
    plan.comm.gda_queue_depth = 16;  // It fills, and it wraps.
  }
  return plan;
}

/// Byte `index` of what `rank` sends.
uint8_t sent(uint32_t rank, uint64_t index) {
  return static_cast<uint8_t>(1 + (index * 7 + index / 255 * 13 + rank * 91) % 255);
}

/// A window of one case, on one rank.
class Stage {
 public:
  /// Collective: afterwards every rank's bytes are `source`, and zero behind it.
  static absl::StatusOr<Stage> create(Rank& rank, uint64_t bytes,
                                      const std::vector<uint8_t>& source = {}) {
    Stage stage;
    CCO_ASSIGN_OR_RETURN(stage.window_, rank.create_window(bytes, "conformance"));
    stage.bytes_ = bytes;
    CCO_RETURN_IF_ERROR(stage.reset(rank, source));
    return stage;
  }

  absl::Status reset(Rank& rank, const std::vector<uint8_t>& source) const {
    CCO_ASSIGN_OR_RETURN(const uint64_t own, Rank::address(window_, rank.comm().lsa_rank, 0));
    CCO_RETURN_IF_ERROR(rank.context().fill_zero(own, bytes_));
    if (!source.empty()) {
      CCO_RETURN_IF_ERROR(rank.context().copy_to_device(own, source.data(), source.size()));
    }
    return rank.barrier();
  }

  absl::StatusOr<Given> given(const Rank& rank, uint32_t peer, Scope scope) const {
    CCO_ASSIGN_OR_RETURN(const cco_window_device window, Rank::descriptor(window_));
    return Given{rank.comm(), window, peer, scope, kBudgetNs};
  }

  std::vector<uint8_t> bytes(Rank& rank) const { return read_window(rank, window_, bytes_); }

  /// What this rank's kernels have to say.
  void expect_no_findings(Rank& rank, const std::string& what) const {
    const std::vector<uint8_t> all = bytes(rank);
    Report report;
    std::memcpy(&report, all.data() + conformance::report_offset(bytes_), sizeof report);
    EXPECT_EQ(report.failures, 0u) << what << ", rank " << rank.rank() << ": step " << report.step
                                   << " gave " << std::hex << report.result;
  }

 private:
  Window window_;
  uint64_t bytes_ = 0;
};

/// Launches a kernel of the way's module and waits for it.
template <typename... Arguments>
absl::Status run_kernel(Rank& rank, const KernelModule& module, const std::string& name,
                        LaunchShape shape, const Arguments&... arguments) {
  CCO_ASSIGN_OR_RETURN(const GpuFunction kernel, rank.context().load(module, name));
  CCO_RETURN_IF_ERROR(rank.barrier());  // Loading waits for running kernels.
  CCO_RETURN_IF_ERROR(launch(rank.stream(), kernel, shape, arguments...));
  CCO_RETURN_IF_ERROR(rank.stream().synchronize());
  CCO_RETURN_IF_ERROR(rank.check_comm());
  return rank.barrier();
}

class Conformance : public ::testing::TestWithParam<Way> {
 protected:
  GpuNode& node() {
    static GpuNode node;
    return node;
  }
  std::string kernel(const char* name) const { return std::string(GetParam().transport) + name; }
  std::vector<Scope> scopes() const {
    if (GetParam().is("tdm")) return {Scope::kWarp, Scope::kBlock};
    return {Scope::kThread, Scope::kWarp, Scope::kBlock};
  }
  /// Of several groups, where the scope has several.
  LaunchShape grid() { return {node().is_host() ? 2u : 4u, node().is_host() ? 2u : 64u, kShared}; }
  /// Of one group.
  LaunchShape one(Scope scope) {
    if (scope == Scope::kThread) return {1, 1, kShared};
    return {1, scope == Scope::kWarp && !node().is_host() ? 32u : node().block(), kShared};
  }

  // TDM's stages: of each warp of a block.
  static constexpr uint32_t kShared = 4 * (128 + 4 * 1024);
};

std::vector<uint8_t> cell_source(uint32_t rank) {
  std::vector<uint8_t> source(conformance::cells::kSourceBytes);
  for (size_t i = 0; i < source.size(); ++i) source[i] = sent(rank, i);
  return source;
}

// Zero between the cells: a byte too many is seen.
std::vector<uint8_t> expected_cells(uint32_t rank, uint32_t peer) {
  std::vector<uint8_t> expected(conformance::cells::window_bytes(), 0);
  const std::vector<uint8_t> own = cell_source(rank), theirs = cell_source(peer);
  std::copy(own.begin(), own.end(), expected.begin());
  for (uint32_t i = 0; i < conformance::cells::kCount; ++i) {
    const conformance::cells::Cell cell = conformance::cells::cell(i);
    std::memcpy(expected.data() + cell.destination, theirs.data() + cell.source, cell.bytes);
  }
  return expected;
}

// Goal    put and get move exactly the bytes asked for, whoever calls, to a peer and to oneself.
// Method  lengths from 0 to 1 MiB at six alignments; whole windows are compared.
TEST_P(Conformance, MovesTheBytesAskedFor) {
  node().run(2, plan_for(GetParam()), [&](Rank& rank) -> absl::Status {
    const std::vector<uint8_t> source = cell_source(rank.rank());
    CCO_ASSIGN_OR_RETURN(const Stage stage,
                         Stage::create(rank, conformance::cells::window_bytes(), source));
    for (const uint32_t peer : {1 - rank.rank(), rank.rank()}) {
      for (const Scope scope : scopes()) {
        for (const bool get : {false, true}) {
          CCO_RETURN_IF_ERROR(stage.reset(rank, source));
          CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, peer, scope));
          CCO_RETURN_IF_ERROR(run_kernel(rank, GetParam().module(), kernel("_cells"), grid(), given,
                                         static_cast<uint32_t>(get)));
          const std::string what =
              absl::StrFormat("%s of rank %d to %d by scope %d", get ? "get" : "put", rank.rank(),
                              peer, static_cast<int>(scope));
          stage.expect_no_findings(rank, what);
          EXPECT_TRUE(stage.bytes(rank) == expected_cells(rank.rank(), peer)) << what;
        }
      }
    }
    return rank.barrier();
  });
}

// Goal    a put is there when the signal after it is, in every round; no bytes still signal; after
//         a flush the source is the caller's again.
// Method  two ranks in step, payloads of all kinds, sources spoilt after each flush. Signals count
//         from 0, so one that the self-test left behind would let a round pass early.
TEST_P(Conformance, SignalsComeAfterTheirPuts) {
  const uint64_t rounds = node().is_host() ? 200 : 2000;
  for (const Scope scope : scopes()) {
    node().run(2, plan_for(GetParam()), [&](Rank& rank) -> absl::Status {
      CCO_ASSIGN_OR_RETURN(const Stage stage, Stage::create(rank, conformance::ping::kWindowBytes));
      CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, 1 - rank.rank(), scope));
      CCO_RETURN_IF_ERROR(
          run_kernel(rank, GetParam().module(), kernel("_ping"), one(scope), given, rounds));
      stage.expect_no_findings(rank, absl::StrFormat("scope %d", static_cast<int>(scope)));
      return rank.barrier();
    });
  }
}

// Goal    many threads may put on one queue, more than it holds, and a signal after them is after
//         all of them.
// Method  far more puts than a queue has places, from all threads of several blocks.
TEST_P(Conformance, ManyProducersOnOneQueue) {
  if (GetParam().is("tdm")) return;  // A group has its own mover.
  const LaunchShape shape{2, node().is_host() ? 4u : 128u, 0};
  const uint32_t puts = node().is_host() ? 150 : 50;
  const uint64_t bytes =
      conformance::producers::window_bytes(uint64_t{shape.blocks} * shape.threads * puts);
  node().run(2, plan_for(GetParam()), [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const Stage stage, Stage::create(rank, bytes));
    CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, 1 - rank.rank(), Scope::kThread));
    CCO_RETURN_IF_ERROR(
        run_kernel(rank, GetParam().module(), kernel("_producers"), shape, given, puts));
    stage.expect_no_findings(rank, "producers");
    return rank.barrier();
  });
}

// Goal    values of every size, consumed signals, counters and requests agree, round after round.
TEST_P(Conformance, CountersAndValues) {
  if (!GetParam().is("gda")) return;  // The others have no counters.
  const uint64_t rounds = node().is_host() ? 100 : 1000;
  node().run(2, plan_for(GetParam()), [&](Rank& rank) -> absl::Status {
    CCO_ASSIGN_OR_RETURN(const Stage stage, Stage::create(rank, 4096));
    CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, 1 - rank.rank(), Scope::kBlock));
    CCO_RETURN_IF_ERROR(
        run_kernel(rank, GetParam().module(), kernel("_count"), one(Scope::kBlock), given, rounds));
    stage.expect_no_findings(rank, "counters");
    return rank.barrier();
  });
}

// Goal    what makes no sense is refused, moves nothing, and leaves the queue as it was.
// Method  every bad argument; among them a window that was destroyed, by pointer.
TEST_P(Conformance, RefusesWhatMakesNoSense) {
  if (!GetParam().is("gda") && !GetParam().is("sdma")) return;  // Those check only in debug builds.
  node().run(2, plan_for(GetParam()), [&](Rank& rank) -> absl::Status {
    const std::vector<uint8_t> source(8, static_cast<uint8_t>(7 + rank.rank()));
    CCO_ASSIGN_OR_RETURN(const Stage stage, Stage::create(rank, 4096, source));
    CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, 1 - rank.rank(), Scope::kBlock));
    const cco_window_device* stale = nullptr;
    {
      CCO_ASSIGN_OR_RETURN(const Window window, rank.create_window(4096, "destroyed soon"));
      CCO_RETURN_IF_ERROR(to_status(window.get_device_pointer(&stale), "device pointer"));
      CCO_RETURN_IF_ERROR(rank.barrier());
    }
    CCO_RETURN_IF_ERROR(
        run_kernel(rank, GetParam().module(), kernel("_refuse"), one(Scope::kBlock), given, stale));
    stage.expect_no_findings(rank, "refusals");
    std::vector<uint8_t> expected(4096, 0);
    std::fill_n(expected.begin(), 8, static_cast<uint8_t>(7 + rank.rank()));
    std::fill_n(expected.begin() + 64, 8, static_cast<uint8_t>(8 - rank.rank()));
    EXPECT_TRUE(stage.bytes(rank) == expected) << "only the sound put has moved";
    return rank.barrier();
  });
}

std::vector<Meeting> meetings(const Way& way) {
  if (way.is("lsa")) return {Meeting::kLsa};
  if (way.is("gda")) return {Meeting::kRail, Meeting::kConnected, Meeting::kWorld};
  return {};
}

// Goal    after a barrier every rank sees what any of its team had put before, as often as one
//         likes, whatever the nodes.
// Method  four ranks on one node, two nodes and four; words of all ranks are compared.
TEST_P(Conformance, BarriersOfEveryTeam) {
  const uint64_t rounds = node().is_host() ? 12 : 400;
  for (const Meeting meeting : meetings(GetParam())) {
    for (const uint32_t lsa_size : {1u, 2u, 4u}) {
      Rank::Plan plan = plan_for(GetParam());
      plan.lsa_size = lsa_size;
      if (GetParam().is("gda")) {
        plan.comm.rail_barrier_count = 2;
        plan.comm.world_barrier_count = 2;
        if (meeting == Meeting::kRail) plan.comm.gda_connection = CCO_GDA_CONNECT_RAIL;
      }
      node().run(4, plan, [&](Rank& rank) -> absl::Status {
        CCO_ASSIGN_OR_RETURN(const Stage stage, Stage::create(rank, 4096));
        CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, rank.rank(), Scope::kBlock));
        CCO_RETURN_IF_ERROR(run_kernel(rank, kernels::conformance_barrier(), "meet_all",
                                       one(Scope::kBlock), given, static_cast<uint32_t>(meeting),
                                       rounds));
        stage.expect_no_findings(
            rank, absl::StrFormat("barrier %d, teams of %d", static_cast<int>(meeting), lsa_size));
        return rank.barrier();
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Conformance, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return info.param.name(); });

void expect_mixed(Rank& rank, const Stage& stage) {
  const std::vector<uint8_t> seen = stage.bytes(rank);
  std::vector<uint8_t> expected(conformance::mix::kHalfBytes, 0);
  for (const conformance::mix::Part part : {conformance::mix::kSdma, conformance::mix::kGda,
                                            conformance::mix::kTdm, conformance::mix::kLsa}) {
    for (uint64_t i = part.offset; i < part.offset + part.bytes; ++i) {
      expected[i] = sent(1 - rank.rank(), i);
    }
  }
  EXPECT_TRUE(
      std::equal(expected.begin(), expected.end(), seen.begin() + conformance::mix::kHalfBytes))
      << "rank " << rank.rank();
}

// Goal    one kernel has all four transports under way at once, and every byte arrives.
// Method  each moves a part of its own; every pair of providers.
TEST(Mix, FourTransportsInOneKernel) {
  GpuNode node;
  for (const char* const sdma : {"host", "copy-engine"}) {
    for (const char* const gda : {"proxy", "mlx5", "bnxt", "ionic"}) {
      Rank::Plan plan;
      plan.comm.signal_count = 1;
      plan.comm.transports = CCO_TRANSPORT_SDMA | CCO_TRANSPORT_GDA;
      plan.comm.sdma_provider = sdma;
      plan.comm.gda_provider = gda;
      node.run(2, plan, [&](Rank& rank) -> absl::Status {
        SCOPED_TRACE(absl::StrFormat("%s, %s", sdma, gda));
        std::vector<uint8_t> source(conformance::mix::kHalfBytes);
        for (size_t i = 0; i < source.size(); ++i) source[i] = sent(rank.rank(), i);
        CCO_ASSIGN_OR_RETURN(const Stage stage,
                             Stage::create(rank, conformance::mix::kWindowBytes, source));
        CCO_ASSIGN_OR_RETURN(const Given given, stage.given(rank, 1 - rank.rank(), Scope::kBlock));
        CCO_RETURN_IF_ERROR(run_kernel(rank, kernels::conformance_mix(), "mix_all",
                                       {1, node.block(), 128 + 4 * 2048}, given));
        stage.expect_no_findings(rank, "mix");
        expect_mixed(rank, stage);
        return rank.barrier();
      });
    }
  }
}

}  // namespace
}  // namespace cco::test
