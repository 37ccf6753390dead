// Tickets and offers: how a call on the RPC channel names an fd that travels on the fd channel.
// Both are secret, belong to one session, work once, and run out. A ticket belongs to one of its
// ranks or attachments, and is void once that has ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/base/unique.h"
#include "daemon/core/ids.h"
#include "daemon/core/limits.h"
#include "daemon/core/slab_table.h"
#include "daemon/ports/executor.h"
#include "daemon/ports/notice_board.h"

namespace cco::memd {

class ExportDesk {
 public:
  using MakeSecret = absl::AnyInvocable<std::string()>;

  ExportDesk(Executor& executor, const SlabTable& slabs, const Limits& limits,
             Milliseconds lifetime, MakeSecret make_secret)
      : executor_(executor),
        slabs_(slabs),
        limits_(limits),
        lifetime_(lifetime),
        make_secret_(std::move(make_secret)) {}

  /// By an fd that nobody can write through.
  struct ReadOnlySlab {
    SlabId id;
  };
  /// What a ticket stands for: a slab's memory, or a notice page.
  using Goods = std::variant<SlabId, ReadOnlySlab, std::shared_ptr<NoticePage>>;

  /// A rank of a group, or an attachment, which is the session's.
  struct Holder {
    SessionId session{};
    GroupId group{};
    uint32_t rank = 0;
    AttachmentId attachment{};
    friend bool operator==(const Holder&, const Holder&) = default;
  };

  /// RESOURCE_EXHAUSTED: limits.tickets_per_session.
  absl::StatusOr<std::string> issue(const Holder& holder, Goods goods);
  /// Uses a ticket up. NOT_FOUND alike for one that never was, was used, ran out, or is another
  /// session's. The fd stays the owner's and must be sent before anything else happens.
  absl::StatusOr<const UniqueFd*> redeem(SessionId session, const std::string& ticket);

  /// Takes an fd in. RESOURCE_EXHAUSTED as above.
  absl::StatusOr<std::string> take_offer(SessionId session, UniqueFd fd);
  /// Uses an offer up. NOT_FOUND as for tickets.
  absl::StatusOr<UniqueFd> claim_offer(SessionId session, const std::string& offer);

  /// Voids all that a session has.
  void forget(SessionId session);
  /// Voids the tickets that a rank or an attachment has: what it leaves it must not fetch any more.
  void forget(const Holder& holder);
  /// The same for slabs that leave a group, whose ranks' tickets these are.
  void forget(GroupId group, const std::vector<SlabId>& slabs);
  uint32_t count(SessionId session) const;
  Milliseconds lifetime() const { return lifetime_; }

 private:
  struct Entry {
    Holder holder;  // Of an offer: its session alone.
    std::variant<Goods, UniqueFd> content;
    TimerId timer;
  };
  absl::StatusOr<std::string> add(const Holder& holder, std::variant<Goods, UniqueFd> content);
  absl::StatusOr<std::variant<Goods, UniqueFd>> take(SessionId session, const std::string& secret,
                                                     bool offer);
  void erase(const std::string& secret);
  void erase_if(absl::FunctionRef<bool(const Entry&)> is_void);

  Executor& executor_;
  const SlabTable& slabs_;
  const Limits& limits_;
  Milliseconds lifetime_;
  MakeSecret make_secret_;
  std::unordered_map<std::string, Entry> entries_;
  std::map<SessionId, uint32_t> counts_;
  // Keep the fd that redeem() returned alive until it is sent; given up by the next task.
  std::shared_ptr<NoticePage> last_page_;
  UniqueFd last_fd_;
};

}  // namespace cco::memd
