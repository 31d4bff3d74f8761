// The token trees of a scratch: who hangs on whom, at which position, of which sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/sequence_view.hpp"

namespace ringline {

struct Node {
  std::shared_ptr<SequenceView> view;
  int64_t position = 0;
  int64_t root_position = 0;  // of the ancestor that hangs on the committed context
  int32_t parent = -1;
};

// Nodes live in slots 0 .. size - 1, a parent's slot below its children's. Capacity is fixed.
class NodeTree {
 public:
  explicit NodeTree(int64_t capacity);

  int64_t size() const { return size_; }
  int64_t capacity() const { return static_cast<int64_t>(nodes_.size()); }
  const Node& node(int64_t slot) const { return nodes_[static_cast<size_t>(slot)]; }

  // The node that would hang on `parent` (a slot, or -1: the committed context). Throws std::invalid_argument
  // when the parent is another sequence's or hangs on a context that has moved on. `pending` are nodes behind
  // size().
  Node child(const std::shared_ptr<SequenceView>& view, int64_t parent, std::span<const Node> pending) const;
  void append(Node node);

  // Throws std::invalid_argument unless `path` goes down from the committed context of `view` node by node.
  void check_path(const SequenceView& view, std::span<const int32_t> path) const;
  // Like check_path, for the path that commit() has just written: its first node hung on the context before
  // it.
  void check_committed(const SequenceView& view, std::span<const int32_t> path) const;

  // map[old slot] = new slot or -1; fills it and moves the nodes. Order is kept.
  void keep_below(const SequenceView& view, int64_t end, std::span<int32_t> map);
  void drop(const SequenceView& view, std::span<int32_t> map);
  void clear();

 private:
  void check_chain(const SequenceView& view, std::span<const int32_t> path) const;
  void compact(std::span<int32_t> map);

  std::vector<Node> nodes_;
  int64_t size_ = 0;
};

}  // namespace ringline
