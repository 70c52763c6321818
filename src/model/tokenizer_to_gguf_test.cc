// Vocabularies of every kind written as GGUF has them: read back, they give the same ids.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "model/tokenizer.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

using Ids = std::vector<std::int32_t>;
using Json = nlohmann::ordered_json;

constexpr const char* kFolder = MYRIAD_SOURCE_DIR "/tests/data/tokenizers/";

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Tokenizer loaded(Result<Tokenizer> tokenizer) {
  if (!tokenizer) throw std::runtime_error(tokenizer.error().to_string());
  return std::move(*tokenizer);
}

Result<Tokenizer> read_back(const GgufVocabularyTexts& texts) {
  const std::vector<std::string_view> tokens(texts.tokens.begin(), texts.tokens.end());
  const std::vector<std::string_view> merges(texts.merges.begin(), texts.merges.end());
  const std::vector<std::string_view> rules(texts.rules.begin(), texts.rules.end());
  GgufVocabulary v;
  v.model = texts.model;
  v.pre = texts.pre;
  v.tokens = tokens;
  v.types = texts.types;
  v.scores = texts.scores;
  v.merges = merges;
  v.bos = texts.bos;
  v.eos = texts.eos;
  v.unknown = texts.unknown;
  v.add_bos = texts.add_bos;
  v.add_space_prefix = texts.add_space_prefix;
  v.rules = rules;
  return Tokenizer::from_gguf(v);
}

Tokenizer through_gguf(const Tokenizer& from) {
  auto texts = from.to_gguf();
  if (!texts) throw std::runtime_error(texts.error().to_string());
  return loaded(read_back(*texts));
}

// The cases' texts, names of special tokens among other bytes, and random bytes.
std::vector<std::string> texts_for(const Tokenizer& t) {
  std::vector<std::string> texts = {"", " ", "  two", "a ", "\u2581", "1234567", "\u00C5 and A\u030A"};
  const Json cases = Json::parse(slurp(std::string(kFolder) + "byte_level_cases.json"));
  for (const auto& text : cases["texts"]) texts.push_back(text.get<std::string>());
  for (const auto& one : Json::parse(slurp(std::string(kFolder) + "sentencepiece_cases.json")))
    texts.push_back(one["text"].get<std::string>());
  std::vector<std::string> names;
  for (std::int32_t id = 0; id < t.vocab_size(); ++id)
    if (t.special_id(t.token_bytes(id)) == id) names.emplace_back(t.token_bytes(id));
  std::mt19937 rng(7);
  const std::size_t plain = texts.size();
  for (int i = 0; i < 200; ++i) {
    const auto text = [&] { return texts[rng() % plain]; };
    texts.push_back(names.empty() ? text() + text() : text() + names[rng() % names.size()] + text());
    std::string bytes;
    for (unsigned n = rng() % 40; n > 0; --n) bytes += static_cast<char>(rng() % (i % 2 == 0 ? 128 : 256));
    texts.push_back(bytes);
  }
  return texts;
}

void expect_the_same(const Tokenizer& a, const Tokenizer& b, const std::string& what) {
  SCOPED_TRACE(what);
  ASSERT_EQ(a.vocab_size(), b.vocab_size());
  EXPECT_EQ(a.bos(), b.bos());
  EXPECT_EQ(a.eos(), b.eos());
  EXPECT_EQ(a.add_bos(), b.add_bos());
  EXPECT_EQ(a.end_ids(), b.end_ids());
  for (std::int32_t id = 0; id < a.vocab_size(); ++id) {
    EXPECT_EQ(a.is_special(id), b.is_special(id)) << id;
    if (a.token_bytes(id).empty()) continue;
    EXPECT_EQ(a.token_bytes(id), b.token_bytes(id)) << id;
  }
  for (const std::string& text : texts_for(a)) {
    const Ids ids = a.encode(text);
    EXPECT_EQ(ids, b.encode(text)) << text;
    EXPECT_EQ(a.encode_with_specials(text), b.encode_with_specials(text)) << text;
    EXPECT_EQ(a.decode(ids), b.decode(ids)) << text;
  }
}

Json byte_level() {
  return Json::parse(slurp(std::string(kFolder) + "byte_level.json"));
}

