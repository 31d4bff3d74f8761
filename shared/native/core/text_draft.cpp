#include "core/text_draft.hpp"

#include <algorithm>
#include <cmath>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr size_t kMatches = 64;         // of a source
constexpr size_t kSources = 4;          // at most
constexpr int kChildren = 6;            // of a node at most; what fewer votes say is left out
constexpr float kLeast = 1e-4f;         // no probability is smaller, or larger than one minus this
constexpr float kMostTogether = 0.99f;  // of the children of a node

float capped(int32_t length) { return static_cast<float>(std::min(length, ContextIndex::kDepth)); }

float logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

}  // namespace

TextDraft::TextDraft(int32_t nodes) : max_nodes_(nodes) {
  require(nodes >= 1 && nodes <= 256, "a draft of ", nodes, " nodes; 1 to 256 are possible");
  const auto candidates = static_cast<size_t>((nodes + 1) * kChildren);
  votes_.reserve(kSources * kMatches);
  moved_.reserve(kSources * kMatches);
  candidates_.reserve(candidates);
  open_.reserve(candidates);
  nodes_.reserve(static_cast<size_t>(nodes));
}

void TextDraft::grow(std::span<const TextSource> sources, std::span<const int32_t> query, float mood,
                     std::span<const float> weights, const DraftLimits& limits) {
  require(weights.size() == kEvidence, weights.size(), " weights for ", kEvidence, " kinds of evidence");
  require(sources.size() <= kSources, sources.size(), " texts to draft from; ", kSources, " are possible");
  mood_ = std::clamp(mood, 0.0f, 1.0f);
  weights_ = weights;
  least_score_ = limits.least_score;
  candidates_.clear();
  open_.clear();
  nodes_.clear();
  vote(sources, query);
  expand({-1, 0, 0.0f}, votes_);
  roots_ = candidates_.size();
  const auto most = static_cast<size_t>(std::clamp(limits.nodes, 0, max_nodes_));
  while (!open_.empty() && nodes_.size() < most) {
    Candidate& best = candidates_[take_best()];
    nodes_.push_back({best.token, best.parent, best.source, best.logq});
    if (best.depth < limits.depth) follow(best);
  }
}

// What may come behind the newest node.
void TextDraft::follow(Candidate& candidate) {
  const auto node = static_cast<int32_t>(nodes_.size()) - 1;
  const std::span<Vote> votes = std::span(votes_).subspan(candidate.votes, candidate.n_votes);
  for (Vote& vote : votes) {
    ++vote.place;
    ++vote.length;
  }
  candidate.children = candidates_.size();
  expand({node, candidate.depth, candidate.score}, votes);
  candidate.n_children = candidates_.size() - candidate.children;
}

// The longest matches first, whatever text they are from.
void TextDraft::vote(std::span<const TextSource> sources, std::span<const int32_t> query) {
  votes_.clear();
  std::array<ContextMatch, kMatches> found;
  for (const TextSource& source : sources) {
    const size_t n = source.index->find(query, 1, found);
    for (const ContextMatch& match : std::span(found).first(n)) {
      votes_.push_back({source.index, match.place, match.length, source.id, source.kin(match.document)});
    }
  }
  std::ranges::sort(votes_, [](const Vote& a, const Vote& b) {
    if (a.length != b.length) return a.length > b.length;
    if (a.kinship != b.kinship) return a.kinship > b.kinship;
    return a.source != b.source ? a.source < b.source : a.place > b.place;
  });
}

size_t TextDraft::take_best() {
  std::ranges::pop_heap(open_, Worse{candidates_});
  const size_t best = open_.back();
  open_.pop_back();
  return best;
}

void TextDraft::expand(const Parent& parent, std::span<Vote> votes) {
  const std::span<Vote> heard = speaking(votes);
  const size_t first = candidates_.size();
  size_t at = 0;
  for (int tokens = 0; at < heard.size() && tokens < kChildren; ++tokens) {
    const int32_t token = heard[at].next();
    const size_t n = gather(token, heard.subspan(at));
    if (token >= 0) {  // else a document ends here
      const auto begin = static_cast<size_t>(heard.data() + at - votes_.data());
      candidates_.push_back(
          {token, parent.node, heard[at].source, parent.depth + 1, 0.0f, 0.0f, begin, n, 0, 0, {}});
    }
    at += n;
  }
  rate(first, parent, heard);
  for (size_t i = first; i < candidates_.size(); ++i) {
    if (candidates_[i].score < least_score_) continue;
    open_.push_back(i);
    std::ranges::push_heap(open_, Worse{candidates_});
  }
}

