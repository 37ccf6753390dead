// What systemd does with a service's notifications and its descriptor store, for tests.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <thread>

#include "client/base/unique.h"

namespace cco::test {

class FakeSystemd {
 public:
  /// Listens on `path`, and stores up to `limit` descriptors; as systemd does, it drops what is
  /// over that, and an open file that it has, without a word.
  FakeSystemd(const std::string& path, size_t limit);
  ~FakeSystemd();

  /// Reads nothing more until resume().
  void stop();
  void resume();

  /// What it holds, when everything that came has been read: what the next start is given.
  const std::map<std::string, UniqueFd>& stored();

 private:
  void serve();
  bool take_one();

  size_t limit_;
  UniqueFd socket_;
  UniqueFd wake_;
  std::map<std::string, UniqueFd> stored_;  // Of the thread, while it runs.
  std::thread thread_;
};

}  // namespace cco::test
