#include "model/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>

#include "model/pretokenizer.h"

namespace myriad {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<std::filesystem::path> test_data() {
  const char* folder = std::getenv("MYRIAD_TEST_DATA");
  if (folder == nullptr || !std::filesystem::exists(folder)) return std::nullopt;
  return folder;
}

std::string base64(std::string_view bytes) {
  static constexpr char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      group = group << 8 | (i + b < bytes.size() ? static_cast<unsigned char>(bytes[i + b]) : 0U);
    }
    for (std::size_t d = 0; d < 4; ++d) out += i + d <= bytes.size() ? kAlphabet[group >> (18 - 6 * d) & 63] : '=';
  }
  return out;
}

// A vocabulary of all bytes and these tokens.
std::string vocabulary(const std::vector<std::string>& more) {
  std::string file;
  int rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    file += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(rank++) + "\n";
  }
  for (const std::string& token : more) file += base64(token) + " " + std::to_string(rank++) + "\n";
  return file;
}

Tokenizer made(const std::vector<std::string>& more, std::string_view config = {}, std::int32_t vocab_size = 0) {
  auto tokenizer = Tokenizer::parse(vocabulary(more), config, vocab_size);
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);
  return std::move(*tokenizer);
}

using Ids = std::vector<std::int32_t>;

TEST(Tokenizer, EncodesTheHoldOutTextAsTheReferenceDid) {
  const std::filesystem::path folder = MYRIAD_SOURCE_DIR "/models/tiny-k3";
  const auto tokenizer = Tokenizer::load(folder, 4096);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 4096);
  EXPECT_EQ(tokenizer->rank_count(), 4032);
  const auto expected = nlohmann::json::parse(slurp(folder / "EXPECTED.json"));
  const std::string text = slurp(folder / "holdout.txt");
  Ids ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->decode(ids), text);
  const Ids window = expected["first_window_ids"].get<Ids>();
  ASSERT_GE(ids.size(), window.size());
  ids.resize(window.size());
  EXPECT_EQ(ids, window);
  EXPECT_EQ(tokenizer->encode(expected["greedy_prompt"].get<std::string>()), expected["greedy_prompt_ids"].get<Ids>());
  EXPECT_EQ(tokenizer->special_id("<|open|>"), 4035);
  EXPECT_EQ(tokenizer->bos(), 4032);
  EXPECT_EQ(tokenizer->eos(), 4034);  // its configuration says <|end_of_msg|>
}

TEST(Tokenizer, EncodesWithKimisVocabularyAsTheReferenceDid) {
  const auto data = test_data();
  if (!data) GTEST_SKIP() << "MYRIAD_TEST_DATA is not set";
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = Tokenizer::parse(slurp(*data / "tokenizers/kimi_k2.tiktoken"), {});
  const auto loading = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->vocab_size(), 163'840);
  EXPECT_LT(tokenizer->memory_bytes(), 25'000'000U);
  RecordProperty("load_ms", static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(loading).count()));
  const auto cases = nlohmann::json::parse(slurp(*data / "golden/kimi_tokenizer_ids.json"))["cases"];
  ASSERT_GE(cases.size(), 80U);
  for (const auto& one : cases) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text), one["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(one["ids"].get<Ids>()), text);
  }
}

TEST(Tokenizer, MergesTheLowestRankFirstAndTheLeftmostOfEqualOnes) {
  const Tokenizer t = made({"aa", "ab", "aaa", "bc"});
  EXPECT_EQ(t.encode("aaaa"), (Ids{256, 256}));
  EXPECT_EQ(t.encode("aaaaa"), (Ids{256, 258}));  // aa aa a: then "aa"+"a" becomes aaa
  EXPECT_EQ(t.encode("abc"), (Ids{257, 'c'}));    // ab (257) before bc (259)
  EXPECT_EQ(t.encode("zbc"), (Ids{'z', 259}));
}

// The rule said as directly as it can be.
Ids merged_by_definition(const Tokenizer& t, std::string_view piece, const std::map<std::string, std::int32_t>& ranks) {
  std::vector<std::string> parts;
  for (const char c : piece) parts.emplace_back(1, c);
  if (const auto whole = ranks.find(std::string(piece)); whole != ranks.end()) return {whole->second};
  for (;;) {
    std::int32_t best = t.vocab_size();
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == t.vocab_size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const auto& part : parts) ids.push_back(ranks.at(part));
  return ids;
}

