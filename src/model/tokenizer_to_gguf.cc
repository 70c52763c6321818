// A tokenizer in the terms of GGUF: the way back from Tokenizer::from_gguf, whatever file it was read from.
#include <algorithm>
#include <limits>
#include <utility>

#include "model/tokenizer.h"
#include "model/utf8_stream.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

enum GgufTokenType : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string with_space_marks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += "\u2581";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

// Where a token may be cut in two: behind each of its characters but the last.
template <class Visit>
void for_each_split(std::string_view token, Visit visit) {
  for (std::size_t at = utf8_char_at(token, 0).length; at < token.size(); at += utf8_char_at(token, at).length) {
    visit(token.substr(0, at), token.substr(at));
  }
}

// The two tokens that merging by rank joins last to make the token of this rank; −1 if merging cannot make it.
std::pair<std::int32_t, std::int32_t> last_merge(const TokenTable& table, std::int32_t rank) {
  std::vector<std::string_view> parts;
  const std::string_view bytes = table.bytes(rank);
  for (std::size_t i = 0; i < bytes.size(); ++i) parts.push_back(bytes.substr(i, 1));
  while (parts.size() > 2) {
    std::int32_t best = rank;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::int32_t made = table.find({parts[i].data(), parts[i].size() + parts[i + 1].size()});
      if (made >= 0 && made < best) {
        best = made;
        at = i;
      }
    }
    if (best == rank) return {-1, -1};
    parts[at] = {parts[at].data(), parts[at].size() + parts[at + 1].size()};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  if (parts.size() < 2) return {-1, -1};
  return {table.find(parts[0]), table.find(parts[1])};
}

}  // namespace

Result<std::string> Tokenizer::gguf_pre() const {
  const std::vector<std::string_view> names = names_of_pretokenizer(pretokenizer_);
  const bool by_rank = rules_.order == MergeRules::Order::by_id;
  for (const std::string_view name : names) {
    if (by_rank != (name == "kimi-k2")) continue;
    if (by_rank ? text_.kimi_cuts : takes_whole_pieces(name) == rules_.whole_pieces) return std::string(name);
  }
  // A piece that is a token comes to the same where merging makes every token of its bytes.
  MergeRules merging = rules_;
  merging.whole_pieces = false;
  TokenMerger merger(table_, merging);
  std::vector<std::int32_t> made;
  const auto makes_itself = [&](std::int32_t id) {
    made.clear();
    merger.merge(table_.bytes(id), made);
    return made.size() == 1;
  };
  std::int32_t id = 0;
  while (id < table_.size() && (table_.kind(id) != TokenKind::text || makes_itself(id))) ++id;
  for (const std::string_view name : names) {
    if (!by_rank && name != "kimi-k2" && id == table_.size()) return std::string(name);
  }
  return fail(Code::unsupported,
              "GGUF has no name for its pre-tokeniser{}: the names that are known stand in docs/tokenizers.md",
              names.empty() ? "" : " together with its way of merging");
}

std::vector<std::string> Tokenizer::gguf_merges() const {
  std::vector<std::string> out;
  const auto add = [&](std::int32_t left, std::int32_t right) {
    out.push_back(to_byte_level(table_.bytes(left)) + ' ' + to_byte_level(table_.bytes(right)));
  };
  if (rules_.order == MergeRules::Order::by_list) {
    out.reserve(rules_.list.size());
    for (std::size_t i = 0; i < rules_.list.size(); ++i) {
      const MergeList::Merge& merge = rules_.list[static_cast<std::int32_t>(i)];
      add(merge.left, merge.right);
    }
    return out;
  }
  for (std::int32_t id = 0; id < table_.size(); ++id) {
    if (table_.kind(id) != TokenKind::text || table_.bytes(id).size() < 2) continue;
    if (const auto [left, right] = last_merge(table_, id); left >= 0 && right >= 0) add(left, right);
  }
  return out;
}

