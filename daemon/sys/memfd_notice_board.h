// Notice pages as sealed memfds.
#pragma once

#include "daemon/ports/notice_board.h"

namespace cco::memd {

class MemfdNoticeBoard final : public NoticeBoard {
 public:
  absl::StatusOr<std::unique_ptr<NoticePage>> create_page(uint32_t world_size) override;
  absl::StatusOr<std::unique_ptr<NoticePage>> adopt_page(UniqueFd fd) override;
};

}  // namespace cco::memd
