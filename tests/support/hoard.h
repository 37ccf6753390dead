// All the memory of one GPU that a group of one can get, as a client finds it that speaks the
// protocol itself: libcco_client clears the control region before its caller sees it.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "client/src/connection.h"
#include "device/runtime/open_driver.h"
#include "tests/support/patience.h"
#include "tests/support/ranks.h"

namespace cco::test {

class Hoard {
 public:
  /// Of the first GPU that the daemon shows.
  static absl::StatusOr<std::unique_ptr<Hoard>> take(const std::string& socket_path) {
    std::unique_ptr<Hoard> hoard(new Hoard);
    CCO_ASSIGN_OR_RETURN(hoard->connection_, Connection::open(socket_path, patience()));
    CCO_RETURN_IF_ERROR(hoard->open_gpu());
    CCO_RETURN_IF_ERROR(hoard->join());
    CCO_RETURN_IF_ERROR(hoard->map_slab(0));  // The control region.
    CCO_RETURN_IF_ERROR(hoard->take_windows());
    return hoard;
  }
  ~Hoard() {
    if (chunk_address_ != 0) context_->unregister_host(chunk_.get().address);
  }

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Piece& piece : pieces_) sum += piece.mapping.size_bytes();
    return sum;
  }

  /// Every byte of it.
  absl::Status fill(uint8_t byte) {
    std::memset(chunk_.get().address, byte, kChunkBytes);
    return for_chunks([this](uint64_t address, uint64_t size_bytes) {
      return context_->copy_to_device(address, chunk_.get().address, size_bytes);
    });
  }

  /// DATA_LOSS says where the first byte is that is not zero, and what stands there.
  absl::Status expect_zero() {
    return for_chunks([this](uint64_t address, uint64_t size_bytes) -> absl::Status {
      CCO_RETURN_IF_ERROR(context_->copy_to_host(chunk_.get().address, address, size_bytes));
      const auto* const bytes = static_cast<const uint8_t*>(chunk_.get().address);
      if (bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size_bytes - 1) == 0) {
        return absl::OkStatus();
      }
      const uint8_t* const found =
          std::find_if(bytes, bytes + size_bytes, [](uint8_t byte) { return byte != 0; });
      return absl::DataLossError(absl::StrFormat("%#x at %#x, of %d bytes in all", *found,
                                                 address + (found - bytes), this->bytes()));
    });
  }

  absl::Status leave() {
    v1::LeaveGroupRequest request;
    request.set_request_id(new_request_id());
    request.set_group_id(group_id_);
    v1::LeaveGroupResponse response;
    return connection_->call(&Stub::LeaveGroup, request, &response, patience());
  }

 private:
  using Stub = v1::MemdService::Stub;
  static constexpr uint64_t kChunkBytes = uint64_t{16} << 20;
  static constexpr uint64_t kLargestWindow = uint64_t{1} << 30;

  struct Piece {  // In the reverse of this order it goes.
    GpuMemory memory;
    VaRange range;
    GpuMapping mapping;
  };

  Hoard() = default;

  absl::Status open_gpu() {
    v1::GetNodeResponse node;
    CCO_RETURN_IF_ERROR(connection_->call(&Stub::GetNode, v1::GetNodeRequest(), &node, patience()));
    gpu_ = node.gpus(0);
    DriverOptions options;
    CCO_ASSIGN_OR_RETURN(options.kind, parse_driver_kind(node.driver()));
    CCO_ASSIGN_OR_RETURN(driver_, open_driver(options));
    const std::vector<GpuDevice>& devices = driver_->devices();
    const auto found =
        std::find_if(devices.begin(), devices.end(),
                     [this](const GpuDevice& device) { return device.uuid == gpu_.uuid(); });
    if (found == devices.end()) return absl::NotFoundError("this process sees no " + gpu_.uuid());
    device_ = static_cast<int>(found - devices.begin());
    CCO_ASSIGN_OR_RETURN(context_, driver_->open(device_));
    void* const address =
        ::mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return absl::ErrnoToStatus(errno, "mapping a chunk");
    chunk_.reset({address, kChunkBytes});
    // Copies from and to registered memory are several times faster.
    CCO_ASSIGN_OR_RETURN(chunk_address_, context_->register_host(address, kChunkBytes));
    return absl::OkStatus();
  }

  absl::Status join() {
    v1::JoinGroupRequest request;
    request.set_request_id(new_request_id());
    request.set_name("hoard");
    request.set_size(1);
    request.set_gpu_uuid(gpu_.uuid());
    v1::JoinGroupResponse joined;
    CCO_RETURN_IF_ERROR(connection_->call(&Stub::JoinGroup, request, &joined, patience()));
    group_id_ = joined.group_id();
    return absl::OkStatus();
  }

  // Large windows, a slab for each, then what is left in smaller and smaller ones.
  absl::Status take_windows() {
    uint64_t size_bytes = kLargestWindow;  // Few: each has a descriptor in the control region.
    while (size_bytes >= gpu_.granularity_bytes()) {
      v1::CreateWindowRequest request;
      request.set_request_id(new_request_id());
      request.set_group_id(group_id_);
      request.set_sequence(window_count_);
      request.set_size_bytes(size_bytes);
      request.set_placement(v1::PLACEMENT_HEAP);
      v1::CreateWindowResponse window;
      const absl::Status status =
          connection_->call(&Stub::CreateWindow, request, &window, patience());
      if (status.ok()) {
        ++window_count_;
        if (slabs_.count(window.slab_index()) == 0) {
          CCO_RETURN_IF_ERROR(map_slab(window.slab_index()));
        }
      } else if (absl::IsResourceExhausted(status)) {
        size_bytes /= 2;
      } else {
        return status;
      }
    }
    return absl::OkStatus();
  }

  absl::Status map_slab(uint32_t index) {
    v1::ExportSlabsRequest request;
    request.set_request_id(new_request_id());
    request.set_group_id(group_id_);
    request.set_slab_index(index);
    v1::ExportSlabsResponse exports;
    CCO_RETURN_IF_ERROR(connection_->call(&Stub::ExportSlabs, request, &exports, patience()));
    const v1::SlabExport& slab = exports.exports(0);
    CCO_ASSIGN_OR_RETURN(const UniqueFd fd, connection_->redeem(slab.ticket()));
    Piece piece;
    CCO_ASSIGN_OR_RETURN(piece.memory, driver_->import_fd(device_, fd, slab.size_bytes()));
    CCO_ASSIGN_OR_RETURN(piece.range,
                         driver_->reserve(device_, slab.size_bytes(), gpu_.granularity_bytes()));
    CCO_ASSIGN_OR_RETURN(piece.mapping, driver_->map(piece.range.address(), piece.memory));
    CCO_RETURN_IF_ERROR(driver_->set_access(piece.mapping, device_, Access::kReadWrite));
    pieces_.push_back(std::move(piece));
    slabs_.insert(index);
    return absl::OkStatus();
  }

  template <typename Visit>
  absl::Status for_chunks(Visit visit) {
    for (const Piece& piece : pieces_) {
      const uint64_t size_bytes = piece.mapping.size_bytes();
      for (uint64_t at = 0; at < size_bytes; at += kChunkBytes) {
        CCO_RETURN_IF_ERROR(
            visit(piece.mapping.address() + at, std::min(kChunkBytes, size_bytes - at)));
      }
    }
    return absl::OkStatus();
  }

  std::unique_ptr<Connection> connection_;
  v1::Gpu gpu_;
  std::unique_ptr<GpuDriver> driver_;
  int device_ = 0;
  std::unique_ptr<GpuContext> context_;
  UniqueMapping chunk_;
  uint64_t chunk_address_ = 0;
  uint64_t group_id_ = 0;
  uint64_t window_count_ = 0;
  std::set<uint32_t> slabs_;
  std::vector<Piece> pieces_;
};

