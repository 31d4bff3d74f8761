// The instruction-set variants of this architecture, best first: X(name) for each. CMakeLists.txt compiles
// the kernels once for every one of them; core/isa.cpp knows what they need.
#pragma once

#if defined(__x86_64__)
#ifdef RINGLINE_EVEX_VNNI
#define RINGLINE_VARIANTS(X) X(avx512vnni) X(avxvnni) X(avxvnni_evex) X(avx2) X(portable)
#else
#define RINGLINE_VARIANTS(X) X(avx512vnni) X(avxvnni) X(avx2) X(portable)
#endif
#elif defined(__aarch64__)
#define RINGLINE_VARIANTS(X) X(i8mm) X(dotprod) X(portable)
#else
#define RINGLINE_VARIANTS(X) X(portable)
#endif
