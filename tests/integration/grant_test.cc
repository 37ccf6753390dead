// Windows shared across tenants: two users' processes, what each can do, and what is left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/ccoctl.h"
#include "tests/integration/raw_session.h"
#include "tests/support/kept_node.h"

namespace cco::test {
namespace {

using absl::StatusCode;

constexpr uint64_t kSize = 100'000;
constexpr uint32_t kTimeoutMs = 20000;

class GrantTest : public KeptNodeTest {
 protected:
  DaemonProcess::Options kept_options() const override {
    DaemonProcess::Options options = KeptNodeTest::kept_options();
    absl::StrAppend(&options.config,
                    "socket_mode: '0666' tenants { name: 'owners' uid: 1000 }\n"
                    "tenants { name: 'readers' uid: [2000, 2001] }");
    return options;
  }
  Ranks::Options ranks_as(const std::string& uid, const std::string& argument = "") const {
    Ranks::Options options = ranks(argument);
    options.wrapper = {"setpriv", "--reuid=" + uid, "--regid=" + uid, "--clear-groups"};
    return options;
  }
  void SetUp() override {
    // Other users' clients pass through the folder of the socket.
    ASSERT_EQ(::chmod(folder().c_str(), 0711), 0);
    KeptNodeTest::SetUp();
  }
};

std::string text_of(const cco_grant_token& token) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(token.bytes), sizeof token.bytes});
}
cco_grant_token token_of(const std::string& text) {
  cco_grant_token token{};
  const std::string bytes = absl::HexStringToBytes(text);
  std::memcpy(token.bytes, bytes.data(), std::min(bytes.size(), sizeof token.bytes));
  return token;
}

// A rank that fills its copy with its number + 1, and does what the test says: "read" and "write"
// grant that and tell the token; "revoke" the last one; "look" at the first byte of its copy.
void own(Rank& rank) {
  const Client client = test::attach(rank, kTimeoutMs);
  const Group group = join(client, rank);
  Window window;
  ASSERT_TRUE(succeeded(Window::create(
      group, "weights", {.size_bytes = kSize, .timeout_ms = kTimeoutMs, .keep_ms = 1}, &window)));
  unsigned char* bytes = nullptr;
  ASSERT_TRUE(succeeded(window.get_address(rank.rank, 0, &bytes)));
  std::memset(bytes, static_cast<int>(rank.rank) + 1, kSize);
  ASSERT_TRUE(succeeded(group.barrier(kTimeoutMs)));
  rank.say("ready");
  cco_grant_token token{};
  for (std::string what = rank.hear(); !what.empty() && what != "end"; what = rank.hear()) {
    if (what == "look") {
      rank.say(std::to_string(bytes[0]));
    } else if (what == "revoke") {
      EXPECT_TRUE(succeeded(window.revoke(token)));
      EXPECT_TRUE(refused(window.revoke(token), CCO_NOT_FOUND, {"no grant of that token"}));
      rank.say("revoked");
    } else {
      EXPECT_TRUE(succeeded(window.grant(
          "readers", what == "read" ? CCO_ACCESS_READ : CCO_ACCESS_READ_WRITE, &token)));
      rank.say(text_of(token));
    }
  }
}

// Reads every byte of every rank's copy, and again whenever the test says so.
void read_all(Rank& rank) {
  const Client client = test::attach(rank, kTimeoutMs);
  Attachment attachment;
  ASSERT_TRUE(succeeded(Attachment::create(client, token_of(rank.argument), 0, &attachment)));
  cco_attachment_info info{};
  ASSERT_TRUE(succeeded(attachment.get_info(&info)));
  EXPECT_EQ(info.access, CCO_ACCESS_READ);
  EXPECT_EQ(info.size_bytes, kSize);
  ASSERT_EQ(info.rank_count, 2u);
  EXPECT_EQ(info.is_enforced, 1u);
  do {
    for (uint32_t owner = 0; owner < info.rank_count; ++owner) {
      const unsigned char* bytes = nullptr;
      ASSERT_TRUE(succeeded(attachment.get_address(owner, 0, &bytes)));
      for (uint64_t at = 0; at < kSize; ++at) {
        ASSERT_EQ(bytes[at], owner + 1) << "rank " << owner << ", byte " << at;
      }
    }
    void* none = nullptr;
    EXPECT_TRUE(refused(attachment.get_address(2, 0, &none), CCO_OUT_OF_RANGE, {"2 ranks"}));
    EXPECT_TRUE(refused(attachment.get_address(0, kSize, &none), CCO_OUT_OF_RANGE, {"100000"}));
    rank.say("read");
  } while (rank.hear() == "again");
}

