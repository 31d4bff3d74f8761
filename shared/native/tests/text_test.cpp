// The index of contexts against a search that compares every place, and drafts under the sanitizers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "core/branch_prior.hpp"
#include "core/context_index.hpp"
#include "core/kinship.hpp"
#include "core/text_draft.hpp"
#include "tests/engine_fixture.hpp"

namespace ringline::test {

using Tokens = std::vector<int32_t>;

Tokens random_tokens(std::mt19937& random, int longest, int words) {
  Tokens tokens(random() % static_cast<unsigned>(longest + 1));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % static_cast<unsigned>(words));
  return tokens;
}

// Lengths of all matches, the longest first.
Tokens naive_lengths(const ContextIndex& index, const Tokens& query) {
  Tokens lengths;
  for (int32_t d = 0; d < index.documents(); ++d) {
    const std::span<const int32_t> text = index.document(d);
    for (size_t at = 1; at < text.size(); ++at) {
      size_t n = 0;
      const size_t most = std::min({at, query.size(), static_cast<size_t>(ContextIndex::kDepth)});
      while (n < most && text[at - 1 - n] == query[query.size() - 1 - n]) ++n;
      if (n > 0) lengths.push_back(static_cast<int32_t>(n));
    }
  }
  std::ranges::sort(lengths, std::greater());
  return lengths;
}

void check_find(const ContextIndex& index, const Tokens& query) {
  std::vector<ContextMatch> found(1000);
  found.resize(index.find(query, 1, found));
  Tokens lengths;
  for (const ContextMatch& match : found) {
    check(match.place < index.end() && index.token(match.place) >= 0, "a match has no continuation");
    lengths.push_back(match.length);
  }
  check(lengths == naive_lengths(index, query), "other matches than a search finds");
}

// A full index forgets; what is left is still in order and found.
void check_index(std::mt19937& random) {
  ContextIndex index(static_cast<int32_t>(2 + random() % 200), 1 + static_cast<int32_t>(random() % 2));
  for (int step = 0; step < 40; ++step) {
    if (step == 0 || random() % 3 == 0) index.begin(step);
    index.extend(random_tokens(random, 40, 3));
    check(index.sorted(), "places are out of order");
    check_find(index, random_tokens(random, 50, 3));
  }
}

void check_tree(std::span<const DraftNode> nodes) {
  std::vector<float> together(nodes.size() + 1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    check(nodes[i].parent < static_cast<int32_t>(i) && nodes[i].parent >= -1, "a child before its parent");
    check(nodes[i].logq < 0, "a certain draft");
    together[static_cast<size_t>(nodes[i].parent + 1)] += std::exp(nodes[i].logq);
  }
  for (float sum : together) check(sum < 1, "children are certain together");
}

// Texts come and go while a draft follows its sequence.
void check_draft(std::mt19937& random) {
  ContextIndex own(300, 1), history(400, 8);
  own.begin();
  TextDraft draft(48);
  std::vector<float> weights(TextDraft::kEvidence, 0.3f);
  std::array<bool, 256> right;
  Tokens query;
  for (int step = 0; step < 60; ++step) {
    const Tokens said = random_tokens(random, 4, 4);
    check(draft.learn(said, 0.01f, weights, right) <= said.size(), "more judged than said");
    own.extend(said);
    query.insert(query.end(), said.begin(), said.end());
    if (step % 4 == 0) {
      history.begin(static_cast<int32_t>(random() % 60));
      history.extend(random_tokens(random, 60, 4));
    }
    std::vector<float> kin(static_cast<size_t>(history.documents()));
    kinship(history, query, kin);
    const std::array<float, 1> none{};
    const std::array<TextSource, 2> sources{TextSource{&own, none, 0}, TextSource{&history, kin, 3}};
    draft.grow(sources, query, 0.5f, weights, {48, 24, -4.0f});
    check_tree(draft.nodes());
    std::array<float, 4> prior;
    log_prior(sources, query, Tokens{0, 1, 2, 3}, prior);
    for (float value : prior) check(value < 0 && value > -100, "no probability");
  }
}

}  // namespace ringline::test

int main() {
  std::mt19937 random(7);
  for (int run = 0; run < 60; ++run) ringline::test::check_index(random);
  for (int run = 0; run < 30; ++run) ringline::test::check_draft(random);
  std::puts("text: matches, bounds and drafts are right");
  return 0;
}
