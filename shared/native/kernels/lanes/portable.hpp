// Plain C++: a register is an array of four rows. The reference that the other variants must equal to the
// bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/half.hpp"

namespace ringline::portable {

inline constexpr int kLanes = 4;
inline constexpr int kMaxRows = 2;
inline constexpr int kBlockRows = 2;
inline constexpr int kMediumBlockRows = kBlockRows;
inline constexpr int kFloatRows = 1;
inline constexpr int kZero8 = 0;
inline constexpr int32_t kIntStart = 0;
inline constexpr bool kRowPairs = false;
constexpr int registers(int) { return 1; }

struct Bytes {
  uint8_t v[16];
};
struct Ints {
  int32_t v[4];
};
struct Floats {
  float v[4];
};
using Quads = const int8_t*;

inline Bytes load_bytes(const uint8_t* p) {
  Bytes b;
  std::memcpy(b.v, p, sizeof b.v);
  return b;
}
inline Bytes low_nibbles(Bytes b) {
  for (uint8_t& v : b.v) v &= 15;
  return b;
}
inline Bytes high_nibbles(Bytes b) {
  for (uint8_t& v : b.v) v >>= 4;
  return b;
}

// Bits of `b` moved left by kShift (right when negative), those of `mask` put into `w`.
template <int kShift>
inline Bytes merge(Bytes w, Bytes b, char mask) {
  for (int i = 0; i < 16; i++)
    w.v[i] |= uint8_t((kShift >= 0 ? b.v[i] << (kShift & 7) : b.v[i] >> (-kShift & 7)) & mask);
  return w;
}

inline Quads load_quads(const int8_t* p) { return p; }
template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
  for (int lane = 0; lane < 4; lane++)
    for (int i = 0; i < 4; i++) sum.v[lane] += int(w.v[4 * lane + i]) * a[4 * kQuad + i];
  return sum;
}
template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  for (int lane = 0; lane < 4; lane++)
    for (int i = 0; i < 4; i++) sum.v[lane] += (int(w.v[4 * lane + i]) - 128) * a[4 * kQuad + i];
  return sum;
}

template <class F>
inline Floats each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
inline float float_at(const uint8_t* p, int i) {
  float value;
  std::memcpy(&value, p + 4 * i, 4);
  return value;
}
inline uint16_t short_at(const uint8_t* p, int i) {
  uint16_t value;
  std::memcpy(&value, p + 2 * i, 2);
  return value;
}

inline Ints broadcast(int32_t v) { return {{v, v, v, v}}; }
inline Floats broadcast(float v) { return {{v, v, v, v}}; }
inline Floats to_floats(Ints v) {
  return each([&](int i) { return float(v.v[i]); });
}
inline Floats load_floats(const float* p) {
  return each([=](int i) { return p[i]; });
}
inline Floats load_halves(const uint8_t* p) {
  return each([=](int i) { return half_to_float(short_at(p, i)); });
}
inline Floats load_bfloats(const uint8_t* p) {
  return each([=](int i) { return bfloat_to_float(short_at(p, i)); });
}
inline Floats load_unsigned(const uint8_t* p) {
  return each([=](int i) { return float(p[i]); });
}
inline Floats load_signed(const uint8_t* p) {
  return each([=](int i) { return float(int8_t(p[i])); });
}
inline Floats multiply(Floats a, Floats b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
inline Floats add(Floats a, Floats b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
  return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline Floats subtract_product(Floats a, Floats b, Floats c) {
  return each([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
}
inline void store(float* p, Floats v) { std::memcpy(p, v.v, sizeof v.v); }
// Always inlined: GCC drops calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) { __builtin_prefetch(p); }

}  // namespace ringline::portable
