// What is said of vocabularies that are damaged or that nothing here can use.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "model/tokenizer.h"
#include "model/tokenizer_json_reader.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

// All single bytes and "ab".
Json small() {
  Json json = Json::parse(R"({"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"},
      "added_tokens": [{"id": 257, "content": "<end>", "special": true}]})");
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    json["model"]["vocab"][to_byte_level(std::string_view(&c, 1))] = byte;
  }
  json["model"]["vocab"]["ab"] = 256;
  return json;
}

void expect_error(const Result<Tokenizer>& t, Code code, std::string_view words) {
  ASSERT_FALSE(t) << words;
  EXPECT_NE(t.error().message.find(words), std::string::npos) << t.error().message;
  EXPECT_EQ(t.error().code, code) << t.error().message;
}

void expect_json_error(std::string_view pointer, std::string_view value, Code code, std::string_view words,
                       std::string_view config = {}) {
  Json json = small();
  json[Json::json_pointer(std::string(pointer))] = Json::parse(value);
  expect_error(Tokenizer::from_tokenizer_json(json.dump(), config), code, words);
}

TEST(TokenizerJson, SmallFileIsFine) {
  const auto t = Tokenizer::from_tokenizer_json(small().dump());
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->encode("abc"), (std::vector<std::int32_t>{256, 'c'}));
}

TEST(TokenizerJson, SaysWhatIsWrong) {
  expect_error(Tokenizer::from_tokenizer_json("{\"a\": "), Code::corrupt, "not JSON from byte");
  expect_error(Tokenizer::from_tokenizer_json(""), Code::corrupt, "not JSON");
  expect_error(Tokenizer::from_tokenizer_json("[]"), Code::corrupt, "not a JSON object");
  expect_error(Tokenizer::from_tokenizer_json("{}"), Code::corrupt, "has no model");
  expect_error(Tokenizer::from_tokenizer_json(std::string(70, '[')), Code::limit, "more than 64 levels");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"vocab": {"a": -1}}})"), Code::corrupt,
               "token 'a' is negative");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"vocab": {"a": 9999999}}})"), Code::corrupt, "too large");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"vocab": {"a": "b"}}})"), Code::corrupt,
               "not what is expected");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"merges": ["a b c"]}})"), Code::corrupt,
               "merges entry 0 has not two texts");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"merges": [["a"]]}})"), Code::corrupt, "has not two texts");
  expect_error(Tokenizer::from_tokenizer_json(R"({"model": {"merges": [["a", "b", "c"]]}})"), Code::corrupt,
               "has not two texts");
  std::string many = R"({"a": [0)";
  for (std::size_t i = 0; i < TokenizerJson::kMaxOtherValues; ++i) many += ",0";
  expect_error(Tokenizer::from_tokenizer_json(many + "]}"), Code::limit, "values besides");

  std::string twice = small().dump();
  twice.insert(twice.find(R"("ab":256)"), R"("x":300,)");
  expect_error(Tokenizer::from_tokenizer_json(twice), Code::corrupt, "the token 'x' twice");
  expect_json_error("/model/vocab/zz", "256", Code::corrupt, "the same id 256");
  expect_json_error("/model/vocab/zz", "257", Code::corrupt, "contradicts added_tokens");
  expect_json_error("/model/merges/0", R"(["a", "zz"])", Code::corrupt, "merges entry 0 is 'a' and 'zz'");
  expect_json_error("/model/vocab", R"({"a": 0})", Code::corrupt, "single byte 0x00");
  expect_json_error("/added_tokens", "3", Code::corrupt, "no list");
  expect_json_error("/added_tokens/0", "{}", Code::corrupt, "added_tokens entry 0 has no id");
  expect_json_error("/added_tokens/0", R"({"id": 257})", Code::corrupt, "no content");
  expect_json_error("/added_tokens/1", R"({"id": 257, "content": "x"})", Code::corrupt, "the id 257");
  expect_json_error("/added_tokens/1", R"({"id": 258, "content": "<end>"})", Code::corrupt, "the same name '<end>'");
  expect_json_error("/added_tokens/0/id", "1000000000", Code::corrupt, "no id from 0");
  expect_json_error("/version", "1", Code::corrupt, "there is no bos_token", R"({"add_bos_token": true})");
  expect_error(Tokenizer::from_tokenizer_json(small().dump(), {}, 100), Code::corrupt, "belong together");
  expect_error(Tokenizer::from_tokenizer_json(small().dump(), {}, -1), Code::invalid_argument, "was asked for");
  expect_error(Tokenizer::from_tokenizer_json(small().dump(), "{"), Code::corrupt, "tokenizer_config.json");
}