TEST(Tokenizer, MergesAsDefinedOnRandomVocabularies) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int round = 0; round < 15; ++round) {
    std::vector<std::string> tokens;
    std::map<std::string, std::int32_t> ranks;
    for (int byte = 0; byte < 256; ++byte) ranks[std::string(1, static_cast<char>(byte))] = byte;
    for (int n = 0; n < 30; ++n) {
      std::string token;
      for (unsigned length = 2 + rng() % 4; length > 0; --length) token += static_cast<char>('a' + rng() % 3);
      if (ranks.emplace(token, 256 + static_cast<int>(tokens.size())).second) tokens.push_back(token);
    }
    const Tokenizer t = made(tokens);
    for (int n = 0; n < 20; ++n) {
      std::string piece;  // one piece: letters only; both sides of the length where the method changes
      for (unsigned length = 1 + rng() % 220; length > 0; --length) piece += static_cast<char>('a' + rng() % 3);
      EXPECT_EQ(t.encode(piece), merged_by_definition(t, piece, ranks)) << piece;
    }
  }
}

TEST(Tokenizer, GivesBackAnyBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const auto t = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3");
  ASSERT_TRUE(t);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned n = rng() % 80; n > 0; --n) text += static_cast<char>(rng() % (round % 3 == 0 ? 128 : 256));
    const Ids ids = t->encode(text);
    for (const auto id : ids) EXPECT_FALSE(t->is_special(id));
    EXPECT_EQ(t->decode(ids), text);
  }
}

TEST(Tokenizer, SpecialTokensComeOnlyWhereTheyAreAllowed) {
  const auto t = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3");
  ASSERT_TRUE(t);
  const std::int32_t open = *t->special_id("<|open|>"), reserved = *t->special_id("<|reserved_token_4046|>");
  for (const auto id : t->encode("<|open|>")) EXPECT_FALSE(t->is_special(id));
  EXPECT_EQ(t->encode_with_specials("<|open|>"), Ids{open});
  EXPECT_EQ(t->encode_with_specials("<|open|><|reserved_token_4046|>"), (Ids{open, reserved}));
  Ids expected = t->encode("a <|op");
  expected.push_back(open);
  for (const auto id : t->encode(" b<|")) expected.push_back(id);
  EXPECT_EQ(t->encode_with_specials("a <|op<|open|> b<|"), expected);
  EXPECT_EQ(t->token_bytes(open), "<|open|>");
  EXPECT_EQ(t->decode(Ids{open, -1, 1'000'000}), "<|open|>");
  EXPECT_EQ(t->special_id("<|no such|>"), std::nullopt);
}

// White space at the end of the text before a special token is one piece, as at the end of a text.
TEST(Tokenizer, TextEndsAtASpecialToken) {
  const Tokenizer t = made({"  ", " a"}, R"({"added_tokens_decoder": {"258": {"content": "<x>"}}})");
  EXPECT_EQ(t.encode_with_specials("  <x> a"), (Ids{256, 258, 257}));
}

TEST(Tokenizer, NamesSpecialTokensFromTheConfiguration) {
  constexpr std::string_view kConfig =
      R"({"added_tokens_decoder": {"257": {"content": "<one>"}, "259": {"content": "<two>"}},
          "bos_token": "<two>", "eos_token": {"content": "<one>"}})";
  const Tokenizer t = made({}, kConfig);
  EXPECT_EQ(t.vocab_size(), 260);
  EXPECT_EQ(t.special_id("<one>"), 257);
  EXPECT_EQ(t.special_id("<|reserved_token_256|>"), 256);
  EXPECT_EQ(t.bos(), 259);
  EXPECT_EQ(t.eos(), 257);
  EXPECT_EQ(made({}, kConfig, 300).special_id("<|reserved_token_299|>"), 299);
  EXPECT_EQ(made({}).vocab_size(), 512);
  EXPECT_EQ(made({}, {}, 258).vocab_size(), 258);
  EXPECT_EQ(made({}).bos(), std::nullopt);
}

TEST(Tokenizer, TakesTheLongestOfNamesThatBeginAlike) {
  const Tokenizer t = made({}, R"({"added_tokens_decoder": {"256": {"content": "<a"}, "257": {"content": "<a>"}}})");
  EXPECT_EQ(t.encode_with_specials("<a><a<a>"), (Ids{257, 256, 257}));
}

TEST(Tokenizer, RanksMayComeInAnyOrder) {
  std::string file = vocabulary({"ab", "abc"});
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < file.size();) {
    const std::size_t end = file.find('\n', at);
    lines.push_back(file.substr(at, end - at));
    at = end + 1;
  }
  std::string turned;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) turned += *line + "\r\n";
  const auto t = Tokenizer::parse(turned, {});
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->encode("abc"), Ids{257});
  EXPECT_EQ(t->token_bytes(256), "ab");
}

void expect_error(std::string_view tiktoken, std::string_view config, std::int32_t vocab_size, std::string_view words) {
  const auto t = Tokenizer::parse(tiktoken, config, vocab_size);
  ASSERT_FALSE(t) << words;
  EXPECT_NE(t.error().message.find(words), std::string::npos) << t.error().message;
}

