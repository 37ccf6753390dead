#include "tests/unit/daemon/vault_actor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/base/fd_frame.h"
#include "client/base/status_macros.h"
#include "daemon/sys/given_fds.h"
#include "daemon/sys/keeper_vault.h"
#include "daemon/sys/systemd_vault.h"
#include "tests/support/patience.h"

namespace cco::test {
namespace {

using memd::KeeperVault;
using memd::SystemdVault;

constexpr FdFrameType kCommand = FdFrameType::kOffer, kAnswer = FdFrameType::kOffered;
constexpr char kRole[] = "vault-actor";

std::chrono::milliseconds parse_ms(const std::string& text) {
  int64_t value = 0;
  CCO_ASSERT(absl::SimpleAtoi(text, &value));
  return std::chrono::milliseconds(value);
}

// The other side of VaultActor. Its descriptor 0 is the channel; nothing else is open, so that what
// it is given gets the numbers 3, 4, ... as from systemd.
class Stage {
 public:
  Stage(const std::string& state_dir, KeeperVault::Options options)
      : state_dir_(state_dir), options_(std::move(options)) {}

  void run() {
    for (;;) {
      absl::StatusOr<FdFrame> frame = receive_frame(channel_);
      if (!frame.ok()) return;
      const std::pair<std::string, std::string> command =
          absl::StrSplit(frame->payload, absl::MaxSplits(' ', 1));
      if (command.first == "give") {
        given_.push_back(command.second);
        CCO_ASSERT(frame->fd.release() == 2 + static_cast<int>(given_.size()));
        continue;
      }
      answer(act(command.first, command.second, std::move(frame->fd)));
    }
  }

 private:
  absl::Status act(const std::string& verb, const std::string& name, UniqueFd fd) {
    if (verb == "open") return open();
    if (verb == "put") return put(name, std::move(fd));
    if (verb == "remove") return remove(name);
    if (verb == "take_over") return take_over();
    if (verb == "flood") return flood(name);
    if (verb == "hold") return vault_->hold_for(parse_ms(name));
    if (verb == "forget")
      return mine_.erase(name) == 1 ? absl::OkStatus() : absl::NotFoundError("");
    if (verb == "broken") return wait_readable(keeper_->broken(), patience());
    if (verb == "recover") return recover();
    if (verb == "sockets") {
      for (size_t i = 0; i < sockets_.size(); ++i) say("one");
      return absl::OkStatus();
    }
    return absl::UnimplementedError(verb);
  }

  absl::Status open() {
    if (!state_dir_.empty()) {
      CCO_ASSIGN_OR_RETURN(keeper_, KeeperVault::open(options_));
      vault_ = keeper_.get();
      return absl::OkStatus();
    }
    // As systemd does between fork and exec.
    ::setenv("LISTEN_PID", absl::StrCat(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", absl::StrCat(given_.size()).c_str(), 1);
    ::setenv("LISTEN_FDNAMES", absl::StrJoin(given_, ":").c_str(), 1);
    CCO_ASSIGN_OR_RETURN(memd::GivenFds given, memd::take_given_fds());
    sockets_ = std::move(given.sockets);
    CCO_ASSIGN_OR_RETURN(systemd_, SystemdVault::open(std::move(given.kept)));
    vault_ = systemd_.get();
    return absl::OkStatus();
  }

  absl::Status put(const std::string& name, UniqueFd fd) {
    CCO_RETURN_IF_ERROR(vault_->put(name, fd));
    mine_[name] = std::move(fd);
    return absl::OkStatus();
  }

  absl::Status remove(const std::string& name) {
    CCO_RETURN_IF_ERROR(vault_->remove(name));
    mine_.erase(name);
    return absl::OkStatus();
  }

  absl::Status take_over() {
    CCO_ASSIGN_OR_RETURN(mine_, vault_->take_over());
    for (const auto& [name, fd] : mine_) {
      CCO_RETURN_IF_ERROR(send_frame(channel_, kCommand, name, fd));
    }
    return absl::OkStatus();
  }

  absl::Status flood(const std::string& arguments) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(arguments, ' ');
    int count = 0;
    CCO_ASSERT(absl::SimpleAtoi(parts.second, &count));
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat(parts.first, "-", i);
      CCO_RETURN_IF_ERROR(put(name, make_memfd(name)));
      say(name);
    }
    return absl::OkStatus();
  }

  absl::Status recover() {
    std::map<std::string, BorrowedFd> all;
    for (const auto& [name, fd] : mine_) all.emplace(name, fd);
    return keeper_->recover(all);
  }

  void say(const std::string& text) {
    CCO_ASSERT(send_frame(channel_, kCommand, absl::StatusCode::kOk, text).ok());
  }
  void answer(const absl::Status& status) {
    (void)send_frame(channel_, kAnswer, status.code(), std::string(status.message()));
  }

