#include "core/isa.hpp"

#include <stdexcept>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace ringline {

// The tables of kernels/*.cpp, one of each kind a variant.
#define RINGLINE_DECLARE_TABLES(isa)         \
  namespace isa {                            \
  extern const MatmulKernels kMatmulKernels; \
  }
RINGLINE_DECLARE_TABLES(portable)
#ifdef RINGLINE_HAVE_avx2
RINGLINE_DECLARE_TABLES(avx2)
#endif
#ifdef RINGLINE_HAVE_avx512vnni
RINGLINE_DECLARE_TABLES(avx512vnni)
#endif
#ifdef RINGLINE_HAVE_dotprod
RINGLINE_DECLARE_TABLES(dotprod)
#endif
#undef RINGLINE_DECLARE_TABLES

namespace {

struct Variant {
  const char* name;
  bool (*usable)();
  const MatmulKernels* matmul;
};

#ifdef RINGLINE_HAVE_avx2
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
#endif
#ifdef RINGLINE_HAVE_avx512vnni
bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif
#ifdef RINGLINE_HAVE_dotprod
bool has_dotprod() {
  const unsigned long caps = getauxval(AT_HWCAP);
  return (caps & HWCAP_ASIMDDP) != 0 && (caps & HWCAP_ASIMDHP) != 0;
}
#endif

// Best first.
constexpr Variant kVariants[] = {
#ifdef RINGLINE_HAVE_avx512vnni
    {"avx512vnni", has_avx512vnni, &avx512vnni::kMatmulKernels},
#endif
#ifdef RINGLINE_HAVE_avx2
    {"avx2", has_avx2, &avx2::kMatmulKernels},
#endif
#ifdef RINGLINE_HAVE_dotprod
    {"dotprod", has_dotprod, &dotprod::kMatmulKernels},
#endif
    {"portable", [] { return true; }, &portable::kMatmulKernels},
};

const Variant& find_variant(std::string_view isa) {
  std::string choices;
  for (const Variant& v : kVariants) {
    if (!v.usable()) continue;
    if (isa.empty() || isa == v.name) return v;
    choices += (choices.empty() ? "" : ", ") + std::string(v.name);
  }
  throw std::invalid_argument("instruction set '" + std::string(isa) +
                              "' is not usable here; choose one of: " + choices);
}

}  // namespace

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const Variant& v : kVariants)
    if (v.usable()) names.emplace_back(v.name);
  return names;
}

const MatmulKernels& matmul_kernels(std::string_view isa) { return *find_variant(isa).matmul; }

}  // namespace ringline
