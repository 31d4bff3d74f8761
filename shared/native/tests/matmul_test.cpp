// Every variant of the matrix product against the portable one (to the bit), a naive sum in double, and
// itself in other batches and tile splits (to the bit).
#include <cmath>
#include <limits>

#include "tests/matmul_fixture.hpp"

namespace ringline::test {
namespace {

constexpr int64_t kRows = 83;  // five tiles and a part of one

int64_t cols_of(TensorType type) { return layout_of(type).block_cols == 256 ? 512 : 544; }

// What the integers and scales of the activations stand for.
std::vector<double> dequantised(const Activations& a, TensorType type, int64_t r, int64_t cols) {
  std::vector<double> x(static_cast<size_t>(cols));
  for (int64_t c = 0; c < cols; c++)
    x[size_t(c)] = layout_of(type).column_bytes != 0
                       ? double(a.f32[r * cols + c])
                       : double(a.q[r * a.cols + c]) * a.scale[r * a.cols / kGroup + c / kGroup];
  return x;
}

// The float sum may differ from the exact one by rounding: a few ulps of the sum of absolute products.
void check_against_double(const PackedMatrix& w, const Batch& batch, const std::vector<float>& out,
                          TensorType type, std::string_view isa) {
  std::vector<float> row(size_t(w.cols));
  for (int64_t n = 0; n < w.rows; n++) {
    dequantize_row(w, n, row.data());
    for (int64_t r = 0; r < batch.a.rows; r++) {
      const std::vector<double> x = dequantised(batch.a, type, r, w.cols);
      double sum = 0, absolute = 0;
      for (size_t c = 0; c < x.size(); c++) {
        sum += row[c] * x[c];
        absolute += std::abs(row[c] * x[c]);
      }
      const double error = std::abs(out[size_t(r * w.rows + n)] - sum);
      require(error <= 4e-6 * absolute, describe(type, isa) + ": error " + std::to_string(error));
    }
  }
}

void variants_agree(TensorType type, std::string_view isa, std::mt19937& rng) {
  const int64_t cols = cols_of(type), rows = 5;
  const Matrix m(type, kRows, cols, rng);
  const std::vector<float> x = random_floats(rows * cols, rng);
  const MatmulKernels& k = matmul_kernels(isa);
  const Batch batch(k, x, rows, cols), reference(matmul_kernels("portable"), x, rows, cols);
  const std::vector<float> out = multiply(k, m.view, batch);
  check_against_double(m.view, batch, out, type, isa);
  const std::vector<float> expected = multiply(matmul_kernels("portable"), m.view, reference);
  require(same_bits(out.data(), expected.data(), out.size()), describe(type, isa) + " differs from portable");
}

void batches_agree(TensorType type, std::string_view isa, std::mt19937& rng) {
  const int64_t cols = cols_of(type), most = 20;
  const Matrix m(type, kRows, cols, rng);
  const std::vector<float> x = random_floats(most * cols, rng), bias = random_floats(kRows, rng);
  const MatmulKernels& k = matmul_kernels(isa);
  std::vector<std::vector<float>> alone;
  for (int64_t r = 0; r < most; r++)
    alone.push_back(multiply(k, m.view, Batch(k, {x.begin() + r * cols, x.begin() + (r + 1) * cols}, 1, cols),
                             bias.data()));
  for (int64_t n = 1; n <= most; n++) {
    const Batch batch(k, {x.begin(), x.begin() + n * cols}, n, cols);
    const std::vector<float> out = multiply(k, m.view, batch, bias.data());
    for (int64_t r = 0; r < n; r++)
      require(same_bits(out.data() + r * kRows, alone[size_t(r)].data(), kRows),
              describe(type, isa) + ": row " + std::to_string(r) + " of " + std::to_string(n));
  }
}

// Tiles one by one, rows in slices, a larger stride: the same bits, and nothing outside is written.
void splits_agree(TensorType type, std::string_view isa, std::mt19937& rng) {
  const int64_t cols = cols_of(type), rows = 11, stride = kRows + 5;
  const Matrix m(type, kRows, cols, rng);
  const MatmulKernels& k = matmul_kernels(isa);
  const Batch batch(k, random_floats(rows * cols, rng), rows, cols);
  const std::vector<float> expected = multiply(k, m.view, batch);
  std::vector<float> out(size_t(rows * stride), 7.0f);
  for (int64_t t = m.view.tiles() - 1; t >= 0; t--)
    for (int64_t r = 0; r < rows; r += 4)
      k.matmul(m.view, slice(batch.a, r, std::min<int64_t>(4, rows - r), cols), t, t + 1, nullptr,
               out.data() + r * stride, stride);
  for (int64_t r = 0; r < rows; r++) {
    require(same_bits(out.data() + r * stride, expected.data() + r * kRows, kRows),
            describe(type, isa) + ": split");
    for (int64_t i = kRows; i < stride; i++)
      require(out[size_t(r * stride + i)] == 7.0f, describe(type, isa) + ": wrote past the last row");
  }
}

// The largest integers everywhere: nothing saturates.
void extremes_are_exact(TensorType type, std::string_view isa) {
  const Layout l = layout_of(type);
  if (l.column_bytes != 0) return;
  const int64_t cols = cols_of(type);
  for (int fill : {0x00, 0x7f, 0x80, 0xff}) {
    std::vector<std::byte> gguf(size_t(16 * (cols / l.block_cols) * l.block_bytes), std::byte(fill));
    for (size_t at = 0; at < gguf.size(); at += size_t(l.block_bytes))
      for (int offset : half_offsets(type)) {
        const uint16_t one = 0x3c00;
        std::memcpy(gguf.data() + at + size_t(offset), &one, 2);
      }
    const Buffer packed(packed_bytes(type, 16, cols));
    pack(type, gguf.data(), 16, cols, packed.data());
    const PackedMatrix w{type, 16, cols, packed.data()};
    for (float sign : {1.0f, -1.0f}) {
      const MatmulKernels& k = matmul_kernels(isa);
      const Batch batch(k, std::vector<float>(size_t(3 * cols), 127.0f * sign), 3, cols);
      check_against_double(w, batch, multiply(k, w, batch), type, isa);
    }
  }
}

void float_columns_need_no_group(std::string_view isa, std::mt19937& rng) {
  const MatmulKernels& k = matmul_kernels(isa);
  for (TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16})
    for (int64_t cols : {1, 2, 3, 5, 33, 70}) {
      const Matrix m(type, 17, cols, rng);
      const Batch batch(k, random_floats(3 * cols, rng), 3, cols);
      check_against_double(m.view, batch, multiply(k, m.view, batch), type, isa);
    }
}

}  // namespace

void run() {
  for (const std::string& isa : isa_names()) {
    std::mt19937 rng(7);
    for (TensorType type : kTypes) {
      variants_agree(type, isa, rng);
      batches_agree(type, isa, rng);
      splits_agree(type, isa, rng);
      extremes_are_exact(type, isa);
    }
    float_columns_need_no_group(isa, rng);
    std::printf("%s: ok\n", isa.c_str());
  }
}

}  // namespace ringline::test

int main() { ringline::test::run(); }
