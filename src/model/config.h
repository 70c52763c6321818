// What a model is, as plain numbers: every feature of a supported architecture has a field of its own here, and nothing
// that runs a model looks at its name.
//
// Notation of shapes in this module: a weight matrix is [out, in], row-major, y = W x.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/kernels.h"
#include "model/roles.h"

namespace myriad {

// Bounds on what a config file may ask for. They leave the largest known model room to grow tenfold and keep every
// product of two of them far below 2^63.
inline constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxHidden = std::size_t{1}
                                          << 20;  // any vector's width: hidden, intermediate, heads · head_dim
inline constexpr std::size_t kMaxLayers = 4096;
inline constexpr std::size_t kMaxVocab = std::size_t{1} << 24;
inline constexpr std::size_t kMaxExperts = (std::size_t{1} << 16) - 1;  // as OpRef can name
inline constexpr std::size_t kMaxHeads = std::size_t{1} << 14;
inline constexpr std::size_t kMaxHeadDim = std::size_t{1} << 14;
inline constexpr std::size_t kMaxConvTaps = 64;

enum class AttentionKind : std::uint8_t { kda = 0, mla = 1, gqa = 2 };
std::string_view attention_kind_name(AttentionKind kind);  // "KDA", "MLA", "GQA"

// Kimi Delta Attention (spec §3.2).
struct KdaConfig {
  std::size_t heads = 0;
  std::size_t head_dim = 0;               // of keys and of values
  std::size_t conv_taps = 0;              // of the short convolutions on q, k and v
  std::optional<float> gate_lower_bound;  // γ: decay g = γ·sigmoid(e^A z); without it g = −e^A·softplus(z)
  bool full_rank_gate = false;  // output gate from g_proj [width, hidden]; else g_b_proj · g_a_proj of rank head_dim
  float l2_norm_eps = 1e-6F;  // of the norm of queries and keys, added under the root (spec §3.0; in GGUF files §11)
  [[nodiscard]] std::size_t width() const { return heads * head_dim; }  // P
};

// Rotary position embedding: which channel of a head turns with which, and how fast.
struct RopeConfig {
  RopeOrder order = RopeOrder::halves;  // Hugging Face's Llama, Qwen; pairs: GGUF's llama, DeepSeek
  // Angle of pair i for one position, in radians: base^(-2i/n) with whatever the scaling (linear, YaRN, Llama 3) made
  // of it. Half as many as channels that turn; empty: nothing turns.
  std::vector<float> frequencies;
  float magnitude = 1;  // cosine and sine are multiplied by it (YaRN)
  [[nodiscard]] std::size_t dims() const { return 2 * frequencies.size(); }
  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Grouped-query attention: `heads` query heads share `kv_heads` key and value heads, in order.
struct GqaConfig {
  std::size_t heads = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;  // of queries, keys and values
  bool qkv_bias = false;
  bool qk_norm = false;  // RMSNorm of every query and key head before the rotation
  [[nodiscard]] std::size_t group() const { return kv_heads == 0 ? 0 : heads / kv_heads; }
  [[nodiscard]] std::size_t width() const { return heads * head_dim; }
  friend bool operator==(const GqaConfig&, const GqaConfig&) = default;
};

// Multi-head latent attention (spec §3.3).
struct MlaConfig {
  std::size_t heads = 0;
  std::size_t q_lora_rank = 0;  // 0: q_proj straight from the hidden vector
  std::size_t kv_lora_rank = 0;
  std::size_t qk_nope_dim = 0;  // key channels a head that come from the latent
  std::size_t qk_rope_dim = 0;  // key channels shared by all heads; they turn if the model has a RopeConfig
  std::size_t v_dim = 0;
  bool output_gate = false;  // g_proj, sigmoid
  [[nodiscard]] std::size_t qk_dim() const {
    return qk_nope_dim + qk_rope_dim;
  }  // of one head; scores are scaled by qk_dim^-1/2
  [[nodiscard]] std::size_t cache_dim() const {
    return kv_lora_rank + qk_rope_dim;
  }                                                                        // values cached for a token and layer
  [[nodiscard]] std::size_t value_width() const { return heads * v_dim; }  // what o_proj takes
};

enum class RouterScore : std::uint8_t { sigmoid = 0, softmax = 1 };

// Mixture of experts (spec §3.4, §3.5).
struct MoeConfig {
  std::size_t experts = 0;  // 0: the model has no MoE layer
  std::size_t top_k = 0;
  std::size_t shared_experts = 0;  // fused into one FFN of width shared_intermediate()
  std::size_t intermediate = 0;    // of one expert
  std::size_t latent = 0;          // experts work on a vector of this size (latent MoE); 0: on the hidden vector
  bool latent_norm = false;        // RMSNorm of the weighted sum, before the projection back up
  bool renormalize = false;        // chosen weights are divided by their sum
  bool renormalize_one = false;    // also that of a single expert whose score is a sigmoid: llama.cpp; spec §11.4 not
  float scaling_factor = 1;
  RouterScore score = RouterScore::sigmoid;
  bool selection_bias = true;  // a bias for the selection only, never in the weights
  // Experts in `groups` equal runs; only the `top_groups` best of them are chosen from. A group counts as the sum of
  // its two best scores, with the bias if there is one (DeepSeek V3; llama.cpp does so with and without a bias. The
  // rule of DeepSeek V2, a group's best score, belongs to no family that is read here.)
  std::size_t groups = 1, top_groups = 1;
  [[nodiscard]] std::size_t shared_intermediate() const { return shared_experts * intermediate; }
};

// How the config says routed experts are stored. The files' headers have the last word: see Checkpoint::matrix.
enum class ExpertFormat : std::uint8_t { plain = 0, mxfp4 = 1 };

struct ModelConfig {
  std::string architecture;  // architectures[0] (else model_type) of the file; for people only
  std::size_t hidden = 0;
  std::size_t vocab = 0;
  std::vector<AttentionKind> attention;  // one a layer
  KdaConfig kda;                         // all zero when no layer is KDA
  MlaConfig mla;                         // all zero when no layer is MLA
  GqaConfig gqa;                         // all zero when no layer is GQA
  RopeConfig rope;                       // of MLA's and GQA's heads
  float softmax_scale = 0;               // of MLA's and GQA's scores; 0: (channels of a query head)^-1/2
  std::size_t dense_layers = 0;          // the first so many layers have a dense FFN, the others are MoE
  std::size_t intermediate = 0;          // of the dense FFN
  MoeConfig moe;
  ExpertFormat expert_format = ExpertFormat::plain;
  DType trunk_dtype = DType::bf16;  // of every matrix that is not a quantised expert and not in `dtypes`
  // How single matrices are stored where that differs: of (layer, operator, matrix), of all experts of a layer at once.
  struct MatrixKey {
    std::uint16_t layer = 0;
    OpRole role = OpRole::embed;
    MatrixRole matrix = MatrixRole::weight;
    friend auto operator<=>(const MatrixKey&, const MatrixKey&) = default;
  };
  std::map<MatrixKey, DType> dtypes;
  [[nodiscard]] DType dtype_of(std::size_t layer, OpRole role, MatrixRole matrix) const;
  bool tied_embeddings = false;         // the head's weights are the embedding's
  ActivationSpec activation;            // in dense, shared and routed FFN alike
  bool f32_residual = false;            // in `fast` the residual stream is not rounded to bf16 beside bf16 weights
  std::size_t attn_res_block_size = 0;  // block attention residuals every so many layers; 0: ordinary residuals
  float rms_norm_eps = 0;
  float lora_norm_eps = 1e-6F;  // of q_a_layernorm and kv_a_layernorm (spec §3.0: 1e-6 in Hugging Face checkpoints; in
                                // GGUF files rms_norm_eps)
  std::size_t max_positions = 0;  // that the model was trained for: a limit of sense
  // A token sees so many positions, itself the last; 0: all. Nothing here forgets what leaves the window, so a sequence
  // has at most so many positions, for which the window and full attention are the same: see check_window.
  std::size_t attention_window = 0;
  std::optional<std::uint32_t> bos_token;
  std::vector<std::uint32_t> eos_tokens;  // usually one
  std::optional<std::uint32_t> pad_token;
  // Layers of multi-token prediction behind the others: never run, their tensors stay unused. Not in config_to_json.
  std::size_t nextn_predict_layers = 0;

