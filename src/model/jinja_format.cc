// The operator % of strings.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>

#include "model/jinja_print.h"
#include "model/jinja_strings.h"
#include "model/jinja_unicode.h"

namespace myriad::jinja {
namespace {

constexpr int kMaxWidth = 1000;

struct Directive {
  bool left = false, plus = false, space = false, zero = false;
  int width = 0, precision = -1;
  char letter = 0;
};

// Reads up to the letter; `at` is after the '%'. Errors: invalid_argument, limit.
Result<Directive> read_directive(std::string_view format, std::size_t& at) {
  Directive made;
  const auto peek = [&] { return at < format.size() ? format[at] : '\0'; };
  for (;; ++at) {
    if (peek() == '-') {
      made.left = true;
    } else if (peek() == '+') {
      made.plus = true;
    } else if (peek() == ' ') {
      made.space = true;
    } else if (peek() == '0') {
      made.zero = true;
    } else {
      break;
    }
  }
  const auto number = [&](int& out) -> Status {
    out = 0;
    while (peek() >= '0' && peek() <= '9') {
      out = out * 10 + (format[at++] - '0');
      if (out > kMaxWidth) return fail(Code::limit, "a format asks for more than {} characters", kMaxWidth);
    }
    return {};
  };
  MYRIAD_TRY_STATUS(number(made.width));
  if (peek() == '.') {
    ++at;
    MYRIAD_TRY_STATUS(number(made.precision));
  }
  if (at >= format.size()) return fail(Code::invalid_argument, "a format ends after '%'");
  made.letter = format[at++];
  return made;
}

Result<std::string> number_text(const Directive& directive, const Value& value) {
  std::string digits;
  bool negative = false;
  if (std::string_view("diuxXo").find(directive.letter) != std::string_view::npos) {
    std::int64_t integer = 0;
    if (const auto* real = std::get_if<double>(&value); real != nullptr && std::abs(*real) < 0x1p62) {
      integer = static_cast<std::int64_t>(*real);
    } else if (!as_integer(value, integer)) {
      return fail(Code::invalid_argument, "a format asks for a number, a value of type {} is given", type_name(value));
    }
    negative = integer < 0;
    const std::uint64_t magnitude =
        negative ? ~static_cast<std::uint64_t>(integer) + 1 : static_cast<std::uint64_t>(integer);
    switch (directive.letter) {
      case 'x':
        digits = fmt::format("{:x}", magnitude);
        break;
      case 'X':
        digits = fmt::format("{:X}", magnitude);
        break;
      case 'o':
        digits = fmt::format("{:o}", magnitude);
        break;
      default:
        digits = std::to_string(magnitude);
    }
    if (directive.precision > static_cast<int>(digits.size())) {
      digits.insert(0, static_cast<std::size_t>(directive.precision) - digits.size(), '0');
    }
  } else {
    double real = 0;
    if (!as_number(value, real)) {
      return fail(Code::invalid_argument, "a format asks for a number, a value of type {} is given", type_name(value));
    }
    negative = std::signbit(real) && !std::isnan(real);
    const std::array<char, 5> format{'%', '.', '*', directive.letter, '\0'};
    std::array<char, kMaxWidth + 400> buffer{};
    const int length = std::snprintf(buffer.data(), buffer.size(), format.data(),
                                     directive.precision < 0 ? 6 : directive.precision, std::abs(real));
    digits.assign(buffer.data(), static_cast<std::size_t>(length));
  }
  const std::string sign = negative ? "-" : directive.plus ? "+" : directive.space ? " " : "";
  const std::size_t width = sign.size() + digits.size();
  if (directive.zero && !directive.left && static_cast<std::size_t>(directive.width) > width) {
    digits.insert(0, static_cast<std::size_t>(directive.width) - width, '0');
  }
  return sign + digits;
}

class Formatter {
 public:
  Formatter(const Text& format, const Value& values, Heap& heap)
      : format_(format), heap_(heap), out_(heap.budget()), single_(&values) {
    if (const auto* list = std::get_if<List*>(&values); list != nullptr && (*list)->kind == List::Kind::tuple) {
      several_ = *list;
    }
  }

  Result<Value> run() {
    const std::string& bytes = format_.bytes();
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t percent = std::min(bytes.find('%', at), bytes.size());
      out_.append(format_, at, percent);
      if (percent == bytes.size()) break;
      at = percent + 1;
      MYRIAD_TRY(const Directive directive, read_directive(bytes, at));
      if (directive.letter == '%') {
        out_.append(format_, at - 1, at);
      } else {
        MYRIAD_TRY_STATUS(write(directive, format_.control_at(percent)));
      }
    }
    // What could be asked for members may be left over.
    const auto* list = std::get_if<List*>(single_);
    const bool scalar = list == nullptr ? !is<Dict*>(*single_) && !is<Undefined>(*single_) : !(*list)->has_positions();
    const bool left_over = several_ != nullptr ? used_ < several_->items.size() : used_ == 0 && scalar;
    if (left_over) return fail(Code::invalid_argument, "a format asks for fewer values than are given");
    return std::move(out_).finish();
  }

 private:
  Status write(const Directive& directive, bool control) {
    const std::size_t count = several_ != nullptr ? several_->items.size() : 1;
    if (used_ >= count) return fail(Code::invalid_argument, "a format asks for more values than are given");
    const Value& value = several_ != nullptr ? several_->items[used_] : *single_;
    ++used_;
    if (std::string_view("diuxXofFeEgG").find(directive.letter) != std::string_view::npos) {
      MYRIAD_TRY(const std::string text, number_text(directive, value));
      const Text number(text, true);
      return padded(directive, number, control);
    }
    if (directive.letter != 's') return fail(Code::unsupported, "the format '%{}'", directive.letter);
    MYRIAD_TRY(const TextPtr text, str(value, heap_.budget()));
    if (directive.precision < 0) return padded(directive, *text, control);
    heap_.budget().work(text->bytes().size());
    const std::size_t end = offset_of_character(text->bytes(), static_cast<std::size_t>(directive.precision));
    MYRIAD_TRY(const Value part, part_of(*text, 0, end, heap_));
    return padded(directive, *text_of(part), control);
  }

  Status padded(const Directive& directive, const Text& text, bool control) {
    const auto width = static_cast<std::size_t>(directive.width);
    const std::size_t length = width == 0 ? 0 : count_characters(text.bytes());
    const std::string space(width > length ? width - length : 0, ' ');
    if (!directive.left) out_.append(space, control);
    out_.append(text);
    if (directive.left) out_.append(space, control);
    return heap_.budget().status();
  }

  const Text& format_;
  Heap& heap_;
  TextBuilder out_;
  const Value* single_;
  const List* several_ = nullptr;
  std::size_t used_ = 0;
};

}  // namespace

Result<Value> format_percent(const Text& format, const Value& values, Heap& heap) {
  return Formatter(format, values, heap).run();
}

}  // namespace myriad::jinja
