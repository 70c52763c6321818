// How far stored values are from the original ones: sums that can be taken in pieces.
#pragma once

#include <cstdint>
#include <span>

namespace myriad {

struct ErrorSums {
  std::uint64_t values = 0;
  double squared_error = 0;   // Σ (x - x')²
  double squared_signal = 0;  // Σ x²
  double largest_error = 0;   // max |x - x'|

  // Both of one length.
  void add(std::span<const float> original, std::span<const float> stored);
  ErrorSums& operator+=(const ErrorSums& o);

  // Mean squared error; 0 of no values.
  [[nodiscard]] double mse() const;
  // Signal to noise, in decibel: 10·log10(Σ x² / Σ (x - x')²); infinite without an error.
  [[nodiscard]] double sqnr_db() const;
};

}  // namespace myriad
