// What blocks cost: taking and giving them back, and finding them in an attention call. Prints "name value".
//
//   blocks LAYERS KV_HEADS HEAD_DIM GROUP
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/block.hpp"
#include "core/block_allocator.hpp"
#include "core/buffer.hpp"
#include "core/context_segments.hpp"
#include "kernels/engine_table.hpp"
#include "kernels/kv_storage.hpp"

namespace ringline {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kBlocks = 2048;
constexpr int64_t kPositions = 4096, kSink = 256, kWindow = kPositions - kSink, kRing = kWindow + 128;
constexpr int64_t kLength = 100'000;  // the ring has come round many times
constexpr int kRounds = 201;

double ns_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

std::vector<int32_t> shuffled(int64_t n, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  return order;
}

// All blocks taken, all given back in random order; and one exchanged in a pool that is full but for it.
void time_allocator() {
  std::vector<uint64_t> memory(BlockAllocator::bytes_needed(kBlocks) / 8 + 1);
  BlockAllocator allocator(std::as_writable_bytes(std::span(memory)), kBlocks, true, nullptr);
  const std::vector<int32_t> order = shuffled(kBlocks, 1);
  std::vector<double> taking, giving, exchanging;
  for (int round = 0; round < kRounds; ++round) {
    auto start = Clock::now();
    for (int32_t i = 0; i < kBlocks; ++i) allocator.allocate();
    taking.push_back(ns_since(start) / kBlocks);
    start = Clock::now();
    for (const int32_t block : order) {
      allocator.release(block);
      allocator.allocate();
    }
    exchanging.push_back(ns_since(start) / kBlocks);
    start = Clock::now();
    for (const int32_t block : order) allocator.release(block);
    giving.push_back(ns_since(start) / kBlocks);
  }
  std::printf("allocate_ns %.3f\nfree_ns %.3f\nexchange_full_ns %.3f\n", median(taking), median(giving),
              median(exchanging));
}

// One decoding token over all layers and heads, as Forward::attend does it on one thread.
class Attention {
 public:
  Attention(const Plane& plane, int64_t group, bool scattered)
      : plane_(plane),
        group_(group),
        memory_(static_cast<size_t>(n_table() * plane.bytes())),
        scratch_(static_cast<size_t>(plane.bytes())),
        query_(static_cast<size_t>(group * plane.head_dim), 0.01f),
        out_(query_.size()),
        scores_(static_cast<size_t>(group * score_stride(kPositions))),
        segments_(kBlockTokens, 1, 1) {
    std::memset(memory_.data(), 0x2c, memory_.size());  // every number is small and normal
    std::memset(scratch_.data(), 0x2c, scratch_.size());
    const auto pool = std::make_shared<KvPool>(std::span(memory_.data(), memory_.size()), n_table(),
                                               std::vector{plane}, nullptr);
    view_ = std::make_shared<SequenceView>(pool, 0, kSink, kRing, kWindow);
    std::vector<int32_t> table = shuffled(n_table(), 2);
    if (!scattered) std::sort(table.begin(), table.end());
    view_->set_blocks(0, table);
    view_->set_length(kLength);
    NodeTree tree(kBlockTokens);
    tree.append(tree.child(view_, -1, {}));
    node_ = {view_.get(), 0, kLength, 0};
    segments_.prepare(tree, std::span(&node_, 1));
  }

  // Nanoseconds of one pass's addressing, and of all of its attention.
  std::pair<double, double> pass() {
    double addressing = 0;
    const auto start = Clock::now();
    for (int layer = 0; layer < plane_.n_layer; ++layer) {
      for (int head = 0; head < plane_.n_kv_head; ++head) addressing += attend(layer, head);
    }
    return {addressing, ns_since(start)};
  }

 private:
  static int32_t n_table() { return static_cast<int32_t>((kSink + kRing) / kBlockTokens); }

  double attend(int layer, int head) {
    const auto start = Clock::now();
    const Context context = segments_.context(node_, 0, {scratch_.data(), plane_}, 0, 0);
    const double addressing = ns_since(start);
    const AttentionTask task = {context.segments,
                                context.n_segments,
                                context.n_keys,
                                plane_.k_offset(layer, head),
                                plane_.v_offset(layer, head),
                                plane_.head_dim,
                                group_,
                                query_.data(),
                                query_.data(),
                                scores_.data(),
                                out_.data()};
    RINGLINE_ISA::attend<RINGLINE_ISA::HalfKv>(&task, 1);
    return addressing;
  }

  Plane plane_;
  int64_t group_;
  Buffer<std::byte> memory_, scratch_;
  std::vector<float> query_, out_;
  Buffer<float> scores_;
  std::shared_ptr<SequenceView> view_;
  PassNode node_;
  ContextSegments segments_;
};

// Scattered and consecutive blocks in turns, so that the machine's moods hit both.
void time_attention(const Plane& plane, int64_t group) {
  Attention scattered(plane, group, true), consecutive(plane, group, false);
  std::vector<double> addressing, all, share, ratio;
  for (int round = 0; round < 11; ++round) {
    const auto [found, total] = scattered.pass();
    const double calls = plane.n_layer * plane.n_kv_head;
    addressing.push_back(found / calls);
    all.push_back(total / calls);
    share.push_back(found / total);
    ratio.push_back(total / consecutive.pass().second);
  }
  std::printf("addressing_ns %.1f\nattention_call_ns %.1f\naddressing_share %.5f\nscattered_ratio %.4f\n",
              median(addressing), median(all), median(share), median(ratio));
}

}  // namespace

}  // namespace ringline

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const ringline::Plane plane = {std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3])};
  ringline::time_allocator();
  ringline::time_attention(plane, std::atoi(argv[4]));
  return 0;
}
