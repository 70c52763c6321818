// Vocabularies in tokenizer.json, tokenizer.model and GGUF: ids as the reference programs give them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>

#include "model/sentencepiece_file.h"
#include "model/tokenizer.h"
#include "model/utf8_stream.h"
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
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return std::move(*tokenizer);
}

// The small byte-level vocabulary; made by tests/oracle/make_tokenizer_cases.mjs.
const Json& byte_level() {
  static const Json json = Json::parse(slurp(std::string(kFolder) + "byte_level.json"));
  return json;
}
const Json& byte_level_cases() {
  static const Json json = Json::parse(slurp(std::string(kFolder) + "byte_level_cases.json"));
  return json;
}

Json variant(const Json& family) {
  Json json = byte_level();
  json["pre_tokenizer"] = family["pre_tokenizer"];
  json["normalizer"] = family["normalizer"];
  json["model"]["ignore_merges"] = family["ignore_merges"];
  return json;
}

// The same vocabulary as a GGUF file would have it.
struct GgufCopy {
  std::vector<std::string> texts, joined;
  std::vector<std::string_view> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  GgufVocabulary vocabulary;

  explicit GgufCopy(const Json& json) {
    for (const auto& [text, id] : json["model"]["vocab"].items()) add(id.get<std::size_t>(), text, 1);
    for (const auto& token : json["added_tokens"]) {
      add(token["id"].get<std::size_t>(), token["content"], token["special"].get<bool>() ? 3 : 4);
    }
    for (const auto& merge : json["model"]["merges"]) {
      joined.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    finish("gpt2");
  }
  explicit GgufCopy(const SentencePieceFile& file) {
    for (const auto& piece : file.pieces) {
      scores.push_back(piece.score);
      add(types.size(), std::string(piece.text), static_cast<int>(piece.type));
    }
    finish("llama");
  }
  GgufCopy(const GgufCopy&) = delete;
  GgufCopy& operator=(const GgufCopy&) = delete;

  void add(std::size_t id, std::string text, int type) {
    texts.resize(std::max(texts.size(), id + 1));
    types.resize(texts.size(), 5);
    texts[id] = std::move(text);
    types[id] = type;
  }
  void finish(std::string_view model) {
    tokens.assign(texts.begin(), texts.end());
    merges.assign(joined.begin(), joined.end());
    vocabulary.model = model;
    vocabulary.tokens = tokens;
    vocabulary.types = types;
    vocabulary.scores = scores;
    vocabulary.merges = merges;
  }
};

TEST(TokenizerJson, EncodesAsTheReferenceDidForEachFamily) {
  const auto& cases = byte_level_cases();
  int families = 0;
  for (const auto& family : cases["families"]) {
    if (family["gguf_only"]) continue;
    ++families;
    const auto t = Tokenizer::from_tokenizer_json(variant(family).dump());
    ASSERT_TRUE(t) << family["name"] << ": " << t.error().message;
    for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
      const auto text = cases["texts"][i].get<std::string>();
      const auto ids = family["ids"][i].get<Ids>();
      EXPECT_EQ(t->encode(text), ids) << family["name"] << " " << cases["texts"][i];
      EXPECT_EQ(t->encode_with_specials(text), ids) << family["name"] << " " << cases["texts"][i];
      EXPECT_TRUE(!family["normalizer"].is_null() || t->decode(ids) == text) << cases["texts"][i];
    }
    for (std::size_t i = 0; i < cases["with_names"].size(); ++i) {
      const auto text = cases["with_names"][i].get<std::string>();
      EXPECT_EQ(t->encode_with_specials(text), family["with_names"][i].get<Ids>()) << family["name"] << " " << text;
      const Ids plain = t->encode(text);
      EXPECT_TRUE(std::none_of(plain.begin(), plain.end(), [&](std::int32_t id) { return t->is_special(id); }));
    }
  }
  EXPECT_EQ(families, 9);
}

