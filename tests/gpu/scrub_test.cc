// What one process has written into GPU memory, the next never reads: on the driver under test.
#include <signal.h>

#include <string>

#include "tests/gpu/gpu_node.h"
#include "tests/support/hoard.h"
#include "tests/support/node_watch.h"

namespace cco::test {
namespace {

memd::Config hoarders_config(const GpuDriver& driver) {
  memd::Config config;
  // GPUs of the host are as large as the machine's memory.
  if (driver.name() == "host") config.limits.bytes_per_gpu = uint64_t{64} << 20;
  return config;
}

// Goal    all that a process gets is zero, control regions included, however the process before it
//         has ended: daemon and drivers together forget what was there.
// Method  a process fills the whole GPU with a pattern and leaves, or is killed; the next gets the
//         whole GPU, by a client that clears nothing, and reads every byte.
TEST(Scrub, NothingIsLeftForOthers) {
  const std::unique_ptr<GpuDriver> driver = *open_test_driver();
  const EmbeddedDaemon daemon(*driver, hoarders_config(*driver));
  NodeWatch watch(daemon.socket_path());
  const auto holds_nothing = [&] {
    return watch.becomes([](const NodeLedger& ledger) { return ledger.slab_bytes() == 0; });
  };
  Ranks::Options options;
  options.socket_path = daemon.socket_path();
  for (const bool killed : {false, true}) {
    Ranks first(1, plant_in_hoard, options);
    const uint64_t planted = std::stoull("0" + first.hear(0));
    EXPECT_GT(planted, driver->name() == "host" ? 0u : driver->devices()[0].total_bytes * 9 / 10);
    ASSERT_EQ(first.hear(0), "planted");
    if (killed) {
      first.signal(0, SIGKILL);
    } else {
      first.tell(0, "leave");
    }
    first.expect_success();
    ASSERT_TRUE(holds_nothing());
    Ranks second(1, look_into_hoard, options);
    EXPECT_GE(std::stoull("0" + second.hear(0)), planted * 99 / 100) << "or it has not seen all";
    second.expect_success();
    ASSERT_TRUE(holds_nothing());
  }
}

}  // namespace
}  // namespace cco::test
