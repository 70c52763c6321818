#include "part/cutter.h"

#include <algorithm>

#include "base/random.h"
#include "kernels/kernels.h"
#include "part/canary.h"
#include "part/file_io.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;  // source rows held at a time
constexpr std::uint64_t kSmallestTarget = std::uint64_t{32} << 10;

class PartBuilder {
 public:
  PartBuilder(const ModelWeights& weights, const Operator& op, const PartSpec& spec)
      : weights_(weights), op_(op), spec_(spec) {}

  Result<AlignedBuffer> build() {
    MYRIAD_TRY(AlignedBuffer out, AlignedBuffer::allocate(op_.weight_bytes(spec_.units()), spec_.name()));
    const auto entries = part_entries(op_, spec_.units());
    for (const auto& e : entries) {
      const std::span<std::byte> target(out.data() + e.offset, e.bytes);
      if (e.is_vector) {
        MYRIAD_TRY(const std::vector<float> values, vector(static_cast<VectorRole>(e.role)));
        if (values.size() != e.rows)
          return fail(Code::internal, "cutting {}: vector {} has {} values, its entry says {}", spec_.name(), e.role,
                      values.size(), e.rows);
        std::memcpy(target.data(), values.data(), e.bytes);
        little_in_place(std::span(reinterpret_cast<float*>(target.data()), e.rows));
      } else {
        MYRIAD_TRY_STATUS(matrix(e, target));
        swap_tiles(e.dtype, e.k, target);
      }
    }
    return out;
  }

 private:
  Status matrix(const PartEntry& e, std::span<std::byte> target) const {
    const auto role = static_cast<MatrixRole>(e.role);
    const auto& term =
        *std::find_if(op_.matrices.begin(), op_.matrices.end(), [&](const auto& m) { return m.role == role; });
    MYRIAD_TRY(WeightMatrix source, weights_.matrix(spec_.op, role));
    if (source.dtype() != e.dtype) {
      if (e.dtype != DType::f32)
        return fail(Code::unsupported, "cutting {}: {} is stored as {}, expected {} as in the layer's other tensors",
                    spec_.name(), source.name(), dtype_name(source.dtype()), dtype_name(e.dtype));
      source = as_f32(source);
    }
    const std::size_t first = std::size_t{term.rows_per_unit} * spec_.begin;
    const std::size_t one = matrix_bytes(e.dtype, e.rows, e.k);
    for (std::size_t i = 0; i < e.count; ++i)
      MYRIAD_TRY_STATUS(pack(source, first + i * e.rows, e.rows, target.subspan(i * one, one)));
    return {};
  }

  // Rows [first, first + rows) of a matrix into tiles, a bounded number of rows at a time.
  Status pack(const WeightMatrix& source, std::size_t first, std::size_t rows, std::span<std::byte> target) const {
    const DType dtype = source.dtype();
    const std::size_t k = source.cols(), tile = tile_bytes(dtype, k);
    const std::size_t step = std::max<std::size_t>(kTileRows, kReadBytes / source.row_bytes() / kTileRows * kTileRows);
    std::vector<std::byte> raw;
    for (std::size_t r = 0; r < rows; r += step) {
      const std::size_t n = std::min(step, rows - r);
      raw.resize(n * source.row_bytes());
      MYRIAD_TRY_STATUS(source.read_rows(first + r, n, raw));
      pack_rows(dtype, raw.data(), n, k, target.subspan(r / kTileRows * tile, tiles_for(n) * tile));
    }
    return {};
  }

  // The units' share of a vector.
  Result<std::vector<float>> vector(VectorRole role) const {
    const auto& term =
        *std::find_if(op_.vectors.begin(), op_.vectors.end(), [&](const auto& v) { return v.role == role; });
    MYRIAD_TRY(std::vector<float> all, finite_vector(weights_, spec_.op, role));
    if (term.per_unit == 0) return all;
    const auto at = [&](std::uint32_t unit) {
      return all.begin() + static_cast<std::ptrdiff_t>(std::size_t{unit} * term.per_unit);
    };
    return std::vector<float>(at(spec_.begin), at(spec_.end));
  }

  const ModelWeights& weights_;
  const Operator& op_;
  const PartSpec& spec_;
};

}  // namespace

std::vector<PartSpec> cut(const Graph& graph, const CutOptions& options) {
  std::vector<PartSpec> parts;
  CounterRandom random(options.random_seed);
  for (const auto& op : graph.operators()) {
    std::uint32_t begin = 0;
    while (begin < op.extent) {
      const std::uint32_t left = op.extent - begin, granules = (left + op.granule - 1) / op.granule;
      std::uint64_t take = 1;
      if (options.random_seed != 0) {
        take = 1 + random.below(granules);
      } else {  // as even as the granule allows: how many parts, then an equal share of what is left
        const auto size = [&](std::uint64_t g) {
          return op.weight_bytes(static_cast<std::uint32_t>(std::min<std::uint64_t>(g * op.granule, op.extent)));
        };
        const std::uint64_t whole = (op.extent + op.granule - 1) / op.granule;
        std::uint64_t fit = 1;
        for (std::uint64_t step = std::uint64_t{1} << 30; step > 0; step /= 2)
          if (fit + step <= whole && size(fit + step) <= options.target_bytes) fit += step;
        const std::uint64_t pieces = (granules + fit - 1) / fit;
        take = (granules + pieces - 1) / pieces;
      }
      const auto end = static_cast<std::uint32_t>(std::min<std::uint64_t>(op.extent, begin + take * op.granule));
      parts.push_back({op.ref, begin, end});
      begin = end;
    }
  }
  return parts;
}

