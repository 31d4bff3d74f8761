#include "core/thread_pool.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <cfenv>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

namespace ringline {

namespace {

constexpr int kMaxThreads = 256;
constexpr int kSpins =
    1000;  // some ten microseconds: a phase's tail is shorter, another process's turn is not

constexpr uint32_t kOpen = uint32_t{1} << 31;
// Between two offers of the core: an offer that nobody takes costs a microsecond or less, and the system ends
// a turn by itself after some three milliseconds.
constexpr auto kShortestTurn = std::chrono::microseconds(100);
constexpr auto kLongestTurn = std::chrono::milliseconds(2);

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

// Signals are the application's: workers inherit a mask that blocks them all.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
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
    : size_(checked_size(threads)),
      affinity_(std::move(affinity)),
      shares_(static_cast<size_t>(threads)),
      workers_(static_cast<size_t>(threads)) {
  check_affinity(affinity_);
  const SignalsBlocked blocked;
  try {
    for (int worker = 1; worker < threads; ++worker) threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    const auto begun = threads_.size() + 1;
    end_threads();
    throw std::runtime_error("only " + std::to_string(begun) + " of " + std::to_string(threads) +
                             " threads can be started: " + error.what());
  }
}

ThreadPool::~ThreadPool() { end_threads(); }

void ThreadPool::end_threads() {
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

void ThreadPool::end_phase(uint32_t number) {
  done_.store(0, std::memory_order_relaxed);
  for (Share& share : shares_) share.next.store(uint64_t{number + 1} << 32, std::memory_order_relaxed);
  // Not just a release: GCC's notify_all() wakes nobody when it sees no waiter, and on x86 it may look for
  // one before a mere store is visible, while the waiter still sees the old phase and sleeps: for ever, if
  // this was the job's last phase.
  phase_.store(number + 1, std::memory_order_seq_cst);
  if (size_ > 1) phase_.notify_all();
}

// Between two phases nobody waits for this thread; in the middle of a piece all others would. So it offers
// its core here to whoever else needs it, rather than have it taken there, and takes as long a turn as they
// took.
void ThreadPool::give_way(Worker& self) {
  const Clock::time_point before = Clock::now();
  if (before < self.gives_way) return;
  sched_yield();
  const Clock::time_point after = Clock::now();
  self.gives_way = after + std::clamp<Clock::duration>(after - before, kShortestTurn, kLongestTurn);
}

bool ThreadPool::enter() {
  uint32_t seen = inside_.load(std::memory_order_relaxed);
  while ((seen & kOpen) != 0) {
    if (inside_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::leave() {
  if (inside_.fetch_sub(1, std::memory_order_release) == 1) inside_.notify_all();
}

// Nobody may come any more; returns when all have left.
void ThreadPool::close() {
  uint32_t seen = inside_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (; seen != 0; seen = inside_.load(std::memory_order_acquire)) wait_past(inside_, seen);
}

void ThreadPool::run_erased(Job job, void* context) {
  const std::lock_guard<std::mutex> lock(one_job_);
  const Borrowed caller(affinity_.empty() ? -1 : affinity_[0]);
  job_ = job;
  context_ = context;
  first_phase_ = phase_.load(std::memory_order_relaxed);
  inside_.store(kOpen, std::memory_order_release);
  started_.fetch_add(1, std::memory_order_release);
  if (size_ > 1) started_.notify_all();
  workers_[0].phase = first_phase_;
  job(context, 0);
  close();
}

void ThreadPool::work(int worker) {
  std::fesetenv(FE_DFL_ENV);
  if (!affinity_.empty()) pin_to(affinity_[static_cast<size_t>(worker) % affinity_.size()]);
  for (uint32_t seen = 0;;) {
    wait_past(started_, seen);
    seen = started_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    workers_[static_cast<size_t>(worker)].phase = first_phase_;
    job_(context_, worker);
    leave();
  }
}

}  // namespace ringline
