#include "core/branch_prior.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr size_t kMatches = 64;  // of a source
constexpr std::array<int32_t, 8> kLengths = {1, 2, 3, 4, 6, 8, 12, 16};
constexpr float kUnknown = 1.0f / 4096.0f;
constexpr float kStranger = 0.25f;  // what a match in a document that is not kin counts; kin adds 1

struct Seen {
  int32_t token;
  int32_t length;
  float count;
};

std::vector<Seen> seen_behind(std::span<const TextSource> sources, std::span<const int32_t> query) {
  std::vector<Seen> seen;
  std::array<ContextMatch, kMatches> found;
  for (const TextSource& source : sources) {
    const size_t n = source.index->find(query, 1, found);
    for (const ContextMatch& match : std::span(found).first(n)) {
      seen.push_back(
          {source.index->token(match.place), match.length, kStranger + source.kin(match.document)});
    }
  }
  std::ranges::sort(seen, {}, &Seen::token);
  return seen;
}

struct Counts {
  float all = 0;
  float of_token = 0;
  float distinct = 0;
};

// Of the matches that are at least `length` long; `seen` is in the order of its tokens.
Counts count(std::span<const Seen> seen, int32_t length, int32_t token) {
  Counts counts;
  int32_t last = -2;
  for (const Seen& one : seen) {
    if (one.length < length) continue;
    counts.all += one.count;
    counts.of_token += one.token == token ? one.count : 0.0f;
    counts.distinct += one.token != last ? 1.0f : 0.0f;
    last = one.token;
  }
  return counts;
}

}  // namespace

void log_prior(std::span<const TextSource> sources, std::span<const int32_t> query,
               std::span<const int32_t> tokens, std::span<float> out) {
  require(out.size() >= tokens.size(), out.size(), " places for ", tokens.size(), " tokens");
  const std::vector<Seen> seen = seen_behind(sources, query);
  for (size_t i = 0; i < tokens.size(); ++i) {
    float p = kUnknown;
    for (int32_t length : kLengths) {
      const Counts counts = count(seen, length, tokens[i]);
      if (counts.all == 0) break;
      p = (counts.of_token + counts.distinct * p) / (counts.all + counts.distinct);
    }
    out[i] = std::log(p);
  }
}

}  // namespace ringline
