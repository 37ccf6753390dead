// The daemon's decisions: who may form groups, make windows, get memory; what happens when somebody
// goes. A state machine on one thread (its Executor's) that touches the world through ports alone:
// no lock, no system call, no protobuf.
//
// Sessions come and go by open_session(), close_session() (the connection ended: rights are
// revoked, ranks are lost) and process_exited() (only now may its memory serve others). All other
// calls are for a session that authenticate() gave.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cco/device/abi.h"
#include "daemon/core/allocation_queue.h"
#include "daemon/core/attachments.h"
#include "daemon/core/changes.h"
#include "daemon/core/drain.h"
#include "daemon/core/export_desk.h"
#include "daemon/core/group.h"
#include "daemon/core/kept_windows.h"
#include "daemon/core/lease_table.h"
#include "daemon/core/limits.h"
#include "daemon/core/session_table.h"
#include "daemon/core/slab_table.h"
#include "daemon/core/tenants.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/gpu_pool.h"
#include "daemon/ports/journal.h"
#include "daemon/ports/notice_board.h"
#include "daemon/ports/processes.h"

namespace cco::memd {

struct BrokerOptions {
  Limits limits;
  Tenants tenants;
  uint64_t incarnation = 0;
  uint64_t slab_bytes = 0;               // 0: the driver's preference.
  uint64_t control_bytes = 1024 * 1024;  // Rounded up to the granularity.
  Milliseconds default_timeout{60000};
  Milliseconds ticket_lifetime{10000};
  // How long an earlier daemon's session is waited for if it has no ranks, or if nothing will tell
  // of its process's end. (That daemon may have ended before its client knew the session.)
  Milliseconds return_timeout{3'600'000};
  uint64_t kept_descriptors = 0;  // As many can outlive the daemon; 0: any number.
  // How much of a GPU, or of a tenant's quota there, is used when ranks are told that memory is
  // short; 0: only while somebody waits for it.
  uint32_t memory_pressure_percent = 0;
  // The driver lets go of a GPU only when the process ends: see wants_restart().
  bool drains_by_restart = false;
  std::string drain_refusal;               // Why no GPU can be drained; empty: they can.
  bool allow_unenforced_read_only = true;  // Grants, where the driver cannot enforce them.
};

/// All that a broker knows, but for calls in progress, tickets and offers.
struct BrokerState {
  struct LastIds {
    uint64_t session = 0, slab = 0, group = 0, window = 0, generation = 0, lease = 0;
    uint64_t attachment = 0;
    friend bool operator==(const LastIds&, const LastIds&) = default;
  };
  LastIds last_ids;
  std::vector<Session> sessions;  // Without their ranks.
  std::map<SlabId, SlabTable::Slab> slabs;
  GpuDrains drains;
  std::vector<std::unique_ptr<Group>> groups;
  std::vector<Lease> leases;
  std::vector<KeptWindow> kept_windows;
  std::vector<Attachment> attachments;
};

/// Of a window, which the rank uses.
struct GrantRequest {
  GroupId group{};
  uint32_t rank = 0;
  WindowId window{};
  uint64_t generation = 0;
  std::string tenant;
  Access access = Access::kReadOnly;
};

struct LeaseRequest {
  std::vector<std::string> gpu_uuids;  // Empty: all.
  uint64_t bytes_per_gpu = 0;
  uint64_t ttl_ms = 0;
  std::string tenant;  // Name; empty: it serves any.
  std::string cgroup;  // Empty: it serves whoever has the token.
};

class Broker {
 public:
  struct Ports {
    Executor& executor;
    GpuPool& gpus;
    NoticeBoard& notices;
    Journal& journal;
    const Processes& processes;
    ExportDesk::MakeSecret make_secret;  // 16 fresh random bytes.
  };
  Broker(BrokerOptions options, Ports ports);
  ~Broker();

  // Sessions.
  struct Welcome {
    SessionId session;
    std::string token;
  };
  /// `process`: its pidfd, or none.
  absl::StatusOr<Welcome> open_session(const Identity& who, UniqueFd process);
  /// The process of a session that is away has come back: it is an operator's if it is now,
  /// whatever it was to the last daemon. UNAUTHENTICATED as of authenticate(); FAILED_PRECONDITION:
  /// it has never been away. `process` counts if the session has none any more.
  absl::StatusOr<Welcome> resume_session(const std::string& token, const Identity& who,
                                         UniqueFd process);
  void close_session(SessionId session);
  void process_exited(SessionId session);
  absl::StatusOr<Session*> authenticate(const std::string& token, const Identity& who) {
    return sessions_.authenticate(token, who);
  }
  Session* session(SessionId id) { return sessions_.find(id); }
  ExportDesk& desk() { return desk_; }

