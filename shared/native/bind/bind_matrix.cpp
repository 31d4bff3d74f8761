// Python face of the packed matrices and their product (for packing weights, tests and benchmarks).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.hpp"
#include "core/digest.hpp"
#include "core/isa.hpp"
#include "core/matrix.hpp"

namespace nb = nanobind;

namespace ringline {
namespace {

constexpr size_t kAlignment = 64;
constexpr int kMostThreads = 256;

using Bytes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using WritableBytes = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Inputs = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

TensorType tensor_type(int64_t number) {
  const auto type = TensorType(uint32_t(number));
  if (number < 0 || number > UINT32_MAX || !supported(type))
    throw std::invalid_argument("tensor type " + std::to_string(number) + " has no kernels");
  return type;
}

void require_bytes(const char* name, size_t have, size_t need) {
  if (have < need)
    throw std::invalid_argument(std::string(name) + " holds " + std::to_string(have) + " bytes, " +
                                std::to_string(need) + " are needed");
}

// Packed weights in an aligned place: the caller's buffer, or a copy of it when that is not aligned.
struct PackedView {
  PackedMatrix matrix;
  Buffer<std::byte> copy;

  PackedView(int64_t number, const Bytes& packed, int64_t rows, int64_t cols) {
    const TensorType type = tensor_type(number);
    const size_t bytes = packed_bytes(type, rows, cols);
    require_bytes("packed", packed.nbytes(), bytes);
    const auto* data = static_cast<const std::byte*>(packed.data());
    if (reinterpret_cast<uintptr_t>(data) % kAlignment != 0) {
      copy = Buffer<std::byte>(bytes);
      std::copy_n(data, bytes, copy.data());
      data = copy.data();
    }
    matrix = {type, rows, cols, data};
  }
};

Floats new_floats(size_t rows, size_t cols) {
  auto values = std::make_unique<float[]>(rows * cols);
  float* data = values.get();
  nb::capsule owner(values.release(), [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Floats(data, {rows, cols}, owner);
}

int64_t packed_size(int64_t number, int64_t rows, int64_t cols) {
  return int64_t(packed_bytes(tensor_type(number), rows, cols));
}

void pack_into(int64_t number, const Bytes& source, int64_t rows, int64_t cols, const WritableBytes& target) {
  const TensorType type = tensor_type(number);
  require_bytes("target", target.nbytes(), packed_bytes(type, rows, cols));
  require_bytes("source", source.nbytes(), gguf_bytes(type, rows, cols));
  nb::gil_scoped_release release;
  pack(type, static_cast<const std::byte*>(source.data()), rows, cols,
       static_cast<std::byte*>(target.data()));
}

uint64_t digest_of(const Bytes& bytes) {
  nb::gil_scoped_release release;
  return digest({static_cast<const std::byte*>(bytes.data()), bytes.nbytes()});
}

Floats dequantize_rows(int64_t number, const Bytes& packed, int64_t rows, int64_t cols, const Rows& ids) {
  const PackedView w(number, packed, rows, cols);
  for (size_t i = 0; i < ids.size(); i++)
    if (ids(i) < 0 || ids(i) >= rows)
      throw std::invalid_argument("row " + std::to_string(ids(i)) + " is not one of the matrix's " +
                                  std::to_string(rows));
  Floats out = new_floats(ids.size(), size_t(cols));
  for (size_t i = 0; i < ids.size(); i++) dequantize_row(w.matrix, ids(i), out.data() + i * size_t(cols));
  return out;
}

// Tiles are split evenly; the caller computes the last share.
void multiply(const MatmulKernels& k, const PackedMatrix& w, const Activations& a, int threads, float* out) {
  std::vector<std::jthread> helpers;
  for (int t = 0; t < threads; t++) {
    const int64_t first = w.tiles() * t / threads, last = w.tiles() * (t + 1) / threads;
    auto share = [&, first, last] { k.matmul(w, a, first, last, nullptr, out, w.rows); };
    if (t + 1 < threads) {
      helpers.emplace_back(share);
    } else {
      share();
    }
  }
}

Floats matmul(int64_t number, const Bytes& packed, int64_t rows, int64_t cols, const Inputs& x,
              const std::string& isa, int threads) {
  const MatmulKernels& k = matmul_kernels(isa);
  const PackedView w(number, packed, rows, cols);
  if (int64_t(x.shape(1)) != cols)
    throw std::invalid_argument("x has " + std::to_string(x.shape(1)) + " columns, the matrix " +
                                std::to_string(cols));
  if (threads < 1 || threads > kMostThreads)
    throw std::invalid_argument("threads is " + std::to_string(threads) + ", not 1 to " +
                                std::to_string(kMostThreads));
  const auto n = int64_t(x.shape(0)), padded = (cols + kGroup - 1) / kGroup * kGroup;
  Floats out = new_floats(size_t(n), size_t(rows));
  if (n == 0) return out;
  nb::gil_scoped_release release;
  Buffer<std::byte> storage(activation_bytes(n, padded));
  Activations a = place_activations(storage.data(), n, padded);
  a.f32 = x.data();
  k.quantize(x.data(), n, cols, a);
  multiply(k, w.matrix, a, threads, out.data());
  return out;
}

}  // namespace
}  // namespace ringline

void bind_matrix(nb::module_& m) {
  using namespace nb::literals;
  m.attr("PACK_LAYOUT") = ringline::kPackLayout;
  m.def("isa_names", &ringline::isa_names);
  m.def("packed_bytes", &ringline::packed_size, "ggml_type"_a, "rows"_a, "cols"_a);
  m.def("pack", &ringline::pack_into, "ggml_type"_a, "source"_a, "rows"_a, "cols"_a, "target"_a);
  m.def("digest", &ringline::digest_of, "bytes"_a);
  m.def("dequantize_rows", &ringline::dequantize_rows, "ggml_type"_a, "packed"_a, "rows"_a, "cols"_a,
        "ids"_a);
  m.def("matmul", &ringline::matmul, "ggml_type"_a, "packed"_a, "rows"_a, "cols"_a, "x"_a, "isa"_a,
        "threads"_a = 1);
}
