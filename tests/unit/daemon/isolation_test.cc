// Nothing that names what another tenant has tells whether it is there.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "daemon/service/translate.h"
#include "tests/unit/daemon/fakes.h"

namespace cco::memd {
namespace {

constexpr uint64_t kAllocation = 64 * 1024;

// All by which a call can name something, and the caller's own group.
struct Names {
  SessionId session{4999};
  GroupId group{6999};
  WindowId window{7999};
  WindowId kept{7998};
  uint64_t generation = 8999;
  uint64_t tenant = 0;
  std::string name = "zork";
  std::string forming = "zorks";
  std::string unique_id = "an id of zork, 16";
  std::string ticket = "no ticket";
  std::string offer = "no offer";
  std::string token = "no token";
  std::string request_id = "no request";
  std::string lease_token = "no lease";
  uint64_t lease = 0;
  std::string grant = "no grant";
  AttachmentId attachment{5999};
  GroupId mine{};
};

// User 1000 has something of every kind; user 2000 has a group. The same in every world.
struct World {
  World() {
    BrokerState state;
    // Numbers that nothing else has.
    state.last_ids = {5000, 6000, 7000, 8000, 9000, 9900, 5500};
    f.broker.restore(std::move(state));
    owner = f.attach(1000);
    caller = f.attach(2000);
    theirs.session = owner;
    theirs.tenant = number(f.session(owner).tenant);
    theirs.name = "quux";
    theirs.group = (*f.join(owner, 0, 1, theirs.name))->group;
    const WindowResult window = **f.create(owner, f.window(theirs.group, 0, 4096));
    theirs.window = window.window;
    theirs.generation = window.generation;
    WindowRequest keep = f.window(theirs.group, 0, 4096, "kept");
    keep.keep = Milliseconds(1000);
    keep.name = "granted";
    granted = **f.create(owner, keep);
    keep.name = "kept";
    theirs.grant = f.broker
                       .grant_window(f.session(owner), {theirs.group, 0, granted.window,
                                                        granted.generation, "uid-1000"})
                       ->token;
    theirs.attachment = (*f.broker.attach_window(f.session(owner), theirs.grant))->id;
    never.attachment = AttachmentId{number(theirs.attachment) - 1};
    const WindowResult kept = **f.create(owner, keep);
    f.broker.destroy_window(f.session(owner), theirs.group, 0, kept.window, kept.generation)
        .IgnoreError();
    theirs.kept = kept.window;
    theirs.forming = "quuxes";
    f.join(owner, 0, 2, theirs.forming);
    theirs.unique_id = "an id of quux, 16";
    f.join(owner, unique(theirs.unique_id, 0));
    theirs.ticket = f.broker.export_slab(f.session(owner), theirs.group, 0, 0)->notice;
    const GpuMemory memory = *f.driver->allocate(0, kAllocation, MemoryKind::kData);
    theirs.offer = *f.broker.desk().take_offer(owner, *f.driver->export_fd(memory));
    theirs.token = f.session(owner).token;
    theirs.request_id = "their request";
    f.session(owner).requests->begin(theirs.request_id, "", [](const Outcome&) {});
    const auto lease = f.broker.create_lease(
        f.session(f.attach(0)), {{"HOST-3"}, kAllocation, 3'600'000, "uid-1000", "/theirs"});
    theirs.lease = number(lease->id);
    never.lease = theirs.lease - 1;
    theirs.lease_token = lease->token;
    mine = (*f.join(caller, 0, 1, "mine"))->group;
    theirs.mine = never.mine = mine;
    never.tenant = theirs.tenant - 1;
  }
  static JoinRequest unique(const std::string& id, uint32_t rank) {
    JoinRequest request;
    request.unique_id = id;
    request.size = 2;
    request.rank = rank;
    request.gpu_uuid = "HOST-0";
    return request;
  }
  WindowRequest external(GroupId group, const std::string& offer) {
    WindowRequest request = f.window(group, 0, 4096, "external");
    request.placement = Placement::kExternal;
    request.allocation_bytes = kAllocation;
    request.offer = offer;
    return request;
  }

