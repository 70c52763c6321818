// Strings that know where they came from. Each byte is either `control`, written by the template's author, or plain,
// taken from the request. Only control bytes may become special tokens: whoever writes `<|im_end|>` into a message gets
// its letters. Every operation of the evaluator carries the mark along with the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/chat_format.h"
#include "model/jinja_budget.h"

namespace myriad::jinja {

// An immutable string. At most kMaxTextBytes long.
class Text {
 public:
  // Text of the syntax tree, which no evaluation pays for.
  Text(std::string bytes, bool control) : bytes_(std::move(bytes)), control_(control) {}
  ~Text() {
    if (budget_ != nullptr) budget_->give(cost());
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  [[nodiscard]] bool control_at(std::size_t offset) const;
  // The offsets, ascending, at which the mark changes; the first byte's mark is `starts_control`.
  [[nodiscard]] bool starts_control() const { return control_; }
  [[nodiscard]] const std::vector<std::uint32_t>& changes() const { return changes_; }
  // Whether all bytes are control.
  [[nodiscard]] bool all_control() const { return control_ && changes_.empty(); }

 private:
  friend class TextBuilder;
  Text() = default;
  [[nodiscard]] std::size_t cost() const { return bytes_.size() + changes_.size() * sizeof changes_[0] + sizeof *this; }

  std::string bytes_;
  bool control_ = false;
  std::vector<std::uint32_t> changes_;
  Budget* budget_ = nullptr;
};
using TextPtr = std::shared_ptr<const Text>;

// Makes a string piece by piece. What does not fit is left out, and finish() then says so.
class TextBuilder {
 public:
  explicit TextBuilder(Budget& budget) : budget_(&budget) {}
  ~TextBuilder() { budget_->give(taken_); }
  TextBuilder(const TextBuilder&) = delete;
  TextBuilder& operator=(const TextBuilder&) = delete;

  void append(std::string_view bytes, bool control);
  void append(const Text& text) { append(text, 0, text.bytes().size()); }
  // The bytes [from, to) of a text with their marks.
  void append(const Text& text, std::size_t from, std::size_t to);

  [[nodiscard]] const std::string& bytes() const { return bytes_; }
  // Errors: limit.
  Result<TextPtr> finish() &&;
  // The same as a list of pieces whose marks alternate.
  Result<std::vector<Segment>> finish_segments() &&;

 private:
  // Whether there is room for so many bytes more.
  bool reserve(std::size_t bytes);
  void mark(bool control);

  Budget* budget_;
  std::string bytes_;
  bool control_ = false;  // mark of the first byte
  bool last_ = false;     // mark of the last one
  std::vector<std::uint32_t> changes_;
  std::size_t taken_ = 0;
  bool too_long_ = false;
};

}  // namespace myriad::jinja
