// Packed layouts: sizes, round trips, refused shapes.
#include <cmath>
#include <functional>
#include <stdexcept>

#include "core/block.hpp"
#include "tests/matmul_fixture.hpp"

namespace ringline::test {
namespace {

bool throws(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument&) {
    return true;
  }
  return false;
}

void packed_rows_equal_the_gguf(TensorType type) {
  std::mt19937 rng(11);
  const Layout l = layout_of(type);
  if (l.column_bytes != 0) return;
  const int64_t rows = 37, cols = 3 * 256 + (l.block_cols == 32 ? 32 : 0);
  const std::vector<std::byte> gguf = random_gguf(type, rows, cols, rng);
  const Buffer packed(packed_bytes(type, rows, cols));
  pack(type, gguf.data(), rows, cols, packed.data());
  std::vector<float> row(static_cast<size_t>(cols)), expected(static_cast<size_t>(l.block_cols));
  const auto* source = reinterpret_cast<const uint8_t*>(gguf.data());
  for (int64_t r = 0; r < rows; r++) {
    dequantize_row({type, rows, cols, packed.data()}, r, row.data());
    for (int64_t c = 0; c < cols; c += l.block_cols, source += l.block_bytes) {
      Block block;
      read_gguf_block(type, source, block);
      dequantize_block(type, block, expected.data());
      require(same_bits(row.data() + c, expected.data(), expected.size()),
              describe(type, "") + ": packed row");
    }
  }
}

void size_is_close_to_the_gguf(TensorType type) {
  const Layout l = layout_of(type);
  const double gguf = 1536.0 * 1536 / l.block_cols * l.block_bytes;
  const double ratio = double(packed_bytes(type, 1536, 1536)) / gguf;
  require(ratio >= 1.0 && ratio <= 1.05, describe(type, "") + ": size ratio " + std::to_string(ratio));
}

void bad_shapes_are_refused() {
  require(throws([] { packed_bytes(TensorType::kQ4_K, 16, 128); }), "half a block");
  require(throws([] { packed_bytes(TensorType::kQ4_0, 0, 32); }), "no rows");
  require(throws([] { packed_bytes(TensorType::kQ4_0, 16, -32); }), "negative columns");
  require(throws([] { packed_bytes(TensorType(99), 16, 32); }), "unknown type");
  require(throws([] { matmul_kernels("nothing"); }), "unknown instruction set");
  require(!supported(TensorType(10)) && supported(TensorType::kQ6_K), "supported types");
}

}  // namespace

void run() {
  for (TensorType type : kTypes) {
    packed_rows_equal_the_gguf(type);
    size_is_close_to_the_gguf(type);
  }
  bad_shapes_are_refused();
  std::printf("pack: ok\n");
}

}  // namespace ringline::test

int main() { ringline::test::run(); }
