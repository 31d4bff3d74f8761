#include "core/node_tree.hpp"

#include <utility>

#include "core/require.hpp"

namespace ringline {

NodeTree::NodeTree(int64_t capacity) : nodes_(static_cast<size_t>(capacity)) {}

Node NodeTree::child(const std::shared_ptr<SequenceView>& view, int64_t parent,
                     std::span<const Node> pending) const {
  if (parent == -1) return {view, view->length(), view->length(), -1};
  const int64_t known = size_ + static_cast<int64_t>(pending.size());
  require(parent >= 0 && parent < known, "parent ", parent, " is no earlier node: slots 0 to ", known - 1,
          " exist there");
  const Node& above = parent < size_ ? node(parent) : pending[static_cast<size_t>(parent - size_)];
  require(above.view == view, "parent ", parent, " belongs to another sequence");
  require(above.root_position == view->length(), "parent ", parent, " hangs on length ", above.root_position,
          ", the sequence has moved to ", view->length(), ": reroot or drop it first");
  return {view, above.position + 1, above.root_position, static_cast<int32_t>(parent)};
}

void NodeTree::append(Node node) { nodes_[static_cast<size_t>(size_++)] = std::move(node); }

void NodeTree::check_chain(const SequenceView& view, std::span<const int32_t> path) const {
  require(!path.empty(), "the path is empty");
  int32_t above = -1;
  for (const int32_t slot : path) {
    require(slot >= 0 && slot < size_, "path: slot ", slot, " does not exist");
    require(node(slot).view.get() == &view, "path: slot ", slot, " belongs to another sequence");
    require(node(slot).parent == above, "path: slot ", slot, " is not a child of ", above,
            above < 0 ? " (the committed context)" : "");
    above = slot;
  }
}

void NodeTree::check_path(const SequenceView& view, std::span<const int32_t> path) const {
  check_chain(view, path);
  require(node(path[0]).position == view.length(), "path: it starts at position ", node(path[0]).position,
          ", the sequence has length ", view.length());
}

void NodeTree::check_committed(const SequenceView& view, std::span<const int32_t> path) const {
  check_chain(view, path);
  require(node(path.back()).position + 1 == view.length(), "path: it ends at position ",
          node(path.back()).position, " but the sequence has length ", view.length(), ": commit it first");
}

void NodeTree::keep_below(const SequenceView& view, int64_t end, std::span<int32_t> map) {
  for (int64_t slot = 0; slot < size_; ++slot) {
    Node& node = nodes_[static_cast<size_t>(slot)];
    const bool other = node.view.get() != &view;
    const bool below =
        node.parent == end || (node.parent > end && map[static_cast<size_t>(node.parent)] >= 0);
    map[static_cast<size_t>(slot)] = other || (below && slot > end) ? 0 : -1;
    if (!other) node.root_position = view.length();
  }
  compact(map);
}

void NodeTree::drop(const SequenceView& view, std::span<int32_t> map) {
  for (int64_t slot = 0; slot < size_; ++slot) {
    map[static_cast<size_t>(slot)] = node(slot).view.get() == &view ? -1 : 0;
  }
  compact(map);
}

void NodeTree::compact(std::span<int32_t> map) {
  int32_t kept = 0;
  for (int64_t slot = 0; slot < size_; ++slot) {
    int32_t& target = map[static_cast<size_t>(slot)];
    if (target < 0) continue;
    Node node = std::move(nodes_[static_cast<size_t>(slot)]);
    if (node.parent >= 0) node.parent = map[static_cast<size_t>(node.parent)];
    target = kept;
    nodes_[static_cast<size_t>(kept++)] = std::move(node);
  }
  for (int64_t slot = kept; slot < size_; ++slot) nodes_[static_cast<size_t>(slot)].view.reset();
  size_ = kept;
}

void NodeTree::clear() {
  for (int64_t slot = 0; slot < size_; ++slot) nodes_[static_cast<size_t>(slot)].view.reset();
  size_ = 0;
}

}  // namespace ringline
