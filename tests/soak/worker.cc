// One client of the soak: a session that is one rank of one group, told what to do by lines on its
// standard input, with an answer to each on standard output. It knows nothing of what is right.
//
//   attach                           a session; the socket comes from $CCO_SOCKET
//   join NAME RANK SIZE GPU TAG      a group and its communicator; TAG, 16 bits, marks its patterns
//   window NAME BYTES                … whose words must be zero or patterns of this group
//   external NAME BYTES              the same of memory that the process has made itself
//   destroy NAME
//   put NAME PEER OFFSET BYTES SEED  a pattern into PEER's copy, then a signal, by the primitives
//   wait COUNT                       until so many signals have come
//   check NAME RANK OFFSET BYTES SEED  RANK's copy, through this process's mapping
//   barrier
//   leave
//
// Answers: "ok", "error STATUS RANK MESSAGE" of a call, or "wrong WHAT" of memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cco/client.hpp"
#include "cco/device.hpp"
#include "cco/device/host_launch.h"
#include "client/base/unique.h"

namespace dev = cco::device;

namespace {

CCO_KERNEL void put_and_signal(dev::DeviceComm comm, dev::Window window, uint32_t peer,
                               uint64_t offset, uint64_t source, uint64_t bytes) {
  const dev::ThreadCoop self;
  dev::put(self, peer, dev::at(window, offset), reinterpret_cast<const void*>(source), bytes);
  dev::signal_add(self, comm, peer, /*index=*/0, /*delta=*/1);
}

CCO_KERNEL void wait_for_signals(dev::DeviceComm comm, uint64_t target, uint64_t timeout_ns,
                                 dev::WaitResult* result) {
  *result = dev::wait_at_least(dev::ThreadCoop(), comm, 0, target,
                               dev::Deadline::after(comm, timeout_ns));
}
CCO_KERNEL_TABLE(soak, put_and_signal, wait_for_signals);

template <typename... Arguments>
void launch(uint32_t kernel, Arguments... arguments) {
  void* pointers[] = {&arguments...};
  dev::launch_on_host({}, cco_kernel_table_soak.entries[kernel].function, pointers);
}

// Far longer than the daemon is ever away; a call that takes this long is an error.
constexpr uint32_t kTimeoutMs = 60000;
constexpr uint64_t kTimeoutNs = uint64_t{kTimeoutMs} * 1'000'000;
constexpr uint32_t kJoinTimeoutMs = 30000;  // What ranks wait for one that was killed before.
constexpr int kTagShift = 48;
constexpr uint64_t kGranularity = 65536;  // The host driver's.

class Worker {
 public:
  std::string obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "attach") return attach();
    if (command == "join") return join(words);
    if (command == "window" || command == "external") {
      return make_window(words, command == "external");
    }
    if (command == "destroy") return destroy(words);
    if (command == "put") return put(words);
    if (command == "wait") return wait(words);
    if (command == "check") return check(words);
    if (command == "barrier") return answer(group_.barrier(kTimeoutMs));
    if (command == "leave") return leave();
    return "wrong command " + line;
  }

 private:
  struct Held {
    cco::Window window;
    dev::Window view{};
    uint64_t size_bytes = 0;
  };

  static std::string answer(cco_status status) {
    if (status == CCO_OK) return "ok";
    return std::string("error ") + cco_status_name(status) + " " +
           std::to_string(cco_error_rank()) + " " + cco_error_message();
  }

  uint64_t pattern(uint64_t seed, uint64_t index) const {
    uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15 + index;  // splitmix64
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return tag_ << kTagShift | (word ^ (word >> 31)) >> (64 - kTagShift);
  }

  const uint64_t* words_at(const Held& held, uint32_t rank, uint64_t offset) const {
    uint64_t* words = nullptr;
    cco::or_throw(held.window.get_address(rank, offset, &words));
    return words;
  }

  std::string attach() { return answer(cco::Client::create({nullptr, kTimeoutMs}, &client_)); }

  std::string join(std::istream& words) {
    std::string name;
    cco::Group::Options options;
    words >> name >> options.rank >> options.size >> options.device >> tag_;
    options.name = name.c_str();
    options.timeout_ms = kJoinTimeoutMs;
    const cco_status joined = cco::Group::create(client_, options, &group_);
    if (joined != CCO_OK) return answer(joined);
    const cco_status made =
        cco::Comm::create(group_, {.signal_count = 1, .timeout_ms = kTimeoutMs}, &comm_);
    if (made != CCO_OK) return answer(made);
    return answer(comm_.get_device(&comm_view_));
  }

  std::string make_window(std::istream& words, bool is_external) {
    std::string name;
    Held held;
    words >> name >> held.size_bytes;
    const cco::Window::Options options{.size_bytes = held.size_bytes, .timeout_ms = kTimeoutMs};
    const cco_status made = is_external
                                ? register_memory(name, options, &held.window)
                                : cco::Window::create(group_, name.c_str(), options, &held.window);
    if (made != CCO_OK) return answer(made);
    cco::or_throw(held.window.get_device(&held.view));
    const uint64_t* const own = words_at(held, comm_view_.lsa_rank, 0);
    for (uint64_t i = 0; i < held.size_bytes / 8; ++i) {
      if (own[i] != 0 && own[i] >> kTagShift != tag_) {
        return "wrong: a new window holds " + hex(own[i]) + " at word " + std::to_string(i) +
               ", which nobody of this group has written";
      }
    }
    windows_[name] = std::move(held);
    return "ok";
  }

  // Nothing but the daemon and those who have mapped it keeps it.
  cco_status register_memory(const std::string& name, const cco::Window::Options& options,
                             cco::Window* window) const {
    const uint64_t bytes = (options.size_bytes + kGranularity - 1) / kGranularity * kGranularity;
    const cco::UniqueFd memory(::memfd_create("soak", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0) std::abort();
    return cco::Window::register_memory(group_, name.c_str(), options, {memory.get(), bytes, 0},
                                        window);
  }

  std::string destroy(std::istream& words) {
    std::string name;
    words >> name;
    windows_.erase(name);
    return "ok";
  }

  std::string put(std::istream& words) {
    std::string name;
    uint32_t peer = 0;
    uint64_t offset = 0, bytes = 0, seed = 0;
    words >> name >> peer >> offset >> bytes >> seed;
    std::vector<uint64_t> source(bytes / 8);
    for (uint64_t i = 0; i < source.size(); ++i) source[i] = pattern(seed, i);
    launch(0, comm_view_, windows_.at(name).view, peer, offset,
           reinterpret_cast<uint64_t>(source.data()), bytes);
    return "ok";
  }

  std::string wait(std::istream& words) {
    uint64_t target = 0;
    words >> target;
    dev::WaitResult result{};
    launch(1, comm_view_, target, kTimeoutNs, &result);
    if (result.status == dev::WaitStatus::kArrived) return "ok";
    const bool lost = result.status == dev::WaitStatus::kPeerLost;
    return std::string("error ") + (lost ? "PEER_LOST " : "TIMED_OUT ") +
           std::to_string(result.rank) + " waiting for signal " + std::to_string(target) + ", at " +
           std::to_string(dev::read_signal(comm_view_, 0));
  }

  std::string check(std::istream& words) {
    std::string name;
    uint32_t rank = 0;
    uint64_t offset = 0, bytes = 0, seed = 0;
    words >> name >> rank >> offset >> bytes >> seed;
    const uint64_t* const found = words_at(windows_.at(name), rank, offset);
    for (uint64_t i = 0; i < bytes / 8; ++i) {
      if (found[i] == pattern(seed, i)) continue;
      return "wrong: rank " + std::to_string(rank) + "'s window " + name + " holds " +
             hex(found[i]) + " at byte " + std::to_string(offset + 8 * i) + " instead of " +
             hex(pattern(seed, i));
    }
    return "ok";
  }

  std::string leave() {
    windows_.clear();
    comm_ = cco::Comm();
    group_ = cco::Group();
    client_ = cco::Client();
    return "ok";
  }

  static std::string hex(uint64_t word) {
    std::ostringstream text;
    text << "0x" << std::hex << word;
    return text.str();
  }

  cco::Client client_;
  cco::Group group_;
  cco::Comm comm_;
  dev::DeviceComm comm_view_{};
  std::map<std::string, Held> windows_;
  uint64_t tag_ = 0;
};

}  // namespace

int main() {
  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << worker.obey(line) << std::endl;
  }
  return 0;
}
