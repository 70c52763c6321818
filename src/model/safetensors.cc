#include "model/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "base/bytes.h"

namespace myriad {
namespace {

struct TypeRow {
  std::string_view name;
  unsigned bits;
};
constexpr std::array<TypeRow, kStorageTypes> kTypes = {{{"BOOL", 8},
                                                        {"U8", 8},
                                                        {"I8", 8},
                                                        {"F8_E5M2", 8},
                                                        {"F8_E4M3", 8},
                                                        {"F8_E8M0", 8},
                                                        {"F4", 4},
                                                        {"I16", 16},
                                                        {"U16", 16},
                                                        {"F16", 16},
                                                        {"BF16", 16},
                                                        {"I32", 32},
                                                        {"U32", 32},
                                                        {"F32", 32},
                                                        {"I64", 64},
                                                        {"U64", 64},
                                                        {"F64", 64},
                                                        {"C64", 64}}};

// A name from the file, safe to print in a message.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f) {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out += c;
    }
  }
  if (text.size() > 200) out += "...";
  return out;
}

// Builds the entries while the parser runs over the text: no tree of a header with thousands of tensors is ever in
// memory. Depth 1 is the object of tensors, depth 2 a tensor (or `__metadata__`), depth 3 the lists in it.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderHandler(std::string_view file) : file_(file) {}
  std::vector<TensorEntry>& entries() { return entries_; }
  std::optional<Error>& error() { return error_; }

  bool key(std::string& name) override {
    if (depth_ == 1) return begin_tensor(name);
    if (depth_ == 2 && !skipping_) {
      field_ = name == "dtype"          ? Field::type
               : name == "shape"        ? Field::shape
               : name == "data_offsets" ? Field::offsets
                                        : Field::none;
      const auto bit = 1U << static_cast<unsigned>(field_);
      if (field_ != Field::none && (fields_ & bit) != 0) return refuse("{} twice", printable(name));
      fields_ |= bit;
    }
    return true;
  }
  bool start_object(std::size_t /*elements*/) override {
    if (!descend()) return false;
    if (depth_ == 1) return true;
    if (depth_ > 2 && !skipping_ && field_ != Field::none)
      return refuse("an object where {} is expected", field_text());
    return true;
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !skipping_) return end_tensor();
    return true;
  }
  bool start_array(std::size_t /*elements*/) override {
    if (!descend()) return false;
    if (depth_ == 1) return top_level();
    if (depth_ == 2) return refuse("a list where an object is expected");
    if (skipping_ || field_ == Field::none) return true;
    if (depth_ == 3 && field_ != Field::type) {
      count_ = 0;
      return true;
    }
    return refuse("a list where {} is expected", field_text());
  }
  bool end_array() override {
    --depth_;
    if (depth_ == 2 && !skipping_ && field_ == Field::offsets && count_ != 2)
      return refuse("{} data_offsets, expected 2", count_);
    return true;
  }
  bool string(std::string& value) override {
    if (plain()) return depth_ > 0 || top_level();
    if (depth_ != 2 || field_ != Field::type)
      return refuse("\"{}\" where {} is expected", printable(value), field_text());
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      if (kTypes[i].name != value) continue;
      entries_.back().type = static_cast<StorageType>(i);
      return true;
    }
    error_ = Error{Code::unsupported,
                   fmt::format("reading the header of {}: tensor {} has the unknown dtype \"{}\"", file_,
                               printable(entries_.back().name), printable(value)),
                   {},
                   {}};
    return false;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (plain()) return depth_ > 0 || top_level();
    if (depth_ != 3 || field_ == Field::type) return refuse("{} where {} is expected", value, field_text());
    TensorEntry& entry = entries_.back();
    if (field_ == Field::shape) {
      if (count_ == kMaxTensorRank) return refuse("more than {} dimensions", kMaxTensorRank);
      entry.shape.dims[count_++] = value;
      entry.shape.rank = static_cast<std::uint8_t>(count_);
    } else {
      if (count_ == 2) return refuse("more than 2 data_offsets");
      (count_++ == 0 ? entry.begin : entry.end) = value;
    }
    return true;
  }
  bool number_integer(number_integer_t value) override { return scalar(fmt::format("{}", value)); }
  bool number_float(number_float_t /*value*/, const std::string& text) override { return scalar(text); }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  bool null() override { return scalar("null"); }
  bool binary(binary_t& /*value*/) override { return scalar("binary"); }
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::json::exception& e) override {
    error_ =
        Error{Code::corrupt,
              fmt::format("reading the header of {}: not JSON at byte {}: {}", file_, position, printable(e.what())),
              {},
              {}};
    return false;
  }

 private:
  enum class Field : unsigned char { none, type, shape, offsets };

  // Whether a value here needs no attention.
  [[nodiscard]] bool plain() const { return depth_ == 0 || (depth_ > 1 && (skipping_ || field_ == Field::none)); }
  [[nodiscard]] std::string_view field_text() const {
    if (depth_ <= 1) return "an object with dtype, shape and data_offsets";
    switch (field_) {
      case Field::type:
        return "the name of a dtype";
      case Field::shape:
        return "a list of dimensions (non-negative integers)";
      case Field::offsets:
        return "two offsets (non-negative integers)";
      case Field::none:
        break;
    }
    return "something else";
  }
  template <class... Args>
  bool refuse(fmt::format_string<Args...> format, Args&&... args) {
    const std::string_view tensor = entries_.empty() ? std::string_view{} : entries_.back().name;
    error_ = Error{Code::corrupt,
                   fmt::format("reading the header of {}: tensor {}: found {}", file_, printable(tensor),
                               fmt::format(format, std::forward<Args>(args)...)),
                   {},
                   {}};
    return false;
  }
  bool top_level() {
    error_ =
        Error{Code::corrupt, fmt::format("reading the header of {}: expected a JSON object of tensors", file_), {}, {}};
    return false;
  }
  bool descend() {
    if (++depth_ <= kMaxHeaderDepth) return true;
    error_ = Error{Code::limit,
                   fmt::format("reading the header of {}: JSON nested more than {} deep", file_, kMaxHeaderDepth),
                   {},
                   {}};
    return false;
  }
  bool scalar(std::string_view text) {
    if (plain()) return depth_ > 0 || top_level();
    return refuse("{} where {} is expected", printable(text), field_text());
  }

  bool begin_tensor(const std::string& name) {
    skipping_ = name == "__metadata__";
    field_ = Field::none;
    fields_ = 0;
    if (skipping_) return true;
    if (entries_.size() == kMaxTensorsPerFile) {
      error_ = Error{Code::limit,
                     fmt::format("reading the header of {}: more than {} tensors", file_, kMaxTensorsPerFile),
                     {},
                     {}};
      return false;
    }
    const bool control =
        std::any_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (name.empty() || name.size() > kMaxTensorName || control) {
      error_ = Error{
          Code::corrupt,
          fmt::format("reading the header of {}: a tensor is called \"{}\" ({} bytes), expected 1 to {} bytes without "
                      "control characters",
                      file_, printable(name), name.size(), kMaxTensorName),
          {},
          {}};
      return false;
    }
    entries_.push_back({});
    entries_.back().name = name;
    return true;
  }
  bool end_tensor() {
    constexpr unsigned kAll = 1U << 1 | 1U << 2 | 1U << 3;
    if ((fields_ & kAll) != kAll) return refuse("no dtype, no shape or no data_offsets, expected all three");
    return true;
  }

  std::string_view file_;
  std::vector<TensorEntry> entries_;
  std::optional<Error> error_;
  std::size_t depth_ = 0;
  bool skipping_ = false;  // inside __metadata__
  Field field_ = Field::none;
  unsigned fields_ = 0;  // which fields this tensor has had, a bit each
  std::size_t count_ = 0;
};

