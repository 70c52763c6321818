// Reads SentencePiece's model file, `tokenizer.model`: a protocol buffer (sentencepiece_model.proto, message
// ModelProto).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace myriad {

struct SentencePieceFile {
  enum class PieceType : std::uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
  enum class ModelType : std::uint8_t { unigram = 1, bpe, word, character };
  struct Piece {
    std::string_view text;  // points into the file
    float score = 0;
    PieceType type = PieceType::normal;
  };

  std::vector<Piece> pieces;  // by id
  // Of the trainer.
  ModelType model_type = ModelType::unigram;
  bool space_as_suffix = false;
  std::string_view unknown_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>";
  // Of the normalizer.
  std::string_view normalizer;     // its name
  bool has_character_map = false;  // it changes characters
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
};

// The views point into `bytes`. Errors: corrupt with the position; limit if there are more pieces than a vocabulary can
// have.
Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes);

}  // namespace myriad
