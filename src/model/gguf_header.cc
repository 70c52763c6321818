#include "model/gguf_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/bytes.h"

namespace myriad {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;
// The least that a key with its value, a tensor info, a string and an array take in a file.
constexpr std::uint64_t kLeastKey = 8 + 1 + 4 + 1;
constexpr std::uint64_t kLeastTensor = 8 + 1 + 4 + 4 + 8;
constexpr std::uint64_t kLeastString = 8;
constexpr std::uint64_t kLeastArray = 4 + 8;

// Reads a file front to back through a window of bounded size.
class Window {
 public:
  Window(const GgufReadAt& read, std::uint64_t file_bytes) : read_(read), size_(file_bytes) {}
  [[nodiscard]] std::uint64_t position() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return size_ - at_; }

  Status bytes(std::span<std::byte> out) {
    if (out.size() > left())
      return fail(Code::corrupt, "{} bytes are expected from byte {} on, but the file ends at {}: it is cut short",
                  out.size(), at_, size_);
    while (!out.empty()) {
      if (at_ == begin_ + window_.size()) {
        window_.resize(std::min<std::uint64_t>(kPiece, left()));
        begin_ = at_;
        MYRIAD_TRY_STATUS(read_(at_, window_));
      }
      const auto ready = std::span<const std::byte>(window_).subspan(at_ - begin_);
      const std::size_t n = std::min(ready.size(), out.size());
      std::memcpy(out.data(), ready.data(), n);
      out = out.subspan(n);
      at_ += n;
    }
    return {};
  }
  template <class T>
  Result<T> get() {
    std::array<std::byte, sizeof(T)> raw;
    MYRIAD_TRY_STATUS(bytes(raw));
    return load_le<T>(raw.data());
  }

 private:
  const GgufReadAt& read_;
  std::uint64_t size_;
  std::uint64_t at_ = 0;
  std::uint64_t begin_ = 0;  // where the window lies
  std::vector<std::byte> window_;
};

// What a file is that does not begin with "GGUF".
std::unexpected<Error> other_format(std::string_view first, std::uint64_t file_bytes) {
  constexpr std::string_view kExpected = "expected a GGUF file (it begins with \"GGUF\")";
  if (file_bytes == 0) return fail(Code::corrupt, "the file is empty, {}", kExpected);
  if (first.starts_with("FUGG"))
    return fail(Code::unsupported, "it is a GGUF file with its bytes swapped, expected a little-endian one");
  // As on disk: the magic number was written as a little-endian integer, so that it reads backwards.
  for (const std::string_view old : {"lmgg", "fmgg", "tjgg", "algg", "ggml", "ggmf", "ggjt", "ggla"})
    if (first.starts_with(old))
      return fail(Code::unsupported,
                  "it is a GGML file from before August 2023 (it begins with \"{}\"), {}: get the model as GGUF", old,
                  kExpected);
  if (first.starts_with("version https://git-lfs"))
    return fail(Code::corrupt,
                "it is a git-lfs pointer of {} bytes, {}: run `git lfs pull` or download the file itself", file_bytes,
                kExpected);
  const std::size_t text = first.find_first_not_of(" \t\r\n");
  if (text != std::string_view::npos && first[text] == '<')
    return fail(Code::corrupt, "it is an HTML or XML page, {}: the download failed", kExpected);
  if (first.starts_with("PK\x03\x04"))
    return fail(Code::unsupported, "it is a ZIP archive (of PyTorch?), {}", kExpected);
  if (first.size() > 9 && first[8] == '{')
    return fail(Code::unsupported, "it looks like safetensors, {}: give the directory that it lies in", kExpected);
  if (first.find_first_not_of('\0') == std::string_view::npos)
    return fail(Code::corrupt, "it begins with zeros, {}: is the download unfinished?", kExpected);
  return fail(Code::corrupt, "it begins with \"{}\", {}", gguf_printable(first.substr(0, 4)), kExpected);
}

}  // namespace

