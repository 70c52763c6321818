#include "gateway/completion_session.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

namespace myriad {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer instance = [] {
    auto loaded = Tokenizer::load(std::filesystem::path(MYRIAD_SOURCE_DIR) / "models/tiny-k3");
    if (!loaded) throw std::runtime_error(loaded.error().to_string());
    return std::move(*loaded);
  }();
  return instance;
}

// One token a byte, so that every character of more than one byte is split.
std::vector<std::int32_t> byte_tokens(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char c : text) {
    const auto one = tokenizer().encode(std::string_view(&c, 1));
    EXPECT_EQ(one.size(), 1U);
    ids.insert(ids.end(), one.begin(), one.end());
  }
  return ids;
}

Sample sample_of(std::int32_t id) {
  return {id, -1, {}};
}

CompletionSession::Options with(std::vector<std::string> stop, bool keep_tokens = false) {
  CompletionSession::Options o;
  o.stop = std::move(stop);
  o.keep_tokens = keep_tokens;
  return o;
}

std::int32_t special(std::string_view name) {
  return tokenizer().special_id(name).value();
}

TEST(CompletionSession, HalfACharacterIsNeverShown) {
  const std::string text = "a\xE2\x82\xACz\xF0\x9F\x98\x80!";
  CompletionSession session(tokenizer(), with({}));
  std::string shown;
  for (const auto id : byte_tokens(text)) {
    const auto piece = session.push(sample_of(id));
    EXPECT_TRUE(is_valid_utf8(piece.text));
    shown += piece.text;
  }
  shown += session.finish().text;
  EXPECT_EQ(shown, text);
  EXPECT_EQ(session.finish_reason(false), "stop");
  EXPECT_EQ(session.finish_reason(true), "length");
}

TEST(CompletionSession, AnAnswerThatEndsInsideACharacterEndsWithAReplacement) {
  CompletionSession session(tokenizer(), with({}));
  std::string shown;
  for (const auto id : byte_tokens("a\xE2\x82")) shown += session.push(sample_of(id)).text;
  EXPECT_EQ(shown, "a");
  EXPECT_EQ(session.finish().text, "\xEF\xBF\xBD");
}

TEST(CompletionSession, StopStringAcrossTokensShowsNothingOfIt) {
  const std::string text = "one\xE2\x82\xAC two";
  CompletionSession session(tokenizer(), with({"e\xE2\x82\xAC t"}));
  std::string shown;
  for (const auto id : byte_tokens(text)) shown += session.push(sample_of(id)).text;
  EXPECT_TRUE(session.done());
  EXPECT_EQ(shown, "on");
  EXPECT_TRUE(session.finish().empty());
  EXPECT_EQ(session.finish_reason(true), "stop") << "a stop string ends an answer even at its last token";
}

TEST(CompletionSession, SpecialTokensAreNoText) {
  CompletionSession session(tokenizer(), with({}));
  EXPECT_TRUE(session.push(sample_of(special("<|open|>"))).empty());
  EXPECT_EQ(session.push(sample_of(byte_tokens("x")[0])).text, "x");
}

TEST(CompletionSession, TokensAreShownWithTheirTextAndCountCharacters) {
  const std::string text =
      "a\xC3\xA9"
      "bSTOPc";
  CompletionSession session(tokenizer(), with({"STOP"}, true));
  std::vector<std::size_t> offsets;
  std::string shown;
  for (const auto id : byte_tokens(text)) {
    auto piece = session.push(sample_of(id));
    shown += piece.text;
    for (const auto& t : piece.tokens) offsets.push_back(t.text_offset);
  }
  EXPECT_EQ(shown,
            "a\xC3\xA9"
            "b");
  EXPECT_EQ(offsets, (std::vector<std::size_t>{0, 1, 1, 2}))
      << "two tokens make the second character; none of the stop string is there";
}

TEST(CompletionSession, NoTokenOfAStopStringIsShownInWhateverBytesItComes) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> letters = {"a", "b", "\xC3\xA9", "\xE2\x82\xAC"};
  for (int round = 0; round < 500; ++round) {
    const auto word = [&](std::size_t n) {
      std::string out;
      while (n-- > 0) out += letters[random() % letters.size()];
      return out;
    };
    const std::string text = word(12), stop = word(1 + random() % 3);
    CompletionSession session(tokenizer(), with({stop}, true));
    std::string shown, tokens;
    const auto take = [&](const AnswerPiece& p) {
      shown += p.text;
      for (const auto& t : p.tokens) tokens += tokenizer().token_bytes(t.sample.token);
      ASSERT_TRUE(shown.starts_with(tokens) || tokens.starts_with(shown));
    };
    for (const auto id : byte_tokens(text)) take(session.push(sample_of(id)));
    take(session.finish());
    EXPECT_EQ(shown, text.substr(0, text.find(stop)));
    EXPECT_EQ(tokens, shown);
  }
}

