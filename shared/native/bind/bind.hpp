// What the files of the Python binding share. Core objects are owned by shared pointers inside these
// wrappers, so the core never holds a reference to a Python object other than a buffer it was given.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/block_allocator.hpp"
#include "core/kv_pool.hpp"
#include "core/sequence_view.hpp"

namespace ringline::bind {

namespace nb = nanobind;

using WritableBuffer = nb::ndarray<nb::c_contig, nb::device::cpu>;
using ReadableBuffer = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using IntArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

inline std::span<std::byte> bytes_of(const WritableBuffer& buffer) {
  return {static_cast<std::byte*>(buffer.data()), buffer.nbytes()};
}
inline std::span<const int32_t> ints_of(const IntArray& array) { return {array.data(), array.size()}; }

struct PyPool {
  std::shared_ptr<KvPool> pool;
};
struct PyView {
  std::shared_ptr<SequenceView> view;
};

void bind_memory(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_text(nb::module_& m);

}  // namespace ringline::bind