  // Records.
  /// What has changed since the last call.
  Changes take_changes() { return std::exchange(changes_, {}); }
  void note_answer(SessionId session, const std::string& request_id) {
    changes_.answers.emplace(session, request_id);
  }
  BrokerState::LastIds last_ids() const;
  /// Once, before anything else: goes on where another has ended.
  void restore(BrokerState state);

  // Groups.
  void join(Session& session, JoinRequest request, Reply<JoinResult> reply);
  /// The live ranks go on in a new group; see memd.proto.
  void shrink(Session& session, ShrinkRequest request, Reply<ShrinkResult> reply);
  absl::Status leave(Session& session, GroupId group, uint32_t rank);
  absl::Status abort(Session& session, GroupId group, uint32_t rank);
  void barrier(Session& session, BarrierRequest request, Reply<BarrierResult> reply);
  absl::Status report_peers(Session& session, GroupId group, uint32_t rank,
                            std::vector<PeerReport> peers);
  absl::Status report_transports(Session& session, GroupId group, uint32_t rank,
                                 std::vector<TransportReport> reports);

  // Windows.
  void create_window(Session& session, WindowRequest request, Reply<WindowResult> reply);
  absl::Status destroy_window(Session& session, GroupId group, uint32_t rank, WindowId window,
                              uint64_t generation);
  struct OpenedWindow {
    WindowResult window;
    uint64_t size_bytes;
    Milliseconds keep;
  };
  /// A named window of the heap that the rank has not given up.
  absl::StatusOr<OpenedWindow> open_window(Session& session, GroupId group, uint32_t rank,
                                           const std::string& name);
  struct SlabTicket {
    std::string ticket;
    uint64_t size_bytes;
    uint64_t offset;
  };
  struct SlabTickets {
    std::vector<SlabTicket> slabs;  // By rank.
    std::string notice;             // For the rank's notice page, with slab 0.
  };
  absl::StatusOr<SlabTickets> export_slab(Session& session, GroupId group, uint32_t rank,
                                          uint32_t slab_index);

  // Leases. Both are for operators: PERMISSION_DENIED.
  struct NewLease {
    LeaseId id{};
    std::string token;
  };
  absl::StatusOr<NewLease> create_lease(Session& session, const LeaseRequest& request);
  absl::Status end_lease(Session& session, LeaseId id);

  // Windows shared across tenants (broker_grants.cc).
  struct NewGrant {
    std::string token;
    bool is_enforced;
  };
  absl::StatusOr<NewGrant> grant_window(Session& session, const GrantRequest& request);
  /// `request`: tenant and access are not looked at.
  absl::Status revoke_grant(Session& session, const GrantRequest& request,
                            const std::string& token);
  /// NOT_FOUND alike for a token that never was, is void, or is another tenant's. Valid until
  /// anything else happens.
  absl::StatusOr<const Attachment*> attach_window(Session& session, const std::string& token);
  absl::StatusOr<SlabTickets> export_attachment(Session& session, AttachmentId id);
  absl::Status detach_window(Session& session, AttachmentId id);

  /// Bytes of all ranks.
  struct Evicted {
    uint64_t freed = 0;
    uint64_t held = 0;  // As others are attached; freed once they are not.
  };
  /// Frees a kept window's memory. NOT_FOUND alike for one that is not there and for another
  /// tenant's, unless the session is an operator's.
  absl::StatusOr<Evicted> evict_kept(Session& session, WindowId window);

  // Drains, of one GPU or (empty) of all: the indices of those that were meant. PERMISSION_DENIED:
  // the session is no operator's.
  absl::StatusOr<std::vector<int>> drain(Session& session, const std::string& gpu_uuid,
                                         Milliseconds deadline);
  absl::StatusOr<std::vector<int>> undrain(Session& session, const std::string& gpu_uuid);
  GpuService service(int gpu) const;
  Milliseconds drain_left(int gpu) const;
  const GpuDrains& drains() const { return drains_; }
  std::vector<GpuUser> users(int gpu) const;
  /// What was asked for takes another process, which opens other GPUs, once all is recorded.
  bool wants_restart() const { return wants_restart_; }