TEST(TokenizerGguf, EncodesByteLevelTextAsTheReferenceDid) {
  const GgufCopy copy(byte_level());
  const auto& cases = byte_level_cases();
  int families = 0;
  for (const auto& family : cases["families"]) {
    const auto name = family["name"].get<std::string>();
    if (name == "kimi" || !family["normalizer"].is_null()) continue;  // merged by rank; not normalised in GGUF
    ++families;
    GgufVocabulary vocabulary = copy.vocabulary;
    vocabulary.pre = name;
    const auto t = Tokenizer::from_gguf(vocabulary);
    ASSERT_TRUE(t) << name << ": " << t.error().message;
    for (std::size_t i = 0; i < cases["texts"].size(); ++i) {
      EXPECT_EQ(t->encode(cases["texts"][i].get<std::string>()), family["ids"][i].get<Ids>()) << name << " " << i;
    }
    for (std::size_t i = 0; i < cases["with_names"].size(); ++i) {
      EXPECT_EQ(t->encode_with_specials(cases["with_names"][i].get<std::string>()), family["with_names"][i].get<Ids>());
    }
  }
  EXPECT_EQ(families, 8);
}

TEST(TokenizerGguf, MergesByRankForKimi) {
  const GgufCopy copy(byte_level());
  GgufVocabulary vocabulary = copy.vocabulary;
  vocabulary.pre = "kimi-k2";
  vocabulary.merges = {};
  const Tokenizer t = loaded(Tokenizer::from_gguf(vocabulary));
  const Tokenizer ranks = loaded(Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3"));
  // The vocabulary has the first 1,000 ranks of the model's: equal where no later rank is used.
  int equal = 0;
  for (const auto& text : byte_level_cases()["texts"]) {
    const Ids ids = ranks.encode(text.get<std::string>());
    if (std::any_of(ids.begin(), ids.end(), [](std::int32_t id) { return id >= 1000; })) continue;
    ++equal;
    EXPECT_EQ(t.encode(text.get<std::string>()), ids);
  }
  EXPECT_GT(equal, 5);
  EXPECT_FALSE(t.add_bos());
}

TEST(TokenizerGguf, BeginsWithBosAsLlamaCppDoes) {
  const GgufCopy copy(byte_level());
  const auto made = [&](std::string_view pre, std::optional<bool> add_bos) {
    GgufVocabulary vocabulary = copy.vocabulary;
    vocabulary.pre = pre;
    vocabulary.bos = 1000;
    vocabulary.eos = 1001;
    vocabulary.add_bos = add_bos;
    return loaded(Tokenizer::from_gguf(vocabulary));
  };
  EXPECT_TRUE(made("llama-bpe", std::nullopt).add_bos());
  EXPECT_FALSE(made("llama-bpe", false).add_bos());
  EXPECT_FALSE(made("qwen2", std::nullopt).add_bos());
  const Tokenizer t = made("qwen2", true);
  Ids expected = t.encode("the");
  expected.insert(expected.begin(), 1000);
  EXPECT_EQ(t.encode_prompt("the"), expected);
  EXPECT_EQ(t.bos(), 1000);
  EXPECT_EQ(t.eos(), 1001);
  EXPECT_EQ(t.end_ids(), Ids{1001});
  EXPECT_EQ(made("qwen2", false).encode_prompt("the"), t.encode("the"));
}

TEST(TokenizerJson, ReadsBosFromTheTemplateOrTheConfiguration) {
  const std::string json = byte_level().dump();
  const auto pre = [](std::string text) {
    Json j = Json::parse(text);
    j["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    return j.dump();
  };
  const Tokenizer t = loaded(Tokenizer::from_tokenizer_json(pre(json)));
  EXPECT_EQ(t.bos(), 1000);
  EXPECT_TRUE(t.add_bos());
  EXPECT_EQ(t.encode_prompt("").size(), 1U);
  const Tokenizer no = loaded(Tokenizer::from_tokenizer_json(
      pre(json), R"({"add_bos_token": false, "bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}})"));
  EXPECT_FALSE(no.add_bos());
  EXPECT_EQ(no.bos(), 1000);
  EXPECT_EQ(no.eos(), 1001);
  EXPECT_EQ(no.special_id("<think>"), 1002);
  EXPECT_FALSE(no.is_special(1002));  // a part of the text
  EXPECT_TRUE(no.is_special(1001));
  EXPECT_EQ(no.encode("<think>"), Ids{1002});
  EXPECT_EQ(no.rank_count(), 0);
  // Ids of the model that the file does not define.
  const Tokenizer padded = loaded(Tokenizer::from_tokenizer_json(pre(json), {}, 1100));
  EXPECT_EQ(padded.vocab_size(), 1100);
  EXPECT_TRUE(padded.is_special(1099));
  EXPECT_EQ(padded.token_bytes(1099), "");
  EXPECT_EQ(padded.decode(Ids{1099}), "");
}

TEST(TokenizerJson, MergesMayBeTextsOrPairs) {
  Json json = byte_level();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Tokenizer pairs = loaded(Tokenizer::from_tokenizer_json(json.dump()));
  Json texts = Json::array();
  for (const auto& merge : json["model"]["merges"]) {
    texts.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  json["model"]["merges"] = texts;
  const Tokenizer joined = loaded(Tokenizer::from_tokenizer_json(json.dump()));
  for (const auto& text : byte_level_cases()["texts"]) {
    EXPECT_EQ(joined.encode(text.get<std::string>()), pairs.encode(text.get<std::string>()));
  }
}

// A user's words across the border merge with the template's, but make no special token.
TEST(Tokenizer, SpansAreOneTextWithNamesWhereTheyAreAllowed) {
  Json json = byte_level();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Tokenizer t = loaded(Tokenizer::from_tokenizer_json(json.dump()));
  using Spans = std::vector<Tokenizer::Span>;
  EXPECT_EQ(t.encode_spans(Spans{{"<|begin|>the", true}, {"re and", false}, {"", true}, {" then<|end|>", true}}),
            t.encode_with_specials("<|begin|>there and then<|end|>"));
  Ids expected{1000};
  for (const auto id : t.encode("a<|end|>b")) expected.push_back(id);
  expected.push_back(1001);
  EXPECT_EQ(t.encode_spans(Spans{{"<|begin|>", true}, {"a<|end|>b", false}, {"<|end|>", true}}), expected);
  // Nor do the two sides of a border together.
  EXPECT_EQ(t.encode_spans(Spans{{"<|e", true}, {"nd|>", false}}), t.encode("<|end|>"));
  EXPECT_EQ(t.encode_spans(Spans{{"<|e", true}, {"nd|>", true}}), t.encode("<|end|>"));
  EXPECT_EQ(t.encode_spans(Spans{}), Ids{});
  EXPECT_EQ(t.encode_spans(Spans{{"", true}, {"", false}}), Ids{});
}

// Made by tests/oracle/make_sentencepiece_cases.py.
TEST(TokenizerSentencePiece, EncodesAndDecodesAsTheLibraryDoes) {
  const Tokenizer t = loaded(Tokenizer::from_sentencepiece(slurp(std::string(kFolder) + "sentencepiece.model")));
  EXPECT_EQ(t.vocab_size(), 800);
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  EXPECT_TRUE(t.add_bos());
  EXPECT_EQ(t.end_ids(), Ids{2});
  const Json cases = Json::parse(slurp(std::string(kFolder) + "sentencepiece_cases.json"));
  ASSERT_GT(cases.size(), 150U);
  for (const auto& one : cases) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(t.encode(text), one["ids"].get<Ids>()) << one["text"];
    EXPECT_EQ(t.decode(one["ids"].get<Ids>()), one["decoded"].get<std::string>());
  }
}

TEST(TokenizerSentencePiece, PutsASpaceBeforeTheTextOfEachTurn) {
  const std::string model = slurp(std::string(kFolder) + "sentencepiece.model");
  const Tokenizer each = loaded(Tokenizer::from_sentencepiece(model));
  const std::int32_t turn = *each.special_id("<turn>");
  Ids expected = each.encode("the");
  expected.insert(expected.begin(), turn);
  EXPECT_EQ(each.encode_with_specials("<turn>the"), expected);
  EXPECT_EQ(each.decode(expected), "<turn>the");  // the first text after a special token
  const Tokenizer first = loaded(Tokenizer::from_sentencepiece(model, R"({"legacy": false})"));
  EXPECT_EQ(first.encode("the"), each.encode("the"));
  EXPECT_NE(first.encode_with_specials("<turn>the"), expected);
  const Tokenizer none = loaded(Tokenizer::from_sentencepiece(model, R"({"add_prefix_space": false})"));
  EXPECT_NE(none.encode("the"), each.encode("the"));
  EXPECT_EQ(none.decode(each.encode("the")), " the");
}

TEST(TokenizerSentencePiece, TakesMoreTokensFromTheConfiguration) {
  const std::string model = slurp(std::string(kFolder) + "sentencepiece.model");
  const Tokenizer t = loaded(Tokenizer::from_sentencepiece(
      model, R"({"added_tokens_decoder": {"1": {"content": "<s>", "special": true}, "802": {"content": "<|im_end|>"}},
                 "eos_token": "<|im_end|>", "add_bos_token": false})"));
  EXPECT_EQ(t.vocab_size(), 803);
  EXPECT_EQ(t.eos(), 802);
  EXPECT_EQ(t.end_ids(), (Ids{2, 802}));
  EXPECT_FALSE(t.add_bos());
  EXPECT_EQ(t.encode_with_specials("<|im_end|>"), Ids{802});
  const auto wrong = Tokenizer::from_sentencepiece(model, R"({"added_tokens_decoder": {"1": {"content": "<t>"}}})");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("belong together"), std::string::npos) << wrong.error().message;
}