  const UniqueFd channel_{0};
  std::string state_dir_;
  KeeperVault::Options options_;
  std::vector<std::string> given_;
  std::unique_ptr<KeeperVault> keeper_;
  std::unique_ptr<SystemdVault> systemd_;
  std::vector<UniqueFd> sockets_;
  memd::FdVault* vault_ = nullptr;
  std::map<std::string, UniqueFd> mine_;
};

}  // namespace

bool run_as_vault_actor(int argc, char** argv) {
  if (argc != 8 || std::string(argv[1]) != kRole) return false;
  CCO_ASSERT(::close_range(3, ~0U, 0) == 0);
  uint64_t limit = 0;
  CCO_ASSERT(absl::SimpleAtoi(argv[7], &limit));
  if (limit != 0) {
    const rlimit both{limit, limit};
    CCO_ASSERT(::setrlimit(RLIMIT_NOFILE, &both) == 0);
  }
  Stage stage(argv[2], {argv[2], argv[3], parse_ms(argv[4]), parse_ms(argv[5]), parse_ms(argv[5]),
                        parse_ms(argv[6])});
  stage.run();
  return true;
}

VaultActor::VaultActor(const Options& options) {
  int ends[2];
  CCO_ASSERT(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
  channel_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  Process::Options process;
  process.arguments = {"/proc/self/exe",
                       kRole,
                       options.state_dir,
                       options.keeper_program,
                       absl::StrCat(options.linger.count()),
                       absl::StrCat(patient(options.answer_timeout).count()),
                       absl::StrCat(options.send_timeout.count()),
                       absl::StrCat(options.descriptor_limit)};
  process.environment = options.environment;
  process.fds = {{theirs.get(), 0}};
  process_ = std::make_unique<Process>(process);
}

void VaultActor::send(const std::string& command, const BorrowedFd* fd) {
  const absl::Status sent = fd == nullptr
                                ? send_frame(channel_, kCommand, absl::StatusCode::kOk, command)
                                : send_frame(channel_, kCommand, command, *fd);
  CCO_ASSERT(sent.ok());
}

absl::Status VaultActor::ask(const std::string& command, const BorrowedFd* fd) {
  send(command, fd);
  CCO_RETURN_IF_ERROR(wait_readable(channel_, patience() * 2));
  CCO_ASSIGN_OR_RETURN(const FdFrame answer, receive_frame(channel_));
  return absl::Status(answer.code, answer.payload);
}

void VaultActor::give(const std::string& name, BorrowedFd fd) { send("give " + name, &fd); }
void VaultActor::begin_open() { send("open"); }
absl::Status VaultActor::end_open() {
  CCO_RETURN_IF_ERROR(wait_readable(channel_, patience() * 2));
  CCO_ASSIGN_OR_RETURN(const FdFrame answer, receive_frame(channel_));
  return absl::Status(answer.code, answer.payload);
}
absl::Status VaultActor::open() { return ask("open"); }

absl::StatusOr<std::map<std::string, UniqueFd>> VaultActor::take_over() {
  send("take_over");
  std::map<std::string, UniqueFd> kept;
  for (;;) {
    CCO_RETURN_IF_ERROR(wait_readable(channel_, patience() * 2));
    CCO_ASSIGN_OR_RETURN(FdFrame frame, receive_frame(channel_));
    if (frame.type == kAnswer && frame.code == absl::StatusCode::kOk) return kept;
    if (frame.type == kAnswer) return absl::Status(frame.code, frame.payload);
    kept.emplace(frame.payload, std::move(frame.fd));
  }
}

absl::Status VaultActor::put(const std::string& name, BorrowedFd fd) {
  return ask("put " + name, &fd);
}
absl::Status VaultActor::remove(const std::string& name) { return ask("remove " + name); }
absl::Status VaultActor::forget(const std::string& name) { return ask("forget " + name); }
absl::Status VaultActor::hold_for(std::chrono::milliseconds keep) {
  return ask(absl::StrCat("hold ", keep.count()));
}
absl::Status VaultActor::wait_until_broken() { return ask("broken"); }
absl::Status VaultActor::recover() { return ask("recover"); }

int VaultActor::socket_count() {
  send("sockets");
  int count = 0;
  while (next_of_flood().ok()) ++count;
  return count;
}

void VaultActor::begin_flood(const std::string& prefix, int count) {
  send(absl::StrCat("flood ", prefix, " ", count));
}

absl::StatusOr<std::string> VaultActor::next_of_flood() {
  CCO_RETURN_IF_ERROR(wait_readable(channel_, patience() * 2));
  const absl::StatusOr<FdFrame> frame = receive_frame(channel_);
  if (!frame.ok()) return absl::NotFoundError("it is dead");
  if (frame->type == kCommand) return frame->payload;
  return frame->code == absl::StatusCode::kOk ? absl::NotFoundError("that was all")
                                              : absl::Status(frame->code, frame->payload);
}

void VaultActor::kill() {
  process_->signal(SIGKILL);
  CCO_ASSERT(process_->wait(patience()).has_value());
}

UniqueFd make_memfd(const std::string& text) {
  UniqueFd fd(::memfd_create("cco-vault-test", MFD_CLOEXEC));
  CCO_ASSERT(fd &&
             ::pwrite(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  return fd;
}

std::string read_text(BorrowedFd fd) {
  char text[256];
  const ssize_t size = ::pread(fd.get(), text, sizeof text, 0);
  return size < 0 ? "" : std::string(text, size);
}

bool is_same_file(BorrowedFd a, BorrowedFd b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a.get(), &first) == 0 && ::fstat(b.get(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace cco::test