TEST(TokenizerJson, NamesWhatItCannotDo) {
  const auto unsupported = [](std::string_view pointer, std::string_view value, std::string_view words) {
    expect_json_error(pointer, value, Code::unsupported, words);
  };
  unsupported("/model/type", R"("Unigram")", "'Unigram'");
  unsupported("/model", R"({"type": "Unigram", "vocab": [["a", -1.5]]})", "'Unigram'");
  unsupported("/model/dropout", "0.1", "dropout");
  unsupported("/model/end_of_word_suffix", R"("</w>")", "end_of_word_suffix");
  unsupported("/model/byte_fallback", "true", "mixes");
  unsupported("/pre_tokenizer", "null", "neither a ByteLevel");
  unsupported("/pre_tokenizer", R"({"type": "Whitespace"})", "Whitespace");
  unsupported("/pre_tokenizer/add_prefix_space", "true", "add_prefix_space");
  unsupported("/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "\\w+|x"}, "behavior": "Isolated"})",
              R"(\\w+|x)");
  unsupported("/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "\\p{N}"}, "behavior": "Removed"})",
              "Removed");
  unsupported("/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "x"}, "behavior": "Isolated"})", "String");
  unsupported("/pre_tokenizer",
              R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel", "add_prefix_space": false},
      {"type": "Digits"}]})",
              "behind ByteLevel");
  unsupported("/pre_tokenizer", R"({"type": "Sequence"})", "Sequence");
  unsupported("/normalizer", R"({"type": "NFKC"})", "NFKC");
  unsupported("/normalizer", R"({"type": "Replace", "pattern": {"String": "x"}, "content": "y"})", "Replace");
  unsupported("/normalizer", R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})", "mixes");
  unsupported("/decoder", R"({"type": "WordPiece"})", "WordPiece");
  unsupported("/post_processor", R"({"type": "BertProcessing"})", "BertProcessing");
  unsupported("/added_tokens/0/lstrip", "true", "lstrip");
  unsupported("/added_tokens/0/single_word", "true", "single_word");
  std::string nested = R"({"type": "NFC"})";
  for (int i = 0; i < 12; ++i) nested = R"({"type": "Sequence", "normalizers": [)" + nested + "]}";
  unsupported("/normalizer", nested, "Sequence");
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string bytes_field(unsigned number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string number_field(unsigned number, std::uint64_t value) {
  return varint(number << 3) + varint(value);
}
std::string piece(const std::string& text, unsigned type) {
  return bytes_field(1, bytes_field(1, text) + number_field(3, type));
}
const std::string kBpe = bytes_field(2, number_field(3, 2));
const std::string kPlain = bytes_field(3, number_field(4, 0));

TEST(TokenizerSentencePiece, SmallFileIsFine) {
  const auto t = Tokenizer::from_sentencepiece(piece("<unk>", 2) + piece("a", 1) + kBpe + kPlain);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->encode("axya"), (std::vector<std::int32_t>{0, 1, 0, 1}));  // the prefix has no token here either
  EXPECT_FALSE(t->add_bos());
}

TEST(TokenizerSentencePiece, SaysWhatIsWrong) {
  const auto error = [](const std::string& model, Code code, std::string_view words) {
    expect_error(Tokenizer::from_sentencepiece(model), code, words);
  };
  const std::string unknown = piece("<unk>", 2);
  error("", Code::corrupt, "no pieces");
  error("\x0A", Code::corrupt, "cut off");
  error(
      "\x0A\x05"
      "ab",
      Code::corrupt, "longer than what is left");
  error(std::string(11, '\xFF'), Code::corrupt, "more than 64 bits");
  error("\x0B", Code::corrupt, "wire type");
  error(std::string("\x02\x00", 2), Code::corrupt, "number 0");
  error(std::string("\x0D\x00", 2), Code::corrupt, "cut off");
  error(unknown + piece("a", 7) + kBpe + kPlain, Code::corrupt, "type 7");
  error(unknown + piece("a", 1) + piece("a", 1) + kBpe + kPlain, Code::corrupt, "'a' twice");
  error(unknown + piece("<0x1G>", 6) + kBpe + kPlain, Code::corrupt, "'<0x1G>'");
  error(unknown + piece(std::string(1025, 'a'), 1) + kBpe + kPlain, Code::limit, "at most 1024");
  error(unknown + kPlain, Code::unsupported, "unigram");
  error(unknown + bytes_field(2, number_field(3, 3)) + kPlain, Code::unsupported, "word model");
  error(unknown + bytes_field(2, number_field(3, 9)) + kPlain, Code::corrupt, "model type is 9");
  error(unknown + bytes_field(2, number_field(3, 2) + number_field(24, 1)) + kPlain, Code::unsupported, "suffixes");
  error(unknown + kBpe, Code::unsupported, "extra spaces");
  error(unknown + kBpe + bytes_field(3, bytes_field(1, "nmt_nfkc") + bytes_field(2, "x") + number_field(4, 0)),
        Code::unsupported, "'nmt_nfkc'");
  error(unknown + kBpe + bytes_field(3, number_field(4, 0) + number_field(5, 0)), Code::unsupported, "escape");
  error(bytes_field(1, bytes_field(1, "a") + varint(2 << 3 | 5) + std::string("\x00\x00\xC0\x7F", 4)) + kBpe + kPlain,
        Code::corrupt, "score of token 0");
  // Every cut of a good file is refused or gives fewer pieces, and none crashes.
  const std::string good = unknown + piece("a", 1) + kBpe + kPlain;
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(Tokenizer::from_sentencepiece(good.substr(0, n))) << n;
}

