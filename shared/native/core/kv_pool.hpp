// Blocks of the shared K/V pool: the one description of what a block looks like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kv_format.hpp"

namespace ringline {

// One model's share of a block:
//
//   block  = plane 0 | plane 1 | ...
//   plane  = layer 0 [K | V] | layer 1 [K | V] | ...
//   K      = head 0 | head 1 | ...    each [head_dim][16]: 16 positions are 16 lanes, no horizontal sums
//   V      = head 0 | head 1 | ...    each [16][head_dim]: a position is one run of lanes, none here either
//
//   f16    every number in IEEE half precision
//   int8   every head | 16 * head_dim x int8 | 16 x float32 scale of a position | : number = int8 * scale
//
// A head's size is a multiple of 64 bytes in both, so none shares a cache line with another.
struct Plane {
  int32_t n_layer = 0;
  int32_t n_kv_head = 0;
  int32_t head_dim = 0;
  KvFormat format = KvFormat::kF16;

  bool operator==(const Plane&) const = default;
  // Bytes of one head's K (or V) of one block, of one layer, of the plane.
  int64_t head_bytes() const { return kv_head_bytes(format, head_dim); }
  int64_t layer_bytes() const { return 2 * n_kv_head * head_bytes(); }
  int64_t bytes() const { return n_layer * layer_bytes(); }
  // Of one head's K and V, from the plane's start.
  int64_t k_offset(int layer, int kv_head) const { return layer * layer_bytes() + kv_head * head_bytes(); }
  int64_t v_offset(int layer, int kv_head) const {
    return k_offset(layer, kv_head) + n_kv_head * head_bytes();
  }
  std::string describe() const;
};

// "f16" or "int8"; throws std::invalid_argument for anything else.
KvFormat kv_format(std::string_view name);
// Throws std::invalid_argument for a geometry that the kernels do not take.
void check_plane(const Plane& plane);
// Copy one position (K and V of all layers) between two blocks' planes.
void copy_position(const Plane& plane, const std::byte* from, int from_slot, std::byte* to, int to_slot);

class KvPool {
 public:
  // `owner` keeps `memory` alive. Throws std::invalid_argument when it is too small.
  KvPool(std::span<std::byte> memory, int32_t n_blocks, std::vector<Plane> planes,
         std::shared_ptr<const void> owner);

  static size_t block_bytes(std::span<const Plane> planes);
  int32_t n_blocks() const { return n_blocks_; }
  size_t n_planes() const { return planes_.size(); }
  const Plane& plane(size_t index) const { return planes_[index]; }
  bool holds(int32_t block) const { return block >= 0 && block < n_blocks_; }
  // The block must exist; callers check with holds().
  std::byte* block_plane(int32_t block, size_t plane) const {
    return memory_ + static_cast<size_t>(block) * stride_ + offsets_[plane];
  }
  void copy_block(int32_t source, int32_t target);

 private:
  std::byte* memory_;
  int32_t n_blocks_;
  std::vector<Plane> planes_;
  std::vector<size_t> offsets_;  // of each plane in a block, bytes
  size_t stride_;
  std::shared_ptr<const void> owner_;
};

}  // namespace ringline
