// Declarations that the files of one variant share.
#pragma once

#include "kernels/engine_kernels.hpp"

namespace ringline::RINGLINE_ISA {

void attend(const AttentionTask* tasks, int64_t n_tasks);
extern const EngineKernels engine_kernels;

}  // namespace ringline::RINGLINE_ISA
