#include "part/cutter.h"

#include <algorithm>

#include "base/random.h"
#include "kernels/kernels.h"
#include "part/canary.h"
#include "part/file_io.h"

namespace myriad {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;  // source rows held at a time
constexpr std::uint64_t kSmallestTarget = std::uint64_t{32} << 10;

// Name of a tensor below its layer, or at the top.
std::string layer_name(const OpRef& op, std::string_view rest) {
  return fmt::format("model.layers.{}.{}", op.layer, rest);
}

class PartBuilder {
 public:
  PartBuilder(const Checkpoint& checkpoint, const Graph& graph, const Operator& op, const PartSpec& spec)
      : checkpoint_(checkpoint), config_(graph.config()), op_(op), spec_(spec) {}

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
        swap_tiles(e.dtype, target);
      }
    }
    return out;
  }

 private:
  [[nodiscard]] std::string attn(std::string_view rest) const {
    return layer_name(spec_.op, fmt::format("self_attn.{}", rest));
  }
  [[nodiscard]] std::string ffn(std::string_view rest) const {
    return layer_name(spec_.op,
                      fmt::format("{}.{}", config_.is_moe(spec_.op.layer) ? "block_sparse_moe" : "mlp", rest));
  }

  // Tensor of a matrix role in this operator.
  [[nodiscard]] std::string tensor_name(MatrixRole role) const {
    switch (spec_.op.role) {
      case OpRole::embed:
        return "model.embed_tokens";
      case OpRole::head:
        return "lm_head";
      case OpRole::attn_q_a:
        return attn("q_a_proj");
      case OpRole::attn_kv_a:
        return attn("kv_a_proj_with_mqa");
      case OpRole::attn_o:
        return attn("o_proj");
      case OpRole::router:
        return ffn("gate");
      case OpRole::latent_down:
        return ffn("routed_expert_down_proj");
      case OpRole::latent_up:
        return ffn("routed_expert_up_proj");
      case OpRole::shared_down:
        return ffn("shared_experts.down_proj");
      case OpRole::dense_down:
        return ffn("down_proj");
      case OpRole::shared_up:
        return ffn(role == MatrixRole::gate ? "shared_experts.gate_proj" : "shared_experts.up_proj");
      case OpRole::dense_up:
        return ffn(role == MatrixRole::gate ? "gate_proj" : "up_proj");
      case OpRole::expert:
        return ffn(fmt::format("experts.{}.{}", spec_.op.index,
                               role == MatrixRole::gate ? "w1"
                               : role == MatrixRole::up ? "w3"
                                                        : "w2"));
      default:
        break;
    }
    switch (role) {
      case MatrixRole::q:
        return attn(op_.kind == OpKind::kda_heads ? "q_proj" : config_.mla.q_lora_rank != 0 ? "q_b_proj" : "q_proj");
      case MatrixRole::k:
        return attn("k_proj");
      case MatrixRole::v:
        return attn("v_proj");
      case MatrixRole::f_a:
        return attn("f_a_proj");
      case MatrixRole::f_b:
        return attn("f_b_proj");
      case MatrixRole::b:
        return attn("b_proj");
      case MatrixRole::g:
        return attn("g_proj");
      case MatrixRole::g_a:
        return attn("g_a_proj");
      case MatrixRole::g_b:
        return attn("g_b_proj");
      default:
        return attn("kv_b_proj");
    }
  }

  Status matrix(const PartEntry& e, std::span<std::byte> target) {
    const auto role = static_cast<MatrixRole>(e.role);
    if (role == MatrixRole::k_b || role == MatrixRole::v_b) return kv_b(e, target);
    const auto& term =
        *std::find_if(op_.matrices.begin(), op_.matrices.end(), [&](const auto& m) { return m.role == role; });
    const std::size_t total = static_cast<std::size_t>(term.rows_per_unit) * op_.extent + term.rows;
    MYRIAD_TRY(const MatrixSource source, open(tensor_name(role), total, term.k, e.dtype));
    return pack_rows(source, e.dtype, static_cast<std::size_t>(term.rows_per_unit) * spec_.begin, e.rows, target);
  }

  Result<MatrixSource> open(const std::string& name, std::size_t rows, std::size_t k, DType dtype) {
    MYRIAD_TRY(MatrixSource source, checkpoint_.matrix(name, rows, k));
    if (source.dtype() != dtype && !(dtype == DType::f32 && source.dtype() == DType::bf16))
      return fail(Code::unsupported, "cutting {}: tensor {} is stored as {}, the config says {}", spec_.name(), name,
                  dtype_name(source.dtype()), dtype_name(dtype));
    return source;
  }

  // Rows [first, first + rows) of a matrix into tiles, a bounded number of rows at a time.
  static Status pack_rows(const MatrixSource& source, DType dtype, std::size_t first, std::size_t rows,
                          std::span<std::byte> target) {
    const std::size_t k = source.cols(), tile = tile_bytes(dtype, k);
    const std::size_t step = std::max<std::size_t>(kTileRows, kReadBytes / (4 * k) / kTileRows * kTileRows);
    for (std::size_t r = 0; r < rows; r += step) {
      const std::size_t n = std::min(step, rows - r);
      const auto out = target.subspan(r / kTileRows * tile, tiles_for(n) * tile);
      switch (dtype) {
        case DType::bf16: {
          std::vector<std::uint16_t> w(n * k);
          MYRIAD_TRY_STATUS(source.read_rows_bf16(first + r, first + r + n, w));
          pack_bf16(w.data(), n, k, out);
          break;
        }
        case DType::f32: {
          std::vector<float> w(n * k);
          MYRIAD_TRY_STATUS(source.read_rows_widened(first + r, first + r + n, w));
          pack_f32(w.data(), n, k, out);
          break;
        }
        case DType::mxfp4: {
          std::vector<std::uint8_t> codes(n * k / 2), scales(n * k / kGroup);
          MYRIAD_TRY_STATUS(source.read_rows_mxfp4(first + r, first + r + n, codes, scales));
          pack_mxfp4(codes.data(), scales.data(), n, k, out);
          break;
        }
      }
    }
    return {};
  }

  // kv_b_proj [heads·(nope + v), rank]: per head the first qk_nope rows, transposed, are k_b [rank, nope]; the rest v_b
  // [v, rank].
  Status kv_b(const PartEntry& e, std::span<std::byte> target) {
    const auto& mla = config_.mla;
    const std::size_t per_head = mla.qk_nope_dim + mla.v_dim, rank = mla.kv_lora_rank;
    MYRIAD_TRY(const MatrixSource source, open(attn("kv_b_proj"), mla.heads * per_head, rank, e.dtype));
    const std::size_t one = matrix_bytes(e.dtype, e.rows, e.k);
    for (std::size_t h = 0; h < spec_.units(); ++h) {
      const std::size_t row = (spec_.begin + h) * per_head;
      const auto out = target.subspan(h * one, one);
      if (static_cast<MatrixRole>(e.role) == MatrixRole::v_b) {
        MYRIAD_TRY_STATUS(pack_rows(source, e.dtype, row + mla.qk_nope_dim, mla.v_dim, out));
      } else if (e.dtype == DType::bf16) {
        MYRIAD_TRY_STATUS(transposed<std::uint16_t>(
            mla.qk_nope_dim, rank, [&](auto in) { return source.read_rows_bf16(row, row + mla.qk_nope_dim, in); },
            [&](const std::uint16_t* w) { pack_bf16(w, rank, mla.qk_nope_dim, out); }));
      } else {
        MYRIAD_TRY_STATUS(transposed<float>(
            mla.qk_nope_dim, rank, [&](auto in) { return source.read_rows_widened(row, row + mla.qk_nope_dim, in); },
            [&](const float* w) { pack_f32(w, rank, mla.qk_nope_dim, out); }));
      }
    }
    return {};
  }

  template <class T>
  static Status transposed(std::size_t rows, std::size_t cols, const auto& read, const auto& pack) {
    std::vector<T> w(rows * cols), t(rows * cols);
    MYRIAD_TRY_STATUS(read(std::span<T>(w)));
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) t[c * rows + r] = w[r * cols + c];
    pack(t.data());
    return {};
  }

  Result<std::vector<float>> vector(VectorRole role) {
    const std::size_t layer = spec_.op.layer, units = spec_.units();
    const auto slice = [&](std::vector<float> all, std::size_t per_unit) {
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(spec_.begin * per_unit),
                                all.begin() + static_cast<std::ptrdiff_t>((spec_.begin + units) * per_unit));
    };
    const auto whole = [&](const std::string& name, std::size_t n) { return checkpoint_.read_vector(name, n); };
    const std::size_t hidden = config_.hidden, dim = config_.kda.head_dim, taps = config_.kda.conv_taps;
    switch (role) {
      case VectorRole::norm:
        if (spec_.op.role == OpRole::final_lead) return whole("model.norm.weight", hidden);
        return whole(layer_name(spec_.op, spec_.op.role == OpRole::attn_lead ? "input_layernorm.weight"
                                                                             : "post_attention_layernorm.weight"),
                     hidden);
      case VectorRole::res_score: {
        const std::string stem =
            spec_.op.role == OpRole::final_lead
                ? "model.output_attn_res"
                : layer_name(spec_.op, spec_.op.role == OpRole::attn_lead ? "self_attention_res" : "mlp_res");
        MYRIAD_TRY(std::vector<float> norm, whole(stem + "_norm.weight", hidden));
        MYRIAD_TRY(const std::vector<float> proj, whole(stem + "_proj.weight", hidden));
        for (std::size_t i = 0; i < hidden; ++i) norm[i] *= proj[i];
        return norm;
      }
      case VectorRole::q_a_norm:
        return whole(attn("q_a_layernorm.weight"), config_.mla.q_lora_rank);
      case VectorRole::kv_a_norm:
        return whole(attn("kv_a_layernorm.weight"), config_.mla.kv_lora_rank);
      case VectorRole::latent_norm:
        return whole(ffn("routed_expert_norm.weight"), config_.moe.latent);
      case VectorRole::router_bias:
        return whole(ffn("gate.e_score_correction_bias"), config_.moe.experts);
      case VectorRole::conv_q:
      case VectorRole::conv_k:
      case VectorRole::conv_v: {
        const char stream = role == VectorRole::conv_q ? 'q' : role == VectorRole::conv_k ? 'k' : 'v';
        MYRIAD_TRY(std::vector<float> all, checkpoint_.read_conv(layer, stream));
        return slice(std::move(all), dim * taps);
      }
      case VectorRole::a_log: {
        MYRIAD_TRY(std::vector<float> all, checkpoint_.read_a_log(layer));
        return slice(std::move(all), 1);
      }
      case VectorRole::dt_bias: {
        MYRIAD_TRY(std::vector<float> all, whole(attn("dt_bias"), config_.kda.width()));
        return slice(std::move(all), dim);
      }
      case VectorRole::o_norm:
        return whole(attn("o_norm.weight"), dim);
    }
    return fail(Code::internal, "cutting {}: unknown vector role {}", spec_.name(), static_cast<int>(role));
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
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

