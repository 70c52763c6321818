#include "model/template_reply.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace myriad {
namespace {

constexpr std::string_view kWhite = " \t\r\n";
constexpr std::string_view kSeparators = " \t\r\n;,";
constexpr std::size_t kMaxCallBytes = std::size_t{4} << 20;

std::size_t first_not_of(std::string_view text, std::string_view set) {
  return std::min(text.find_first_not_of(set), text.size());
}

// Mistral's templates take ids of nine letters and digits only.
std::string nine_letters(std::string_view seed) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : seed) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::string out;
  for (int i = 0; i < 9; ++i, hash /= kLetters.size()) out += kLetters[hash % kLetters.size()];
  return out;
}

}  // namespace

TemplateReply::TemplateReply(Options options, std::vector<MarkName> spelled)
    : options_(std::move(options)),
      spelled_(std::move(spelled)),
      reasoning_(options_.starts_with_reasoning),
      skip_white_(options_.starts_with_reasoning),
      bare_allowed_(options_.calls == CallSyntax::llama && !options_.tools.empty()) {}

void TemplateReply::text(std::string_view utf8) {
  held_ += utf8;
  for (;;) {
    std::size_t at = std::string::npos;
    const MarkName* found = nullptr;
    for (const MarkName& candidate : spelled_) {
      const std::size_t place = held_.find(candidate.name);
      if (place < at) {
        at = place;
        found = &candidate;
      }
    }
    if (found == nullptr) break;
    const std::string before = held_.substr(0, at);
    held_.erase(0, at + found->name.size());
    plain(before);
    mark(*found);
  }
  // The longest end that may become a mark stays.
  std::size_t keep = 0;
  for (const MarkName& candidate : spelled_) {
    for (std::size_t n = std::min(candidate.name.size() - 1, held_.size()); n > keep; --n) {
      if (held_.ends_with(candidate.name.substr(0, n))) keep = n;
    }
  }
  const std::string ready = held_.substr(0, held_.size() - keep);
  held_.erase(0, ready.size());
  plain(ready);
}

void TemplateReply::token(std::string_view name) {
  if (!body_) return;
  plain(std::exchange(held_, {}));
  plain(name);
}

void TemplateReply::mark(const MarkName& mark) {
  // Text that is still held back stands before a mark that is a token. One that is spelled has taken its text away.
  if (std::none_of(spelled_.begin(), spelled_.end(), [&](const MarkName& m) { return m.name == mark.name; })) {
    plain(std::exchange(held_, {}));
  }
  switch (mark.mark) {
    case ReplyMark::think:
      if (body_) close_body({});
      blank_.clear();
      reasoning_ = skip_white_ = true;
      break;
    case ReplyMark::end_think:
      if (body_ || !reasoning_) {
        plain(mark.name);
      } else {
        leave_reasoning();
      }
      break;
    case ReplyMark::section:
    case ReplyMark::end_section:
      if (body_) close_body({});
      leave_reasoning();
      break;
    case ReplyMark::call:
      if (reasoning_ && options_.calls == CallSyntax::hermes) {
        plain(mark.name);  // the model thinks about it
        break;
      }
      if (body_) close_body({});
      {
        std::string before = reasoning_ ? std::string() : std::exchange(blank_, {});
        leave_reasoning();
        open_body(std::move(before.append(mark.name)), false);
      }
      break;
    case ReplyMark::end_call:
      if (body_) {
        close_body(mark.name);
      } else {
        plain(mark.name);
      }
      break;
  }
}

void TemplateReply::end() {
  plain(std::exchange(held_, {}));
  if (body_) close_body({});
  give(std::exchange(blank_, {}));
}

void TemplateReply::leave_reasoning() {
  blank_.clear();
  reasoning_ = false;
  skip_white_ = true;
}

void TemplateReply::plain(std::string_view utf8) {
  while (!utf8.empty()) {
    const std::size_t taken = body_ ? take_body(utf8) : take_answer(utf8);
    utf8.remove_prefix(taken);
  }
}

std::size_t TemplateReply::take_answer(std::string_view utf8) {
  if (reasoning_ || !bare_allowed_) {
    put(utf8);
    return utf8.size();
  }
  const std::size_t start = first_not_of(utf8, after_call_ ? kSeparators : kWhite);
  if (start == utf8.size()) {
    if (!after_call_) put(utf8);
    return start;
  }
  if (utf8[start] == '{') {
    if (!after_call_) put(utf8.substr(0, start));
    open_body({}, true);
    return start;
  }
  bare_allowed_ = false;
  put(after_call_ ? utf8.substr(start) : utf8);
  return utf8.size();
}

void TemplateReply::open_body(std::string before, bool bare) {
  body_ = Body{};
  body_->before = std::move(before);
  body_->bare = bare;
}

