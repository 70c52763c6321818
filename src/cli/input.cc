#include "cli/input.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>

#include "model/utf8_stream.h"
#include "part/file_io.h"

namespace myriad::cli {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Four hexadecimal digits at the beginning of `text`; −1 if they are not there.
std::int32_t four_hex_digits(std::string_view text) {
  std::int32_t value = 0;
  if (text.size() < 4) return -1;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + 4, value, 16);
  return ec == std::errc() && end == text.data() + 4 && text.front() != '-' ? value : -1;
}

}  // namespace

std::string lower_case(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view text, std::string_view what) {
  std::string_view rest = trimmed(text);
  if (rest.starts_with('[')) {
    if (!rest.ends_with(']'))
      return fail(Code::invalid_argument, "reading {}: the list begins with '[' and does not end with ']'", what);
    rest = trimmed(rest.substr(1, rest.size() - 2));
  }
  std::vector<std::int32_t> ids;
  while (!rest.empty()) {
    std::int32_t id = 0;
    const auto [end, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), id);
    if (ec != std::errc())
      return fail(Code::invalid_argument, "reading {}: found '{}' where id number {} was expected; write 1,2,3", what,
                  rest.substr(0, 20), ids.size() + 1);
    if (ids.size() == kMaxIds) return fail(Code::limit, "reading {}: more than {} ids", what, kMaxIds);
    ids.push_back(id);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    const std::string_view after = trimmed(rest);
    if (!after.empty() && after.size() == rest.size() && after.front() != ',')
      return fail(Code::invalid_argument, "reading {}: found '{}' after id number {}; expected a comma or a space",
                  what, after.substr(0, 20), ids.size());
    rest = after.starts_with(',') ? trimmed(after.substr(1)) : after;
    if (rest.empty() && after.starts_with(','))
      return fail(Code::invalid_argument, "reading {}: nothing follows the last comma", what);
  }
  if (ids.empty()) return fail(Code::invalid_argument, "reading {}: there is no id in it", what);
  return ids;
}

Result<std::vector<std::vector<std::int32_t>>> parse_id_lines(std::string_view text, std::string_view what) {
  std::vector<std::vector<std::int32_t>> lists;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    ++number;
    if (!trimmed(text.substr(0, end)).empty()) {
      MYRIAD_TRY(std::vector<std::int32_t> ids,
                 parse_ids(text.substr(0, end), fmt::format("{} line {}", what, number)));
      lists.push_back(std::move(ids));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lists;
}

Status check_ids(const std::vector<std::int32_t>& ids, std::size_t vocabulary, std::string_view what) {
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || static_cast<std::size_t>(ids[i]) >= vocabulary)
      return fail(Code::invalid_argument, "{}: id number {} is {}; this model's ids are 0 to {}", what, i + 1, ids[i],
                  vocabulary - 1);
  return {};
}

Result<std::string> parse_json_string(std::string_view text) {
  text = trimmed(text);
  const auto bad = [](std::size_t at, std::string_view expected) {
    return fail(Code::corrupt, "byte {}: expected {}", at + 1, expected);
  };
  if (!text.starts_with('"')) return bad(0, "a JSON string, which begins with a quotation mark");
  std::string out;
  for (std::size_t i = 1; i < text.size();) {
    const char c = text[i];
    if (c == '"') {
      if (i + 1 != text.size()) return bad(i + 1, "the end of the line after the string");
      return out;
    }
    if (static_cast<unsigned char>(c) < 0x20) return bad(i, "an escape instead of a bare control character");
    if (c != '\\') {
      out += c;
      ++i;
      continue;
    }
    const char escape = i + 1 < text.size() ? text[i + 1] : '\0';
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    if (const auto at = letters.find(escape); escape != '\0' && at != std::string_view::npos) {
      out += meanings[at];
      i += 2;
      continue;
    }
    std::int32_t unit = escape == 'u' ? four_hex_digits(text.substr(i + 2)) : -1;
    if (unit < 0) return bad(i, "an escape");
    i += 6;
    if (unit >= 0xD800 && unit < 0xDC00 && text.substr(i).starts_with("\\u")) {
      const std::int32_t low = four_hex_digits(text.substr(i + 2));
      if (low >= 0xDC00 && low < 0xE000) {
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        i += 6;
      }
    }
    append_utf8(out, unit >= 0xD800 && unit < 0xE000 ? char32_t{0xFFFD} : static_cast<char32_t>(unit));
  }
  return bad(text.size(), "a quotation mark that ends the string");
}

Result<std::string> read_text(const std::filesystem::path& path) {
  std::error_code ec;
  const std::string what = path == "-" ? "standard input" : path.string();
  if (path != "-") {
    if (std::filesystem::is_directory(path, ec))
      return fail(Code::io, "reading {}: it is a directory; name a file with text, or - for standard input", what);
    if (std::filesystem::is_regular_file(path, ec)) return read_small_file(path, kMaxTextBytes);
  }
  // Pipes and devices, until they end.
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> opened(path == "-" ? nullptr : std::fopen(path.c_str(), "re"),
                                                               [](std::FILE* f) { return std::fclose(f); });
  if (path != "-" && opened == nullptr)
    return fail(errno == ENOENT ? Code::not_found : Code::io, "opening {}: {}", what, std::strerror(errno));
  std::FILE* const file = opened != nullptr ? opened.get() : stdin;
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file)) {
    if (text.size() + n > kMaxTextBytes)
      return fail(Code::limit, "reading {}: more than {} bytes", what, kMaxTextBytes);
    text.append(buffer, n);
  }
  if (std::ferror(file) != 0) return fail(Code::io, "reading {}: {}", what, std::strerror(errno));
  return text;
}

Status for_each_input_line(const std::function<Status(std::string_view)>& on_line) {
  std::string line;
  for (std::size_t number = 1; std::getline(std::cin, line); ++number) {
    if (trimmed(line).empty()) continue;
    if (line.size() > kMaxTextBytes) return fail(Code::limit, "line {}: more than {} bytes", number, kMaxTextBytes);
    if (auto status = on_line(line); !status)
      return std::unexpected(std::move(status).error().within(fmt::format("line {}", number)));
  }
  return {};
}

}  // namespace myriad::cli
