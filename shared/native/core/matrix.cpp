#include "core/matrix.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

#include "core/block.hpp"
#include "core/half.hpp"
#include "core/layout.hpp"

namespace ringline {
namespace {

constexpr size_t kAlign = 64;

size_t align_up(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

Layout checked_layout(TensorType type, int64_t rows, int64_t cols) {
  if (!supported(type))
    throw std::invalid_argument("tensor type " + std::to_string(uint32_t(type)) + " has no kernels");
  const Layout l = layout_of(type);
  if (rows <= 0 || cols <= 0 || cols % l.block_cols != 0 || rows > INT32_MAX || cols > INT32_MAX)
    throw std::invalid_argument("a [" + std::to_string(rows) + ", " + std::to_string(cols) +
                                "] matrix does not fit tensor type " + std::to_string(uint32_t(type)) +
                                ", whose blocks have " + std::to_string(l.block_cols) + " columns");
  return l;
}

float float_at(TensorType type, const std::byte* p) {
  if (type == TensorType::kF32) {
    float value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return type == TensorType::kF16 ? half_to_float(bits) : bfloat_to_float(bits);
}

void pack_float_row(const Layout& l, const std::byte* source, int64_t cols, int lane, std::byte* tile) {
  const int size = l.block_bytes;
  for (int64_t c = 0; c < cols; c++)
    std::memcpy(tile + c * l.column_bytes + lane * size, source + c * size, size);
}

void pack_block_row(TensorType type, const std::byte* source, int64_t cols, int lane, std::byte* tile) {
  const Layout l = layout_of(type);
  Block block;
  for (int64_t c = 0; c < cols; c += l.block_cols, source += l.block_bytes) {
    read_gguf_block(type, reinterpret_cast<const uint8_t*>(source), block);
    write_packed_block(type, block, c / kGroup, lane, reinterpret_cast<uint8_t*>(tile));
  }
}

}  // namespace

bool supported(TensorType type) { return layout_of(type).block_cols != 0; }

size_t tile_bytes(TensorType type, int64_t cols) {
  const Layout l = checked_layout(type, 1, cols);
  if (l.column_bytes != 0) return align_up(size_t(cols) * l.column_bytes);
  const int64_t groups = cols / kGroup;
  return size_t((groups + l.groups - 1) / l.groups * l.header_bytes + groups * l.group_bytes);
}

size_t gguf_bytes(TensorType type, int64_t rows, int64_t cols) {
  const Layout l = checked_layout(type, rows, cols);
  return size_t(rows) * size_t(cols / l.block_cols) * size_t(l.block_bytes);
}

size_t packed_bytes(TensorType type, int64_t rows, int64_t cols) {
  checked_layout(type, rows, cols);
  return size_t(PackedMatrix{type, rows, cols, nullptr}.tiles()) * tile_bytes(type, cols);
}

void pack(TensorType type, const std::byte* gguf, int64_t rows, int64_t cols, std::byte* packed) {
  const Layout l = checked_layout(type, rows, cols);
  const size_t bytes = tile_bytes(type, cols);
  const size_t row_bytes = gguf_bytes(type, 1, cols);
  std::memset(packed, 0, packed_bytes(type, rows, cols));
  for (int64_t row = 0; row < rows; row++) {
    const std::byte* source = gguf + row * row_bytes;
    std::byte* tile = packed + row / kTileRows * bytes;
    const int lane = int(row % kTileRows);
    if (l.column_bytes != 0) {
      pack_float_row(l, source, cols, lane, tile);
    } else {
      pack_block_row(type, source, cols, lane, tile);
    }
  }
}

void dequantize_row(const PackedMatrix& w, int64_t row, float* out) {
  const Layout l = layout_of(w.type);
  const std::byte* tile = w.data + row / kTileRows * tile_bytes(w.type, w.cols);
  const int lane = int(row % kTileRows);
  if (l.column_bytes != 0) {
    for (int64_t c = 0; c < w.cols; c++)
      out[c] = float_at(w.type, tile + c * l.column_bytes + lane * l.block_bytes);
    return;
  }
  Block block;
  for (int64_t c = 0; c < w.cols; c += l.block_cols) {
    read_packed_block(w.type, reinterpret_cast<const uint8_t*>(tile), c / kGroup, lane, block);
    dequantize_block(w.type, block, out + c);
  }
}

size_t activation_bytes(int64_t rows, int64_t cols) {
  const size_t groups = size_t(rows) * size_t(cols / kGroup);
  return align_up(groups * kGroup) + 2 * align_up(groups * sizeof(float)) +
         align_up(groups * 2 * sizeof(int32_t));
}

Activations place_activations(std::byte* storage, int64_t rows, int64_t cols) {
  const size_t groups = size_t(rows) * size_t(cols / kGroup);
  Activations a{.rows = rows, .cols = cols};
  a.q = reinterpret_cast<int8_t*>(storage);
  storage += align_up(groups * kGroup);
  a.scale = reinterpret_cast<float*>(storage);
  storage += align_up(groups * sizeof(float));
  a.scaled_sum = reinterpret_cast<float*>(storage);
  storage += align_up(groups * sizeof(float));
  a.sum = reinterpret_cast<int32_t*>(storage);
  return a;
}

Activations slice(const Activations& a, int64_t first, int64_t rows, int64_t f32_cols) {
  const int64_t groups = a.cols / kGroup;
  Activations part = a;
  part.rows = rows;
  part.f32 = a.f32 == nullptr ? nullptr : a.f32 + first * f32_cols;
  part.q = a.q + first * a.cols;
  part.scale = a.scale + first * groups;
  part.sum = a.sum + first * 2 * groups;
  part.scaled_sum = a.scaled_sum + first * groups;
  return part;
}

}  // namespace ringline
