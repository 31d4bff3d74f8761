// Sixteen floats as one value, on every instruction set: one source for the kernels, and the same order of
// operations (so the same bits wherever there is a fused multiply-add).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace ringline::RINGLINE_ISA {

inline constexpr int kLanes = 16;

#if defined(__AVX512F__)

struct Vec {
  __m512 v;
};
inline Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
inline Vec load_half(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec load_int8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline void store_half(uint16_t* p, Vec a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
// value where a >= b, else 0.
inline Vec where_ge(Vec a, Vec b, Vec value) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ), value.v)};
}
inline uint32_t equal_mask(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
// a times 2^(low bits of b's representation).
inline Vec scale_exponent(Vec a, Vec b) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(b.v), 23)))};
}

#elif defined(__AVX2__)

struct Vec {
  __m256 v[2];
};
inline Vec broadcast(float x) { return {{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
inline Vec load(const float* p) { return {{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
inline void store(float* p, Vec a) {
  _mm256_storeu_ps(p, a.v[0]);
  _mm256_storeu_ps(p + 8, a.v[1]);
}
inline Vec load_half(const uint16_t* p) {
  return {{_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
           _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))}};
}
inline __m256 load_int8x8(const int8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline Vec load_int8(const int8_t* p) { return {{load_int8x8(p), load_int8x8(p + 8)}}; }
inline void store_half(uint16_t* p, Vec a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v[0], _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.v[1], _MM_FROUND_TO_NEAREST_INT));
}
inline Vec add(Vec a, Vec b) { return {{_mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1])}}; }
inline Vec sub(Vec a, Vec b) { return {{_mm256_sub_ps(a.v[0], b.v[0]), _mm256_sub_ps(a.v[1], b.v[1])}}; }
inline Vec mul(Vec a, Vec b) { return {{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}}; }
inline Vec div(Vec a, Vec b) { return {{_mm256_div_ps(a.v[0], b.v[0]), _mm256_div_ps(a.v[1], b.v[1])}}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
}
inline Vec max(Vec a, Vec b) { return {{_mm256_max_ps(a.v[0], b.v[0]), _mm256_max_ps(a.v[1], b.v[1])}}; }
inline Vec min(Vec a, Vec b) { return {{_mm256_min_ps(a.v[0], b.v[0]), _mm256_min_ps(a.v[1], b.v[1])}}; }
inline Vec where_ge(Vec a, Vec b, Vec value) {
  return {{_mm256_and_ps(_mm256_cmp_ps(a.v[0], b.v[0], _CMP_GE_OQ), value.v[0]),
           _mm256_and_ps(_mm256_cmp_ps(a.v[1], b.v[1], _CMP_GE_OQ), value.v[1])}};
}
inline uint32_t equal_mask(Vec a, Vec b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v[0], b.v[0], _CMP_EQ_OQ))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.v[1], b.v[1], _CMP_EQ_OQ))) << 8;
}
inline __m256 scale_exponent8(__m256 a, __m256 b) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(b), 23)));
}
inline Vec scale_exponent(Vec a, Vec b) {
  return {{scale_exponent8(a.v[0], b.v[0]), scale_exponent8(a.v[1], b.v[1])}};
}

#elif defined(__ARM_NEON) && defined(__aarch64__)

struct Vec {
  float32x4_t v[4];
};
#define RINGLINE_EACH(expression)                  \
  Vec r;                                           \
  for (int i = 0; i < 4; ++i) r.v[i] = expression; \
  return r
