// The functions that templates find: namespace, range, dict, raise_exception, strftime_now.
#include <array>
#include <string>

#include "model/jinja_print.h"
#include "model/jinja_tables.h"

namespace myriad::jinja {
namespace {

Result<Value> make_dict(Heap& heap, const Value&, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return fail(Code::invalid_argument, "dict takes at most one argument");
  Dict* made = heap.dict();
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (const auto* dict = std::get_if<Dict*>(&source)) {
      for (const auto& [key, value] : (*dict)->members()) MYRIAD_TRY_STATUS(heap.set(made, key, value));
    } else {
      MYRIAD_TRY(const List* const pairs, elements(source, heap));
      for (const Value& pair : pairs->items) {
        const auto* parts = std::get_if<List*>(&pair);
        if (parts == nullptr || (*parts)->items.size() != 2) {
          return fail(Code::invalid_argument, "dict: an element of the list is no pair");
        }
        MYRIAD_TRY_STATUS(heap.set(made, (*parts)->items[0], (*parts)->items[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) {
    MYRIAD_TRY(Value key, heap.text(*name, true));
    MYRIAD_TRY_STATUS(heap.set(made, std::move(key), value));
  }
  return made;
}

Result<Value> make_namespace(Heap& heap, const Value& self, const Arguments& arguments) {
  MYRIAD_TRY(const Value members, make_dict(heap, self, arguments));
  return heap.make(heap.namespaces(), Namespace{std::get<Dict*>(members)});
}

Result<Value> range(Heap& heap, const Value&, const Arguments& arguments) {
  const std::size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) {
    return fail(Code::invalid_argument, "range takes one to three numbers");
  }
  std::array<std::int64_t, 3> numbers{0, 0, 1};
  for (std::size_t i = 0; i < count; ++i) {
    if (is<Undefined>(arguments.positional[i])) return undefined_error(arguments.positional[i]);
    if (!as_integer(arguments.positional[i], numbers[count == 1 ? 1 : i])) {
      return fail(Code::invalid_argument, "range: a {} is no integer", type_name(arguments.positional[i]));
    }
  }
  const auto [start, stop, step] = numbers;
  if (step == 0) return fail(Code::invalid_argument, "range: the step is 0");
  List* made = heap.list();
  std::int64_t value = start;
  for (std::int64_t n = 0; step > 0 ? value < stop : value > stop; ++n) {
    if (n == kMaxRange) return fail(Code::limit, "range gives more than {} numbers", kMaxRange);
    if (!heap.budget().step()) break;
    heap.append(made, value);
    if (__builtin_add_overflow(value, step, &value)) break;
  }
  MYRIAD_TRY_STATUS(heap.budget().status());
  return made;
}

Result<Value> raise_exception(Heap& heap, const Value&, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("raise_exception", arguments, {"message"}, 1));
  MYRIAD_TRY(const TextPtr message, str(*bound[0], heap.budget()));
  heap.set_refused();
  return fail(Code::invalid_argument, "{}", message->bytes().substr(0, 1000));
}

// strftime's directives whose meaning needs no locale and no time zone.
Result<std::string> time_text(std::string_view format, std::chrono::local_seconds now) {
  static constexpr std::array<const char*, 7> kDays{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                    "Thursday", "Friday", "Saturday"};
  static constexpr std::array<const char*, 12> kMonths{"January",   "February", "March",    "April",
                                                       "May",       "June",     "July",     "August",
                                                       "September", "October",  "November", "December"};
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(now - day);
  const unsigned weekday = std::chrono::weekday(day).c_encoding();
  const int year = static_cast<int>(date.year());
  const unsigned month = static_cast<unsigned>(date.month());
  const auto hour = time.hours().count(), minute = time.minutes().count(), second = time.seconds().count();
  const auto year_day = (day - std::chrono::local_days(date.year() / 1 / 1)).count() + 1;
  const auto hour12 = hour % 12 == 0 ? 12 : hour % 12;
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    const bool bare = at + 1 < format.size() && format[at + 1] == '-';  // without the leading zero
    at += bare ? 2 : 1;
    const auto two = [&](auto number) { out += bare ? fmt::format("{}", number) : fmt::format("{:02}", number); };
    switch (at < format.size() ? format[at] : '\0') {
      case 'Y':
        out += std::to_string(year);
        break;
      case 'y':
        two(year % 100);
        break;
      case 'm':
        two(month);
        break;
      case 'd':
        two(static_cast<unsigned>(date.day()));
        break;
      case 'e':
        out += fmt::format("{:>{}}", static_cast<unsigned>(date.day()), bare ? 1 : 2);
        break;
      case 'H':
        two(hour);
        break;
      case 'I':
        two(hour12);
        break;
      case 'M':
        two(minute);
        break;
      case 'S':
        two(second);
        break;
      case 'p':
        out += hour < 12 ? "AM" : "PM";
        break;
      case 'j':
        out += bare ? std::to_string(year_day) : fmt::format("{:03}", year_day);
        break;
      case 'A':
        out += kDays[weekday];
        break;
      case 'a':
        out += std::string_view(kDays[weekday]).substr(0, 3);
        break;
      case 'B':
        out += kMonths[month - 1];
        break;
      case 'b':
      case 'h':
        out += std::string_view(kMonths[month - 1]).substr(0, 3);
        break;
      case 'F':
        out += fmt::format("{}-{:02}-{:02}", year, month, static_cast<unsigned>(date.day()));
        break;
      case 'D':
        out += fmt::format("{:02}/{:02}/{:02}", month, static_cast<unsigned>(date.day()), year % 100);
        break;
      case 'T':
        out += fmt::format("{:02}:{:02}:{:02}", hour, minute, second);
        break;
      case 'R':
        out += fmt::format("{:02}:{:02}", hour, minute);
        break;
      case 'w':
        out += std::to_string(weekday);
        break;
      case 'u':
        out += std::to_string(weekday == 0 ? 7 : weekday);
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case '%':
        out += '%';
        break;
      default:
        return fail(Code::unsupported, "strftime_now: a directive of '{}'", format.substr(0, 60));
    }
  }
  return out;
}

Result<Value> strftime_now(Heap& heap, const Value&, const Arguments& arguments) {
  MYRIAD_TRY(const Bound bound, Bound::of("strftime_now", arguments, {"format"}, 1));
  MYRIAD_TRY(const TextPtr format, bound.text(0, nullptr));
  if (format == nullptr) return fail(Code::invalid_argument, "strftime_now: None is no format");
  if (format->bytes().size() > 1000) return fail(Code::limit, "strftime_now: a format of more than 1000 bytes");
  MYRIAD_TRY(const std::string text, time_text(format->bytes(), heap.now()));
  return heap.text(text, format->all_control());
}

template <const char* const& Name>
Result<Value> unsupported(Heap&, const Value&, const Arguments&) {
  return fail(Code::unsupported, "the function '{}'", Name);
}
constexpr const char* const kCycler = "cycler";
constexpr const char* const kJoiner = "joiner";
constexpr const char* const kLipsum = "lipsum";

constexpr std::array<Entry<Function>, 8> kGlobals{{
    {"cycler", unsupported<kCycler>},
    {"dict", make_dict},
    {"joiner", unsupported<kJoiner>},
    {"lipsum", unsupported<kLipsum>},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
}};
static_assert(is_sorted(kGlobals));

}  // namespace

Function find_global(std::string_view name) {
  return find_entry(kGlobals, name);
}

}  // namespace myriad::jinja
