// aarch64 with 8-bit matrix products (Armv8.6): one usmmla multiplies 2 weight rows x 8 columns by 8 columns
// x 2 activation rows. A single activation row has no use for that and goes by dot products.
#pragma once

#include "kernels/lanes/neon.hpp"

namespace ringline::i8mm {

inline constexpr int kMaxRows = 8;
inline constexpr int kBlockRows = 8;
inline constexpr int kMediumBlockRows = kBlockRows;
inline constexpr int kFloatRows = 4;
inline constexpr int kZero8 = 128;
inline constexpr bool kRowPairs = true;
constexpr int registers(int rows) { return rows == 1 ? 4 : rows <= 4 ? 2 : 1; }

template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  return vusdotq_laneq_s32(sum, w, a, kQuad);
}

// Four weight rows w0 .. w3 times two activation rows a, b:
//
//     Weights, of two quads    [0]: w0 quad 0 | w0 quad 1 | w1 quad 0 | w1 quad 1     [1]: the same of w2, w3
//     Quads, of 16 columns     [0]: a columns 0 .. 7 | b columns 0 .. 7               [1]: columns 8 .. 15
//     Ints                     [0]: w0 a | w0 b | w1 a | w1 b                         [1]: the same of w2, w3
struct RowPairs {
  struct Weights {
    uint8x16_t v[2];
  };
  struct Quads {
    int8x16_t v[2];
  };
  struct Ints {
    int32x4_t v[2];
  };

  static Weights weights(uint8x16_t quad0, uint8x16_t quad1) {
    const uint32x4_t q0 = vreinterpretq_u32_u8(quad0), q1 = vreinterpretq_u32_u8(quad1);
    return {{vreinterpretq_u8_u32(vzip1q_u32(q0, q1)), vreinterpretq_u8_u32(vzip2q_u32(q0, q1))}};
  }
  static Quads quads(int8x16_t a, int8x16_t b) {
    const int64x2_t a64 = vreinterpretq_s64_s8(a), b64 = vreinterpretq_s64_s8(b);
    return {{vreinterpretq_s8_s64(vzip1q_s64(a64, b64)), vreinterpretq_s8_s64(vzip2q_s64(a64, b64))}};
  }
  static Ints ints(int32x4_t a, int32x4_t b) { return {{vzip1q_s32(a, b), vzip2q_s32(a, b)}}; }
  static int32x4_t first(Ints i) { return vuzp1q_s32(i.v[0], i.v[1]); }
  static int32x4_t second(Ints i) { return vuzp2q_s32(i.v[0], i.v[1]); }

  // Columns 8 kEight .. 8 kEight + 7 of the 16.
  template <int kEight>
  static Ints dot(Ints sum, Weights w, Quads q) {
    return {{vusmmlaq_s32(sum.v[0], w.v[0], q.v[kEight]), vusmmlaq_s32(sum.v[1], w.v[1], q.v[kEight])}};
  }
};

}  // namespace ringline::i8mm
