// AVX-512 VNNI: one register is a whole tile's 16 rows.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ringline::avx512vnni {

inline constexpr int kLanes = 16;
inline constexpr int kMaxRows = 12;
inline constexpr int kBlockRows = 8;
inline constexpr int kMediumBlockRows = 10;
inline constexpr int kFloatRows = 4;
inline constexpr int kZero8 = 128;
inline constexpr int32_t kIntStart = 0;
inline constexpr bool kRowPairs = false;
constexpr int registers(int) { return 1; }

using Bytes = __m512i;
using Ints = __m512i;
using Floats = __m512;
using Quads = const int8_t*;

inline Bytes load_bytes(const uint8_t* p) { return _mm512_load_si512(p); }
inline Bytes low_nibbles(Bytes b) { return _mm512_and_si512(b, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes b) { return low_nibbles(_mm512_srli_epi16(b, 4)); }

// Bits of `b` moved left by kShift (right when negative), those of `mask` put into `w`.
template <int kShift>
inline Bytes merge(Bytes w, Bytes b, char mask) {
  if constexpr (kShift > 0) b = _mm512_slli_epi16(b, kShift);
  if constexpr (kShift < 0) b = _mm512_srli_epi16(b, -kShift);
  return _mm512_ternarylogic_epi32(w, b, _mm512_set1_epi8(mask), 0xf8);  // w | (b & mask)
}

inline Quads load_quads(const int8_t* p) { return p; }
template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
  int32_t quad;
  std::memcpy(&quad, a + 4 * kQuad, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(quad));
}
template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  return dot<kQuad>(sum, w, a);
}

inline Ints broadcast(int32_t v) { return _mm512_set1_epi32(v); }
inline Floats broadcast(float v) { return _mm512_set1_ps(v); }
inline Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
inline Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
inline Floats load_halves(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_load_si256((const __m256i*)p)); }
inline Floats load_bfloats(const uint8_t* p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i*)p)), 16));
}
inline Floats load_unsigned(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_load_si128((const __m128i*)p)));
}
inline Floats load_signed(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_load_si128((const __m128i*)p)));
}
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats subtract_product(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
// Into the second level: the few fill buffers of the first are left to the loads themselves. Always inlined:
// GCC drops calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) { _mm_prefetch((const char*)p, _MM_HINT_T1); }

}  // namespace ringline::avx512vnni
