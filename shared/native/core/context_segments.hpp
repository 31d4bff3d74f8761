// What a node of a pass attends to, as runs of lanes of blocks in logical order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.hpp"
#include "core/kv_pool.hpp"
#include "core/node_tree.hpp"
#include "core/sequence_view.hpp"
#include "kernels/engine_kernels.hpp"

namespace ringline {

// The scratch's K/V: blocks as in the pool, of one plane; slot s is lane s % 16 of tile s / 16.
struct ScratchTiles {
  std::byte* data = nullptr;
  Plane plane;

  std::byte* tile(int64_t slot) const { return data + slot / kBlockTokens * plane.bytes(); }
};

struct PassNode {
  const SequenceView* view = nullptr;
  int64_t slot = 0;
  int64_t position = 0;
  int32_t token = 0;

  // Where the query for the sink is rotated: StreamingLLM's position inside the cache.
  int64_t sink_position() const { return std::min(position, view->sink() + view->window() - 1); }
};

struct Context {
  const KvSegment* segments;
  int64_t n_segments;
  int64_t n_keys;
};

// Builds contexts: committed sink, sink in the scratch, committed window, ancestors in the scratch, the node
// itself. The parts never interleave, because the scratch continues where the committed positions end.
class ContextSegments {
 public:
  // Every thread holds up to `together` contexts at a time.
  ContextSegments(int64_t capacity, int threads, int64_t together);

  // Notes which scratch slots the pass's nodes see; `tree` already holds them.
  void prepare(const NodeTree& tree, std::span<const PassNode> nodes);
  // The context of nodes[index], in the `place`th part of `worker`'s own memory until the next call for it.
  Context context(const PassNode& node, int64_t index, const ScratchTiles& tiles, int worker, int64_t place);

 private:
  void mark_ancestors(const NodeTree& tree, const PassNode& node, int64_t index);

  int64_t tiles_;                            // of the scratch
  int64_t most_;                             // segments of a context
  Buffer<uint16_t> sink_lanes_;              // [capacity, tiles]
  Buffer<uint16_t> window_lanes_;            // [capacity, tiles]
  std::vector<Buffer<KvSegment>> segments_;  // of each thread: [together, most]
};

}  // namespace ringline
