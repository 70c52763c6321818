// Foreign tokenizer files: up to the first zero byte a tiktoken.model (after the 256 single bytes, which hardly any
// random input has), then a tokenizer_config.json. Whatever loads must give back the bytes that it encodes.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace {

std::string single_bytes() {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (unsigned byte = 0; byte < 256; ++byte) {
    file += kDigits[byte >> 2];
    file += kDigits[(byte & 3) << 4];
    file += "== " + std::to_string(byte) + "\n";
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string kSingleBytes = single_bytes();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t zero = input.find('\0');
  const std::string_view config = zero == std::string_view::npos ? std::string_view{} : input.substr(zero + 1);
  static_cast<void>(myriad::Tokenizer::parse(input.substr(0, zero), config));
  const auto tokenizer = myriad::Tokenizer::parse(kSingleBytes + std::string(input.substr(0, zero)), config);
  if (!tokenizer) return 0;
  if (tokenizer->decode(tokenizer->encode(input)) != input) std::abort();
  if (tokenizer->decode(tokenizer->encode_with_specials(input)) != input) std::abort();
  return 0;
}
