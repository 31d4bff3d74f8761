#include "core/sequence_view.hpp"

#include <algorithm>
#include <utility>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr int64_t kMaxSlots = int64_t{1} << 24;

}  // namespace

SequenceView::SequenceView(std::shared_ptr<KvPool> pool, int64_t plane, int64_t sink, int64_t ring,
                           int64_t window)
    : pool_(std::move(pool)), plane_(static_cast<size_t>(plane)), sink_(sink), ring_(ring), window_(window) {
  require(plane >= 0 && plane_ < pool_->n_planes(), "plane ", plane, " does not exist: the pool has ",
          pool_->n_planes());
  require(sink >= 0 && window >= 1, "sink must be >= 0 and window >= 1, not ", sink, " and ", window);
  require(window <= kMaxVisible && sink <= kMaxVisible - window, "sink + window must be <= ", kMaxVisible);
  require(ring >= window && ring % kBlockTokens == 0 && ring <= kMaxSlots,
          "ring must be a multiple of 16 that holds the window of ", window, ", not ", ring);
  ring_start_ = (sink + kBlockTokens - 1) / kBlockTokens * kBlockTokens;
  table_.assign(static_cast<size_t>((ring_start_ + ring) / kBlockTokens), -1);
}

void SequenceView::check_idle() const {
  require(users_.load() == 0, "the sequence is being read by a pass: change it when forward() has returned");
}

void SequenceView::set_length(int64_t length) {
  check_idle();
  require(length >= 0 && length < kMaxPosition, "length must be in [0, 2^53), not ", length);
  length_ = length;
}

void SequenceView::set_blocks(int64_t first, std::span<const int32_t> blocks) {
  check_idle();
  const auto entries = static_cast<int64_t>(table_.size());
  const auto count = static_cast<int64_t>(blocks.size());
  require(first >= 0 && first <= entries && count <= entries - first, "table entries [", first, ", +", count,
          ") do not exist: this sequence has ", entries);
  for (const int32_t block : blocks) {
    require(block == -1 || pool_->holds(block), "block ", block, " does not exist: the pool has blocks 0 to ",
            pool_->n_blocks() - 1);
  }
  std::copy(blocks.begin(), blocks.end(), table_.begin() + first);
}

int64_t SequenceView::slot(int64_t position) const {
  return position < sink_ ? position : ring_start_ + (position - sink_) % ring_;
}

int64_t SequenceView::window_start(int64_t position) const { return std::max(sink_, position - window_ + 1); }

std::byte* SequenceView::tile(int64_t slot) const {
  const int32_t block = table_[static_cast<size_t>(slot / kBlockTokens)];
  return block < 0 ? nullptr : pool_->block_plane(block, plane_);
}

int64_t SequenceView::first_hole(int64_t first, int64_t last) const {
  for (int64_t p = first; p < last;) {
    const int64_t at = slot(p);
    if (table_[static_cast<size_t>(at / kBlockTokens)] < 0) return p;
    const int64_t rest_of_block = kBlockTokens - at % kBlockTokens;
    p += p < sink_ ? std::min(rest_of_block, sink_ - p) : rest_of_block;
  }
  return last;
}

bool SequenceView::range_has_blocks(int64_t first, int64_t last) const {
  return first_hole(first, last) >= last;
}

int64_t SequenceView::covered() const {
  return first_hole(length_, std::max(length_, ring_ + window_start(length_)));
}

void SequenceView::check_visible() const {
  const bool held = range_has_blocks(0, std::min(sink_, length_)) &&
                    range_has_blocks(std::min(window_start(length_), length_), length_);
  require(held, "the block table has holes in what the token at position ", length_, " sees");
}

}  // namespace ringline
