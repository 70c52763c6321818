// Byte-pair merging: the tokens of one piece of text.
//
// A piece begins as symbols: its bytes, or its characters. Again and again the best pair of neighbours is joined, the
// leftmost of equal ones, until no pair can be. What "best" means is the vocabulary's: the lowest id of what they give
// (tiktoken), the highest score of it (SentencePiece), or the earliest rule in a list of merges (Hugging Face, GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/token_table.h"

namespace myriad {

// Which pairs merge into what, the first one first.
class MergeList {
 public:
  static constexpr std::size_t kMaxMerges = std::size_t{1} << 22;
  struct Merge {
    std::int32_t left = -1, right = -1, result = -1;
  };

  MergeList() = default;
  // Of two rules for one pair the first counts. Errors: limit if there are more than kMaxMerges, or if the ids were
  // chosen so that looking them up would be slow.
  static Result<MergeList> make(std::vector<Merge> merges);
  // The index of the rule for a pair, −1 if there is none.
  [[nodiscard]] std::int32_t find(std::int32_t left, std::int32_t right) const;
  [[nodiscard]] const Merge& operator[](std::int32_t index) const { return merges_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] std::size_t size() const { return merges_.size(); }
  [[nodiscard]] std::size_t memory_bytes() const;

 private:
  std::vector<Merge> merges_;
  std::vector<std::int32_t> slots_;  // open-addressing hash table of indices; −1 is free; a power of two
};

struct MergeRules {
  enum class Order : std::uint8_t { by_id, by_score, by_list };
  Order order = Order::by_id;
  std::vector<std::int32_t> score_rank;  // by_score: of each id, lower is better
  MergeList list;                        // by_list
  bool whole_pieces = false;             // a piece that is a token is taken as it is, without merging
  bool characters = false;               // symbols begin as characters, not as bytes
  // Tokens of single bytes, −1 where there is none: what symbols begin as, or with `characters` what a character
  // becomes that is no token. If one of its bytes has none either, it becomes `unknown`; several in a row become one
  // with `fuse_unknown`.
  std::array<std::int32_t, 256> bytes{};
  std::int32_t unknown = -1;
  bool fuse_unknown = false;

  MergeRules() { bytes.fill(-1); }
  // Sets score_rank. Errors: corrupt if a score is not a number.
  Status set_scores(std::span<const float> scores);
};

// Merges one piece after the other, with the memory of the piece before. The table and the rules must outlive it.
class TokenMerger {
 public:
  static constexpr std::size_t kMaxPiece = std::size_t{1} << 30;  // longer pieces are cut

  TokenMerger(const TokenTable& table, const MergeRules& rules) : table_(table), rules_(rules) {}
  // Appends the tokens of a piece. Time n log n in its length.
  void merge(std::string_view piece, std::vector<std::int32_t>& out);
  // What was unknown before does not count any more.
  void begin_text() { last_unknown_ = false; }

 private:
  // Up to here looking at every pair before each merge is faster than keeping them in order.
  static constexpr std::size_t kShort = 96;

  // What two neighbours make; out of date when their bytes are no longer exactly two symbols.
  struct Pair {
    std::int32_t rank = kNone;
    std::int32_t result = -1;
    std::uint32_t start = 0, end = 0;
    static constexpr std::int32_t kNone = 0x7FFFFFFF;
    bool operator>(const Pair& other) const { return rank != other.rank ? rank > other.rank : start > other.start; }
  };
  // Bytes of the symbol that `at` begins, before merging, and its id or −1.
  std::size_t first_symbol(std::string_view piece, std::size_t at, std::int32_t& id) const;
  // The pair of neighbours that cover piece[start, end).
  [[nodiscard]] Pair pair_of(std::string_view piece, std::int32_t left, std::int32_t right, std::size_t start,
                             std::size_t end) const;
  void merge_short(std::string_view piece, std::vector<std::int32_t>& out);
  void merge_long(std::string_view piece, std::vector<std::int32_t>& out);
  void put(std::int32_t id, std::string_view symbol, std::vector<std::int32_t>& out);

  const TokenTable& table_;
  const MergeRules& rules_;
  bool last_unknown_ = false;
  std::vector<std::uint32_t> end_, previous_;
  std::vector<std::int32_t> ids_;
  std::vector<Pair> pairs_;
};

}  // namespace myriad
