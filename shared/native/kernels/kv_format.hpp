// How a pool's keys and values are stored: the choice, and the sizes that follow from it.
#pragma once

#include <cstdint>

namespace ringline {

inline constexpr int kBlockTokens = 16;  // positions of a block: the lanes of one 512-bit register of floats

enum class KvFormat : uint8_t { kF16, kInt8 };
inline constexpr int kKvFormats = 2;

// Bytes of the numbers of one head's keys (or values) of one block; behind them the scales, one a position.
constexpr int64_t kv_scales_offset(KvFormat format, int64_t head_dim) {
  return kBlockTokens * head_dim * (format == KvFormat::kF16 ? 2 : 1);
}
constexpr int64_t kv_head_bytes(KvFormat format, int64_t head_dim) {
  const int64_t scales = format == KvFormat::kF16 ? 0 : kBlockTokens * int64_t{sizeof(float)};
  return kv_scales_offset(format, head_dim) + scales;
}

}  // namespace ringline
