#include "core/kv_pool.hpp"

#include <cstring>
#include <stdexcept>
#include <utility>

namespace ringline {

namespace {

constexpr int32_t kMaxLayers = 1024;
constexpr int32_t kMaxKvHeads = 1024;
constexpr int32_t kMaxHeadDim = 1024;

template <class Element>
void copy_lane(int64_t head_dim, const std::byte* from, int from_slot, std::byte* to, int to_slot) {
  const auto* source = reinterpret_cast<const Element*>(from) + from_slot;
  auto* target = reinterpret_cast<Element*>(to) + to_slot;
  for (int64_t d = 0; d < head_dim * kBlockTokens; d += kBlockTokens) target[d] = source[d];
}

void copy_scale(const Plane& plane, const std::byte* from, int from_slot, std::byte* to, int to_slot) {
  const int64_t scales = kv_scales_offset(plane.format, plane.head_dim);
  constexpr size_t kSize = sizeof(float);
  std::memcpy(to + scales + to_slot * kSize, from + scales + from_slot * kSize, kSize);
}

}  // namespace

KvFormat kv_format(std::string_view name) {
  if (name == "f16") return KvFormat::kF16;
  if (name == "int8") return KvFormat::kInt8;
  throw std::invalid_argument("K/V format '" + std::string(name) + "' is neither f16 nor int8");
}

std::string Plane::describe() const {
  return "(" + std::to_string(n_layer) + " layers, " + std::to_string(n_kv_head) + " kv heads, head size " +
         std::to_string(head_dim) + ", " + (format == KvFormat::kF16 ? "f16" : "int8") + ")";
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

void copy_position(const Plane& plane, const std::byte* from, int from_slot, std::byte* to, int to_slot) {
  const bool half = plane.format == KvFormat::kF16;
  const auto copy_key = half ? copy_lane<uint16_t> : copy_lane<int8_t>;
  const int64_t row = plane.head_dim * (half ? 2 : 1);
  for (int layer = 0; layer < plane.n_layer; ++layer) {
    for (int h = 0; h < plane.n_kv_head; ++h) {
      const int64_t k = plane.k_offset(layer, h);
      const int64_t v = plane.v_offset(layer, h);
      copy_key(plane.head_dim, from + k, from_slot, to + k, to_slot);
      std::memcpy(to + v + to_slot * row, from + v + from_slot * row, static_cast<size_t>(row));
      if (half) continue;
      copy_scale(plane, from + k, from_slot, to + k, to_slot);
      copy_scale(plane, from + v, from_slot, to + v, to_slot);
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
  if (reinterpret_cast<uintptr_t>(memory_) % alignof(float) != 0) {
    throw std::invalid_argument("the pool's buffer is not aligned to 4 bytes");
  }
  size_t offset = 0;
  for (const Plane& plane : planes_) {
    offsets_.push_back(offset);
    offset += static_cast<size_t>(plane.bytes());
  }
}

size_t KvPool::block_bytes(std::span<const Plane> planes) {
  if (planes.empty()) throw std::invalid_argument("a pool needs at least one plane");
  size_t bytes = 0;
  for (const Plane& plane : planes) {
    check_plane(plane);
    bytes += static_cast<size_t>(plane.bytes());
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
