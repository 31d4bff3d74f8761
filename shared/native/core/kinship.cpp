#include "core/kinship.hpp"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <vector>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr size_t kQuery = 128;
using Pairs = std::bitset<kQuery>;

uint64_t pair_at(std::span<const int32_t> tokens, size_t i) {
  return static_cast<uint64_t>(static_cast<uint32_t>(tokens[i])) << 32 | static_cast<uint32_t>(tokens[i + 1]);
}

std::vector<uint64_t> pairs_of(std::span<const int32_t> query) {
  std::vector<uint64_t> pairs;
  for (size_t i = 0; i + 1 < query.size(); ++i) pairs.push_back(pair_at(query, i));
  std::ranges::sort(pairs);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  return pairs;
}

Pairs shared_pairs(const std::vector<uint64_t>& pairs, std::span<const int32_t> request) {
  Pairs has;
  for (size_t i = 0; i + 1 < request.size(); ++i) {
    const auto at = std::ranges::lower_bound(pairs, pair_at(request, i));
    if (at != pairs.end() && *at == pair_at(request, i)) has.set(static_cast<size_t>(at - pairs.begin()));
  }
  return has;
}

}  // namespace

void kinship(const ContextIndex& index, std::span<const int32_t> query, std::span<float> out) {
  const auto n = static_cast<size_t>(index.documents());
  require(out.size() >= n, out.size(), " places for ", n, " documents");
  const std::vector<uint64_t> pairs = pairs_of(query.last(std::min(query.size(), kQuery)));
  std::vector<Pairs> has(n);
  std::vector<int> holders(pairs.size());
  for (size_t d = 0; d < n; ++d) {
    const std::span<const int32_t> document = index.document(static_cast<int32_t>(d));
    const auto request = static_cast<size_t>(std::max(index.mark(static_cast<int32_t>(d)), 0));
    has[d] = shared_pairs(pairs, document.first(std::min(document.size(), request)));
    for (size_t p = 0; p < pairs.size(); ++p) holders[p] += has[d][p];
  }
  std::vector<float> worth(pairs.size());
  float total = 0;
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (holders[p] > 0) worth[p] = std::log(static_cast<float>(n + 1) / static_cast<float>(holders[p]));
    total += worth[p];
  }
  for (size_t d = 0; d < n; ++d) {
    float sum = 0;
    for (size_t p = 0; p < pairs.size(); ++p) sum += has[d][p] ? worth[p] : 0.0f;
    out[d] = total > 0 ? sum / total : 0.0f;
  }
}

}  // namespace ringline