std::size_t TemplateReply::take_body(std::string_view utf8) {
  Body& body = *body_;
  const bool ends_itself = options_.calls == CallSyntax::llama || options_.calls == CallSyntax::mistral;
  if (body.text.size() + utf8.size() > kMaxCallBytes) {
    body.text += utf8;
    close_body({});
    return utf8.size();
  }
  if (!ends_itself) {
    body.text += utf8;
    return utf8.size();
  }
  const std::size_t old = body.text.size();
  body.text += utf8;
  Scan& scan = body.scan;
  if (scan.program) return utf8.size();
  for (; scan.at < body.text.size(); ++scan.at) {
    const char c = body.text[scan.at];
    if (!scan.begun) {
      // Llama's calls in the form of a program have no end of their own; Mistral's begin with a list or with a name.
      if (options_.calls == CallSyntax::llama && c != '{' && kWhite.find(c) == std::string_view::npos) {
        scan.program = true;
        return utf8.size();
      }
      const bool first = first_not_of(body.text, kWhite) == scan.at;
      if (c != '{' && !(c == '[' && first)) continue;
      scan.begun = true;
      scan.depth = 1;
    } else if (scan.escaped) {
      scan.escaped = false;
    } else if (scan.in_string) {
      scan.escaped = c == '\\';
      scan.in_string = c != '"';
    } else if (c == '"') {
      scan.in_string = true;
    } else if (c == '{' || c == '[') {
      ++scan.depth;
    } else if ((c == '}' || c == ']') && --scan.depth == 0) {
      const std::size_t end = ++scan.at;
      body.text.erase(end);
      close_body({});
      return end - old;
    }
  }
  if (body.bare && !may_be_bare_call()) close_body({});
  return utf8.size();
}

// Whether the first member has a name that a call's may have: an answer in JSON shall not wait for its end.
bool TemplateReply::may_be_bare_call() const {
  constexpr std::array<std::string_view, 6> kKeys{"name", "type", "function", "parameters", "arguments", "id"};
  std::string_view rest = std::string_view(body_->text).substr(1);
  rest.remove_prefix(first_not_of(rest, kWhite));
  if (rest.empty()) return true;
  if (rest.front() != '"') return false;
  rest.remove_prefix(1);
  const std::size_t quote = rest.find('"');
  return std::any_of(kKeys.begin(), kKeys.end(), [&](std::string_view key) {
    return quote == std::string_view::npos ? key.starts_with(rest) : key == rest.substr(0, quote);
  });
}

void TemplateReply::close_body(std::string_view end_mark) {
  Body body = std::move(*body_);
  body_.reset();
  std::vector<WrittenCall> calls = read_calls(options_.calls, body.text);
  if (body.bare && !std::all_of(calls.begin(), calls.end(), [&](const WrittenCall& call) {
        return std::find(options_.tools.begin(), options_.tools.end(), call.name) != options_.tools.end();
      })) {
    calls.clear();
  }
  if (calls.empty()) {
    bare_allowed_ = false;
    if (!body.bare) skip_white_ = false;
    put(body.before);
    put(body.text);
    put(end_mark);
    return;
  }
  for (WrittenCall& call : calls) give_call(std::move(call));
  blank_.clear();
  skip_white_ = true;
  after_call_ = options_.calls == CallSyntax::llama;
  bare_allowed_ = after_call_ && !options_.tools.empty();
}

void TemplateReply::put(std::string_view utf8) {
  if (skip_white_) {
    utf8.remove_prefix(first_not_of(utf8, kWhite));
    if (utf8.empty()) return;
    skip_white_ = false;
  }
  if (utf8.empty()) return;
  const bool mark_may_follow = reasoning_ || options_.calls != CallSyntax::none;
  const std::size_t last = mark_may_follow ? utf8.find_last_not_of(kWhite) : utf8.size() - 1;
  if (last == std::string_view::npos) {
    blank_ += utf8;
    return;
  }
  give(std::exchange(blank_, {}) + std::string(utf8.substr(0, last + 1)));
  blank_ = utf8.substr(last + 1);
}

void TemplateReply::give(std::string_view utf8) {
  if (utf8.empty()) return;
  const auto kind = reasoning_ ? ReplyEvent::Kind::reasoning : ReplyEvent::Kind::content;
  if (!events_.empty() && events_.back().kind == kind) {
    events_.back().text += utf8;
  } else {
    events_.push_back({.kind = kind, .text = std::string(utf8)});
  }
}

void TemplateReply::give_call(WrittenCall call) {
  const int index = calls_++;
  if (call.id.empty()) {
    call.id = options_.call_id_prefix + std::to_string(index);
    if (options_.calls == CallSyntax::mistral) call.id = nine_letters(call.id);
  }
  events_.push_back(
      {.kind = ReplyEvent::Kind::tool_call, .index = index, .id = std::move(call.id), .name = std::move(call.name)});
  events_.push_back({.kind = ReplyEvent::Kind::tool_call_arguments, .text = call.arguments, .index = index});
  events_.push_back({.kind = ReplyEvent::Kind::tool_call_end, .text = std::move(call.arguments), .index = index});
}

}  // namespace myriad
