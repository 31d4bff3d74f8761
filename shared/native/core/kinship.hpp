// How much alike two requests are, judged by the words that not all of them have.
#pragma once

#include <cstdint>
#include <span>

#include "core/context_index.hpp"

namespace ringline {

// For every document of the index, whose mark says how many of its first tokens are its request: the share of
// the query's pairs of neighbouring tokens that it has too, 0 to 1. Pairs count by how few documents have
// them, log((documents + 1) / documents with it); those that no document has do not count. Of a longer query
// the last 128 tokens are looked at. `out` has room for every document.
void kinship(const ContextIndex& index, std::span<const int32_t> query, std::span<float> out);

}  // namespace ringline
