// Threads meet without losing work or each other, and blocks are handed out once, whoever asks at the same
// time.
#include <atomic>
#include <chrono>
#include <thread>

#include "core/block_allocator.hpp"
#include "core/thread_pool.hpp"
#include "tests/engine_fixture.hpp"

namespace ringline::test {

// Every item of every phase is done once, and a phase sees all that the one before has written.
void check_phases(int threads) {
  constexpr int64_t kItems = 1000;
  ThreadPool pool(threads, {});
  for (int run = 0; run < 50; ++run) {
    std::vector<int> done(kItems, 0);
    int meetings = 0;
    auto job = [&](int worker) {
      for (int phase = 0; phase < 10; ++phase) {
        pool.claim(worker, kItems, 7, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            check(done[static_cast<size_t>(kItems - 1 - i)] >= phase,
                  "a phase began before the last one ended");
            check(done[static_cast<size_t>(i)] == phase || done[static_cast<size_t>(i)] == phase + 1,
                  "lost work");
          }
        });
        pool.meet([] {});
        pool.claim(worker, kItems, 3, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) ++done[static_cast<size_t>(i)];
        });
        pool.meet([&] { ++meetings; });
      }
    };
    pool.run(job);
    check(done == std::vector<int>(kItems, 10) && meetings == 10, "work was lost or done twice");
  }
}

// A thread that waits long falls asleep and is woken.
void check_sleepers() {
  ThreadPool pool(4, {});
  std::atomic<int> awake{0};
  auto job = [&](int worker) {
    if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    pool.meet([] {});
    ++awake;
  };
  for (int run = 0; run < 3; ++run) pool.run(job);
  check(awake == 12, "a sleeping thread was not woken");
}

void check_allocator() {
  constexpr int32_t kBlocks = 500;
  constexpr int kThreads = 4;
  std::vector<uint64_t> memory(BlockAllocator::bytes_needed(kBlocks) / 8);
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(memory.data()), memory.size() * 8);
  BlockAllocator blocks(bytes, kBlocks, true, nullptr);
  std::vector<std::atomic<int>> owners(kBlocks);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        std::vector<int32_t> mine;
        for (int i = 0; i < 100; ++i) mine.push_back(blocks.allocate());
        for (const int32_t block : mine) {
          check(block >= 0 && owners[static_cast<size_t>(block)].fetch_add(1) == 0, "a block has two owners");
          check(blocks.retain(block) == 2 && blocks.release(block) == 1, "wrong count");
          owners[static_cast<size_t>(block)].fetch_sub(1);
          check(blocks.release(block) == 0, "a block is still held");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(blocks.n_free() == kBlocks, "blocks were lost");
  check_refused([&] { blocks.release(3); }, "a double free");
}

}  // namespace ringline::test

int main() {
  using namespace ringline::test;
  for (const int threads : {1, 2, 4}) check_phases(threads);
  check_sleepers();
  check_allocator();
  return 0;
}