class GgufHeaderParser {
 public:
  GgufHeaderParser(const GgufReadAt& read, std::uint64_t file_bytes, std::string_view file)
      : in_(read, file_bytes), read_(read), file_bytes_(file_bytes), store_(std::make_shared<Store>()) {
    store_->file = file;
  }

  Result<GgufHeader> parse() {
    MYRIAD_TRY_STATUS(magic());
    MYRIAD_TRY(const std::uint64_t tensors, in_.get<std::uint64_t>());
    MYRIAD_TRY(const std::uint64_t keys, in_.get<std::uint64_t>());
    MYRIAD_TRY_STATUS(check_count("tensors", tensors, kLeastTensor, kMaxGgufTensors));
    MYRIAD_TRY_STATUS(check_count("keys", keys, kLeastKey, kMaxGgufKeys));
    for (std::uint64_t i = 0; i < keys; ++i) {
      where_ = fmt::format("key {} of {}", i + 1, keys);
      if (Status status = key(); !status) return std::unexpected(std::move(status).error().within(where_));
    }
    MYRIAD_TRY_STATUS(sort_keys());
    header_.metadata = GgufMetadata(store_);
    MYRIAD_TRY_STATUS(alignment());
    std::vector<std::uint32_t> name_ends;  // of header_.names
    for (std::uint64_t i = 0; i < tensors; ++i) {
      where_ = fmt::format("tensor {} of {}", i + 1, tensors);
      if (Status status = tensor(); !status) return std::unexpected(std::move(status).error().within(where_));
      name_ends.push_back(static_cast<std::uint32_t>(header_.names.size()));
    }
    header_.data_begin = (in_.position() + header_.alignment - 1) / header_.alignment * header_.alignment;
    for (std::uint64_t i = 0; i < tensors; ++i) {
      const std::uint32_t begin = i == 0 ? 0 : name_ends[i - 1];
      header_.tensors[i].name = {header_.names.data() + begin, name_ends[i] - begin};
    }
    MYRIAD_TRY_STATUS(place_tensors());
    return std::move(header_);
  }

 private:
  using Store = GgufMetadata::Store;
  using Value = GgufMetadata::Value;

  Status magic() {
    std::string first(std::min<std::uint64_t>(64, file_bytes_), '\0');
    MYRIAD_TRY_STATUS(read_(0, std::as_writable_bytes(std::span(first))));
    if (!first.starts_with("GGUF")) return other_format(first, file_bytes_);
    MYRIAD_TRY(const auto skipped, in_.get<std::uint32_t>());
    static_cast<void>(skipped);
    MYRIAD_TRY(header_.version, in_.get<std::uint32_t>());
    const std::uint32_t version = header_.version;
    if (version != 0 && (version & 0xffff) == 0)
      return fail(Code::unsupported,
                  "it is a big-endian GGUF file (version {} with its bytes swapped), expected a little-endian one",
                  std::byteswap(version));
    if (version != 2 && version != 3)
      return fail(Code::unsupported, "it is GGUF of version {}, expected 2 or 3", version);
    return {};
  }

  Status check_count(std::string_view what, std::uint64_t count, std::uint64_t least, std::uint64_t limit) const {
    if (count > in_.left() / least)
      return fail(Code::corrupt,
                  "the header tells of {} {}, which do not fit into the {} bytes that follow; the file "
                  "is cut short or damaged",
                  count, what, in_.left());
    if (count > limit) return fail(Code::limit, "the header tells of {} {}, expected at most {}", count, what, limit);
    return {};
  }

  // Accounts for memory before it is taken.
  Status keep(std::uint64_t bytes) {
    if (bytes > kMaxGgufMetadata - kept_)
      return fail(Code::limit, "at byte {} the metadata grows from {} by {} bytes, expected at most {} in all",
                  in_.position(), kept_, bytes, kMaxGgufMetadata);
    kept_ += bytes;
    return {};
  }

