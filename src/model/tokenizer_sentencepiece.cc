// SentencePiece's own model files.
#include <algorithm>

#include "model/sentencepiece_file.h"
#include "model/tokenizer.h"
#include "model/vocabulary_text.h"

namespace myriad {
namespace {

using PieceType = SentencePieceFile::PieceType;

Status check_supported(const SentencePieceFile& file) {
  using ModelType = SentencePieceFile::ModelType;
  if (file.model_type != ModelType::bpe) {
    return fail(Code::unsupported, "it is a {} model; BPE is supported",
                file.model_type == ModelType::unigram ? "unigram"
                : file.model_type == ModelType::word  ? "word"
                                                      : "character");
  }
  if (file.has_character_map) {
    return fail(Code::unsupported, "it normalises text by {}; identity is supported", shown_token(file.normalizer));
  }
  if (file.remove_extra_spaces) return fail(Code::unsupported, "it removes extra spaces, which is not supported");
  if (!file.escape_spaces) return fail(Code::unsupported, "it does not escape spaces, which is not supported");
  if (file.space_as_suffix) return fail(Code::unsupported, "it has spaces as suffixes, which is not supported");
  return {};
}

TokenKind kind_of(const SentencePieceFile::Piece& piece) {
  switch (piece.type) {
    // A piece with a space as such is met by no text.
    case PieceType::normal:
      return piece.text.find(' ') == piece.text.npos ? TokenKind::text : TokenKind::silent;
    case PieceType::user_defined:
      return TokenKind::user_defined;
    case PieceType::byte:
      return TokenKind::byte;
    case PieceType::unused:
      return TokenKind::unused;
    case PieceType::unknown:
    case PieceType::control:
      break;
  }
  return TokenKind::special;
}

}  // namespace

Result<Tokenizer> Tokenizer::from_sentencepiece(std::string_view model, std::string_view config_json,
                                                std::int32_t vocab_size) {
  Tokenizer t;
  const auto loaded = [&]() -> Status {
    if (model.size() > kMaxVocabularyBytes) {
      return fail(Code::limit, "it has {} bytes, at most {} are expected", model.size(), kMaxVocabularyBytes);
    }
    MYRIAD_TRY(const SentencePieceFile file, read_sentencepiece_file(model));
    MYRIAD_TRY_STATUS(check_supported(file));
    MYRIAD_TRY(const TokenizerConfig config, parse_tokenizer_config(config_json));
    return t.read_pieces(file, config, vocab_size);
  }();
  if (!loaded) return std::unexpected(Error(loaded.error()).within("reading tokenizer.model"));
  return t;
}

Status Tokenizer::read_pieces(const SentencePieceFile& file, const TokenizerConfig& config, std::int32_t vocab_size) {
  std::vector<float> scores;
  auto added = config.added.begin();
  const auto add_next = [&] {
    const TokenKind kind = added->special || looks_special(added->name) ? TokenKind::special : TokenKind::user_defined;
    return table_.add((added++)->name, kind);
  };
  table_.reserve(file.pieces.size(), 0);
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    const std::int32_t id = table_.size();
    scores.push_back(piece.score);
    if (added != config.added.end() && added->id == id) {
      if (added->name != piece.text) {
        return fail(Code::corrupt,
                    "tokenizer_config.json calls token {} {}, tokenizer.model {}: do the two files belong together?",
                    id, shown_token(added->name), shown_token(piece.text));
      }
      MYRIAD_TRY_STATUS(add_next());
      continue;
    }
    const TokenKind kind = kind_of(piece);
    if (kind == TokenKind::byte) {
      const int byte = byte_of_name(piece.text);
      if (byte < 0) {
        return fail(Code::corrupt, "piece {} is of the type byte and named {}; <0x00> to <0xFF> are expected", id,
                    shown_token(piece.text));
      }
      const char c = static_cast<char>(byte);
      rules_.bytes[static_cast<std::size_t>(byte)] = id;
      MYRIAD_TRY_STATUS(table_.add(std::string_view(&c, 1), kind));
    } else if (kind == TokenKind::text || kind == TokenKind::user_defined) {
      MYRIAD_TRY_STATUS(table_.add(from_space_marks(piece.text), kind));
    } else {
      MYRIAD_TRY_STATUS(table_.add(piece.text, kind));
    }
  }
  for (; added != config.added.end();) {
    while (table_.size() < added->id) MYRIAD_TRY_STATUS(table_.add({}, TokenKind::unused));
    MYRIAD_TRY_STATUS(add_next());
  }
  MYRIAD_TRY_STATUS(pad_to(vocab_size, "tokenizer.model"));
  MYRIAD_TRY_STATUS(table_.build_index());

  scores.resize(static_cast<std::size_t>(table_.size()), 0.0F);
  MYRIAD_TRY_STATUS(rules_.set_scores(scores));
  rules_.order = MergeRules::Order::by_score;
  rules_.characters = true;
  rules_.fuse_unknown = true;
  rules_.unknown = special_id(file.unknown_piece).value_or(-1);
  text_.sentencepiece = true;
  text_.user_defined_inside = true;
  if (file.add_dummy_prefix && config.add_prefix_space.value_or(true)) {
    text_.prefix = config.legacy.value_or(true) ? TextRules::Prefix::each : TextRules::Prefix::first;
    text_.strip_first_space = true;
  }
  cut_at_spaces_if_possible();
  bos_ = special_id(config.bos ? std::string_view(*config.bos) : file.bos_piece);
  eos_ = special_id(config.eos ? std::string_view(*config.eos) : file.eos_piece);
  if (config.add_bos.value_or(false) && !bos_) {
    return fail(Code::corrupt, "add_bos_token is true in tokenizer_config.json, but there is no bos_token");
  }
  add_bos_ = bos_ && config.add_bos.value_or(true);
  return {};
}

}  // namespace myriad
