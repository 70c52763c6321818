// Ends a text at the first stop string, however the text is cut into pieces, and lets out everything that can no longer
// become part of one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace myriad {

// The text ends where first any stop string is complete; what stays is all before that string (of several that are
// complete at the same place the longest counts). Matching is by bytes: as stop strings and text are whole UTF-8
// characters, so is what is let out.
class StopStrings {
 public:
  // None of the stops may be empty.
  explicit StopStrings(std::vector<std::string> stops);

  // The next piece of the text, whole characters; returns what may be shown now. After a match always nothing.
  std::string push(std::string_view text);
  // The text is over (or goes on elsewhere) without a match: returns what was held back. Matching starts anew.
  std::string flush();
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  // Knuth, Morris and Pratt's automaton: `fallback[i]` is the length of the longest proper border of the first i bytes.
  struct Matcher {
    std::string stop;
    std::vector<std::size_t> fallback;
    std::size_t matched = 0;
  };
  std::vector<Matcher> matchers_;
  std::string held_;  // the longest end of the text so far that is the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace myriad