// All but those that stand at the end of a text that still grows: they say nothing.
std::span<TextDraft::Vote> TextDraft::speaking(std::span<Vote> votes) {
  const auto silent = std::ranges::remove_if(votes, [](const Vote& v) { return v.place >= v.index->end(); });
  return votes.first(votes.size() - silent.size());
}

// Bring the votes for one token to the front, each part in its order; returns how many there are.
size_t TextDraft::gather(int32_t token, std::span<Vote> votes) {
  moved_.clear();
  size_t n = 0;
  for (const Vote& vote : votes) {
    if (vote.next() == token) {
      votes[n++] = vote;
    } else {
      moved_.push_back(vote);
    }
  }
  std::ranges::copy(moved_, votes.begin() + static_cast<std::ptrdiff_t>(n));
  return n;
}

void TextDraft::rate(size_t first, const Parent& parent, std::span<const Vote> votes) {
  const std::span<Candidate> children = std::span(candidates_).subspan(first);
  float together = 0;
  for (Candidate& child : children) {
    child.evidence = weigh(std::span(votes_).subspan(child.votes, child.n_votes), votes);
    float sum = 0;
    for (int i = 0; i < kEvidence; ++i) sum += weights_[i] * child.evidence[i];
    child.logq = std::clamp(logistic(sum), kLeast, 1.0f - kLeast);
    together += child.logq;
  }
  const float scale = together > kMostTogether ? kMostTogether / together : 1.0f;
  for (Candidate& child : children) {
    child.logq = std::log(child.logq * scale);
    child.score = parent.score + child.logq;
  }
}

namespace {

struct Tally {
  float by_length = 0;  // a vote counts half when its match is two tokens shorter
  float by_kinship = 0;
};

template <class Vote>
float closest(std::span<const Vote> votes) {
  return std::ranges::max(votes, {}, &Vote::kinship).kinship;
}

template <class Vote>
Tally count(std::span<const Vote> votes, int32_t longest, float kinship) {
  Tally tally;
  for (const Vote& vote : votes) {
    const float by_length = std::exp2(0.5f * (capped(vote.length) - capped(longest)));
    tally.by_length += by_length;
    tally.by_kinship += std::exp2(16.0f * (vote.kinship - kinship)) * (0.02f + by_length);
  }
  return tally;
}

}  // namespace

// `mine` are those of `all` that are for one token; both begin with their longest match.
TextDraft::Evidence TextDraft::weigh(std::span<const Vote> mine, std::span<const Vote> all) const {
  const int32_t longest = all.front().length;
  const float length = std::log2(capped(mine.front().length)) / 5.0f;
  const float kinship = closest(mine);
  const float kinship_of_all = closest(all);
  const Tally tally = count(mine, longest, kinship_of_all);
  const Tally tally_of_all = count(all, longest, kinship_of_all);
  const auto n = static_cast<float>(mine.size());
  const bool own = std::ranges::any_of(mine, [](const Vote& vote) { return vote.source == 0; });
  return {1.0f,
          length,
          std::log(tally.by_length / tally_of_all.by_length),
          std::log(n / static_cast<float>(all.size())),
          std::log2(1.0f + n) / 5.0f,
          kinship,
          kinship_of_all - kinship,
          static_cast<float>(std::min(longest - mine.front().length, 16)) / 8.0f,
          mood_,
          own ? 1.0f : 0.0f,
          std::log(tally.by_kinship / tally_of_all.by_kinship),
          mood_ * length};
}

size_t TextDraft::learn(std::span<const int32_t> tokens, float rate, std::span<float> weights,
                        std::span<bool> right) const {
  std::span<const Candidate> children = candidates();
  size_t judged = 0;
  while (judged < std::min(tokens.size(), right.size()) && !children.empty()) {
    const int32_t token = tokens[judged];
    for (const Candidate& child : children) {
      const float error = (child.token == token ? 1.0f : 0.0f) - std::exp(child.logq);
      for (int i = 0; i < kEvidence; ++i) weights[i] += rate * error * child.evidence[i];
    }
    right[judged++] = std::ranges::max(children, {}, &Candidate::logq).token == token;
    const auto followed = std::ranges::find(children, token, &Candidate::token);
    if (followed == children.end()) break;
    children = std::span(candidates_).subspan(followed->children, followed->n_children);
  }
  return judged;
}

}  // namespace ringline
