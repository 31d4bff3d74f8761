// What the aarch64 variants share: one register is four rows; sdot takes one quad of 16 loaded activations by
// element.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace ringline::RINGLINE_ISA {

inline constexpr int kLanes = 4;

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
  return vbslq_u8(vdupq_n_u8(uint8_t(mask)), b, w);
}

inline Quads load_quads(const int8_t* p) { return vld1q_s8(p); }
template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
  return vdotq_laneq_s32(sum, vreinterpretq_s8_u8(w), a, kQuad);
}
inline Ints broadcast(int32_t v) { return vdupq_n_s32(v); }
inline Floats broadcast(float v) { return vdupq_n_f32(v); }
// 1.5 * 2^23 as an integer and as a float: an integer below 2^22 that is added to the one is added to the
// other. A conversion instead would occupy one of the two pipes of a Cortex-A76 twice.
inline constexpr int32_t kIntStart = 0x4b400000;
inline Floats to_floats(Ints v) { return vsubq_f32(vreinterpretq_f32_s32(v), vdupq_n_f32(0x1.8p23f)); }
inline Floats load_floats(const float* p) { return vld1q_f32(p); }
inline Floats load_halves(const uint8_t* p) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p))); }
inline Floats load_bfloats(const uint8_t* p) {
  return vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16));
}
// Four bytes (16 are read: a tile does not end with its scales), each to byte kAt of its lane. Other bytes
// are 0.
template <int kAt>
inline uint8x16_t spread(const uint8_t* p) {
  uint8x16_t from = vdupq_n_u8(255);
  for (int lane = 0; lane < 4; lane++) from[4 * lane + kAt] = uint8_t(lane);
  return vqtbl1q_u8(vld1q_u8(p), from);
}
inline Floats load_unsigned(const uint8_t* p) { return vcvtq_f32_u32(vreinterpretq_u32_u8(spread<0>(p))); }
// A byte that tops its lane is a signed number with 24 fractional bits.
inline Floats load_signed(const uint8_t* p) {
  return vcvtq_n_f32_s32(vreinterpretq_s32_u8(spread<3>(p)), 24);
}
inline Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
inline Floats subtract_product(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }  // c - a b
inline void store(float* p, Floats v) { vst1q_f32(p, v); }
// Always inlined: GCC drops calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

}  // namespace ringline::RINGLINE_ISA
