#include <cmath>

#include "kernels/engine_table.hpp"
#include "kernels/kv_storage.hpp"
#include "kernels/simd.hpp"

namespace ringline::RINGLINE_ISA {

void rms_norm(const float* x, const float* weight, int64_t n, float eps, float* out) {
  Vec sum = broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec a = load(x + i);
    sum = fma(a, a, sum);
  }
  const Vec scale = broadcast(1.0f / std::sqrt(reduce_add(sum) / static_cast<float>(n) + eps));
  for (int64_t i = 0; i < n; i += kLanes) store(out + i, mul(mul(load(x + i), scale), load(weight + i)));
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  const Vec zero = broadcast(0.0f);
  const Vec one = broadcast(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec g = load(gate + i);
    store(out + i, mul(div(g, add(one, exp(sub(zero, g)))), load(up + i)));
  }
}

void add_to(const float* x, int64_t n, float* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

void rotate(const float* x, const Rotation& r, float* out) {
  const int64_t step = r.adjacent ? 2 : 1;
  const float* first = x;
  const float* second = r.adjacent ? x + 1 : x + r.half;
  for (int64_t i = 0; i < r.half; ++i) {
    const float a = first[i * step];
    const float b = second[i * step];
    out[i] = (a * r.cos[i] - b * r.sin[i]) * r.factors[i];
    out[i + r.half] = (a * r.sin[i] + b * r.cos[i]) * r.factors[i];
  }
}

int64_t argmax(const float* x, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  float best = x[0];
  if (whole > 0) {
    Vec largest = load(x);
    for (int64_t i = kLanes; i < whole; i += kLanes) largest = max(largest, load(x + i));
    best = reduce_max(largest);
  }
  for (int64_t i = whole; i < n; ++i) best = x[i] > best ? x[i] : best;
  const Vec wanted = broadcast(best);
  for (int64_t i = 0; i < whole; i += kLanes) {
    const uint32_t mask = equal_mask(load(x + i), wanted);
    if (mask != 0) return i + __builtin_ctz(mask);
  }
  for (int64_t i = whole; i < n; ++i) {
    if (x[i] == best) return i;
  }
  return 0;
}

void maxima(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kMaximumOf) {
    Vec largest = load(x + i);
    for (int64_t j = kLanes; j < kMaximumOf; j += kLanes) largest = max(largest, load(x + i + j));
    out[i / kMaximumOf] = reduce_max(largest);
  }
}

double sum_exp(const float* x, int64_t n, float top) {
  constexpr int64_t kInFloats = 64 * kLanes;  // summed in single precision
  const Vec largest = broadcast(top);
  double total = 0.0;
  for (int64_t i = 0; i < n;) {
    Vec sum = broadcast(0.0f);
    for (const int64_t end = i + kInFloats < n ? i + kInFloats : n; i < end; i += kLanes)
      sum = add(sum, exp(sub(load(x + i), largest)));
    total += double(reduce_add(sum));
  }
  return total;
}

const EngineKernels engine_kernels = {rms_norm,
                                      silu_mul,
                                      add_to,
                                      rotate,
                                      argmax,
                                      maxima,
                                      sum_exp,
                                      {{store_key<HalfKv>, store_value<HalfKv>, attend<HalfKv>},
                                       {store_key<Int8Kv>, store_value<Int8Kv>, attend<Int8Kv>}}};

}  // namespace ringline::RINGLINE_ISA
