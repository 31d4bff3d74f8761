// Weights of one model, mapped from its weight cache, and the threads that compute with them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/buffer.hpp"
#include "core/kv_pool.hpp"
#include "core/mapped_file.hpp"
#include "core/matrix.hpp"
#include "core/rope.hpp"
#include "core/thread_pool.hpp"
#include "kernels/engine_kernels.hpp"
#include "kernels/kernels.hpp"

namespace ringline {

struct ModelSpec {
  std::string architecture;  // "llama" or "qwen2"
  int64_t n_layer = 0;
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  int64_t n_ff = 0;
  int64_t n_vocab = 0;
  double rope_base = 0.0;
  double rms_eps = 0.0;

  int64_t group() const { return n_head / n_kv_head; }  // query heads that share a K/V head
  int64_t q_width() const { return n_head * head_dim; }
  int64_t kv_width() const { return n_kv_head * head_dim; }
};

// Where a tensor lies in the weight cache. Matrices are packed; vectors (one row) are plain float32.
struct TensorEntry {
  std::string name;
  uint32_t type = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t offset = 0;
  int64_t nbytes = 0;
};

struct Layer {
  Buffer<float> attention_norm;
  PackedMatrix q, k, v, o;
  Buffer<float> q_bias, k_bias, v_bias;  // empty for architectures without them
  Buffer<float> ffn_norm;
  PackedMatrix gate, up, down;
};

class Model {
 public:
  // Throws std::invalid_argument that names the tensor or the number that does not fit.
  Model(const std::string& path, ModelSpec spec, std::span<const TensorEntry> tensors, int threads,
        std::string_view isa, std::vector<int> affinity);

  const ModelSpec& spec() const { return spec_; }
  const std::string& isa() const { return isa_; }
  const MatmulKernels& matrices() const { return matrices_; }
  const EngineKernels& kernels() const { return kernels_; }
  const Rope& rope() const { return rope_; }
  bool adjacent_pairs() const { return spec_.architecture == "llama"; }
  ThreadPool& threads() { return threads_; }
  int n_threads() const { return threads_.size(); }
  Plane plane() const;

  const PackedMatrix& embedding() const { return embedding_; }
  const Layer& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }
  int64_t n_layers() const { return static_cast<int64_t>(layers_.size()); }
  const Buffer<float>& output_norm() const { return output_norm_; }
  const PackedMatrix& head() const { return head_; }
  // Of each tensor as it is in the weight cache now, all threads reading. Throws like the constructor.
  std::vector<uint64_t> digests(std::span<const TensorEntry> tensors);
  // Bytes of weights that a decode pass reads.
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  using Directory = std::unordered_map<std::string_view, const TensorEntry*>;

  PackedMatrix matrix(const Directory& directory, const std::string& name, int64_t rows, int64_t cols);
  Buffer<float> vector(const Directory& directory, const std::string& name, int64_t n);
  Layer load_layer(const Directory& directory, int64_t index);
  std::span<const std::byte> bytes_of(const TensorEntry& entry) const;

  ModelSpec spec_;
  std::string isa_;
  const MatmulKernels& matrices_;
  const EngineKernels& kernels_;
  Rope rope_;
  MappedFile file_;
  PackedMatrix embedding_;
  std::vector<Layer> layers_;
  Buffer<float> output_norm_;
  PackedMatrix head_;
  int64_t weight_bytes_ = 0;
  ThreadPool threads_;
};

}  // namespace ringline
