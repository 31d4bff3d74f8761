#include "core/engine_isa.hpp"

#include <stdexcept>
#include <string>

#define RINGLINE_TABLE(name)                 \
  namespace ringline::name {                 \
  extern const EngineKernels engine_kernels; \
  }

RINGLINE_TABLE(portable)
#ifdef RINGLINE_HAVE_avx2
RINGLINE_TABLE(avx2)
#endif
#ifdef RINGLINE_HAVE_avx512vnni
RINGLINE_TABLE(avx512vnni)
#endif
#ifdef RINGLINE_HAVE_dotprod
RINGLINE_TABLE(dotprod)
#endif

namespace ringline {

const EngineKernels& engine_kernels(std::string_view isa) {
#ifdef RINGLINE_HAVE_avx512vnni
  if (isa == "avx512vnni") return avx512vnni::engine_kernels;
#endif
#ifdef RINGLINE_HAVE_avx2
  if (isa == "avx2") return avx2::engine_kernels;
#endif
#ifdef RINGLINE_HAVE_dotprod
  if (isa == "dotprod") return dotprod::engine_kernels;
#endif
  if (isa == "portable") return portable::engine_kernels;
  throw std::invalid_argument("no engine kernels for the instruction set '" + std::string(isa) + "'");
}

}  // namespace ringline
