// Declarations that the files of one variant share.
#pragma once

#include "kernels/engine_kernels.hpp"

namespace ringline::RINGLINE_ISA {

void attend(const AttentionTask& task);
extern const EngineKernels engine_kernels;

}  // namespace ringline::RINGLINE_ISA
