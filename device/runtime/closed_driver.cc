#include "device/runtime/closed_driver.h"

#include "absl/strings/str_cat.h"

namespace cco {
namespace {

class ClosedDriver final : public GpuDriver {
 public:
  explicit ClosedDriver(std::string name) : name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  std::string version() const override { return "not opened: every GPU is drained"; }
  std::string library() const override { return ""; }
  const std::vector<GpuDevice>& devices() const override { return none_; }

  absl::StatusOr<GpuMemory> allocate(int, uint64_t, MemoryKind) override { return closed(); }
  absl::StatusOr<UniqueFd> export_fd(const GpuMemory&) override { return closed(); }
  bool enforces_read_only() const override { return false; }  // Nobody has any memory of it.
  absl::StatusOr<UniqueFd> read_only_fd(BorrowedFd) override { return closed(); }
  absl::StatusOr<GpuMemory> import_fd(int, BorrowedFd, uint64_t) override { return closed(); }
  absl::StatusOr<VaRange> reserve(int, uint64_t, uint64_t) override { return closed(); }
  absl::StatusOr<GpuMapping> map(uint64_t, const GpuMemory&) override { return closed(); }
  absl::Status set_access(const GpuMapping&, int, Access) override { return closed(); }
  absl::StatusOr<std::unique_ptr<GpuContext>> open(int) override { return closed(); }

 private:
  absl::Status closed() const {
    return absl::UnavailableError(
        absl::StrCat("the ", name_, " driver is ", version(), "; `ccoctl undrain` opens it"));
  }
  void release(GpuAllocationId) noexcept override {}
  void free_range(uint64_t, uint64_t) noexcept override {}
  void unmap(uint64_t, uint64_t) noexcept override {}

  const std::string name_;
  const std::vector<GpuDevice> none_;
};

}  // namespace

std::unique_ptr<GpuDriver> make_closed_driver(std::string name) {
  return std::make_unique<ClosedDriver>(std::move(name));
}

}  // namespace cco
