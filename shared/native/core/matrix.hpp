// Packed weight matrices: the one description of the layouts that every kernel variant reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringline {

// Numbers are GGUF's (ggml_type).
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

inline constexpr int kTileRows = 16;   // output rows a tile computes: the lanes of one 512-bit register
inline constexpr int kGroup = 32;      // columns that share one activation scale
inline constexpr int kPackLayout = 1;  // raise when any packed layout changes

// A weight matrix [rows, cols] in packed form; tiles are consecutive and equally long.
struct PackedMatrix {
  TensorType type = TensorType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const std::byte* data = nullptr;  // 64-byte aligned

  int64_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
};

// True when there are kernels for this type; false is an error for the caller to name.
bool supported(TensorType type);
// Throws std::invalid_argument when cols does not fit the type's block.
size_t packed_bytes(TensorType type, int64_t rows, int64_t cols);
size_t tile_bytes(TensorType type, int64_t cols);
size_t gguf_bytes(TensorType type, int64_t rows, int64_t cols);
void pack(TensorType type, const std::byte* gguf, int64_t rows, int64_t cols, std::byte* packed);
// One row as float32, bit-identical to the GGUF's own dequantisation.
void dequantize_row(const PackedMatrix& w, int64_t row, float* out);

// Activations of a batch, quantised to int8 per group of 32 columns. Storage belongs to the caller (see
// `place_activations`). All arrays are row-major, so that a range of rows is `slice`d without copying.
struct Activations {
  int64_t rows = 0;
  int64_t cols = 0;             // multiple of kGroup: the matrix's columns, padded with zeros
  const float* f32 = nullptr;   // [rows, the matrix's cols] as given, for float weights
  int8_t* q = nullptr;          // [rows, cols], -127 .. 127
  float* scale = nullptr;       // [rows, cols / 32]
  int32_t* sum = nullptr;       // [rows, cols / 16]: sums of q over each half group (for zero points)
  float* scaled_sum = nullptr;  // [rows, cols / 32]: scale * (sum of q over the group) (for minima)
};

// Bytes of q, scale, sum and scaled_sum for [rows, cols], each array aligned to 64 bytes.
size_t activation_bytes(int64_t rows, int64_t cols);
// Lays the arrays over `storage` (64-byte aligned, activation_bytes long). `f32` stays null.
Activations place_activations(std::byte* storage, int64_t rows, int64_t cols);
// Rows [first, first + rows) of `a`. `f32_cols` is the row length of a.f32.
Activations slice(const Activations& a, int64_t first, int64_t rows, int64_t f32_cols);

}  // namespace ringline
