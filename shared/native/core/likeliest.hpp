// The likeliest tokens of a row of logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ringline {

struct LikelyToken {
  int32_t id;
  float logit;
  float logq;  // natural log of its probability, the row's softmax
};

// The k largest logits, the largest first, lower ids first among equals; fewer when there are fewer.
// std::invalid_argument when the largest is not finite, when there is none, or when k is 0.
std::vector<LikelyToken> likeliest(std::span<const float> logits, size_t k);

}  // namespace ringline
