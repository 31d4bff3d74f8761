// Attention over blocks in two passes: all scores and their softmax first, then the weighted sum of the
// values. A score is one chain of multiply-adds along head_dim; a softmax sum goes by logical index (lane =
// index mod 16); a value sum goes key by key in logical order. Where a key lies changes none of these.
// Scales of int8 storage cost one multiplication a key: a finished score takes the key's, a weight the
// value's.
//
// Tasks are nodes of a tree or neighbours in a prompt: they read nearly the same blocks, so both passes go
// run of segments by run of segments through all of them, and a run is in the L2 cache for all but the first.
#include "kernels/engine_table.hpp"
#include "kernels/kv_storage.hpp"
#include "kernels/simd.hpp"

namespace ringline::RINGLINE_ISA {

namespace {

constexpr uint32_t kFullMask = 0xffff;
constexpr int64_t kRun = 32;         // segments at a time: 128 KB of f16 keys or values at head_dim 128
constexpr int64_t kInRegisters = 4;  // segments whose values are added up before the sums leave the registers

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

// Segments [first, last) of a task; the first one's keys begin at logical index `at`.
struct Run {
  int64_t first, last, at;
};

int64_t keys_in(const AttentionTask& task, const Run& run) {
  int64_t keys = 0;
  for (int64_t s = run.first; s < run.last; ++s) keys += __builtin_popcount(task.segments[s].mask);
  return keys;
}

// The segment behind this one will be needed next; blocks lie apart, so the hardware does not foresee it.
const std::byte* following(const AttentionTask& task, int64_t s, int64_t offset) {
  return task.segments[s < task.n_segments ? s : task.n_segments - 1].plane + offset;
}

// Scores of Q query heads against the keys of T blocks; `at` is the logical index of the first key.
template <class Kv, int Q, int T>
int64_t score_tiles(const AttentionTask& task, int64_t s, int64_t head, int64_t at) {
  const KvSegment* segments = task.segments + s;
  const float* query = (segments->sink ? task.query_sink : task.query) + head * task.head_dim;
  Vec sums[T][Q];
  const typename Kv::Element* keys[T];
  const typename Kv::Element* next[T];
  for (int t = 0; t < T; ++t) {
    keys[t] = elements_of<Kv>(segments[t].plane + task.k_offset);
    next[t] = elements_of<Kv>(following(task, s + T + t, task.k_offset));
    for (int q = 0; q < Q; ++q) sums[t][q] = broadcast(0.0f);
  }
  for (int64_t d = 0; d < task.head_dim; ++d) {
    Vec key[T];
    for (int t = 0; t < T; ++t) {
      __builtin_prefetch(next[t] + d * kLanes);
      key[t] = Kv::load16(keys[t] + d * kLanes);
    }
    for (int q = 0; q < Q; ++q) {
      const Vec x = broadcast(query[q * task.head_dim + d]);
      for (int t = 0; t < T; ++t) sums[t][q] = fma(x, key[t], sums[t][q]);
    }
  }
  const int64_t stride = score_stride(task.n_keys);
  for (int t = 0; t < T; ++t) {
    float* scores = task.scores + head * stride + at;
    for (int q = 0; q < Q; ++q) {
      Vec sum = sums[t][q];
      if constexpr (Kv::kScaled) {
        sum = mul(sum, load(scales_of<Kv>(segments[t].plane + task.k_offset, task.head_dim)));
      }
      store_lanes(scores + q * stride, sum, segments[t].mask);
    }
    at += __builtin_popcount(segments[t].mask);
  }
  return at;
}

template <class Kv, int Q>
void score(const AttentionTask& task, int64_t head, const Run& run) {
  int64_t at = run.at;
  for (int64_t s = run.first; s < run.last;) {
    if (kTiles == 2 && s + 1 < run.last && task.segments[s].sink == task.segments[s + 1].sink) {
      at = score_tiles<Kv, Q, kTiles>(task, s, head, at);
      s += kTiles;
    } else {
      at = score_tiles<Kv, Q, 1>(task, s, head, at);
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

// Adds the values of segments [first, last) to out, V vectors of 16 dimensions (from d on) of Q query heads.
template <class Kv, int Q, int V>
void add_values(const AttentionTask& task, const Run& run, int64_t head, int64_t d) {
  const int64_t stride = score_stride(task.n_keys);
  const float* weights = task.scores + head * stride + run.at;
  float* out = task.out + head * task.head_dim + d;
  Vec sums[V][Q];
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) sums[v][q] = load(out + q * task.head_dim + v * kLanes);
  }
  for (int64_t s = run.first; s < run.last; ++s) {
    const auto* values = elements_of<Kv>(task.segments[s].plane + task.v_offset) + d;
    const auto* next = elements_of<Kv>(following(task, s + kInRegisters, task.v_offset)) + d;
    for (uint32_t mask = task.segments[s].mask; mask != 0; mask &= mask - 1, ++weights) {
      const int64_t row = int64_t{__builtin_ctz(mask)} * task.head_dim;
      __builtin_prefetch(next + row);
      Vec value[V];
      for (int v = 0; v < V; ++v) value[v] = Kv::load16(values + row + v * kLanes);
      for (int q = 0; q < Q; ++q) {
        const Vec weight = broadcast(weights[q * stride]);
        for (int v = 0; v < V; ++v) sums[v][q] = fma(weight, value[v], sums[v][q]);
      }
    }
  }
  for (int q = 0; q < Q; ++q) {
    for (int v = 0; v < V; ++v) store(out + q * task.head_dim + v * kLanes, sums[v][q]);
  }
}

void scale_lanes(float* weights, const float* scales, uint32_t mask) {
  if (mask == kFullMask) return store(weights, mul(load(weights), load(scales)));
  for (; mask != 0; mask &= mask - 1) *weights++ *= scales[__builtin_ctz(mask)];
}

// The weights of segments [first, last) times their values' scales.
template <class Kv, int Q>
void scale_weights(const AttentionTask& task, const Run& run, int64_t head) {
  const int64_t stride = score_stride(task.n_keys);
  float* weights = task.scores + head * stride + run.at;
  for (int64_t s = run.first; s < run.last; ++s) {
    const KvSegment& segment = task.segments[s];
    const float* scales = scales_of<Kv>(segment.plane + task.v_offset, task.head_dim);
    __builtin_prefetch(scales_of<Kv>(following(task, s + kInRegisters, task.v_offset), task.head_dim));
    for (int q = 0; q < Q; ++q) scale_lanes(weights + q * stride, scales, segment.mask);
    weights += __builtin_popcount(segment.mask);
  }
}

template <class Kv, int Q>
void weigh(const AttentionTask& task, int64_t head, const Run& run) {
  Run part = run;
  for (; part.first < run.last; part.first = part.last) {
    part.last = part.first + kInRegisters < run.last ? part.first + kInRegisters : run.last;
    if constexpr (Kv::kScaled) scale_weights<Kv, Q>(task, part, head);
    for (int64_t d = 0; d < task.head_dim; d += kValues * kLanes)
      add_values<Kv, Q, kValues>(task, part, head, d);
    part.at += keys_in(task, part);
  }
}

// Calls step<Q>(head) for all heads of a group, Q of them at a time.
template <int Q, class Step>
void each_heads(int64_t head, int64_t rest, Step step) {
  if (rest >= Q) {
    step.template operator()<Q>(head);
    if (rest > Q) each_heads<kQueries>(head + Q, rest - Q, step);
  } else if constexpr (Q > 1) {
    each_heads<Q - 1>(head, rest, step);
  }
}

// Calls step(task, run) for all runs of all tasks, the first run of every task first.
template <class Step>
void each_run(const AttentionTask* tasks, int64_t n_tasks, Step step) {
  int64_t at[kMaxAttended] = {};
  bool more = true;
  for (int64_t first = 0; more; first += kRun) {
    more = false;
    for (int64_t t = 0; t < n_tasks; ++t) {
      const int64_t end = tasks[t].n_segments;
      if (first >= end) continue;
      const Run run = {first, first + kRun < end ? first + kRun : end, at[t]};
      step(tasks[t], run);
      at[t] += keys_in(tasks[t], run);
      more = more || run.last < end;
    }
  }
}

// A row of scores ends with room to spare: its last place keeps the sum until the values are weighed.
void weights_of(const AttentionTask& task) {
  const int64_t stride = score_stride(task.n_keys);
  for (int64_t q = 0; q < task.group; ++q) {
    float* scores = task.scores + q * stride;
    scores[stride - 1] = softmax(scores, task.n_keys);
  }
  for (int64_t i = 0; i < task.group * task.head_dim; ++i) task.out[i] = 0.0f;
}

void divide_by_sums(const AttentionTask& task) {
  const int64_t stride = score_stride(task.n_keys);
  for (int64_t q = 0; q < task.group; ++q) {
    float* out = task.out + q * task.head_dim;
    const Vec sum = broadcast(task.scores[(q + 1) * stride - 1]);
    for (int64_t d = 0; d < task.head_dim; d += kLanes) store(out + d, div(load(out + d), sum));
  }
}

}  // namespace

template <class Kv>
void attend(const AttentionTask* tasks, int64_t n_tasks) {
  each_run(tasks, n_tasks, [](const AttentionTask& task, const Run& run) {
    each_heads<kQueries>(0, task.group, [&]<int Q>(int64_t head) { score<Kv, Q>(task, head, run); });
  });
  for (int64_t t = 0; t < n_tasks; ++t) weights_of(tasks[t]);
  each_run(tasks, n_tasks, [](const AttentionTask& task, const Run& run) {
    each_heads<kQueries>(0, task.group, [&]<int Q>(int64_t head) { weigh<Kv, Q>(task, head, run); });
  });
  for (int64_t t = 0; t < n_tasks; ++t) divide_by_sums(tasks[t]);
}

template void attend<HalfKv>(const AttentionTask*, int64_t);
template void attend<Int8Kv>(const AttentionTask*, int64_t);

}  // namespace ringline::RINGLINE_ISA
