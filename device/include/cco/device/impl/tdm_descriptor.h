// The descriptor of gfx1250's tensor instructions, encoded by pure functions. Fields: LLVM's and
// Triton's public sources (third_party/amd/lib/TritonAMDGPUToLLVM/TDMUtility.cpp). Sizes are in
// elements, dimension 0 is innermost with stride 1, and unused dimensions are zero.
#pragma once

#include "cco/device/impl/tdm_tile.h"

namespace cco::device::impl {

struct TdmGroup0 {
  uint32_t dword[4];
};
struct TdmGroup1 {
  uint32_t dword[8];
};

/// Where one transfer goes: `shared` is a byte address in LDS, `global` has 57 bits. A transfer
/// that is not enabled moves nothing and still counts.
CCO_HOST_DEVICE constexpr TdmGroup0 encode_tdm_group0(bool enabled, uint32_t shared,
                                                      uint64_t global) {
  constexpr uint32_t kImageType = 2;
  const uint32_t global_high = static_cast<uint32_t>(global >> 32) & 0x1ffffffu;
  return TdmGroup0{
      {enabled ? 1u : 0u, shared, static_cast<uint32_t>(global), global_high | kImageType << 30}};
}

/// The shape of one transfer.
struct TdmShape {
  uint32_t element_log2;  ///< Bytes per element: 0, 1, 2.
  uint32_t tensor[2];     ///< Elements from here to the tensor's end; beyond it nothing is moved.
  uint32_t tile[3];       ///< 16 bits each.
  uint64_t stride[2];     ///< Of dimensions 1 and 2, 48 bits each.
  bool pad;               ///< Loads leave gaps in LDS:
  uint32_t pad_interval;  ///< after 2^(interval + 1) dwords,
  uint32_t pad_amount;    ///< amount + 1 dwords.
};

CCO_HOST_DEVICE constexpr TdmGroup1 encode_tdm_group1(const TdmShape& shape) {
  const uint32_t stride0_high = static_cast<uint32_t>(shape.stride[0] >> 32) & 0xffffu;
  return TdmGroup1{{shape.element_log2 << 16 | (shape.pad ? 1u << 20 : 0u) |
                        shape.pad_interval << 22 | shape.pad_amount << 25,
                    shape.tensor[0] << 16, shape.tensor[0] >> 16 | shape.tensor[1] << 16,
                    shape.tensor[1] >> 16 | shape.tile[0] << 16,
                    shape.tile[1] | shape.tile[2] << 16, static_cast<uint32_t>(shape.stride[0]),
                    stride0_high | static_cast<uint32_t>(shape.stride[1]) << 16,
                    static_cast<uint32_t>(shape.stride[1] >> 16)}};
}

/// A tile as a tensor of 4-byte elements that ends where the tile ends. One row has one dimension:
/// tiles of two need at least two of each.
CCO_HOST_DEVICE constexpr TdmShape shape_of(const TdmTile& tile) {
  const uint32_t elements = tile.row_bytes / 4;
  const bool flat = tile.rows <= 1;
  return TdmShape{2,
                  {elements, flat ? 0 : tile.rows},
                  {elements, flat ? 0 : tile.rows, 0},
                  {flat ? 0 : tile.stride_bytes / 4, 0},
                  false,
                  0,
                  0};
}

}  // namespace cco::device::impl
