#include "core/block_allocator.hpp"

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace ringline {

namespace {

constexpr uint64_t kMagic = 0x524c4241;  // "RLBA"
constexpr int32_t kMaxBlocks = 1 << 26;

using Word = std::atomic_ref<uint64_t>;
using Count = std::atomic_ref<uint32_t>;
static_assert(Word::is_always_lock_free && Count::is_always_lock_free, "shared between processes");

int64_t words_of(int32_t n_blocks) { return (int64_t{n_blocks} + 63) / 64; }

}  // namespace

size_t BlockAllocator::bytes_needed(int32_t n_blocks) {
  if (n_blocks < 1 || n_blocks > kMaxBlocks) {
    throw std::invalid_argument("cannot manage " + std::to_string(n_blocks) + " blocks: 1 to " +
                                std::to_string(kMaxBlocks) + " are possible");
  }
  const size_t bytes = 8 + 8 * static_cast<size_t>(words_of(n_blocks)) + 4 * static_cast<size_t>(n_blocks);
  return (bytes + 7) / 8 * 8;
}

BlockAllocator::BlockAllocator(std::span<std::byte> memory, int32_t n_blocks, bool create,
                               std::shared_ptr<const void> owner)
    : n_blocks_(n_blocks), owner_(std::move(owner)) {
  const size_t need = bytes_needed(n_blocks);
  if (memory.size() < need) {
    throw std::invalid_argument("the counts of " + std::to_string(n_blocks) + " blocks need " +
                                std::to_string(need) + " bytes, the buffer has " +
                                std::to_string(memory.size()));
  }
  if (reinterpret_cast<uintptr_t>(memory.data()) % 8 != 0) {
    throw std::invalid_argument("the buffer of the block counts is not aligned to 8 bytes");
  }
  n_words_ = words_of(n_blocks);
  header_ = reinterpret_cast<uint64_t*>(memory.data());
  free_ = header_ + 1;
  references_ = reinterpret_cast<uint32_t*>(free_ + n_words_);
  const uint64_t mark = kMagic << 32 | static_cast<uint32_t>(n_blocks);
  if (create) {
    std::memset(memory.data(), 0, need);
    Word(*header_).store(mark);
  } else if (Word(*header_).load() != mark) {
    throw std::invalid_argument("the buffer does not hold the counts of " + std::to_string(n_blocks) +
                                " blocks");
  }
  for (int32_t block = 0; block < n_blocks; ++block) {
    if (Count(references_[block]).load() == 0) mark_free(block);
  }
}

void BlockAllocator::check(int32_t block) const {
  if (block < 0 || block >= n_blocks_) {
    throw std::invalid_argument("block " + std::to_string(block) + " does not exist: there are blocks 0 to " +
                                std::to_string(n_blocks_ - 1));
  }
}

void BlockAllocator::mark_free(int32_t block) {
  Word(free_[block / 64]).fetch_or(uint64_t{1} << (block % 64));
}

int32_t BlockAllocator::claim(int64_t word) {
  Word bits(free_[word]);
  for (uint64_t seen = bits.load(); seen != 0; seen = bits.load()) {
    const uint64_t bit = seen & (~seen + 1);
    if ((bits.fetch_and(~bit) & bit) == 0) continue;
    const int64_t block = word * 64 + std::countr_zero(bit);
    uint32_t none = 0;
    if (block < n_blocks_ && Count(references_[block]).compare_exchange_strong(none, 1)) {
      return static_cast<int32_t>(block);
    }
  }
  return -1;
}

int32_t BlockAllocator::allocate() {
  for (int64_t word = 0; word < n_words_; ++word) {
    const int32_t block = claim(word);
    if (block >= 0) return block;
  }
  return -1;
}

uint32_t BlockAllocator::retain(int32_t block) {
  check(block);
  Count count(references_[block]);
  uint32_t seen = count.load();
  do {
    if (seen == 0)
      throw std::invalid_argument("block " + std::to_string(block) + " is free: nothing to retain");
    if (seen == std::numeric_limits<uint32_t>::max()) {
      throw std::invalid_argument("block " + std::to_string(block) + " has too many references");
    }
  } while (!count.compare_exchange_weak(seen, seen + 1));
  return seen + 1;
}

uint32_t BlockAllocator::release(int32_t block) {
  check(block);
  Count count(references_[block]);
  uint32_t seen = count.load();
  do {
    if (seen == 0) throw std::invalid_argument("block " + std::to_string(block) + " is free: released twice");
  } while (!count.compare_exchange_weak(seen, seen - 1));
  if (seen == 1) mark_free(block);
  return seen - 1;
}

uint32_t BlockAllocator::references(int32_t block) const {
  check(block);
  return Count(references_[block]).load();
}

int32_t BlockAllocator::n_free() const {
  int32_t free = 0;
  for (int32_t block = 0; block < n_blocks_; ++block) free += Count(references_[block]).load() == 0;
  return free;
}

}  // namespace ringline