// The same vocabulary as GGUF and as the tokenizer.json that Hugging Face converts it to. Texts with user-defined names
// are left out: there they end a text, in SentencePiece they do not.
TEST(TokenizerSentencePiece, IsTheSameInGgufAndTokenizerJson) {
  const std::string bytes = slurp(std::string(kFolder) + "sentencepiece.model");
  const auto file = read_sentencepiece_file(bytes);
  ASSERT_TRUE(file);
  const GgufCopy copy(*file);
  const Tokenizer gguf = loaded(Tokenizer::from_gguf(copy.vocabulary));
  EXPECT_EQ(gguf.bos(), 1);
  EXPECT_TRUE(gguf.add_bos());

  Json json = byte_level();
  json["added_tokens"] = Json::array();
  json["model"] = {{"type", "BPE"}, {"unk_token", "<unk>"}, {"fuse_unk", true}, {"byte_fallback", true}};
  Json& vocabulary = json["model"]["vocab"] = Json::object();
  struct Cut {
    float score;
    Json pair;
  };
  std::vector<Cut> cuts;
  for (const auto& piece : file->pieces) vocabulary[std::string(piece.text)] = vocabulary.size();
  std::vector<std::string> user_defined;
  for (const auto& piece : file->pieces) {
    const std::string text(piece.text);
    if (piece.type == SentencePieceFile::PieceType::user_defined) user_defined.push_back(from_space_marks(text));
    if (piece.type != SentencePieceFile::PieceType::normal) continue;
    for (std::size_t at = 1; at < text.size(); ++at) {
      if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
      if (vocabulary.contains(text.substr(0, at)) && vocabulary.contains(text.substr(at))) {
        cuts.push_back({piece.score, Json::array({text.substr(0, at), text.substr(at)})});
      }
    }
  }
  std::stable_sort(cuts.begin(), cuts.end(), [](const Cut& a, const Cut& b) { return a.score > b.score; });
  Json& merges = json["model"]["merges"] = Json::array();
  for (Cut& cut : cuts) merges.push_back(std::move(cut.pair));
  json["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})");
  json["post_processor"] = nullptr;
  json["decoder"] = Json::parse(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})");
  const Tokenizer converted = loaded(Tokenizer::from_tokenizer_json(json.dump()));

  int compared = 0;
  for (const auto& one : Json::parse(slurp(std::string(kFolder) + "sentencepiece_cases.json"))) {
    const auto text = one["text"].get<std::string>();
    const std::string spaced = " " + from_space_marks(text);
    if (text.empty() || std::any_of(user_defined.begin(), user_defined.end(),
                                    [&](const std::string& name) { return spaced.find(name) != spaced.npos; })) {
      continue;
    }
    ++compared;
    EXPECT_EQ(gguf.encode(text), one["ids"].get<Ids>()) << one["text"];
    EXPECT_EQ(converted.encode(text), one["ids"].get<Ids>()) << one["text"];
    EXPECT_EQ(gguf.decode(one["ids"].get<Ids>()), one["decoded"].get<std::string>());
    EXPECT_EQ(converted.decode(one["ids"].get<Ids>()), one["decoded"].get<std::string>());
  }
  EXPECT_GT(compared, 30);
}