TEST(TokenizerGguf, SaysWhatIsWrong) {
  std::vector<std::string> spelled;
  std::vector<std::string_view> tokens, merges{"a b"};
  std::vector<std::int32_t> types(258, 1);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    spelled.push_back(to_byte_level(std::string_view(&c, 1)));
  }
  tokens.assign(spelled.begin(), spelled.end());
  tokens.push_back("ab");
  tokens.push_back("<end>");
  types[257] = 3;
  const GgufVocabulary good{.model = "gpt2", .pre = "qwen2", .tokens = tokens, .types = types, .merges = merges};
  ASSERT_TRUE(Tokenizer::from_gguf(good));
  const auto error = [&](auto change, Code code, std::string_view words) {
    GgufVocabulary changed = good;
    change(changed);
    expect_error(Tokenizer::from_gguf(changed), code, words);
  };
  error([](auto& v) { v.model = "t5"; }, Code::unsupported, "'t5'");
  error([](auto& v) { v.pre = "viking"; }, Code::unsupported, "'viking'");
  error([](auto& v) { v.tokens = {}; }, Code::corrupt, "tokens is missing");
  error([](auto& v) { v.types = v.types.first(10); }, Code::corrupt, "token_type has 10 entries");
  error([](auto& v) { v.merges = {}; }, Code::corrupt, "merges is missing");
  error([](auto& v) { v.add_bos = true; }, Code::corrupt, "bos_token_id");
  error([](auto& v) { v.model = "llama"; }, Code::corrupt, "scores has 0 entries");
  error(
      [](auto& v) {
        v.tokens = v.tokens.subspan(1);
        v.types = v.types.subspan(1);
      },
      Code::corrupt, "single byte 0x00");
  for (const std::string_view merge : {"ab", "a ", " a", "", "a c", "a  b"}) {
    const std::vector<std::string_view> bad{"a b", merge};
    error([&](auto& v) { v.merges = bad; }, Code::corrupt, "merges entry 1");
  }
  // A rule that would make a special token is not for text.
  tokens[257] = "bb";
  merges.push_back("b b");
  GgufVocabulary special = good;
  special.merges = merges;
  const auto t = Tokenizer::from_gguf(special);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->encode("bb"), (std::vector<std::int32_t>{'b', 'b'}));
  tokens[257] = "ab";
  types[257] = 1;
  error([](auto&) {}, Code::corrupt, "'ab' twice");
}

// Older DeepSeek vocabularies have no tokens for bytes that UTF-8 never has.
TEST(TokenizerGguf, BytesThatUtf8NeverHasMayLackATokenAndAreReplaced) {
  std::vector<std::string> spelled;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (byte != 0xC0 && byte != 0xF5) spelled.push_back(to_byte_level(std::string_view(&c, 1)));
  }
  spelled.push_back("ab");
  const std::vector<std::string_view> tokens(spelled.begin(), spelled.end()), merges{"a b"};
  const auto t = Tokenizer::from_gguf({.model = "gpt2", .pre = "deepseek-coder", .tokens = tokens, .merges = merges});
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->decode(t->encode("ab\xC0\xC1\xF5z")), "ab\uFFFD\xC1\uFFFDz");
}

}  // namespace
}  // namespace myriad
