// The matrix product of one variant: which tile meets which rows, in an order that keeps both in the caches.
#include "kernels/kernels.hpp"
#include "kernels/quantize.hpp"
#include "kernels/tile_float.hpp"
#include "kernels/tile_quantised.hpp"

namespace ringline::RINGLINE_ISA {
namespace {

constexpr int64_t kCachedBytes = 384 * 1024;  // activations that stay in a core's L2 while tiles pass by

// Computes one tile for a block of rows into out[rows][kTileRows].
using TileFunction = void (*)(const uint8_t* tile, const PackedMatrix& w, const Activations& a, int64_t row,
                              bool fetch, float* out);

struct TileFunctions {
  int max_rows, medium_block_rows, block_rows;
  TileFunction of_rows[kMaxRows + 1];
};

template <TensorType kType, int kRows>
void any_tile(const uint8_t* tile, const PackedMatrix& w, const Activations& a, int64_t row, bool fetch,
              float* out) {
  if constexpr (layout_of(kType).column_bytes != 0) {
    float_tile<kType, kRows>(tile, w, a, row, out);
  } else {
    quantised_tile<kType, kRows>(tile, w, a, row, fetch, out);
  }
}

template <TensorType kType, int kRows>
constexpr void fill(TileFunctions& f) {
  if constexpr (kRows > 0) {
    f.of_rows[kRows] = any_tile<kType, kRows>;
    fill<kType, kRows - 1>(f);
  }
}

template <TensorType kType>
constexpr TileFunctions tile_functions() {
  constexpr bool kFloat = layout_of(kType).column_bytes != 0;
  constexpr int kRowsMax = kFloat ? kFloatRows : kMaxRows;
  TileFunctions f{kRowsMax, kFloat ? kFloatRows : kMediumBlockRows, kFloat ? kFloatRows : kBlockRows, {}};
  fill<kType, kRowsMax>(f);
  return f;
}

TileFunctions functions_of(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return tile_functions<TensorType::kF32>();
    case TensorType::kF16:
      return tile_functions<TensorType::kF16>();
    case TensorType::kBF16:
      return tile_functions<TensorType::kBF16>();
    case TensorType::kQ4_0:
      return tile_functions<TensorType::kQ4_0>();
    case TensorType::kQ4_1:
      return tile_functions<TensorType::kQ4_1>();
    case TensorType::kQ5_0:
      return tile_functions<TensorType::kQ5_0>();
    case TensorType::kQ5_1:
      return tile_functions<TensorType::kQ5_1>();
    case TensorType::kQ8_0:
      return tile_functions<TensorType::kQ8_0>();
    case TensorType::kQ4_K:
      return tile_functions<TensorType::kQ4_K>();
    case TensorType::kQ5_K:
      return tile_functions<TensorType::kQ5_K>();
    case TensorType::kQ6_K:
      return tile_functions<TensorType::kQ6_K>();
  }
  return {};
}

// Rows split as evenly as possible into blocks: block b is [first(b), first(b + 1)).
struct RowBlocks {
  int64_t rows, count;
  RowBlocks(int64_t n, const TileFunctions& f) : rows(n), count(blocks_of(n, f)) {}
  int64_t first(int64_t b) const { return b * rows / count; }

 private:
  static int64_t blocks_of(int64_t n, const TileFunctions& f) {
    if (n <= f.max_rows) return 1;
    const int64_t most = n <= kMediumRows ? f.medium_block_rows : f.block_rows;
    return (n + most - 1) / most;
  }
};

void write_rows(const float* sums, int64_t rows, int64_t lanes, const float* bias, float* out,
                int64_t stride) {
  for (int64_t r = 0; r < rows; r++, sums += kTileRows, out += stride)
    for (int64_t i = 0; i < lanes; i++) out[i] = bias == nullptr ? sums[i] : sums[i] + bias[i];
}

void matmul(const PackedMatrix& w, const Activations& a, int64_t first, int64_t last, const float* bias,
            float* out, int64_t stride) {
  const TileFunctions f = functions_of(w.type);
  const auto* tiles = reinterpret_cast<const uint8_t*>(w.data);
  const int64_t bytes = int64_t(tile_bytes(w.type, w.cols));
  const int64_t row_bytes = layout_of(w.type).column_bytes != 0 ? 4 * w.cols : w.cols;
  const RowBlocks blocks(a.rows, f);
  const int64_t chunk = 1 + kCachedBytes / (row_bytes * f.block_rows);  // blocks that stay cached
  alignas(kVectorBytes) float sums[kMaxRows * kTileRows];
  for (int64_t begin = 0; begin < blocks.count; begin += chunk) {
    const int64_t end = begin + chunk < blocks.count ? begin + chunk : blocks.count;
    for (int64_t t = first; t < last; t++) {
      const int64_t column = t * kTileRows;
      const int64_t lanes = w.rows - column < kTileRows ? w.rows - column : kTileRows;
      for (int64_t b = begin; b < end; b++) {
        const int64_t row = blocks.first(b), rows = blocks.first(b + 1) - row;
        f.of_rows[rows](tiles + t * bytes, w, a, row, b == begin, sums);
        write_rows(sums, rows, lanes, bias == nullptr ? nullptr : bias + column, out + row * stride + column,
                   stride);
      }
    }
  }
}

}  // namespace

extern const MatmulKernels kMatmulKernels;
const MatmulKernels kMatmulKernels = {quantize, matmul};

}  // namespace ringline::RINGLINE_ISA
