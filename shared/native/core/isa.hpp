// Choice of the instruction-set variant at run time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.hpp"

namespace ringline {

// Variants compiled in and usable on this machine, best first, e.g. {"avx512vnni", "avx2", "portable"}.
std::vector<std::string> isa_names();
// Kernels of the variant `isa`; "" is the best one. std::invalid_argument, naming the choices, when `isa` is
// unknown or unusable here.
const MatmulKernels& matmul_kernels(std::string_view isa);

}  // namespace ringline
