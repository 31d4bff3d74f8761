#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind/bind.hpp"
#include "core/likeliest.hpp"
#include "core/model.hpp"
#include "core/scratch.hpp"
#include "core/stream.hpp"

namespace ringline::bind {

namespace {

using TensorTuple = std::tuple<std::string, uint32_t, int64_t, int64_t, int64_t, int64_t>;

struct PyModel {
  std::shared_ptr<Model> model;
};

template <class T>
T field(const nb::dict& spec, const char* name) {
  if (!spec.contains(name)) throw std::invalid_argument("spec: '" + std::string(name) + "' is missing");
  T value{};
  if (!nb::try_cast(spec[name], value)) {
    throw std::invalid_argument("spec: '" + std::string(name) + "' has the wrong type");
  }
  return value;
}

ModelSpec spec_of(const nb::dict& spec) {
  ModelSpec out;
  out.architecture = field<std::string>(spec, "architecture");
  out.n_layer = field<int64_t>(spec, "n_layer");
  out.n_embd = field<int64_t>(spec, "n_embd");
  out.n_head = field<int64_t>(spec, "n_head");
  out.n_kv_head = field<int64_t>(spec, "n_kv_head");
  out.head_dim = field<int64_t>(spec, "head_dim");
  out.n_ff = field<int64_t>(spec, "n_ff");
  out.n_vocab = field<int64_t>(spec, "n_vocab");
  out.rope_base = field<double>(spec, "rope_base");
  out.rms_eps = field<double>(spec, "rms_eps");
  return out;
}

std::vector<TensorEntry> entries_of(const std::vector<TensorTuple>& tensors) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, type, rows, cols, offset, nbytes] : tensors) {
    entries.push_back({name, type, rows, cols, offset, nbytes});
  }
  return entries;
}

std::vector<std::shared_ptr<SequenceView>> views_of(const nb::sequence& views) {
  std::vector<std::shared_ptr<SequenceView>> out;
  for (nb::handle item : views) {
    PyView* view = nullptr;
    if (!nb::try_cast(item, view) || view == nullptr)
      throw nb::type_error("views must be SequenceView objects");
    out.push_back(view->view);
  }
  return out;
}

nb::ndarray<nb::numpy, int32_t> copy_of(std::span<const int32_t> values) {
  auto* data = new int32_t[std::max<size_t>(values.size(), 1)];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<int32_t*>(p); });
  std::copy(values.begin(), values.end(), data);
  return {data, {values.size()}, owner};
}

int64_t forward(Scratch& scratch, const nb::sequence& views, const IntArray& seq, const IntArray& tokens,
                const IntArray& parents, const IntArray& outputs) {
  const std::vector<std::shared_ptr<SequenceView>> held = views_of(views);
  const PassRequest request{held, ints_of(seq), ints_of(tokens), ints_of(parents), ints_of(outputs)};
  const nb::gil_scoped_release others_may_run;
  return scratch.forward(request);
}

nb::tuple likeliest_tokens(const FloatArray& logits, size_t k) {
  nb::list ids, logq;
  for (const LikelyToken& token : likeliest({logits.data(), logits.size()}, k)) {
    ids.append(token.id);
    logq.append(token.logq);
  }
  return nb::make_tuple(ids, logq);
}

void bind_model(nb::module_& m) {
  nb::class_<PyModel>(m, "Model", nb::is_final())
      .def(
          "__init__",
          [](PyModel* self, const std::string& path, const nb::dict& spec,
             const std::vector<TensorTuple>& tensors, int threads, const std::string& isa,
             std::vector<int> affinity) {
            new (self) PyModel{std::make_shared<Model>(path, spec_of(spec), entries_of(tensors), threads, isa,
                                                       std::move(affinity))};
          },
          nb::arg("path"), nb::arg("spec"), nb::arg("tensors"), nb::arg("threads"), nb::arg("isa") = "",
          nb::arg("affinity") = std::vector<int>())
      .def(
          "digests",
          [](const PyModel& self, const std::vector<TensorTuple>& tensors) {
            const std::vector<TensorEntry> entries = entries_of(tensors);
            const nb::gil_scoped_release others_may_run;
            return self.model->digests(entries);
          },
          nb::arg("tensors"))
      .def_prop_ro("isa", [](const PyModel& self) { return self.model->isa(); })
      .def_prop_ro("threads", [](const PyModel& self) { return self.model->n_threads(); })
      .def_prop_ro("n_vocab", [](const PyModel& self) { return self.model->spec().n_vocab; })
      .def_prop_ro("plane",
                   [](const PyModel& self) {
                     const Plane plane = self.model->plane();
                     return std::tuple(plane.n_layer, plane.n_kv_head, plane.head_dim);
                   })
      .def_prop_ro("weight_bytes", [](const PyModel& self) { return self.model->weight_bytes(); });
}

void bind_passes(nb::class_<Scratch>& scratch) {
  scratch
      .def("forward", &forward, nb::arg("views"), nb::arg("seq").noconvert(), nb::arg("tokens").noconvert(),
           nb::arg("parents").noconvert(), nb::arg("outputs").noconvert())
      .def("logits",
           [](const Scratch& self) {
             const auto rows = static_cast<size_t>(self.n_outputs());
             const auto cols = static_cast<size_t>(self.model().spec().n_vocab);
             return nb::ndarray<nb::numpy, const float>(self.logits(), {rows, cols}, nb::find(self));
           })
      .def("argmax", [](const Scratch& self) { return copy_of(self.argmax()); });
}

void bind_trees(nb::class_<Scratch>& scratch) {
  scratch
      .def(
          "commit",
          [](Scratch& self, PyView& view, const IntArray& path) { self.commit(*view.view, ints_of(path)); },
          nb::arg("view"), nb::arg("path").noconvert())
      .def(
          "reroot",
          [](Scratch& self, PyView& view, const IntArray& path) {
            return copy_of(self.reroot(*view.view, ints_of(path)));
          },
          nb::arg("view"), nb::arg("path").noconvert())
      .def(
          "drop", [](Scratch& self, PyView& view) { return copy_of(self.drop(*view.view)); }, nb::arg("view"))
      .def("clear", &Scratch::clear);
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_model(m);
  m.def("likeliest_tokens", &likeliest_tokens, nb::arg("logits").noconvert(), nb::arg("k"));
  m.def(
      "read_bandwidth",
      [](const ReadableBuffer& memory, int threads) {
        const nb::gil_scoped_release others_may_run;
        return read_bandwidth({static_cast<const std::byte*>(memory.data()), memory.nbytes()}, threads);
      },
      nb::arg("memory").noconvert(), nb::arg("threads"));
  nb::class_<Scratch> scratch(m, "Scratch", nb::is_final());
  scratch
      .def(
          "__init__",
          [](Scratch* self, const PyModel& model, int64_t capacity, int64_t max_outputs,
             const std::string& kv) {
            new (self) Scratch(model.model, capacity, max_outputs, kv_format(kv));
          },
          nb::arg("model"), nb::arg("capacity"), nb::arg("max_outputs"), nb::arg("kv") = "f16")
      .def_prop_ro("size", &Scratch::size)
      .def_prop_ro("capacity", &Scratch::capacity);
  bind_passes(scratch);
  bind_trees(scratch);
}

}  // namespace ringline::bind
