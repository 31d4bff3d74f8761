// Threads that run one program together: all of them claim pieces of a phase from counters, meet, and go on
// to the next phase. Who waits spins for a few microseconds and then sleeps; nobody spins without bound,
// because on a gateway with two cores the thread being waited for may need the very core that the spinning
// would occupy.
//
//     items  |--- thread 0's share --->|--- thread 1's share --->|     each goes through its own first,
//             claimed ^ next_[0]        claimed ^ next_[1]             then through what others have left
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ringline {

class ThreadPool {
 public:
  // `affinity[i]` is the CPU of thread i (repeated when there are more threads); empty: wherever the system
  // likes. Throws std::invalid_argument for a CPU that this process may not use.
  ThreadPool(int threads, std::vector<int> affinity);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // job(worker) runs once on every thread, the caller being worker 0. Jobs do not throw. One job at a time.
  template <class Job>
  void run(Job& job) {
    run_erased([](void* context, int worker) { (*static_cast<Job*>(context))(worker); }, &job);
  }

  // Within a job. Calls work(first, last) for disjoint pieces of [0, items), `grain` items long, until none
  // is left. A thread's pieces follow each other: memory is read faster in a few long runs than in many short
  // ones.
  template <class Work>
  void claim(int worker, int64_t items, int64_t grain, Work&& work) {
    for (int turn = 0; turn < size_; ++turn) {
      const int owner = (worker + turn) % size_;
      const int64_t begin = items * owner / size_;
      const int64_t end = items * (owner + 1) / size_;
      std::atomic<int64_t>& next = next_[static_cast<size_t>(owner)].claimed;
      for (;;) {
        const int64_t first = begin + next.fetch_add(grain, std::memory_order_relaxed);
        if (first >= end) break;
        work(first, std::min(first + grain, end));
      }
    }
  }

  // Within a job. Returns when all threads have come here; the last one runs after() before the others go on.
  template <class After>
  void meet(After&& after) {
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < size_)
      return wait_past(generation_, generation);
    arrived_.store(0, std::memory_order_relaxed);
    forget_claims();
    after();
    generation_.store(generation + 1, std::memory_order_release);
    if (size_ > 1) generation_.notify_all();
  }

 private:
  using Job = void (*)(void* context, int worker);
  struct alignas(64) Share {
    std::atomic<int64_t> claimed{0};
  };

  void forget_claims() {
    for (Share& share : next_) share.claimed.store(0, std::memory_order_relaxed);
  }

  void run_erased(Job job, void* context);
  void work(int worker);
  static void wait_past(const std::atomic<uint32_t>& word, uint32_t seen);

  int size_;
  std::vector<int> affinity_;
  std::mutex one_job_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::vector<Share> next_;  // of each thread
  alignas(64) std::atomic<int32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> started_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ringline
