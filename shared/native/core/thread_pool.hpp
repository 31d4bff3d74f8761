// Threads that run one program together, phase by phase: the items of a phase are claimed from counters, and
// it has ended when all of them are done. A thread that is not there (another process has its core) claims
// nothing and is not waited for: when it comes back it finds the phases that have passed closed and goes on
// with the present one. Who waits spins for a few microseconds and then sleeps; nobody spins without bound,
// because on a gateway with two cores the thread being waited for may need the very core that the spinning
// would occupy.
//
//     items  |--- thread 0's share --->|--- thread 1's share --->|     each goes through its own first,
//             claimed ^ shares_[0]      claimed ^ shares_[1]           then through what others have left
//
//     phase n: claim, work, count ... the last item is done: after() -> shares open for phase n + 1 -> wake
//     all
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ringline {

class ThreadPool {
 public:
  // `affinity[i]` is the CPU of thread i (repeated when there are more threads); empty: wherever the system
  // likes. Throws std::invalid_argument for a CPU that this process may not use, std::runtime_error when the
  // system gives no more threads.
  ThreadPool(int threads, std::vector<int> affinity);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // job(worker) runs on the caller, worker 0, and on every other thread that comes before the caller is
  // through. All of them go through the same phases, and nothing but a phase's items is sure to be done.
  // Jobs do not throw. One job at a time.
  template <class Job>
  void run(Job& job) {
    run_erased([](void* context, int worker) { (*static_cast<Job*>(context))(worker); }, &job);
  }

  // Within a job: its next phase. Calls work(first, last) for disjoint pieces of [0, items), `grain` items
  // long (items + grain < 2^32). Returns when all are done, and after() behind them, by whoever did the last
  // one. A thread's pieces follow each other: memory is read faster in a few long runs than in many short
  // ones.
  template <class Work, class After>
  void phase(int worker, int64_t items, int64_t grain, Work&& work, After&& after) {
    Worker& self = workers_[static_cast<size_t>(worker)];
    const uint32_t number = self.phase++;
    if (!claim_all(worker, number, items, grain, work)) {
      wait_past(phase_, number);
    } else {
      after();
      end_phase(number);
    }
    if (size_ > 1) give_way(self);
  }
  template <class Work>
  void phase(int worker, int64_t items, int64_t grain, Work&& work) {
    phase(worker, items, grain, work, [] {});
  }

 private:
  using Job = void (*)(void* context, int worker);
  using Clock = std::chrono::steady_clock;

  struct alignas(64) Share {
    std::atomic<uint64_t> next{0};  // the phase, and the next item of the share that nobody has claimed
  };
  struct alignas(64) Worker {
    uint32_t phase = 0;  // that it takes part in next
    Clock::time_point gives_way{};
  };

  // Claims and does pieces until none is left. True: it did the phase's last one.
  template <class Work>
  bool claim_all(int worker, uint32_t number, int64_t items, int64_t grain, Work& work) {
    const int64_t whole = std::max<int64_t>(items, 1);  // a phase without items has to be ended by somebody
    for (int turn = 0; turn < size_; ++turn) {
      const int owner = (worker + turn) % size_;
      const int64_t begin = whole * owner / size_;
      const int64_t end = whole * (owner + 1) / size_;
      for (int64_t first; (first = claim(owner, number, end - begin, grain)) >= 0;) {
        const int64_t from = begin + first;
        const int64_t to = std::min(from + grain, end);
        if (items > 0) work(from, to);
        if (done_.fetch_add(to - from, std::memory_order_acq_rel) + to - from == whole) return true;
      }
    }
    return false;
  }

  // The first of `grain` items of a share of `size`; -1: none is left, or the phase has ended.
  int64_t claim(int owner, uint32_t number, int64_t size, int64_t grain) {
    std::atomic<uint64_t>& next = shares_[static_cast<size_t>(owner)].next;
    uint64_t seen = next.load(std::memory_order_relaxed);
    do {
      if (seen >> 32 != number || static_cast<int64_t>(seen & UINT32_MAX) >= size) return -1;
    } while (
        !next.compare_exchange_weak(seen, seen + static_cast<uint64_t>(grain), std::memory_order_relaxed));
    return static_cast<int64_t>(seen & UINT32_MAX);
  }

  void end_phase(uint32_t number);
  void give_way(Worker& self);
  bool enter();
  void leave();
  void close();
  void run_erased(Job job, void* context);
  void work(int worker);
  void end_threads();
  static void wait_past(const std::atomic<uint32_t>& word, uint32_t seen);

  int size_;
  std::vector<int> affinity_;
  std::mutex one_job_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  uint32_t first_phase_ = 0;  // of the job
  std::vector<Share> shares_;
  std::vector<Worker> workers_;
  alignas(64) std::atomic<int64_t> done_{0};     // items of the phase
  alignas(64) std::atomic<uint32_t> phase_{0};   // phases that have ended
  alignas(64) std::atomic<uint32_t> inside_{0};  // threads in the job beside the caller; kOpen: more may come
  alignas(64) std::atomic<uint32_t> started_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace ringline
