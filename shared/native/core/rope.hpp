// Rotary positions (Su et al. 2021) whose distances are exact wherever the window stands.
#pragma once

#include <cstdint>
#include <vector>

namespace ringline {

// The angle of pair i at position p is p * base^(-2i / head_dim). It is kept as a fraction of a turn in 64
// bits, p * step_i mod 2^64, which is linear in p without any rounding: the angle between positions p and p -
// d is that of d, bit for bit, for every p. Sine and cosine are taken in double precision.
class Rope {
 public:
  Rope(double base, int64_t head_dim);

  int64_t half() const { return static_cast<int64_t>(step_.size()); }
  // cos[half], sin[half] at this position.
  void angles(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<uint64_t> step_;
};

}  // namespace ringline