  /// Whether the session is attached, and its process stopped.
  bool is_stalled(const Session& session) const;

  // Looking. `session` sees its own tenant's, operators see all.
  using FormingKey = std::pair<TenantId, std::string>;  // And name or unique id.
  struct Forming {
    TenantId tenant;
    std::string name;
    std::string unique_id;
    std::unique_ptr<Rendezvous<JoinRequest, JoinResult>> call;
  };
  bool may_see(const Session& session, TenantId tenant) const {
    return session.who.is_operator || session.tenant == tenant;
  }
  bool may_see(const Session& session, const Lease& lease) const;
  const Tenants& tenants() const { return options_.tenants; }
  struct TenantUse {
    uint64_t sessions = 0;
    uint64_t groups = 0;
    uint64_t windows = 0;         // Kept ones included.
    std::vector<uint64_t> bytes;  // By GPU.
  };
  TenantUse use_of(TenantId tenant) const;
  const SessionTable& sessions() const { return sessions_; }
  const SlabTable& slabs() const { return slabs_; }
  const LeaseTable& leases() const { return leases_; }
  const AllocationQueue& queue() const { return queue_; }
  const std::map<GroupId, std::unique_ptr<Group>>& groups() const { return groups_; }
  const std::map<FormingKey, Forming>& forming() const { return forming_; }
  const KeptWindows& kept_windows() const { return kept_windows_; }
  const Attachments& attachments() const { return attachments_; }
  uint32_t attachment_count(const Group& group, const Window& window) const;
  /// Whether the driver keeps who may only read from writing.
  bool is_enforced(Access access) const;
  /// Those that are kept, and those in use that will be: what limits.kept_windows limits.
  /// TenantId{}: of all.
  uint64_t kept_window_count(TenantId tenant = {}) const;
  uint32_t window_count() const;
  uint64_t slab_bytes(const Group& group, uint32_t rank) const;
  const BrokerOptions& options() const { return options_; }
  TimePoint now() const { return executor_.now(); }

  /// The daemon stops: every call in progress and every later one ends with UNAVAILABLE.
  void stop();

 private:
  struct Member {
    Group* group;
    Rank* rank;
  };
  absl::StatusOr<Member> find_member(const Session& session, GroupId group, uint32_t rank);
  absl::Status check_collective(const Member& member) const;
  absl::StatusOr<Milliseconds> check_timeout(Milliseconds timeout) const;

  absl::Status check_join(const JoinRequest& request) const;
  /// What of the request is filled in by the broker.
  absl::Status complete_join(const Session& session, JoinRequest* request) const;
  absl::StatusOr<LeaseId> find_lease(const Session& session, const JoinRequest& request) const;
  void form_group(const FormingKey& key);
  void finish_forming(const FormingKey& key, std::unique_ptr<Group> group,
                      absl::StatusOr<std::vector<SlabId>> control);
  absl::StatusOr<std::unique_ptr<Group>> make_group(const Forming& forming);

  /// What every member of a group that is complete is told.
  JoinResult join_result(const Group& group) const;
  static SlabSet control_set(std::vector<SlabId> ids, uint64_t control_bytes);

  void shrink_if_complete(Group& group);
  void excuse_from_shrink(Group& group, uint32_t rank);
  void finish_shrink(GroupId id, const std::vector<uint32_t>& survivors,
                     absl::StatusOr<std::vector<SlabId>> control);
  void end_shrink(Group& group, const absl::Status& status);
  /// The new group, with slabs and windows that are still the old one's.
  absl::StatusOr<std::unique_ptr<Group>> make_survivors(const Group& old,
                                                        const std::vector<uint32_t>& survivors,
                                                        std::vector<SlabId> control);
  absl::Status bring_windows(const Group& old, const std::vector<uint32_t>& survivors,
                             Group* group);
  void hand_over(Group& old, const std::vector<uint32_t>& survivors, Group& group);

  absl::StatusOr<std::vector<int>> drainable(const Session& session,
                                             const std::string& gpu_uuid) const;
  absl::Status check_serving(int gpu) const;
  void begin_drain(int gpu, Milliseconds deadline);
  void tell_draining(int gpu, bool holds);
  void revoke(int gpu);
  /// It is draining, and nothing is left there.
  bool is_drained_out(int gpu) const;
  void drop_kept_on(int gpu);
  void finish_drain(int gpu);
  void set_drained(int gpu);
  void end_forming(int gpu);
  /// " (pid 71, stopped by a signal: SIGCONT resumes it)", or nothing.
  std::string describe_missing(GroupId group, uint32_t rank) const;

