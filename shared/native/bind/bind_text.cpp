#include <nanobind/stl/tuple.h>

#include <array>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "bind/bind.hpp"
#include "core/branch_prior.hpp"
#include "core/context_index.hpp"
#include "core/kinship.hpp"
#include "core/text_draft.hpp"

namespace ringline::bind {

namespace {

constexpr size_t kMostMatches = 1024;
constexpr size_t kMostJudged = 256;

using Weights = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::list list_of(std::span<const T> values) {
  nb::list out;
  for (const T& value : values) out.append(value);
  return out;
}

nb::list find(const ContextIndex& index, const IntArray& query, int32_t shortest, size_t most) {
  std::vector<ContextMatch> found(std::min(most, kMostMatches));
  const size_t n = index.find(ints_of(query), shortest, found);
  nb::list out;
  for (const ContextMatch& match : std::span(found).first(n)) {
    out.append(nb::make_tuple(match.place, match.length, match.document));
  }
  return out;
}

int32_t token(const ContextIndex& index, int32_t place) {
  if (place < 0 || place >= index.end()) throw std::out_of_range("no such place");
  return index.token(place);
}

nb::ndarray<nb::numpy, float> kinship_of(const ContextIndex& index, const IntArray& query) {
  const auto n = static_cast<size_t>(index.documents());
  auto* data = new float[n + 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  kinship(index, ints_of(query), {data, n});
  return {data, {n}, owner};
}

// (index, kinship of its documents, source id) each.
std::vector<TextSource> sources_of(const nb::sequence& sources) {
  std::vector<TextSource> out;
  for (nb::handle item : sources) {
    const auto [index, kinship, id] = nb::cast<std::tuple<const ContextIndex*, FloatArray, int32_t>>(item);
    if (index == nullptr) throw nb::type_error("a source needs a ContextIndex");
    out.push_back({index, {kinship.data(), kinship.size()}, id});
  }
  return out;
}

nb::tuple grow(TextDraft& draft, const nb::sequence& sources, const IntArray& query, float mood,
               const FloatArray& weights, int32_t nodes, int32_t depth, float least_score) {
  draft.grow(sources_of(sources), ints_of(query), mood, {weights.data(), weights.size()},
             {nodes, depth, least_score});
  nb::list tokens, parents, ids, logq;
  for (const DraftNode& node : draft.nodes()) {
    tokens.append(node.token);
    parents.append(node.parent);
    ids.append(node.source);
    logq.append(node.logq);
  }
  return nb::make_tuple(tokens, parents, ids, logq);
}

nb::list candidates(const TextDraft& draft) {
  nb::list out;
  for (const TextDraft::Candidate& candidate : draft.candidates()) {
    out.append(nb::make_tuple(candidate.token, candidate.logq, list_of<float>(candidate.evidence)));
  }
  return out;
}

nb::list learn(const TextDraft& draft, const IntArray& tokens, float rate, const Weights& weights) {
  if (weights.size() != TextDraft::kEvidence) throw std::invalid_argument("weights: wrong number of them");
  std::array<bool, kMostJudged> right;
  const size_t n = draft.learn(ints_of(tokens), rate, {weights.data(), weights.size()}, right);
  return list_of<bool>(std::span(right).first(n));
}

nb::list prior(const nb::sequence& sources, const IntArray& query, const IntArray& tokens) {
  std::vector<float> out(tokens.size());
  log_prior(sources_of(sources), ints_of(query), ints_of(tokens), out);
  return list_of<float>(out);
}

void bind_index(nb::module_& m) {
  nb::class_<ContextIndex>(m, "ContextIndex", nb::is_final())
      .def(nb::init<int32_t, int32_t>(), nb::arg("tokens"), nb::arg("documents"))
      .def("begin", &ContextIndex::begin, nb::arg("mark") = 0)
      .def(
          "extend", [](ContextIndex& self, const IntArray& tokens) { self.extend(ints_of(tokens)); },
          nb::arg("tokens").noconvert())
      .def(
          "fill",
          [](ContextIndex& self, const IntArray& tokens, const IntArray& lengths) {
            self.fill(ints_of(tokens), ints_of(lengths));
          },
          nb::arg("tokens").noconvert(), nb::arg("lengths").noconvert())
      .def("find", &find, nb::arg("query").noconvert(), nb::arg("shortest") = 1,
           nb::arg("most") = kMostMatches)
      .def("token", &token, nb::arg("place"))
      .def(
          "document", [](const ContextIndex& self, int32_t i) { return list_of<int32_t>(self.document(i)); },
          nb::arg("i"))
      .def("mark", &ContextIndex::mark, nb::arg("i"))
      .def("kinship", &kinship_of, nb::arg("query").noconvert())
      .def("sorted", &ContextIndex::sorted)
      .def_prop_ro("end", &ContextIndex::end)
      .def_prop_ro("documents", &ContextIndex::documents)
      .def_prop_ro("dropped", &ContextIndex::dropped);
}

void bind_draft(nb::module_& m) {
  nb::class_<TextDraft>(m, "TextDraft", nb::is_final())
      .def(nb::init<int32_t>(), nb::arg("nodes"))
      .def("grow", &grow, nb::arg("sources"), nb::arg("query").noconvert(), nb::arg("mood"),
           nb::arg("weights").noconvert(), nb::arg("nodes"), nb::arg("depth"), nb::arg("least_score"))
      .def("candidates", &candidates)
      .def("learn", &learn, nb::arg("tokens").noconvert(), nb::arg("rate"), nb::arg("weights").noconvert());
}

}  // namespace

void bind_text(nb::module_& m) {
  m.attr("EVIDENCE") = TextDraft::kEvidence;
  bind_index(m);
  bind_draft(m);
  m.def("log_prior", &prior, nb::arg("sources"), nb::arg("query").noconvert(), nb::arg("tokens").noconvert());
}

}  // namespace ringline::bind
