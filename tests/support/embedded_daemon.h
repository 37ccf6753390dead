// A daemon inside this process, on any driver.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "daemon/memd.h"
#include "tests/support/process.h"

namespace cco::test {

class EmbeddedDaemon {
 public:
  /// `driver` outlives this. `config`'s socket is replaced by one in a fresh folder.
  explicit EmbeddedDaemon(GpuDriver& driver, memd::Config config = {});
  /// Stops it; every call of the driver must be able to end.
  ~EmbeddedDaemon();

  const std::string& socket_path() const { return config_.socket_path; }

 private:
  class NullJournal final : public memd::Journal {
    void record(memd::Severity, const std::string&, const std::string&) override {}
  };
  TempDir folder_;
  memd::Config config_;
  NullJournal journal_;
  std::unique_ptr<memd::Memd> memd_;
  std::thread thread_;
};

}  // namespace cco::test
