// Starting, stopping and configuring the daemon: its sockets, its lock, its one instance.
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <fstream>
#include <string>

#include "client/base/fd_frame.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

constexpr int kUnavailable = 69, kBadConfiguration = 78;  // sysexits(3)

class SocketTest : public NodeTest {
 protected:
  const TempDir folder;

  std::string path(size_t bytes) const {
    const std::string tail = ".sock";
    return folder.path() + "/" + std::string(bytes - folder.path().size() - 1 - tail.size(), 'p') +
           tail;
  }
  void start_at(const std::string& socket_path, std::vector<std::string> wrapper = {}) {
    DaemonProcess::Options options;
    options.socket_path = socket_path;
    options.wrapper = std::move(wrapper);
    start(options);
  }
  static Ended serve_at(const std::string& socket_path,
                        const std::vector<std::string>& wrapper = {}) {
    return run_memd({"--driver", "host", "--socket", socket_path}, wrapper);
  }
  static UniqueFd listen_at(const std::string& socket_path, int type) {
    UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd.get(), 8), 0);
    return fd;
  }
};

::testing::AssertionResult says(const Ended& ended, int exit_code,
                                std::initializer_list<std::string> words) {
  if (ended.exit_code != exit_code) {
    return ::testing::AssertionFailure() << "exit code " << ended.exit_code << ": " << ended.output;
  }
  for (const std::string& word : words) {
    if (ended.output.find(word) == std::string::npos) {
      return ::testing::AssertionFailure() << "no \"" << word << "\" in: " << ended.output;
    }
  }
  return ::testing::AssertionSuccess();
}

// Goal    the longest path that fits works; one byte more is refused by number, by both sides.
// Method  the fd channel's path is three bytes longer than the configured one.
TEST_F(SocketTest, PathLength) {
  start_at(path(104));
  attach();
  EXPECT_TRUE(says(serve_at(path(105)), kBadConfiguration, {"108 bytes", "limit 107"}));
  EXPECT_TRUE(says(serve_at(path(200)), kBadConfiguration, {"200 bytes", "limit 107"}));
  Client client;
  EXPECT_TRUE(refused(Client::create({path(105).c_str(), 0}, &client), CCO_INVALID_ARGUMENT,
                      {"108 bytes", "limit 107"}));
  EXPECT_TRUE(refused(Client::create({"", 0}, &client), CCO_INVALID_ARGUMENT, {"empty"}));
}

// Goal    a folder that is missing or not ours to write in is named, with the reason.
// Method  a folder that does not exist; root's folder as user nobody; a file in the socket's place.
TEST_F(SocketTest, FolderCannotBeUsed) {
  EXPECT_TRUE(says(serve_at(folder.file("missing/memd.sock")), kUnavailable,
                   {folder.file("missing/memd.sock"), "No such file or directory", "exist"}));
  const std::string file = folder.file("file.sock");
  std::ofstream(file) << "precious";
  EXPECT_TRUE(says(serve_at(file), kUnavailable, {file, "is no socket"}));
  EXPECT_TRUE(std::ifstream(file).good());
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot become another user";
  EXPECT_TRUE(says(serve_at(folder.file("memd.sock"),
                            {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}),
                   kUnavailable, {folder.path(), "Permission denied", "may this user write"}));
}

// Goal    a socket that nobody listens on is replaced.
// Method  files of dead sockets in both places; and of a daemon that was killed, five times over.
TEST_F(SocketTest, StaleSocketIsReplaced) {
  const std::string socket_path = folder.file("memd.sock");
  listen_at(socket_path, SOCK_STREAM);
  listen_at(fd_socket_path(socket_path), SOCK_SEQPACKET);
  for (int round = 0; round < 5; ++round) {
    start_at(socket_path);
    attach();
    forget_daemon();
    daemon->kill();
  }
}

// Goal    a socket that somebody listens on is left alone, whoever it is.
// Method  a listener that is no daemon, in either place.
TEST_F(SocketTest, LiveSocketIsKept) {
  const std::string socket_path = folder.file("memd.sock");
  for (const bool rpc : {true, false}) {
    const std::string taken = rpc ? socket_path : fd_socket_path(socket_path);
    const int type = rpc ? SOCK_STREAM : SOCK_SEQPACKET;
    const UniqueFd listener = listen_at(taken, type);
    EXPECT_TRUE(says(serve_at(socket_path), kUnavailable, {"something listens on " + taken}));
    EXPECT_TRUE(connect_unix(taken, type).ok());
    ::unlink(taken.c_str());
  }
}

