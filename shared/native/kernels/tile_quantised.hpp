// One tile of quantised weights times a few activation rows.
//
// Every output is one chain over the groups of 32 columns, in column order, the same for all variants and
// batches:
//
//     i     exact integer sum of weight * q over the group, less the zero point
//     sum = fma(float(i) * w_scale, a_scale, sum)                               one scale a group
//     sum = fma(fma(float(i0), w_scale0, float(i1) * w_scale1), a_scale, sum)   one scale a half group (Q6_K)
//     sum = fma(+-w_minimum, a_scale * sum of q, sum)                           types with minima
#pragma once

#include "kernels/formats.hpp"
#include "kernels/row_pairs.hpp"

namespace ringline::RINGLINE_ISA {

// How far ahead of the computation weights are fetched. A power of two is slower by a twentieth: what is
// fetched then meets what is read in the same sets of the caches.
inline constexpr int64_t kPrefetchBytes = 6144;

// The activation rows of one block, by value, so that the compiler keeps their addresses in registers.
struct RowBlock {
  const int8_t* q;          // first row
  const float* scale;       // first row
  const float* scaled_sum;  // first row
  const int32_t* sum;       // first row
  int64_t cols, groups;     // row lengths

  RowBlock(const Activations& a, int64_t row)
      : q(a.q + row * a.cols),
        scale(a.scale + row * (a.cols / kGroup)),
        scaled_sum(a.scaled_sum + row * (a.cols / kGroup)),
        sum(a.sum + row * 2 * (a.cols / kGroup)),
        cols(a.cols),
        groups(a.cols / kGroup) {}
};

// kRows rows, kRegisters * kLanes lanes of a tile. The sums stay in registers: every loop over them is
// unrolled.
template <TensorType kType, int kRows, int kRegisters>
struct QuantisedTile {
  using F = Format<kType>;
  static constexpr Layout kLayout = F::kLayout;
  static constexpr int kSumHalves = F::kHalfScales ? 2 : 1;

  RowBlock rows;
  int lane;    // first output row in the tile
  bool fetch;  // this is the first pass over the tile
  Floats sum[kRows][kRegisters];

