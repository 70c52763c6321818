#include "model/checkpoint.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "model/shard_files.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

std::string types_text(std::span<const StorageType> types) {
  std::string out;
  for (const StorageType t : types) out += fmt::format("{}{}", out.empty() ? "" : " or ", storage_type_name(t));
  return out;
}

bool is_float(StorageType type) {
  return type == StorageType::bf16 || type == StorageType::f16 || type == StorageType::f32;
}

// Widens little-endian stored elements.
void widen(StorageType type, std::span<const std::byte> in, std::span<float> out) {
  if (type == StorageType::bf16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(load_le<std::uint16_t>(in.data() + 2 * i));
  } else if (type == StorageType::f16) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = f16_to_f32(load_le<std::uint16_t>(in.data() + 2 * i));
  } else {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = load_le<float>(in.data() + 4 * i);
  }
}

std::string layer_name(std::size_t layer, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", layer, rest);
}

}  // namespace

std::uint64_t TensorInfo::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t d : shape) n *= d;  // the header was refused if this overflowed (or a dimension is 0)
  return n;
}

std::size_t Checkpoint::shards() const {
  return files_->size();
}
std::string Checkpoint::shard_name(std::uint32_t shard) const {
  return files_->name(shard);
}

// ---- looking up

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const TensorInfo& t, std::string_view n) { return t.name < n; });
  return it == tensors_.end() || it->name != name ? nullptr : &*it;
}

Error Checkpoint::missing(std::string_view name, std::string_view expected) const {
  return {
      Code::not_found,
      fmt::format("checkpoint {}: no file has tensor {}{}, expected {}", directory_.string(), prefix_, name, expected),
      {},
      {}};
}

Result<const TensorInfo*> Checkpoint::require(std::string_view name, std::initializer_list<StorageType> types,
                                              std::initializer_list<std::uint64_t> shape) const {
  const TensorInfo* t = find(name);
  const auto expected = [&] { return types_text(types) + " " + shape_text(shape); };
  if (t == nullptr) return std::unexpected(missing(name, expected()));
  if (std::find(types.begin(), types.end(), t->type) == types.end())
    return fail(Code::unsupported, "checkpoint {}: tensor {} in {} is {} {}, expected {}{}", directory_.string(),
                t->stored_name, files_->name(t->shard), storage_type_name(t->type), shape_text(t->shape), expected(),
                t->type == StorageType::f16 ? "; convert the checkpoint to BF16" : "");
  if (!std::equal(t->shape.begin(), t->shape.end(), shape.begin(), shape.end()))
    return fail(Code::corrupt, "checkpoint {}: tensor {} in {} is {} {}, expected {}", directory_.string(),
                t->stored_name, files_->name(t->shard), storage_type_name(t->type), shape_text(t->shape), expected());
  return t;
}

Result<const TensorInfo*> Checkpoint::require_vector(std::string_view name, std::size_t n) const {
  const TensorInfo* t = find(name);
  const auto expected = [&] { return fmt::format("BF16, F16 or F32 [{}]", n); };
  if (t == nullptr) return std::unexpected(missing(name, expected()));
  if (!is_float(t->type) || t->elements() != n || (n != 1 && std::count(t->shape.begin(), t->shape.end(), n) != 1))
    return fail(is_float(t->type) ? Code::corrupt : Code::unsupported,
                "checkpoint {}: tensor {} in {} is {} {}, expected {}", directory_.string(), t->stored_name,
                files_->name(t->shard), storage_type_name(t->type), shape_text(t->shape), expected());
  return t;
}

Result<const TensorInfo*> Checkpoint::require_a_log(std::size_t layer) const {
  const std::string name = layer_name(layer, "self_attn.A_log");
  constexpr std::size_t kPadding = 128;
  const std::size_t heads = config_.kda.heads;
  const std::size_t padded = (heads + kPadding - 1) / kPadding * kPadding;
  const TensorInfo* t = find(name);
  const auto expected = [&] {
    return fmt::format("BF16, F16 or F32 of {} values, or of {} with padding", heads, padded);
  };
  if (t == nullptr) return std::unexpected(missing(name, expected()));
  if (!is_float(t->type) || t->elements() < heads || t->elements() > padded)
    return fail(is_float(t->type) ? Code::corrupt : Code::unsupported,
                "checkpoint {}: tensor {} in {} is {} {}, expected {}", directory_.string(), t->stored_name,
                files_->name(t->shard), storage_type_name(t->type), shape_text(t->shape), expected());
  return t;
}

