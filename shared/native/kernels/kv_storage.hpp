// The two storages of keys and values as types, for kernels that are written once for both.
#pragma once

#include <cstddef>

#include "kernels/kv_format.hpp"
#include "kernels/simd.hpp"

namespace ringline::RINGLINE_ISA {

struct HalfKv {
  using Element = uint16_t;
  static constexpr KvFormat kFormat = KvFormat::kF16;
  static constexpr bool kScaled = false;
  static Vec load16(const Element* p) { return load_half(p); }
};

struct Int8Kv {
  using Element = int8_t;
  static constexpr KvFormat kFormat = KvFormat::kInt8;
  static constexpr bool kScaled = true;
  static Vec load16(const Element* p) { return load_int8(p); }
};

// `head` is one head's keys or values of one block (core/kv_pool.hpp).
template <class Kv>
const typename Kv::Element* elements_of(const std::byte* head) {
  return reinterpret_cast<const typename Kv::Element*>(head);
}
template <class Kv>
const float* scales_of(const std::byte* head, int64_t head_dim) {
  return reinterpret_cast<const float*>(head + kv_scales_offset(Kv::kFormat, head_dim));
}

}  // namespace ringline::RINGLINE_ISA
