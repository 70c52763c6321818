#include "net/http_message.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace myriad {
namespace {

constexpr std::string_view kNewline = "\r\n";

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_token(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

// Takes the first line off `text`.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = text.find(kNewline);
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + kNewline.size());
  return line;
}

Result<HttpFields> parse_fields(std::string_view text) {
  HttpFields out;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.empty()) break;
    if (out.fields.size() >= kMaxHttpFields) return fail(Code::limit, "more than {} header fields", kMaxHttpFields);
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || colon == 0 || !std::ranges::all_of(line.substr(0, colon), is_token))
      return fail(Code::corrupt, "a header line is no field");
    const std::string_view value = trimmed(line.substr(colon + 1));
    // Control characters are how requests get smuggled.
    if (std::ranges::any_of(value, [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\t'; }))
      return fail(Code::corrupt, "a header field holds control characters");
    std::string name(line.substr(0, colon));
    std::ranges::transform(name, name.begin(), lower);
    out.fields.emplace_back(std::move(name), value);
  }
  return out;
}

// "HTTP/1.x"
std::optional<int> minor_version(std::string_view text) {
  if (text.size() != 8 || !text.starts_with("HTTP/1.") || text[7] < '0' || text[7] > '9') return std::nullopt;
  return text[7] - '0';
}

}  // namespace

std::optional<std::size_t> http_head_end(std::string_view text) {
  const std::size_t at = text.find("\r\n\r\n");
  if (at == std::string_view::npos) return std::nullopt;
  return at + 4;
}

std::optional<std::string_view> HttpFields::only(std::string_view name) const {
  std::optional<std::string_view> found;
  for (const auto& [n, value] : fields) {
    if (n != name) continue;
    if (found) return std::nullopt;
    found = value;
  }
  return found;
}

bool HttpFields::has(std::string_view name) const {
  return std::ranges::any_of(fields, [&](const auto& f) { return f.first == name; });
}

Result<HttpRequestHead> parse_http_request(std::string_view head) {
  if (head.size() > kMaxHttpHeadBytes) return fail(Code::limit, "a request head of {} bytes", head.size());
  const std::string_view line = take_line(head);
  const std::size_t a = line.find(' ');
  const std::size_t b = line.rfind(' ');
  if (a == std::string_view::npos || a == 0 || b == a)
    return fail(Code::corrupt, "the request line has no three words");
  HttpRequestHead out;
  out.method = line.substr(0, a);
  out.target = line.substr(a + 1, b - a - 1);
  const auto minor = minor_version(line.substr(b + 1));
  if (!minor || !std::ranges::all_of(out.method, is_token) || !is_http_target(out.target))
    return fail(Code::corrupt, "the request line is not \"METHOD /path HTTP/1.1\"");
  out.minor = *minor;
  MYRIAD_TRY(out.fields, parse_fields(head));
  return out;
}

Result<HttpResponseHead> parse_http_response(std::string_view head) {
  if (head.size() > kMaxHttpHeadBytes) return fail(Code::limit, "a response head of {} bytes", head.size());
  const std::string_view line = take_line(head);
  HttpResponseHead out;
  const auto minor = minor_version(line.substr(0, 8));
  const auto status = line.size() >= 12 && line[8] == ' ' ? parse_http_number(line.substr(9, 3)) : std::nullopt;
  if (!minor || !status || *status < 100 || (line.size() > 12 && line[12] != ' '))
    return fail(Code::corrupt, "the answer does not begin with an HTTP/1.1 status line");
  out.minor = *minor;
  out.status = static_cast<int>(*status);
  MYRIAD_TRY(out.fields, parse_fields(head));
  return out;
}

std::optional<std::uint64_t> parse_http_number(std::string_view digits) {
  if (digits.empty() || digits.size() > 20 || !std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{} || value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return std::nullopt;
  return value;
}

RangeKind parse_http_range(std::string_view value, std::uint64_t size, ByteRange& range) {
  constexpr std::string_view unit = "bytes=";
  if (!value.starts_with(unit)) return RangeKind::whole;
  value = trimmed(value.substr(unit.size()));
  const std::size_t dash = value.find('-');
  if (dash == std::string_view::npos || value.find(',') != std::string_view::npos) return RangeKind::whole;
  const std::string_view from = value.substr(0, dash);
  const std::string_view to = value.substr(dash + 1);
  const auto last = parse_http_number(to);
  if (!to.empty() && !last) return RangeKind::whole;
  if (from.empty()) {
    if (!last) return RangeKind::whole;
    if (*last == 0 || size == 0) return RangeKind::unsatisfiable;
    range = {size - std::min(size, *last), size - 1};
    return RangeKind::part;
  }
  const auto first = parse_http_number(from);
  if (!first || (last && *last < *first)) return RangeKind::whole;
  if (*first >= size) return RangeKind::unsatisfiable;
  range = {*first, last ? std::min(*last, size - 1) : size - 1};
  return RangeKind::part;
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  constexpr std::string_view unit = "bytes ";
  if (!value.starts_with(unit)) return std::nullopt;
  value.remove_prefix(unit.size());
  const std::size_t dash = value.find('-');
  const std::size_t slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash) return std::nullopt;
  const auto first = parse_http_number(value.substr(0, dash));
  const auto last = parse_http_number(value.substr(dash + 1, slash - dash - 1));
  const auto total = parse_http_number(value.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{*first, *last, *total};
}

bool is_http_target(std::string_view text) {
  return text.starts_with('/') && std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

bool is_http_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace myriad
