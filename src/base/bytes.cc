#include "base/bytes.h"

#include <charconv>
#include <cmath>

namespace myriad {

Result<Bytes> parse_bytes(std::string_view text) {
  const std::string_view whole = text;
  const auto bad = [&] {
    return fail(Code::invalid_argument,
                "'{}' is not an amount of bytes; write for example 256MiB, 1.5GiB, 200MB or 65536", whole);
  };
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !(number >= 0)) return bad();
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  double unit = 1;
  if (!text.empty() && text != "B") {
    const std::string_view letters = "KMGTP";
    const char c = text.front() == 'k' ? 'K' : text.front();
    const auto power = letters.find(c);
    if (power == std::string_view::npos) return bad();
    const std::string_view rest = text.substr(1);
    if (rest != "" && rest != "B" && rest != "i" && rest != "iB") return bad();
    unit = std::pow(rest.starts_with("i") ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double value = number * unit;
  if (value > 9e18) return bad();
  return Bytes{static_cast<std::uint64_t>(value)};
}

std::string grouped(std::uint64_t n) {
  std::string digits = std::to_string(n);
  for (auto i = static_cast<std::ptrdiff_t>(digits.size()) - 3; i > 0; i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string human(Bytes bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto v = static_cast<double>(bytes.value);
  int u = 0;
  while (v >= 1024 && u < 5) {
    v /= 1024;
    ++u;
  }
  return u == 0 ? fmt::format("{} B", bytes.value) : fmt::format("{:.1f} {}", v, units[u]);
}

}  // namespace myriad
