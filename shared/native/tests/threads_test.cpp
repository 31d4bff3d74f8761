// Threads go through phases without losing work or waiting for who is not there, and blocks are handed out
// once, whoever asks at the same time.
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
    int ends = 0;
    auto job = [&](int worker) {
      for (int phase = 0; phase < 10; ++phase) {
        pool.phase(worker, kItems, 7, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) {
            check(done[static_cast<size_t>(kItems - 1 - i)] == phase,
                  "a phase began before the last one ended");
          }
        });
        const auto count = [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) ++done[static_cast<size_t>(i)];
        };
        pool.phase(worker, kItems, 3, count, [&] { ++ends; });
        pool.phase(worker, 0, 1, [](int64_t, int64_t) { check(false, "an item of an empty phase"); });
      }
    };
    pool.run(job);
    check(done == std::vector<int>(kItems, 10) && ends == 10, "work was lost or done twice");
  }
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// A thread that waits long falls asleep and is woken.
void check_sleepers() {
  constexpr int kThreads = 4;
  ThreadPool pool(kThreads, {});
  for (int run = 0; run < 3; ++run) {
    std::atomic<int> awake{0};
    auto job = [&](int worker) {
      pool.phase(worker, 1, 1, [](int64_t, int64_t) { sleep_ms(30); });
      pool.phase(worker, kThreads, 1, [&](int64_t, int64_t) {
        ++awake;
        for (int ms = 0; awake < kThreads && ms < 10000; ++ms) sleep_ms(1);
      });
    };
    pool.run(job);
    check(awake == kThreads, "a sleeping thread was not woken");
  }
}

// A thread whose core another process has holds up no phase, and does nothing twice when it is back.
void check_absent_threads() {
  constexpr int kThreads = 4;
  constexpr int64_t kItems = 100;
  ThreadPool pool(kThreads, {});
  for (int run = 0; run < 20; ++run) {
    std::vector<int> done(kItems, 0);
    std::atomic<int> absent{0};
    std::atomic<bool> through{false};
    auto job = [&](int worker) {
      if (worker == 0) {
        while (absent < kThreads - 1) sleep_ms(1);
      } else {
        ++absent;
        while (!through) sleep_ms(1);
      }
      for (int phase = 0; phase < 10; ++phase) {
        pool.phase(worker, kItems, 3, [&](int64_t first, int64_t last) {
          check(worker == 0, "a phase that had ended was worked on");
          for (int64_t i = first; i < last; ++i) ++done[static_cast<size_t>(i)];
        });
      }
      through = true;
    };
    pool.run(job);
    check(done == std::vector<int>(kItems, 10), "work was lost or done twice");
  }
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
  check_absent_threads();
  check_allocator();
  return 0;
}