  Fixture f;
  SessionId owner{}, caller{};
  GroupId mine{};
  WindowResult granted;
  Names theirs, never;
};

// What a caller gets to see of an answer.
std::string text(const absl::Status& status) {
  const grpc::Status seen = to_grpc(status);
  return absl::StrCat(seen.error_code(), " ", seen.error_message(), " ",
                      absl::BytesToHexString(seen.error_details()));
}
template <typename Result>
std::string text(const absl::StatusOr<Result>& result) {
  if (!result.ok()) return text(result.status());
  if constexpr (std::is_base_of_v<google::protobuf::Message, Result>) return result->DebugString();
  return "ok";
}
template <typename Result>
std::string text(const std::shared_ptr<absl::StatusOr<Result>>& answer) {
  return text(*answer);  // UNKNOWN: it waits.
}
std::string list_groups(World& w, SessionId id, const std::string& token = "") {
  v1::ListGroupsRequest request;
  request.set_page_token(token);
  return text(render_groups(request, w.f.broker, w.f.session(id)));
}

struct Call {
  std::string rpc;  // Or what there is beside.
  std::function<std::string(World& w, SessionId id, const Names& names)> make;
};

std::vector<Call> group_calls() {
  const auto join = [](World& w, SessionId id, JoinRequest request) {
    const std::string answer = text(w.f.join(id, std::move(request)));
    return answer + list_groups(w, id);
  };
  const auto named = [](const std::string& name) {
    JoinRequest request = World::unique("", 1);
    request.name = name;
    return request;
  };
  return {
      {"JoinGroup",
       [=](World& w, SessionId id, const Names& n) { return join(w, id, named(n.name)); }},
      {"JoinGroup",
       [=](World& w, SessionId id, const Names& n) { return join(w, id, named(n.forming)); }},
      {"JoinGroup", [=](World& w, SessionId id,
                        const Names& n) { return join(w, id, World::unique(n.unique_id, 1)); }},
      {"JoinGroup",
       [=](World& w, SessionId id, const Names& n) {
         JoinRequest request = named("leased");
         request.rank = 0;
         request.size = 1;
         request.gpu_uuid = "HOST-3";
         request.lease = n.lease_token;
         return join(w, id, request);
       }},
      {"LeaveGroup",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.leave(w.f.session(id), n.group, 0));
       }},
      {"ShrinkGroup",
       [](World& w, SessionId id, const Names& n) {
         auto answer = std::make_shared<absl::StatusOr<ShrinkResult>>();
         w.f.broker.shrink(w.f.session(id), {n.group, 0, {}}, w.f.into(answer));
         return text(answer);
       }},
      {"AbortGroup",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.abort(w.f.session(id), n.group, 0));
       }},
      {"Barrier",
       [](World& w, SessionId id, const Names& n) { return text(w.f.barrier(id, n.group, 0, 0)); }},
      {"ReportPeers",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.report_peers(w.f.session(id), n.group, 0, {{0, true, ""}}));
       }},
      {"ReportTransports",
       [](World& w, SessionId id, const Names& n) {
         return text(
             w.f.broker.report_transports(w.f.session(id), n.group, 0, {{0, "lsa", true, "", ""}}));
       }},
      {"ExplainGroup",
       [](World& w, SessionId id, const Names& n) {
         v1::ExplainGroupRequest request;
         request.set_group_id(number(n.group));
         return text(render_explanation(request, w.f.broker, w.f.session(id)));
       }},
  };
}

