#include "daemon/sys/memfd_notice_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cco/device/abi.h"
#include "client/base/status_macros.h"

namespace cco::memd {
namespace {

class MemfdNoticePage final : public NoticePage {
 public:
  MemfdNoticePage(UniqueFd fd, UniqueMapping mapping)
      : fd_(std::move(fd)), mapping_(std::move(mapping)) {}

  void begin(uint32_t world_size) {
    page()->abi_version = CCO_ABI_VERSION;
    page()->world_size = world_size;
  }
  const UniqueFd& fd() const override { return fd_; }

  void set_rank_out(uint32_t rank, uint64_t epoch) override {
    __atomic_fetch_or(&page()->lost_ranks[rank / 64], uint64_t{1} << (rank % 64), __ATOMIC_RELEASE);
    __atomic_store_n(&page()->epoch, epoch, __ATOMIC_RELEASE);
  }
  void set_abort(uint64_t abort_word) override {
    __atomic_store_n(&page()->abort_word, abort_word, __ATOMIC_RELEASE);
  }
  void set_condition(uint32_t bits, bool holds) override {
    if (holds) {
      __atomic_fetch_or(&page()->conditions, bits, __ATOMIC_RELEASE);
    } else {
      __atomic_fetch_and(&page()->conditions, ~bits, __ATOMIC_RELEASE);
    }
  }

 private:
  cco_notice_page* page() { return static_cast<cco_notice_page*>(mapping_.get().address); }

  UniqueFd fd_;
  UniqueMapping mapping_;
};

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

absl::StatusOr<std::unique_ptr<MemfdNoticePage>> map_page(UniqueFd fd) {
  const size_t size = page_bytes();
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("map a notice page: ", std::strerror(errno)));
  }
  return std::make_unique<MemfdNoticePage>(std::move(fd), UniqueMapping({address, size}));
}

}  // namespace

absl::StatusOr<std::unique_ptr<NoticePage>> MemfdNoticeBoard::create_page(uint32_t world_size) {
  const size_t size = page_bytes();
  UniqueFd fd(::memfd_create("cco-notice", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Sealed before it leaves: a client's ftruncate would otherwise end the daemon by SIGBUS.
  if (!fd || ::ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memfd for a notice page: ", std::strerror(errno),
                     errno == EMFILE ? ". cco-memd has no file descriptor left; raise LimitNOFILE, "
                                       "or end some groups"
                                     : ""));
  }
  CCO_ASSIGN_OR_RETURN(std::unique_ptr<MemfdNoticePage> page, map_page(std::move(fd)));
  page->begin(world_size);
  return page;
}

absl::StatusOr<std::unique_ptr<NoticePage>> MemfdNoticeBoard::adopt_page(UniqueFd fd) {
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0 || facts.st_size < static_cast<off_t>(page_bytes())) {
    return absl::InternalError("what the vault holds as a notice page is none");
  }
  return map_page(std::move(fd));
}

}  // namespace cco::memd
