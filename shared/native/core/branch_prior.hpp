// What a plant's texts say follows a context: the prior of the branches that a model drafts.
#pragma once

#include <cstdint>
#include <span>

#include "core/text_draft.hpp"

namespace ringline {

// Natural log of the probability of each of `tokens` behind the query, from the counts of the texts at match
// lengths 1, 2, 3, 4, 6, 8, 12 and 16, each smoothed with the one before by Witten and Bell's rule
//
//     p_k(t) = (count_k(t) + distinct_k * p_{k-1}(t)) / (count_k + distinct_k),   p_0 = 1 / 4096
//
// Where the texts do not know the context every token has p_0, so that the prior changes no order there.
void log_prior(std::span<const TextSource> sources, std::span<const int32_t> query,
               std::span<const int32_t> tokens, std::span<float> out);

}  // namespace ringline
