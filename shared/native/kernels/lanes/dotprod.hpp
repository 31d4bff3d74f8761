// aarch64 with dot products (Cortex-A76 and later).
#pragma once

#include "kernels/lanes/neon.hpp"

namespace ringline::dotprod {

inline constexpr int kMaxRows = 8;
inline constexpr int kBlockRows = 8;
inline constexpr int kMediumBlockRows = kBlockRows;
inline constexpr int kFloatRows = 4;
inline constexpr int kZero8 = 0;
inline constexpr bool kRowPairs = false;
constexpr int registers(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  return dot<kQuad>(sum, veorq_u8(w, vdupq_n_u8(0x80)), a);
}

}  // namespace ringline::dotprod
