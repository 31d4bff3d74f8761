// The engine's own kernel table of an instruction-set variant (see core/isa.hpp for how variants are chosen).
#pragma once

#include <string_view>

#include "kernels/engine_kernels.hpp"

namespace ringline {

// Throws std::invalid_argument for a variant that is not compiled in.
const EngineKernels& engine_kernels(std::string_view isa);

}  // namespace ringline
