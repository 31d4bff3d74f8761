// Blocks of the shared K/V pool: the one description of what a block looks like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ringline {

inline constexpr int kBlockTokens = 16;  // positions of a block: the lanes of one 512-bit register of floats

// One model's share of a block. All elements are IEEE half precision, kept as uint16_t:
//
//   block  = plane 0 | plane 1 | ...
//   plane  = layer 0 [K | V] | layer 1 [K | V] | ...
//   K      = [kv_head][head_dim][16]     16 positions are 16 lanes: scores need no horizontal sums
//   V      = [kv_head][16][head_dim]     one position is one run of lanes: outputs need none either
struct Plane {
  int32_t n_layer = 0;
  int32_t n_kv_head = 0;
  int32_t head_dim = 0;

  bool operator==(const Plane&) const = default;
  // Elements of one head's K (or V) of one block, of one layer, of the plane.
  int64_t head_elements() const { return int64_t{kBlockTokens} * head_dim; }
  int64_t layer_elements() const { return 2 * n_kv_head * head_elements(); }
  int64_t elements() const { return n_layer * layer_elements(); }
  // Offset of one head's K; its V lies n_kv_head * head_elements() behind.
  int64_t k_offset(int layer, int kv_head) const {
    return layer * layer_elements() + kv_head * head_elements();
  }
  int64_t v_offset(int layer, int kv_head) const {
    return k_offset(layer, kv_head) + n_kv_head * head_elements();
  }
  std::string describe() const;
};

// Throws std::invalid_argument for a geometry that the kernels do not take.
void check_plane(const Plane& plane);
// Copy one position (K and V of all layers) between two blocks' planes.
void copy_position(const Plane& plane, const uint16_t* from, int from_slot, uint16_t* to, int to_slot);

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
  uint16_t* block_plane(int32_t block, size_t plane) const {
    return reinterpret_cast<uint16_t*>(memory_ + static_cast<size_t>(block) * stride_ + offsets_[plane]);
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
