#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "bind/bind.hpp"

namespace ringline::bind {

namespace {

using PlaneTuple = std::tuple<int32_t, int32_t, int32_t>;

std::vector<Plane> planes_of(const std::vector<PlaneTuple>& tuples, const std::string& kv) {
  std::vector<Plane> planes;
  const KvFormat format = kv_format(kv);
  for (const auto& [layers, kv_heads, head_dim] : tuples)
    planes.push_back({layers, kv_heads, head_dim, format});
  return planes;
}

// Holds the Python buffer (an mmap, an array) for as long as core objects point into it.
std::shared_ptr<const void> keep(const WritableBuffer& buffer) {
  return std::make_shared<WritableBuffer>(buffer);
}

void bind_pool(nb::module_& m) {
  nb::class_<PyPool>(m, "KvPool", nb::is_final())
      .def(
          "__init__",
          [](PyPool* self, WritableBuffer buffer, int32_t n_blocks, const std::vector<PlaneTuple>& planes,
             const std::string& kv) {
            new (self) PyPool{
                std::make_shared<KvPool>(bytes_of(buffer), n_blocks, planes_of(planes, kv), keep(buffer))};
          },
          nb::arg("buffer").noconvert(), nb::arg("n_blocks"), nb::arg("planes"), nb::arg("kv") = "f16")
      .def_static(
          "block_bytes",
          [](const std::vector<PlaneTuple>& planes, const std::string& kv) {
            return KvPool::block_bytes(planes_of(planes, kv));
          },
          nb::arg("planes"), nb::arg("kv") = "f16")
      .def_prop_ro("n_blocks", [](const PyPool& self) { return self.pool->n_blocks(); })
      .def(
          "copy_block",
          [](const PyPool& self, int32_t source, int32_t target) { self.pool->copy_block(source, target); },
          nb::arg("source"), nb::arg("target"));
}

void bind_allocator(nb::module_& m) {
  nb::class_<BlockAllocator>(m, "BlockAllocator", nb::is_final())
      .def(
          "__init__",
          [](BlockAllocator* self, WritableBuffer buffer, int32_t n_blocks, bool create) {
            new (self) BlockAllocator(bytes_of(buffer), n_blocks, create, keep(buffer));
          },
          nb::arg("buffer").noconvert(), nb::arg("n_blocks"), nb::arg("create"))
      .def_static("bytes_needed", &BlockAllocator::bytes_needed, nb::arg("n_blocks"))
      .def("allocate", &BlockAllocator::allocate)
      .def("retain", &BlockAllocator::retain, nb::arg("block"))
      .def("release", &BlockAllocator::release, nb::arg("block"))
      .def("references", &BlockAllocator::references, nb::arg("block"))
      .def_prop_ro("n_blocks", &BlockAllocator::n_blocks)
      .def_prop_ro("n_free", &BlockAllocator::n_free);
}

void bind_view(nb::module_& m) {
  nb::class_<PyView>(m, "SequenceView", nb::is_final())
      .def(
          "__init__",
          [](PyView* self, const PyPool& pool, int64_t plane, int64_t sink, int64_t ring, int64_t window) {
            new (self) PyView{std::make_shared<SequenceView>(pool.pool, plane, sink, ring, window)};
          },
          nb::arg("pool"), nb::arg("plane"), nb::arg("sink"), nb::arg("ring"), nb::arg("window"))
      .def_prop_rw(
          "length", [](const PyView& self) { return self.view->length(); },
          [](PyView& self, int64_t length) { self.view->set_length(length); })
      .def(
          "set_blocks",
          [](PyView& self, int64_t first, IntArray blocks) { self.view->set_blocks(first, ints_of(blocks)); },
          nb::arg("first"), nb::arg("blocks").noconvert())
      .def("covered", [](const PyView& self) { return self.view->covered(); });
}

}  // namespace

void bind_memory(nb::module_& m) {
  m.attr("BLOCK_TOKENS") = kBlockTokens;
  bind_pool(m);
  bind_allocator(m);
  bind_view(m);
}

}  // namespace ringline::bind
