#include "daemon/core/export_desk.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/base/status_macros.h"

namespace cco::memd {

absl::StatusOr<std::string> ExportDesk::add(const Holder& holder,
                                            std::variant<Goods, UniqueFd> content) {
  uint32_t& mine = counts_[holder.session];
  if (mine >= limits_.tickets_per_session) {
    return over_limit(
        "tickets_per_session", limits_.tickets_per_session,
        absl::StrCat("this process has ", mine, " tickets and offers that were never used"));
  }
  ++mine;
  std::string secret = make_secret_();
  const TimerId timer =
      executor_.call_at(executor_.now() + lifetime_, [this, secret] { erase(secret); });
  entries_.emplace(secret, Entry{holder, std::move(content), timer});
  return secret;
}

void ExportDesk::erase(const std::string& secret) {
  const auto found = entries_.find(secret);
  CCO_ASSERT(found != entries_.end());
  executor_.cancel(found->second.timer);
  const auto count = counts_.find(found->second.holder.session);
  if (--count->second == 0) counts_.erase(count);
  entries_.erase(found);
}

absl::StatusOr<std::variant<ExportDesk::Goods, UniqueFd>> ExportDesk::take(
    SessionId session, const std::string& secret, bool offer) {
  const auto found = entries_.find(secret);
  if (found == entries_.end() || found->second.holder.session != session ||
      std::holds_alternative<UniqueFd>(found->second.content) != offer) {
    return absl::NotFoundError(absl::StrCat(
        "no such ", offer ? "offer" : "ticket", " for this process: each works once, within ",
        lifetime_.count(), " ms, for the process it was made for. Ask for a fresh one"));
  }
  std::variant<Goods, UniqueFd> content = std::move(found->second.content);
  erase(secret);
  return content;
}

absl::StatusOr<std::string> ExportDesk::issue(const Holder& holder, Goods goods) {
  return add(holder, std::move(goods));
}

absl::StatusOr<const UniqueFd*> ExportDesk::redeem(SessionId session, const std::string& ticket) {
  CCO_ASSIGN_OR_RETURN(auto content, take(session, ticket, /*offer=*/false));
  Goods& goods = std::get<Goods>(content);
  if (auto* page = std::get_if<std::shared_ptr<NoticePage>>(&goods)) {
    last_page_ = std::move(*page);
    executor_.post([this] { last_page_.reset(); });
    return &last_page_->fd();
  }
  const auto* read_only = std::get_if<ReadOnlySlab>(&goods);
  const UniqueFd* fd = slabs_.fd(read_only != nullptr ? read_only->id : std::get<SlabId>(goods));
  if (fd == nullptr)
    return absl::NotFoundError("the slab of this ticket has been freed: its group has ended");
  if (read_only == nullptr) return fd;
  CCO_ASSIGN_OR_RETURN(last_fd_, slabs_.read_only_fd(*fd));
  executor_.post([this] { last_fd_.reset(); });
  return &last_fd_;
}

absl::StatusOr<std::string> ExportDesk::take_offer(SessionId session, UniqueFd fd) {
  return add({session}, std::move(fd));
}

absl::StatusOr<UniqueFd> ExportDesk::claim_offer(SessionId session, const std::string& offer) {
  CCO_ASSIGN_OR_RETURN(auto content, take(session, offer, /*offer=*/true));
  return std::get<UniqueFd>(std::move(content));
}

void ExportDesk::forget(SessionId session) {
  erase_if([&](const Entry& entry) { return entry.holder.session == session; });
}

void ExportDesk::forget(const Holder& holder) {
  erase_if([&](const Entry& entry) { return entry.holder == holder; });
}

void ExportDesk::forget(GroupId group, const std::vector<SlabId>& slabs) {
  erase_if([&](const Entry& entry) {
    if (entry.holder.group != group) return false;
    const auto* goods = std::get_if<Goods>(&entry.content);
    const auto* slab = goods == nullptr ? nullptr : std::get_if<SlabId>(goods);
    return slab != nullptr && std::find(slabs.begin(), slabs.end(), *slab) != slabs.end();
  });
}

void ExportDesk::erase_if(absl::FunctionRef<bool(const Entry&)> is_void) {
  std::vector<std::string> found;
  for (const auto& [secret, entry] : entries_) {
    if (is_void(entry)) found.push_back(secret);
  }
  for (const std::string& secret : found) erase(secret);
}

uint32_t ExportDesk::count(SessionId session) const {
  const auto found = counts_.find(session);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace cco::memd
