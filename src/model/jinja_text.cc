#include "model/jinja_text.h"

#include <algorithm>
#include <utility>

namespace myriad::jinja {

Status Budget::status() const {
  if (full_) {
    return fail(Code::limit, "the values of the evaluation occupy more than {} MiB", kMaxLiveBytes >> 20);
  }
  if (steps_ >= kMaxSteps) return fail(Code::limit, "the evaluation takes more than {} steps", kMaxSteps);
  return {};
}

bool Text::control_at(std::size_t offset) const {
  const auto before = std::upper_bound(changes_.begin(), changes_.end(), offset) - changes_.begin();
  return control_ != (before % 2 == 1);
}

bool TextBuilder::reserve(std::size_t bytes) {
  if (bytes > kMaxTextBytes - bytes_.size()) too_long_ = true;
  if (too_long_ || !budget_->work(bytes)) return false;
  taken_ += bytes;
  return budget_->take(bytes);
}

void TextBuilder::mark(bool control) {
  if (bytes_.empty()) {
    control_ = last_ = control;
  } else if (control != last_) {
    changes_.push_back(static_cast<std::uint32_t>(bytes_.size()));
    taken_ += sizeof changes_[0];
    budget_->take(sizeof changes_[0]);
    last_ = control;
  }
}

void TextBuilder::append(std::string_view bytes, bool control) {
  if (bytes.empty() || !reserve(bytes.size())) return;
  mark(control);
  bytes_ += bytes;
}

void TextBuilder::append(const Text& text, std::size_t from, std::size_t to) {
  if (from >= to || !reserve(to - from)) return;
  bool control = text.control_at(from);
  const auto& changes = text.changes();
  for (auto next = std::upper_bound(changes.begin(), changes.end(), from); from < to; ++next, control = !control) {
    const std::size_t end = next == changes.end() ? to : std::min<std::size_t>(*next, to);
    mark(control);
    bytes_.append(text.bytes(), from, end - from);
    from = end;
    if (next == changes.end()) break;
  }
}

Result<TextPtr> TextBuilder::finish() && {
  if (too_long_) return fail(Code::limit, "a string would have more than {} MiB", kMaxTextBytes >> 20);
  MYRIAD_TRY_STATUS(budget_->status());
  const std::shared_ptr<Text> text(new Text());
  text->bytes_ = std::move(bytes_);
  text->control_ = control_;
  text->changes_ = std::move(changes_);
  text->budget_ = budget_;
  budget_->take(text->cost());
  return text;
}

Result<std::vector<Segment>> TextBuilder::finish_segments() && {
  MYRIAD_TRY(const TextPtr text, std::move(*this).finish());
  std::vector<Segment> segments;
  bool control = text->starts_control();
  std::size_t from = 0;
  const auto add = [&](std::size_t to) {
    if (to > from) segments.push_back({text->bytes().substr(from, to - from), control});
    control = !control;
    from = to;
  };
  for (const std::uint32_t change : text->changes()) add(change);
  add(text->bytes().size());
  return segments;
}

}  // namespace myriad::jinja
