// K/V of tokens that are being verified or drafted, as trees, and the passes over them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.hpp"
#include "core/forward.hpp"
#include "core/model.hpp"
#include "core/node_tree.hpp"
#include "core/sequence_view.hpp"

namespace ringline {

struct PassRequest {
  std::span<const std::shared_ptr<SequenceView>> views;
  std::span<const int32_t> seq;  // of each node, index into views
  std::span<const int32_t> tokens;
  std::span<const int32_t> parents;  // -1, or a slot below the node's own
  std::span<const int32_t> outputs;  // indices of nodes whose logits are wanted
};

// Every member function throws std::invalid_argument before it has changed anything, and does not allocate.
class Scratch {
 public:
  // `format` is that of the pools whose sequences it takes.
  Scratch(std::shared_ptr<Model> model, int64_t capacity, int64_t max_outputs,
          KvFormat format = KvFormat::kF16);

  const Model& model() const { return *model_; }
  int64_t size() const { return tree_.size(); }
  int64_t capacity() const { return tree_.capacity(); }

  // Appends the nodes and computes them; the first new slot is returned.
  int64_t forward(const PassRequest& request);
  int64_t n_outputs() const { return forward_.n_outputs(); }
  const float* logits() const { return forward_.logits(); }
  std::span<const int32_t> argmax() const { return forward_.argmax(); }

  // Copies the path's K/V into the pool at view.length() ..., then advances the length.
  void commit(SequenceView& view, std::span<const int32_t> path);
  // After commit(view, path). map[old slot] = new slot, -1 for a node that is gone; valid until the next
  // call.
  std::span<const int32_t> reroot(SequenceView& view, std::span<const int32_t> path);
  std::span<const int32_t> drop(SequenceView& view);
  void clear();

 private:
  class Use;

  void check_request(const PassRequest& request) const;
  void check_views(const PassRequest& request) const;
  void plan(const PassRequest& request);
  std::span<const int32_t> move_tiles(int64_t before);

  std::shared_ptr<Model> model_;
  int64_t max_outputs_;
  NodeTree tree_;
  Buffer<std::byte> kv_;
  ScratchTiles tiles_;
  std::vector<Node> pending_;
  std::vector<PassNode> pass_;
  std::vector<int32_t> map_;
  Forward forward_;
  std::atomic<bool> busy_{false};
};

}  // namespace ringline
