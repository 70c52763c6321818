// Foreign vocabularies other than tiktoken's. The first byte says how the rest is used: as a whole tokenizer.json or
// tokenizer.model, as parts of ones that are otherwise in order, or as the lists of a GGUF file. Whatever loads must
// keep its promises for any text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_text.h"
#include "model/tokenizer.h"
#include "model/vocabulary_text.h"

namespace {

using myriad::Tokenizer;

// The parts of the input that `separator` divides.
std::vector<std::string_view> parts_of(std::string_view input, char separator) {
  std::vector<std::string_view> parts;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find(separator), input.size());
    parts.push_back(input.substr(0, end));
    input.remove_prefix(std::min(end + 1, input.size()));
  }
  return parts;
}

void require(bool condition) {
  if (!condition) std::abort();
}

void check(const Tokenizer& t, std::string_view text) {
  std::size_t unknown = 0;
  for (const bool specials : {false, true}) {
    const auto ids = specials ? t.encode_with_specials(text) : t.encode(text);
    std::string bytes;
    myriad::TokenDecoder decoder(t);
    for (const std::int32_t id : ids) {
      require(id >= 0 && id < t.vocab_size());
      if (!specials && t.is_special(id)) {  // only the one that stands for what the vocabulary lacks
        require(unknown == 0 || unknown == static_cast<std::size_t>(id) + 1);
        unknown = static_cast<std::size_t>(id) + 1;
      }
      bytes += decoder.push(id);
    }
    require(bytes == t.decode(ids));
  }
  const std::array<Tokenizer::Span, 2> spans{
      {{text.substr(0, text.size() / 2), true}, {text.substr(text.size() / 2), false}}};
  for (const std::int32_t id : t.encode_spans(spans)) require(id >= 0 && id < t.vocab_size());
  for (const std::int32_t id : t.end_ids()) require(id >= 0 && id < t.vocab_size());
  require(!t.add_bos() || t.bos());
}

// A byte-level vocabulary with more tokens and merges from the input, and one of its steps.
std::string byte_level_json(const std::vector<std::string_view>& parts) {
  std::string vocabulary, merges;
  int id = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    vocabulary +=
        myriad::json_quoted(myriad::to_byte_level(std::string_view(&c, 1))) + ":" + std::to_string(id++) + ",";
  }
  for (std::size_t i = 1; i + 1 < parts.size(); i += 2) {
    const auto left = myriad::to_byte_level(parts[i]), right = myriad::to_byte_level(parts[i + 1]);
    for (const auto& token : {left, left + right}) {
      const std::string quoted = myriad::json_quoted(token) + ":";
      if (vocabulary.find(quoted) == vocabulary.npos) vocabulary += quoted + std::to_string(id++) + ",";
    }
    merges += "[" + myriad::json_quoted(left) + "," + myriad::json_quoted(right) + "],";
  }
  vocabulary.pop_back();
  if (!merges.empty()) merges.pop_back();
  return R"({"model":{"type":"BPE","vocab":{)" + vocabulary + R"(},"merges":[)" + merges +
         R"(]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)" +
         (parts.empty() ? R"("decoder":null)" : std::string(parts[0])) + "}";
}

// A BPE model of SentencePiece's with all byte pieces; the input may add pieces and change what was said.
std::string sentencepiece_model(std::string_view input) {
  std::string out;
  const auto piece = [&out](std::string_view text, char type) {
    out += std::string("\x0A") + static_cast<char>(text.size() + 4) + "\x0A" + static_cast<char>(text.size());
    out += text;
    out += std::string("\x18") + type;
  };
  piece("<unk>", 2);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const auto high = static_cast<std::size_t>(byte >> 4), low = static_cast<std::size_t>(byte & 15);
    piece(std::string("<0x") + kDigits[high] + kDigits[low] + ">", 6);
  }
  out += std::string_view("\x12\x02\x18\x02\x1A\x02\x20\x00", 8);  // BPE; extra spaces stay
  out += input;
  return out;
}

void gguf(std::string_view input, std::string_view text) {
  const std::array<std::string_view, 8> names{"llama-bpe",    "qwen2",   "deepseek-v3", "kimi-k2",
                                              "deepseek-llm", "default", "gpt-2",       "deepseek-coder"};
  if (input.size() < 4) return;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(input[i]); };
  const auto lines = parts_of(input.substr(4), '\n');
  std::vector<std::string> spelled;
  std::vector<std::string_view> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  const bool spm = byte(0) % 2 == 0;
  for (int b = 0; b < 256; ++b) {
    const char c = static_cast<char>(b);
    spelled.push_back(myriad::to_byte_level(std::string_view(&c, 1)));
  }
  for (const std::string& s : spelled) {
    tokens.push_back(s);
    types.push_back(1);
    scores.push_back(0);
  }
  for (const std::string_view line : lines) {
    if (line.size() > 1 && line[0] == 'm') {
      merges.push_back(line.substr(1));
    } else if (line.size() > 1) {
      tokens.push_back(line.substr(1));
      types.push_back(line[0] - '0');
      scores.push_back(static_cast<float>(line[0] * 7 % 11));
    }
  }
  if (byte(1) % 4 == 0) types.clear();
  if (byte(1) % 8 == 1) types.pop_back();
  const auto t = Tokenizer::from_gguf({.model = spm ? "llama" : "gpt2",
                                       .pre = names[byte(2) % names.size()],
                                       .tokens = tokens,
                                       .types = types,
                                       .scores = scores,
                                       .merges = merges,
                                       .bos = byte(3),
                                       .eos = byte(2),
                                       .add_bos = byte(3) % 2 == 0,
                                       .add_space_prefix = byte(3) % 4 < 2});
  if (t) check(*t, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t zero = std::min(input.find('\0'), input.size());
  const std::string_view head = input.substr(0, zero), tail = input.substr(std::min(zero + 1, input.size()));
  switch (data[0] % 5) {
    case 0:
      if (const auto t = Tokenizer::from_tokenizer_json(head, tail)) check(*t, input);
      break;
    case 1:
      if (const auto t = Tokenizer::from_tokenizer_json(byte_level_json(parts_of(head, '\n')), tail)) check(*t, input);
      break;
    case 2:
      if (const auto t = Tokenizer::from_sentencepiece(input)) check(*t, input);
      break;
    case 3:
      if (const auto t = Tokenizer::from_sentencepiece(sentencepiece_model(input))) check(*t, input);
      break;
    default:
      gguf(input, tail);
      break;
  }
  return 0;
}
