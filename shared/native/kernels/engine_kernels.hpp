// The kernels around the matrix products: attention and element-wise work. As in kernels.hpp, every variant
// provides one table, and an output's bits depend on its own inputs alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_format.hpp"

namespace ringline {

// 16 consecutive slots of one block (of the pool or of a scratch), of which `mask` says which lanes are
// attended. `plane` is the block's plane (see Plane in core/kv_pool.hpp); `sink` picks the query's second
// rotation.
struct KvSegment {
  const std::byte* plane;
  uint32_t mask;
  bool sink;
};

// Attention of one token over one K/V head, for the `group` query heads that share it.
struct AttentionTask {
  const KvSegment* segments;  // in logical order: sink, window, ancestors, the token itself
  int64_t n_segments;
  int64_t n_keys;    // lanes set in all masks
  int64_t k_offset;  // of this layer and K/V head, in bytes from a segment's plane
  int64_t v_offset;
  int64_t head_dim;  // multiple of 32
  int64_t group;
  const float* query;       // [group, head_dim], rotated and scaled by 1 / sqrt(head_dim)
  const float* query_sink;  // the same, rotated for the sink
  float* scores;            // work space, [group, score_stride(n_keys)]
  float* out;               // [group, head_dim]
};

inline constexpr int64_t kMaxAttended = 8;  // tasks of one call

// Rows of scores are padded for whole vectors and one more number.
inline constexpr int64_t score_stride(int64_t n_keys) { return (n_keys + 15) / 16 * 16 + 16; }

inline constexpr int64_t kMaximumOf = 64;

struct Rotation {
  const float* cos;  // [head_dim / 2]
  const float* sin;
  const float* factors;  // [head_dim / 2], of each pair
  int64_t half;          // head_dim / 2
  bool adjacent;         // pairs (2i, 2i + 1) as in GGUF's llama layout; otherwise (i, i + half)
};

// What depends on how keys and values are stored. `head` is one head's keys or values of one block.
struct KvKernels {
  // Rounds x[head_dim] into the block's position `lane`, as core/kv_pool.hpp draws it.
  void (*store_key)(const float* x, int64_t head_dim, std::byte* head, int64_t lane);
  void (*store_value)(const float* x, int64_t head_dim, std::byte* head, int64_t lane);
  // Up to kMaxAttended tasks, which read common segments together; a task's bits do not depend on the others.
  void (*attend)(const AttentionTask* tasks, int64_t n_tasks);
};

struct EngineKernels {
  // out = x / sqrt(mean(x^2) + eps) * weight; n is a multiple of 16.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float eps, float* out);
  // out = silu(gate) * up; n is a multiple of 16.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*add)(const float* x, int64_t n, float* sum);
  // Rotates one head, multiplies by the factors and leaves it in (i, i + half) order.
  void (*rotate)(const float* x, const Rotation& r, float* out);
  // Index of the largest element, the lowest one among equals; n >= 1.
  int64_t (*argmax)(const float* x, int64_t n);
  // The largest of every kMaximumOf numbers in x[n], n a multiple of it, into out[n / kMaximumOf].
  void (*maxima)(const float* x, int64_t n, float* out);
  // Sum of e^(x - top), where nothing in x[n] is above `top`; n is a multiple of 16.
  double (*sum_exp)(const float* x, int64_t n, float top);
  KvKernels formats[kKvFormats];

  const KvKernels& kv(KvFormat format) const { return formats[static_cast<int>(format)]; }
};

}  // namespace ringline