// Stores into rank 0's copy.
void write_one(Rank& rank) {
  const Client client = test::attach(rank, kTimeoutMs);
  Attachment attachment;
  ASSERT_TRUE(succeeded(Attachment::create(client, token_of(rank.argument), 1, &attachment)));
  unsigned char* bytes = nullptr;
  ASSERT_TRUE(succeeded(attachment.get_address(0, 0, &bytes)));
  bytes[0] = 77;
}

void get_nothing(Rank& rank) {
  const Client client = test::attach(rank, kTimeoutMs);
  Attachment attachment;
  EXPECT_TRUE(refused(Attachment::create(client, token_of(rank.argument), 0, &attachment),
                      CCO_NOT_FOUND, {"no grant of that token"}));
}

// Maps what it gets for reading by itself, and opens it anew.
void write_by_all_means(Rank& rank) {
  RawSession session(rank.socket_path);
  v1::AttachWindowRequest attach;
  attach.set_request_id(new_request_id());
  attach.set_token(absl::HexStringToBytes(rank.argument));
  v1::AttachWindowResponse attached;
  ASSERT_TRUE(session.call(&Stub::AttachWindow, attach, &attached).ok());
  EXPECT_TRUE(attached.is_enforced());
  v1::ExportSlabsRequest request;
  request.set_request_id(new_request_id());
  request.set_attachment_id(attached.attachment_id());
  v1::ExportSlabsResponse exports;
  ASSERT_TRUE(session.call(&Stub::ExportSlabs, request, &exports).ok());
  ASSERT_EQ(exports.exports_size(), 2);
  for (const v1::SlabExport& slab : exports.exports()) {
    const absl::StatusOr<UniqueFd> fd = session.connection().redeem(slab.ticket());
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_NE(::mmap(nullptr, slab.size_bytes(), PROT_READ, MAP_SHARED, fd->get(), 0), MAP_FAILED);
    EXPECT_EQ(::mmap(nullptr, slab.size_bytes(), PROT_WRITE, MAP_SHARED, fd->get(), 0), MAP_FAILED);
    const std::string path = absl::StrCat("/proc/self/fd/", fd->get());
    EXPECT_EQ(::open(path.c_str(), O_RDWR | O_CLOEXEC), -1);
    EXPECT_EQ(errno, EACCES);
  }
  // The owners' groups are as far away as ever.
  request.set_request_id(new_request_id());
  request.clear_attachment_id();
  request.set_group_id(1);
  EXPECT_TRUE(refused(session.call(&Stub::ExportSlabs, request, &exports), StatusCode::kNotFound,
                      {"not rank 0"}));
}

// Goal    the tenant that a window was granted to reads and writes what the grant says and no more;
//         others get nothing with its token, nor does it once that is revoked.
TEST_F(GrantTest, TenantsShareAWindow) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  Ranks owners(2, own, ranks_as("1000"));
  EXPECT_EQ(owners.hear_all(), (std::vector<std::string>(2, "ready")));
  owners.tell(0, "read");
  const std::string reading = owners.hear(0);
  Ranks reader(1, read_all, ranks_as("2000", reading));
  EXPECT_EQ(reader.hear(0), "read");
  const std::string shown = ccoctl(daemon->socket_path(), {"windows"});
  EXPECT_NE(shown.find("readers:read"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("not-enforced"), std::string::npos) << shown;
  run_ranks(1, get_nothing, ranks_as("3000", reading));
  run_ranks(1, get_nothing, ranks_as("1000", reading));
  run_ranks(1, get_nothing, ranks_as("2000", std::string(32, '0')));
  run_ranks(1, write_by_all_means, ranks_as("2001", reading));
  owners.tell(0, "revoke");
  EXPECT_EQ(owners.hear(0), "revoked");
  run_ranks(1, get_nothing, ranks_as("2000", reading));
  reader.tell(0, "again");
  EXPECT_EQ(reader.hear(0), "read");
  reader.tell(0, "end");
  reader.expect_success();

  owners.tell(1, "write");
  run_ranks(1, write_one, ranks_as("2000", owners.hear(1)));
  owners.tell(0, "look");
  EXPECT_EQ(owners.hear(0), "77");
  owners.tell_all("end");
  owners.expect_success();
}