TEST(TokenizerToGguf, ByteLevelOfEachFamily) {
  int families = 0;
  const Json cases = Json::parse(slurp(std::string(kFolder) + "byte_level_cases.json"));
  for (const auto& family : cases["families"]) {
    if (family["gguf_only"]) continue;
    Json json = byte_level();
    json["pre_tokenizer"] = family["pre_tokenizer"];
    json["normalizer"] = family["normalizer"];
    json["model"]["ignore_merges"] = family["ignore_merges"];
    const Tokenizer t = loaded(Tokenizer::from_tokenizer_json(json.dump(), R"({"eos_token": "<|end|>"})", 1100));
    const auto texts = t.to_gguf();
    const auto name = family["name"].get<std::string>();
    if (name == "kimi") {  // Kimi's expression, but merges by a list
      ASSERT_FALSE(texts);
      EXPECT_EQ(texts.error().code, Code::unsupported);
      continue;
    }
    ASSERT_TRUE(texts) << name << ": " << texts.error().to_string();
    EXPECT_EQ(texts->pre, name);
    EXPECT_EQ(texts->model, "gpt2");
    EXPECT_EQ(texts->tokens[1099], "[PAD1099]");
    EXPECT_EQ(texts->types[1099], 5);
    EXPECT_EQ(texts->types[1001], 3);
    EXPECT_EQ(texts->types[1002], 4);
    EXPECT_EQ(texts->eos, 1001U);
    EXPECT_EQ(texts->merges.size(), 744U);
    expect_the_same(t, loaded(read_back(*texts)), name);
    ++families;
  }
  EXPECT_EQ(families, 8);
}

// Llama 3's expression without ignore_merges has another name in llama.cpp. Every token of this vocabulary is made by
// its merges, so that Qwen's, which has no second name, may have it either way; with a token that merging does not
// make, it may not.
TEST(TokenizerToGguf, TakingPiecesWholeIsPartOfTheName) {
  const Json cases = Json::parse(slurp(std::string(kFolder) + "byte_level_cases.json"));
  const auto with = [&](const char* family, bool ignore_merges, bool unreachable) {
    Json json = byte_level();
    for (const auto& f : cases["families"])
      if (f["name"] == family) json["pre_tokenizer"] = f["pre_tokenizer"];
    json["model"]["ignore_merges"] = ignore_merges;
    if (unreachable) json["model"]["vocab"]["qzxj"] = 1003;
    return loaded(Tokenizer::from_tokenizer_json(json.dump()));
  };
  EXPECT_EQ(with("llama-bpe", false, false).to_gguf()->pre, "dbrx");
  EXPECT_EQ(with("llama-bpe", true, true).to_gguf()->pre, "llama-bpe");
  const Tokenizer apart = with("llama-bpe", false, true);
  EXPECT_EQ(apart.to_gguf()->pre, "dbrx");
  EXPECT_NE(apart.encode("qzxj").size(), 1U);
  expect_the_same(apart, through_gguf(apart), "dbrx");
  EXPECT_EQ(with("qwen2", true, false).to_gguf()->pre, "qwen2");
  EXPECT_EQ(with("qwen2", true, true).to_gguf().error().code, Code::unsupported);
}

TEST(TokenizerToGguf, RanksOfTiktoken) {
  const Tokenizer t = loaded(Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3", 4096));
  const GgufVocabularyTexts texts = t.to_gguf().value();
  EXPECT_EQ(texts.model, "gpt2");
  EXPECT_EQ(texts.pre, "kimi-k2");
  EXPECT_FALSE(texts.add_bos);
  expect_the_same(t, loaded(read_back(texts)), "tiktoken");
  // For those who merge by the list: it has one merge for each token of two bytes and more, in the order of the ranks,
  // and by it the same tokens come about in pieces that are no tokens themselves.
  ASSERT_EQ(texts.merges.size(), static_cast<std::size_t>(t.rank_count()) - 256);
  std::size_t at = 0;
  for (std::int32_t id = 0; id < t.rank_count(); ++id) {
    if (t.token_bytes(id).size() < 2) continue;
    std::string joined = texts.merges[at++];
    joined.erase(joined.find(' ', 1), 1);
    EXPECT_EQ(from_byte_level(joined), t.token_bytes(id));
  }
  GgufVocabularyTexts by_list = texts;
  by_list.pre = "gpt-2";
  const Tokenizer listed = loaded(read_back(by_list));
  for (std::int32_t id = 0; id < t.rank_count(); id += 3) {
    const std::string word(t.token_bytes(id));
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string::npos) continue;
    EXPECT_EQ(listed.encode(word + "qx" + word), t.encode(word + "qx" + word)) << word;
  }
}

