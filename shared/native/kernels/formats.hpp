// How one register's weights, scales and minima are read from a packed tile (core/layout.hpp), per tensor
// type.
#pragma once

#include "core/layout.hpp"
#include "kernels/lanes.hpp"

namespace ringline::RINGLINE_ISA {

template <TensorType kType>
struct Format {
  static constexpr Layout kLayout = layout_of(kType);
  static constexpr bool kSubScales = kLayout.block_cols != kGroup;
  static constexpr bool kHalfScales = kType == TensorType::kQ6_K;
  static constexpr bool kWide = kType == TensorType::kQ8_0;
  static constexpr bool kAddsMinimum = kType == TensorType::kQ4_1 || kType == TensorType::kQ5_1;
  static constexpr bool kSubtractsMinimum = kSubScales && !kHalfScales;
  static constexpr int kPlanes = (kLayout.group_bytes - kLayout.nibble_bytes) / kVectorBytes;
  static constexpr int kZero = kWide ? kZero8 : kLayout.zero;  // still to be subtracted after `dot`

  // Quad 4 * kHalf + kQuad of the rows from `lane` on.
  template <int kHalf, int kQuad>
  [[gnu::always_inline]] static Bytes weights(const uint8_t* group, int lane) {
    const uint8_t* p = group + 4 * lane;
    if constexpr (kWide) {
      return load_bytes(p + (4 * kHalf + kQuad) * kVectorBytes);
    } else {
      const Bytes raw = load_bytes(p + kQuad * kVectorBytes);
      const Bytes low = kHalf == 0 ? low_nibbles(raw) : high_nibbles(raw);
      const uint8_t* planes = p + kLayout.nibble_bytes;
      if constexpr (kPlanes == 1) return merge<4 - (4 * kHalf + kQuad)>(low, load_bytes(planes), 0x10);
      if constexpr (kPlanes == 2)
        return merge<4 - 2 * kQuad>(low, load_bytes(planes + kHalf * kVectorBytes), 0x30);
      return low;
    }
  }

  template <int kQuad>
  [[gnu::always_inline]] static Ints dot_quad(Ints sum, Bytes w, Quads q) {
    if constexpr (kWide) {
      return dot8<kQuad>(sum, w, q);
    } else {
      return dot<kQuad>(sum, w, q);
    }
  }

  // d of a block for the rows from `lane` on; `slot` is the group's index in its block.
  [[gnu::always_inline]] static Floats d(const uint8_t* header, int lane, int slot) {
    return load_halves(header + (kLayout.groups == 2 ? 2 * kTileRows * slot : 0) + 2 * lane);
  }
  // The scale of a half group (of the whole group unless kHalfScales).
  [[gnu::always_inline]] static Floats scale(const uint8_t* header, int lane, int slot, int half, Floats d) {
    const uint8_t* scales = header + kScaleOffset + lane;
    if constexpr (kHalfScales) return multiply(d, load_signed(scales + kTileRows * (2 * slot + half)));
    if constexpr (kSubScales) return multiply(d, load_unsigned(scales + kTileRows * slot));
    return d;
  }
  // The minimum of a group.
  [[gnu::always_inline]] static Floats minimum(const uint8_t* header, int lane, int slot) {
    const Floats m = load_halves(header + 2 * kTileRows + 2 * lane);
    if constexpr (!kSubScales) return m;
    return multiply(m, load_unsigned(header + kMinimumOffset + lane + kTileRows * slot));
  }
};

}  // namespace ringline::RINGLINE_ISA