/// A rank that has all memory of the GPU, says how many bytes, marks every one, and says so; leaves
/// when it is told something.
inline void plant_in_hoard(Rank& rank) {
  auto hoard = Hoard::take(rank.socket_path);
  ASSERT_TRUE(hoard.ok()) << hoard.status();
  rank.say(std::to_string((*hoard)->bytes()));
  const absl::Status filled = (*hoard)->fill(0xa5);
  EXPECT_TRUE(filled.ok()) << filled;
  EXPECT_FALSE((*hoard)->expect_zero().ok()) << "whoever looks would see nothing";
  rank.say("planted");
  rank.hear();
  const absl::Status left = (*hoard)->leave();
  EXPECT_TRUE(left.ok()) << left;
}

/// A rank that gets all memory, says how many bytes, expects that every one is zero, and leaves.
inline void look_into_hoard(Rank& rank) {
  auto hoard = Hoard::take(rank.socket_path);
  ASSERT_TRUE(hoard.ok()) << hoard.status();
  rank.say(std::to_string((*hoard)->bytes()));
  const absl::Status zero = (*hoard)->expect_zero();
  EXPECT_TRUE(zero.ok()) << zero;
  const absl::Status left = (*hoard)->leave();
  EXPECT_TRUE(left.ok()) << left;
}

}  // namespace cco::test
