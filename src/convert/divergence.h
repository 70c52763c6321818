// How far one model's distribution of the next token is from another's.
#pragma once

#include <span>

namespace myriad {

// Of two rows of logits of one length: p and q are their softmax.
struct RowComparison {
  double p_log_sum = 0, q_log_sum = 0;  // log Σ exp(logit): less a logit, the loss of its token
  double kl = 0;                        // Σ p·(log p − log q) in nats; never below 0
};
RowComparison compare_rows(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace myriad