std::vector<Tokenizer> one_of_each_kind() {
  std::vector<Tokenizer> all;
  Json json = byte_level();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  all.push_back(loaded(Tokenizer::from_tokenizer_json(json.dump())));
  all.push_back(loaded(Tokenizer::from_sentencepiece(slurp(std::string(kFolder) + "sentencepiece.model"))));
  all.push_back(loaded(Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3")));
  return all;
}

TEST(Tokenizer, GivesBackAnyBytesInEachKind) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (const Tokenizer& t : one_of_each_kind()) {
    for (int round = 0; round < 1000; ++round) {
      std::string text;
      for (unsigned n = rng() % 60; n > 0; --n) text += static_cast<char>(rng() % (round % 3 == 0 ? 128 : 256));
      if (text.find("\u2581") != text.npos) continue;
      const Ids ids = t.encode(text);
      for (const auto id : ids) EXPECT_FALSE(t.is_special(id));
      EXPECT_EQ(t.decode(ids), text);
    }
  }
}

// What is shown while a model writes is what the whole would give, whatever the ids.
TEST(Tokenizer, DecodesOneByOneAsAWhole) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (const Tokenizer& t : one_of_each_kind()) {
    for (int round = 0; round < 1000; ++round) {
      Ids ids;
      for (unsigned n = rng() % 12; n > 0; --n) {
        ids.push_back(static_cast<std::int32_t>(rng() % static_cast<unsigned>(t.vocab_size() + 2)) - 1);
      }
      TokenDecoder decoder(t);
      Utf8Stream shown, whole;
      std::string one_by_one;
      for (const std::int32_t id : ids) one_by_one += shown.push(decoder.push(id));
      one_by_one += shown.flush();
      std::string at_once = whole.push(t.decode(ids));
      at_once += whole.flush();
      EXPECT_EQ(one_by_one, at_once);
      // Two halves: the second one continues.
      const auto half = static_cast<std::ptrdiff_t>(ids.size() / 2);
      std::string halves = t.decode(Ids(ids.begin(), ids.begin() + half));
      if (std::any_of(ids.begin(), ids.begin() + half,
                      [&](std::int32_t id) { return !t.is_special(id) && !t.token_bytes(id).empty(); })) {
        TokenDecoder rest(t, true);
        for (auto id = ids.begin() + half; id != ids.end(); ++id) halves += rest.push(*id);
        EXPECT_EQ(halves, t.decode(ids));
      }
    }
  }
}

