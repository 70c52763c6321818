#include "model/token_merger.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <stdexcept>
#include <string>

#include "model/utf8_stream.h"

namespace myriad {
namespace {

using Ids = std::vector<std::int32_t>;

TokenTable table_of(const std::vector<std::string>& tokens) {
  TokenTable table;
  for (const std::string& token : tokens) {
    if (!table.add(token, TokenKind::text)) throw std::runtime_error("too long");
  }
  if (const Status built = table.build_index(); !built) throw std::runtime_error(built.error().message);
  return table;
}

Ids merged(const TokenTable& table, const MergeRules& rules, std::string_view piece) {
  Ids ids;
  TokenMerger merger(table, rules);
  merger.merge(piece, ids);
  return ids;
}

// The rule said as directly as it can be. `rank` of two neighbours, −1 if they do not merge; lower is better.
template <class Rank>
Ids by_definition(const TokenTable& table, std::string_view piece, bool characters, Rank rank) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = characters ? utf8_char_at(piece, at).length : 1;
    parts.emplace_back(piece.substr(at, length));
    at += length;
  }
  for (;;) {
    int best = -1;
    std::size_t best_at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const int r = rank(parts[i], parts[i + 1]);
      if (r >= 0 && (best < 0 || r < best)) {
        best = r;
        best_at = i;
      }
    }
    if (best < 0) break;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(table.find(part));
  return ids;
}

std::vector<std::string> random_tokens(std::mt19937& rng, const std::vector<std::string>& letters) {
  std::map<std::string, bool> seen;
  std::vector<std::string> tokens = letters;
  for (const auto& letter : letters) seen[letter] = true;
  for (int n = 0; n < 30; ++n) {
    std::string token;
    for (unsigned length = 2 + rng() % 4; length > 0; --length) token += letters[rng() % letters.size()];
    if (!seen[token]) tokens.push_back(token);
    seen[token] = true;
  }
  return tokens;
}

std::string random_text(std::mt19937& rng, const std::vector<std::string>& letters) {
  std::string text;  // both sides of the length where the method changes
  for (unsigned length = 1 + rng() % 160; length > 0; --length) text += letters[rng() % letters.size()];
  return text;
}

TEST(TokenMerger, MergesByListAsDefined) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::vector<std::string> letters{"a", "b", "c"};
  for (int round = 0; round < 20; ++round) {
    const auto tokens = random_tokens(rng, letters);
    const TokenTable table = table_of(tokens);
    MergeRules rules;
    rules.order = MergeRules::Order::by_list;
    for (const auto& letter : letters) rules.bytes[static_cast<unsigned char>(letter[0])] = table.find(letter);
    // Any cut of a token into two, in any order, some twice: the first counts.
    std::vector<MergeList::Merge> merges;
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (int n = 0; n < 60; ++n) {
      const std::string& token = tokens[rng() % tokens.size()];
      if (token.size() < 2) continue;
      const std::size_t cut = 1 + rng() % (token.size() - 1);
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      if (table.find(left) < 0 || table.find(right) < 0) continue;
      ranks.emplace(std::pair(left, right), static_cast<int>(merges.size()));
      merges.push_back({table.find(left), table.find(right), table.find(token)});
    }
    rules.list = *MergeList::make(std::move(merges));
    for (int n = 0; n < 20; ++n) {
      const std::string text = random_text(rng, letters);
      EXPECT_EQ(merged(table, rules, text), by_definition(table, text, false,
                                                          [&](const auto& a, const auto& b) {
                                                            const auto found = ranks.find(std::pair(a, b));
                                                            return found == ranks.end() ? -1 : found->second;
                                                          }))
          << text;
    }
  }
}

TEST(TokenMerger, MergesByScoreAsDefined) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::vector<std::string> letters{"a", "\u00E9", "\u4E2D", "\U0001F600"};
  for (int round = 0; round < 20; ++round) {
    const auto tokens = random_tokens(rng, letters);
    const TokenTable table = table_of(tokens);
    MergeRules rules;
    rules.order = MergeRules::Order::by_score;
    rules.characters = true;
    std::vector<float> scores;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      scores.push_back(static_cast<float>(rng() % 12) - 6.5F);  // with ties
    ASSERT_TRUE(rules.set_scores(scores));
    for (int n = 0; n < 20; ++n) {
      const std::string text = random_text(rng, letters);
      EXPECT_EQ(merged(table, rules, text),
                by_definition(table, text, true,
                              [&](const auto& a, const auto& b) {
                                const std::int32_t id = table.find(a + b);
                                return id < 0 ? -1 : static_cast<int>(100 - scores[static_cast<std::size_t>(id)]);
                              }))
          << text;
    }
  }
}

TEST(TokenMerger, FallsBackToBytesAndThenToTheUnknownToken) {
  TokenTable table;
  ASSERT_TRUE(table.add("<unk>", TokenKind::special));
  ASSERT_TRUE(table.add("\xC3", TokenKind::byte));
  ASSERT_TRUE(table.add("\xA9", TokenKind::byte));
  ASSERT_TRUE(table.add("a", TokenKind::text));
  ASSERT_TRUE(table.build_index());
  MergeRules rules;
  rules.order = MergeRules::Order::by_score;
  rules.characters = true;
  rules.score_rank.assign(4, 0);
  rules.bytes[0xC3] = 1;
  rules.bytes[0xA9] = 2;
  rules.unknown = 0;
  EXPECT_EQ(merged(table, rules, "a\u00E9"), (Ids{3, 1, 2}));
  EXPECT_EQ(merged(table, rules, "xya\u4E2D"), (Ids{0, 0, 3, 0}));
  rules.fuse_unknown = true;
  EXPECT_EQ(merged(table, rules, "xya\u4E2D"), (Ids{0, 3, 0}));
  Ids ids;  // also across pieces of one text
  TokenMerger merger(table, rules);
  merger.merge("x", ids);
  merger.merge("y", ids);
  merger.begin_text();
  merger.merge("z", ids);
  EXPECT_EQ(ids, (Ids{0, 0}));
}

TEST(TokenMerger, TakesWholePiecesWhereThatIsTheRule) {
  const TokenTable table = table_of({"a", "b", "ab"});
  MergeRules rules;
  rules.order = MergeRules::Order::by_list;
  rules.bytes['a'] = 0;
  rules.bytes['b'] = 1;
  rules.list = *MergeList::make({});
  EXPECT_EQ(merged(table, rules, "ab"), (Ids{0, 1}));
  rules.whole_pieces = true;
  EXPECT_EQ(merged(table, rules, "ab"), Ids{2});
}

TEST(TokenMerger, RefusesScoresThatAreNoNumbers) {
  MergeRules rules;
  EXPECT_FALSE(rules.set_scores(std::vector<float>{0, NAN}));
  EXPECT_FALSE(rules.set_scores(std::vector<float>{-INFINITY}));
}

TEST(MergeList, FindsTheFirstRuleForAPair) {
  const auto list = MergeList::make({{1, 2, 3}, {2, 1, 4}, {1, 2, 5}});
  ASSERT_TRUE(list);
  EXPECT_EQ(list->find(1, 2), 0);
  EXPECT_EQ(list->find(2, 1), 1);
  EXPECT_EQ(list->find(1, 1), -1);
  EXPECT_EQ(MergeList().find(1, 2), -1);
}

}  // namespace
}  // namespace myriad
