// The table of kernels that one instruction-set variant provides. Every file in this folder is compiled once
// per variant inside `namespace ringline::RINGLINE_ISA`; `core/isa.cpp` picks a table at run time.
#pragma once

#include "core/matrix.hpp"

namespace ringline {

struct MatmulKernels {
  // Quantise x [rows, cols] into the arrays of `a` (q, scale, sum, scaled_sum); its other members are the
  // caller's. Each row depends on itself alone: threads may take ranges of rows (`slice`). The same bits in
  // every variant. A group that holds an infinity or a NaN gets the scale NaN.
  void (*quantize)(const float* x, int64_t rows, int64_t cols, const Activations& a);
  // out[r * stride + 16 * t + lane] for tiles t in [first, last) and all rows r of the activations. The bits
  // of an output depend on its weight row and its activation row alone. `bias` may be null. Columns past
  // w.rows are not written.
  void (*matmul)(const PackedMatrix& w, const Activations& a, int64_t first, int64_t last, const float* bias,
                 float* out, int64_t stride);
};

}  // namespace ringline
