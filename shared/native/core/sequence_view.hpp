// One process's view of a sequence: where its positions lie in the pool, and which of them a token sees.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv_pool.hpp"

namespace ringline {

inline constexpr int64_t kMaxVisible = 1 << 17;  // sink + window, bounds every score buffer
inline constexpr int64_t kMaxPosition = int64_t{1} << 53;

// Sink S, ring N, window W; slots are addressed through the block table (slot / 16, slot % 16):
//
//   slot(p) = p                      p < S            | sink ... pad | ring: N slots, a multiple of 16 |
//   slot(p) = R0 + (p - S) mod N     p >= S           0         S    R0                           R0 + N
//
// A token at position p sees [0, min(S, p + 1)) and [max(S, p - W + 1), p].
class SequenceView {
 public:
  // Throws std::invalid_argument for a plane the pool lacks or a geometry that cannot work.
  SequenceView(std::shared_ptr<KvPool> pool, int64_t plane, int64_t sink, int64_t ring, int64_t window);

  const Plane& plane() const { return pool_->plane(plane_); }
  int64_t sink() const { return sink_; }
  int64_t window() const { return window_; }
  int64_t length() const { return length_; }
  void set_length(int64_t length);
  // blocks[i] becomes table entry first + i; -1 removes an entry.
  void set_blocks(int64_t first, std::span<const int32_t> blocks);

  int64_t slot(int64_t position) const;
  // First position of the window that a token at `position` sees.
  int64_t window_start(int64_t position) const;
  // The pool's plane that holds this slot, or null when the table has no block there.
  uint16_t* tile(int64_t slot) const;
  // Calls visit(tile, lane, count) for the runs of lanes of one block each that hold positions [first, last),
  // all of the sink or all behind it. The table has a block for each of them.
  template <class Visit>
  void each_run(int64_t first, int64_t last, Visit visit) const {
    int64_t at = slot(first);
    for (int64_t p = first; p < last;) {
      const int64_t lane = at % kBlockTokens;
      const int64_t count = std::min(kBlockTokens - lane, last - p);
      visit(pool_->block_plane(table_[static_cast<size_t>(at / kBlockTokens)], plane_), lane, count);
      p += count;
      at += count;
      if (at == ring_start_ + ring_) at = ring_start_;
    }
  }
  // Largest n such that [length, n) can be committed now: every position has a block and none of them
  // overwrites a position that the token at `length` sees.
  int64_t covered() const;
  // Throws std::invalid_argument when a committed position that the next token sees has no block.
  void check_visible() const;

  // While a pass reads the view nothing may change it: changing it throws std::invalid_argument.
  void begin_use() { ++users_; }
  void end_use() { --users_; }
  void check_idle() const;

 private:
  bool range_has_blocks(int64_t first, int64_t last) const;
  int64_t first_hole(int64_t first, int64_t last) const;

  std::shared_ptr<KvPool> pool_;
  size_t plane_;
  int64_t sink_;
  int64_t ring_;
  int64_t window_;
  int64_t ring_start_;
  int64_t length_ = 0;
  std::vector<int32_t> table_;
  std::atomic<int32_t> users_{0};
};

}  // namespace ringline