// Goal    a daemon that systemd starts listens on systemd's sockets: who connects while there is no
//         daemon is served by the next.
// Method  its environment by hand; a client that attaches between two daemons.
TEST_F(SocketTest, SystemdListens) {
  DaemonProcess::Options options;
  options.socket_path = folder.file("memd.sock");
  const UniqueFd rpc = listen_at(options.socket_path, SOCK_STREAM);
  const UniqueFd fds = listen_at(fd_socket_path(options.socket_path), SOCK_SEQPACKET);
  options.wrapper = {"sh", "-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""};
  options.environment = {{"LISTEN_FDS", "2"}, {"LISTEN_FDNAMES", "memd.socket:memd.socket"}};
  options.fds = {{rpc.get(), 3}, {fds.get(), 4}};
  start(options);
  attach();
  forget_daemon();
  EXPECT_EQ(daemon->stop(), 0) << daemon->log();
  Client early;
  std::thread attaches([&] {
    EXPECT_TRUE(succeeded(Client::create({options.socket_path.c_str(), 20000}, &early)));
  });
  pollfd waiting[] = {{rpc.get(), POLLIN, 0}, {fds.get(), POLLIN, 0}};
  EXPECT_GT(::poll(waiting, 2, static_cast<int>(patience().count())), 0);
  start(options);
  attaches.join();
  early = Client();
  forget_daemon();
  EXPECT_EQ(daemon->stop(), 0) << daemon->log();
}

// Goal    a second daemon on the same socket is refused, names the first, and does not disturb it.
// Method  start one, try another, use the first.
TEST_F(SocketTest, SecondDaemon) {
  const std::string socket_path = folder.file("memd.sock");
  start_at(socket_path);
  EXPECT_TRUE(says(serve_at(socket_path), kUnavailable,
                   {"another cco-memd (pid " + std::to_string(daemon->pid()) + ")"}));
  attach();
}

// Goal    the sockets are never open to more users than configured, not for a moment.
// Method  a daemon with umask 0; a thread looks at both files all the while.
TEST_F(SocketTest, NeverTooOpen) {
  const std::string socket_path = folder.file("memd.sock");
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, seen{0};
  std::thread looker([&] {
    while (!done) {
      for (const std::string& path : {socket_path, fd_socket_path(socket_path)}) {
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0) continue;
        ++seen;
        if ((info.st_mode & 0007) != 0) ++wrong;
      }
    }
  });
  start_at(socket_path, {"sh", "-c", "umask 0; exec \"$0\" \"$@\""});
  done = true;
  looker.join();
  EXPECT_GT(seen, 0);
  EXPECT_EQ(wrong, 0);
  for (const std::string& path : {socket_path, fd_socket_path(socket_path)}) {
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u);
  }
}

// Goal    a stopped daemon leaves with 0, takes its sockets with it, and ends calls in words.
// Method  SIGTERM while a rank waits at a barrier.
TEST_F(SocketTest, GracefulStop) {
  start_at(folder.file("memd.sock"));
  const Client client = attach();
  const std::vector<Group> groups = form_group(client, "job", 2);
  std::thread waits(
      [&] { EXPECT_TRUE(refused(groups[0].barrier(60000), CCO_UNAVAILABLE, {"stopping"})); });
  while (watch->pending().empty()) std::this_thread::yield();
  forget_daemon();
  EXPECT_EQ(daemon->stop(), 0);
  waits.join();
  EXPECT_NE(daemon->log().find("event=stopped"), std::string::npos);
  EXPECT_NE(::access(folder.file("memd.sock").c_str(), F_OK), 0);
  EXPECT_NE(::access(folder.file("memd-fd.sock").c_str(), F_OK), 0);
  Client late;
  EXPECT_TRUE(refused(Client::create({daemon->socket_path().c_str(), 0}, &late), CCO_UNAVAILABLE,
                      {"No such file", "Is cco-memd running"}));
}

// Goal    a daemon stops in time also while calls keep coming.
// Method  four threads attach and leave without a pause; SIGTERM in the middle; ten daemons.
TEST_F(SocketTest, StopUnderLoad) {
  for (int round = 0; round < 10 && !HasFailure(); ++round) {
    start_at(folder.file("memd.sock"));
    std::atomic<bool> done{false};
    std::atomic<int> attached{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        while (!done) {
          Client client;
          if (Client::create({daemon->socket_path().c_str(), 2000}, &client) == CCO_OK) ++attached;
        }
      });
    }
    while (attached < 8) std::this_thread::yield();
    forget_daemon();
    const Stopwatch time;
    EXPECT_EQ(daemon->stop(), 0) << daemon->log();
    EXPECT_LT(time.elapsed(), patient(std::chrono::milliseconds(5000)));
    done = true;
    for (std::thread& thread : threads) thread.join();
  }
}

