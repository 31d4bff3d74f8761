// GGUF blocks to the neutral form, and the neutral form to floats. The GGUF's block layouts are ggml's
// (ggml-common.h); the float formulas are evaluated in the order of `gguf.quants`, so that every bit agrees.
#include <cstring>

#include "core/block.hpp"
#include "core/half.hpp"

namespace ringline {
namespace {

uint16_t load16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }
uint32_t load32(const uint8_t* p) { return uint32_t(load16(p)) | uint32_t(load16(p + 2)) << 16; }

// 16 bytes of nibbles: columns 0..15 low, 16..31 high.
void read_nibbles(const uint8_t* qs, uint8_t* values) {
  for (int i = 0; i < 16; i++) {
    values[i] = qs[i] & 15;
    values[i + 16] = qs[i] >> 4;
  }
}

void add_fifth_bits(uint32_t qh, uint8_t* values) {
  for (int i = 0; i < 32; i++) values[i] |= uint8_t((qh >> i & 1) << 4);
}

// Q4_K's and Q5_K's 12 bytes of 6-bit scales and minima: the high bits of the last four are in the first
// four.
void read_scales_and_minima(const uint8_t* s, Block& block) {
  for (int g = 0; g < 4; g++) {
    block.scales[g] = s[g] & 63;
    block.minima[g] = s[g + 4] & 63;
    block.scales[g + 4] = uint8_t((s[g + 8] & 15) | (s[g] >> 6) << 4);
    block.minima[g + 4] = uint8_t((s[g + 8] >> 4) | (s[g + 4] >> 6) << 4);
  }
}

// 128 bytes of nibbles: of each 32 bytes, the low nibbles are one group and the high ones the next.
void read_group_nibbles(const uint8_t* qs, uint8_t* values) {
  for (int pair = 0; pair < 4; pair++)
    for (int i = 0; i < 32; i++) {
      values[64 * pair + i] = qs[32 * pair + i] & 15;
      values[64 * pair + 32 + i] = qs[32 * pair + i] >> 4;
    }
}

void read_q5k_high_bits(const uint8_t* qh, uint8_t* values) {
  for (int g = 0; g < 8; g++)
    for (int i = 0; i < 32; i++) values[32 * g + i] |= uint8_t((qh[i] >> g & 1) << 4);
}

// ql: 2 x (64 bytes: low nibbles columns 0..63, high 64..127); qh: 2 x (32 bytes: 2-bit fields of four
// groups).
void read_q6k_values(const uint8_t* ql, const uint8_t* qh, uint8_t* values) {
  for (int half = 0; half < 2; half++)
    for (int i = 0; i < 128; i++) {
      const int low = ql[64 * half + i % 64] >> (i < 64 ? 0 : 4) & 15;
      const int high = qh[32 * half + i % 32] >> (2 * (i / 32)) & 3;
      values[128 * half + i] = uint8_t(low | high << 4);
    }
}

void scale_and_offset(float d, float offset, const uint8_t* values, int n, float* out) {
  for (int i = 0; i < n; i++) out[i] = d * float(values[i]) + offset;
}

void scale_from_zero(float d, int zero, const uint8_t* values, int n, float* out) {
  for (int i = 0; i < n; i++) out[i] = d * float(values[i] - zero);
}

}  // namespace

void read_gguf_block(TensorType type, const uint8_t* source, Block& block) {
  const bool q6 = type == TensorType::kQ6_K;
  block.d = load16(source + (q6 ? 208 : 0));
  block.m = load16(source + 2);
  switch (type) {
    case TensorType::kQ4_0:
      read_nibbles(source + 2, block.values);
      break;
    case TensorType::kQ4_1:
      read_nibbles(source + 4, block.values);
      break;
    case TensorType::kQ5_0:
      read_nibbles(source + 6, block.values);
      add_fifth_bits(load32(source + 2), block.values);
      break;
    case TensorType::kQ5_1:
      read_nibbles(source + 8, block.values);
      add_fifth_bits(load32(source + 4), block.values);
      break;
    case TensorType::kQ8_0:
      for (int i = 0; i < 32; i++) block.values[i] = source[2 + i] ^ 0x80;
      break;
    case TensorType::kQ4_K:
      read_scales_and_minima(source + 4, block);
      read_group_nibbles(source + 16, block.values);
      break;
    case TensorType::kQ5_K:
      read_scales_and_minima(source + 4, block);
      read_group_nibbles(source + 48, block.values);
      read_q5k_high_bits(source + 16, block.values);
      break;
    case TensorType::kQ6_K:
      read_q6k_values(source, source + 128, block.values);
      std::memcpy(block.scales, source + 192, 16);
      break;
    default:
      break;
  }
}

void dequantize_block(TensorType type, const Block& block, float* out) {
  const int zero = layout_of(type).zero;
  const float d = half_to_float(block.d);
  const float m = half_to_float(block.m);
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
      scale_and_offset(d, m, block.values, 32, out);
      break;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      for (int g = 0; g < 8; g++)
        scale_and_offset(d * float(block.scales[g]), -(m * float(block.minima[g])), block.values + 32 * g, 32,
                         out + 32 * g);
      break;
    case TensorType::kQ6_K:
      for (int h = 0; h < 16; h++)
        scale_from_zero(d * float(int8_t(block.scales[h])), zero, block.values + 16 * h, 16, out + 16 * h);
      break;
    default:
      scale_from_zero(d, zero, block.values, 32, out);
      break;
  }
}

}  // namespace ringline
