// Quantised activations: the definition, the same bits in every variant, and odd values.
#include <cmath>
#include <limits>

#include "tests/matmul_fixture.hpp"

namespace ringline::test {
namespace {

bool equal(const Activations& a, const Activations& b) {
  const size_t groups = size_t(a.rows * a.cols / kGroup);
  return std::memcmp(a.q, b.q, groups * kGroup) == 0 && same_bits(a.scale, b.scale, groups) &&
         same_bits(a.scaled_sum, b.scaled_sum, groups) && std::memcmp(a.sum, b.sum, groups * 8) == 0;
}

void check_group(const Batch& batch, int64_t group) {
  const float* x = batch.x.data() + group * kGroup;
  const Activations& a = batch.a;
  float largest = 0;
  for (int i = 0; i < kGroup; i++) largest = std::max(largest, std::abs(x[i]));
  require(a.scale[group] == largest / 127.0f, "scale is amax / 127");
  int sums[2] = {0, 0};
  for (int i = 0; i < kGroup; i++) {
    const float rounded = std::nearbyint(x[i] * (127.0f / largest));
    require(float(a.q[group * kGroup + i]) == rounded, "q is x / scale, rounded to even");
    sums[i / 16] += a.q[group * kGroup + i];
  }
  require(a.sum[2 * group] == sums[0] && a.sum[2 * group + 1] == sums[1], "sums of the half groups");
  require(a.scaled_sum[group] == a.scale[group] * float(sums[0] + sums[1]), "scaled sum");
}

void definition_holds(std::string_view isa) {
  std::mt19937 rng(3);
  const Batch batch(matmul_kernels(isa), random_floats(7 * 320, rng), 7, 320);
  for (int64_t g = 0; g < 70; g++) check_group(batch, g);
  const Batch portable(matmul_kernels("portable"), batch.x, 7, 320);
  require(equal(batch.a, portable.a), std::string(isa) + ": other bits than portable");
}

void odd_values_are_defined(std::string_view isa) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  for (float odd : {0.0f, -0.0f, 1e-40f, -1e-33f, 3e38f, inf, -inf, nan, -nan}) {
    std::vector<float> x(64, odd);
    for (size_t i = 33; i < 64; i++) x[i] = 1.0f;
    const Batch batch(matmul_kernels(isa), x, 1, 64);
    const bool finite = std::isfinite(odd);
    require(std::isfinite(batch.a.scale[0]) == finite, "an infinity or NaN shows in its group's scale");
    const int first = batch.a.q[0];
    require(first == (std::abs(odd) < 1e-30f || !finite ? 0 : 127), "zeros, and tiny values, become zero");
  }
}

void missing_columns_are_zero(std::string_view isa) {
  const Batch batch(matmul_kernels(isa), std::vector<float>(2 * 40, 1.0f), 2, 40);
  for (int64_t c = 0; c < 64; c++)
    for (int64_t r = 0; r < 2; r++)
      require(batch.a.q[r * 64 + c] == (c < 40 ? 127 : 0), "columns are padded with zeros");
}

}  // namespace

void run() {
  for (const std::string& isa : isa_names()) {
    definition_holds(isa);
    odd_values_are_defined(isa);
    missing_columns_are_zero(isa);
    std::printf("%s: ok\n", isa.c_str());
  }
}

}  // namespace ringline::test

int main() { ringline::test::run(); }