TEST(TokenizerToGguf, SentencePiece) {
  const std::string model = slurp(std::string(kFolder) + "sentencepiece.model");
  for (const char* config :
       {"{}", R"({"legacy": false})", R"({"add_prefix_space": false})", R"({"add_bos_token": false})",
        R"({"added_tokens_decoder": {"1": {"content": "<s>", "special": true}, "802": {"content": "<|im_end|>"}},
            "eos_token": "<|im_end|>"})"}) {
    const Tokenizer t = loaded(Tokenizer::from_sentencepiece(model, config, 832));
    const GgufVocabularyTexts texts = t.to_gguf().value();
    EXPECT_EQ(texts.model, "llama");
    EXPECT_EQ(texts.tokens.size(), 832U);
    EXPECT_EQ(texts.scores.size(), 832U);
    EXPECT_EQ(texts.types[static_cast<std::size_t>(*texts.unknown)], 2);
    expect_the_same(t, loaded(read_back(texts)), config);
  }
}

// A list of merges as Hugging Face makes it of a SentencePiece model: what a score says of a token lies side by side.
TEST(TokenizerToGguf, AListOfMergesBecomesScores) {
  Json json = Json::parse(R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true},
                                               {"id": 1, "content": "<s>", "special": true}],
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": {"<unk>": 0, "<s>": 1, "a": 2, "b": 3,
      "c": 4, "▁": 5, "ab": 6, "bc": 7, "abc": 8, "▁a": 9, "▁abc": 10},
      "merges": [["b", "c"], ["a", "b"], ["▁", "a"], ["a", "bc"], ["ab", "c"], ["▁", "abc"], ["▁a", "bc"]]},
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}})");
  const auto of = [&](const Json& j) {
    return loaded(Tokenizer::from_tokenizer_json(j.dump(), R"({"bos_token": "<s>", "add_bos_token": true})"));
  };
  const Tokenizer t = of(json), back = through_gguf(t);
  EXPECT_TRUE(back.add_bos());
  for (const char* text : {"abc", "ab", "abcabc", "a b c", "bc abc ab", "abab", "cba", "xy a", " abc"})
    EXPECT_EQ(back.encode(text), t.encode(text)) << text;
  EXPECT_EQ(t.encode("abc"), Ids{10});
  // Characters without a token each by themselves.
  json["model"]["fuse_unk"] = false;
  const Tokenizer apart = of(json);
  EXPECT_EQ(apart.encode("xy").size(), 3U);
  EXPECT_EQ(through_gguf(apart).encode("xy"), apart.encode("xy"));
  // A space before the text unless there is one (Mistral's newer files).
  Json metaspace = json;
  metaspace["normalizer"] = nullptr;
  metaspace["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  metaspace["decoder"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}};
  const Tokenizer first = of(metaspace), first_back = through_gguf(first);
  for (const char* text : {"abc", " abc", "<s>abc", "<s> abc"})
    EXPECT_EQ(first_back.encode_with_specials(text), first.encode_with_specials(text)) << text;
  // Neither of these is one number for a token.
  Json torn = json;
  torn["model"]["merges"] = Json::parse(R"([["a", "bc"], ["b", "c"], ["a", "b"], ["ab", "c"]])");
  EXPECT_EQ(of(torn).to_gguf().error().code, Code::unsupported);
  Json lacking = json;
  lacking["model"]["merges"].erase(4);
  const auto refused = of(lacking).to_gguf();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("abc"), std::string::npos) << refused.error().message;
}

TEST(TokenizerToGguf, AnUnknownRuleIsRefused) {
  GgufVocabularyTexts texts = loaded(Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3")).to_gguf().value();
  texts.rules = {"upside-down"};
  const auto t = read_back(texts);
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().code, Code::unsupported);
  EXPECT_NE(t.error().message.find("upside-down"), std::string::npos);
}

}  // namespace
}  // namespace myriad
