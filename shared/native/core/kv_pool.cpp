#include "core/kv_pool.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace ringline {

namespace {

constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kMaxKvHeads = 1024;
constexpr int32_t kMaxHeadDim = 1024;

}  // namespace

std::string Plane::describe() const {
  return "(" + std::to_string(n_layer) + " layers, " + std::to_string(n_kv_head) + " kv heads, head size " +
         std::to_string(head_dim) + ")";
}

void check_plane(const Plane& plane) {
  const bool sane = plane.n_layer >= 1 && plane.n_layer <= kMaxLayers && plane.n_kv_head >= 1 &&
                    plane.n_kv_head <= kMaxKvHeads && plane.head_dim >= 32 && plane.head_dim <= kMaxHeadDim &&
                    plane.head_dim % 32 == 0;
  if (!sane) {
    throw std::invalid_argument(
        "K/V geometry " + plane.describe() +
        " is not supported: head size must be a multiple of 32, all counts 1 to 1024");
  }
}

void copy_position(const Plane& plane, const uint16_t* from, int from_slot, uint16_t* to, int to_slot) {
  const int64_t head = plane.head_elements();
  for (int layer = 0; layer < plane.n_layer; ++layer) {
    for (int h = 0; h < plane.n_kv_head; ++h) {
      const int64_t k = plane.k_offset(layer, h);
      for (int64_t d = 0; d < head; d += kBlockTokens) to[k + d + to_slot] = from[k + d + from_slot];
      const int64_t v = plane.v_offset(layer, h);
      std::memcpy(to + v + int64_t{to_slot} * plane.head_dim, from + v + int64_t{from_slot} * plane.head_dim,
                  sizeof(uint16_t) * plane.head_dim);
    }
  }
}

KvPool::KvPool(std::span<std::byte> memory, int32_t n_blocks, std::vector<Plane> planes,
               std::shared_ptr<const void> owner)
    : memory_(memory.data()),
      n_blocks_(n_blocks),
      planes_(std::move(planes)),
      stride_(block_bytes(planes_)),
      owner_(std::move(owner)) {
  if (n_blocks < 1)
    throw std::invalid_argument("a pool needs at least one block, not " + std::to_string(n_blocks));
  const size_t need = stride_ * static_cast<size_t>(n_blocks);
  if (memory.size() < need) {
    throw std::invalid_argument("a pool of " + std::to_string(n_blocks) + " blocks needs " +
                                std::to_string(need) + " bytes, the buffer has " +
                                std::to_string(memory.size()));
  }
  if (reinterpret_cast<uintptr_t>(memory_) % alignof(uint16_t) != 0) {
    throw std::invalid_argument("the pool's buffer is not aligned to 2 bytes");
  }
  size_t offset = 0;
  for (const Plane& plane : planes_) {
    offsets_.push_back(offset);
    offset += sizeof(uint16_t) * static_cast<size_t>(plane.elements());
  }
}

size_t KvPool::block_bytes(std::span<const Plane> planes) {
  if (planes.empty()) throw std::invalid_argument("a pool needs at least one plane");
  size_t bytes = 0;
  for (const Plane& plane : planes) {
    check_plane(plane);
    bytes += sizeof(uint16_t) * static_cast<size_t>(plane.elements());
  }
  return bytes;
}

void KvPool::copy_block(int32_t source, int32_t target) {
  if (!holds(source) || !holds(target)) {
    throw std::invalid_argument("cannot copy block " + std::to_string(source) + " to " +
                                std::to_string(target) + ": the pool has blocks 0 to " +
                                std::to_string(n_blocks_ - 1));
  }
  if (source == target) return;
  std::memcpy(memory_ + static_cast<size_t>(target) * stride_,
              memory_ + static_cast<size_t>(source) * stride_, stride_);
}

}  // namespace ringline
