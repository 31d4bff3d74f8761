// aarch64 with dot products (Cortex-A76 and later): one register is four rows; sdot takes one quad of 16
// loaded activations by element.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace ringline::dotprod {

inline constexpr int kLanes = 4;
inline constexpr int kMaxRows = 8;
inline constexpr int kBlockRows = 8;
inline constexpr int kFloatRows = 4;
inline constexpr int kZero8 = 0;
constexpr int registers(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }

using Bytes = uint8x16_t;
using Ints = int32x4_t;
using Floats = float32x4_t;
using Quads = int8x16_t;

inline Bytes load_bytes(const uint8_t* p) { return vld1q_u8(p); }
inline Bytes low_nibbles(Bytes b) { return vandq_u8(b, vdupq_n_u8(15)); }
inline Bytes high_nibbles(Bytes b) { return vshrq_n_u8(b, 4); }

// Bits of `b` moved left by kShift (right when negative), those of `mask` put into `w`.
template <int kShift>
inline Bytes merge(Bytes w, Bytes b, char mask) {
  if constexpr (kShift > 0) b = vshlq_n_u8(b, kShift);
  if constexpr (kShift < 0) b = vshrq_n_u8(b, -kShift);
  return vorrq_u8(w, vandq_u8(b, vdupq_n_u8(uint8_t(mask))));
}

inline Quads load_quads(const int8_t* p) { return vld1q_s8(p); }
template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
  return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), a, kQuad);
}
template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  return dot<kQuad>(sum, veorq_u8(w, vdupq_n_u8(0x80)), a);
}

inline Ints broadcast(int32_t v) { return vdupq_n_s32(v); }
inline Floats broadcast(float v) { return vdupq_n_f32(v); }
inline Floats to_floats(Ints v) { return vcvtq_f32_s32(v); }
inline Floats load_floats(const float* p) { return vld1q_f32(p); }
inline Floats load_halves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline Floats load_bfloats(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
// Four bytes, widened to 32 bits.
inline uint16x4_t load_four_unsigned(const uint8_t* p) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, p, 4);
  return vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes))));
}
inline Floats load_unsigned(const uint8_t* p) { return vcvtq_f32_u32(vmovl_u16(load_four_unsigned(p))); }
inline Floats load_signed(const uint8_t* p) {
  const int16x4_t wide = vreinterpret_s16_u16(vshl_n_u16(load_four_unsigned(p), 8));
  return vcvtq_f32_s32(vmovl_s16(vshr_n_s16(wide, 8)));
}
inline Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats subtract_product(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }  // c - a b
inline void store(float* p, Floats v) { vst1q_f32(p, v); }
// Always inlined: GCC drops calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

}  // namespace ringline::dotprod
