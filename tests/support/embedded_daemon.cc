#include "tests/support/embedded_daemon.h"

#include <utility>

#include "client/base/status_macros.h"

namespace cco::test {

EmbeddedDaemon::EmbeddedDaemon(GpuDriver& driver, memd::Config config)
    : config_(std::move(config)) {
  config_.socket_path = folder_.file("memd.sock");
  auto made = memd::Memd::create(config_, driver, journal_);
  CCO_ASSERT(made.ok());
  memd_ = *std::move(made);
  thread_ = std::thread([this] { CCO_ASSERT(memd_->run(/*handle_signals=*/false).ok()); });
}

EmbeddedDaemon::~EmbeddedDaemon() {
  memd_->stop();
  thread_.join();
}

}  // namespace cco::test
