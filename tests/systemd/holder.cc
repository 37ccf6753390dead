// Holds windows with a pattern while the daemon comes and goes, two of them over the same memory of
// its own. For every line on its input it checks all bytes, makes one more window, meets in a
// barrier, and says "ok", or what went wrong.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <iostream>
#include <string>
#include <vector>

#include "cco/client.hpp"

namespace cco::test {
namespace {

constexpr uint32_t kRanks = 2;
constexpr uint32_t kTimeoutMs = 60000;
constexpr uint64_t kBytes = 3 << 20;
constexpr unsigned char kOwn = 0xee;

// Empty: it went well.
using Step = std::function<cco_status(uint32_t rank)>;
std::string on_both(const char* what, const Step& step) {
  const auto call = [&](uint32_t rank) {
    return step(rank) == CCO_OK ? "" : std::string(what) + ": " + cco_error_message();
  };
  std::future<std::string> other = std::async(std::launch::async, call, 1);
  const std::string mine = call(0), theirs = other.get();
  return mine.empty() ? theirs : mine;
}

class Holder {
 public:
  std::string join() {
    Client::Options options;
    options.timeout_ms = kTimeoutMs;
    const cco_status status = Client::create(options, &client_);
    if (status != CCO_OK) return std::string("attach: ") + cco_error_message();
    const std::string wrong = on_both("join", [this](uint32_t rank) {
      Group::Options group;
      group.rank = rank;
      group.size = kRanks;
      group.name = "holder";
      return Group::create(client_, group, &groups_[rank]);
    });
    return wrong.empty() ? register_twice() : wrong;
  }

  std::string check_and_grow() {
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::string wrong;
      for (size_t i = 0; i < windows_.size() && wrong.empty(); ++i) {
        wrong = compare(windows_[i], "window " + std::to_string(i), rank, value(i, rank));
      }
      for (size_t i = 0; i < 2 && wrong.empty(); ++i) {
        wrong = compare(external_[i], "external window " + std::to_string(i), rank, kOwn);
      }
      if (!wrong.empty()) return wrong;
    }
    std::vector<Window> made(kRanks);
    std::string wrong = on_both("make a window", [&](uint32_t rank) {
      Window::Options options;
      options.size_bytes = kBytes;
      options.timeout_ms = kTimeoutMs;
      return Window::create(groups_[rank], nullptr, options, &made[rank]);
    });
    if (!wrong.empty()) return wrong;
    windows_.push_back(std::move(made));
    wrong = on_both("fill it", [this](uint32_t rank) {
      unsigned char* own = nullptr;
      const cco_status status = windows_.back()[rank].get_address(rank, 0, &own);
      if (status == CCO_OK) std::memset(own, value(windows_.size() - 1, rank), kBytes);
      return status;
    });
    if (!wrong.empty()) return wrong;
    return on_both("barrier", [this](uint32_t rank) { return groups_[rank].barrier(kTimeoutMs); });
  }

 private:
  static unsigned char value(size_t window, uint32_t rank) {
    return static_cast<unsigned char>(1 + window * kRanks + rank);
  }
  // Through the other rank's mapping.
  static std::string compare(const std::vector<Window>& window, const std::string& what,
                             uint32_t rank, unsigned char expected) {
    const unsigned char* bytes = nullptr;
    if (window[1 - rank].get_address(rank, 0, &bytes) != CCO_OK) {
      return std::string("address: ") + cco_error_message();
    }
    for (uint64_t i = 0; i < kBytes; ++i) {
      if (bytes[i] == expected) continue;
      return what + " of rank " + std::to_string(rank) + ", byte " + std::to_string(i) + " is " +
             std::to_string(bytes[i]);
    }
    return "";
  }
  // One open file for two slabs of a rank.
  std::string register_twice() {
    for (std::vector<Window>& windows : external_) windows.resize(kRanks);
    return on_both("register memory", [this](uint32_t rank) {
      const int fd = ::memfd_create("holder", MFD_CLOEXEC | MFD_ALLOW_SEALING);
      const std::vector<unsigned char> bytes(kBytes, kOwn);
      cco_status status = CCO_INTERNAL;
      if (::write(fd, bytes.data(), kBytes) == static_cast<ssize_t>(kBytes)) {
        for (size_t i = 0; i < 2; ++i) {
          Window::Options options;
          options.size_bytes = kBytes;
          options.timeout_ms = kTimeoutMs;
          status = Window::register_memory(groups_[rank], i == 0 ? "first" : "second", options,
                                           {fd, kBytes, 0}, &external_[i][rank]);
          if (status != CCO_OK) break;
        }
      }
      ::close(fd);
      return status;
    });
  }

  Client client_;
  Group groups_[kRanks];
  std::vector<std::vector<Window>> windows_;
  std::vector<Window> external_[2];
};

int run() {
  Holder holder;
  std::string wrong = holder.join();
  for (std::string line; wrong.empty() && std::getline(std::cin, line);) {
    wrong = holder.check_and_grow();
    if (wrong.empty()) std::cout << "ok" << std::endl;
  }
  if (!wrong.empty()) std::cout << wrong << std::endl;
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace cco::test

int main() { return cco::test::run(); }
