#include "core/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cfenv>
#include <stdexcept>
#include <string>
#include <utility>

namespace ringline {

namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpins =
    1000;  // some ten microseconds: a phase's tail is shorter, another process's turn is not

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// The caller lends its thread for a job: pinned and with default rounding for that long, and as it was
// afterwards.
class Borrowed {
 public:
  explicit Borrowed(int cpu) : cpu_(cpu) {
    std::fegetenv(&environment_);
    std::fesetenv(FE_DFL_ENV);
    if (cpu_ < 0) return;
    pthread_getaffinity_np(pthread_self(), sizeof set_, &set_);
    pin_to(cpu_);
  }
  ~Borrowed() {
    std::fesetenv(&environment_);
    if (cpu_ >= 0) pthread_setaffinity_np(pthread_self(), sizeof set_, &set_);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 private:
  int cpu_;
  cpu_set_t set_;
  std::fenv_t environment_;
};

int checked_size(int threads) {
  if (threads >= 1 && threads <= kMaxThreads) return threads;
  throw std::invalid_argument("threads must be 1 to " + std::to_string(kMaxThreads) + ", not " +
                              std::to_string(threads));
}

void check_affinity(const std::vector<int>& affinity) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (const int cpu : affinity) {
    if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed)) {
      throw std::invalid_argument("affinity: this process may not use CPU " + std::to_string(cpu));
    }
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads, std::vector<int> affinity)
    : size_(checked_size(threads)), affinity_(std::move(affinity)), next_(static_cast<size_t>(threads)) {
  check_affinity(affinity_);
  // Signals are the application's: workers inherit a mask that blocks them all.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::wait_past(const std::atomic<uint32_t>& word, uint32_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (word.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
  }
  word.wait(seen, std::memory_order_acquire);
}

void ThreadPool::run_erased(Job job, void* context) {
  const std::lock_guard<std::mutex> lock(one_job_);
  const Borrowed caller(affinity_.empty() ? -1 : affinity_[0]);
  job_ = job;
  context_ = context;
  forget_claims();
  started_.fetch_add(1, std::memory_order_release);
  if (size_ > 1) started_.notify_all();
  job(context, 0);
  meet([] {});
}

void ThreadPool::work(int worker) {
  std::fesetenv(FE_DFL_ENV);
  if (!affinity_.empty()) pin_to(affinity_[static_cast<size_t>(worker) % affinity_.size()]);
  for (uint32_t seen = 0;; ++seen) {
    wait_past(started_, seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    job_(context_, worker);
    meet([] {});
  }
}

}  // namespace ringline