  // Starts the integer sums with minus the zero point's share: of a half group, or of the whole group at its
  // first half.
  [[gnu::always_inline]] void begin(int64_t g, int half, Ints (&i)[kRows][kRegisters]) const {
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
      int32_t start = kIntStart;
      if constexpr (F::kZero != 0) {
        const int32_t* sums = rows.sum + 2 * (r * rows.groups + g);
        start -= F::kZero * (F::kHalfScales ? sums[half] : sums[0] + sums[1]);
      }
      RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) i[r][n] = broadcast(start);
    }
  }

  template <int kHalf, int kQuad>
  [[gnu::always_inline]] void dot_quad(const uint8_t* group, const Quads (&quads)[kRows],
                                       Ints (&i)[kRows][kRegisters]) const {
    RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) {
      const Bytes w = F::template weights<kHalf, kQuad>(group, lane + n * kLanes);
      RINGLINE_UNROLL for (int r = 0; r < kRows; r++) i[r][n] =
          F::template dot_quad<kQuad>(i[r][n], w, quads[r]);
    }
  }

  // Activations of all rows are kept while weights pass.
  template <int kHalf>
  [[gnu::always_inline]] void dot_half(const uint8_t* group, const int8_t* q,
                                       Ints (&i)[kRows][kRegisters]) const {
    Quads quads[kRows];
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) quads[r] = load_quads(q + r * rows.cols);
    dot_quad<kHalf, 0>(group, quads, i);
    dot_quad<kHalf, 1>(group, quads, i);
    dot_quad<kHalf, 2>(group, quads, i);
    dot_quad<kHalf, 3>(group, quads, i);
  }

  // Weights of one register are kept while activations pass.
  template <int kHalf>
  [[gnu::always_inline]] void dot_half_by_row(const uint8_t* group, const int8_t* q,
                                              Ints (&i)[kRows][kRegisters]) const {
    RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) {
      const int from = lane + n * kLanes;
      const Bytes w0 = F::template weights<kHalf, 0>(group, from);
      const Bytes w1 = F::template weights<kHalf, 1>(group, from);
      const Bytes w2 = F::template weights<kHalf, 2>(group, from);
      const Bytes w3 = F::template weights<kHalf, 3>(group, from);
      RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
        const Quads quads = load_quads(q + r * rows.cols);
        i[r][n] = F::template dot_quad<0>(i[r][n], w0, quads);
        i[r][n] = F::template dot_quad<1>(i[r][n], w1, quads);
        i[r][n] = F::template dot_quad<2>(i[r][n], w2, quads);
        i[r][n] = F::template dot_quad<3>(i[r][n], w3, quads);
      }
    }
  }

  template <class Sums>
  [[gnu::always_inline]] void dot_pairs(const uint8_t* group, const int8_t* q,
                                        Ints (&i)[kRows][kRegisters]) const {
    Sums sums(i);
    sums.template dot_half<0>(group, lane, q, rows.cols);
    sums.template dot_half<1>(group, lane, q + kGroup / 2, rows.cols);
    sums.split(i);
  }

  [[gnu::always_inline]] void dot_group(const uint8_t* group, int64_t g,
                                        Ints (&i)[kSumHalves][kRows][kRegisters]) const {
    constexpr bool kQuadsTakeRegisters = sizeof(Quads) > sizeof(void*);
    using Pairs = PairSums<RowPairs, F, kRows, kRegisters>;
    const int8_t* q = rows.q + g * kGroup;
    if constexpr (kRowPairs && pairs_pay<F>(kRows)) {
      dot_pairs<Pairs>(group, q, i[0]);
    } else if constexpr (kQuadsTakeRegisters && kRows > 4) {
      dot_half_by_row<0>(group, q, i[0]);
      dot_half_by_row<1>(group, q + kGroup / 2, i[kSumHalves - 1]);
    } else {
      dot_half<0>(group, q, i[0]);
      dot_half<1>(group, q + kGroup / 2, i[kSumHalves - 1]);
    }
  }

  [[gnu::always_inline]] void scale_group(const uint8_t* header, int slot, int64_t g,
                                          const Ints (&i)[kSumHalves][kRows][kRegisters]) {
    RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) {
      const int from = lane + n * kLanes;
      const Floats d = F::d(header, from, slot);
      const Floats w0 = F::scale(header, from, slot, 0, d);
      const Floats w1 = F::kHalfScales ? F::scale(header, from, slot, 1, d) : w0;
      const Floats minimum = F::minimum(header, from, slot);
      RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
        const int64_t at = r * rows.groups + g;
        Floats s = sum[r][n];
        Floats scaled = multiply(to_floats(i[kSumHalves - 1][r][n]), w1);
        if constexpr (F::kHalfScales) scaled = multiply_add(to_floats(i[0][r][n]), w0, scaled);
        s = multiply_add(scaled, broadcast(rows.scale[at]), s);
        if constexpr (F::kAddsMinimum) s = multiply_add(minimum, broadcast(rows.scaled_sum[at]), s);
        if constexpr (F::kSubtractsMinimum) s = subtract_product(minimum, broadcast(rows.scaled_sum[at]), s);
        sum[r][n] = s;
      }
    }
  }

  [[gnu::always_inline]] static void fetch_ahead(const uint8_t* p, int bytes) {
    RINGLINE_UNROLL for (int at = 0; at < bytes; at += kVectorBytes) prefetch(p + kPrefetchBytes + at);
  }

  [[gnu::always_inline]] void add_group(const uint8_t* header, const uint8_t* group, int slot, int64_t g) {
    if (fetch) fetch_ahead(group, kLayout.group_bytes);
    Ints i[kSumHalves][kRows][kRegisters];
    begin(g, 0, i[0]);
    if constexpr (F::kHalfScales) begin(g, 1, i[1]);
    dot_group(group, g, i);
    scale_group(header, slot, g, i);
  }

  // Sums for `lane` and on into out[kRows][kTileRows].
  [[gnu::always_inline]] void run(const uint8_t* tile, int64_t groups, float* out) {
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
      RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) sum[r][n] = broadcast(0.0f);
    }
    for (int64_t first = 0; first < groups; first += kLayout.groups) {
      const uint8_t* header = tile;
      if (fetch) fetch_ahead(header, kLayout.header_bytes);
      tile += kLayout.header_bytes;
      for (int slot = 0; slot < kLayout.groups && first + slot < groups; slot++, tile += kLayout.group_bytes)
        add_group(header, tile, slot, first + slot);
    }
    RINGLINE_UNROLL for (int r = 0; r < kRows; r++) {
      RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++)
          store(out + r * kTileRows + lane + n * kLanes, sum[r][n]);
    }
  }
};

template <TensorType kType, int kRows>
void quantised_tile(const uint8_t* tile, const PackedMatrix& w, const Activations& a, int64_t row, bool fetch,
                    float* out) {
  constexpr int kRegisters = registers(kRows);
  for (int lane = 0; lane < kTileRows; lane += kRegisters * kLanes) {
    QuantisedTile<kType, kRows, kRegisters> t{RowBlock(a, row), lane, fetch && lane == 0, {}};
    t.run(tile, w.cols / kGroup, out);
  }
}

}  // namespace ringline::RINGLINE_ISA
