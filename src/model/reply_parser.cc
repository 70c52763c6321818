#include "model/reply_parser.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "model/json_text.h"

namespace myriad {
namespace {

constexpr std::size_t kMaxTagBytes = 4096;
constexpr std::array<std::string_view, 7> kTags{"message", "think", "response", "tools", "call", "argument", "json"};
constexpr std::string_view kWhite = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

struct ParsedTag {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  // Null if there is no such attribute.
  [[nodiscard]] const std::string* attribute(std::string_view key) const {
    for (const auto& [k, value] : attributes) {
      if (k == key) return &value;
    }
    return nullptr;
  }
};

std::string unescaped(std::string_view value) {
  std::string out;
  while (!value.empty()) {
    if (value.starts_with("&quot;")) {
      out += '"';
      value.remove_prefix(6);
    } else if (value.starts_with("&amp;")) {
      out += '&';
      value.remove_prefix(5);
    } else {
      out += value.front();
      value.remove_prefix(1);
    }
  }
  return out;
}

// name ( key="value")*
std::optional<ParsedTag> parse_tag(std::string_view text) {
  text = trimmed(text);
  ParsedTag tag;
  const std::size_t name_end = std::min(text.find_first_of(kWhite), text.size());
  tag.name = text.substr(0, name_end);
  text.remove_prefix(name_end);
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const std::size_t equals = text.find("=\"");
    if (equals == std::string_view::npos) return std::nullopt;
    const std::size_t quote = text.find('"', equals + 2);
    if (quote == std::string_view::npos) return std::nullopt;
    tag.attributes.emplace_back(text.substr(0, equals), unescaped(text.substr(equals + 2, quote - equals - 2)));
    text.remove_prefix(quote + 1);
  }
  return tag;
}

// A typed argument as JSON: as it was written if it is JSON of that type, otherwise as a string.
std::string argument_json(std::string_view type, std::string_view value) {
  if (type == "number" || type == "boolean" || type == "null" || type == "object" || type == "array") {
    const auto parsed = nlohmann::json::parse(value, nullptr, false);
    if (!parsed.is_discarded() && type == parsed.type_name()) return std::string(trimmed(value));
  }
  return json_quoted(value);
}

}  // namespace

