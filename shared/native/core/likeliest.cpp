#include "core/likeliest.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/engine_isa.hpp"
#include "core/isa.hpp"

namespace ringline {
namespace {

const EngineKernels& best_kernels() {
  static const EngineKernels& kernels = engine_kernels(isa_names().front());
  return kernels;
}

// The k largest so far, sorted. Offered in the order of their ids, an equal one comes behind.
class Largest {
 public:
  explicit Largest(size_t k) : k_(k) { tokens_.reserve(k + 1); }

  bool takes(float logit) const { return tokens_.size() < k_ || logit > tokens_.back().logit; }

  void offer(int32_t id, float logit) {
    if (!takes(logit)) return;
    const auto before = [](float value, const LikelyToken& token) { return value > token.logit; };
    tokens_.insert(std::upper_bound(tokens_.begin(), tokens_.end(), logit, before), {id, logit, 0.0f});
    if (tokens_.size() > k_) tokens_.pop_back();
  }

  std::vector<LikelyToken> tokens() && { return std::move(tokens_); }

 private:
  size_t k_;
  std::vector<LikelyToken> tokens_;
};

double sum_exp(std::span<const float> x, float top) {
  const size_t whole = x.size() / 16 * 16;
  double sum = best_kernels().sum_exp(x.data(), static_cast<int64_t>(whole), top);
  for (const float value : x.subspan(whole)) sum += std::exp(double(value) - double(top));
  return sum;
}

}  // namespace

std::vector<LikelyToken> likeliest(std::span<const float> logits, size_t k) {
  if (k == 0) throw std::invalid_argument("k must be 1 or more");
  const auto n = static_cast<int64_t>(logits.size());
  const int64_t whole = n / kMaximumOf * kMaximumOf;
  std::vector<float> maxima(static_cast<size_t>(whole / kMaximumOf));
  best_kernels().maxima(logits.data(), whole, maxima.data());
  Largest largest(std::min(k, logits.size()));
  for (int64_t first = 0; first < n; first += kMaximumOf) {
    if (first < whole && !largest.takes(maxima[static_cast<size_t>(first / kMaximumOf)])) continue;
    for (int64_t i = first; i < std::min(first + kMaximumOf, n); ++i)
      largest.offer(static_cast<int32_t>(i), logits[static_cast<size_t>(i)]);
  }
  std::vector<LikelyToken> tokens = std::move(largest).tokens();
  if (tokens.empty() || !std::isfinite(tokens.front().logit))
    throw std::invalid_argument("the model's logits are not finite");
  const float top = tokens.front().logit;
  const double log_sum = double(top) + std::log(sum_exp(logits, top));
  for (LikelyToken& token : tokens) token.logq = float(double(token.logit) - log_sum);
  return tokens;
}

}  // namespace ringline
