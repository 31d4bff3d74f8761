// The packed layouts: every reader and writer of packed weights takes its numbers from here.
//
// A matrix is a sequence of tiles of 16 rows; a tile holds all columns of its rows.
//
// Float types: column after column, 16 values each.
//
//     | c0: row 0 .. 15 | c1: row 0 .. 15 | ...            64 bytes (F32) or 32 bytes (F16, BF16) a column
//
// Quantised types: blocks of `groups` groups of 32 columns; the last block may have fewer groups.
//
//     | header | group | group | ... | header | group | ...
//
//     header  _0 types   | d of group 0: 16 x f16 | d of group 1: 16 x f16 |
//             _1 types   | d: 16 x f16            | m: 16 x f16            |
//             Q4_K Q5_K  | d: 16 x f16 | dmin: 16 x f16 | 8 groups x 16 x u8 sc | 8 groups x 16 x u8 m |
//             Q6_K       | d: 16 x f16 | 32 bytes of 0  | 16 half groups x 16 x i8 sc                  |
//
//     group   | 4 or 8 vectors of 64 bytes | planes of 64 bytes |
//
// Columns are computed in quads: columns 4j .. 4j+3 of a group are quad j = 0 .. 7. In a 64-byte vector, byte
// 4 * lane + i belongs to row `lane` of the tile and column i of a quad.
//
//     Q4_*        vector j (0..3)   low nibble: quad j, high nibble: quad j + 4
//     Q5_*        vectors as Q4; one plane: bit j is bit 4 of quad j's value
//     Q6_K        vectors as Q4; two planes: plane j / 4, bits 2 (j % 4) and above are bits 4, 5 of quad j's
//     value Q8_0        vector j (0..7)   the value of quad j plus 128
//
// Values are unsigned; what the format subtracts from them is `zero`. Everything is a multiple of 64 bytes.
#pragma once

#include "core/matrix.hpp"

namespace ringline {

inline constexpr int kVectorBytes = 64;
inline constexpr int kScaleOffset = 64;     // of the sub-scales in a K type's header
inline constexpr int kMinimumOffset = 192;  // of the sub-minima in a K type's header

struct Layout {
  int block_cols;    // columns of the GGUF's block
  int block_bytes;   // bytes of the GGUF's block
  int column_bytes;  // float types: bytes of a column of a tile; else 0
  int groups;        // groups in a packed block
  int header_bytes;  // of a packed block
  int group_bytes;   // of a group: vectors and planes
  int nibble_bytes;  // of a group's vectors; the planes follow
  int zero;          // the value that stands for 0
};

constexpr Layout layout_of(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {1, 4, 64, 0, 0, 0, 0, 0};
    case TensorType::kF16:
      return {1, 2, 32, 0, 0, 0, 0, 0};
    case TensorType::kBF16:
      return {1, 2, 32, 0, 0, 0, 0, 0};
    case TensorType::kQ4_0:
      return {32, 18, 0, 2, 64, 256, 256, 8};
    case TensorType::kQ4_1:
      return {32, 20, 0, 1, 64, 256, 256, 0};
    case TensorType::kQ5_0:
      return {32, 22, 0, 2, 64, 320, 256, 16};
    case TensorType::kQ5_1:
      return {32, 24, 0, 1, 64, 320, 256, 0};
    case TensorType::kQ8_0:
      return {32, 34, 0, 2, 64, 512, 512, 128};
    case TensorType::kQ4_K:
      return {256, 144, 0, 8, 320, 256, 256, 0};
    case TensorType::kQ5_K:
      return {256, 176, 0, 8, 320, 320, 256, 0};
    case TensorType::kQ6_K:
      return {256, 210, 0, 8, 320, 384, 256, 32};
  }
  return {};
}

// Bytes from a tile's start to the header of the block that holds `group`.
constexpr int64_t header_offset(const Layout& l, int64_t group) {
  return group / l.groups * (l.header_bytes + int64_t{l.groups} * l.group_bytes);
}
// Bytes from a tile's start to the vectors of `group`.
constexpr int64_t group_offset(const Layout& l, int64_t group) {
  return header_offset(l, group) + l.header_bytes + group % l.groups * l.group_bytes;
}

}  // namespace ringline
