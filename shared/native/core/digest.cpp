#include "core/digest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ringline {

namespace {

constexpr size_t kLanes = 8;
constexpr size_t kLine = kLanes * sizeof(uint64_t);
constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

uint64_t mix(uint64_t h, uint64_t word) { return std::rotl(h ^ word, 29) * kOdd; }

void take_line(const std::byte* line, uint64_t (&lanes)[kLanes]) {
  uint64_t words[kLanes];
  std::memcpy(words, line, kLine);
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
}

}  // namespace

uint64_t digest(std::span<const std::byte> bytes) {
  uint64_t lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = i + 1;
  const size_t whole = bytes.size() / kLine * kLine;
  for (size_t at = 0; at < whole; at += kLine) take_line(bytes.data() + at, lanes);
  std::byte rest[kLine] = {};
  std::copy(bytes.begin() + static_cast<ptrdiff_t>(whole), bytes.end(), rest);
  take_line(rest, lanes);
  uint64_t all = bytes.size();
  for (const uint64_t lane : lanes) all = mix(all, lane);
  return all;
}

}  // namespace ringline