std::vector<Call> window_calls() {
  return {
      {"CreateWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.create(id, w.f.window(n.group, 0, 4096, "another")));
       }},
      {"CreateWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.create(id, w.external(n.group, n.offer)));
       }},
      {"CreateWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.create(id, w.external(n.mine, n.offer)));
       }},
      {"OpenWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.open_window(w.f.session(id), n.group, 0, "w"));
       }},
      {"DestroyWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(
             w.f.broker.destroy_window(w.f.session(id), n.group, 0, n.window, n.generation));
       }},
      {"DestroyWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.destroy_window(w.f.session(id), n.mine, 0, n.window, n.generation));
       }},
      {"ExportSlabs",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.export_slab(w.f.session(id), n.group, 0, 0));
       }},
      {"ListWindows",
       [](World& w, SessionId id, const Names& n) {
         v1::ListWindowsRequest request;
         request.set_group_id(number(n.group));
         return text(render_windows(request, w.f.broker, w.f.session(id)));
       }},
      {"ListWindows",
       [](World& w, SessionId id, const Names& n) {
         v1::ListWindowsRequest request;
         request.set_page_token(absl::StrCat(number(n.window)));
         return text(render_windows(request, w.f.broker, w.f.session(id)));
       }},
      {"ListKept",
       [](World& w, SessionId id, const Names& n) {
         v1::ListKeptRequest request;
         request.set_page_token(absl::StrCat(number(n.kept) - 1));
         return text(render_kept(request, w.f.broker, w.f.session(id)));
       }},
      {"EvictKept",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.evict_kept(w.f.session(id), n.kept));
       }},
  };
}

std::vector<Call> grant_calls() {
  return {
      {"GrantWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.grant_window(
             w.f.session(id), {n.group, 0, w.granted.window, w.granted.generation, "uid-2000"}));
       }},
      {"RevokeGrant",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.revoke_grant(
             w.f.session(id), {n.group, 0, w.granted.window, w.granted.generation, ""}, n.grant));
       }},
      {"AttachWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.attach_window(w.f.session(id), n.grant));
       }},
      {"ExportSlabs",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.export_attachment(w.f.session(id), n.attachment));
       }},
      {"DetachWindow",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.detach_window(w.f.session(id), n.attachment));
       }},
  };
}

std::vector<Call> other_calls() {
  return {
      {"ListGroups",
       [](World& w, SessionId id, const Names& n) {
         return list_groups(w, id, absl::StrCat(number(n.group)));
       }},
      {"ListSessions",
       [](World& w, SessionId id, const Names& n) {
         v1::ListSessionsRequest request;
         request.set_page_token(absl::StrCat(number(n.session)));
         return text(render_sessions(request, w.f.broker, w.f.session(id)));
       }},
      {"ListTenants",
       [](World& w, SessionId id, const Names& n) {
         v1::ListTenantsRequest request;
         request.set_page_token(absl::StrCat(n.tenant));
         return text(render_tenants(request, w.f.broker, w.f.session(id)));
       }},
      {"ListLeases",
       [](World& w, SessionId id, const Names& n) {
         v1::ListLeasesRequest request;
         request.set_page_token(absl::StrCat(n.lease));
         return text(render_leases(request, w.f.broker, w.f.session(id)));
       }},
      {"a ticket", [](World& w, SessionId id,
                      const Names& n) { return text(w.f.broker.desk().redeem(id, n.ticket)); }},
      {"a token, with a call",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.authenticate(n.token, w.f.session(id).who));
       }},
      {"a token, to come back with",
       [](World& w, SessionId id, const Names& n) {
         return text(w.f.broker.resume_session(n.token, w.f.session(id).who, UniqueFd()));
       }},
      {"a request id",
       [](World& w, SessionId id, const Names& n) {
         return std::string(w.f.session(id).requests->begin(n.request_id, "", [](const Outcome&) {})
                                ? "new"
                                : "known");
       }},
  };
}

std::vector<Call> all_calls() {
  std::vector<Call> calls = group_calls();
  for (const auto& more : {window_calls(), grant_calls(), other_calls()}) {
    calls.insert(calls.end(), more.begin(), more.end());
  }
  return calls;
}

