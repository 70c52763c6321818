// Part files and manifests from anybody: the first byte chooses which. A part that parses is also run (its canary), so
// that a header that lies about sizes would be caught by the sanitizer.
#include <cstring>
#include <string_view>

#include "part/canary.h"
#include "part/manifest.h"
#include "part/part_file.h"

namespace {

constexpr std::string_view kConfig =
    R"({"model_type":"kimi_linear","architectures":["KimiLinearForCausalLM"],"hidden_act":"silu",
"hidden_size":32,"intermediate_size":32,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"q_lora_rank":null,
"kv_lora_rank":16,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"mla_use_nope":true,"num_experts":2,
"num_experts_per_token":1,"num_shared_experts":1,"moe_intermediate_size":16,"first_k_dense_replace":1,"moe_layer_freq":1,
"moe_renormalize":true,"moe_router_activation_func":"sigmoid","num_expert_group":1,"topk_group":1,"use_grouped_topk":true,
"routed_scaling_factor":1.0,"num_nextn_predict_layers":0,"rms_norm_eps":1e-5,"vocab_size":64,"tie_word_embeddings":false,
"dtype":"bfloat16","bos_token_id":1,"eos_token_id":2,"pad_token_id":0,"model_max_length":64,
"linear_attn_config":{"full_attn_layers":[2],"kda_layers":[1],"head_dim":16,"num_heads":2,"short_conv_kernel_size":4}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace myriad;
  static const Graph graph = Graph::build(parse_config(kConfig).value()).value();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 4 == 0) {
    (void)Manifest::parse(text);
    return 0;
  }
  // The rest of a file is long; what is given is its beginning, of the operator that the second byte chooses.
  const auto& ops = graph.operators();
  const Operator& op = ops[size > 1 ? data[1] % ops.size() : 0];
  const PartSpec spec{op.ref, 0, op.extent};
  auto bytes = AlignedBuffer::allocate(data[0] % 4 == 1 ? text.size() : op.weight_bytes(op.extent), "fuzz").value();
  if (data[0] % 4 == 3) write_part_header(bytes.bytes(), op, spec, 1, {});
  const std::size_t n = std::min(text.size(), bytes.size());
  if (n > 0) std::memcpy(bytes.data() + (data[0] % 4 == 3 ? bytes.size() - n : 0), text.data(), n);
  auto part = Part::parse(std::move(bytes), graph, nullptr);
  if (part) (void)check_canary(graph, *part, scalar_kernels());
  return 0;
}