Result<const TensorInfo*> Checkpoint::require_conv(std::size_t layer, char stream) const {
  const std::string name = layer_name(layer, fmt::format("self_attn.{}_conv1d.weight", stream));
  const TensorInfo* t = find(name);
  if (t != nullptr && t->shape.size() == 2)
    return require(name, {StorageType::bf16, StorageType::f32}, {config_.kda.width(), config_.kda.conv_taps});
  return require(name, {StorageType::bf16, StorageType::f32}, {config_.kda.width(), 1, config_.kda.conv_taps});
}

std::string quantized_suffix(DType t) {
  return fmt::format(".weight_{}", dtype_name(t));
}

std::optional<DType> type_of_suffix(std::string_view tensor) {
  constexpr std::string_view kBegin = ".weight_";
  const std::size_t at = tensor.rfind(kBegin);
  if (at == std::string_view::npos) return std::nullopt;
  for (std::size_t i = 0; i < kDTypes; ++i)
    if (const auto t = static_cast<DType>(i); is_quantized(t) && tensor.substr(at + kBegin.size()) == dtype_name(t))
      return t;
  return std::nullopt;
}

std::optional<Checkpoint::StoredMatrix> Checkpoint::find_matrix(std::string_view name) const {
  const std::string stem(name);
  if (const TensorInfo* t = find(stem + ".weight"); t != nullptr)
    return StoredMatrix{t->type == StorageType::f32   ? DType::f32
                        : t->type == StorageType::f16 ? DType::f16
                                                      : DType::bf16,
                        t};
  if (const TensorInfo* t = find(stem + std::string(kPackedSuffix)); t != nullptr)
    return StoredMatrix{DType::mxfp4, t, find(stem + std::string(kScaleSuffix))};
  // Its tensors stand together in the order of names.
  const std::string begin = stem + ".weight_";
  for (auto it = std::lower_bound(tensors_.begin(), tensors_.end(), begin,
                                  [](const TensorInfo&t, std::string_view n) { return t.name < n; });
       it != tensors_.end() && it->name.starts_with(begin); ++it)
    if (const auto type = type_of_suffix(it->name); type && *type != DType::mxfp4) return StoredMatrix{*type, &*it};
  return std::nullopt;
}

Result<MatrixSource> Checkpoint::matrix(std::string_view name, std::size_t rows, std::size_t cols) const {
  MatrixSource m;
  m.files_ = files_;
  m.name_ = name;
  m.rows_ = rows;
  m.cols_ = cols;
  const auto extent = [](const TensorInfo& t) { return MatrixSource::Extent{t.shard, t.offset, t.bytes}; };
  const std::string plain = fmt::format("{}.weight", name);
  const auto found = find_matrix(name);
  if (!found)
    return std::unexpected(missing(plain, fmt::format("BF16, F16 or F32 [{}, {}] (or MXFP4 in {}_packed and {}_scale)",
                                                      rows, cols, plain, plain)));
  m.dtype_ = found->dtype;
  if (is_quantized(m.dtype_) && !fits_blocks(m.dtype_, cols))
    return fail(Code::corrupt, "checkpoint {}: {} is {}, but its rows of {} values are no multiple of {}",
                directory_.string(), found->values->name, m.dtype_ == DType::mxfp4 ? "MXFP4" : dtype_name(m.dtype_),
                cols, block_values(m.dtype_));
  const TensorInfo* values = nullptr;
  if (m.dtype_ == DType::mxfp4) {
    MYRIAD_TRY(values, require(plain + "_packed", {StorageType::u8}, {rows, cols / 2}));
    MYRIAD_TRY(const TensorInfo* scales,
               require(plain + "_scale", {StorageType::u8, StorageType::f8_e8m0}, {rows, cols / kGroup}));
    m.scales_ = extent(*scales);
  } else if (is_quantized(m.dtype_)) {
    MYRIAD_TRY(values, require(found->values->name, {StorageType::u8}, {rows, row_bytes(m.dtype_, cols)}));
  } else {
    MYRIAD_TRY(values, require(plain, {StorageType::bf16, StorageType::f16, StorageType::f32}, {rows, cols}));
  }
  m.values_ = extent(*values);
  return m;
}

