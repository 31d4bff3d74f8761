// Declarations that the files of one variant share.
#pragma once

#include "kernels/engine_kernels.hpp"

namespace ringline::RINGLINE_ISA {

// `Kv` is a storage of kernels/kv_storage.hpp.
template <class Kv>
void store_key(const float* x, int64_t head_dim, std::byte* head, int64_t lane);
template <class Kv>
void store_value(const float* x, int64_t head_dim, std::byte* head, int64_t lane);
template <class Kv>
void attend(const AttentionTask* tasks, int64_t n_tasks);
extern const EngineKernels engine_kernels;

}  // namespace ringline::RINGLINE_ISA
