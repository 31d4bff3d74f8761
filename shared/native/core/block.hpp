// One row's share of one GGUF block in a neutral form, between the GGUF's layout and the packed one.
#pragma once

#include "core/layout.hpp"

namespace ringline {

struct Block {
  uint16_t d = 0;            // f16 bits
  uint16_t m = 0;            // f16 bits: m (_1 types) or dmin (Q4_K, Q5_K)
  uint8_t scales[16] = {};   // Q4_K, Q5_K: 8 sub-scales; Q6_K: 16 signed ones
  uint8_t minima[8] = {};    // Q4_K, Q5_K
  uint8_t values[256] = {};  // unsigned, in column order
};

// `source` is one block of the GGUF (layout_of(type).block_bytes).
void read_gguf_block(TensorType type, const uint8_t* source, Block& block);
// `tile` is a packed tile, `group` the block's first group of 32 columns, `lane` the row in the tile.
void write_packed_block(TensorType type, const Block& block, int64_t group, int lane, uint8_t* tile);
void read_packed_block(TensorType type, const uint8_t* tile, int64_t group, int lane, Block& block);
// The block's values as the GGUF defines them: layout_of(type).block_cols floats.
void dequantize_block(TensorType type, const Block& block, float* out);

}  // namespace ringline
