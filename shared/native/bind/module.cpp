#include "bind/bind.hpp"

void bind_matrix(nanobind::module_& m);

NB_MODULE(_native, m) {
  m.doc() = "The C++ core of Ringline: kernels, K/V pool, engine.";
  bind_matrix(m);
  ringline::bind::bind_memory(m);
  ringline::bind::bind_engine(m);
  ringline::bind::bind_text(m);
}
