#include "part/part_file.h"

#include "base/bytes.h"
#include "kernels/kernels.h"

namespace myriad {
namespace {

constexpr char kMagic[8] = {'M', 'Y', 'R', 'P', 'A', 'R', 'T', '1'};
constexpr std::uint64_t round64(std::uint64_t n) {
  return (n + 63) / 64 * 64;
}

}  // namespace

std::vector<PartEntry> part_entries(const Operator& op, std::uint32_t units) {
  std::vector<PartEntry> entries;
  std::uint64_t at = round64(kPartHeaderBytes + kPartEntryBytes * (op.matrices.size() + op.vectors.size()));
  for (const auto& m : op.matrices) {
    const std::uint32_t count = m.separate ? units : 1;
    const std::uint32_t rows = m.separate ? m.rows_per_unit : m.rows_per_unit * units + m.rows;
    const std::uint64_t bytes = count * matrix_bytes(m.dtype, rows, m.k);
    entries.push_back({false, static_cast<std::uint8_t>(m.role), m.dtype, count, rows, m.k, at, bytes});
    at += bytes;
  }
  for (const auto& v : op.vectors) {
    const std::uint32_t n = v.per_unit * units + v.fixed;
    entries.push_back({true, static_cast<std::uint8_t>(v.role), DType::f32, 1, n, 1, at, 4ull * n});
    at += round64(4ull * n);
  }
  return entries;
}

void write_part_header(std::span<std::byte> bytes, const Operator& op, const PartSpec& spec, std::uint64_t canary_seed,
                       const Sha256Digest& canary) {
  const auto entries = part_entries(op, spec.units());
  ByteWriter w;
  w.put_bytes(std::as_bytes(std::span(kMagic)));
  w.put(kPartVersion);
  w.put(static_cast<std::uint32_t>(entries.size()));
  w.put(spec.op.layer);
  w.put(static_cast<std::uint8_t>(spec.op.role));
  w.put(static_cast<std::uint8_t>(op.kind));
  w.put(spec.op.index);
  w.put<std::uint16_t>(0);
  w.put(spec.begin);
  w.put(spec.end);
  w.put(static_cast<std::uint64_t>(bytes.size()));
  w.put(canary_seed);
  w.put_bytes(canary);
  w.align(kPartHeaderBytes);
  for (const auto& e : entries) {
    w.put(static_cast<std::uint8_t>(e.is_vector));
    w.put(e.role);
    w.put(static_cast<std::uint8_t>(e.dtype));
    w.put<std::uint8_t>(0);
    w.put(e.count);
    w.put(e.rows);
    w.put(e.k);
    w.put(e.offset);
    w.put(e.bytes);
  }
  std::memcpy(bytes.data(), w.bytes().data(), w.bytes().size());
}

Result<Part> Part::parse(AlignedBuffer buffer, const Graph& graph, const PartId* verify) {
  if (verify != nullptr) {
    const auto found = sha256(buffer.bytes());
    if (found != verify->digest)
      return fail(
          Code::corrupt,
          "a part of {} bytes has SHA-256 {}, expected {}: its bytes were damaged; delete it and fetch it again",
          buffer.size(), to_hex(found), verify->hex());
  }
  ByteReader r(buffer.bytes());
  const auto magic = r.get_bytes(8);
  if (!r.ok() || std::memcmp(magic.data(), kMagic, 8) != 0)
    return fail(Code::corrupt, "this is not a part file: it does not begin with MYRPART1");
  const auto version = r.get<std::uint32_t>();
  if (version != kPartVersion)
    return fail(Code::version, "part file version {}; this program reads version {}", version, kPartVersion);
  Part part;
  const auto count = r.get<std::uint32_t>();
  part.spec_.op.layer = r.get<std::uint16_t>();
  const auto role = r.get<std::uint8_t>();
  const auto kind = r.get<std::uint8_t>();
  part.spec_.op.index = r.get<std::uint16_t>();
  r.get<std::uint16_t>();
  part.spec_.begin = r.get<std::uint32_t>();
  part.spec_.end = r.get<std::uint32_t>();
  const auto total = r.get<std::uint64_t>();
  part.canary_seed_ = r.get<std::uint64_t>();
  const auto digest = r.get_bytes(32);
  if (!r.ok() || buffer.size() < kPartHeaderBytes)
    return fail(Code::corrupt, "a part file of {} bytes ends inside its header", buffer.size());
  std::memcpy(part.canary_digest_.data(), digest.data(), 32);
  if (role > static_cast<std::uint8_t>(OpRole::head))
    return fail(Code::corrupt, "a part file names operator role {}; this program knows 0 to {}", role,
                static_cast<int>(OpRole::head));
  part.spec_.op.role = static_cast<OpRole>(role);
  part.op_ = graph.find(part.spec_.op);
  const auto& spec = part.spec_;
  if (part.op_ == nullptr || static_cast<std::uint8_t>(part.op_->kind) != kind)
    return fail(Code::corrupt, "part {}: the model has no such operator; the part belongs to another model",
                spec.name());
  const Operator& op = *part.op_;
  if (spec.begin >= spec.end || spec.end > op.extent)
    return fail(Code::corrupt, "part {}: units [{}, {}) of an operator that has {}", spec.name(), spec.begin, spec.end,
                op.extent);
  const auto entries = part_entries(op, spec.units());
  const auto expected = op.weight_bytes(spec.units());
  if (count != entries.size() || total != expected || buffer.size() != expected)
    return fail(Code::corrupt, "part {}: {} entries and {} bytes (file: {}), expected {} and {}", spec.name(), count,
                total, buffer.size(), entries.size(), expected);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto& e = entries[i];
    ByteReader field(std::span(buffer.bytes()).subspan(kPartHeaderBytes + i * kPartEntryBytes, kPartEntryBytes));
    const bool same = field.get<std::uint8_t>() == static_cast<std::uint8_t>(e.is_vector) &&
                      field.get<std::uint8_t>() == e.role &&
                      field.get<std::uint8_t>() == static_cast<std::uint8_t>(e.dtype) &&
                      field.get<std::uint8_t>() == 0 && field.get<std::uint32_t>() == e.count &&
                      field.get<std::uint32_t>() == e.rows && field.get<std::uint32_t>() == e.k &&
                      field.get<std::uint64_t>() == e.offset && field.get<std::uint64_t>() == e.bytes;
    if (!same)
      return fail(Code::corrupt, "part {}: entry {} of its directory is not that of the operator in this model",
                  spec.name(), i);
    std::byte* data = buffer.data() + e.offset;
    if (e.is_vector) {
      const std::span<float> values(reinterpret_cast<float*>(data), e.rows);
      little_in_place(values);
      part.vectors_.push_back({static_cast<VectorRole>(e.role), values});
    } else {
      swap_tiles(e.dtype, e.k, {data, e.bytes});
      part.matrices_.push_back({static_cast<MatrixRole>(e.role), e.dtype, e.count, e.rows, e.k, data});
    }
  }
  part.owned_ = buffer.size();
  part.bytes_ = std::make_shared<AlignedBuffer>(std::move(buffer));
  return part;
}

AlignedBuffer Part::release() && {
  for (const auto& e : part_entries(*op_, spec_.units())) {
    std::byte* data = bytes_->data() + e.offset;
    if (e.is_vector)
      little_in_place(std::span(reinterpret_cast<float*>(data), e.rows));
    else
      swap_tiles(e.dtype, e.k, {data, e.bytes});
  }
  return std::move(*bytes_);
}

std::optional<Part> Part::seen_as(const PartSpec& spec, const Graph& graph) const {
  const Operator* op = graph.find(spec.op);
  if (op == nullptr || spec.begin != spec_.begin || spec.end != spec_.end || !op->vectors.empty()) return std::nullopt;
  if (part_entries(*op, spec.units()) != part_entries(*op_, spec_.units())) return std::nullopt;
  Part part;
  part.spec_ = spec;
  part.op_ = op;
  part.bytes_ = bytes_;
  part.matrices_ = matrices_;
  return part;
}

const MatrixView* Part::matrix(MatrixRole role) const {
  for (const auto& m : matrices_)
    if (m.role == role) return &m;
  return nullptr;
}

std::span<const float> Part::vector(VectorRole role) const {
  for (const auto& v : vectors_)
    if (v.role == role) return v.values;
  return {};
}

}  // namespace myriad
