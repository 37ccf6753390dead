#include "tests/contract/peer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "device/runtime/open_driver.h"
#include "tests/contract/contract_test.h"

extern char** environ;

namespace cco {
namespace {

constexpr int kPeerFd = 3;
constexpr std::chrono::seconds kPatience{30};

/// What one peer holds; members end in reverse order.
struct Peer {
  std::unique_ptr<GpuDriver> driver;
  std::vector<std::unique_ptr<GpuContext>> contexts;
  std::vector<GpuMemory> memories;
  std::optional<Area> area;

  absl::Status open(DriverKind kind) {
    CCO_ASSIGN_OR_RETURN(driver, open_driver({.kind = kind, .host_bytes_per_device = kHostBytes}));
    return absl::OkStatus();
  }

  absl::StatusOr<GpuContext*> context(int device) {
    for (const auto& known : contexts) {
      if (known->device() == device) return known.get();
    }
    CCO_ASSIGN_OR_RETURN(auto opened, driver->open(device));
    contexts.push_back(std::move(opened));
    return contexts.back().get();
  }

  absl::StatusOr<UniqueFd> allocate(int device, uint64_t size_bytes) {
    CCO_ASSIGN_OR_RETURN(GpuMemory memory, driver->allocate(device, size_bytes, MemoryKind::kData));
    CCO_ASSIGN_OR_RETURN(UniqueFd fd, driver->export_fd(memory));
    CCO_ASSIGN_OR_RETURN(area, map_area(*driver, device, memory));
    memories.push_back(std::move(memory));
    return fd;
  }

  absl::Status import(int device, BorrowedFd fd, uint64_t size_bytes) {
    CCO_ASSIGN_OR_RETURN(GpuMemory memory, driver->import_fd(device, fd, size_bytes));
    CCO_ASSIGN_OR_RETURN(area, map_area(*driver, device, memory));
    return absl::OkStatus();
  }

  absl::Status write(int device, uint64_t offset, const std::string& text) {
    CCO_ASSIGN_OR_RETURN(GpuContext * gpu, context(device));
    return gpu->copy_to_device(area->mapping.address() + offset, text.data(), text.size());
  }

  absl::StatusOr<std::string> read(int device, uint64_t offset, size_t size) {
    CCO_ASSIGN_OR_RETURN(GpuContext * gpu, context(device));
    std::string text(size, '\0');
    CCO_RETURN_IF_ERROR(gpu->copy_to_host(text.data(), area->mapping.address() + offset, size));
    return text;
  }

  absl::Status add(int device, uint64_t offset, uint64_t times) {
    CCO_ASSIGN_OR_RETURN(GpuContext * gpu, context(device));
    return add_ones(gpu, driver->name() == "host", area->mapping.address() + offset, times);
  }
};

// open KIND | uuid DEVICE | allocate DEVICE BYTES -> fd | import DEVICE BYTES + fd | write DEVICE
// OFFSET TEXT | read DEVICE OFFSET BYTES | add DEVICE OFFSET TIMES. The last four act on what was
// mapped last.
absl::StatusOr<std::string> perform(Peer& peer, const FdFrame& frame, UniqueFd* answer) {
  std::istringstream words(frame.payload);
  std::string verb;
  words >> verb;
  if (verb == "open") {
    std::string kind;
    words >> kind;
    CCO_ASSIGN_OR_RETURN(const DriverKind parsed, parse_driver_kind(kind));
    CCO_RETURN_IF_ERROR(peer.open(parsed));
    return std::string();
  }
  int device = 0;
  uint64_t number = 0;
  std::string text;
  words >> device >> number >> text;
  if (verb == "uuid") return peer.driver->devices().at(static_cast<size_t>(device)).uuid;
  if (verb == "allocate") {
    CCO_ASSIGN_OR_RETURN(*answer, peer.allocate(device, number));
    return std::string();
  }
  if (verb == "import") {
    CCO_RETURN_IF_ERROR(peer.import(device, frame.fd, number));
    return std::string();
  }
  if (verb == "write") {
    CCO_RETURN_IF_ERROR(peer.write(device, number, text));
    return std::string();
  }
  if (verb == "read") return peer.read(device, number, std::stoul(text));
  if (verb == "add") {
    CCO_RETURN_IF_ERROR(peer.add(device, number, std::stoull(text)));
    return std::string();
  }
  return absl::InvalidArgumentError("no such command: " + frame.payload);
}

}  // namespace

PeerProcess::PeerProcess(const PeerEnvironment& environment) {
  int pair[2];
  CCO_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
  socket_.reset(pair[0]);
  const UniqueFd theirs(pair[1]);
  std::vector<std::string>
      variables;  // Prepared before the fork: after it, only system calls are safe.
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> all;
  for (std::string& variable : variables)
    all.push_back(variable.data());  // The first of a name counts.
  for (char** variable = environ; *variable != nullptr; ++variable) all.push_back(*variable);
  all.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char argument[sizeof kPeerArgument];
  std::snprintf(argument, sizeof argument, "%s", kPeerArgument);
  char* arguments[] = {program, argument, nullptr};
  pid_ = ::fork();
  CCO_ASSERT(pid_ >= 0);
  if (pid_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool placed = theirs.get() == kPeerFd ? ::fcntl(kPeerFd, F_SETFD, 0) == 0
                                              : ::dup2(theirs.get(), kPeerFd) >= 0;
  if (placed) ::execve(program, arguments, all.data());
  ::_exit(127);
}

absl::StatusOr<std::string> PeerProcess::call(const std::string& command, const UniqueFd* send) {
  CCO_RETURN_IF_ERROR(
      send_frame(socket_, FdFrameType::kOffer, absl::StatusCode::kOk, command, send));
  CCO_RETURN_IF_ERROR(wait_readable(socket_, kPatience));
  CCO_ASSIGN_OR_RETURN(FdFrame frame, receive_frame(socket_));
  if (frame.code != absl::StatusCode::kOk) return absl::Status(frame.code, frame.payload);
  received_ = std::move(frame.fd);
  return frame.payload;
}

void PeerProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int run_peer() {
  const UniqueFd socket(kPeerFd);
  Peer peer;
  while (true) {
    absl::StatusOr<FdFrame> frame = receive_frame(socket);
    if (!frame.ok()) return 0;
    UniqueFd fd;
    const absl::StatusOr<std::string> result = perform(peer, *frame, &fd);
    const std::string text = result.ok() ? *result : std::string(result.status().message());
    const UniqueFd* attached = fd ? &fd : nullptr;
    if (!send_frame(socket, FdFrameType::kOffered, result.status().code(), text, attached).ok())
      return 1;
  }
}

}  // namespace cco
