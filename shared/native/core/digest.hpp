// A 64-bit digest of bytes, computed at memory speed: it finds damage, it does not withstand forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringline {

// Eight lanes take one 8-byte word in turn, h = rotate(h ^ word, 29) * K with an odd K: each step is a
// bijection of h, so one changed word always changes the result. The last words are padded with zeros, and
// the length is part of the digest.
uint64_t digest(std::span<const std::byte> bytes);

}  // namespace ringline
