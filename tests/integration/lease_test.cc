// Memory that is kept for a job before its processes exist.
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "client/ctl/report.pb.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class LeaseTest : public NodeTest {
 protected:
  void start_small() {
    start_with(
        "socket_mode: '0666' host { device_count: 2 bytes_per_device: 16777216 } "
        "slab_bytes: 1048576 control_bytes: 65536");
  }
};

v1::CreateLeaseRequest lease_request(uint64_t bytes) {
  v1::CreateLeaseRequest request;
  request.set_request_id(new_request_id());
  request.add_gpu_uuids("HOST-0");
  request.set_bytes_per_gpu(bytes);
  request.set_ttl_ms(60000);
  return request;
}

std::string variable(const std::string& exports, const std::string& name) {
  const std::string start = "export " + name + "=";
  for (const auto& line : absl::StrSplit(exports, '\n')) {
    const std::string text(line);
    if (text.compare(0, start.size(), start) == 0) return text.substr(start.size());
  }
  ADD_FAILURE() << "no " << name << " in " << exports;
  return "";
}

// A window of as many bytes as the argument says, on each of two ranks that share a GPU.
void hold_window(Rank& rank) {
  const Client client = test::attach(rank);
  Group group;
  Group::Options options;
  options.rank = rank.rank;
  options.size = rank.size;
  options.device = 0;
  options.name = "job";
  ASSERT_TRUE(succeeded(Group::create(client, options, &group)));
  Window window, more;
  EXPECT_TRUE(
      succeeded(Window::create(group, "w", {.size_bytes = std::stoull(rank.argument)}, &window)));
  EXPECT_TRUE(refused(Window::create(group, "more", {.size_bytes = 2 << 20}, &more),
                      CCO_RESOURCE_EXHAUSTED, {"lease 1 has 12582912 bytes there"}));
  rank.say("holds");
  EXPECT_EQ(rank.hear(), "the lease has ended");
  EXPECT_TRUE(succeeded(Window::create(group, "more", {.size_bytes = 1 << 20}, &more)));
}

// Goal    a scheduler's way: a prologue reserves, the job finds its memory by the environment, with
//         others on the node who cannot take it, and an epilogue gives back.
TEST_F(LeaseTest, FromPrologueToEpilogue) {
  start_small();
  const std::string& socket = daemon->socket_path();
  const std::string exports =
      ccoctl(socket, {"lease", "create", "--bytes", "12MiB", "--ttl", "1h", "--gpu", "HOST-0"});
  EXPECT_EQ(variable(exports, "CCO_LEASE_ID"), "1");
  const Client other = attach();
  const std::vector<Group> theirs = form_group(other, "theirs", 1);
  Window window;
  EXPECT_TRUE(refused(Window::create(theirs[0], "w", {.size_bytes = 6 << 20}, &window),
                      CCO_RESOURCE_EXHAUSTED, {"leases keep 12582912"}));
  Ranks::Options options = ranks(absl::StrCat(5 << 20));
  options.environment = {{"CCO_LEASE", variable(exports, "CCO_LEASE")}};
  Ranks job(2, hold_window, options);
  EXPECT_EQ(job.hear_all(), (std::vector<std::string>{"holds", "holds"}));
  const std::vector<std::string> lines =
      absl::StrSplit(ccoctl(socket, {"lease", "list"}), '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2u);
  const std::vector<std::string> words = absl::StrSplit(lines[1], ' ', absl::SkipEmpty());
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.begin() + 9),
            (std::vector<std::string>{"1", "any", "-", "HOST-0", "10.1", "MiB", "12", "MiB", "1"}));
  EXPECT_EQ(ccoctl(socket, {"lease", "end", "1"}), "lease 1 has ended\n");
  job.tell_all("the lease has ended");
  job.expect_success();
  EXPECT_TRUE(succeeded(Window::create(theirs[0], "w", {.size_bytes = 6 << 20}, &window)));
}

