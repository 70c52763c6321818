// The tables behind find_filter and find_method, each in the file of what it lists.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/jinja_callable.h"

namespace myriad::jinja {

template <class F>
using Entry = std::pair<std::string_view, F>;

// Tables are sorted by name.
template <class F, std::size_t N>
F find_entry(const std::array<Entry<F>, N>& table, std::string_view name) {
  const auto at = std::lower_bound(table.begin(), table.end(), name,
                                   [](const Entry<F>& entry, std::string_view wanted) { return entry.first < wanted; });
  return at != table.end() && at->first == name ? at->second : nullptr;
}
template <class F, std::size_t N>
constexpr bool is_sorted(const std::array<Entry<F>, N>& table) {
  for (std::size_t i = 1; i < N; ++i) {
    if (table[i - 1].first >= table[i].first) return false;
  }
  return true;
}

Function find_string_method(std::string_view name, bool& exists);
Function find_text_filter(std::string_view name);
Function find_list_filter(std::string_view name);

}  // namespace myriad::jinja
