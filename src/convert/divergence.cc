#include "convert/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace myriad {

RowComparison compare_rows(std::span<const float> p_logits, std::span<const float> q_logits) {
  const double p_most = *std::max_element(p_logits.begin(), p_logits.end());
  const double q_most = *std::max_element(q_logits.begin(), q_logits.end());
  // With u = x − max x: Σ p (u_p − u_q) − log Σ e^u_p + log Σ e^u_q.
  double p_sum = 0, q_sum = 0, weighted = 0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    const double p = static_cast<double>(p_logits[i]) - p_most, q = static_cast<double>(q_logits[i]) - q_most;
    const double e = std::exp(p);
    p_sum += e;
    q_sum += std::exp(q);
    weighted += e * (p - q);
  }
  return {p_most + std::log(p_sum), q_most + std::log(q_sum),
          std::max(0.0, weighted / p_sum - std::log(p_sum) + std::log(q_sum))};
}

}  // namespace myriad
