#include "gateway/stop_strings.h"

#include <algorithm>
#include <utility>

namespace myriad {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    Matcher m{std::move(stop), {}, 0};
    m.fallback.assign(m.stop.size() + 1, 0);
    for (std::size_t i = 1, border = 0; i < m.stop.size(); ++i) {
      while (border > 0 && m.stop[i] != m.stop[border]) border = m.fallback[border];
      if (m.stop[i] == m.stop[border]) ++border;
      m.fallback[i + 1] = border;
    }
    matchers_.push_back(std::move(m));
  }
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  if (matchers_.empty()) return std::string(text);
  held_.append(text);
  std::size_t matched_most = 0;
  for (std::size_t i = held_.size() - text.size(); i < held_.size(); ++i) {
    std::size_t complete = 0;
    matched_most = 0;
    for (Matcher& m : matchers_) {
      while (m.matched > 0 && m.stop[m.matched] != held_[i]) m.matched = m.fallback[m.matched];
      if (m.stop[m.matched] == held_[i]) ++m.matched;
      matched_most = std::max(matched_most, m.matched);
      if (m.matched == m.stop.size()) complete = std::max(complete, m.matched);
    }
    if (complete > 0) {
      stopped_ = true;
      std::string out = held_.substr(0, i + 1 - complete);
      held_.clear();
      return out;
    }
  }
  if (text.empty()) return {};
  std::string out = held_.substr(0, held_.size() - matched_most);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::flush() {
  for (Matcher& m : matchers_) m.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace myriad
