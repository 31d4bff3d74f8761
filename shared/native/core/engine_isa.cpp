#include "core/engine_isa.hpp"

#include <stdexcept>
#include <string>

#include "core/variants.hpp"

#define RINGLINE_DECLARE_TABLE(name)         \
  namespace ringline::name {                 \
  extern const EngineKernels engine_kernels; \
  }
RINGLINE_VARIANTS(RINGLINE_DECLARE_TABLE)
#undef RINGLINE_DECLARE_TABLE

namespace ringline {

const EngineKernels& engine_kernels(std::string_view isa) {
#define RINGLINE_CHOOSE(name) \
  if (isa == #name) return name::engine_kernels;
  RINGLINE_VARIANTS(RINGLINE_CHOOSE)
#undef RINGLINE_CHOOSE
  throw std::invalid_argument("no engine kernels for the instruction set '" + std::string(isa) + "'");
}

}  // namespace ringline