  [[nodiscard]] std::size_t layers() const { return attention.size(); }
  [[nodiscard]] bool is_moe(std::size_t layer) const { return layer >= dense_layers; }
  // Width of what a routed expert takes and gives.
  [[nodiscard]] std::size_t expert_width() const { return moe.latent != 0 ? moe.latent : hidden; }
  [[nodiscard]] std::size_t layers_of(AttentionKind kind) const;
};

// Reads the text of a Hugging Face config.json: top-level `model_type: kimi_k3` with the fields in `text_config`,
// `model_type: kimi_linear` with the fields at the top, llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, deepseek_v3
// or kimi_k2; or what config_to_json wrote. Every error names the field, what was found and what was expected. Errors:
// corrupt (not JSON, a missing or mistyped field, a contradiction), limit (beyond the bounds above), unsupported
// (another architecture, or a feature that nothing here runs).
Result<ModelConfig> parse_config(std::string_view json);

// Whether sequences of so many positions are what the model defines. Errors: invalid_argument (they go beyond its
// window).
Status check_window(const ModelConfig& config, std::uint64_t positions);

// One JSON object that parse_config reads back to the same ModelConfig: what a manifest carries, whatever the model was
// read from.
std::string config_to_json(const ModelConfig& config);

}  // namespace myriad