inline Vec broadcast(float x) { RINGLINE_EACH(vdupq_n_f32(x)); }
inline Vec load(const float* p) { RINGLINE_EACH(vld1q_f32(p + 4 * i)); }
inline void store(float* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
inline Vec load_half(const uint16_t* p) {
  RINGLINE_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))));
}
inline Vec load_int8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline void store_half(uint16_t* p, Vec a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
inline Vec add(Vec a, Vec b) { RINGLINE_EACH(vaddq_f32(a.v[i], b.v[i])); }
inline Vec sub(Vec a, Vec b) { RINGLINE_EACH(vsubq_f32(a.v[i], b.v[i])); }
inline Vec mul(Vec a, Vec b) { RINGLINE_EACH(vmulq_f32(a.v[i], b.v[i])); }
inline Vec div(Vec a, Vec b) { RINGLINE_EACH(vdivq_f32(a.v[i], b.v[i])); }
inline Vec fma(Vec a, Vec b, Vec c) { RINGLINE_EACH(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
inline Vec max(Vec a, Vec b) { RINGLINE_EACH(vmaxq_f32(a.v[i], b.v[i])); }
inline Vec min(Vec a, Vec b) { RINGLINE_EACH(vminq_f32(a.v[i], b.v[i])); }
inline Vec where_ge(Vec a, Vec b, Vec value) {
  RINGLINE_EACH(
      vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(a.v[i], b.v[i]), vreinterpretq_u32_f32(value.v[i]))));
}
inline uint32_t equal_mask(Vec a, Vec b) {
  const uint32_t bits[4] = {1, 2, 4, 8};
  const uint32x4_t weights = vld1q_u32(bits);
  uint32_t mask = 0;
  for (int i = 0; i < 4; ++i) mask |= vaddvq_u32(vandq_u32(vceqq_f32(a.v[i], b.v[i]), weights)) << (4 * i);
  return mask;
}
inline Vec scale_exponent(Vec a, Vec b) {
  RINGLINE_EACH(vreinterpretq_f32_u32(
      vaddq_u32(vreinterpretq_u32_f32(a.v[i]), vshlq_n_u32(vreinterpretq_u32_f32(b.v[i]), 23))));
}
#undef RINGLINE_EACH

#else

struct Vec {
  float v[kLanes];
};
#define RINGLINE_EACH(expression)                       \
  Vec r;                                                \
  for (int i = 0; i < kLanes; ++i) r.v[i] = expression; \
  return r

inline uint32_t bits_of(float x) {
  uint32_t u;
  std::memcpy(&u, &x, sizeof u);
  return u;
}
inline float float_of(uint32_t u) {
  float x;
  std::memcpy(&x, &u, sizeof x);
  return x;
}
// IEEE half to single: the exponent is moved by a multiplication, which also gets subnormals right.
inline float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fffu) << 13;
  if ((h & 0x7c00u) == 0x7c00u) return float_of(sign | 0x7f800000u | magnitude);
  return float_of(sign | bits_of(float_of(magnitude) * 0x1p112f));
}
// Round to nearest even. Adding a power of two whose last place is the half's makes the adder do the
// rounding.
inline uint16_t float_to_half(float x) {
  const uint32_t bits = bits_of(x);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u) {
    return static_cast<uint16_t>(sign | (bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f)));
  }
  const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

inline Vec broadcast(float x) { RINGLINE_EACH(x); }
inline Vec load(const float* p) { RINGLINE_EACH(p[i]); }
inline void store(float* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline Vec load_half(const uint16_t* p) { RINGLINE_EACH(half_to_float(p[i])); }
inline Vec load_int8(const int8_t* p) { RINGLINE_EACH(static_cast<float>(p[i])); }
inline void store_half(uint16_t* p, Vec a) {
  for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(a.v[i]);
}
inline Vec add(Vec a, Vec b) { RINGLINE_EACH(a.v[i] + b.v[i]); }
inline Vec sub(Vec a, Vec b) { RINGLINE_EACH(a.v[i] - b.v[i]); }
inline Vec mul(Vec a, Vec b) { RINGLINE_EACH(a.v[i] * b.v[i]); }
inline Vec div(Vec a, Vec b) { RINGLINE_EACH(a.v[i] / b.v[i]); }
inline Vec fma(Vec a, Vec b, Vec c) { RINGLINE_EACH(a.v[i] * b.v[i] + c.v[i]); }
inline Vec max(Vec a, Vec b) { RINGLINE_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline Vec min(Vec a, Vec b) { RINGLINE_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline Vec where_ge(Vec a, Vec b, Vec value) { RINGLINE_EACH(a.v[i] >= b.v[i] ? value.v[i] : 0.0f); }
inline uint32_t equal_mask(Vec a, Vec b) {
  uint32_t mask = 0;
  for (int i = 0; i < kLanes; ++i) mask |= static_cast<uint32_t>(a.v[i] == b.v[i]) << i;
  return mask;
}
inline Vec scale_exponent(Vec a, Vec b) {
  RINGLINE_EACH(float_of(bits_of(a.v[i]) + (bits_of(b.v[i]) << 23)));
}
#undef RINGLINE_EACH

#endif

// Lanes are combined as a tree: 8 apart, 4, 2, 1.
inline float reduce_add(Vec a) {
  float x[kLanes];
  store(x, a);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) x[i] += x[i + step];
  }
  return x[0];
}
inline float reduce_max(Vec a) {
  float x[kLanes];
  store(x, a);
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) x[i] = x[i] > x[i + step] ? x[i] : x[i + step];
  }
  return x[0];
}

// e^x, relative error below 2e-7; 0 below -87, e^88 above 88. Polynomial on [-ln2/2, ln2/2] (Cephes expf), x
// reduced by n ln2 in two steps; n sits in the low bits after adding 1.5 * 2^23.
inline Vec exp(Vec x) {
  const Vec magic = broadcast(12582912.0f);
  const Vec clamped = max(min(x, broadcast(88.0f)), broadcast(-87.0f));
  const Vec shifted = add(mul(clamped, broadcast(1.44269504088896341f)), magic);
  const Vec n = sub(shifted, magic);
  Vec r = fma(n, broadcast(-0.693359375f), clamped);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  p = add(fma(mul(r, r), p, r), broadcast(1.0f));
  return where_ge(x, broadcast(-87.0f), scale_exponent(p, shifted));
}

}  // namespace ringline::RINGLINE_ISA