  // The characters of a string whose length has been read, as the next string of the store.
  Status string(std::uint64_t length) {
    if (length > in_.left())
      return fail(Code::corrupt, "a string of {} bytes at byte {} of a file of {}; it is cut short or damaged", length,
                  in_.position(), file_bytes_);
    MYRIAD_TRY_STATUS(keep(length + sizeof(std::uint32_t)));
    const std::size_t at = store_->text.size();
    store_->text.resize(at + length);
    MYRIAD_TRY_STATUS(in_.bytes(std::as_writable_bytes(std::span(store_->text).subspan(at))));
    store_->ends.push_back(static_cast<std::uint32_t>(store_->text.size()));
    return {};
  }
  [[nodiscard]] std::uint64_t next_string() const { return store_->ends.size() - 1; }

  Status key() {
    MYRIAD_TRY(const std::uint64_t length, in_.get<std::uint64_t>());
    if (length == 0 || length > kMaxGgufKeyBytes)
      return fail(Code::corrupt, "its name is {} bytes long at byte {}, expected 1 to {}", length, in_.position(),
                  kMaxGgufKeyBytes);
    const std::uint64_t name = next_string();
    MYRIAD_TRY_STATUS(string(length));
    if (!gguf_valid_name(store_->string(name), kMaxGgufKeyBytes))
      return fail(Code::corrupt, "it is called \"{}\", expected UTF-8 without control characters",
                  gguf_printable(store_->string(name)));
    where_ = fmt::format("key {}", gguf_printable(store_->string(name)));
    MYRIAD_TRY_STATUS(keep(sizeof(GgufMetadata::Entry)));
    MYRIAD_TRY(const GgufValueType type, value_type());
    MYRIAD_TRY(const Value value, this->value(type, 0));
    store_->entries.push_back({static_cast<std::uint32_t>(name), value});
    return {};
  }

  Result<GgufValueType> value_type() {
    const std::uint64_t at = in_.position();
    MYRIAD_TRY(const std::uint32_t type, in_.get<std::uint32_t>());
    if (type >= kGgufValueTypes)
      return fail(Code::corrupt, "the value type {} at byte {}, expected 0 to {}", type, at, kGgufValueTypes - 1);
    return static_cast<GgufValueType>(type);
  }

  Result<Value> value(GgufValueType type, std::size_t depth) {
    Value out{type, GgufValueType::u8, 0, 0};
    if (type == GgufValueType::string) {
      MYRIAD_TRY(const std::uint64_t length, in_.get<std::uint64_t>());
      out.at = next_string();
      MYRIAD_TRY_STATUS(string(length));
    } else if (type == GgufValueType::array) {
      MYRIAD_TRY_STATUS(array(out, depth + 1));
    } else {
      MYRIAD_TRY(out.at, numbers(type, 1));
    }
    return out;
  }

  // Where in the store's data the next `count` numbers went.
  Result<std::uint64_t> numbers(GgufValueType type, std::uint64_t count) {
    const std::uint64_t each = gguf_value_bytes(type);
    MYRIAD_TRY_STATUS(check_array(type, count, each));
    MYRIAD_TRY_STATUS(keep(count * each));
    const std::uint64_t file_at = in_.position();
    const std::size_t at = store_->data.size();
    store_->data.resize(at + count * each);
    const auto bytes = std::span(store_->data).subspan(at);
    MYRIAD_TRY_STATUS(in_.bytes(bytes));
    if (type == GgufValueType::boolean)
      for (std::size_t i = 0; i < bytes.size(); ++i)
        if (bytes[i] > std::byte{1})
          return fail(Code::corrupt, "the bool at byte {} is {}, expected 0 or 1", file_at + i,
                      std::to_integer<unsigned>(bytes[i]));
    return at;
  }