// Goal    a configuration that is printed is the one that is read.
// Method  print, feed it back, print again; also with every field changed.
TEST_F(SocketTest, PrintedConfigurationIsTheSame) {
  const std::string file = folder.file("config");
  std::ofstream(file)
      << "socket_path: '/tmp/x.sock' driver: 'host' ticket_ms: 7 log_level: 'error'\n"
         "socket_mode: '0600' slab_bytes: 65536 control_bytes: 131072\n"
         "host { device_count: 3 bytes_per_device: 1048576 }\n"
         "default_timeout_ms: 9 limits { groups: 2 bytes_per_gpu: 5 sessions: 1 }";
  const Ended first = run_memd({"--config", file, "--print-config"});
  EXPECT_TRUE(says(first, 0, {"/tmp/x.sock", "ticket_ms: 7", "0600", "bytes_per_gpu: 5"}));
  std::ofstream(file) << first.output;
  EXPECT_EQ(run_memd({"--config", file, "--print-config"}).output, first.output);
  EXPECT_TRUE(says(run_memd({"--config", file, "--check-config"}), 0, {"ok"}));
  const Ended overridden = run_memd(
      {"--config", file, "--socket", "/tmp/y.sock", "--log-level", "debug", "--print-config"});
  EXPECT_TRUE(says(overridden, 0, {"/tmp/y.sock", "debug", "ticket_ms: 7"}));
}

// Goal    what is malformed, unknown or out of range is refused, with file, place and reason.
// Method  one mistake each.
TEST_F(SocketTest, WrongConfiguration) {
  const std::string file = folder.file("config");
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"ticket_ms 7", "Expected"},
           {"tickets: 7", "tickets"},
           {"ticket_ms: -1", "integer"},
           {"ticket_ms: 60001", "60001"},
           {"ticket_ms: 18446744073709551616", "out of range"},
           {"slab_bytes: 1GiB", "number"},
           {"slab_bytes: '4GiB'", "integer"},
           {"slab_bytes: 1e9", "integer"},
           {"socket_mode: '888'", "888"},
           {"driver: 'opencl'", "opencl"},
           {"host { device_count: 0 }", "device_count"},
           {"host { device_count: 65 }", "65"},
           {"limits { sessions: 0 }", "sessions"},
           {"limits { ranks_per_group: 1025 }", "1025"},
           {"default_timeout_ms: 3600001", "3600001"},
           {"control_bytes: 1", "control_bytes"},
           {"socket_path: ''", "empty"}}) {
    std::ofstream(file) << text;
    EXPECT_TRUE(
        says(run_memd({"--config", file, "--check-config"}), kBadConfiguration, {file, word}))
        << text;
  }
  EXPECT_TRUE(says(run_memd({"--config", folder.file("none"), "--check-config"}), kBadConfiguration,
                   {folder.file("none"), "No such file"}));
  EXPECT_TRUE(says(run_memd({"--log-level", "loud", "--socket", folder.file("memd.sock")}),
                   kBadConfiguration, {"'loud'", "debug, info, warning or error"}));
  EXPECT_TRUE(says(run_memd({"--nonsense"}), 64, {"--nonsense"}));
}

// Goal    a GPU library that is not there, or a Unix group, is named when it is asked for.
// Method  the cuda driver with a library that does not exist; groups that do not exist.
TEST_F(SocketTest, WhatIsNotThere) {
  const Ended cuda = run_memd({"--driver", "cuda", "--socket", folder.file("memd.sock")},
                              {"env", "CCO_CUDA_LIBRARY=/nonexistent/libcuda.so"});
  EXPECT_TRUE(says(cuda, kUnavailable, {"/nonexistent/libcuda.so"}));
  const std::string file = folder.file("config");
  std::ofstream(file) << "socket_path: '" << folder.file("memd.sock")
                      << "' driver: 'host' operator_group: 'no-such-group'";
  EXPECT_TRUE(says(run_memd({"--config", file}), kUnavailable, {"'no-such-group'"}));
}

}  // namespace
}  // namespace cco::test
