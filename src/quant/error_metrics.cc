#include "quant/error_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace myriad {

void ErrorSums::add(std::span<const float> original, std::span<const float> stored) {
  double error = 0, signal = 0, largest = largest_error;
  for (std::size_t i = 0; i < original.size(); ++i) {
    const double x = original[i], e = x - static_cast<double>(stored[i]);
    error += e * e;
    signal += x * x;
    largest = std::max(largest, std::abs(e));
  }
  values += original.size();
  squared_error += error;
  squared_signal += signal;
  largest_error = largest;
}

ErrorSums& ErrorSums::operator+=(const ErrorSums& o) {
  values += o.values;
  squared_error += o.squared_error;
  squared_signal += o.squared_signal;
  largest_error = std::max(largest_error, o.largest_error);
  return *this;
}

double ErrorSums::mse() const {
  return values == 0 ? 0 : squared_error / static_cast<double>(values);
}

double ErrorSums::sqnr_db() const {
  if (squared_error == 0) return std::numeric_limits<double>::infinity();
  return 10 * std::log10(squared_signal / squared_error);
}

}  // namespace myriad
