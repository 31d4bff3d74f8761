// What the variants with AVX2's registers share: everything but the dot products. One register is eight rows.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace ringline::RINGLINE_ISA {

inline constexpr int kLanes = 8;

using Bytes = __m256i;
using Ints = __m256i;
using Floats = __m256;
using Quads = const int8_t*;

inline Bytes load_bytes(const uint8_t* p) { return _mm256_load_si256((const __m256i*)p); }
inline Bytes low_nibbles(Bytes b) { return _mm256_and_si256(b, _mm256_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes b) { return low_nibbles(_mm256_srli_epi16(b, 4)); }

// Bits of `b` moved left by kShift (right when negative), those of `mask` put into `w`.
template <int kShift>
inline Bytes merge(Bytes w, Bytes b, char mask) {
  if constexpr (kShift > 0) b = _mm256_slli_epi16(b, kShift);
  if constexpr (kShift < 0) b = _mm256_srli_epi16(b, -kShift);
  return _mm256_or_si256(w, _mm256_and_si256(b, _mm256_set1_epi8(mask)));
}

inline Quads load_quads(const int8_t* p) { return p; }
inline __m256i broadcast_quad(const int8_t* p) {
  int32_t quad;
  std::memcpy(&quad, p, 4);
  return _mm256_set1_epi32(quad);
}
inline Ints broadcast(int32_t v) { return _mm256_set1_epi32(v); }
inline Floats broadcast(float v) { return _mm256_set1_ps(v); }
inline Floats to_floats(Ints v) { return _mm256_cvtepi32_ps(v); }
inline Floats load_floats(const float* p) { return _mm256_loadu_ps(p); }
inline Floats load_halves(const uint8_t* p) { return _mm256_cvtph_ps(_mm_load_si128((const __m128i*)p)); }
inline Floats load_bfloats(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i*)p)), 16));
}
inline Floats load_unsigned(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
inline Floats load_signed(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats subtract_product(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }  // c - a b
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
// Always inlined: GCC drops calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

}  // namespace ringline::RINGLINE_ISA