ReplyParser::ReplyParser(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      stop_ids_(chat_stop_ids(tokenizer, options_.format)),
      place_(options_.starts_with_reasoning ? Place::reasoning : Place::content) {
  const bool k3 = options_.format == ChatFormat::kimi_k3;
  const auto id = [&](bool wanted, std::string_view name) {
    return wanted ? tokenizer.special_id(name).value_or(-1) : -1;
  };
  open_ = id(k3, "<|open|>");
  close_ = id(k3, "<|close|>");
  sep_ = id(k3, "<|sep|>");
  section_begin_ = id(!k3, "<|tool_calls_section_begin|>");
  section_end_ = id(!k3, "<|tool_calls_section_end|>");
  call_begin_ = id(!k3, "<|tool_call_begin|>");
  call_argument_ = id(!k3, "<|tool_call_argument_begin|>");
  call_end_ = id(!k3, "<|tool_call_end|>");
  think_ = id(!k3, "<think>");
  end_think_ = id(!k3, "</think>");
  if (options_.format != ChatFormat::templated) return;
  std::vector<MarkName> spelled;
  for (const MarkName& mark : marks_of(options_.calls, options_.thinks || options_.starts_with_reasoning)) {
    if (const auto token = tokenizer.special_id(mark.name)) {
      marks_.emplace_back(*token, mark);
    } else {
      spelled.push_back(mark);
    }
  }
  templated_.emplace(TemplateReply::Options{.calls = options_.calls,
                                            .thinks = options_.thinks,
                                            .starts_with_reasoning = options_.starts_with_reasoning,
                                            .tools = options_.tools,
                                            .call_id_prefix = options_.call_id_prefix},
                     std::move(spelled));
}

std::vector<ReplyEvent> ReplyParser::push(std::span<const std::int32_t> ids) {
  for (const std::int32_t id : ids) {
    if (finished_) break;
    if (std::find(stop_ids_.begin(), stop_ids_.end(), id) != stop_ids_.end()) {
      end(true);
    } else if (options_.format == ChatFormat::kimi_k3) {
      push_k3(id);
    } else if (templated_) {
      push_templated(id);
    } else {
      push_linear(id);
    }
  }
  return std::exchange(events_, {});
}

std::vector<ReplyEvent> ReplyParser::finish() {
  if (!finished_) end(false);
  return std::exchange(events_, {});
}

void ReplyParser::push_k3(std::int32_t id) {
  if (id < 0) return;  // the ids of control tokens that there are none of are −1
  if (id == open_ || id == close_) {
    if (tag_ == Tag::none) {
      end_text();
    } else {
      tag_as_text(false);
      end_text();
    }
    tag_ = id == open_ ? Tag::open : Tag::close;
    tag_text_.clear();
  } else if (id == sep_ && tag_ != Tag::none) {
    if (tag_ == Tag::open ? open_tag() : close_tag()) {
      tag_ = Tag::none;
      blank_.clear();
    } else {
      tag_as_text(true);
    }
  } else if (tag_ != Tag::none) {
    tag_text_ += tokenizer_.token_bytes(id);
    if (tag_text_.size() > kMaxTagBytes) tag_as_text(false);
  } else {
    text(tokenizer_.token_bytes(id));
  }
}

void ReplyParser::push_linear(std::int32_t id) {
  if (id < 0) return;
  if (id == think_ || id == end_think_) {
    end_text();
    if (call_.open) end_call();
    place_ = id == think_ ? Place::reasoning : Place::content;
  } else if (id == section_begin_ || id == section_end_) {
    end_text();
    if (call_.open) end_call();
    place_ = id == section_begin_ ? Place::structure : Place::content;
    blank_.clear();
  } else if (id == call_begin_) {
    end_text();
    if (call_.open) end_call();
    place_ = Place::call_id;
    value_.clear();
    blank_.clear();
  } else if (id == call_argument_ && place_ == Place::call_id) {
    end_text();
    const std::string call_id(trimmed(value_));
    begin_call(name_in_call_id(call_id), call_id);
    place_ = Place::raw_arguments;
    value_.clear();
  } else if (id == call_end_ && (call_.open || place_ == Place::call_id)) {
    end_text();
    if (!call_.open) {
      const std::string call_id(trimmed(value_));
      begin_call(name_in_call_id(call_id), call_id);
    }
    end_call();
  } else {
    text(tokenizer_.token_bytes(id));
  }
}

void ReplyParser::push_templated(std::int32_t id) {
  const auto mark = std::find_if(marks_.begin(), marks_.end(), [id](const auto& m) { return m.first == id; });
  if (mark != marks_.end()) {
    templated_->text(utf8_.flush());
    templated_->mark(mark->second);
  } else if (tokenizer_.is_special(id)) {
    templated_->text(utf8_.flush());
    templated_->token(tokenizer_.token_bytes(id));
  } else {
    templated_->text(utf8_.push(tokenizer_.token_bytes(id)));
  }
  for (ReplyEvent& event : templated_->take()) give(std::move(event));
}

void ReplyParser::text(std::string_view bytes) {
  put(utf8_.push(bytes));
}

void ReplyParser::end_text() {
  put(utf8_.flush());
}

void ReplyParser::put(std::string_view utf8) {
  if (utf8.empty()) return;
  switch (place_) {
    case Place::reasoning:
      give({.kind = ReplyEvent::Kind::reasoning, .text = std::string(utf8)});
      break;
    case Place::content:
      give({.kind = ReplyEvent::Kind::content, .text = std::string(utf8)});
      break;
    case Place::argument:
    case Place::raw_arguments:
    case Place::call_id:
      value_ += utf8;
      break;
    case Place::structure:
    case Place::call:
      blank_ += utf8;
      if (!trimmed(blank_).empty()) give({.kind = ReplyEvent::Kind::content, .text = std::exchange(blank_, {})});
      break;
  }
}

void ReplyParser::give(ReplyEvent event) {
  const bool continues = event.kind == ReplyEvent::Kind::reasoning || event.kind == ReplyEvent::Kind::content;
  if (continues && !events_.empty() && events_.back().kind == event.kind) {
    events_.back().text += event.text;
  } else {
    events_.push_back(std::move(event));
  }
}

bool ReplyParser::open_tag() {
  Utf8Stream clean;
  std::string tag_text = clean.push(tag_text_);
  tag_text += clean.flush();
  const auto tag = parse_tag(tag_text);
  if (!tag) return false;
  if (tag->name == "argument" && call_.open && tag->attribute("key") != nullptr) {
    end_argument();
    call_.key = *tag->attribute("key");
    call_.type = tag->attribute("type") != nullptr ? *tag->attribute("type") : "string";
    place_ = Place::argument;
    return true;
  }
  if (tag->name == "json" && call_.open) {
    end_argument();
    place_ = Place::raw_arguments;
    return true;
  }
  const std::string* tool = tag->name == "call" ? tag->attribute("tool") : nullptr;
  const bool channel =
      tag->name == "think" || tag->name == "response" || tag->name == "tools" || tag->name == "message";
  if (tool == nullptr && !channel) return false;
  // A channel or a call that was not closed ends where the next begins.
  if (call_.open) end_call();
  if (tool != nullptr) {
    begin_call(*tool, options_.call_id_prefix + std::to_string(calls_));
    place_ = Place::call;
  } else {
    place_ = tag->name == "think" ? Place::reasoning : tag->name == "response" ? Place::content : Place::structure;
  }
  return true;
}

bool ReplyParser::close_tag() {
  const std::string_view name = trimmed(tag_text_);
  if ((name == "argument" && place_ == Place::argument) || (name == "json" && place_ == Place::raw_arguments)) {
    end_argument();
    return true;
  }
  const bool known = (name == "think" && place_ == Place::reasoning) ||
                     (name == "response" && place_ == Place::content) || (name == "call" && call_.open) ||
                     name == "tools" || name == "message";
  if (!known) return false;
  if (call_.open) end_call();
  place_ = Place::structure;
  return true;
}

void ReplyParser::tag_as_text(bool with_end) {
  std::string all(tokenizer_.token_bytes(tag_ == Tag::open ? open_ : close_));
  all += tag_text_;
  if (with_end) all += tokenizer_.token_bytes(sep_);
  tag_ = Tag::none;
  tag_text_.clear();
  text(all);
}

void ReplyParser::begin_call(std::string_view name, std::string id) {
  call_ = {};
  call_.open = true;
  call_.index = calls_++;
  if (id.empty()) id = options_.call_id_prefix + std::to_string(call_.index);
  give({.kind = ReplyEvent::Kind::tool_call, .index = call_.index, .id = std::move(id), .name = std::string(name)});
}

void ReplyParser::end_argument() {
  if (place_ == Place::raw_arguments && call_.arguments.empty()) {
    call_.raw = true;
    if (!value_.empty()) give_arguments(std::move(value_));
  } else if (place_ == Place::argument || (place_ == Place::raw_arguments && !call_.raw)) {
    // One text after single arguments is the value of one more.
    const bool raw = place_ == Place::raw_arguments;
    give_arguments(fmt::format("{}{}: {}", call_.arguments.empty() || call_.raw ? "{" : ", ",
                               json_quoted(raw ? "json" : call_.key),
                               argument_json(raw ? "object" : call_.type, value_)));
    call_.raw = false;
  } else if (place_ == Place::raw_arguments) {
    give_arguments(std::move(value_));
  }
  value_.clear();
  place_ = Place::call;
}

void ReplyParser::end_call() {
  end_argument();
  if (call_.arguments.empty()) {
    give_arguments("{}");
  } else if (!call_.raw) {
    give_arguments("}");
  }
  give({.kind = ReplyEvent::Kind::tool_call_end, .text = std::move(call_.arguments), .index = call_.index});
  call_ = {};
  place_ = Place::structure;
}

void ReplyParser::give_arguments(std::string piece) {
  call_.arguments += piece;
  give({.kind = ReplyEvent::Kind::tool_call_arguments, .text = std::move(piece), .index = call_.index});
}

void ReplyParser::end(bool complete) {
  if (templated_) {
    templated_->text(utf8_.flush());
    templated_->end();
    for (ReplyEvent& event : templated_->take()) give(std::move(event));
    give({.kind = ReplyEvent::Kind::finished, .complete = complete});
    finished_ = true;
    return;
  }
  if (tag_ != Tag::none) {
    // The beginning of a tag that was cut off is not text; anything else is.
    const std::string_view word =
        std::string_view(tag_text_).substr(0, std::min(tag_text_.find(' '), tag_text_.size()));
    const bool cut_off =
        std::any_of(kTags.begin(), kTags.end(), [&](std::string_view name) { return name.starts_with(word); });
    if (cut_off) {
      tag_ = Tag::none;
    } else {
      tag_as_text(false);
    }
  }
  end_text();
  if (place_ == Place::call_id && !value_.empty()) {
    place_ = Place::structure;
    put(std::exchange(value_, {}));  // a call that never got beyond its id
  }
  if (call_.open) end_call();
  give({.kind = ReplyEvent::Kind::finished, .complete = complete});
  finished_ = true;
}

}  // namespace myriad
