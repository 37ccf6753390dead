// What stands between the core and Linux.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cco/device/abi.h"
#include "client/base/fd_frame.h"
#include "daemon/config.h"
#include "daemon/sys/descriptors.h"
#include "daemon/sys/event_loop.h"
#include "daemon/sys/gpu_workers.h"
#include "daemon/sys/listener.h"
#include "daemon/sys/log.h"
#include "daemon/sys/memfd_notice_board.h"
#include "daemon/sys/peer.h"
#include "device/runtime/host_driver.h"
#include "tests/support/stuck_gpu_driver.h"

namespace cco::memd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string text(const absl::Status& status) { return std::string(status.message()); }

class TemporaryDirectory {
 public:
  TemporaryDirectory() { EXPECT_NE(::mkdtemp(path_), nullptr); }
  ~TemporaryDirectory() { EXPECT_EQ(::rmdir(path_), 0) << "left behind in " << path_; }
  std::string operator/(const std::string& name) const { return absl::StrCat(path_, "/", name); }

 private:
  char path_[32] = "/tmp/cco-sys-XXXXXX";
};

// Goal    tasks run in order, timers by their time, and a cancelled one never.
TEST(EventLoop, RunsTasksAndTimersInOrder) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::create();
  std::string order;
  loop->call_at(loop->now() + Milliseconds(20), [&] {
    order += "c";
    loop->quit();
  });
  loop->call_at(loop->now() + Milliseconds(10), [&] { order += "b"; });
  loop->cancel(loop->call_at(loop->now() + Milliseconds(5), [&] { order += "x"; }));
  loop->post([&] { order += "a"; });
  loop->run();
  EXPECT_EQ(order, "abc");
}

// Goal    what several threads post all runs, on the loop's thread, in each thread's order.
TEST(EventLoop, TakesTasksFromManyThreads) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::create();
  constexpr int kThreads = 4, kTasks = 1000;
  std::vector<int> last(kThreads, -1);
  int done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTasks; ++i) {
        loop->post([&, t, i] {
          EXPECT_EQ(last[t], i - 1);
          last[t] = i;
          if (++done == kThreads * kTasks) loop->quit();
        });
      }
    });
  }
  loop->run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(done, kThreads * kTasks);
}

// Goal    a watch may remove itself while it runs.
TEST(EventLoop, WatchMayRemoveItself) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::create();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]), writer(ends[1]);
  int calls = 0;
  ASSERT_TRUE(loop->watch(reader,
                          [&] {
                            ++calls;
                            loop->unwatch(reader);
                            loop->quit();
                          })
                  .ok());
  ASSERT_EQ(::write(writer.get(), "x", 1), 1);
  loop->run();
  EXPECT_EQ(calls, 1);
}

// Goal    what was ready on a closed fd is not told to the watch of a new fd with the same number.
// Method  two watches are ready at once; whichever runs first closes the other's fd, and watches a
//         silent one in its place.
TEST(EventLoop, NewFdIsNotToldOfAnOldOnesEvent) {
  const std::unique_ptr<EventLoop> loop = *EventLoop::create();
  int silent_ends[2];
  ASSERT_EQ(::pipe2(silent_ends, O_CLOEXEC), 0);
  const UniqueFd silent(silent_ends[0]), silent_writer(silent_ends[1]);
  UniqueFd readers[2], writers[2];
  int ready_calls = 0, silent_calls = 0;
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    readers[i].reset(ends[0]);
    writers[i].reset(ends[1]);
    ASSERT_EQ(::write(ends[1], "x", 1), 1);
    const absl::Status watched = loop->watch(readers[i], [&, i] {
      ++ready_calls;
      const UniqueFd& other = readers[1 - i];
      loop->unwatch(readers[i]);
      loop->unwatch(other);
      ASSERT_EQ(::dup3(silent.get(), other.get(), O_CLOEXEC), other.get());
      ASSERT_TRUE(loop->watch(other, [&] { ++silent_calls; }).ok());
      loop->quit();
    });
    ASSERT_TRUE(watched.ok()) << watched;
  }
  loop->run();
  EXPECT_EQ(ready_calls, 1);
  EXPECT_EQ(silent_calls, 0);
}