// The caller knows what it has said itself.
std::string without(const Names& names, const std::string& answer) {
  return absl::StrReplaceAll(answer, {{absl::StrCat(number(names.session)), "SESSION"},
                                      {absl::StrCat(number(names.group)), "GROUP"},
                                      {absl::StrCat(number(names.window)), "WINDOW"},
                                      {absl::StrCat(number(names.kept)), "KEPT"},
                                      {absl::StrCat(names.generation), "GENERATION"},
                                      {absl::StrCat(number(names.attachment)), "ATTACHMENT"},
                                      {absl::StrCat(names.tenant), "TENANT"},
                                      {absl::StrCat(names.lease), "LEASE"},
                                      {names.name, "NAME"},
                                      {names.forming, "NAME"},
                                      {names.unique_id, "NAME"}});
}

// What is left of user 1000's, for user 1000.
std::string ownership(World& w) {
  v1::ListWindowsRequest windows;
  return absl::StrCat(list_groups(w, w.owner),
                      text(render_windows(windows, w.f.broker, w.f.session(w.owner))),
                      text(render_kept({}, w.f.broker, w.f.session(w.owner))),
                      text(w.f.broker.attach_window(w.f.session(w.owner), w.theirs.grant)),
                      text(w.f.broker.detach_window(w.f.session(w.owner), w.theirs.attachment)),
                      text(w.f.broker.desk().redeem(w.owner, w.theirs.ticket)),
                      text(w.f.broker.desk().claim_offer(w.owner, w.theirs.offer)),
                      text(w.f.broker.authenticate(w.theirs.token, w.f.session(w.owner).who)));
}

// Goal    with another tenant's ids, names and secrets every call answers as with such that never
//         were, and does them no harm.
// Method  each call twice, in two worlds that are the same; what the caller said itself is masked.
//         As a check of the table, the owner gets two answers that differ.
TEST(Isolation, OthersThingsAreAsIfTheyWereNot) {
  World untouched;
  const std::string before = ownership(untouched);
  for (const Call& call : all_calls()) {
    World theirs, never, owned, missed;
    EXPECT_EQ(without(theirs.theirs, call.make(theirs, theirs.caller, theirs.theirs)),
              without(never.never, call.make(never, never.caller, never.never)))
        << call.rpc;
    EXPECT_EQ(ownership(theirs), before) << call.rpc;
    Names known = owned.theirs, unknown = missed.never;
    known.mine = unknown.mine = owned.theirs.group;
    EXPECT_NE(without(known, call.make(owned, owned.owner, known)),
              without(unknown, call.make(missed, missed.owner, unknown)))
        << call.rpc << " does not depend on what it names";
  }
}

// Goal    no call is forgotten here. GetNode takes nothing that names anything; leases are made and
//         ended, and GPUs drained, by operators, who see all.
TEST(Isolation, EveryCallIsTried) {
  std::set<std::string> tried{"GetNode", "CreateLease", "EndLease", "DrainGpu", "UndrainGpu"};
  for (const Call& call : all_calls()) tried.insert(call.rpc);
  const google::protobuf::ServiceDescriptor* service =
      v1::GetNodeRequest::descriptor()->file()->FindServiceByName("MemdService");
  for (int i = 0; i < service->method_count(); ++i) {
    EXPECT_EQ(tried.count(service->method(i)->name()), 1u)
        << service->method(i)->name() << ": give it a line in the table above";
  }
  EXPECT_EQ(v1::GetNodeRequest::descriptor()->field_count(), 0);
}

