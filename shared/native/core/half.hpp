// IEEE half and bfloat16 bits to float, exactly, without instructions that not every machine has.
#pragma once

#include <bit>
#include <cstdint>

namespace ringline {

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // Shifting the half's exponent into a float's place is off by a factor of 2^112, also for subnormal halves.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

inline float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

}  // namespace ringline