// Goal    a GPU whose driver hangs delays no other GPU, is seen to be busy, and is waited for only
//         so long.
TEST(GpuWorkers, StuckGpuDelaysNobodyElse) {
  const std::unique_ptr<HostDriver> host = *HostDriver::create(2, 1 << 20);
  StuckGpuDriver driver(*host, 0);
  const std::unique_ptr<EventLoop> loop = *EventLoop::create();
  GpuWorkers workers(driver, {}, *loop);
  std::string order;
  workers.allocate(0, 64 << 10, MemoryKind::kData, [&](absl::StatusOr<SlabMemory> memory) {
    EXPECT_TRUE(memory.ok()) << memory.status();
    order += "stuck ";
    loop->quit();
  });
  driver.wait_until_entered();
  workers.allocate(1, 64 << 10, MemoryKind::kData, [&](absl::StatusOr<SlabMemory> memory) {
    EXPECT_TRUE(memory.ok()) << memory.status();
    order += "free ";
    EXPECT_GT(workers.busy(0).count(), 0);
    EXPECT_FALSE(workers.drain(Milliseconds(1)));
    driver.let_through();
  });
  loop->run();
  EXPECT_EQ(order, "free stuck ");
  EXPECT_TRUE(workers.drain(Milliseconds(10'000)));
}

// Goal    SO_PEERPIDFD's three behaviours are told apart.
// Method  a real socket pair, with that one option answered as each kind of kernel does.
TEST(Peer, PidfdOnEveryKernel) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]), other(ends[1]);
  const auto with = [&](int error) {
    return read_peer(mine, -1, [error](int fd, int level, int option, void* value, unsigned* size) {
      if (option != 77) return ::getsockopt(fd, level, option, value, size);
      errno = error;
      return -1;
    });
  };
  const absl::StatusOr<Peer> old_kernel = with(ENOPROTOOPT);
  ASSERT_TRUE(old_kernel.ok()) << old_kernel.status();
  EXPECT_EQ(old_kernel->who.pid, ::getpid());
  EXPECT_TRUE(old_kernel->pidfd) << "pidfd_open must have stood in";
  EXPECT_EQ(with(ESRCH).status().code(), absl::StatusCode::kUnavailable) << "a reaped peer is gone";
  EXPECT_EQ(with(EMFILE).status().code(), absl::StatusCode::kResourceExhausted);
  const absl::StatusOr<Peer> real = read_peer(mine, -1);
  ASSERT_TRUE(real.ok());
  EXPECT_EQ(real->who.uid, ::geteuid());
  EXPECT_TRUE(real->who.is_operator) << "the daemon's own user";
}

// Goal    a pidfd tells of the end of a peer that died before it was looked at.
TEST(Peer, DeadPeerIsSeen) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd mine(ends[0]);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  UniqueFd pidfd(static_cast<int>(::syscall(434 /* pidfd_open */, child, 0)));
  pollfd exited{pidfd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&exited, 1, 10'000), 1);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const absl::StatusOr<Peer> peer =
      read_peer(mine, -1, [&](int fd, int level, int option, void* value, unsigned* size) {
        if (option == SO_PEERCRED) {
          *static_cast<ucred*>(value) = {child, 0, 0};
          return 0;
        }
        if (option == 77) {
          errno = ENOPROTOOPT;
          return -1;
        }
        return ::getsockopt(fd, level, option, value, size);
      });
  EXPECT_EQ(peer.status().code(), absl::StatusCode::kUnavailable)
      << "its pid could be anybody's by now";
}