  Status check_array(GgufValueType type, std::uint64_t count, std::uint64_t least) const {
    if (count > in_.left() / least)
      return fail(Code::corrupt,
                  "{} values of type {} at byte {} do not fit into the {} bytes that follow; the file is cut short or "
                  "damaged",
                  count, gguf_value_type_name(type), in_.position(), in_.left());
    return {};
  }

  Status array(Value& out, std::size_t depth) {
    if (depth > kMaxGgufArrayDepth)
      return fail(Code::limit, "arrays nested more than {} deep at byte {}", kMaxGgufArrayDepth, in_.position());
    MYRIAD_TRY(out.element, value_type());
    MYRIAD_TRY(out.count, in_.get<std::uint64_t>());
    if (out.element == GgufValueType::string) {
      MYRIAD_TRY_STATUS(check_array(out.element, out.count, kLeastString));
      out.at = next_string();
      for (std::uint64_t i = 0; i < out.count; ++i) {
        MYRIAD_TRY(const std::uint64_t length, in_.get<std::uint64_t>());
        MYRIAD_TRY_STATUS(string(length));
      }
    } else if (out.element == GgufValueType::array) {
      MYRIAD_TRY_STATUS(check_array(out.element, out.count, kLeastArray));
      MYRIAD_TRY_STATUS(keep(out.count * sizeof(Value)));
      out.at = store_->nested.size();
      store_->nested.resize(out.at + out.count);
      for (std::uint64_t i = 0; i < out.count; ++i) {
        MYRIAD_TRY(const Value inner, value(GgufValueType::array, depth));
        store_->nested[out.at + i] = inner;
      }
    } else {
      MYRIAD_TRY(out.at, numbers(out.element, out.count));
    }
    return {};
  }

  Status sort_keys() {
    auto& entries = store_->entries;
    std::sort(entries.begin(), entries.end(),
              [this](const auto& a, const auto& b) { return store_->name(a) < store_->name(b); });
    for (std::size_t i = 1; i < entries.size(); ++i)
      if (store_->name(entries[i - 1]) == store_->name(entries[i]))
        return fail(Code::corrupt, "the key {} is there twice", gguf_printable(store_->name(entries[i])));
    return {};
  }

  Status alignment() {
    const auto value = header_.metadata.get_or<std::uint64_t>(kGgufAlignmentKey, kDefaultGgufAlignment);
    if (!value || !std::has_single_bit(*value) || *value > kMaxGgufAlignment)
      return fail(Code::corrupt, "the key {} is {}, expected a power of two of at most {}", kGgufAlignmentKey,
                  header_.metadata.value_text(kGgufAlignmentKey), kMaxGgufAlignment);
    header_.alignment = *value;
    return {};
  }

  // One tensor info. The offset is relative to the data until place_tensors.
  Status tensor() {
    MYRIAD_TRY(const std::uint64_t length, in_.get<std::uint64_t>());
    if (length == 0 || length > kMaxGgufTensorName)
      return fail(Code::corrupt, "its name is {} bytes long at byte {}, expected 1 to {}", length, in_.position(),
                  kMaxGgufTensorName);
    std::string name(length, '\0');
    MYRIAD_TRY_STATUS(in_.bytes(std::as_writable_bytes(std::span(name))));
    if (!gguf_valid_name(name, kMaxGgufTensorName))
      return fail(Code::corrupt, "it is called \"{}\", expected UTF-8 without control characters",
                  gguf_printable(name));
    where_ = fmt::format("tensor {}", name);
    header_.names.insert(header_.names.end(), name.begin(), name.end());
    GgufTensor& t = header_.tensors.emplace_back();
    MYRIAD_TRY(const std::uint32_t rank, in_.get<std::uint32_t>());
    if (rank > kMaxGgufRank) return fail(Code::corrupt, "{} dimensions, expected at most {}", rank, kMaxGgufRank);
    t.rank = static_cast<std::uint8_t>(rank);
    for (std::uint32_t i = 0; i < rank; ++i) {
      MYRIAD_TRY(t.sizes[i], in_.get<std::uint64_t>());
      if (t.sizes[i] == 0) return fail(Code::corrupt, "dimension {} is 0, expected at least 1", i);
    }
    MYRIAD_TRY(const std::uint32_t type, in_.get<std::uint32_t>());
    t.type = static_cast<GgmlType>(type);
    MYRIAD_TRY(t.offset, in_.get<std::uint64_t>());
    return tensor_size(t);
  }

