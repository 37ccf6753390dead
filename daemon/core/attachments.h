// Who maps windows of groups that it is not of, by another tenant's grant. Knows whose slabs those
// are, and which of them have no other owner left; the memory is the slab table's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "daemon/core/ids.h"
#include "daemon/core/slab_table.h"
#include "daemon/ports/identity.h"
#include "device/runtime/gpu_driver.h"

namespace cco::memd {

struct Attachment {
  AttachmentId id{};
  SessionId session{};
  Identity owner;  // Rank 0 of the window's group: after a restart, who pays is found anew from it.
  Access access = Access::kReadOnly;
  uint64_t size_bytes = 0;                       // Of the window, per rank.
  std::vector<SlabId> slabs;                     // By rank. 0: it is gone.
  std::vector<SlabTable::SharedCharge> revoked;  // Of those, as long as it lasts. Not recorded.
};

class Attachments {
 public:
  void add(Attachment attachment);
  /// Ends one that is there. Returns the slabs that nobody has any use for now.
  std::vector<SlabId> remove(AttachmentId id);

  /// A slab's owner lets go of it. False: nobody is attached to it, and it can be freed. True:
  /// remove() will say when.
  bool inherit(SlabId slab);
  /// A slab is freed in any case, and stays charged to whom it was. Returns whose it was.
  std::vector<AttachmentId> lose(SlabId slab, const SlabTable::SharedCharge& charge);
  /// Those that have no other owner.
  const std::set<SlabId>& inherited() const { return inherited_; }

  /// Null: there is none.
  const Attachment* find(AttachmentId id) const;
  const std::map<AttachmentId, Attachment>& all() const { return attachments_; }
  uint32_t count(SlabId slab) const;

 private:
  std::map<AttachmentId, Attachment> attachments_;
  std::map<SlabId, uint32_t> counts_;
  std::set<SlabId> inherited_;
};

}  // namespace cco::memd
