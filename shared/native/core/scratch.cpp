#include "core/scratch.hpp"

#include <utility>

#include "core/require.hpp"

namespace ringline {

namespace {

constexpr int64_t kMaxCapacity = 1 << 13;

int64_t checked_capacity(int64_t capacity, int64_t max_outputs) {
  require(capacity >= 1 && capacity <= kMaxCapacity, "a scratch holds 1 to ", kMaxCapacity, " nodes, not ",
          capacity);
  require(max_outputs >= 1 && max_outputs <= capacity, "max_outputs must be 1 to the capacity of ", capacity,
          ", not ", max_outputs);
  return capacity;
}

int64_t tiles_of(int64_t slots) { return (slots + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

// One caller at a time, and no change of the views while a pass reads them.
class Scratch::Use {
 public:
  Use(std::atomic<bool>& busy, std::span<const std::shared_ptr<SequenceView>> views)
      : busy_(busy), views_(views) {
    require(!busy_.exchange(true), "the scratch is in use by another thread");
    for (const auto& view : views_) view->begin_use();
  }
  ~Use() {
    for (const auto& view : views_) view->end_use();
    busy_.store(false);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  std::atomic<bool>& busy_;
  std::span<const std::shared_ptr<SequenceView>> views_;
};

Scratch::Scratch(std::shared_ptr<Model> model, int64_t capacity, int64_t max_outputs, KvFormat format)
    : model_(std::move(model)),
      max_outputs_(max_outputs),
      tree_(checked_capacity(capacity, max_outputs)),
      kv_(static_cast<size_t>(tiles_of(capacity) * model_->plane(format).bytes())),
      tiles_{kv_.data(), model_->plane(format)},
      map_(static_cast<size_t>(capacity)),
      forward_(*model_, capacity, max_outputs) {
  pending_.reserve(static_cast<size_t>(capacity));
  pass_.reserve(static_cast<size_t>(capacity));
}

void Scratch::check_views(const PassRequest& request) const {
  for (const auto& view : request.views) {
    if (view->plane() != tiles_.plane) {
      refuse("a view's plane is ", view->plane().describe(), ", the scratch's K/V is ",
             tiles_.plane.describe());
    }
    require(view->length() < kMaxPosition - capacity(), "a sequence has reached the last position");
    view->check_visible();
  }
}

void Scratch::check_request(const PassRequest& request) const {
  const size_t n = request.tokens.size();
  require(n >= 1, "a pass needs at least one node");
  require(request.seq.size() == n && request.parents.size() == n,
          "seq, tokens and parents must be equally long: ", request.seq.size(), ", ", n, ", ",
          request.parents.size());
  require(static_cast<int64_t>(n) <= capacity() - size(), n, " nodes do not fit: the scratch holds ", size(),
          " of ", capacity());
  require(static_cast<int64_t>(request.outputs.size()) <= max_outputs_, request.outputs.size(),
          " outputs, the scratch has room for ", max_outputs_);
  for (const int32_t output : request.outputs) {
    require(output >= 0 && static_cast<size_t>(output) < n, "output ", output,
            " is not a node of "
            "this pass (0 to ",
            n - 1, ")");
  }
  check_views(request);
}

// Fills pending_ and pass_; throws on a bad node.
void Scratch::plan(const PassRequest& request) {
  pending_.clear();
  pass_.clear();
  for (size_t i = 0; i < request.tokens.size(); ++i) {
    const int32_t seq = request.seq[i];
    const int32_t token = request.tokens[i];
    require(seq >= 0 && static_cast<size_t>(seq) < request.views.size(), "node ", i, ": sequence ", seq,
            " is none of the ", request.views.size(), " views");
    require(token >= 0 && token < model_->spec().n_vocab, "node ", i, ": token ", token,
            " is not in the vocabulary of ", model_->spec().n_vocab);
    const std::shared_ptr<SequenceView>& view = request.views[static_cast<size_t>(seq)];
    pending_.push_back(tree_.child(view, request.parents[i], pending_));
    pass_.push_back({view.get(), size() + static_cast<int64_t>(i), pending_.back().position, token});
  }
}

int64_t Scratch::forward(const PassRequest& request) {
  const Use use(busy_, request.views);
  check_request(request);
  plan(request);
  const int64_t first = size();
  for (Node& node : pending_) tree_.append(std::move(node));
  forward_.run(tree_, pass_, request.outputs, tiles_);
  return first;
}

void Scratch::commit(SequenceView& view, std::span<const int32_t> path) {
  const Use use(busy_, {});
  view.check_idle();
  tree_.check_path(view, path);
  const int64_t length = view.length();
  const int64_t end = length + static_cast<int64_t>(path.size());
  require(end <= view.covered(), "cannot commit positions ", length, " to ", end,
          ": the block table covers them up to ", view.covered());
  for (size_t i = 0; i < path.size(); ++i) {
    const int64_t slot = view.slot(length + static_cast<int64_t>(i));
    copy_position(tiles_.plane, tiles_.tile(path[i]), path[i] % kBlockTokens, view.tile(slot),
                  static_cast<int>(slot % kBlockTokens));
  }
  view.set_length(end);
}

std::span<const int32_t> Scratch::reroot(SequenceView& view, std::span<const int32_t> path) {
  const Use use(busy_, {});
  tree_.check_committed(view, path);
  const int64_t before = size();
  tree_.keep_below(view, path.back(), map_);
  return move_tiles(before);
}

std::span<const int32_t> Scratch::drop(SequenceView& view) {
  const Use use(busy_, {});
  const int64_t before = size();
  tree_.drop(view, map_);
  return move_tiles(before);
}

std::span<const int32_t> Scratch::move_tiles(int64_t before) {
  for (int64_t slot = 0; slot < before; ++slot) {
    const int32_t target = map_[static_cast<size_t>(slot)];
    if (target < 0 || target == slot) continue;
    copy_position(tiles_.plane, tiles_.tile(slot), static_cast<int>(slot % kBlockTokens), tiles_.tile(target),
                  target % kBlockTokens);
  }
  return {map_.data(), static_cast<size_t>(before)};
}

void Scratch::clear() {
  const Use use(busy_, {});
  tree_.clear();
}

}  // namespace ringline
