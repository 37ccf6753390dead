// Where a vault's descriptors are while no actor runs: a keeper, or a stand-in for systemd.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "tests/support/process.h"
#include "tests/unit/daemon/fake_systemd.h"
#include "tests/unit/daemon/vault_actor.h"

namespace cco::test {

class VaultRig {
 public:
  virtual ~VaultRig() = default;

  /// At most `limit` descriptors fit from now on.
  virtual void set_limit(size_t limit) = 0;
  /// An actor with an open vault, when the one before has been killed.
  virtual std::unique_ptr<VaultActor> start() = 0;
  /// The holder takes nothing more until resume().
  virtual void stop() = 0;
  virtual void resume() = 0;
};

class KeeperRig final : public VaultRig {
 public:
  KeeperRig();
  ~KeeperRig() override;  ///< Ends the keeper.

  void set_limit(size_t limit) override { options.descriptor_limit = limit + 16; }
  std::unique_ptr<VaultActor> start() override;
  void stop() override;
  void resume() override;

  /// Of the keeper that has the lock now or had it last.
  pid_t keeper_pid() const;
  std::string file(const std::string& name) const { return folder_.file(name); }
  const std::string& path() const { return folder_.path(); }

  VaultActor::Options options;  ///< For the next start(), but for state_dir.

 private:
  TempDir folder_;
};

class SystemdRig final : public VaultRig {
 public:
  SystemdRig() { set_limit(4096); }

  void set_limit(size_t limit) override;
  std::unique_ptr<VaultActor> start() override;
  void stop() override { systemd_->stop(); }
  void resume() override { systemd_->resume(); }

 private:
  TempDir folder_;
  size_t limit_ = 0;
  std::unique_ptr<FakeSystemd> systemd_;
};

}  // namespace cco::test