  void restore_slabs(BrokerState* state);
  void restore_lease(Lease lease);
  void end_old_leases();
  void restore_drains(GpuDrains drains);
  void give_up_if_away(SessionId id);
  void set_out(Group& group, uint32_t rank, MemberState state);
  void abort_group(Group& group, uint64_t word, const std::string& reason, uint32_t rank);
  void end_calls(Group& group);
  void review_slabs(Group& group);
  void retire(Group& group);

  /// Soon, as one of the call's waiters may be what has just ended.
  template <typename Calls>
  void forget_if_idle(GroupId id, Calls Group::*calls, const typename Calls::key_type& key) {
    executor_.post([this, id, calls, key] {
      const auto group = groups_.find(id);
      if (group == groups_.end()) return;
      Calls& pending = (*group->second).*calls;
      const auto call = pending.find(key);
      if (call != pending.end() && call->second->is_idle()) pending.erase(call);
    });
  }

  /// Of a call that only operators may make: who did what to what, or tried to.
  void audit(const Session& session, const char* call, const std::string& object,
             const absl::Status& result);
  // Limits and quotas. Called right before what they are asked for begins, so that nothing comes
  // between.
  /// Whether the tenant may have that many more of the descriptors that can outlive the daemon.
  absl::Status check_kept(TenantId tenant, uint64_t more, const std::string& what) const;
  /// For an operator's session, too.
  absl::Status check_kept_session(const Identity& who) const;
  absl::Status check_all_kept(uint64_t more, bool is_operator, const std::string& what) const;
  /// Those of sessions, ranks and slabs, those in the making included. TenantId{}: of all.
  uint64_t descriptor_count(TenantId tenant) const;
  absl::Status check_another_group(TenantId tenant, const std::string& what) const;
  /// `was_kept`: it counts already as the tenant's.
  absl::Status check_another_window(const Group& group, const std::string& what,
                                    bool was_kept) const;
  /// `has_memory`: its slabs are there.
  absl::Status check_another_slab(const Group& group, const std::string& what,
                                  bool has_memory = false) const;
  /// `will_wait`: what the tenant waits for counts, too, so that it cannot stand in the way of
  /// others for more than it may have.
  absl::Status check_byte_quota(TenantId tenant, const std::vector<int>& gpus, uint64_t size_bytes,
                                bool will_wait) const;
  absl::Status check_lease(const Payer& payer, const std::vector<int>& gpus,
                           uint64_t size_bytes) const;
  // Memory for groups (broker_memory.cc).
  /// SlabTable::create() within the tenant's quota, out of the lease if there is one, else in turn
  /// if there is no room at once and a deadline until which it may wait.
  void create_slabs(Allocation wanted);
  /// That its GPUs serve, and the tenant's quota.
  absl::Status check_slabs(const Allocation& wanted, bool will_wait) const;
  bool has_room(const Allocation& wanted) const;
  bool may_wait(const Allocation& wanted) const;
  void try_driver(const AllocationQueue::Entry& entry);
  void finish_try(const AllocationQueue::Entry& entry, absl::StatusOr<std::vector<SlabId>> slabs);
  void wait_in_turn(const AllocationQueue::Entry& entry);
  void leave_queue(const Allocation& entry);
  void end_waits(GroupId group, const absl::Status& status);
  void serve_soon();
  void serve();
  /// A GPU, and of whom it is short: a tenant whose quota is nearly used, or TenantId{}: all.
  using Shortage = std::pair<int, TenantId>;
  std::set<Shortage> shortages() const;
  void review_pressure();
  void begin_pressure(const Shortage& shortage);
  void end_pressure(const Shortage& shortage);
  void record_pressure(const Shortage& shortage);
  void tell_pressure(const Group& group, Rank& rank);
  absl::Status no_room(const Allocation& wanted) const;
  /// What the tenant's processes have there; with `of_lease`, under that lease alone.
  std::map<int64_t, uint64_t> bytes_by_pid(TenantId tenant, int gpu, const Payer* of_lease) const;

  absl::StatusOr<Lease> make_lease(const LeaseRequest& request) const;
  /// RESOURCE_EXHAUSTED, for operators: who has how much of each GPU that has no room.
  absl::Status check_free(const Lease& lease) const;
  void close_lease(LeaseId id, const char* reason);

