// Free blocks and reference counts in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ringline {

// The buffer, all words little-endian and used as atomics only:
//
//   u64 header = magic << 32 | n_blocks
//   u64 free[(n_blocks + 63) / 64]     bit set: probably free (where to look first)
//   u32 references[n_blocks]           0: free. The one truth; the bitmap is rebuilt from it.
//
// A block changes hands by compare-and-swap on its count, so a process killed between any two instructions
// leaves at worst a bitmap bit that says less than the truth, which attaching repairs.
class BlockAllocator {
 public:
  // `create` starts with every block free; otherwise the buffer must have been created for n_blocks.
  // Throws std::invalid_argument for a buffer that is too small, misaligned or of another size.
  BlockAllocator(std::span<std::byte> memory, int32_t n_blocks, bool create,
                 std::shared_ptr<const void> owner);

  static size_t bytes_needed(int32_t n_blocks);
  // The free block with the lowest number, now with one reference; -1 when there is none.
  int32_t allocate();
  uint32_t retain(int32_t block);
  uint32_t release(int32_t block);
  uint32_t references(int32_t block) const;
  int32_t n_blocks() const { return n_blocks_; }
  int32_t n_free() const;

 private:
  void check(int32_t block) const;
  void mark_free(int32_t block);
  int32_t claim(int64_t word);

  int32_t n_blocks_;
  int64_t n_words_;
  uint64_t* header_;
  uint64_t* free_;
  uint32_t* references_;
  std::shared_ptr<const void> owner_;
};

}  // namespace ringline
