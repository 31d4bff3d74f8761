// Attention over blocks in two passes: all scores and their softmax first, then the weighted sum of the
// values. A score is one chain of multiply-adds along head_dim; a softmax sum goes by logical index (lane =
// index mod 16); a value sum goes key by key in logical order. Where a key lies changes none of these.
#include "kernels/engine_table.hpp"
#include "kernels/simd.hpp"

namespace ringline::RINGLINE_ISA {

namespace {

constexpr uint32_t kFullMask = 0xffff;

// How many query heads and blocks (or vectors of values) are held in registers at once.
#if defined(__AVX512F__)
constexpr int kQueries = 8, kTiles = 2, kValues = 2;
#elif defined(__AVX2__)
constexpr int kQueries = 3, kTiles = 2, kValues = 2;
#elif defined(__ARM_NEON)
constexpr int kQueries = 6, kTiles = 1, kValues = 1;
#else
constexpr int kQueries = 2, kTiles = 1, kValues = 1;
#endif

void store_lanes(float* to, Vec values, uint32_t mask) {
  if (mask == kFullMask) return store(to, values);
  float lanes[kLanes];
  store(lanes, values);
  for (; mask != 0; mask &= mask - 1) *to++ = lanes[__builtin_ctz(mask)];
}

// Scores of Q query heads against the keys of T blocks; `at` is the logical index of the first key.
template <int Q, int T>
int64_t score_tiles(const AttentionTask& task, const KvSegment* segments, int64_t head, int64_t at) {
  const float* query = (segments->sink ? task.query_sink : task.query) + head * task.head_dim;
  Vec sums[T][Q];
  const uint16_t* keys[T];
  for (int t = 0; t < T; ++t) {
    keys[t] = segments[t].plane + task.k_offset;
    for (int q = 0; q < Q; ++q) sums[t][q] = broadcast(0.0f);
  }
  for (int64_t d = 0; d < task.head_dim; ++d) {
    Vec key[T];
    for (int t = 0; t < T; ++t) key[t] = load_half(keys[t] + d * kLanes);
    for (int q = 0; q < Q; ++q) {
      const Vec x = broadcast(query[q * task.head_dim + d]);
      for (int t = 0; t < T; ++t) sums[t][q] = fma(x, key[t], sums[t][q]);
    }
  }
  const int64_t stride = score_stride(task.n_keys);
  for (int t = 0; t < T; ++t) {
    for (int q = 0; q < Q; ++q)
      store_lanes(task.scores + (head + q) * stride + at, sums[t][q], segments[t].mask);
    at += __builtin_popcount(segments[t].mask);
  }
  return at;
}

template <int Q>
void score(const AttentionTask& task, int64_t head) {
  int64_t at = 0;
  for (int64_t s = 0; s < task.n_segments;) {
    const KvSegment* segments = task.segments + s;
    if (kTiles == 2 && s + 1 < task.n_segments && segments[0].sink == segments[1].sink) {
      at = score_tiles<Q, kTiles>(task, segments, head, at);
      s += kTiles;
    } else {
      at = score_tiles<Q, 1>(task, segments, head, at);
      s += 1;
    }
  }
}

// Scores become e^(score - largest); the sum is returned.
float softmax(float* scores, int64_t n) {
  for (int64_t i = n; i % kLanes != 0; ++i) scores[i] = -__builtin_inff();
  Vec largest = load(scores);
  for (int64_t i = kLanes; i < n; i += kLanes) largest = max(largest, load(scores + i));
  const Vec top = broadcast(reduce_max(largest));
  Vec sum = broadcast(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec e = exp(sub(load(scores + i), top));
    store(scores + i, e);
    sum = add(sum, e);
  }
  return reduce_add(sum);
}

// Adds one block's values to out, V vectors of 16 dimensions (from d on) of Q query heads at a time.
template <int Q, int V>
void add_values(const AttentionTask& task, const KvSegment& segment, int64_t head, int64_t at, int64_t d) {
  const int64_t stride = score_stride(task.n_keys);
  const uint16_t* values = segment.plane + task.v_offset + d;
  const float* weights = task.scores + head * stride + at;
  float* out = task.out + head * task.head_dim + d;
  Vec sums[V][Q];
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) sums[v][q] = load(out + q * task.head_dim + v * kLanes);
  }
  for (uint32_t mask = segment.mask; mask != 0; mask &= mask - 1, ++weights) {
    const uint16_t* row = values + int64_t{__builtin_ctz(mask)} * task.head_dim;
    Vec value[V];
    for (int v = 0; v < V; ++v) value[v] = load_half(row + v * kLanes);
    for (int q = 0; q < Q; ++q) {
      const Vec weight = broadcast(weights[q * stride]);
      for (int v = 0; v < V; ++v) sums[v][q] = fma(weight, value[v], sums[v][q]);
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) store(out + q * task.head_dim + v * kLanes, sums[v][q]);
  }
}

template <int Q>
void weigh(const AttentionTask& task, int64_t head) {
  float* out = task.out + head * task.head_dim;
  for (int64_t i = 0; i < Q * task.head_dim; ++i) out[i] = 0.0f;
  int64_t at = 0;
  for (int64_t s = 0; s < task.n_segments; ++s) {
    for (int64_t d = 0; d < task.head_dim; d += kValues * kLanes) {
      add_values<Q, kValues>(task, task.segments[s], head, at, d);
    }
    at += __builtin_popcount(task.segments[s].mask);
  }
}

template <int Q>
void attend_heads(const AttentionTask& task, int64_t head) {
  score<Q>(task, head);
  float sums[Q];
  for (int q = 0; q < Q; ++q) {
    sums[q] = softmax(task.scores + (head + q) * score_stride(task.n_keys), task.n_keys);
  }
  weigh<Q>(task, head);
  for (int q = 0; q < Q; ++q) {
    float* out = task.out + (head + q) * task.head_dim;
    const Vec sum = broadcast(sums[q]);
    for (int64_t d = 0; d < task.head_dim; d += kLanes) store(out + d, div(load(out + d), sum));
  }
}

template <int Q>
void attend_rest(const AttentionTask& task, int64_t head, int64_t rest) {
  if (rest >= Q) {
    attend_heads<Q>(task, head);
    if (rest > Q) attend_rest<kQueries>(task, head + Q, rest - Q);
  } else if constexpr (Q > 1) {
    attend_rest<Q - 1>(task, head, rest);
  }
}

}  // namespace

void attend(const AttentionTask& task) { attend_rest<kQueries>(task, 0, task.group); }

}  // namespace ringline::RINGLINE_ISA
