// How fast this machine reads memory: the yardstick of a decode pass, which reads every weight once.
#pragma once

#include <cstddef>
#include <span>

namespace ringline {

// Bytes per second at which `threads` threads together read `memory` once, in pieces like a pass's.
double read_bandwidth(std::span<const std::byte> memory, int threads);

}  // namespace ringline
