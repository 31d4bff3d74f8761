#pragma once

#include "core/matrix.hpp"

namespace ringline::RINGLINE_ISA {

// MatmulKernels::quantize.
void quantize(const float* x, int64_t rows, int64_t cols, const Activations& a);

}  // namespace ringline::RINGLINE_ISA
