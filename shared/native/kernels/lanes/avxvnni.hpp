// AVX-VNNI: AVX2's registers of eight rows with VNNI's dot product of unsigned weights and signed activations
// (Alder Lake and later, also the Atom-class cores of industrial PCs). It does not saturate.
//
// The instruction has two encodings: VEX (AVX-VNNI) and EVEX (AVX-512 VNNI with VL); they compute the same.
// Many machines have only one of them, Zen 4 for instance only EVEX. Test builds therefore compile this file
// twice: as variant `avxvnni` and, in EVEX form, as variant `avxvnni_evex` (lanes/avxvnni_evex.hpp), so that
// its arithmetic runs wherever there is either.
#pragma once

#include "kernels/lanes/eight.hpp"

namespace ringline::RINGLINE_ISA {

inline constexpr int kMaxRows = 4;
inline constexpr int kBlockRows = 4;
inline constexpr int kMediumBlockRows = kBlockRows;
inline constexpr int kFloatRows = 2;
inline constexpr int kZero8 = 128;
inline constexpr int32_t kIntStart = 0;
inline constexpr bool kRowPairs = false;
// With four rows half of the sums pass through the stack once a group: cheaper than activations twice.
constexpr int registers(int) { return 2; }

template <int kQuad>
inline Ints dot(Ints sum, Bytes w, Quads a) {
#ifdef __AVXVNNI__
  return _mm256_dpbusd_avx_epi32(sum, w, broadcast_quad(a + 4 * kQuad));
#else
  return _mm256_dpbusd_epi32(sum, w, broadcast_quad(a + 4 * kQuad));
#endif
}
template <int kQuad>
inline Ints dot8(Ints sum, Bytes w, Quads a) {
  return dot<kQuad>(sum, w, a);
}

}  // namespace ringline::RINGLINE_ISA
