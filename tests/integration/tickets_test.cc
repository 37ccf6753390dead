// Tickets and offers: each works once, in time, for its own process.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>

#include "tests/integration/raw_session.h"
#include "tests/support/node_test.h"

namespace cco::test {
namespace {

using absl::StatusCode;

class TicketsTest : public NodeTest {};

v1::ExportSlabsRequest export_request(uint64_t group_id, uint32_t slab_index = 0) {
  v1::ExportSlabsRequest request;
  request.set_request_id(new_request_id());
  request.set_group_id(group_id);
  request.set_slab_index(slab_index);
  return request;
}

v1::ExportSlabsResponse export_control(RawSession& session, const v1::JoinGroupResponse& group) {
  v1::ExportSlabsResponse exports;
  EXPECT_TRUE(session.call(&Stub::ExportSlabs, export_request(group.group_id()), &exports).ok());
  return exports;
}

uint32_t tickets_of(RawSession& session) {
  v1::ListSessionsResponse sessions;
  EXPECT_TRUE(session.call(&Stub::ListSessions, v1::ListSessionsRequest(), &sessions).ok());
  uint32_t count = 0;
  for (const v1::SessionInfo& info : sessions.sessions()) count += info.ticket_count();
  return count;
}

// Goal    a ticket works once.
// Method  redeem, and redeem again; then with bytes that never were a ticket.
TEST_F(TicketsTest, Replay) {
  start();
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const std::string ticket = export_control(session, group).notice_ticket();
  EXPECT_TRUE(session.connection().redeem(ticket).ok());
  EXPECT_TRUE(refused(session.connection().redeem(ticket).status(), StatusCode::kNotFound,
                      {"no such ticket", "works once"}));
  for (const std::string& wrong : {std::string(), std::string("x"), std::string(16, '\0'),
                                   std::string(1024, 'x'), ticket + "x"}) {
    EXPECT_TRUE(refused(session.connection().redeem(wrong).status(), StatusCode::kNotFound,
                        {"no such ticket"}));
  }
  session.leave(group.group_id());
}

// Goal    a ticket is worth nothing to another session, and stays good for its own.
// Method  a second session tries it first.
TEST_F(TicketsTest, AnotherSessions) {
  start();
  RawSession owner(daemon->socket_path());
  RawSession thief(daemon->socket_path());
  const v1::JoinGroupResponse group = owner.join("job");
  const v1::ExportSlabsResponse exports = export_control(owner, group);
  ASSERT_EQ(exports.exports_size(), 1);
  const std::string ticket = exports.exports(0).ticket();
  EXPECT_TRUE(refused(thief.connection().redeem(ticket).status(), StatusCode::kNotFound,
                      {"no such ticket", "for the process it was made for"}));
  EXPECT_TRUE(owner.connection().redeem(ticket).ok());

  const UniqueFd memory(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.get(), 65536), 0);
  const absl::StatusOr<std::string> offer = owner.connection().offer(memory);
  ASSERT_TRUE(offer.ok());
  const v1::JoinGroupResponse theirs = thief.join("other");
  v1::CreateWindowRequest request = RawSession::window_request(theirs.group_id(), "stolen", 16);
  request.set_placement(v1::PLACEMENT_EXTERNAL);
  request.set_offer(*offer);
  request.set_allocation_bytes(65536);
  v1::CreateWindowResponse response;
  EXPECT_TRUE(refused(thief.call(&Stub::CreateWindow, request, &response), StatusCode::kNotFound,
                      {"no such offer"}));
  request.set_request_id(new_request_id());
  request.set_group_id(group.group_id());
  EXPECT_TRUE(owner.call(&Stub::CreateWindow, request, &response).ok());
  request.set_request_id(new_request_id());
  request.set_name("again");
  EXPECT_TRUE(refused(owner.call(&Stub::CreateWindow, request, &response), StatusCode::kNotFound,
                      {"no such offer", "once"}));
  owner.leave(group.group_id());
  thief.leave(theirs.group_id());
}

// Goal    tickets and offers run out, say so, and no longer hold anything.
// Method  100 ms of life; used when the daemon no longer counts them.
TEST_F(TicketsTest, AfterTheirTime) {
  start_with("ticket_ms: 100");
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const std::string ticket = export_control(session, group).notice_ticket();
  const UniqueFd memory(::memfd_create("own", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const absl::StatusOr<std::string> offer = session.connection().offer(memory);
  ASSERT_TRUE(offer.ok());
  const Stopwatch time;
  while (tickets_of(session) > 0 && time.elapsed() < patience()) std::this_thread::yield();
  EXPECT_EQ(tickets_of(session), 0u);
  EXPECT_TRUE(refused(session.connection().redeem(ticket).status(), StatusCode::kNotFound,
                      {"no such ticket", "within 100 ms", "fresh one"}));
  session.leave(group.group_id());
}

// Goal    a client cannot pile up tickets or offers, learns the limit, and loses nothing by it.
// Method  offers and exports up to limits.tickets_per_session.
TEST_F(TicketsTest, Limit) {
  start_with("limits { tickets_per_session: 4 }");
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const UniqueFd memory(::memfd_create("own", MFD_CLOEXEC));
  EXPECT_TRUE(session.connection().offer(memory).ok());
  v1::ExportSlabsResponse exports = export_control(session, group);  // Of slab and notice page.
  EXPECT_TRUE(session.connection().offer(memory).ok());
  EXPECT_TRUE(refused(session.connection().offer(memory).status(), StatusCode::kResourceExhausted,
                      {"limits.tickets_per_session is 4", "4 tickets"}));
  EXPECT_TRUE(refused(session.call(&Stub::ExportSlabs, export_request(group.group_id()), &exports),
                      StatusCode::kResourceExhausted, {"limits.tickets_per_session is 4"}));
  EXPECT_TRUE(session.connection().redeem(exports.notice_ticket()).ok());
  EXPECT_TRUE(session.connection().offer(memory).ok());
  session.leave(group.group_id());
}

// Goal    what the daemon hands out cannot be made smaller, larger or full of holes by a client.
// Method  ftruncate and fallocate on a slab and on the notice page; both still answer afterwards.
TEST_F(TicketsTest, HandedOutMemoryIsSealed) {
  start();
  RawSession session(daemon->socket_path());
  const v1::JoinGroupResponse group = session.join("job");
  const v1::ExportSlabsResponse exports = export_control(session, group);
  ASSERT_EQ(exports.exports_size(), 1);
  for (const std::string& ticket : {exports.notice_ticket(), exports.exports(0).ticket()}) {
    const absl::StatusOr<UniqueFd> fd = session.connection().redeem(ticket);
    ASSERT_TRUE(fd.ok());
    EXPECT_EQ(::ftruncate(fd->get(), 0), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(::ftruncate(fd->get(), int64_t{1} << 30), -1);
    EXPECT_EQ(errno, EPERM);
    EXPECT_NE(::fcntl(fd->get(), F_GET_SEALS) & F_SEAL_SHRINK, 0);
    ::fallocate(fd->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096);
  }
  v1::AbortGroupRequest abort;  // Writes to the notice page.
  abort.set_request_id(new_request_id());
  abort.set_group_id(group.group_id());
  v1::AbortGroupResponse aborted;
  EXPECT_TRUE(session.call(&Stub::AbortGroup, abort, &aborted).ok());
  session.leave(group.group_id());
}

}  // namespace
}  // namespace cco::test
