// One pass of the model over a batch of nodes: the program that all threads of the pool run together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.hpp"
#include "core/context_segments.hpp"
#include "core/matrix.hpp"
#include "core/model.hpp"

namespace ringline {

// Up to so many rows, what is done per row is done at the end of a phase, by its last thread.
inline constexpr int64_t kSerialRows = 2;
// Nodes whose attention a thread computes together: what it reads of their common context for the first of
// them is still in its cache for the others.
inline constexpr int64_t kAttendedTogether = 4;
static_assert(kAttendedTogether <= kMaxAttended);

// Activations of up to `rows` rows, as float32 and quantised.
class ActivationBuffer {
 public:
  ActivationBuffer(int64_t rows, int64_t cols);
  float* row(int64_t r) { return f32_.data() + r * cols_; }
  Activations first(int64_t rows) { return part(0, rows, 0, cols_); }
  // Columns [first, first + cols) of one row, as a batch of its own.
  Activations slice(int64_t row, int64_t first, int64_t cols) { return part(row, 1, first, cols); }

 private:
  Activations part(int64_t row, int64_t rows, int64_t first, int64_t cols);

  int64_t cols_;
  Buffer<float> f32_;
  Buffer<int8_t> q_;
  Buffer<float> scale_;
  Buffer<int32_t> sum_;
  Buffer<float> scaled_sum_;
};

// Buffers for passes of up to `capacity` nodes with up to `max_outputs` rows of logits, and the pass itself.
//
//   a layer:  [norm, quantise] Q K V -> rotate, store K/V in the scratch -> attention, quantise -> O, add
//             -> norm, quantise -> gate, up, silu, multiply, quantise -> down, add -> ...
//
// Every arrow is the end of a phase of the pool. What is done per row (norms, rotation) is a part of that end
// while the batch is small. Threads split outputs, never sums, so their number changes no bit.
class Forward {
 public:
  Forward(Model& model, int64_t capacity, int64_t max_outputs);

  // Computes the nodes; their K/V goes to the scratch's tiles. `outputs` are indices into `nodes`.
  void run(const NodeTree& tree, std::span<const PassNode> nodes, std::span<const int32_t> outputs,
           const ScratchTiles& tiles);

  int64_t n_outputs() const { return n_outputs_; }
  const float* logits() const { return logits_.data(); }
  std::span<const int32_t> argmax() const { return {argmax_.data(), static_cast<size_t>(n_outputs_)}; }

 private:
  struct Best {
    float value;
    int32_t token;
  };
  // What one claim of the attention computes: rows [first, last), query heads [first_head, last_head), which
  // share kv_head.
  struct AttentionShare {
    int64_t first, last, kv_head, first_head, last_head;
  };

  int64_t rows() const { return static_cast<int64_t>(nodes_.size()); }
  float* residual(int64_t row) { return residual_.data() + row * spec_.n_embd; }
  void program(int worker);
  template <class Work, class Step>
  void phase_and_steps(int worker, int64_t items, int64_t grain, Work work, bool small, int64_t steps,
                       Step step);
  int64_t grain(const PackedMatrix& w) const;

  void embed(int64_t row);
  void normalise(const float* x, const Buffer<float>& weight, ActivationBuffer& out, int64_t row);
  void project_qkv(int worker, const Layer& layer, int64_t index);
  void project(const PackedMatrix& w, const Activations& a, const Buffer<float>& bias, int64_t first,
               int64_t last, float* out, int64_t stride);
  int64_t rotated_items() const;
  void rotate_and_store(int64_t layer, int64_t item);
  void rotate_rows(int64_t layer, int64_t kv_head, int64_t first, int64_t last);
  void rotate_queries(int64_t layer, int64_t row, int64_t kv_head);
  Rotation rotation(int64_t row, bool sink, const float* factors) const;
  void attention(int worker, int64_t layer);
  void attend(int worker, int64_t layer, const AttentionShare& share);
  int64_t head_parts() const;
  int64_t attended_together() const;
  AttentionTask attention_task(const AttentionShare& share, int64_t layer, int64_t row, float* scores);
  template <class Step>
  void add_projection(int worker, const PackedMatrix& w, const Activations& a, int64_t steps, Step step);
  void gate_and_up(int worker, const Layer& layer);
  void gate_and_up_columns(int worker, const Layer& layer, int64_t first, int64_t last);
  void output_head(int worker);
  void scan_logits(int worker, int64_t first, int64_t last);
  void choose_best();

  Model& model_;
  const ModelSpec& spec_;

  Buffer<float> residual_;   // [capacity, n_embd]
  ActivationBuffer hidden_;  // [capacity, n_embd]: what goes into Q, K, V, gate and up
  Buffer<float> projected_;  // [capacity, n_embd]: what comes out of O and down
  Buffer<float> q_, k_, v_;  // [capacity, width]
  Buffer<float> k_rotated_, rotated_, rotated_sink_;
  Buffer<float> angles_;       // [capacity, 4, head_dim / 2]: cos, sin, and both for the sink
  ActivationBuffer attended_;  // [capacity, q_width]
  ActivationBuffer inner_;     // [capacity, n_ff]
  ActivationBuffer final_;     // [max_outputs, n_embd]
  Buffer<float> logits_;       // [max_outputs, n_vocab]
  Buffer<int32_t> argmax_;
  std::vector<Buffer<float>> gate_;    // of each thread: [2, capacity, kInnerColumns]
  std::vector<Buffer<Best>> best_;     // of each thread: [max_outputs]
  std::vector<Buffer<float>> scores_;  // of each thread: kAttendedTogether longest visible contexts
  ContextSegments segments_;

  std::span<const PassNode> nodes_;
  std::span<const int32_t> outputs_;
  ScratchTiles tiles_;
  int64_t n_outputs_ = 0;
};

}  // namespace ringline
