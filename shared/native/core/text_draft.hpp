// Drafts from text: what followed the earlier places that end like the sequence does, as a tree.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/context_index.hpp"

namespace ringline {

// A text to draft from. `kinship[i]`: how much its document i is worth here, 0 to 1; `id` names it in nodes.
struct TextSource {
  // Of a document that is newer than `kinship`: none.
  float kin(int32_t document) const {
    const auto i = static_cast<size_t>(document);
    return i < kinship.size() ? kinship[i] : 0.0f;
  }

  const ContextIndex* index;
  std::span<const float> kinship;
  int32_t id;
};

struct DraftLimits {
  int32_t nodes;
  int32_t depth;
  float least_score;  // natural log: a path less likely than this is not drafted
};

// Natural log of the probability that `token` follows its parent (an index of a node, -1: the query's end).
struct DraftNode {
  int32_t token;
  int32_t parent;
  int32_t source;
  float logq;
};

// The tree is grown from its likeliest end. Every match of the query votes for the token that followed it; a
// node's voters that agree with a child go on as the child's voters, one token longer. What a child is worth
// is the logistic function of its evidence: match length, shares of the votes, kinship, and how well the
// drafts did lately. The weights are learnt by stochastic gradient descent from what the target then says.
class TextDraft {
 public:
  static constexpr int kEvidence = 12;
  using Evidence = std::array<float, kEvidence>;
  struct Candidate {
    int32_t token;
    int32_t parent;  // node, -1: the query's end
    int32_t source;
    int32_t depth;
    float logq;
    float score;                  // sum of logq from the query's end
    size_t votes, n_votes;        // that it has of its parent's
    size_t children, n_children;  // candidates; none before it is a node
    Evidence evidence;
  };

  explicit TextDraft(int32_t nodes);

  // Replaces the tree. `mood`: share of right drafts lately, 0 to 1. `weights`: kEvidence of them.
  void grow(std::span<const TextSource> sources, std::span<const int32_t> query, float mood,
            std::span<const float> weights, const DraftLimits& limits);
  std::span<const DraftNode> nodes() const { return nodes_; }
  // What could follow the query's end, whether it became a node or not.
  std::span<const Candidate> candidates() const { return std::span(candidates_).first(roots_); }
  // Move the weights towards what these tokens, which followed the query, say about the tree. Returns how
  // many of the first of them the tree has judged, and writes whether the likeliest candidate was right.
  size_t learn(std::span<const int32_t> tokens, float rate, std::span<float> weights,
               std::span<bool> right) const;

 private:
  struct Vote {
    int32_t next() const { return index->token(place); }

    const ContextIndex* index;
    int32_t place;
    int32_t length;
    int32_t source;
    float kinship;
  };
  // Of two candidates the one with the lower score, among equals the later one.
  struct Worse {
    bool operator()(size_t a, size_t b) const {
      const float x = candidates[a].score;
      const float y = candidates[b].score;
      return x != y ? x < y : a > b;
    }
    const std::vector<Candidate>& candidates;
  };
  struct Parent {
    int32_t node, depth;
    float score;
  };

  void vote(std::span<const TextSource> sources, std::span<const int32_t> query);
  size_t take_best();
  void follow(Candidate& candidate);
  void expand(const Parent& parent, std::span<Vote> votes);
  std::span<Vote> speaking(std::span<Vote> votes);
  size_t gather(int32_t token, std::span<Vote> votes);
  void rate(size_t first, const Parent& parent, std::span<const Vote> votes);
  Evidence weigh(std::span<const Vote> mine, std::span<const Vote> all) const;

  int32_t max_nodes_;
  float mood_ = 0;
  std::span<const float> weights_;
  float least_score_ = 0;
  std::vector<Vote> votes_, moved_;
  std::vector<Candidate> candidates_;
  std::vector<size_t> open_;  // heap of candidates that are no nodes yet
  std::vector<DraftNode> nodes_;
  size_t roots_ = 0;
};

}  // namespace ringline
