// Shared by tests: a Hugging Face directory of random weights for any config.json that is supported.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/bytes.h"
#include "model/graph.h"
#include "model/hf_names.h"
#include "model/safetensors_writer.h"

namespace myriad {

// Writes config.json and the weights, matrices in BF16 or F32 as its torch_dtype says, vectors in F32.
class RandomCheckpoint {
 public:
  RandomCheckpoint(const nlohmann::json& config, unsigned seed) : text_(config.dump()), rng_(seed) {
    const auto type = config["model_type"].get<std::string>();
    naming_.sparse_moe = type == "mixtral" || type.starts_with("kimi_linear") || type == "kimi_k3";
    naming_.long_expert_names = !naming_.sparse_moe;
    half_ = config.value("torch_dtype", "bfloat16") == "bfloat16";
  }

  void write(const std::filesystem::path& directory) {
    const ModelConfig config = parse_config(text_).value();
    const Graph graph = Graph::build(config).value();
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "config.json") << text_;
    for (const Operator& op : graph.operators()) {
      for (const auto& m : op.matrices) {
        if (op.ref.role == OpRole::head && config.tied_embeddings) continue;
        if (m.role == MatrixRole::v_b) continue;
        std::uint64_t rows = std::uint64_t{m.rows_per_unit} * op.extent + m.rows, cols = m.k;
        if (m.role == MatrixRole::k_b) {
          rows = config.mla.heads * (config.mla.qk_nope_dim + config.mla.v_dim);
          cols = config.mla.kv_lora_rank;
        }
        const double scale = op.ref.role == OpRole::embed ? 1 : 1.5 / std::sqrt(static_cast<double>(cols));
        add(hf_matrix_name(config, op.ref, m.role, naming_) + ".weight", {rows, cols}, 0, scale, half_);
      }
      for (const auto& v : op.vectors) {
        const std::uint64_t n = std::uint64_t{v.per_unit} * op.extent + v.fixed;
        const std::string name = hf_vector_name(op.ref, v.role, naming_);
        switch (v.role) {
          case VectorRole::res_score:
            add(name + "_norm.weight", {n}, 1, 0.2, false);
            add(name + "_proj.weight", {1, n}, 0, 0.2, false);
            break;
          case VectorRole::conv_q:
          case VectorRole::conv_k:
          case VectorRole::conv_v:
            add(name, {config.kda.width(), 1, config.kda.conv_taps}, 0.2, 0.4, false);
            break;
          case VectorRole::router_bias:
          case VectorRole::a_log:
          case VectorRole::dt_bias:
          case VectorRole::q_bias:
          case VectorRole::k_bias:
          case VectorRole::v_bias:
            add(name, {n}, 0, 0.3, false);
            break;
          default:
            add(name, {n}, 1, 0.2, false);  // norms
        }
      }
    }
    SafetensorsWriter out(directory, {});
    for (const Tensor& t : tensors_)
      ASSERT_TRUE(out.declare(t.name, t.half ? StorageType::bf16 : StorageType::f32, t.shape));
    ASSERT_TRUE(out.begin());
    for (const Tensor& t : tensors_) {
      std::vector<std::byte> bytes;
      for (const float x : t.values) {
        bytes.resize(bytes.size() + (t.half ? 2 : 4));
        if (t.half)
          store_le(bytes.data() + bytes.size() - 2, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
        else
          store_le(bytes.data() + bytes.size() - 4, x);
      }
      ASSERT_TRUE(out.append(t.name, bytes));
    }
    ASSERT_TRUE(out.finish());
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
    bool half = false;
  };
  void add(std::string name, std::vector<std::uint64_t> shape, double mean, double deviation, bool half) {
    std::uint64_t n = 1;
    for (const std::uint64_t d : shape) n *= d;
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<float> values(n);
    for (float& v : values) v = static_cast<float>(normal(rng_));
    tensors_.push_back({std::move(name), std::move(shape), std::move(values), half});
  }

  std::string text_;
  std::mt19937 rng_;
  HfNaming naming_;
  bool half_ = true;
  std::vector<Tensor> tensors_;
};

}  // namespace myriad
