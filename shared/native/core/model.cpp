#include "core/model.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/digest.hpp"
#include "core/engine_isa.hpp"
#include "core/isa.hpp"
#include "core/require.hpp"

namespace ringline {

namespace {

constexpr int64_t kMaxDimension = 1 << 24;
constexpr float kLargePair = 8.0f;  // of a bias: several times what keys vary by

void check_count(const char* name, int64_t value) {
  require(value >= 1 && value <= kMaxDimension, "model: ", name, " is ", value, ", which cannot be");
}

ModelSpec checked(ModelSpec spec) {
  require(spec.architecture == "llama" || spec.architecture == "qwen2", "model: architecture '",
          spec.architecture, "' is not supported (llama, qwen2)");
  check_count("n_layer", spec.n_layer);
  check_count("n_embd", spec.n_embd);
  check_count("n_head", spec.n_head);
  check_count("n_kv_head", spec.n_kv_head);
  check_count("head_dim", spec.head_dim);
  check_count("n_ff", spec.n_ff);
  check_count("n_vocab", spec.n_vocab);
  require(spec.n_head % spec.n_kv_head == 0, "model: ", spec.n_head, " heads cannot share ", spec.n_kv_head,
          " kv heads");
  require(spec.n_embd % kGroup == 0 && spec.n_ff % kGroup == 0, "model: n_embd ", spec.n_embd, " and n_ff ",
          spec.n_ff, " must be multiples of 32");
  require(spec.rope_base >= 1.0 && spec.rope_base < 1e15, "model: rope_base must be >= 1");
  require(spec.rms_eps > 0.0 && spec.rms_eps < 1.0, "model: rms_eps must be in (0, 1)");
  check_plane({static_cast<int32_t>(spec.n_layer), static_cast<int32_t>(spec.n_kv_head),
               static_cast<int32_t>(spec.head_dim)});
  return spec;
}

// The best variant for "", the named one otherwise; the matrix kernels know which are usable here.
std::string chosen_isa(std::string_view isa) { return isa.empty() ? isa_names().front() : std::string(isa); }

}  // namespace

Model::Model(const std::string& path, ModelSpec spec, std::span<const TensorEntry> tensors, int threads,
             std::string_view isa, std::vector<int> affinity)
    : spec_(checked(std::move(spec))),
      isa_(chosen_isa(isa)),
      matrices_(matmul_kernels(isa_)),
      kernels_(engine_kernels(isa_)),
      rope_(spec_.rope_base, spec_.head_dim),
      file_(path),
      threads_(threads, std::move(affinity)) {
  Directory directory;
  for (const TensorEntry& entry : tensors) directory[entry.name] = &entry;
  embedding_ = matrix(directory, "token_embd.weight", spec_.n_vocab, spec_.n_embd);
  const bool tied = !directory.contains("output.weight");
  if (!tied) weight_bytes_ = 0;  // a lookup reads one row, a pass reads the head
  for (int64_t i = 0; i < spec_.n_layer; ++i) layers_.push_back(load_layer(directory, i));
  output_norm_ = vector(directory, "output_norm.weight", spec_.n_embd);
  head_ = tied ? embedding_ : matrix(directory, "output.weight", spec_.n_vocab, spec_.n_embd);
}

Plane Model::plane(KvFormat format) const {
  return {static_cast<int32_t>(spec_.n_layer), static_cast<int32_t>(spec_.n_kv_head),
          static_cast<int32_t>(spec_.head_dim), format};
}

std::span<const std::byte> Model::bytes_of(const TensorEntry& entry) const {
  const std::span<const std::byte> file = file_.bytes();
  const auto size = static_cast<int64_t>(file.size());
  require(
      entry.offset >= 0 && entry.nbytes >= 0 && entry.offset <= size && entry.nbytes <= size - entry.offset,
      "tensor ", entry.name, " lies outside the weight cache");
  return file.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.nbytes));
}

std::vector<uint64_t> Model::digests(std::span<const TensorEntry> tensors) {
  std::vector<std::span<const std::byte>> parts;
  for (const TensorEntry& entry : tensors) parts.push_back(bytes_of(entry));
  std::vector<uint64_t> found(parts.size());
  auto job = [&](int worker) {
    threads_.phase(worker, static_cast<int64_t>(parts.size()), 1, [&](int64_t i, int64_t) {
      found[static_cast<size_t>(i)] = digest(parts[static_cast<size_t>(i)]);
    });
  };
  threads_.run(job);
  return found;
}