// Eight times the text takes about eight times as long: compared on the same machine, however slow it is.
TEST(Tokenizer, LongTextsTakeNoQuadraticTimeInAnyKind) {
  for (const Tokenizer& t : one_of_each_kind()) {
    const auto seconds = [&](const std::string& text) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(t.decode(t.encode(text)), text);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    for (const std::string_view atom : {"a", " ", "the", "\u4E2D"}) {
      std::string small, large;
      while (small.size() < (1 << 12)) small += atom;
      for (int i = 0; i < 8; ++i) large += small;
      const double reference = std::min(seconds(small), seconds(small));
      EXPECT_LT(seconds(large), 30 * reference + 0.05) << atom;
    }
  }
}

TEST(Tokenizer, LoadPicksTheFileThatIsThere) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("tokenizer-test-" + std::to_string(std::random_device{}()));
  std::filesystem::create_directory(folder);
  const auto none = Tokenizer::load(folder);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::not_found);
  EXPECT_NE(none.error().message.find("tokenizer.json"), std::string::npos);
  std::filesystem::copy_file(std::string(kFolder) + "sentencepiece.model", folder / "tokenizer.model");
  EXPECT_EQ(loaded(Tokenizer::load(folder)).vocab_size(), 800);
  Json json = byte_level();
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  std::ofstream(folder / "tokenizer.json") << json.dump();
  EXPECT_EQ(loaded(Tokenizer::load(folder)).vocab_size(), 1003);
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": "<|end|>"})";
  EXPECT_EQ(loaded(Tokenizer::load(folder, 1024)).eos(), 1001);
  std::filesystem::copy_file(MYRIAD_SOURCE_DIR "/models/tiny-k3/tiktoken.model", folder / "tiktoken.model");
  EXPECT_EQ(loaded(Tokenizer::load(folder)).rank_count(), 4032);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace myriad
