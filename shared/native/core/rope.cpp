#include "core/rope.hpp"

#include <cmath>
#include <numbers>

namespace ringline {

Rope::Rope(double base, int64_t head_dim) {
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
    const double turns = std::pow(base, exponent) / (2.0 * std::numbers::pi);
    step_.push_back(static_cast<uint64_t>(std::ldexp(turns, 64)));
  }
}

void Rope::angles(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < step_.size(); ++i) {
    const uint64_t phase = static_cast<uint64_t>(position) * step_[i];
    const double angle = std::ldexp(static_cast<double>(static_cast<int64_t>(phase)), -63) * std::numbers::pi;
    cos[i] = static_cast<float>(std::cos(angle));
    sin[i] = static_cast<float>(std::sin(angle));
  }
}

}  // namespace ringline
