// Activations to int8: per group of 32 columns, q = round_to_even(x * 127 / amax), scale = amax / 127.
#include "kernels/quantize.hpp"

#include <cstring>

namespace ringline::RINGLINE_ISA {
namespace {

constexpr int32_t kInfinity = 0x7f800000;
constexpr float kSmallest = 0x1p-100f;  // below it a group counts as zero: 127 / amax stays finite
constexpr float kRound = 0x1.8p23f;  // x + kRound - kRound rounds to even; the sum's low bits are the integer

// Bits of the largest |x|. Compared as integers, a NaN is larger than every number.
int32_t largest_bits(const float* x) {
  int32_t largest = 0;
  for (int i = 0; i < kGroup; i++) {
    int32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

void round_group(const float* x, float inverse, int8_t* q) {
  int32_t zero;
  std::memcpy(&zero, &kRound, 4);
  for (int i = 0; i < kGroup; i++) {
    const float moved = x[i] * inverse + kRound;
    int32_t bits;
    std::memcpy(&bits, &moved, 4);
    q[i] = int8_t(bits - zero);
  }
}

int32_t half_sum(const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < kGroup / 2; i++) sum += q[i];
  return sum;
}

void quantize_group(const float* x, int64_t group, const Activations& a) {
  const int32_t bits = largest_bits(x);
  int8_t* q = a.q + group * kGroup;
  float largest;
  std::memcpy(&largest, &bits, 4);
  const bool finite = bits < kInfinity;
  const bool zero = !finite || largest < kSmallest;
  if (zero) {
    std::memset(q, 0, kGroup);
  } else {
    round_group(x, 127.0f / largest, q);
  }
  const float scale = !finite ? __builtin_nanf("") : zero ? 0.0f : largest / 127.0f;
  a.scale[group] = scale;
  a.sum[2 * group] = half_sum(q);
  a.sum[2 * group + 1] = half_sum(q + kGroup / 2);
  a.scaled_sum[group] = scale * float(a.sum[2 * group] + a.sum[2 * group + 1]);
}

}  // namespace

void quantize(const float* x, int64_t rows, int64_t cols, const Activations& a) {
  const int64_t groups = a.cols / kGroup;
  const int64_t whole = cols / kGroup;
  for (int64_t r = 0; r < rows; r++, x += cols) {
    for (int64_t g = 0; g < whole; g++) quantize_group(x + g * kGroup, r * groups + g, a);
    if (whole == groups) continue;
    float rest[kGroup] = {};
    std::memcpy(rest, x + whole * kGroup, size_t(cols - whole * kGroup) * sizeof(float));
    quantize_group(rest, r * groups + whole, a);
  }
}

}  // namespace ringline::RINGLINE_ISA