// Bytes of the tensor, or nothing if they are more than 2^60 or no whole number.
std::optional<std::uint64_t> tensor_bytes(const TensorEntry& entry) {
  constexpr std::uint64_t kMostElements = std::uint64_t{1} << 56;
  const auto dims = entry.shape.span();
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return 0;
  std::uint64_t elements = 1;
  for (const std::uint64_t d : dims) {
    if (d > kMostElements / elements) return std::nullopt;
    elements *= d;
  }
  const std::uint64_t bits = elements * storage_type_bits(entry.type);
  if (bits % 8 != 0) return std::nullopt;
  return bits / 8;
}

Status check_entries(const std::vector<TensorEntry>& entries, std::uint64_t data_bytes, std::string_view file) {
  for (const TensorEntry& e : entries) {
    if (e.begin > e.end || e.end > data_bytes)
      return fail(Code::corrupt,
                  "reading the header of {}: tensor {} lies at [{}, {}) of {} bytes of data, expected inside; is the "
                  "file cut short?",
                  file, e.name, e.begin, e.end, data_bytes);
    const auto bytes = tensor_bytes(e);
    if (!bytes || *bytes != e.end - e.begin)
      return fail(Code::corrupt, "reading the header of {}: tensor {} of {} {} takes {} bytes, expected {}", file,
                  e.name, storage_type_name(e.type), shape_text(e.shape.span()), e.end - e.begin,
                  bytes ? std::to_string(*bytes) : std::string("a whole number below 2^60"));
  }
  std::vector<std::uint32_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return entries[a].name < entries[b].name; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (entries[order[i - 1]].name == entries[order[i]].name)
      return fail(Code::corrupt, "reading the header of {}: tensor {} is there twice", file, entries[order[i]].name);
  std::sort(order.begin(), order.end(), [&](auto a, auto b) {
    return std::pair(entries[a].begin, entries[a].end) < std::pair(entries[b].begin, entries[b].end);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorEntry& a = entries[order[i - 1]];
    const TensorEntry& b = entries[order[i]];
    if (a.end > b.begin)
      return fail(Code::corrupt, "reading the header of {}: tensors {} at [{}, {}) and {} at [{}, {}) overlap", file,
                  a.name, a.begin, a.end, b.name, b.begin, b.end);
  }
  return {};
}

}  // namespace

