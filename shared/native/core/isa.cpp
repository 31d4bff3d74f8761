#include "core/isa.hpp"

#include <stdexcept>

#include "core/variants.hpp"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ringline {

// The tables of kernels/matmul.cpp, one a variant.
#define RINGLINE_DECLARE_TABLE(isa)          \
  namespace isa {                            \
  extern const MatmulKernels kMatmulKernels; \
  }
RINGLINE_VARIANTS(RINGLINE_DECLARE_TABLE)
#undef RINGLINE_DECLARE_TABLE

namespace {

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}
bool has_avx512vnni() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
// CPUID leaf 7, subleaf 1: EAX bit 4. The builtins of older compilers do not know it.
bool has_avxvnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return has_avx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
}
#ifdef RINGLINE_EVEX_VNNI
bool has_avxvnni_evex() { return has_avx512vnni(); }
#endif
#elif defined(__aarch64__)
bool has_dotprod() {
  const unsigned long caps = getauxval(AT_HWCAP);
  return (caps & HWCAP_ASIMDDP) != 0 && (caps & HWCAP_ASIMDHP) != 0;
}
bool has_i8mm() { return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0; }
#endif
bool has_portable() { return true; }

struct Variant {
  const char* name;
  bool (*usable)();
  const MatmulKernels* matmul;
};

#define RINGLINE_VARIANT(isa) {#isa, has_##isa, &isa::kMatmulKernels},
constexpr Variant kVariants[] = {RINGLINE_VARIANTS(RINGLINE_VARIANT)};
#undef RINGLINE_VARIANT

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
