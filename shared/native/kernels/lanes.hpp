// Vector primitives of the variant being compiled. Each kernels/lanes/NAME.hpp gives the same names:
//
//   kLanes               output rows in one register
//   kMaxRows             a batch of up to that many activation rows is computed in one go
//   kBlockRows           larger batches are split into blocks of that many
//   kMediumBlockRows     and those of up to kMediumRows into blocks of that many
//   kFloatRows           both of these for float weights
//   registers(rows)      registers side by side for that many rows: rows * registers sums stay in registers
//   kRowPairs            there is a RowPairs (lanes/i8mm.hpp), which sums for two activation rows at once
//   kZero8               what dot8 leaves of the 128 that Q8_0's stored values carry (128 or 0)
//   kIntStart            what an integer sum starts from; `to_floats` takes it off again
//   Bytes                kLanes x 4 columns of unsigned weights;  Ints, Floats: one value a lane
//   Quads                16 activations: four columns each for four quads
//
// Sums of integers are exact, floats are only multiplied, added and fused as the kernels say: variants agree
// to the bit. Nothing here may be shared between variants (no std:: calls): the linker would keep one
// variant's copy for all.
#pragma once

#include <cstdint>

namespace ringline::RINGLINE_ISA {
struct RowPairs;
// What several answers verify together. Of larger batches wider blocks do not stay in the first-level cache.
inline constexpr int kMediumRows = 48;
}  // namespace ringline::RINGLINE_ISA

// Before a loop with a constant count: its iterations are laid out one after another, whatever the optimiser
// thinks.
#define RINGLINE_UNROLL _Pragma("GCC unroll 16")

#define RINGLINE_STRING_(x) #x
#define RINGLINE_STRING(x) RINGLINE_STRING_(x)
// clang-format off
#include RINGLINE_STRING(kernels/lanes/RINGLINE_ISA.hpp)
// clang-format on
#undef RINGLINE_STRING
#undef RINGLINE_STRING_
