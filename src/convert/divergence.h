// How far one model's distribution of the next token is from another's.
#pragma once

#include <span>

namespace myriad {

// Σ p·(log p − log q) in nats, where p and q are the softmax of two rows of logits of one length. Never below 0.
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

}  // namespace myriad