std::string_view storage_type_name(StorageType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}
unsigned storage_type_bits(StorageType type) {
  return kTypes[static_cast<std::size_t>(type)].bits;
}

std::string shape_text(std::span<const std::uint64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

Result<std::uint64_t> safetensors_header_length(std::span<const std::byte> first, std::uint64_t file_bytes,
                                                std::string_view file) {
  if (first.size() < 8 || file_bytes < 8)
    return fail(Code::corrupt, "reading {}: {} bytes, expected a safetensors file (at least 8)", file, file_bytes);
  const auto length = load_le<std::uint64_t>(first.data());
  if (length > file_bytes - 8)
    return fail(Code::corrupt,
                "reading {}: a header of {} bytes in a file of {}; the file is cut short or is not safetensors", file,
                length, file_bytes);
  if (length > kMaxSafetensorsHeader)
    return fail(Code::limit, "reading {}: a header of {} bytes, expected at most {}", file, length,
                kMaxSafetensorsHeader);
  return length;
}

Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> header, std::uint64_t data_bytes,
                                                          std::string_view file) {
  HeaderHandler handler(file);
  const char* text = reinterpret_cast<const char*>(header.data());
  const bool parsed = nlohmann::json::sax_parse(text, text + header.size(), &handler);
  if (!parsed || handler.error())
    return std::unexpected(handler.error().value_or(
        Error{Code::corrupt, fmt::format("reading the header of {}: not a JSON object", file), {}, {}}));
  MYRIAD_TRY_STATUS(check_entries(handler.entries(), data_bytes, file));
  return std::move(handler.entries());
}

}  // namespace myriad