// What calls that only show tell `id`, by their names; all that have no group to be named are asked
// for all that they know.
std::map<std::string, std::string> shown(Fixture& f, SessionId id, GroupId group) {
  Session& session = f.session(id);
  const NodeFacts facts{"0", "host", "0", f.executor.now()};
  v1::ExplainGroupRequest explain;
  explain.set_group_id(number(group));
  return {{"GetNode", render_node(f.broker, facts, session).DebugString()},
          {"ListSessions", text(render_sessions({}, f.broker, session))},
          {"ListGroups", text(render_groups({}, f.broker, session))},
          {"ListWindows", text(render_windows({}, f.broker, session))},
          {"ListTenants", text(render_tenants({}, f.broker, session))},
          {"ListLeases", text(render_leases({}, f.broker, session))},
          {"ListKept", text(render_kept({}, f.broker, session))},
          {"ExplainGroup", text(render_explanation(explain, f.broker, session))},
          {"OpenWindow", text(f.broker.open_window(session, group, 0, "heap"))}};
}

// A group with a window that is in use and one that is kept, and half a group.
GroupId act(Fixture& f, SessionId id, const std::string& name) {
  const GroupId group = (*f.join(id, 0, 1, name))->group;
  f.create(id, f.window(group, 0, 4096, "heap"));
  WindowRequest keep = f.window(group, 0, 4096, "kept");
  keep.keep = Milliseconds(100'000);
  const WindowResult kept = **f.create(id, keep);
  EXPECT_TRUE(f.broker.destroy_window(f.session(id), group, 0, kept.window, kept.generation).ok());
  f.join(id, 0, 2, name + " to come");
  return group;
}

// Goal    what a tenant is shown is the same whatever another one does.
// Method  all calls that show something, before and after another tenant attaches, has groups,
//         windows, a lease, memory that is held for a lost process, and calls that wait for memory.
//         As a check of the table, an operator is shown more by each that lists.
TEST(Isolation, OthersDoingsAreNotShown) {
  Fixture f;
  const SessionId caller = f.attach(2000);
  const SessionId chief = f.attach(0);
  const GroupId mine = act(f, caller, "mine");
  const auto before = shown(f, caller, mine);
  const auto all_before = shown(f, chief, mine);
  std::vector<SessionId> others{f.attach(1000), f.attach(1000)};
  act(f, others[0], "theirs");
  ASSERT_TRUE(f.broker
                  .create_lease(f.session(chief),
                                {{"HOST-0"}, kAllocation, 3'600'000, "uid-1000", "/theirs"})
                  .ok());
  const GroupId pair = [&] {
    f.join(others[0], 0, 2, "pair");
    return (*f.join(others[1], 1, 2, "pair"))->group;
  }();
  f.broker.close_session(others[1]);
  ASSERT_GT(f.broker.slabs().usage(1).quarantined_bytes, 0u) << number(pair);
  const GroupId waits = (*f.join(others[0], 0, 1, "waits"))->group;
  WindowRequest large = f.window(waits, 0, (64 << 20) - (1 << 20), "large");
  large.wait_for_memory = large.timeout = Milliseconds(1000);
  f.create(others[0], large);
  ASSERT_EQ(f.broker.queue().count(0), 1u);
  const auto after = shown(f, caller, mine);
  const auto all_after = shown(f, chief, mine);
  for (const auto& [rpc, answer] : before) {
    EXPECT_EQ(after.at(rpc), answer) << rpc;
    if (rpc == "ExplainGroup" || rpc == "OpenWindow") continue;  // Of one group.
    EXPECT_NE(all_after.at(rpc), all_before.at(rpc)) << rpc << " shows an operator nothing";
  }
  const google::protobuf::ServiceDescriptor* service =
      v1::GetNodeRequest::descriptor()->file()->FindServiceByName("MemdService");
  for (int i = 0; i < service->method_count(); ++i) {
    const std::string name = service->method(i)->name();
    const bool is_shown = absl::StartsWith(name, "Get") || absl::StartsWith(name, "List") ||
                          absl::StartsWith(name, "Explain") || absl::StartsWith(name, "Open");
    EXPECT_EQ(before.count(name), is_shown ? 1u : 0u) << name << ": add it to shown()";
  }
}

}  // namespace
}  // namespace cco::memd