// ---- reading

Status Checkpoint::read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset)
    return fail(Code::invalid_argument, "reading tensor {}: {} bytes at {} of {}", tensor.stored_name, out.size(),
                offset, tensor.bytes);
  Status status = files_->read(tensor.shard, tensor.offset + offset, out);
  if (!status) return std::unexpected(std::move(status).error().within(fmt::format("tensor {}", tensor.stored_name)));
  return {};
}

Status Checkpoint::read_f32(const TensorInfo& tensor, std::uint64_t first, std::span<float> out) const {
  if (!is_float(tensor.type))
    return fail(Code::unsupported, "reading tensor {} in {} as numbers: it is {}, expected BF16, F16 or F32",
                tensor.stored_name, files_->name(tensor.shard), storage_type_name(tensor.type));
  const std::size_t width = storage_type_bits(tensor.type) / 8;
  const std::uint64_t elements = tensor.bytes / width;
  if (first > elements || out.size() > elements - first)
    return fail(Code::invalid_argument, "reading tensor {}: {} elements at {} of {}", tensor.stored_name, out.size(),
                first, elements);
  constexpr std::size_t kPiece = 65536;  // elements
  std::vector<std::byte> raw(std::min(out.size(), kPiece) * width);
  while (!out.empty()) {
    const std::size_t n = std::min(out.size(), kPiece);
    const std::span piece = std::span(raw).first(n * width);
    MYRIAD_TRY_STATUS(read(tensor, first * width, piece));
    widen(tensor.type, piece, out.first(n));
    first += n;
    out = out.subspan(n);
  }
  return {};
}

Result<std::vector<float>> Checkpoint::read_vector(std::string_view name, std::size_t n) const {
  MYRIAD_TRY(const TensorInfo* t, require_vector(name, n));
  std::vector<float> out(n);
  MYRIAD_TRY_STATUS(read_f32(*t, 0, out));
  return out;
}

Result<std::vector<float>> Checkpoint::read_a_log(std::size_t layer) const {
  MYRIAD_TRY(const TensorInfo* t, require_a_log(layer));
  std::vector<float> out(config_.kda.heads);
  MYRIAD_TRY_STATUS(read_f32(*t, 0, out));
  return out;
}

Result<std::vector<float>> Checkpoint::read_conv(std::size_t layer, char stream) const {
  MYRIAD_TRY(const TensorInfo* t, require_conv(layer, stream));
  std::vector<float> out(config_.kda.width() * config_.kda.conv_taps);
  MYRIAD_TRY_STATUS(read_f32(*t, 0, out));
  return out;
}

std::uint64_t MatrixSource::stored_bytes() const {
  return values_.bytes + scales_.bytes;
}

Status MatrixSource::read(const Extent& extent, std::uint64_t offset, std::span<std::byte> out) const {
  Status status = files_->read(extent.shard, extent.offset + offset, out);
  if (!status) return std::unexpected(std::move(status).error().within(fmt::format("matrix {}", name_)));
  return {};
}

Status MatrixSource::check_rows(std::size_t r0, std::size_t r1, DType wanted, std::size_t room) const {
  if (wanted != dtype_)
    return fail(Code::invalid_argument, "reading matrix {} as {}: it is {}", name_, dtype_name(wanted),
                dtype_name(dtype_));
  const std::size_t values = wanted == DType::mxfp4 ? cols_ / 2 : cols_;
  if (r0 > r1 || r1 > rows_ || room != (r1 - r0) * values)
    return fail(Code::invalid_argument, "reading rows [{}, {}) of matrix {} [{}, {}] into room for {} values", r0, r1,
                name_, rows_, cols_, room);
  return {};
}

Status MatrixSource::read_rows(std::size_t r0, std::size_t r1, std::span<std::byte> out) const {
  const std::uint64_t row = row_bytes(dtype_, cols_);
  if (dtype_ == DType::mxfp4 || r0 > r1 || r1 > rows_ || out.size() != (r1 - r0) * row)
    return fail(Code::invalid_argument, "reading rows [{}, {}) of matrix {} [{}, {}] into {} bytes", r0, r1, name_,
                rows_, cols_, out.size());
  return read(values_, r0 * row, out);
}