  struct Granted {
    const Group* group;
    const Window* window;
    Access access;
  };
  absl::Status check_grant(const Group& group, const Window& window,
                           const GrantRequest& request) const;
  absl::StatusOr<Granted> find_granted(const Session& session, const std::string& token) const;
  absl::StatusOr<const Attachment*> find_attachment(const Session& session, AttachmentId id) const;
  void end_attachment(AttachmentId id);
  void restore_attachments(BrokerState* state);
  /// Nobody of the slab's tenant has any use for it: freed, once nobody is attached to it. True:
  /// at once.
  bool free_slab(SlabId id);
  /// Freed, even if somebody is attached to it; what is mapped stays mapped, and charged as long as
  /// an attachment lasts, and what is returned.
  SlabTable::SharedCharge revoke_slab(SlabId id);
  /// What is held there for attachments alone.
  void revoke_attached(int gpu);

  /// One that the rank has not given up.
  static absl::StatusOr<Window*> find_window(const Member& member, uint32_t rank, WindowId id,
                                             uint64_t generation);
  absl::Status check_window(Group& group, const WindowRequest& request) const;
  void place_window(Group& group, const std::string& key);
  void grow_heap(Group& group, const std::string& key);
  struct HeapRange {  // Reserved in the slot.
    uint64_t offset;
    uint64_t size_bytes;
  };
  /// `size` bytes of memory for the range, or why there is none.
  void finish_growth(GroupId group, const std::string& key, HeapRange range, uint64_t size,
                     absl::StatusOr<std::vector<SlabId>> slabs);
  /// Whether, and how long, the call may wait for memory.
  TimePoint may_wait_until(const WindowCall& call) const;
  void import_external(Group& group, const std::string& key);
  /// For a window with a slab set of its own: of external memory, or one to be kept.
  void finish_own_slabs(GroupId group, const std::string& key, SlabSet set,
                        absl::StatusOr<std::vector<SlabId>> ids);
  void finish_window(Group& group, const std::string& key, Window window);
  void fail_window(Group& group, const std::string& key, const absl::Status& status);
  /// The call and its group, if both are still there after an answer that took time, and every rank
  /// still waits.
  WindowCall* resume(GroupId group, const std::string& key);
  void give_up(Group& group, Window& window, uint32_t rank);

  absl::Status check_keep(const Group& group, const WindowRequest& request) const;
  absl::Status check_another_kept(const Group& group, const std::string& what) const;
  void place_kept(Group& group, const std::string& key);
  void make_kept(Group& group, const std::string& key);
  void take_kept(Group& group, const std::string& key, const KeptWindow& kept);
  /// Nobody uses the window any more: its slabs leave the group, to be kept or, if they are not
  /// whole, freed.
  void keep_window(Group& group, const Window& window);
  /// After a process has exited: those it was the last that might touch.
  void keep_unused_windows(Group& group);
  void add_kept(KeptWindow window);
  Evicted drop_kept(WindowId id, const char* event);
  /// A failure for want of memory, with what the tenant could free.
  absl::Status mention_kept(absl::Status status, TenantId tenant,
                            const std::vector<int>& gpus) const;

  BrokerOptions options_;
  Executor& executor_;
  NoticeBoard& notices_;
  Journal& journal_;
  const Processes& processes_;
  Changes changes_;
  SessionTable sessions_;
  SlabTable slabs_;
  LeaseTable leases_;
  AllocationQueue queue_;
  struct Pressure {
    bool is_recorded = false;
    std::optional<TimerId> timer;  // Until it may be.
  };
  std::map<Shortage, Pressure> pressed_;
  std::map<Shortage, TimePoint> pressure_recorded_;  // Its beginning, last.
  bool will_serve_ = false;
  ExportDesk desk_;
  ExportDesk::MakeSecret make_secret_;
  std::map<GroupId, std::unique_ptr<Group>> groups_;
  std::map<FormingKey, Forming> forming_;
  KeptWindows kept_windows_;
  Attachments attachments_;
  uint64_t last_group_id_ = 0;
  uint64_t last_window_id_ = 0;
  uint64_t last_generation_ = 0;
  GpuDrains drains_;
  bool wants_restart_ = false;
  uint64_t last_attachment_id_ = 0;
  bool stopping_ = false;
};

}  // namespace cco::memd
