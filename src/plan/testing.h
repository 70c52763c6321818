// For tests of planning and control: small models and cuts of them without any weights, and fleets of nodes.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "model/graph.h"
#include "part/manifest.h"
#include "plan/placement.h"

namespace myriad::testing {

// A model with every kind of operator: KDA and MLA, a dense layer, latent MoE, block residuals.
inline ModelConfig small_config(std::size_t layers, std::size_t experts, std::size_t vocab = 4096) {
  ModelConfig c;
  c.architecture = "test";
  c.hidden = 192;
  c.vocab = vocab;
  for (std::size_t l = 0; l < layers; ++l) c.attention.push_back(l % 4 == 3 ? AttentionKind::mla : AttentionKind::kda);
  c.kda = {.heads = 3, .head_dim = 64, .conv_taps = 4, .gate_lower_bound = -5.0F, .full_rank_gate = true};
  c.mla = {.heads = 3,
           .q_lora_rank = 96,
           .kv_lora_rank = 64,
           .qk_nope_dim = 48,
           .qk_rope_dim = 16,
           .v_dim = 64,
           .output_gate = true};
  c.dense_layers = 1;
  c.intermediate = 512;
  c.moe = {.experts = experts,
           .top_k = std::min<std::size_t>(4, experts),
           .shared_experts = 2,
           .intermediate = 96,
           .latent = 96,
           .latent_norm = true};
  c.expert_format = ExpertFormat::mxfp4;
  c.attn_res_block_size = 2;
  c.rms_norm_eps = 1e-5F;
  c.max_positions = 8192;
  c.eos_tokens = {1};
  return c;
}

// Each operator in pieces of at most `largest` granules, drawn at random if `random` is given.
inline Manifest cut(const Graph& graph, std::uint32_t largest, std::mt19937_64* random = nullptr) {
  Manifest manifest;
  manifest.model_name = "test-model";
  manifest.config_json = "{}";
  for (const Operator& op : graph.operators()) {
    for (std::uint32_t begin = 0; begin < op.extent;) {
      const std::uint32_t granules =
          random != nullptr ? 1 + static_cast<std::uint32_t>((*random)() % largest) : largest;
      const std::uint32_t end = std::min<std::uint64_t>(op.extent, begin + std::uint64_t{granules} * op.granule);
      ManifestPart part{.spec = {op.ref, begin, end}, .id = {}, .bytes = op.weight_bytes(end - begin)};
      const std::string name = part.spec.name();
      part.id.digest = sha256(std::as_bytes(std::span(name)));
      manifest.parts.push_back(part);
      begin = end;
    }
  }
  return manifest;
}

inline NodeOffer node(std::string name, std::uint64_t memory, std::uint64_t speed = 1'000'000'000) {
  return {.id = {std::move(name)}, .memory_bytes = memory, .process_bytes = memory / 50, .speed = speed};
}

inline std::vector<NodeOffer> fleet(std::size_t n, std::uint64_t memory) {
  std::vector<NodeOffer> offers;
  for (std::size_t i = 0; i < n; ++i) offers.push_back(node("n" + std::to_string(i), memory));
  return offers;
}

}  // namespace myriad::testing