Result<AlignedBuffer> build_part(const Checkpoint& checkpoint, const Graph& graph, const PartSpec& spec) {
  const Operator* op = graph.find(spec.op);
  if (op == nullptr || spec.begin >= spec.end || spec.end > op->extent || (spec.begin % op->granule) != 0 ||
      (spec.end != op->extent && spec.end % op->granule != 0))
    return fail(Code::invalid_argument,
                "cutting {}: the model has no such piece, or it does not fall on the operator's granule", spec.name());
  auto built = PartBuilder(checkpoint, graph, *op, spec).build();
  if (!built) return std::unexpected(std::move(built).error().within(fmt::format("cutting part {}", spec.name())));
  const std::uint64_t seed = canary_seed(spec);
  write_part_header(built->bytes(), *op, spec, seed, {});
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
  const auto name = full.filename().empty() ? full.parent_path().filename() : full.filename();
  return name.empty() ? "model" : name.string();
}

Result<Manifest> cut_model(const Checkpoint& checkpoint, const Graph& graph, const CutOptions& options,
                           const std::filesystem::path& out, std::string model_name,
                           const std::function<void(const CutProgress&)>& progress) {
  MYRIAD_TRY_STATUS(checkpoint.verify_complete());
  std::error_code ec;
  std::filesystem::create_directories(out / "parts", ec);
  if (ec) return fail(Code::io, "cutting to {}: cannot create the directory: {}", out.string(), ec.message());
  Manifest manifest;
  manifest.model_name = std::move(model_name);
  manifest.config_json = checkpoint.config_json();
  const auto specs = cut(graph, options);
  CutProgress p;
  p.parts = specs.size();
  for (const auto& spec : specs) p.bytes += graph.find(spec.op)->weight_bytes(spec.units());
  for (const auto& spec : specs) {
    MYRIAD_TRY(const AlignedBuffer bytes, build_part(checkpoint, graph, spec));
    const PartId id{sha256(bytes.bytes())};
    const auto path = part_path(out, id);
    if (!std::filesystem::exists(path, ec) || std::filesystem::file_size(path, ec) != bytes.size())
      MYRIAD_TRY_STATUS(write_file_atomically(path, bytes.bytes()));
    manifest.parts.push_back({spec, id, bytes.size()});
    ++p.parts_done;
    p.bytes_done += bytes.size();
    if (progress) progress(p);
  }
  for (const char* name : {"config.json", "tiktoken.model", "tokenizer_config.json"}) {  // what a gateway fetches
    const auto from = checkpoint.directory() / name;
    if (!std::filesystem::exists(from, ec)) continue;
    MYRIAD_TRY(const std::string text, read_small_file(from, std::size_t{64} << 20));
    MYRIAD_TRY_STATUS(write_file_atomically(out / name, std::as_bytes(std::span(text))));
    manifest.files.push_back({name, text.size(), sha256(std::as_bytes(std::span(text)))});
  }
  const std::string json = manifest.to_json();
  MYRIAD_TRY_STATUS(write_file_atomically(out / kManifestName, std::as_bytes(std::span(json))));
  return manifest;
}

}  // namespace myriad