// --- chat ---

std::vector<std::int32_t> open_tag(std::string_view name) {
  std::vector<std::int32_t> ids{special("<|open|>")};
  const auto text = tokenizer().encode(name);
  ids.insert(ids.end(), text.begin(), text.end());
  ids.push_back(special("<|sep|>"));
  return ids;
}
std::vector<std::int32_t> close_tag(std::string_view name) {
  auto ids = open_tag(name);
  ids[0] = special("<|close|>");
  return ids;
}
void add(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& ids) {
  to.insert(to.end(), ids.begin(), ids.end());
}

std::vector<std::int32_t> reply(int calls) {
  std::vector<std::int32_t> ids = byte_tokens("I think");
  add(ids, close_tag("think"));
  add(ids, open_tag("response"));
  add(ids, byte_tokens("Hello END"));
  add(ids, close_tag("response"));
  if (calls > 0) {
    add(ids, open_tag("tools"));
    for (int i = 1; i <= calls; ++i) {
      add(ids, open_tag(fmt::format("call tool=\"weather\" index=\"{}\"", i)));
      add(ids, open_tag("argument key=\"city\" type=\"string\""));
      add(ids, byte_tokens("Paris"));
      add(ids, close_tag("argument"));
      add(ids, close_tag("call"));
    }
    add(ids, close_tag("tools"));
  }
  add(ids, close_tag("message"));
  return ids;
}

AnswerPiece whole(CompletionSession& session, const std::vector<std::int32_t>& ids) {
  AnswerPiece all;
  for (const auto id : ids) all.append(session.push(sample_of(id)));
  all.append(session.finish());
  return all;
}

TEST(ChatSession, ChannelsAreTakenApart) {
  CompletionSession::Options o = with({}, true);
  o.chat.emplace();
  CompletionSession session(tokenizer(), o);
  const auto ids = reply(0);
  const AnswerPiece all = whole(session, ids);
  EXPECT_EQ(all.reasoning, "I think");
  EXPECT_EQ(all.text, "Hello END");
  EXPECT_TRUE(all.tool_calls.empty());
  EXPECT_EQ(all.tokens.size(), ids.size()) << "every token that was drawn";
  EXPECT_EQ(session.finish_reason(false), "stop");
}

TEST(ChatSession, StopStringsCountInBothChannelsButDoNotSpanThem) {
  CompletionSession::Options o = with({"thinkH", "END"});
  o.chat.emplace();
  CompletionSession session(tokenizer(), o);
  const AnswerPiece all = whole(session, reply(2));
  EXPECT_EQ(all.reasoning, "I think");
  EXPECT_EQ(all.text, "Hello ");
  EXPECT_TRUE(all.tool_calls.empty());

  CompletionSession::Options early = with({"nk"});
  early.chat.emplace();
  CompletionSession stopped(tokenizer(), early);
  const AnswerPiece some = whole(stopped, reply(0));
  EXPECT_EQ(some.reasoning, "I thi");
  EXPECT_EQ(some.text, "");
}

TEST(ChatSession, ToolCalls) {
  CompletionSession::Options o = with({});
  o.chat.emplace();
  o.chat->call_id_prefix = "call_x_";
  CompletionSession session(tokenizer(), o);
  const AnswerPiece all = whole(session, reply(2));
  ASSERT_EQ(all.tool_calls.size(), 2U);
  EXPECT_EQ(all.tool_calls[1].name, "weather");
  EXPECT_TRUE(all.tool_calls[1].id.starts_with("call_x_"));
  EXPECT_NE(all.tool_calls[0].id, all.tool_calls[1].id);
  EXPECT_EQ(all.tool_calls[0].arguments, R"({"city": "Paris"})");
  EXPECT_EQ(session.finish_reason(false), "tool_calls");
  EXPECT_EQ(session.finish_reason(true), "length");
}

TEST(ChatSession, OneCallIsEnoughWhenCallsMustNotBeParallel) {
  CompletionSession::Options o = with({});
  o.chat.emplace();
  o.parallel_tool_calls = false;
  CompletionSession session(tokenizer(), o);
  const AnswerPiece all = whole(session, reply(3));
  EXPECT_TRUE(session.done());
  EXPECT_EQ(all.tool_calls.size(), 1U);
  EXPECT_EQ(session.finish_reason(false), "tool_calls");
}

}  // namespace
}  // namespace myriad
