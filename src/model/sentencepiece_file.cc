#include "model/sentencepiece_file.h"

#include <bit>

#include "model/token_table.h"

namespace myriad {
namespace {

// One field of a protocol buffer message.
struct Field {
  enum Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  std::uint64_t number = 0;
  std::uint8_t wire = 0;
  std::uint64_t value = 0;  // kVarint, kFixed32, kFixed64
  std::string_view bytes;   // kBytes

  [[nodiscard]] bool is(std::uint64_t n, std::uint8_t w) const { return number == n && wire == w; }
};

class Message {
 public:
  // `offset` is where the message begins in the file.
  Message(std::string_view bytes, std::size_t offset) : bytes_(bytes), offset_(offset) {}
  [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }
  // Where the last field's bytes begin in the file.
  [[nodiscard]] std::size_t offset() const { return offset_ + at_; }

  Result<Field> next() {
    Field field;
    MYRIAD_TRY(const std::uint64_t tag, varint());
    field.number = tag >> 3;
    field.wire = static_cast<std::uint8_t>(tag & 7);
    if (field.number == 0) return bad("a field has the number 0");
    switch (field.wire) {
      case Field::kVarint: {
        MYRIAD_TRY(field.value, varint());
        return field;
      }
      case Field::kFixed64:
        return fixed(field, 8);
      case Field::kFixed32:
        return fixed(field, 4);
      case Field::kBytes: {
        MYRIAD_TRY(const std::uint64_t size, varint());
        if (size > bytes_.size() - at_) return bad("a field is longer than what is left");
        field.bytes = bytes_.substr(at_, static_cast<std::size_t>(size));
        at_ += static_cast<std::size_t>(size);
        return field;
      }
      default:
        return bad("a field has an unknown wire type");
    }
  }

 private:
  [[nodiscard]] std::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::corrupt, "at byte {}: {}; the file is damaged or no SentencePiece model", offset(), what);
  }
  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_end()) return bad("a number is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return bad("a number has more than 64 bits");
  }
  Result<Field> fixed(Field field, std::size_t size) {
    if (size > bytes_.size() - at_) return bad("a number is cut off");
    for (std::size_t i = size; i-- > 0;) field.value = field.value << 8 | static_cast<unsigned char>(bytes_[at_ + i]);
    at_ += size;
    return field;
  }

  std::string_view bytes_;
  std::size_t offset_, at_ = 0;
};

template <class Visit>
Status for_each_field(std::string_view bytes, std::size_t offset, Visit visit) {
  Message message(bytes, offset);
  while (!message.at_end()) {
    MYRIAD_TRY(const Field field, message.next());
    MYRIAD_TRY_STATUS(visit(field, message.offset() - field.bytes.size()));
  }
  return {};
}

Status read_piece(std::string_view bytes, std::size_t offset, SentencePieceFile& out) {
  if (out.pieces.size() == static_cast<std::size_t>(TokenTable::kMaxTokens)) {
    return fail(Code::limit, "it has more than {} pieces", TokenTable::kMaxTokens);
  }
  SentencePieceFile::Piece piece;
  MYRIAD_TRY_STATUS(for_each_field(bytes, offset, [&](const Field& field, std::size_t at) -> Status {
    if (field.is(1, Field::kBytes)) piece.text = field.bytes;
    if (field.is(2, Field::kFixed32)) piece.score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.is(3, Field::kVarint)) {
      if (field.value < 1 || field.value > 6) {
        return fail(Code::corrupt, "at byte {}: piece {} is of the type {}; 1 to 6 are expected", at, out.pieces.size(),
                    field.value);
      }
      piece.type = static_cast<SentencePieceFile::PieceType>(field.value);
    }
    return {};
  }));
  out.pieces.push_back(piece);
  return {};
}

Status read_trainer(std::string_view bytes, std::size_t offset, SentencePieceFile& out) {
  return for_each_field(bytes, offset, [&](const Field& field, std::size_t at) -> Status {
    if (field.is(3, Field::kVarint)) {
      if (field.value < 1 || field.value > 4) {
        return fail(Code::corrupt, "at byte {}: the model type is {}; 1 to 4 are expected", at, field.value);
      }
      out.model_type = static_cast<SentencePieceFile::ModelType>(field.value);
    }
    if (field.is(24, Field::kVarint)) out.space_as_suffix = field.value != 0;
    if (field.is(45, Field::kBytes)) out.unknown_piece = field.bytes;
    if (field.is(46, Field::kBytes)) out.bos_piece = field.bytes;
    if (field.is(47, Field::kBytes)) out.eos_piece = field.bytes;
    return {};
  });
}

Status read_normalizer(std::string_view bytes, std::size_t offset, SentencePieceFile& out) {
  return for_each_field(bytes, offset, [&](const Field& field, std::size_t /*at*/) -> Status {
    if (field.is(1, Field::kBytes)) out.normalizer = field.bytes;
    if (field.is(2, Field::kBytes)) out.has_character_map = !field.bytes.empty();
    if (field.is(3, Field::kVarint)) out.add_dummy_prefix = field.value != 0;
    if (field.is(4, Field::kVarint)) out.remove_extra_spaces = field.value != 0;
    if (field.is(5, Field::kVarint)) out.escape_spaces = field.value != 0;
    return {};
  });
}

}  // namespace

Result<SentencePieceFile> read_sentencepiece_file(std::string_view bytes) {
  SentencePieceFile out;
  MYRIAD_TRY_STATUS(for_each_field(bytes, 0, [&](const Field& field, std::size_t at) -> Status {
    if (field.is(1, Field::kBytes)) return read_piece(field.bytes, at, out);
    if (field.is(2, Field::kBytes)) return read_trainer(field.bytes, at, out);
    if (field.is(3, Field::kBytes)) return read_normalizer(field.bytes, at, out);
    return {};
  }));
  if (out.pieces.empty()) return fail(Code::corrupt, "it has no pieces; the file is damaged or no SentencePiece model");
  return out;
}

}  // namespace myriad