TEST(Tokenizer, SaysWhatIsWrongWithAVocabulary) {
  const std::string good = vocabulary({});
  expect_error("", {}, 0, "none for the single byte 0x00");
  expect_error(good + "YWI=", {}, 0, "line 257 is 'YWI=': base64, one space and a rank");
  expect_error(good + "YWI 256", {}, 0, "not base64");
  expect_error(good + "YW== 256", {}, 0, "not base64");  // bits behind the padding
  expect_error(good + "Y*I= 256", {}, 0, "not base64");
  expect_error(good + " 256", {}, 0, "not base64");
  expect_error(good + "YWI= 0256", {}, 0, "rank is not a number");
  expect_error(good + "YWI= -1", {}, 0, "rank is not a number");
  expect_error(good + "YWI= 99999999999999999999", {}, 0, "rank is not a number");
  expect_error(good + "YWI= 256 ", {}, 0, "rank is not a number");
  expect_error(good + "YWI= 255", {}, 0, "an earlier line has the same rank");
  expect_error(good + "YWI= 257", {}, 0, "ranks up to 257");
  expect_error(good + "YWI= 256\nYWI= 257", {}, 0, "twice, as 256 and 257");
  expect_error(good + base64(std::string(Tokenizer::kMaxTokenBytes + 9, 'x')) + " 256", {}, 0, "at most 1024 bytes");
  expect_error(good.substr(good.find('\n') + 1), {}, 0, "ranks up to 255");
}

TEST(Tokenizer, SaysWhatIsWrongWithAConfiguration) {
  const std::string good = vocabulary({});
  expect_error(good, "{", 0, "not a JSON object");
  expect_error(good, "[]", 0, "not a JSON object");
  expect_error(good, R"({"added_tokens_decoder": 3})", 0, "not an object");
  expect_error(good, R"({"added_tokens_decoder": {"255": {"content": "a"}}})", 0, "do the two files belong together");
  expect_error(good, R"({"added_tokens_decoder": {"x": {"content": "a"}}})", 0, "names token 'x'");
  expect_error(good, R"({"added_tokens_decoder": {"9999999": {"content": "a"}}})", 0, "names token '9999999'");
  expect_error(good, R"({"added_tokens_decoder": {"256": {}}})", 0, "no content string");
  expect_error(good, R"({"added_tokens_decoder": {"256": {"content": ""}}})", 0, "has 0 bytes");
  expect_error(good, R"({"added_tokens_decoder": {"256": {"content": "a"}, "257": {"content": "a"}}})", 0,
               "the same name 'a'");
  expect_error(good, R"({"added_tokens_decoder": {"300": {"content": "a"}}})", 280, "do not belong together");
  expect_error(good, {}, 100, "do not belong together");
  expect_error(good, {}, -1, "was asked for");
  const auto t = Tokenizer::load(MYRIAD_SOURCE_DIR "/no/such/folder");
  ASSERT_FALSE(t);
  EXPECT_EQ(t.error().code, Code::not_found);
}

// Eight times the text takes about eight times as long, not sixty-four times: compared on the same machine, however
// slow it is.
TEST(Tokenizer, LongPiecesTakeNoQuadraticTime) {
  const auto t = Tokenizer::load(MYRIAD_SOURCE_DIR "/models/tiny-k3");
  ASSERT_TRUE(t);
  const auto seconds = [&](const std::string& text) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(t->decode(t->encode(text)), text);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const char letter : {'a', ' ', '='}) {
    const double small = std::min(seconds(std::string(1 << 12, letter)), seconds(std::string(1 << 12, letter)));
    const double large = seconds(std::string(1 << 15, letter));
    EXPECT_LT(large, 30 * small + 0.05) << letter;
  }
}

// Where the official tokenizer cuts, no token crosses.
TEST(Tokenizer, NoTokenCrossesACutOfALongText) {
  const Tokenizer t = made({"aa"});
  const Ids ids = t.encode(std::string(kCutRun + 1, 'a'));
  ASSERT_EQ(ids.size(), kCutRun / 2 + 1);
  EXPECT_EQ(ids.back(), 'a');
  // A special token's name across a cut is text.
  const Tokenizer special = made({}, R"({"added_tokens_decoder": {"256": {"content": "[BOS]"}}})");
  const auto across = special.encode_with_specials(std::string(kCutRun - 2, 'a') + "[BOS]");
  EXPECT_EQ(across.size(), kCutRun + 3);
  const auto before = special.encode_with_specials(std::string(kCutRun - 5, 'a') + "[BOS]");
  EXPECT_EQ(before.back(), 256);
}

}  // namespace
}  // namespace myriad
