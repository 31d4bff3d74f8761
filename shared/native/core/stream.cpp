#include "core/stream.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "core/thread_pool.hpp"

namespace ringline {

namespace {

constexpr int64_t kPiece = 1 << 18;
constexpr int kWords = 8;  // of a cache line

// Something that depends on every byte, so that no read can be left out.
uint64_t digest(const std::byte* memory, int64_t bytes) {
  const auto* words = reinterpret_cast<const uint64_t*>(memory);
  uint64_t sums[kWords] = {};
  for (int64_t i = 0; i + kWords <= bytes / 8; i += kWords) {
    __builtin_prefetch(words + i + 64 * kWords);
    for (int j = 0; j < kWords; ++j) sums[j] ^= words[i + j];
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all += sum;
  return all;
}

}  // namespace

double read_bandwidth(std::span<const std::byte> memory, int threads) {
  const auto pieces = static_cast<int64_t>(memory.size()) / kPiece;
  if (pieces < 1 || reinterpret_cast<uintptr_t>(memory.data()) % sizeof(uint64_t) != 0) {
    throw std::invalid_argument("read_bandwidth needs at least 256 KiB, aligned to 8 bytes");
  }
  ThreadPool pool(threads, {});
  std::atomic<uint64_t> result{0};
  auto job = [&](int worker) {
    pool.phase(worker, pieces, 1, [&](int64_t piece, int64_t) {
      result.fetch_xor(digest(memory.data() + piece * kPiece, kPiece), std::memory_order_relaxed);
    });
  };
  pool.run(job);  // wakes the threads, and the pages
  const auto start = std::chrono::steady_clock::now();
  pool.run(job);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(pieces * kPiece) / elapsed.count();
}

}  // namespace ringline