// Goal    a live daemon's sockets are never taken, a dead one's always.
TEST(Listeners, ReplacesStaleSocketsAndNeverLiveOnes) {
  TemporaryDirectory directory;
  const ListenerOptions options{directory / "memd.sock", 0600, -1};
  {
    const absl::StatusOr<Listeners> first = Listeners::create(options);
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::StatusOr<Listeners> second = Listeners::create(options);
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(text(second.status()), HasSubstr(absl::StrCat("pid ", ::getpid())));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::StatusOr<Listeners> killed = Listeners::create(options);
    ::_exit(killed.ok() ? 0 : 1);  // Without a destructor: as after SIGKILL.
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  struct stat info {};
  ASSERT_EQ(::stat(options.socket_path.c_str(), &info), 0);
  const absl::StatusOr<Listeners> replaced = Listeners::create(options);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  ASSERT_EQ(::stat(options.socket_path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_TRUE(connect_unix(options.socket_path, SOCK_STREAM).ok());
}

// Goal    no socket is ever open to others, whatever the umask.
TEST(Listeners, ModeIsTightFromBirth) {
  TemporaryDirectory directory;
  const mode_t before = ::umask(0);
  const absl::StatusOr<Listeners> listeners =
      Listeners::create({directory / "memd.sock", 0660, -1});
  const mode_t after = ::umask(before);
  ASSERT_TRUE(listeners.ok());
  EXPECT_EQ(after, 0u) << "the process's umask is put back";
  for (const char* name : {"memd.sock", "memd-fd.sock"}) {
    struct stat info {};
    ASSERT_EQ(::stat((directory / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u) << name;
  }
}

// Goal    sockets that systemd listens on are taken by type and path, and stay when the daemon
//         goes; the refusal of one too many, one too few or another one says what the socket unit
//         needs.
TEST(Listeners, AdoptsWhatSystemdListensOn) {
  TemporaryDirectory directory;
  const ListenerOptions options{directory / "memd.sock", 0600, -1};
  const std::string fd_path = directory / "memd-fd.sock", other_path = directory / "other.sock";
  const UniqueFd rpc = *listen_on(options.socket_path, SOCK_STREAM, options);
  const UniqueFd fds = *listen_on(fd_path, SOCK_SEQPACKET, options);
  const UniqueFd other = *listen_on(other_path, SOCK_STREAM, options);
  const auto adopt = [&](std::initializer_list<const UniqueFd*> given) {
    std::vector<UniqueFd> sockets;
    for (const UniqueFd* fd : given) sockets.emplace_back(::dup(fd->get()));
    return Listeners::adopt(options.socket_path, std::move(sockets));
  };
  ::fcntl(rpc.get(), F_SETFL, 0);  // As systemd leaves it.
  {
    const absl::StatusOr<Listeners> both = adopt({&fds, &rpc});
    ASSERT_TRUE(both.ok()) << both.status();
    const absl::StatusOr<UniqueFd> client = connect_unix(options.socket_path, SOCK_STREAM);
    EXPECT_TRUE(UniqueFd(::accept(both->rpc().get(), nullptr, nullptr)));
    EXPECT_EQ(::accept(both->rpc().get(), nullptr, nullptr), -1) << "it does not block";
  }
  EXPECT_TRUE(connect_unix(fd_path, SOCK_SEQPACKET).ok()) << "they are systemd's";
  const auto needs = AllOf(HasSubstr("ListenStream=" + options.socket_path),
                           HasSubstr("ListenSequentialPacket=" + fd_path));
  EXPECT_THAT(text(adopt({&rpc}).status()), AllOf(HasSubstr("memd.sock alone"), needs));
  EXPECT_THAT(text(adopt({&fds}).status()), AllOf(HasSubstr("memd-fd.sock alone"), needs));
  EXPECT_THAT(text(adopt({&rpc, &fds, &rpc}).status()), AllOf(HasSubstr("a socket of"), needs));
  EXPECT_THAT(text(adopt({&rpc, &other}).status()), AllOf(HasSubstr(other_path), needs));
  for (const std::string& path : {options.socket_path, fd_path, other_path}) {
    EXPECT_EQ(::unlink(path.c_str()), 0);
  }
}

// Goal    paths that cannot be bound are refused with the cause.
TEST(Listeners, BadPathsSayWhy) {
  const auto create = [](const std::string& path) {
    return text(Listeners::create({path, 0600, -1}).status());
  };
  const std::string longest = absl::StrCat("/tmp/", std::string(95, 'x'), ".sock");
  EXPECT_THAT(create(longest), AllOf(HasSubstr("108 bytes"), HasSubstr("limit 107")));
  EXPECT_THAT(create("/tmp/no-such-directory-of-cco/memd.sock"),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(create(""), HasSubstr("empty"));
  EXPECT_THAT(create(std::string("\0abstract", 9)), HasSubstr("abstract"));
  TemporaryDirectory directory;
  const std::string path = directory / "memd.sock";
  {
    const UniqueFd file(::open(path.c_str(), O_CREAT | O_CLOEXEC | O_WRONLY, 0600));
    EXPECT_THAT(create(path), HasSubstr("is no socket"));
  }
  ::unlink(path.c_str());
}

// Goal    a member can map its notice page and read it, and cannot change its size under the
//         daemon.
TEST(NoticeBoard, PagesAreSealed) {
  MemfdNoticeBoard board;
  const std::unique_ptr<NoticePage> page = *board.create_page(4);
  EXPECT_EQ(::ftruncate(page->fd().get(), 0), -1);
  EXPECT_EQ(errno, EPERM);
  const UniqueMapping mapping(
      {::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, page->fd().get(), 0), 4096});
  const auto* notice = static_cast<const cco_notice_page*>(mapping.get().address);
  EXPECT_EQ(notice->abort_word, 0u);
  EXPECT_EQ(notice->world_size, 4u);
  page->set_rank_out(70, 3);
  page->set_abort(CCO_ABORT_WORD(CCO_ABORT_PEER_LOST, 70));
  EXPECT_EQ(notice->lost_ranks[1], uint64_t{1} << 6);
  EXPECT_EQ(notice->epoch, 3u);
  EXPECT_EQ(CCO_ABORT_RANK(notice->abort_word), 70u);
  page->set_condition(CCO_CONDITION_DRAINING | CCO_CONDITION_MEMORY_PRESSURE, true);
  page->set_condition(CCO_CONDITION_DRAINING, false);
  EXPECT_EQ(notice->conditions, CCO_CONDITION_MEMORY_PRESSURE);
}

// Goal    the configuration that is printed is the one that is read, and every default is in range.
TEST(Config, PrintsWhatItReads) {
  const absl::StatusOr<Config> first =
      parse_config("driver: \"host\" limits { groups: 7 }", "test");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->limits.groups, 7u);
  const std::string printed = print_config(*first);
  const absl::StatusOr<Config> second = parse_config(printed, "printed");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(print_config(*second), printed);
}

// Goal    what is malformed, unknown or out of range is refused, with its place and its value.
TEST(Config, RefusesWithPlaceAndValue) {
  const auto error = [](const std::string& text_of) {
    return text(parse_config(text_of, "file").status());
  };
  EXPECT_THAT(error("socket_path: \"a\"\nsocket_patch: 1"),
              AllOf(StartsWith("file:2:"), HasSubstr("socket_patch")));
  EXPECT_THAT(error("limits { groups: }"), StartsWith("file:1:"));
  EXPECT_THAT(error("limits { groups: 0 }"), HasSubstr("limits.groups is 0"));
  EXPECT_THAT(error("limits { ranks_per_group: 1025 }"), HasSubstr("1 to 1024"));
  EXPECT_THAT(error("driver: \"gpu\""), HasSubstr("gpu"));
  EXPECT_THAT(error("socket_mode: \"888\""), HasSubstr("octal"));
  EXPECT_THAT(error("socket_mode: \"7777\""), HasSubstr("octal"));
  EXPECT_THAT(error("control_bytes: 1"), HasSubstr("control_bytes is 1"));
  EXPECT_THAT(error("ticket_ms: 60001"), HasSubstr("60000"));
  EXPECT_THAT(error("slab_bytes: 18446744073709551616"), StartsWith("file:1:"));
  EXPECT_THAT(error(absl::StrCat("socket_path: \"/", std::string(120, 'x'), "\"")),
              HasSubstr("limit 107"));
  EXPECT_EQ(load_config("/no/such/file").status().code(), absl::StatusCode::kNotFound);
}

// Goal    what is open is counted, without what counting takes.
TEST(Descriptors, AreCounted) {
  const uint32_t before = open_descriptors();
  EXPECT_GE(before, 3u);
  std::vector<UniqueFd> more;
  for (int i = 0; i < 40; ++i) more.emplace_back(::memfd_create("more", MFD_CLOEXEC));
  EXPECT_EQ(open_descriptors(), before + 40);
  more.clear();
  EXPECT_EQ(open_descriptors(), before);
  const std::filesystem::directory_iterator listed("/proc/self/fd");
  const auto count = std::distance(begin(listed), end(listed));  // Its own included.
  EXPECT_EQ(open_descriptors(), count) << "while the list is read";
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Goal    what must be on record is, whatever the level; nobody fills the log with what he is
//         refused, nor hides by it what others are; and how often it was is told.
// Method  a log at each level; a thousand refusals of each of two users among what else there is,
//         then more users than are told apart.
TEST(Log, KeepsWhatMustBeOnRecord) {
  for (const char* const log_level : {"debug", "info", "warning", "error"}) {
    ::testing::internal::CaptureStderr();
    {
      const auto log = open_log(log_level);
      ASSERT_TRUE(log.ok()) << log.status();
      for (int i = 0; i < 1000; ++i) {
        (*log)->record_refusal(Severity::kNotice, "audit", "uid=1", "uid=1 result=NOT_FOUND");
        (*log)->record_refusal(Severity::kNotice, "audit", "uid=2", "uid=2 result=NOT_FOUND");
        (*log)->record_refusal(Severity::kError, "client_refused", "uid=1", "reason=\"many\"");
      }
      (*log)->record(Severity::kNotice, "audit", "uid=0 result=OK");
      for (int i = 0; i < 5000; ++i) {
        (*log)->record_refusal(Severity::kNotice, "audit", absl::StrCat("uid=", 100 + i), "flood");
      }
    }
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(count_of(text, "<5>event=audit uid=0 result=OK\n"), 1u) << log_level;
    for (const char* const uid : {"uid=1", "uid=2"}) {
      const std::string of = absl::StrCat("<5>event=audit of=\"", uid, "\" more_like_these=995\n");
      EXPECT_EQ(count_of(text, absl::StrCat("<5>event=audit ", uid, " result=NOT_FOUND\n")), 5u);
      EXPECT_EQ(count_of(text, of), 1u) << log_level;
    }
    EXPECT_EQ(count_of(text, "<3>event=client_refused reason=\"many\"\n"), 5u);
    EXPECT_EQ(count_of(text, "of=\"uid=1\" more_like_these=995"), 2u) << "for each event";
    EXPECT_EQ(count_of(text, "of=\"others\" more_like_these="), 1u);
    EXPECT_LT(count_of(text, "\n"), 1100u);
  }
}

}  // namespace
}  // namespace cco::memd
