// What a forked child may do. A test of its own process: children inherit what the process did
// before.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "cco/client.hpp"
#include "tests/unit/client/fake_daemon.h"

namespace cco {
namespace {

// Runs `body` in a child; its result is the exit code. A child that hangs is ended by SIGALRM.
template <typename Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// By name: a descriptor that another thread opened is that thread's to touch.
char count_sockets() {
  char count = 0;
  for (int fd = 0; fd < 256; ++fd) {
    const std::string name = "/proc/self/fd/" + std::to_string(fd);
    struct stat facts {};
    if (::stat(name.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode)) ++count;
  }
  return count;
}

cco_status join(const Client& client, Group* group) {
  Group::Options options;
  options.rank = 0;
  options.size = 1;
  options.device = 0;
  options.name = "g";
  return Group::create(client, options, group);
}

// Goal    after a fork the child's calls are refused and its destroys do nothing, while the parent
//         goes on undisturbed.
// Method  fork with a group open; in the child try everything, then exit through static destructors
//         as well.
TEST(Fork, ChildIsRefusedAndParentGoesOn) {
  FakeDaemon daemon;
  Client client;
  ASSERT_EQ(Client::create({daemon.socket_path().c_str()}, &client), CCO_OK) << cco_error_message();
  Group group;
  ASSERT_EQ(join(client, &group), CCO_OK) << cco_error_message();

  EXPECT_EQ(in_child([&] {
              if (group.check() != CCO_FAILED_PRECONDITION) return 1;
              if (std::strstr(cco_error_message(), "forked") == nullptr) return 2;
              if (group.barrier() != CCO_FAILED_PRECONDITION) return 3;
              Client own;
              if (Client::create({daemon.socket_path().c_str()}, &own) != CCO_FAILED_PRECONDITION)
                return 4;
              cco_unique_id id;
              if (cco_unique_id_create(&id) != CCO_OK) return 5;
              cco_group_destroy(group.get());
              cco_client_destroy(client.get());
              return 0;
            }),
            0);
  EXPECT_EQ(group.check(), CCO_OK) << cco_error_message();
  EXPECT_EQ(group.barrier(), CCO_OK) << cco_error_message();
  EXPECT_EQ(daemon.requests<v1::LeaveGroupRequest>().size(), 0u);
}

// Goal    a child that lives on does not keep the parent's session alive.
// Method  count the child's sockets; then the parent ends its session while the child waits on a
//         pipe, and the daemon must see the end.
TEST(Fork, ChildHoldsNoSocket) {
  FakeDaemon daemon;
  Client client;
  ASSERT_EQ(Client::create({daemon.socket_path().c_str()}, &client), CCO_OK) << cco_error_message();
  int ready[2];
  int finish[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(finish), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(finish[1]);
    char byte = count_sockets();
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(finish[0], &byte, 1);
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, count_sockets() - 2) << "RPC socket and fd channel";
  EXPECT_EQ(daemon.fd_connection_count(), 1u);
  client = Client();
  EXPECT_TRUE(daemon.wait_for_disconnect(std::chrono::seconds(10)));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0)
      << "the child ended early, so this proves nothing";
  ::close(finish[1]);
  ::waitpid(child, nullptr, 0);
}

// Goal    the same for a session that has come back: its sockets are not those it began with.
TEST(Fork, ChildHoldsNoSocketOfAResumedSession) {
  FakeDaemon daemon;
  daemon.resumable = true;
  Client client;
  ASSERT_EQ(Client::create({daemon.socket_path().c_str()}, &client), CCO_OK) << cco_error_message();
  daemon.die();
  daemon.come_back();
  Group group;
  ASSERT_EQ(join(client, &group), CCO_OK) << cco_error_message();
  EXPECT_EQ(daemon.resume_count(), 1);
  int finish[2];
  ASSERT_EQ(::pipe(finish), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(finish[1]);
    char byte = 0;
    (void)!::read(finish[0], &byte, 1);
    ::_exit(0);
  }
  group = Group();
  client = Client();
  EXPECT_TRUE(daemon.wait_for_disconnect(std::chrono::seconds(10)));
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0)
      << "the child ended early, so this proves nothing";
  ::close(finish[1]);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace cco
