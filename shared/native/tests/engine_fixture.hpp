// A tiny random model in a temporary file, and sequences over it, for the engine's tests.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/scratch.hpp"

namespace ringline::test {

inline void check(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

template <class Call>
void check_refused(Call call, const std::string& what) {
  try {
    call();
  } catch (const std::invalid_argument&) {
    return;
  }
  check(false, what + " is not refused");
}

// Float weights in packed form, written as a weight cache would hold them.
class TinyModel {
 public:
  explicit TinyModel(const std::string& architecture) {
    spec = {architecture, 2, 64, 4, 2, 32, 96, 50, 10000.0, 1e-5};
    char name[] = "/tmp/ringline-test-XXXXXX";
    const int descriptor = ::mkstemp(name);
    check(descriptor >= 0, "cannot make a temporary file");
    path = name;
    file_ = ::fdopen(descriptor, "wb");
    matrix("token_embd.weight", spec.n_vocab, spec.n_embd);
    for (int i = 0; i < spec.n_layer; ++i) add_layer("blk." + std::to_string(i) + ".");
    vector("output_norm.weight", spec.n_embd);
    std::fclose(file_);
  }
  ~TinyModel() { ::unlink(path.c_str()); }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  std::shared_ptr<Model> load(int threads, const std::string& isa = "") const {
    return std::make_shared<Model>(path, spec, tensors, threads, isa, std::vector<int>());
  }

  ModelSpec spec;
  std::vector<TensorEntry> tensors;
  std::string path;

 private:
  void add_layer(const std::string& prefix) {
    vector(prefix + "attn_norm.weight", spec.n_embd);
    matrix(prefix + "attn_q.weight", spec.q_width(), spec.n_embd);
    matrix(prefix + "attn_k.weight", spec.kv_width(), spec.n_embd);
    matrix(prefix + "attn_v.weight", spec.kv_width(), spec.n_embd);
    matrix(prefix + "attn_output.weight", spec.n_embd, spec.q_width());
    if (spec.architecture == "qwen2") {
      vector(prefix + "attn_q.bias", spec.q_width());
      vector(prefix + "attn_k.bias", spec.kv_width());
      vector(prefix + "attn_v.bias", spec.kv_width());
    }
    vector(prefix + "ffn_norm.weight", spec.n_embd);
    matrix(prefix + "ffn_gate.weight", spec.n_ff, spec.n_embd);
    matrix(prefix + "ffn_up.weight", spec.n_ff, spec.n_embd);
    matrix(prefix + "ffn_down.weight", spec.n_embd, spec.n_ff);
  }
  std::vector<float> random(int64_t count, float scale) {
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(rng_);
    return values;
  }
  void matrix(const std::string& name, int64_t rows, int64_t cols) {
    const std::vector<float> values = random(rows * cols, 0.2f);
    std::vector<std::byte> packed(packed_bytes(TensorType::kF32, rows, cols));
    pack(TensorType::kF32, reinterpret_cast<const std::byte*>(values.data()), rows, cols, packed.data());
    write(name, rows, cols, packed.data(), packed.size());
  }
  void vector(const std::string& name, int64_t cols) {
    const std::vector<float> values = random(cols, 1.0f);
    write(name, 1, cols, values.data(), values.size() * sizeof(float));
  }
  void write(const std::string& name, int64_t rows, int64_t cols, const void* data, size_t bytes) {
    static constexpr char kPadding[64] = {};
    offset_ += static_cast<int64_t>(std::fwrite(kPadding, 1, static_cast<size_t>(-offset_ & 63), file_));
    tensors.push_back({name, 0, rows, cols, offset_, static_cast<int64_t>(bytes)});
    offset_ += static_cast<int64_t>(std::fwrite(data, 1, bytes, file_));
  }

  std::FILE* file_;
  std::mt19937 rng_{7};
  int64_t offset_ = 0;
};

// A pool for one model and sequences whose blocks lie in random order.
class TinyPool {
 public:
  TinyPool(const Model& model, int32_t n_blocks, KvFormat format = KvFormat::kF16)
      : blocks_(static_cast<size_t>(n_blocks)) {
    const Plane planes[] = {model.plane(format)};
    memory_.resize(KvPool::block_bytes(planes) * static_cast<size_t>(n_blocks) / sizeof(uint64_t));
    const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(memory_.data()), memory_.size() * 8);
    pool_ = std::make_shared<KvPool>(bytes, n_blocks, std::vector<Plane>{planes[0]}, nullptr);
    std::iota(blocks_.begin(), blocks_.end(), 0);
    std::mt19937 rng(static_cast<uint32_t>(n_blocks));
    std::shuffle(blocks_.begin(), blocks_.end(), rng);
  }
  std::shared_ptr<SequenceView> sequence(int64_t sink, int64_t ring, int64_t window) {
    auto view = std::make_shared<SequenceView>(pool_, 0, sink, ring, window);
    const auto count = static_cast<size_t>((sink + 15) / 16 + ring / 16);
    check(blocks_.size() >= count, "the test's pool is too small");
    view->set_blocks(0, std::span<const int32_t>(blocks_).last(count));
    blocks_.resize(blocks_.size() - count);
    return view;
  }

 private:
  std::vector<uint64_t> memory_;
  std::shared_ptr<KvPool> pool_;
  std::vector<int32_t> blocks_;
};

// Feeds `tokens` in chunks of one size, committing each; the logits of every position.
inline std::vector<float> run_chunks(Scratch& scratch, const std::shared_ptr<SequenceView>& view,
                                     std::span<const int32_t> tokens, size_t chunk) {
  std::vector<float> logits;
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const size_t n = std::min(chunk, tokens.size() - start);
    std::vector<int32_t> parents(n), nodes(n), seq(n, 0);
    std::iota(parents.begin(), parents.end(), -1);
    std::iota(nodes.begin(), nodes.end(), 0);
    scratch.forward({{&view, 1}, seq, tokens.subspan(start, n), parents, nodes});
    const auto cells = static_cast<size_t>(scratch.n_outputs() * scratch.model().spec().n_vocab);
    logits.insert(logits.end(), scratch.logits(), scratch.logits() + cells);
    scratch.commit(*view, nodes);
    scratch.reroot(*view, nodes);
  }
  return logits;
}

inline std::vector<int32_t> some_tokens(const Model& model, size_t count) {
  std::mt19937 rng(3);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(rng() % static_cast<uint32_t>(model.spec().n_vocab));
  return tokens;
}

}  // namespace ringline::test
