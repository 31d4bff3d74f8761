// The neutral form to and from the packed layout (core/layout.hpp).
#include <cstring>

#include "core/block.hpp"

namespace ringline {
namespace {

bool has_minimum(TensorType type) {
  return type == TensorType::kQ4_1 || type == TensorType::kQ5_1 || type == TensorType::kQ4_K ||
         type == TensorType::kQ5_K;
}

// Where column `column` of a group keeps its parts.
struct Place {
  int byte;    // 4 * lane + column of the quad, in every vector
  int quad;    // 0 .. 7
  int nibble;  // offset of the nibble's byte in the group
  int shift;   // of the nibble in its byte
  Place(int lane, int column)
      : byte(4 * lane + column % 4),
        quad(column / 4),
        nibble(quad % 4 * kVectorBytes + byte),
        shift(quad / 4 * 4) {}
};

void write_value(const Layout& l, const Place& at, uint8_t value, uint8_t* group) {
  if (l.nibble_bytes == 512) {
    group[at.quad * kVectorBytes + at.byte] = value;
    return;
  }
  uint8_t* planes = group + l.nibble_bytes;
  group[at.nibble] |= uint8_t((value & 15) << at.shift);
  if (l.group_bytes - l.nibble_bytes == kVectorBytes) {
    planes[at.byte] |= uint8_t((value >> 4) << at.quad);
  } else if (l.group_bytes - l.nibble_bytes == 2 * kVectorBytes) {
    planes[at.quad / 4 * kVectorBytes + at.byte] |= uint8_t((value >> 4) << (2 * (at.quad % 4)));
  }
}

uint8_t read_value(const Layout& l, const Place& at, const uint8_t* group) {
  if (l.nibble_bytes == 512) return group[at.quad * kVectorBytes + at.byte];
  const uint8_t* planes = group + l.nibble_bytes;
  int value = group[at.nibble] >> at.shift & 15;
  if (l.group_bytes - l.nibble_bytes == kVectorBytes) {
    value |= (planes[at.byte] >> at.quad & 1) << 4;
  } else if (l.group_bytes - l.nibble_bytes == 2 * kVectorBytes) {
    value |= (planes[at.quad / 4 * kVectorBytes + at.byte] >> (2 * (at.quad % 4)) & 3) << 4;
  }
  return uint8_t(value);
}

// The header's parts of one lane, as (offset in the header, bytes, where in the block).
template <class B, class Visit>
void visit_header(TensorType type, B& block, int64_t group, int lane, Visit visit) {
  const Layout l = layout_of(type);
  const int64_t slot = l.groups == 2 ? group % 2 * 32 : 0;
  visit(slot + 2 * lane, 2, &block.d);
  if (has_minimum(type)) visit(32 + 2 * lane, 2, &block.m);
  if (l.block_cols == kGroup) return;
  const int n_scales = type == TensorType::kQ6_K ? 16 : 8;
  for (int i = 0; i < n_scales; i++) visit(kScaleOffset + kTileRows * i + lane, 1, &block.scales[i]);
  if (n_scales == 16) return;
  for (int i = 0; i < 8; i++) visit(kMinimumOffset + kTileRows * i + lane, 1, &block.minima[i]);
}

}  // namespace

void write_packed_block(TensorType type, const Block& block, int64_t group, int lane, uint8_t* tile) {
  const Layout l = layout_of(type);
  uint8_t* header = tile + header_offset(l, group);
  visit_header(type, block, group, lane, [header](int64_t offset, int bytes, const void* part) {
    std::memcpy(header + offset, part, bytes);
  });
  for (int c = 0; c < l.block_cols; c++)
    write_value(l, Place(lane, c % kGroup), block.values[c], tile + group_offset(l, group + c / kGroup));
}

void read_packed_block(TensorType type, const uint8_t* tile, int64_t group, int lane, Block& block) {
  const Layout l = layout_of(type);
  const uint8_t* header = tile + header_offset(l, group);
  visit_header(type, block, group, lane, [header](int64_t offset, int bytes, void* part) {
    std::memcpy(part, header + offset, bytes);
  });
  for (int c = 0; c < l.block_cols; c++)
    block.values[c] = read_value(l, Place(lane, c % kGroup), tile + group_offset(l, group + c / kGroup));
}

}  // namespace ringline
