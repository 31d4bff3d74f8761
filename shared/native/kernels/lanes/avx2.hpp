// AVX2: one register is eight rows. Products of bytes are summed in pairs of 16 bits (vpmaddubsw), which
// would saturate for 8-bit weights; those go by absolute values and signs: 2 * 128 * 127 < 2^15.
#pragma once

#include "kernels/lanes/eight.hpp"

namespace ringline::avx2 {

inline constexpr int kMaxRows = 4;
inline constexpr int kBlockRows = 4;
inline constexpr int kMediumBlockRows = kBlockRows;
inline constexpr int kFloatRows = 2;
inline constexpr int kZero8 = 0;
inline constexpr int32_t kIntStart = 0;
inline constexpr bool kRowPairs = false;
// With four rows half of the sums pass through the stack once a group: cheaper than activations twice.
constexpr int registers(int) { return 2; }

inline Ints add_pairs(Ints sum, __m256i pairs) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
  return add_pairs(sum, _mm256_maddubs_epi16(w, broadcast_quad(a + 4 * kQuad)));
}
template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  const __m256i value = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
  const __m256i quad = broadcast_quad(a + 4 * kQuad);
  return add_pairs(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(value), _mm256_sign_epi8(quad, value)));
}

}  // namespace ringline::avx2