// Goal    all owners die while another tenant is attached: it goes on reading, also over the end of
//         the daemon, and its process's end frees the bytes, once.
TEST_F(GrantTest, OwnersDieWhileOthersAreAttached) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: cannot play other users";
  for (const bool kills_daemon : {false, true}) {
    Ranks owners(2, own, ranks_as("1000"));
    EXPECT_EQ(owners.hear_all(), (std::vector<std::string>(2, "ready")));
    owners.tell(0, "read");
    const std::string token = owners.hear(0);
    Ranks reader(1, read_all, ranks_as("2000", token));
    EXPECT_EQ(reader.hear(0), "read");
    if (kills_daemon) kill_and_start();
    for (uint32_t rank = 0; rank < 2; ++rank) owners.signal(rank, SIGKILL);
    owners.expect_success();
    EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) {
      return ledger.groups == 0 && ledger.held_bytes() != 0 &&
             ledger.held_bytes() == ledger.slab_bytes();
    }));
    if (kills_daemon) kill_and_start();
    run_ranks(1, get_nothing, ranks_as("2000", token));
    reader.tell(0, "again");
    EXPECT_EQ(reader.hear(0), "read");
    reader.signal(0, SIGKILL);
    reader.expect_success();
    EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.slab_bytes() == 0; }));
  }
}

// Goal    wrong use of the interface is refused, and says how.
TEST_F(GrantTest, WrongUse) {
  const Client client = attach(kTimeoutMs);
  const auto groups = form_group(client, "job", 1, kTimeoutMs);
  const auto shared = form_window(groups, "shared", {.size_bytes = 100});
  const auto kept = form_window(groups, "kept", {.size_bytes = 100, .keep_ms = 1});
  cco_grant_token token{};
  EXPECT_TRUE(refused(shared[0].grant("readers", CCO_ACCESS_READ, &token), CCO_FAILED_PRECONDITION,
                      {"with keep_ms"}));
  EXPECT_TRUE(refused(kept[0].grant("readers", 3, &token), CCO_INVALID_ARGUMENT, {"access is 3"}));
  EXPECT_TRUE(refused(kept[0].grant("", CCO_ACCESS_READ, &token), CCO_INVALID_ARGUMENT, {"0"}));
  EXPECT_TRUE(
      refused(kept[0].grant(nullptr, CCO_ACCESS_READ, &token), CCO_INVALID_ARGUMENT, {"tenant"}));
  Attachment attachment;
  EXPECT_TRUE(
      refused(Attachment::create(client, token, 99, &attachment), CCO_NOT_FOUND, {"no device 99"}));
  EXPECT_TRUE(refused(Attachment::create(Client(), token, 0, &attachment), CCO_INVALID_ARGUMENT,
                      {"client"}));
  EXPECT_TRUE(succeeded(kept[0].grant("uid-0", CCO_ACCESS_READ_WRITE, &token)));
  EXPECT_TRUE(succeeded(Attachment::create(client, token, 0, &attachment)));
  unsigned char *theirs = nullptr, *ours = nullptr;
  ASSERT_TRUE(succeeded(attachment.get_address(0, 99, &theirs)));
  ASSERT_TRUE(succeeded(kept[0].get_address(0, 99, &ours)));
  *ours = 5;
  EXPECT_EQ(*theirs, 5);
  attachment = Attachment();
  EXPECT_TRUE(watch->becomes([](const NodeLedger& ledger) { return ledger.held_bytes() == 0; }));
}

}  // namespace
}  // namespace cco::test
