// The attention part of a pass: rotation, K/V into the scratch, attention of every node.
#include <algorithm>

#include "core/forward.hpp"

namespace ringline {

// Items are (slots of one tile, K/V head), so no two threads write into the same cache line of keys.
int64_t Forward::rotated_items() const {
  const int64_t lead = nodes_[0].slot % kBlockTokens;
  return (lead + rows() + kBlockTokens - 1) / kBlockTokens * spec_.n_kv_head;
}

void Forward::rotate_and_store(int64_t layer, int64_t item) {
  const int64_t first = item / spec_.n_kv_head * kBlockTokens - nodes_[0].slot % kBlockTokens;
  rotate_rows(layer, item % spec_.n_kv_head, std::max<int64_t>(first, 0),
              std::min(first + kBlockTokens, rows()));
}

void Forward::rotate_rows(int64_t layer, int64_t kv_head, int64_t first, int64_t last) {
  const int64_t size = spec_.head_dim;
  const EngineKernels& kernels = model_.kernels();
  const KvKernels& kv = kernels.kv(tiles_.plane.format);
  const int64_t k_offset = tiles_.plane.k_offset(static_cast<int>(layer), static_cast<int>(kv_head));
  const int64_t v_offset = tiles_.plane.v_offset(static_cast<int>(layer), static_cast<int>(kv_head));
  const float* factors = model_.layer(layer).key_factors.data() + kv_head * size / 2;
  float* rotated = k_rotated_.data() + kv_head * size;
  for (int64_t row = first; row < last; ++row) {
    const int64_t slot = nodes_[static_cast<size_t>(row)].slot;
    const int64_t at = row * spec_.kv_width() + kv_head * size;
    float* key = rotated + row * spec_.kv_width();
    kernels.rotate(k_.data() + at, rotation(row, false, factors), key);
    std::byte* tile = tiles_.tile(slot);
    kv.store_key(key, size, tile + k_offset, slot % kBlockTokens);
    kv.store_value(v_.data() + at, size, tile + v_offset, slot % kBlockTokens);
    rotate_queries(layer, row, kv_head);
  }
}

Rotation Forward::rotation(int64_t row, bool sink, const float* factors) const {
  const int64_t half = model_.rope().half();
  const float* cos = angles_.data() + (row * 4 + (sink ? 2 : 0)) * half;
  return {cos, cos + half, factors, half, model_.adjacent_pairs()};
}

void Forward::rotate_queries(int64_t layer, int64_t row, int64_t kv_head) {
  const int64_t size = spec_.head_dim;
  const EngineKernels& kernels = model_.kernels();
  const float* factors = model_.layer(layer).query_factors.data() + kv_head * size / 2;
  const PassNode& node = nodes_[static_cast<size_t>(row)];
  const bool twice = node.sink_position() != node.position;
  for (int64_t i = 0; i < spec_.group(); ++i) {
    const int64_t at = row * spec_.q_width() + (kv_head * spec_.group() + i) * size;
    kernels.rotate(q_.data() + at, rotation(row, false, factors), rotated_.data() + at);
    if (twice) kernels.rotate(q_.data() + at, rotation(row, true, factors), rotated_sink_.data() + at);
  }
}

// How many threads share one (node, K/V head): more than one only when there are too few of them to go round.
int64_t Forward::head_parts() const {
  const int64_t items = rows() * spec_.n_kv_head;
  return std::clamp<int64_t>((model_.n_threads() + items - 1) / items, 1, spec_.group());
}

// Every thread gets two claims or more, so that none waits long for the others.
int64_t Forward::attended_together() const {
  return std::clamp<int64_t>(rows() * spec_.n_kv_head / (2 * model_.n_threads()), 1, kAttendedTogether);
}

void Forward::attention(int worker, int64_t layer) {
  const int64_t parts = head_parts();
  const int64_t step = attended_together();
  const int64_t steps = (rows() + step - 1) / step;
  const int64_t group = spec_.group();
  model_.threads().phase(worker, steps * spec_.n_kv_head * parts, 1, [&](int64_t item, int64_t) {
    const int64_t part = item % parts;
    const int64_t kv_head = item / parts % spec_.n_kv_head;
    const int64_t first = item / parts / spec_.n_kv_head * step;
    attend(worker, layer,
           {first, std::min(first + step, rows()), kv_head, kv_head * group + part * group / parts,
            kv_head * group + (part + 1) * group / parts});
  });
}

void Forward::attend(int worker, int64_t layer, const AttentionShare& share) {
  AttentionTask tasks[kAttendedTogether];
  float* scores = scores_[static_cast<size_t>(worker)].data();
  for (int64_t row = share.first; row < share.last; ++row) {
    AttentionTask& task = tasks[row - share.first];
    task = attention_task(share, layer, row, scores);
    const Context context =
        segments_.context(nodes_[static_cast<size_t>(row)], row, tiles_, worker, row - share.first);
    task.segments = context.segments;
    task.n_segments = context.n_segments;
    task.n_keys = context.n_keys;
    scores += task.group * score_stride(task.n_keys);
  }
  model_.kernels().kv(tiles_.plane.format).attend(tasks, share.last - share.first);
  const int64_t width = (share.last_head - share.first_head) * spec_.head_dim;
  for (int64_t row = share.first; row < share.last; ++row) {
    model_.matrices().quantize(attended_.row(row) + share.first_head * spec_.head_dim, 1, width,
                               attended_.slice(row, share.first_head * spec_.head_dim, width));
  }
}

// All but the context.
AttentionTask Forward::attention_task(const AttentionShare& share, int64_t layer, int64_t row,
                                      float* scores) {
  const PassNode& node = nodes_[static_cast<size_t>(row)];
  const int64_t at = row * spec_.q_width() + share.first_head * spec_.head_dim;
  const bool twice = node.sink_position() != node.position;
  AttentionTask task;
  task.k_offset = tiles_.plane.k_offset(static_cast<int>(layer), static_cast<int>(share.kv_head));
  task.v_offset = tiles_.plane.v_offset(static_cast<int>(layer), static_cast<int>(share.kv_head));
  task.head_dim = spec_.head_dim;
  task.group = share.last_head - share.first_head;
  task.query = rotated_.data() + at;
  task.query_sink = twice ? rotated_sink_.data() + at : task.query;
  task.scores = scores;
  task.out = attended_.row(row) + share.first_head * spec_.head_dim;
  return task;
}

}  // namespace ringline