// Goal    for programs: the token as the environment takes it, and a listing without it.
TEST_F(LeaseTest, Json) {
  start_small();
  const std::string made =
      ccoctl(daemon->socket_path(), {"--json", "lease", "create", "--bytes", "1048576", "--ttl",
                                     "30d", "--tenant", "uid-7", "--cgroup", "/jobs.slice/7"});
  report::v1::CreatedLease lease;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(made, &lease).ok()) << made;
  EXPECT_EQ(absl::HexStringToBytes(lease.token()).size(), 16u);
  const std::string listed = ccoctl(daemon->socket_path(), {"lease", "list", "--json"});
  v1::ListLeasesResponse leases;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(listed, &leases).ok()) << listed;
  ASSERT_EQ(leases.leases_size(), 1);
  EXPECT_EQ(leases.leases(0).lease_id(), lease.lease_id());
  EXPECT_EQ(leases.leases(0).tenant(), "uid-7");
  EXPECT_EQ(leases.leases(0).cgroup(), "/jobs.slice/7");
  EXPECT_EQ(leases.leases(0).uses_size(), 2);
  EXPECT_GT(leases.leases(0).expires_in_ms(), uint64_t{29} * 24 * 3600 * 1000);
  EXPECT_EQ(listed.find(lease.token()), std::string::npos);
  EXPECT_EQ(daemon->log().find(lease.token()), std::string::npos);
  ccoctl(daemon->socket_path(), {"lease", "end", absl::StrCat(lease.lease_id())});
}

// Goal    a lease ends by its own time, and then its memory is everybody's.
TEST_F(LeaseTest, Expires) {
  start_small();
  ccoctl(daemon->socket_path(), {"lease", "create", "--bytes", "12MiB", "--ttl", "1s"});
  EXPECT_TRUE(
      watch->becomes([](const NodeLedger& ledger) { return ledger.gpus[1].reserved_bytes == 0; }));
  EXPECT_TRUE(daemon->logs("event=lease_ended lease=1"));
}

// Goal    tokens that are none are refused alike, whatever they look like, and cost nothing.
TEST_F(LeaseTest, BadTokens) {
  start_small();
  RawSession session(daemon->socket_path());
  v1::CreateLeaseResponse made;
  ASSERT_TRUE(session.call(&Stub::CreateLease, lease_request(1 << 20), &made).ok());
  std::string spoiled = made.token();
  spoiled[0] ^= 1;
  absl::Status first;
  for (const std::string& token :
       {spoiled, made.token() + "x", made.token().substr(1), std::string("\0", 1),
        std::string(100000, 'x'), absl::BytesToHexString(made.token())}) {
    v1::JoinGroupRequest request = RawSession::join_request("job");
    request.set_lease(token);
    v1::JoinGroupResponse joined;
    const absl::Status status = session.call(&Stub::JoinGroup, request, &joined);
    EXPECT_TRUE(refused(status, StatusCode::kNotFound, {"no lease of that token"}));
    if (first.ok()) first = status;
    EXPECT_EQ(status.message(), first.message());
  }
  v1::EndLeaseRequest end;
  end.set_request_id(new_request_id());
  end.set_lease_id(made.lease_id());
  v1::EndLeaseResponse ended;
  EXPECT_TRUE(session.call(&Stub::EndLease, end, &ended).ok());
  EXPECT_TRUE(session.call(&Stub::EndLease, end, &ended).ok()) << "the same request";
  end.set_request_id(new_request_id());
  EXPECT_TRUE(
      refused(session.call(&Stub::EndLease, end, &ended), StatusCode::kNotFound, {"no lease 1"}));
}

// Goal    users make no leases, end none, and see those of others not.
// Method  as user 1000; root's leases are one for that user, and one for another.
TEST_F(LeaseTest, OfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  start_small();
  {
    RawSession root(daemon->socket_path());
    for (const char* tenant : {"uid-1000", "uid-1001"}) {
      v1::CreateLeaseRequest request = lease_request(1 << 20);
      request.set_tenant(tenant);
      v1::CreateLeaseResponse made;
      ASSERT_TRUE(root.call(&Stub::CreateLease, request, &made).ok());
    }
  }
  Ranks::Options options = ranks();
  options.wrapper = {"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"};
  run_ranks(
      1,
      [](Rank& rank) {
        RawSession session(rank.socket_path);
        v1::CreateLeaseResponse made;
        EXPECT_TRUE(refused(session.call(&Stub::CreateLease, lease_request(1 << 20), &made),
                            StatusCode::kPermissionDenied, {"only operators make leases"}));
        v1::EndLeaseRequest end;
        end.set_request_id(new_request_id());
        end.set_lease_id(1);
        v1::EndLeaseResponse ended;
        EXPECT_TRUE(refused(session.call(&Stub::EndLease, end, &ended),
                            StatusCode::kPermissionDenied, {"only operators end leases"}));
        v1::ListLeasesResponse leases;
        EXPECT_TRUE(session.call(&Stub::ListLeases, v1::ListLeasesRequest(), &leases).ok());
        ASSERT_EQ(leases.leases_size(), 1);
        EXPECT_EQ(leases.leases(0).lease_id(), 1u);
      },
      options);
  for (const char* id : {"1", "2"}) ccoctl(daemon->socket_path(), {"lease", "end", id});
}

}  // namespace
}  // namespace cco::test
