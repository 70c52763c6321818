#include "model/activation.h"

namespace myriad {

Activation choose_rows(const Activation& from, std::span<const std::uint16_t> rows) {
  Activation to;
  to.form = from.form;
  to.rows = rows.size();
  to.width = from.width;
  const auto copy = [&](const auto& source, auto& target, std::size_t width) {
    if (source.empty()) return;
    target.reserve(rows.size() * width);
    for (const std::size_t r : rows) {
      const auto begin = source.begin() + static_cast<std::ptrdiff_t>(r * width);
      target.insert(target.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  };
  copy(from.values, to.values, from.width);
  copy(from.q, to.q, from.width);
  copy(from.scales, to.scales, from.groups());
  return to;
}

}  // namespace myriad