PackedMatrix Model::matrix(const Directory& directory, const std::string& name, int64_t rows, int64_t cols) {
  const auto found = directory.find(name);
  require(found != directory.end(), "tensor ", name, " is missing");
  const TensorEntry& entry = *found->second;
  require(entry.rows == rows && entry.cols == cols, "tensor ", name, " is [", entry.rows, ", ", entry.cols,
          "], the model needs [", rows, ", ", cols, "]");
  const auto type = static_cast<TensorType>(entry.type);
  require(supported(type), "tensor ", name, " has type ", entry.type, ", which has no kernels");
  const std::span<const std::byte> bytes = bytes_of(entry);
  require(bytes.size() == packed_bytes(type, rows, cols) && entry.offset % 64 == 0, "tensor ", name,
          " has not the size or alignment of a packed matrix: rebuild the weight cache");
  weight_bytes_ += entry.nbytes;
  return {type, rows, cols, bytes.data()};
}

Buffer<float> Model::vector(const Directory& directory, const std::string& name, int64_t n) {
  const auto found = directory.find(name);
  require(found != directory.end(), "tensor ", name, " is missing");
  const TensorEntry& entry = *found->second;
  const std::span<const std::byte> bytes = bytes_of(entry);
  require(static_cast<TensorType>(entry.type) == TensorType::kF32 && entry.rows == 1 && entry.cols == n &&
              bytes.size() == sizeof(float) * static_cast<size_t>(n),
          "tensor ", name, " must be ", n, " plain float32 values");
  // Room for a whole last tile, so that kernels may load lanes past the end.
  Buffer<float> values(static_cast<size_t>(n + kTileRows));
  std::memset(values.data(), 0, sizeof(float) * values.size());
  std::memcpy(values.data(), bytes.data(), bytes.size());
  weight_bytes_ += entry.nbytes;
  return values;
}

Layer Model::load_layer(const Directory& directory, int64_t index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const int64_t width = spec_.n_embd;
  Layer layer;
  layer.attention_norm = vector(directory, prefix + "attn_norm.weight", width);
  layer.q = matrix(directory, prefix + "attn_q.weight", spec_.q_width(), width);
  layer.k = matrix(directory, prefix + "attn_k.weight", spec_.kv_width(), width);
  layer.v = matrix(directory, prefix + "attn_v.weight", spec_.kv_width(), width);
  layer.o = matrix(directory, prefix + "attn_output.weight", width, spec_.q_width());
  if (spec_.architecture == "qwen2") {
    layer.q_bias = vector(directory, prefix + "attn_q.bias", spec_.q_width());
    layer.k_bias = vector(directory, prefix + "attn_k.bias", spec_.kv_width());
    layer.v_bias = vector(directory, prefix + "attn_v.bias", spec_.kv_width());
  }
  balance(layer);
  layer.ffn_norm = vector(directory, prefix + "ffn_norm.weight", width);
  layer.gate = matrix(directory, prefix + "ffn_gate.weight", spec_.n_ff, width);
  layer.up = matrix(directory, prefix + "ffn_up.weight", spec_.n_ff, width);
  layer.down = matrix(directory, prefix + "ffn_down.weight", width, spec_.n_ff);
  return layer;
}

void Model::balance(Layer& layer) const {
  const int64_t half = spec_.head_dim / 2;
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  layer.key_factors = Buffer<float>(static_cast<size_t>(spec_.kv_width() / 2));
  layer.query_factors = Buffer<float>(layer.key_factors.size());
  for (size_t i = 0; i < layer.key_factors.size(); ++i) {
    const auto first = static_cast<size_t>(static_cast<int64_t>(i) / half * half) + i;
    const float* bias = layer.k_bias.size() > 0 ? layer.k_bias.data() + first : nullptr;
    const float size = bias != nullptr ? std::hypot(bias[0], bias[half]) : 0.0f;
    const float factor = size > kLargePair ? std::exp2(std::round(std::log2(size / kLargePair))) : 1.0f;
    layer.key_factors[i] = 1.0f / factor;
    layer.query_factors[i] = scale * factor;
  }
}

}  // namespace ringline
