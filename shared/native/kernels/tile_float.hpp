// One tile of float weights (F32, F16, BF16) times a few activation rows.
//
// Every output is four chains, column c in chain c mod 4, added at the end as (0 + 1) + (2 + 3).
#pragma once

#include "core/layout.hpp"
#include "kernels/lanes.hpp"

namespace ringline::RINGLINE_ISA {

inline constexpr int kChains = 4;

template <TensorType kType>
[[gnu::always_inline]] inline Floats load_column(const uint8_t* column, int lane) {
  if constexpr (kType == TensorType::kF32) {
    return load_floats(reinterpret_cast<const float*>(column) + lane);
  } else if constexpr (kType == TensorType::kF16) {
    return load_halves(column + 2 * lane);
  } else {
    return load_bfloats(column + 2 * lane);
  }
}

template <TensorType kType, int kRows>
struct FloatTile {
  static constexpr int kColumnBytes = layout_of(kType).column_bytes;

  const float* x;  // [kRows, cols]
  int64_t cols;
  int lane;
  Floats sum[kRows][kChains];

  template <int kChain>
  [[gnu::always_inline]] void add_column(const uint8_t* tile, int64_t c) {
    const Floats w = load_column<kType>(tile + c * kColumnBytes, lane);
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) sum[r][kChain] =
        multiply_add(w, broadcast(x[r * cols + c]), sum[r][kChain]);
  }

  [[gnu::always_inline]] void run(const uint8_t* tile, float* out) {
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
      RINGLINE_UNROLL for (int k = 0; k < kChains; k++) sum[r][k] = broadcast(0.0f);
    }
    int64_t c = 0;
    for (; c + kChains <= cols; c += kChains) {
      add_column<0>(tile, c);
      add_column<1>(tile, c + 1);
      add_column<2>(tile, c + 2);
      add_column<3>(tile, c + 3);
    }
    if (c < cols) add_column<0>(tile, c);
    if (c + 1 < cols) add_column<1>(tile, c + 1);
    if (c + 2 < cols) add_column<2>(tile, c + 2);
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++)
        store(out + r * kTileRows + lane, add(add(sum[r][0], sum[r][1]), add(sum[r][2], sum[r][3])));
  }
};

template <TensorType kType, int kRows>
void float_tile(const uint8_t* tile, const PackedMatrix& w, const Activations& a, int64_t row, float* out) {
  for (int lane = 0; lane < kTileRows; lane += kLanes) {
    FloatTile<kType, kRows> t{a.f32 + row * w.cols, w.cols, lane, {}};
    t.run(tile, out);
  }
}

}  // namespace ringline::RINGLINE_ISA
