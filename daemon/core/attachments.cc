#include "daemon/core/attachments.h"

#include <utility>

#include "client/base/status_macros.h"

namespace cco::memd {

void Attachments::add(Attachment attachment) {
  for (const SlabId slab : attachment.slabs) {
    if (slab != SlabId{}) ++counts_[slab];
  }
  const AttachmentId id = attachment.id;
  CCO_ASSERT(attachments_.emplace(id, std::move(attachment)).second);
}

std::vector<SlabId> Attachments::remove(AttachmentId id) {
  const auto node = attachments_.extract(id);
  CCO_ASSERT(!node.empty());
  std::vector<SlabId> unused;
  for (const SlabId slab : node.mapped().slabs) {
    if (slab == SlabId{}) continue;
    const auto count = counts_.find(slab);
    if (--count->second != 0) continue;
    counts_.erase(count);
    if (inherited_.erase(slab) != 0) unused.push_back(slab);
  }
  return unused;
}

bool Attachments::inherit(SlabId slab) {
  if (count(slab) == 0) return false;
  inherited_.insert(slab);
  return true;
}

std::vector<AttachmentId> Attachments::lose(SlabId slab, const SlabTable::SharedCharge& charge) {
  std::vector<AttachmentId> losers;
  for (auto& [id, attachment] : attachments_) {
    for (SlabId& one : attachment.slabs) {
      if (one != slab) continue;
      one = SlabId{};
      attachment.revoked.push_back(charge);
      losers.push_back(id);
    }
  }
  counts_.erase(slab);
  inherited_.erase(slab);
  return losers;
}

const Attachment* Attachments::find(AttachmentId id) const {
  const auto found = attachments_.find(id);
  return found == attachments_.end() ? nullptr : &found->second;
}

uint32_t Attachments::count(SlabId slab) const {
  const auto found = counts_.find(slab);
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace cco::memd
