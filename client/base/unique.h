// Move-only owner of one operating-system or driver handle.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

namespace cco {

/// Traits: Handle, invalid(), destroy(Handle) noexcept.
template <typename Traits>
class Unique {
 public:
  using Handle = typename Traits::Handle;

  Unique() = default;
  explicit Unique(Handle handle) noexcept : handle_(handle) {}
  Unique(Unique&& other) noexcept : handle_(other.release()) {}
  Unique& operator=(Unique&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Unique() { reset(); }

  explicit operator bool() const noexcept { return handle_ != Traits::invalid(); }
  Handle get() const noexcept { return handle_; }
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Traits::invalid()); }
  void reset(Handle next = Traits::invalid()) noexcept {
    if (Handle old = std::exchange(handle_, next); old != Traits::invalid()) Traits::destroy(old);
  }

 private:
  Handle handle_ = Traits::invalid();
};

struct FdTraits {
  using Handle = int;
  static constexpr int invalid() { return -1; }
  static void destroy(int fd) noexcept { ::close(fd); }
};
using UniqueFd = Unique<FdTraits>;

/// A mapped range of this process's address space.
struct Mapping {
  void* address = nullptr;
  size_t size_bytes = 0;
  friend bool operator==(const Mapping&, const Mapping&) = default;
};
struct MappingTraits {
  using Handle = Mapping;
  static Mapping invalid() { return {}; }
  static void destroy(Mapping mapping) noexcept { ::munmap(mapping.address, mapping.size_bytes); }
};
using UniqueMapping = Unique<MappingTraits>;

/// A copyable view of an fd that somebody else owns for at least the duration of the call.
class BorrowedFd {
 public:
  BorrowedFd(const UniqueFd& owner) : fd_(owner.get()) {}  // NOLINT: implicit on purpose
  explicit BorrowedFd(int fd) : fd_(fd) {}
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace cco