std::uint64_t target_part_bytes(const Graph& graph, std::size_t nodes, Bytes node_memory) {
  std::uint64_t total = 0;
  for (const auto& op : graph.operators()) total += op.weight_bytes(op.extent);
  std::uint64_t target = std::uint64_t{16} << 20;
  if (node_memory.value != 0) target = std::min(target, node_memory.value / 16);
  if (nodes != 0)
    target = std::min(target, total / nodes / 8);  // eight parts a node, so that shares come out within an eighth
  return std::max(target, kSmallestTarget);
}

Result<AlignedBuffer> build_part(const ModelWeights& weights, const PartSpec& spec, bool with_canary) {
  const Graph& graph = weights.graph();
  const Operator* op = graph.find(spec.op);
  if (op == nullptr || spec.begin >= spec.end || spec.end > op->extent || (spec.begin % op->granule) != 0 ||
      (spec.end != op->extent && spec.end % op->granule != 0))
    return fail(Code::invalid_argument,
                "cutting {}: the model has no such piece, or it does not fall on the operator's granule", spec.name());
  auto built = PartBuilder(weights, *op, spec).build();
  if (!built) return std::unexpected(std::move(built).error().within(fmt::format("cutting part {}", spec.name())));
  const std::uint64_t seed = canary_seed(spec);
  write_part_header(built->bytes(), *op, spec, seed, {});
  if (!with_canary) return std::move(*built);
  // The canary is computed by the part as a node will load it.
  MYRIAD_TRY(Part part, Part::parse(std::move(*built), graph, nullptr));
  MYRIAD_TRY(const Kernels* kernels, choose_kernels());
  MYRIAD_TRY(const Sha256Digest digest, canary(graph, part, *kernels));
  AlignedBuffer out = std::move(part).release();
  write_part_header(out.bytes(), *op, spec, seed, digest);
  return out;
}

std::string model_name_of(const std::filesystem::path& directory) {
  std::error_code ignored;
  const auto full = std::filesystem::weakly_canonical(directory, ignored);
  const auto last = full.filename().empty() ? full.parent_path().filename() : full.filename();
  std::string name = last.string();
  if (name.ends_with(".gguf")) {
    name.resize(name.size() - 5);
    // of a split: NAME-00001-of-00012
    const std::size_t of = name.rfind("-of-");
    if (of != std::string::npos && of >= 6 && name[of - 6] == '-' && of + 9 == name.size()) name.resize(of - 6);
  }
  return name.empty() ? "model" : name;
}

Result<Manifest> cut_model(const ModelWeights& weights, const CutOptions& options, const std::filesystem::path& out,
                           std::string model_name, const std::function<void(const CutProgress&)>& progress) {
  MYRIAD_TRY_STATUS(weights.verify_complete());
  const Graph& graph = weights.graph();
  std::error_code ec;
  std::filesystem::create_directories(out / "parts", ec);
  if (ec) return fail(Code::io, "cutting to {}: cannot create the directory: {}", out.string(), ec.message());
  Manifest manifest;
  manifest.model_name = std::move(model_name);
  manifest.config_json = config_to_json(weights.config());
  const auto specs = cut(graph, options);
  CutProgress p;
  p.parts = specs.size();
  for (const auto& spec : specs) p.bytes += graph.find(spec.op)->weight_bytes(spec.units());
  for (const auto& spec : specs) {
    MYRIAD_TRY(const AlignedBuffer bytes, build_part(weights, spec));
    const PartId id{sha256(bytes.bytes())};
    const auto path = part_path(out, id);
    if (!std::filesystem::exists(path, ec) || std::filesystem::file_size(path, ec) != bytes.size())
      MYRIAD_TRY_STATUS(write_file_atomically(path, bytes.bytes()));
    manifest.parts.push_back({spec, id, bytes.size()});
    ++p.parts_done;
    p.bytes_done += bytes.size();
    if (progress) progress(p);
  }
  MYRIAD_TRY(const auto names, weights.write_tokenizer_files(out));  // what a gateway fetches
  for (const auto& name : names) {
    MYRIAD_TRY(const std::string text, read_small_file(out / name, std::size_t{64} << 20));
    manifest.files.push_back({name, text.size(), sha256(std::as_bytes(std::span(text)))});
  }
  const std::string json = manifest.to_json();
  MYRIAD_TRY_STATUS(write_file_atomically(out / kManifestName, std::as_bytes(std::span(json))));
  return manifest;
}

}  // namespace myriad
