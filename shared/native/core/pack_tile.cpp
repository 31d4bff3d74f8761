// The neutral form to and from the packed layout (core/layout.hpp).
#include <cstring>

#include "core/block.hpp"

namespace ringline {
namespace {

bool has_minimum(TensorType type) {
  return type == TensorType::kQ4_1 || type == TensorType::kQ5_1 || type == TensorType::kQ4_K ||
         type == TensorType::kQ5_K;
}

// A lane owns bytes 4 * lane .. 4 * lane + 3 of every vector and plane; `group` points at the first of them.
// Column 4 * quad + i of the group has its share in byte i.

// With n planes, a plane holds n bits of each of 8 / n quads.
void write_group(const Layout& l, const uint8_t* values, uint8_t* group) {
  if (l.nibble_bytes == 8 * kVectorBytes) {
    for (int quad = 0; quad < 8; quad++) std::memcpy(group + quad * kVectorBytes, values + 4 * quad, 4);
    return;
  }
  for (int quad = 0; quad < 4; quad++)
    for (int i = 0; i < 4; i++) {
      const uint8_t *low = values + 4 * quad + i, *high = low + 16;
      group[quad * kVectorBytes + i] = uint8_t((*low & 15) | *high << 4);
    }
  const int planes = (l.group_bytes - l.nibble_bytes) / kVectorBytes;
  for (int plane = 0; plane < planes; plane++)
    for (int i = 0; i < 4; i++) {
      int bits = 0;
      for (int j = 0; j < 8 / planes; j++)
        bits |= values[4 * (plane * 8 / planes + j) + i] >> 4 << (planes * j);
      group[l.nibble_bytes + plane * kVectorBytes + i] = uint8_t(bits);
    }
}

void read_group(const Layout& l, const uint8_t* group, uint8_t* values) {
  if (l.nibble_bytes == 8 * kVectorBytes) {
    for (int quad = 0; quad < 8; quad++) std::memcpy(values + 4 * quad, group + quad * kVectorBytes, 4);
    return;
  }
  for (int quad = 0; quad < 4; quad++)
    for (int i = 0; i < 4; i++) {
      values[4 * quad + i] = group[quad * kVectorBytes + i] & 15;
      values[4 * quad + i + 16] = group[quad * kVectorBytes + i] >> 4;
    }
  const int planes = (l.group_bytes - l.nibble_bytes) / kVectorBytes;
  for (int plane = 0; plane < planes; plane++)
    for (int i = 0; i < 4; i++) {
      const int bits = group[l.nibble_bytes + plane * kVectorBytes + i];
      for (int j = 0; j < 8 / planes; j++)
        values[4 * (plane * 8 / planes + j) + i] |=
            uint8_t((bits >> (planes * j) & ((1 << planes) - 1)) << 4);
    }
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
  for (int g = 0; g < l.block_cols / kGroup; g++)
    write_group(l, block.values + g * kGroup, tile + group_offset(l, group + g) + 4 * lane);
}

void read_packed_block(TensorType type, const uint8_t* tile, int64_t group, int lane, Block& block) {
  const Layout l = layout_of(type);
  const uint8_t* header = tile + header_offset(l, group);
  visit_header(type, block, group, lane, [header](int64_t offset, int bytes, void* part) {
    std::memcpy(part, header + offset, bytes);
  });
  for (int g = 0; g < l.block_cols / kGroup; g++)
    read_group(l, tile + group_offset(l, group + g) + 4 * lane, block.values + g * kGroup);
}

}  // namespace ringline