  static Status tensor_size(GgufTensor& t) {
    // As bytes, which every number of values is a size of: a bound also where the type is not known.
    if (!ggml_tensor_bytes(GgmlType::i8, t.dims()))
      return fail(Code::corrupt, "the dimensions {}, expected at most 2^56 values", gguf_dims_text(t.dims()));
    const GgmlTypeInfo* const info = ggml_type_info(t.type);
    if (info == nullptr || info->block_values == 0) return {};
    const auto bytes = ggml_tensor_bytes(t.type, t.dims());
    if (!bytes)
      return fail(Code::corrupt, "rows of {} values of {}, expected a multiple of {}", t.row(), info->name,
                  info->block_values);
    t.bytes = *bytes;
    return {};
  }

  // Checks where the tensors lie, and sorts them by name.
  Status place_tensors() {
    auto& tensors = header_.tensors;
    const std::uint64_t data_bytes = file_bytes_ - std::min(file_bytes_, header_.data_begin);
    for (GgufTensor& t : tensors) {
      if (t.offset % header_.alignment != 0)
        return fail(Code::corrupt, "tensor {} lies at {} of the data, expected a multiple of {}", t.name, t.offset,
                    header_.alignment);
      if (t.offset > data_bytes || occupied(t) > data_bytes - t.offset)
        return fail(Code::corrupt,
                    "tensor {}, {} {}, takes {} bytes from {} of the data, which begins at {} in a file of {} bytes; "
                    "it is cut short or damaged",
                    t.name, ggml_type_text(t.type), gguf_dims_text(t.dims()), t.bytes, t.offset, header_.data_begin,
                    file_bytes_);
      t.offset += header_.data_begin;
    }
    std::vector<const GgufTensor*> order;
    order.reserve(tensors.size());
    for (const GgufTensor& t : tensors) order.push_back(&t);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); ++i)
      if (order[i]->offset - order[i - 1]->offset < occupied(*order[i - 1]))
        return fail(Code::corrupt, "tensors {} of {} bytes at {} and {} at {} overlap", order[i - 1]->name,
                    order[i - 1]->bytes, order[i - 1]->offset, order[i]->name, order[i]->offset);
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    for (std::size_t i = 1; i < tensors.size(); ++i)
      if (tensors[i - 1].name == tensors[i].name)
        return fail(Code::corrupt, "tensor {} is there twice", tensors[i].name);
    return {};
  }
  // Bytes that nobody else may have: one at least where the block of the type is not known.
  static std::uint64_t occupied(const GgufTensor& t) { return std::max<std::uint64_t>(t.bytes, 1); }

  Window in_;
  const GgufReadAt& read_;
  std::uint64_t file_bytes_;
  std::shared_ptr<Store> store_;
  GgufHeader header_;
  std::string where_;
  std::uint64_t kept_ = 0;  // bytes of metadata in memory
};

std::string gguf_dims_text(std::span<const std::uint64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Result<GgufHeader> parse_gguf_header(const GgufReadAt& read, std::uint64_t file_bytes, std::string_view file) {
  Result<GgufHeader> header = GgufHeaderParser(read, file_bytes, file).parse();
  if (!header) return std::unexpected(std::move(header).error().within(fmt::format("reading {}", file)));
  return header;
}

}  // namespace myriad
