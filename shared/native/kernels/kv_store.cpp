// Rounding keys and values to what the pool and the scratch hold.
#include <cstring>

#include "kernels/engine_table.hpp"
#include "kernels/kv_storage.hpp"

namespace ringline::RINGLINE_ISA {

namespace {

constexpr float kLargestCode = 127.0f;
constexpr float kSmallestScale = 1.17549435e-38f;  // below it a division by the scale could leave int8

// Round to nearest even; element i goes to out[i * stride].
void to_half(const float* x, int64_t n, uint16_t* out, int64_t stride) {
  uint16_t lanes[kLanes];
  for (int64_t i = 0; i < n; i += kLanes) {
    store_half(lanes, load(x + i));
    for (int64_t j = 0; j < kLanes; ++j) out[(i + j) * stride] = lanes[j];
  }
}

float largest_magnitude(const float* x, int64_t n) {
  const Vec zero = broadcast(0.0f);
  Vec largest = zero;
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec value = load(x + i);
    largest = max(largest, max(value, sub(zero, value)));
  }
  return reduce_max(largest);
}

// Code c of x is round(x / scale) with scale = max|x| / 127, so |x - c scale| <= scale / 2. Returns the
// scale. Adding 1.5 * 2^23 rounds to nearest even and leaves the integer in the low bits.
float to_int8(const float* x, int64_t n, int8_t* out, int64_t stride) {
  const float exact = largest_magnitude(x, n) / kLargestCode;
  const float scale = exact < kSmallestScale ? 0.0f : exact;
  const Vec divisor = broadcast(scale == 0.0f ? 1.0f : scale);
  float lanes[kLanes];
  for (int64_t i = 0; i < n; i += kLanes) {
    store(lanes, add(div(load(x + i), divisor), broadcast(12582912.0f)));
    for (int64_t j = 0; j < kLanes; ++j) {
      uint32_t bits;
      std::memcpy(&bits, &lanes[j], sizeof bits);
      out[(i + j) * stride] = static_cast<int8_t>(bits & 0xff);
    }
  }
  return scale;
}

template <class Kv>
void store_vector(const float* x, int64_t n, std::byte* head, int64_t first, int64_t stride, int64_t lane) {
  auto* out = reinterpret_cast<typename Kv::Element*>(head) + first;
  if constexpr (Kv::kScaled) {
    const float scale = to_int8(x, n, out, stride);
    std::memcpy(head + kv_scales_offset(Kv::kFormat, n) + lane * sizeof scale, &scale, sizeof scale);
  } else {
    to_half(x, n, out, stride);
  }
}

}  // namespace

template <class Kv>
void store_key(const float* x, int64_t head_dim, std::byte* head, int64_t lane) {
  store_vector<Kv>(x, head_dim, head, lane, kBlockTokens, lane);
}

template <class Kv>
void store_value(const float* x, int64_t head_dim, std::byte* head, int64_t lane) {
  store_vector<Kv>(x, head_dim, head, lane * head_dim, 1, lane);
}

template void store_key<HalfKv>(const float*, int64_t, std::byte*, int64_t);
template void store_key<Int8Kv>(const float*, int64_t, std::byte*, int64_t);
template void store_value<HalfKv>(const float*, int64_t, std::byte*, int64_t);
template void store_value<Int8Kv>(const float*, int64_t, std::byte*, int64_t);

}  // namespace ringline::RINGLINE_ISA
