#include "core/context_segments.hpp"

#include <algorithm>
#include <bit>

namespace ringline {

namespace {

class Builder {
 public:
  explicit Builder(KvSegment* to) : begin_(to), end_(to) {}

  void add(const uint16_t* plane, uint32_t mask, bool sink) {
    *end_++ = {plane, mask, sink};
    n_keys_ += std::popcount(mask);
  }

  // Committed positions [first, last) of one kind, block by block.
  void add_committed(const SequenceView& view, int64_t first, int64_t last, bool sink) {
    view.each_run(first, last, [&](const uint16_t* tile, int64_t lane, int64_t count) {
      add(tile, ((1u << count) - 1u) << lane, sink);
    });
  }

  void add_scratch(const ScratchTiles& tiles, const uint16_t* lanes, int64_t n_tiles, bool sink) {
    for (int64_t t = 0; t < n_tiles; ++t) {
      if (lanes[t] != 0) add(tiles.tile(t * kBlockTokens), lanes[t], sink);
    }
  }

  Context context() const { return {begin_, end_ - begin_, n_keys_}; }

 private:
  KvSegment* begin_;
  KvSegment* end_;
  int64_t n_keys_ = 0;
};

int64_t tiles_of(int64_t slots) { return (slots + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

// Committed: sink and window, each with a ragged block at both ends, and the ring's seam. Scratch: both
// masks.
ContextSegments::ContextSegments(int64_t capacity, int threads, int64_t together)
    : tiles_(tiles_of(capacity)),
      most_(tiles_of(kMaxVisible) + 6 + 2 * tiles_),
      sink_lanes_(static_cast<size_t>(capacity * tiles_)),
      window_lanes_(static_cast<size_t>(capacity * tiles_)) {
  for (int i = 0; i < threads; ++i) segments_.emplace_back(static_cast<size_t>(together * most_));
}

void ContextSegments::prepare(const NodeTree& tree, std::span<const PassNode> nodes) {
  for (size_t i = 0; i < nodes.size(); ++i) mark_ancestors(tree, nodes[i], static_cast<int64_t>(i));
}

void ContextSegments::mark_ancestors(const NodeTree& tree, const PassNode& node, int64_t index) {
  uint16_t* sink = sink_lanes_.data() + index * tiles_;
  uint16_t* window = window_lanes_.data() + index * tiles_;
  std::fill(sink, sink + tiles_, uint16_t{0});
  std::fill(window, window + tiles_, uint16_t{0});
  const int64_t start = node.view->window_start(node.position);
  for (int64_t slot = node.slot; slot >= 0; slot = tree.node(slot).parent) {
    const int64_t position = tree.node(slot).position;
    const auto lane = static_cast<uint16_t>(1u << (slot % kBlockTokens));
    if (position < node.view->sink()) sink[slot / kBlockTokens] |= lane;
    if (position >= start) window[slot / kBlockTokens] |= lane;
  }
}

Context ContextSegments::context(const PassNode& node, int64_t index, const ScratchTiles& tiles, int worker,
                                 int64_t place) {
  const SequenceView& view = *node.view;
  const int64_t length = view.length();
  Builder builder(segments_[static_cast<size_t>(worker)].data() + place * most_);
  builder.add_committed(view, 0, std::min(view.sink(), length), true);
  builder.add_scratch(tiles, sink_lanes_.data() + index * tiles_, tiles_, true);
  builder.add_committed(view, view.window_start(node.position), length, false);
  builder.add_scratch(tiles, window_lanes_.data() + index * tiles_, tiles_, false);
  return builder.context();
}

}  // namespace ringline
