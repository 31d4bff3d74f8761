// Random GGUF matrices and naive references for the matrix tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/isa.hpp"
#include "core/layout.hpp"
#include "core/matrix.hpp"

namespace ringline::test {

inline constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                        TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                        TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                        TensorType::kQ5_K, TensorType::kQ6_K};

inline void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

// 64-byte aligned storage that does not move.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : data_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), &std::free) {
    require(data_ != nullptr, "out of memory");
    std::memset(data_.get(), 0, bytes);
  }
  std::byte* data() const { return data_.get(); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// f16 bits of a small finite number: exponent 2^-9 .. 2^-6, any sign and mantissa.
inline uint16_t random_half(std::mt19937& rng) { return uint16_t((rng() & 0x83ff) | (6 + rng() % 4) << 10); }

// Offsets of the f16 fields in the GGUF's block of a type.
inline std::vector<int> half_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
      return {0};
    case TensorType::kQ6_K:
      return {208};
    case TensorType::kF32:
    case TensorType::kBF16:
      return {};
    case TensorType::kF16:
      return {0};
    default:
      return {0, 2};
  }
}

// Random blocks: every bit pattern of the integers, finite scales.
inline std::vector<std::byte> random_gguf(TensorType type, int64_t rows, int64_t cols, std::mt19937& rng) {
  const Layout l = layout_of(type);
  std::vector<std::byte> bytes(size_t(rows) * size_t(cols / l.block_cols) * size_t(l.block_bytes));
  for (size_t at = 0; at < bytes.size(); at += size_t(l.block_bytes)) {
    std::byte* block = bytes.data() + at;
    for (int i = 0; i < l.block_bytes; i++) block[i] = std::byte(rng());
    for (int offset : half_offsets(type)) {
      const uint16_t half = random_half(rng);
      std::memcpy(block + offset, &half, 2);
    }
    const float value = std::normal_distribution<float>(0, 0.02f)(rng);
    if (type == TensorType::kF32) std::memcpy(block, &value, 4);
    if (type == TensorType::kBF16) std::memcpy(block, reinterpret_cast<const char*>(&value) + 2, 2);
  }
  return bytes;
}

struct Matrix {
  Buffer packed;
  PackedMatrix view;
  Matrix(TensorType type, int64_t rows, int64_t cols, std::mt19937& rng)
      : packed(packed_bytes(type, rows, cols)) {
    pack(type, random_gguf(type, rows, cols, rng).data(), rows, cols, packed.data());
    view = {type, rows, cols, packed.data()};
  }
};

struct Batch {
  std::vector<float> x;
  Buffer storage;
  Activations a;
  Batch(const MatmulKernels& k, std::vector<float> values, int64_t rows, int64_t cols)
      : x(std::move(values)), storage(activation_bytes(rows, padded(cols))) {
    a = place_activations(storage.data(), rows, padded(cols));
    a.f32 = x.data();
    k.quantize(x.data(), rows, cols, a);
  }
  static int64_t padded(int64_t cols) { return (cols + kGroup - 1) / kGroup * kGroup; }
};

inline std::vector<float> random_floats(int64_t n, std::mt19937& rng) {
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

inline std::vector<float> multiply(const MatmulKernels& k, const PackedMatrix& w, const Batch& batch,
                                   const float* bias = nullptr) {
  std::vector<float> out(size_t(batch.a.rows * w.rows));
  k.matmul(w, batch.a, 0, w.tiles(), bias, out.data(), w.rows);
  return out;
}

inline bool same_bits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

inline std::string describe(TensorType type, std::string_view isa) {
  return "type " + std::to_string(uint32_t(type)) + " on " + std::string(isa);
}

}  // namespace ringline::test
