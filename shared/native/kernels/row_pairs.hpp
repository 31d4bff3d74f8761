// The integer sums of a group for two activation rows at a time, where the instruction set multiplies small
// matrices. Tiles and activations are those of the other variants: what the instruction wants side by side is
// brought together in registers. That eats a part of the gain (docs/performance.md): an odd last row and
// formats with two sums a group (Q6_K) are faster without.
#pragma once

#include "kernels/formats.hpp"

namespace ringline::RINGLINE_ISA {

template <class F>
constexpr bool pairs_pay(int rows) {
  return rows % 2 == 0 && !F::kHalfScales;
}

// kRows is even.
template <class Pairs, class F, int kRows, int kRegisters>
struct PairSums {
  static constexpr int kPairs = kRows / 2;

  typename Pairs::Ints sum[kPairs][kRegisters];

  [[gnu::always_inline]] explicit PairSums(const Ints (&i)[kRows][kRegisters]) {
    RINGLINE_UNROLL for (int p = 0; p < kPairs; p++) {
      RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) sum[p][n] =
          Pairs::ints(i[2 * p][n], i[2 * p + 1][n]);
    }
  }
  [[gnu::always_inline]] void split(Ints (&i)[kRows][kRegisters]) const {
    RINGLINE_UNROLL for (int p = 0; p < kPairs; p++) {
      RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) {
        i[2 * p][n] = Pairs::first(sum[p][n]);
        i[2 * p + 1][n] = Pairs::second(sum[p][n]);
      }
    }
  }

  // Half group kHalf of the rows from `lane` on; `q` are its 16 columns in the first activation row.
  template <int kHalf>
  [[gnu::always_inline]] void dot_half(const uint8_t* group, int lane, const int8_t* q, int64_t cols) {
    typename Pairs::Quads quads[kPairs];
    RINGLINE_UNROLL for (int p = 0; p < kPairs; p++) quads[p] =
        Pairs::quads(load_quads(q + 2 * p * cols), load_quads(q + (2 * p + 1) * cols));
    RINGLINE_UNROLL for (int n = 0; n < kRegisters; n++) {
      dot_eight<kHalf, 0>(group, lane + n * kLanes, n, quads);
      dot_eight<kHalf, 1>(group, lane + n * kLanes, n, quads);
    }
  }

 private:
  // Two quads side by side. Nibbles are brought together before they are taken apart: both halves share that.
  template <int kHalf, int kEight>
  [[gnu::always_inline]] static typename Pairs::Weights weights(const uint8_t* group, int lane) {
    if constexpr (F::kPlanes == 0 && !F::kWide) {
      const uint8_t* p = group + 4 * lane + 2 * kEight * kVectorBytes;
      const auto raw = Pairs::weights(load_bytes(p), load_bytes(p + kVectorBytes));
      if constexpr (kHalf == 0) return {{low_nibbles(raw.v[0]), low_nibbles(raw.v[1])}};
      return {{high_nibbles(raw.v[0]), high_nibbles(raw.v[1])}};
    } else {
      return Pairs::weights(F::template weights<kHalf, 2 * kEight>(group, lane),
                            F::template weights<kHalf, 2 * kEight + 1>(group, lane));
    }
  }

  template <int kHalf, int kEight>
  [[gnu::always_inline]] void dot_eight(const uint8_t* group, int lane, int n,
                                        const typename Pairs::Quads (&quads)[kPairs]) {
    const auto w = weights<kHalf, kEight>(group, lane);
    RINGLINE_UNROLL for (int p = 0; p < kPairs; p++) sum[p][n] =
        Pairs::template dot<kEight>(sum[p][n], w, quads[p]);
  }
};

}  // namespace ringline::RINGLINE_ISA