Status MatrixSource::read_rows_bf16(std::size_t r0, std::size_t r1, std::span<std::uint16_t> out) const {
  MYRIAD_TRY_STATUS(check_rows(r0, r1, DType::bf16, out.size()));
  MYRIAD_TRY_STATUS(read(values_, std::uint64_t{r0} * cols_ * 2, std::as_writable_bytes(out)));
  little_in_place(out);
  return {};
}

Status MatrixSource::read_rows_f32(std::size_t r0, std::size_t r1, std::span<float> out) const {
  MYRIAD_TRY_STATUS(check_rows(r0, r1, DType::f32, out.size()));
  MYRIAD_TRY_STATUS(read(values_, std::uint64_t{r0} * cols_ * 4, std::as_writable_bytes(out)));
  little_in_place(out);
  return {};
}

Status MatrixSource::read_rows_mxfp4(std::size_t r0, std::size_t r1, std::span<std::uint8_t> codes,
                                     std::span<std::uint8_t> scales) const {
  MYRIAD_TRY_STATUS(check_rows(r0, r1, DType::mxfp4, codes.size()));
  const std::size_t groups = cols_ / kGroup;
  if (scales.size() != (r1 - r0) * groups)
    return fail(Code::invalid_argument, "reading rows [{}, {}) of matrix {}: room for {} scales, expected {}", r0, r1,
                name_, scales.size(), (r1 - r0) * groups);
  MYRIAD_TRY_STATUS(read(values_, std::uint64_t{r0} * (cols_ / 2), std::as_writable_bytes(codes)));
  MYRIAD_TRY_STATUS(read(scales_, std::uint64_t{r0} * groups, std::as_writable_bytes(scales)));
  const auto nan = std::find(scales.begin(), scales.end(), 255);
  if (nan != scales.end()) {
    const auto at = static_cast<std::size_t>(nan - scales.begin());
    return fail(Code::corrupt,
                "reading {}.weight_scale in {}: row {} group {} is 255 (not a number), expected 0 to 254", name_,
                files_->name(scales_.shard), r0 + at / groups, at % groups);
  }
  return {};
}

Status MatrixSource::read_rows_widened(std::size_t r0, std::size_t r1, std::span<float> out) const {
  if (dtype_ == DType::f32) return read_rows_f32(r0, r1, out);
  if (r0 > r1 || r1 > rows_ || out.size() != (r1 - r0) * cols_)
    return fail(Code::invalid_argument, "reading rows [{}, {}) of matrix {} [{}, {}] into room for {} values", r0, r1,
                name_, rows_, cols_, out.size());
  std::vector<std::uint16_t> row(dtype_ == DType::bf16 ? cols_ : 0);
  std::vector<std::byte> raw(dtype_ == DType::bf16 || dtype_ == DType::mxfp4 ? 0 : row_bytes(dtype_, cols_));
  std::vector<std::uint8_t> codes(dtype_ == DType::mxfp4 ? cols_ / 2 : 0);
  std::vector<std::uint8_t> scales(dtype_ == DType::mxfp4 ? cols_ / kGroup : 0);
  for (std::size_t r = r0; r < r1; ++r, out = out.subspan(cols_)) {
    if (dtype_ == DType::bf16) {
      MYRIAD_TRY_STATUS(read_rows_bf16(r, r + 1, row));
      std::transform(row.begin(), row.end(), out.begin(), bf16_to_f32);
      continue;
    }
    if (dtype_ != DType::mxfp4) {
      MYRIAD_TRY_STATUS(read_rows(r, r + 1, raw));
      dequantize(dtype_, raw.data(), cols_, out.data());
      continue;
    }
    MYRIAD_TRY_STATUS(read_rows_mxfp4(r, r + 1, codes, scales));
    for (std::size_t c = 0; c < cols_; ++c) {
      const unsigned code = codes[c / 2] >> (c % 2 * 4) & 15U;
      out[c] = kE2M1[code] * e8m0_to_f32(scales[c / kGroup]);
    }
  }
  return {};
}

}  // namespace myriad
