#include "client/src/notice_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cco::client {

static_assert(sizeof(cco_notice_page) <= NoticePage::kBytes);

absl::StatusOr<NoticePage> NoticePage::map(UniqueFd fd) {
  struct stat facts {};
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (::fstat(fd.get(), &facts) != 0 || facts.st_size != kBytes || seals < 0 ||
      (seals & F_SEAL_SHRINK) == 0) {
    return absl::InternalError(absl::StrFormat(
        "the notice page that cco-memd sent has %d bytes and seals %#x; it should be %d bytes, "
        "sealed against shrinking",
        facts.st_size, seals, kBytes));
  }
  // Writable only because GPU drivers refuse to register read-only host memory.
  void* address = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mapping the notice page: ", std::strerror(errno)));
  }
  NoticePage page(UniqueMapping(Mapping{address, kBytes}));
  const uint32_t version = static_cast<const cco_notice_page*>(address)->abi_version;
  if (version != CCO_ABI_VERSION) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "cco-memd speaks ABI version %d, this library %d: install matching versions", version,
        CCO_ABI_VERSION));
  }
  return page;
}

uint64_t NoticePage::abort_word() const {
  const auto* page = static_cast<const cco_notice_page*>(mapping_.get().address);
  return __atomic_load_n(&page->abort_word, __ATOMIC_ACQUIRE);
}

uint32_t NoticePage::conditions() const {
  const auto* page = static_cast<const cco_notice_page*>(mapping_.get().address);
  return __atomic_load_n(&page->conditions, __ATOMIC_ACQUIRE);
}

}  // namespace cco::client
