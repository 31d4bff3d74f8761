#include "core/forward.hpp"

#include <algorithm>
#include <cmath>

#include "core/layout.hpp"

namespace ringline {

namespace {

constexpr int64_t kClaimBytes =
    1 << 16;  // weights claimed at once: long against a claim, short against a phase
constexpr int64_t kInnerColumns = 128;  // most columns of gate and up that a thread computes at once

size_t cells(int64_t rows, int64_t cols) { return static_cast<size_t>(rows) * static_cast<size_t>(cols); }

// Tiles [first, last) of a matrix, as a matrix.
PackedMatrix tiles_of(const PackedMatrix& w, int64_t first, int64_t last) {
  const int64_t rows = std::min(w.rows - first * kTileRows, (last - first) * kTileRows);
  return {w.type, rows, w.cols, w.data + static_cast<size_t>(first) * tile_bytes(w.type, w.cols)};
}

}  // namespace

ActivationBuffer::ActivationBuffer(int64_t rows, int64_t cols)
    : cols_(cols),
      f32_(cells(rows, cols)),
      q_(cells(rows, cols)),
      scale_(cells(rows, cols / kGroup)),
      sum_(cells(rows, 2 * cols / kGroup)),
      scaled_sum_(cells(rows, cols / kGroup)) {}

Activations ActivationBuffer::part(int64_t row, int64_t rows, int64_t first, int64_t cols) {
  const int64_t at = row * cols_ + first;
  Activations a;
  a.rows = rows;
  a.cols = cols;
  a.f32 = f32_.data() + at;
  a.q = q_.data() + at;
  a.scale = scale_.data() + at / kGroup;
  a.sum = sum_.data() + 2 * at / kGroup;
  a.scaled_sum = scaled_sum_.data() + at / kGroup;
  return a;
}

Forward::Forward(Model& model, int64_t capacity, int64_t max_outputs)
    : model_(model),
      spec_(model.spec()),
      residual_(cells(capacity, spec_.n_embd)),
      hidden_(capacity, spec_.n_embd),
      projected_(cells(capacity, spec_.n_embd)),
      q_(cells(capacity, spec_.q_width())),
      k_(cells(capacity, spec_.kv_width())),
      v_(cells(capacity, spec_.kv_width())),
      k_rotated_(cells(capacity, spec_.kv_width())),
      rotated_(cells(capacity, spec_.q_width())),
      rotated_sink_(cells(capacity, spec_.q_width())),
      angles_(cells(capacity, 2 * spec_.head_dim)),
      attended_(capacity, spec_.q_width()),
      inner_(capacity, spec_.n_ff),
      final_(max_outputs, spec_.n_embd),
      logits_(cells(max_outputs, spec_.n_vocab)),
      argmax_(static_cast<size_t>(max_outputs)),
      segments_(capacity, model.n_threads(), kAttendedTogether) {
  // Memory is taken at the start: the first pass with many rows of logits must not be what makes a board
  // short.
  std::fill_n(logits_.data(), logits_.size(), 0.0f);
  for (int i = 0; i < model.n_threads(); ++i) {
    gate_.emplace_back(cells(2 * capacity, kInnerColumns));
    best_.emplace_back(static_cast<size_t>(max_outputs));
    scores_.emplace_back(cells(kAttendedTogether * spec_.group(), score_stride(kMaxVisible)));
  }
}

void Forward::run(const NodeTree& tree, std::span<const PassNode> nodes, std::span<const int32_t> outputs,
                  const ScratchTiles& tiles) {
  nodes_ = nodes;
  outputs_ = outputs;
  tiles_ = tiles;
  n_outputs_ = static_cast<int64_t>(outputs.size());
  segments_.prepare(tree, nodes);
  for (Buffer<Best>& best : best_) std::fill_n(best.data(), outputs.size(), Best{0.0f, -1});
  auto job = [this](int worker) { program(worker); };
  model_.threads().run(job);
}

void Forward::program(int worker) {
  model_.threads().phase(worker, rows(), 1, [&](int64_t row, int64_t) { embed(row); });
  const int64_t last = model_.n_layers() - 1;
  for (int64_t i = 0; i <= last; ++i) {
    const Layer& layer = model_.layer(i);
    project_qkv(worker, layer, i);
    attention(worker, i);
    add_projection(worker, layer.o, attended_.first(rows()), rows(),
                   [&](int64_t row) { normalise(residual(row), layer.ffn_norm, hidden_, row); });
    gate_and_up(worker, layer);
    if (i == last) break;
    add_projection(worker, layer.down, inner_.first(rows()), rows(), [&](int64_t row) {
      normalise(residual(row), model_.layer(i + 1).attention_norm, hidden_, row);
    });
  }
  add_projection(worker, model_.layer(last).down, inner_.first(rows()), n_outputs_, [&](int64_t output) {
    normalise(residual(outputs_[static_cast<size_t>(output)]), model_.output_norm(), final_, output);
  });
  output_head(worker);
}

// A phase, and step(item) for what comes behind it: of a small batch at the phase's end, of a large one in a
// phase of its own.
template <class Work, class Step>
void Forward::phase_and_steps(int worker, int64_t items, int64_t grain, Work work, bool small, int64_t steps,
                              Step step) {
  ThreadPool& threads = model_.threads();
  if (small || threads.size() == 1) {
    return threads.phase(worker, items, grain, work, [&] {
      for (int64_t i = 0; i < steps; ++i) step(i);
    });
  }
  threads.phase(worker, items, grain, work);
  threads.phase(worker, steps, 1, [&](int64_t i, int64_t) { step(i); });
}

int64_t Forward::grain(const PackedMatrix& w) const {
  const int64_t by_bytes = kClaimBytes / static_cast<int64_t>(tile_bytes(w.type, w.cols));
  const int64_t by_share = w.tiles() / (4 * model_.n_threads());
  return std::max<int64_t>(1, std::min(by_bytes, by_share));
}

void Forward::embed(int64_t row) {
  const PassNode& node = nodes_[static_cast<size_t>(row)];
  dequantize_row(model_.embedding(), node.token, residual(row));
  const Rope& rope = model_.rope();
  float* angles = angles_.data() + row * 2 * spec_.head_dim;
  rope.angles(node.position, angles, angles + rope.half());
  if (node.sink_position() != node.position) {
    rope.angles(node.sink_position(), angles + 2 * rope.half(), angles + 3 * rope.half());
  }
  normalise(residual(row), model_.layer(0).attention_norm, hidden_, row);
}

void Forward::normalise(const float* x, const Buffer<float>& weight, ActivationBuffer& out, int64_t row) {
  const int64_t width = spec_.n_embd;
  model_.kernels().rms_norm(x, weight.data(), width, static_cast<float>(spec_.rms_eps), out.row(row));
  model_.matrices().quantize(out.row(row), 1, width, out.slice(row, 0, width));
}

// Tiles [first, last) of a product; `out` is where the product's first column would be.
void Forward::project(const PackedMatrix& w, const Activations& a, const Buffer<float>& bias, int64_t first,
                      int64_t last, float* out, int64_t stride) {
  const PackedMatrix part = tiles_of(w, first, last);
  const float* offset = bias.size() > 0 ? bias.data() + first * kTileRows : nullptr;
  model_.matrices().matmul(part, a, 0, last - first, offset, out + first * kTileRows, stride);
}

// One claim space over the tiles of all three matrices.
void Forward::project_qkv(int worker, const Layer& layer, int64_t index) {
  const Activations a = hidden_.first(rows());
  const int64_t q = layer.q.tiles();
  const int64_t k = q + layer.k.tiles();
  const int64_t v = k + layer.v.tiles();
  const auto products = [&](int64_t first, int64_t last) {
    if (first < q) project(layer.q, a, layer.q_bias, first, std::min(last, q), q_.data(), spec_.q_width());
    if (first < k && last > q) {
      project(layer.k, a, layer.k_bias, std::max(first, q) - q, std::min(last, k) - q, k_.data(),
              spec_.kv_width());
    }
    if (last > k)
      project(layer.v, a, layer.v_bias, std::max(first, k) - k, last - k, v_.data(), spec_.kv_width());
  };
  phase_and_steps(worker, v, grain(layer.q), products, rows() <= kSerialRows, rotated_items(),
                  [&](int64_t item) { rotate_and_store(index, item); });
}

// x += a W^T, by whole tiles; then step(row) for so many rows.
template <class Step>
void Forward::add_projection(int worker, const PackedMatrix& w, const Activations& a, int64_t steps,
                             Step step) {
  const int64_t width = spec_.n_embd;
  const auto products = [&](int64_t first, int64_t last) {
    project(w, a, {}, first, last, projected_.data(), width);
    const int64_t begin = first * kTileRows;
    const int64_t end = std::min(last * kTileRows, width);
    for (int64_t row = 0; row < rows(); ++row) {
      model_.kernels().add(projected_.data() + row * width + begin, end - begin, residual(row) + begin);
    }
  };
  phase_and_steps(worker, w.tiles(), grain(w), products, steps <= kSerialRows, steps, step);
}

// Two tiles are one quantisation group of `inner`, so a thread takes gate and up all the way to int8 by
// itself.
void Forward::gate_and_up(int worker, const Layer& layer) {
  const int64_t groups = spec_.n_ff / kGroup;
  const int64_t step = std::clamp<int64_t>(grain(layer.gate) / 4, 1, kInnerColumns / kGroup);
  model_.threads().phase(worker, groups, step, [&](int64_t first, int64_t last) {
    gate_and_up_columns(worker, layer, first, last);
  });
}

void Forward::gate_and_up_columns(int worker, const Layer& layer, int64_t first, int64_t last) {
  constexpr int64_t kTilesOfGroup = kGroup / kTileRows;
  const int64_t begin = first * kGroup;
  const int64_t width = (last - first) * kGroup;
  float* gate = gate_[static_cast<size_t>(worker)].data();
  float* up = gate + rows() * width;
  const Activations a = hidden_.first(rows());
  const MatmulKernels& matrices = model_.matrices();
  const int64_t tiles = (last - first) * kTilesOfGroup;
  const bool exact = layout_of(layer.down.type).column_bytes != 0;
  matrices.matmul(tiles_of(layer.gate, first * kTilesOfGroup, last * kTilesOfGroup), a, 0, tiles, nullptr,
                  gate, width);
  matrices.matmul(tiles_of(layer.up, first * kTilesOfGroup, last * kTilesOfGroup), a, 0, tiles, nullptr, up,
                  width);
  for (int64_t row = 0; row < rows(); ++row) {
    // Float weights need what is quantised, too; all others are spared a row that no cache holds.
    float* out = exact ? inner_.row(row) + begin : gate + row * width;
    model_.kernels().silu_mul(gate + row * width, up + row * width, width, out);
    matrices.quantize(out, 1, width, inner_.slice(row, begin, width));
  }
}

void Forward::output_head(int worker) {
  const PackedMatrix& head = model_.head();
  const Activations a = final_.first(n_outputs_);
  const int64_t tiles = n_outputs_ > 0 ? head.tiles() : 0;
  const auto products = [&](int64_t first, int64_t last) {
    project(head, a, {}, first, last, logits_.data(), spec_.n_vocab);
    scan_logits(worker, first * kTileRows, std::min(last * kTileRows, spec_.n_vocab));
  };
  model_.threads().phase(worker, tiles, grain(head), products, [this] { choose_best(); });
}

void Forward::scan_logits(int worker, int64_t first, int64_t last) {
  for (int64_t i = 0; i < n_outputs_; ++i) {
    const float* logits = logits_.data() + i * spec_.n_vocab;
    const int64_t token = first + model_.kernels().argmax(logits + first, last - first);
    Best& best = best_[static_cast<size_t>(worker)][static_cast<size_t>(i)];
    if (best.token < 0 || logits[token] > best.value) best = {logits[token], static_cast<int32_t>(token)};
  }
}

// The largest of all threads' largest, the lowest token among equals.
void Forward::choose_best() {
  for (size_t i = 0; i < static_cast<size_t>(n_outputs_); ++i) {
    Best chosen = {0.0f, -1};
    for (const Buffer<Best>& of_thread : best_) {
      const Best& best = of_thread[i];
      if (best.token < 0) continue;
      const bool better = chosen.token < 0 || best.value > chosen.value ||
                          (best.value == chosen.value && best.token < chosen.token);
      if (better) chosen = best;
    }
    argmax_[i] = std::max(chosen.token, 0);
  }
}

}  // namespace ringline