Result<std::vector<float>> Tokenizer::gguf_scores() const {
  const auto n = static_cast<std::size_t>(table_.size());
  std::vector<std::int32_t> rank = rules_.score_rank;
  if (rules_.order == MergeRules::Order::by_list) {
    // A score is one number for all merges that make a token: they must lie side by side in the list, and each way to
    // cut a token into two others must be one of them.
    rank.assign(n, std::numeric_limits<std::int32_t>::max());
    std::int32_t last = -1, next = 0;
    for (std::size_t i = 0; i < rules_.list.size(); ++i) {
      const std::int32_t made = rules_.list[static_cast<std::int32_t>(i)].result;
      if (made == last) continue;
      last = made;
      std::int32_t& place = rank[static_cast<std::size_t>(made)];
      if (place != std::numeric_limits<std::int32_t>::max()) {
        return fail(Code::unsupported,
                    "its list of merges has {} in more than one place, which GGUF's scores cannot say; a "
                    "tokenizer.model instead of the tokenizer.json would do",
                    shown_token(table_.bytes(made)));
      }
      place = next++;
    }
    for (std::int32_t id = 0; id < table_.size(); ++id) {
      std::int32_t& place = rank[static_cast<std::size_t>(id)];
      if (place == std::numeric_limits<std::int32_t>::max()) place = next;
      if (table_.kind(id) != TokenKind::text) continue;
      bool whole = true;
      for_each_split(table_.bytes(id), [&](std::string_view left, std::string_view right) {
        const std::int32_t l = table_.find(left), r = table_.find(right);
        whole = whole && (l < 0 || r < 0 || rules_.list.find(l, r) >= 0);
      });
      if (!whole) {
        return fail(Code::unsupported,
                    "its list of merges lacks a way to make {}, which GGUF's scores cannot say; a tokenizer.model "
                    "instead of the tokenizer.json would do",
                    shown_token(table_.bytes(id)));
      }
    }
  }
  std::vector<float> scores(n);
  for (std::size_t i = 0; i < n; ++i) scores[i] = -static_cast<float>(rank[i]);
  return scores;
}

std::vector<std::string> Tokenizer::gguf_rules() const {
  std::vector<std::string> out;
  const auto say = [&](bool true_here, std::string_view rule) {
    if (true_here) out.emplace_back(rule);
  };
  const bool prefix = text_.prefix != TextRules::Prefix::none;
  say(text_.nfc, kRuleNfc);
  say(text_.prefix == TextRules::Prefix::first, kRulePrefixFirst);
  say(text_.prefix_unless_space, kRulePrefixUnlessSpace);
  say(!prefix && text_.strip_first_space, kRuleStripSpace);
  say(prefix && !text_.strip_first_space, kRuleKeepSpace);
  say(text_.user_defined_inside && table_.has_user_defined(), kRuleUserDefinedInside);
  say(text_.sentencepiece && !rules_.fuse_unknown && rules_.unknown >= 0, kRuleUnknownsApart);
  return out;
}

Result<GgufVocabularyTexts> Tokenizer::to_gguf() const {
  GgufVocabularyTexts out;
  const bool spm = text_.sentencepiece;
  out.model = spm ? "llama" : "gpt2";
  for (std::int32_t id = 0; id < table_.size(); ++id) {
    const std::string_view bytes = table_.bytes(id);
    switch (table_.kind(id)) {
      case TokenKind::text:
        out.tokens.push_back(spm ? with_space_marks(bytes) : to_byte_level(bytes));
        out.types.push_back(kNormal);
        break;
      case TokenKind::silent:
        out.tokens.emplace_back(bytes);
        out.types.push_back(kNormal);
        break;
      case TokenKind::byte:
        out.tokens.push_back(fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[0])));
        out.types.push_back(kByte);
        break;
      case TokenKind::user_defined:
        out.tokens.emplace_back(bytes);
        out.types.push_back(kUserDefined);
        break;
      case TokenKind::special:
        out.tokens.emplace_back(bytes);
        out.types.push_back(spm && id == rules_.unknown ? kUnknown : kControl);
        break;
      case TokenKind::unused:
        out.tokens.push_back(bytes.empty() ? fmt::format("[PAD{}]", id) : std::string(bytes));
        out.types.push_back(kUnused);
        break;
    }
  }
  if (spm) {
    if (rules_.whole_pieces) {
      return fail(Code::unsupported,
                  "it takes pieces that are tokens as they are, which GGUF's SentencePiece does not");
    }
    // Words are cut apart where that changes nothing; where it does, GGUF cannot say it.
    if (pretokenizer_.size() != 0 && pretokenizer_.rule(0) != space_run_first_piece) {
      for (std::int32_t id = 0; id < table_.size(); ++id) {
        const bool text = table_.kind(id) == TokenKind::text || table_.kind(id) == TokenKind::user_defined;
        if (text && table_.bytes(id).find(' ', 1) != std::string_view::npos) {
          return fail(Code::unsupported,
                      "it cuts text at every space although it has the token {}; GGUF's SentencePiece does not",
                      shown_token(table_.bytes(id)));
        }
      }
    }
    MYRIAD_TRY(out.scores, gguf_scores());
    out.add_space_prefix = text_.prefix != TextRules::Prefix::none;
    if (rules_.unknown >= 0) out.unknown = static_cast<std::uint32_t>(rules_.unknown);
  } else {
    MYRIAD_TRY(out.pre, gguf_pre());
    out.merges = gguf_merges();
  }
  if (bos_) out.bos = static_cast<std::uint32_t>(*bos_);
  if (eos_) out.eos = static_cast<std::uint32_t>(*eos_);
  out.add_bos = add_bos_;
  out.rules = gguf_rules();
  return out;
}

}  // namespace myriad
