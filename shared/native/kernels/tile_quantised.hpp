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

namespace ringline::RINGLINE_ISA {

inline constexpr int64_t kPrefetchBytes = 4096;  // how far ahead of the computation weights are fetched

template <TensorType kType, int kRows, int kRegisters>
struct QuantisedTile {
  using F = Format<kType>;
  static constexpr Layout kLayout = F::kLayout;
  static constexpr int kSumHalves = F::kHalfScales ? 2 : 1;

  const Activations& a;
  int64_t row;  // first activation row
  int lane;     // first output row in the tile
  bool fetch;   // this is the first pass over the tile
  Floats sum[kRows][kRegisters];

  const int8_t* q(int r, int64_t group, int half) const {
    return a.q + (row + r) * a.cols + group * kGroup + half * (kGroup / 2);
  }
  int64_t at(int r, int64_t group) const { return (row + r) * (a.cols / kGroup) + group; }

  // Minus the zero point's share: of a half group, or of the whole group at its first half.
  [[gnu::always_inline]] Ints start(int r, int64_t group, int half) const {
    if constexpr (F::kZero == 0) return broadcast(int32_t{0});
    const int32_t* sums = a.sum + 2 * at(r, group);
    return broadcast(-F::kZero * (F::kHalfScales ? sums[half] : sums[0] + sums[1]));
  }

  template <int kHalf>
  [[gnu::always_inline]] void dot_half(const uint8_t* group, int64_t g, Ints (&i)[kRows][kRegisters]) const {
    Quads quads[kRows];
    unroll<kRows>([&](auto r)
                      __attribute__((always_inline)) { quads[r.value] = load_quads(q(r.value, g, kHalf)); });
    unroll<4>([&](auto j) __attribute__((always_inline)) {
      unroll<kRegisters>([&](auto n) __attribute__((always_inline)) {
        const Bytes w = F::template weights<kHalf, j.value>(group, lane + n.value * kLanes);
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
          i[r.value][n.value] = F::template dot_quad<j.value>(i[r.value][n.value], w, quads[r.value]);
        });
      });
    });
  }

  [[gnu::always_inline]] void begin(int64_t g, int half, Ints (&i)[kRows][kRegisters]) const {
    unroll<kRows>([&](auto r) __attribute__((always_inline)) {
      const Ints zero = start(r.value, g, half);
      unroll<kRegisters>([&](auto n) __attribute__((always_inline)) { i[r.value][n.value] = zero; });
    });
  }

  [[gnu::always_inline]] void scale_group(const uint8_t* header, int slot, int64_t g,
                                          const Ints (&i)[kSumHalves][kRows][kRegisters], const Floats* d,
                                          const Floats* m) {
    unroll<kRegisters>([&](auto n) __attribute__((always_inline)) {
      const int from = lane + n.value * kLanes;
      const Floats w0 = F::scale(header, from, slot, 0, d[n.value]);
      const Floats w1 = F::kHalfScales ? F::scale(header, from, slot, 1, d[n.value]) : w0;
      const Floats minimum = F::minimum(header, from, slot, m[n.value]);
      unroll<kRows>([&](auto r) __attribute__((always_inline)) {
        Floats& s = sum[r.value][n.value];
        const int64_t index = at(r.value, g);
        Floats scaled = multiply(to_floats(i[kSumHalves - 1][r.value][n.value]), w1);
        if constexpr (F::kHalfScales) scaled = multiply_add(to_floats(i[0][r.value][n.value]), w0, scaled);
        s = multiply_add(scaled, broadcast(a.scale[index]), s);
        if constexpr (F::kAddsMinimum) s = multiply_add(minimum, broadcast(a.scaled_sum[index]), s);
        if constexpr (F::kSubtractsMinimum) s = subtract_product(minimum, broadcast(a.scaled_sum[index]), s);
      });
    });
  }

  [[gnu::always_inline]] void add_group(const uint8_t* header, const uint8_t* group, int slot, int64_t g,
                                        const Floats* d, const Floats* m) {
    if (fetch) {
      unroll<kLayout.group_bytes / kVectorBytes>([&](auto line) __attribute__((always_inline)) {
        prefetch(group + kPrefetchBytes + line.value * kVectorBytes);
      });
    }
    Ints i[kSumHalves][kRows][kRegisters];
    begin(g, 0, i[0]);
    dot_half<0>(group, g, i[0]);
    if constexpr (F::kHalfScales) begin(g, 1, i[1]);
    dot_half<1>(group, g, i[kSumHalves - 1]);
    scale_group(header, slot, g, i, d, m);
  }

  [[gnu::always_inline]] void add_block(const uint8_t* header, int64_t first, int64_t groups) {
    if (fetch) {
      for (int offset = 0; offset < kLayout.header_bytes; offset += kVectorBytes)
        prefetch(header + kPrefetchBytes + offset);
    }
    const uint8_t* group = header + kLayout.header_bytes;
    Floats d[kRegisters], m[kRegisters];
    for (int slot = 0; slot < kLayout.groups && first + slot < groups; slot++, group += kLayout.group_bytes) {
      unroll<kRegisters>([&](auto n) __attribute__((always_inline)) {
        d[n.value] = F::d(header, lane + n.value * kLanes, slot);
        m[n.value] = F::m(header, lane + n.value * kLanes);
      });
      add_group(header, group, slot, first + slot, d, m);
    }
  }

  // Sums of rows [row, row + kRows) for lanes [lane, lane + kRegisters * kLanes) into out[kRows][kTileRows].
  void run(const uint8_t* tile, int64_t groups, float* out) {
    for (auto& s : sum)
      for (Floats& f : s) f = broadcast(0.0f);
    for (int64_t g = 0; g < groups;
         g += kLayout.groups, tile += kLayout.header_bytes + kLayout.groups * kLayout.group_bytes)
      add_block(tile, g, groups);
    for (int r = 0; r < kRows; r++)
      for (int n = 0; n < kRegisters; n++) store(out + r * kTileRows + lane + n * kLanes, sum[r][n]);
  }
};

template <TensorType kType, int kRows>
void quantised_tile(const uint8_t* tile, const PackedMatrix& w, const Activations& a, int64_t row, bool fetch,
                    float* out) {
  constexpr int kRegisters = registers(kRows);
  for (int lane = 0; lane < kTileRows; lane += kRegisters * kLanes) {
    QuantisedTile<kType, kRows, kRegisters> t{a, row, lane, fetch && lane == 0, {}};
    t.run(tile, w.cols / kGroup, out);
  }
}

}  // namespace ringline::RINGLINE_ISA
