// The families around Llama as Hugging Face directories: made of the GGUF files of golden/gguf by undoing what
// llama.cpp's converter does, they must give the same logits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "engine/test_model.h"
#include "model/gguf_weights.h"
#include "model/interpreter.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

// One model.safetensors of F32 tensors.
class Safetensors {
 public:
  void add(const std::string& name, std::vector<std::uint64_t> shape, std::span<const float> values) {
    const std::size_t begin = data_.size();
    data_.insert(data_.end(), values.begin(), values.end());
    little_in_place(std::span(data_).subspan(begin));
    header_[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {4 * begin, 4 * data_.size()}}};
  }
  void write(const std::filesystem::path& path) const {
    std::string header = header_.dump();
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::ofstream out(path, std::ios::binary);
    std::uint64_t size = header.size();
    little_in_place(std::span(&size, 1));
    out.write(reinterpret_cast<const char*>(&size), 8);
    out << header;
    out.write(reinterpret_cast<const char*>(data_.data()), static_cast<std::streamsize>(4 * data_.size()));
  }

 private:
  Json header_ = Json::object();
  std::vector<float> data_;
};

struct Case {
  std::string file;
  Json config;
};

class Converter {
 public:
  // In `halves` MLA's turning channels are stored in halves (rope_interleave false) rather than in pairs.
  explicit Converter(const GgufWeights& from, bool halves = false) : from_(from), halves_(halves) {}

  void write(const std::filesystem::path& directory) {
    const ModelConfig& c = from_.config();
    matrix({0, OpRole::embed, 0}, MatrixRole::weight, "model.embed_tokens");
    matrix({0, OpRole::head, 0}, MatrixRole::weight, "lm_head");
    vector({0, OpRole::final_lead, 0}, VectorRole::norm, "model.norm.weight");
    for (std::uint16_t l = 0; l < c.layers(); ++l) {
      const std::string layer = fmt::format("model.layers.{}.", l), attn = layer + "self_attn.", mlp = layer + "mlp.";
      vector({l, OpRole::attn_lead, 0}, VectorRole::norm, layer + "input_layernorm.weight");
      vector({l, OpRole::ffn_lead, 0}, VectorRole::norm, layer + "post_attention_layernorm.weight");
      matrix({l, OpRole::attn_o, 0}, MatrixRole::weight, attn + "o_proj");
      c.attention[l] == AttentionKind::mla ? mla(l, attn) : gqa(l, attn);
      c.is_moe(l) ? moe(l, layer) : dense(l, mlp);
    }
    out_.write(directory / "model.safetensors");
  }

 private:
  [[nodiscard]] std::vector<float> values(OpRef op, MatrixRole role, std::size_t& cols) const {
    const WeightMatrix m = from_.matrix(op, role).value();
    std::vector<float> out(m.rows() * m.cols());
    EXPECT_TRUE(m.read_rows_f32(0, m.rows(), out));
    cols = m.cols();
    return out;
  }
  void matrix(OpRef op, MatrixRole role, const std::string& name, std::size_t interleaved_heads = 0) {
    std::size_t cols = 0;
    std::vector<float> w = values(op, role, cols);
    const std::size_t rows = w.size() / cols;
    if (interleaved_heads != 0) {  // row 2i + j of a head comes from row j·(d/2) + i
      const std::size_t d = rows / interleaved_heads;
      std::vector<float> turned(w.size());
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t h = r / d, i = r % d / 2, j = r % 2;
        std::copy_n(w.data() + r * cols, cols, turned.data() + (h * d + j * (d / 2) + i) * cols);
      }
      w = std::move(turned);
    }
    out_.add(name + ".weight", {rows, cols}, w);
  }
  void vector(OpRef op, VectorRole role, const std::string& name) {
    const auto v = from_.vector(op, role).value();
    out_.add(name, {v.size()}, v);
  }
  void gqa(std::uint16_t l, const std::string& attn) {
    const GqaConfig& g = from_.config().gqa;
    const OpRef op{l, OpRole::attn, 0};
    const bool turn = from_.config().rope.order == RopeOrder::pairs;
    matrix(op, MatrixRole::q, attn + "q_proj", turn ? g.heads : 0);
    matrix(op, MatrixRole::k, attn + "k_proj", turn ? g.kv_heads : 0);
    matrix(op, MatrixRole::v, attn + "v_proj");
    if (g.qkv_bias) {
      vector(op, VectorRole::q_bias, attn + "q_proj.bias");
      vector(op, VectorRole::k_bias, attn + "k_proj.bias");
      vector(op, VectorRole::v_bias, attn + "v_proj.bias");
    }
    if (g.qk_norm) {
      vector(op, VectorRole::q_norm, attn + "q_norm.weight");
      vector(op, VectorRole::k_norm, attn + "k_norm.weight");
    }
  }
  void mla(std::uint16_t l, const std::string& attn) {
    const MlaConfig& m = from_.config().mla;
    const OpRef op{l, OpRole::attn, 0};
    matrix({l, OpRole::attn_q_a, 0}, MatrixRole::weight, attn + "q_a_proj");
    vector({l, OpRole::attn_lead, 0}, VectorRole::q_a_norm, attn + "q_a_layernorm.weight");
    vector({l, OpRole::attn_lead, 0}, VectorRole::kv_a_norm, attn + "kv_a_layernorm.weight");
    in_halves(op, MatrixRole::q, attn + "q_b_proj", m.heads, m.qk_rope_dim);
    in_halves({l, OpRole::attn_kv_a, 0}, MatrixRole::weight, attn + "kv_a_proj_with_mqa", 1, m.qk_rope_dim);
    std::size_t nope = 0, rank = 0;
    const auto k_b = values(op, MatrixRole::k_b, nope), v_b = values(op, MatrixRole::v_b, rank);
    std::vector<float> kv_b;
    for (std::size_t h = 0; h < m.heads; ++h) {
      for (std::size_t c = 0; c < nope; ++c)
        for (std::size_t r = 0; r < rank; ++r) kv_b.push_back(k_b[(h * rank + r) * nope + c]);
      kv_b.insert(kv_b.end(), v_b.begin() + static_cast<long>(h * m.v_dim * rank),
                  v_b.begin() + static_cast<long>((h + 1) * m.v_dim * rank));
    }
    out_.add(attn + "kv_b_proj.weight", {m.heads * (nope + m.v_dim), rank}, kv_b);
  }
  void dense(std::uint16_t l, const std::string& mlp) {
    matrix({l, OpRole::dense_up, 0}, MatrixRole::gate, mlp + "gate_proj");
    matrix({l, OpRole::dense_up, 0}, MatrixRole::up, mlp + "up_proj");
    matrix({l, OpRole::dense_down, 0}, MatrixRole::weight, mlp + "down_proj");
  }
  void moe(std::uint16_t l, const std::string& layer) {
    const MoeConfig& moe = from_.config().moe;
    const bool mixtral = from_.config().architecture == "llama";
    const std::string mlp = layer + (mixtral ? "block_sparse_moe." : "mlp.");
    matrix({l, OpRole::router, 0}, MatrixRole::weight, mlp + "gate");
    if (moe.selection_bias)
      vector({l, OpRole::ffn_lead, 0}, VectorRole::router_bias, mlp + "gate.e_score_correction_bias");
    if (moe.shared_experts != 0) {
      matrix({l, OpRole::shared_up, 0}, MatrixRole::gate, mlp + "shared_experts.gate_proj");
      matrix({l, OpRole::shared_up, 0}, MatrixRole::up, mlp + "shared_experts.up_proj");
      matrix({l, OpRole::shared_down, 0}, MatrixRole::weight, mlp + "shared_experts.down_proj");
    }
    for (std::uint16_t e = 0; e < moe.experts; ++e) {
      const OpRef op{l, OpRole::expert, e};
      const std::string expert = fmt::format("{}experts.{}.", mlp, e);
      matrix(op, MatrixRole::gate, expert + (mixtral ? "w1" : "gate_proj"));
      matrix(op, MatrixRole::up, expert + (mixtral ? "w3" : "up_proj"));
      matrix(op, MatrixRole::down, expert + (mixtral ? "w2" : "down_proj"));
    }
  }

  // The last `turning` rows of every head: row 2i + j goes to row j·(d/2) + i.
  void in_halves(OpRef op, MatrixRole role, const std::string& name, std::size_t heads, std::size_t turning) {
    if (!halves_) return matrix(op, role, name);
    std::size_t cols = 0;
    const std::vector<float> w = values(op, role, cols);
    std::vector<float> turned = w;
    const std::size_t rows = w.size() / cols / heads;
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t r = 0; r < turning; ++r) {
        const std::size_t first = (h + 1) * rows - turning;
        std::copy_n(w.data() + (first + r) * cols, cols,
                    turned.data() + (first + r % 2 * (turning / 2) + r / 2) * cols);
      }
    out_.add(name + ".weight", {w.size() / cols, cols}, turned);
  }

  const GgufWeights& from_;
  bool halves_;
  Safetensors out_;
};

// What the families' own configs say of such a model.
Json config_of(const ModelConfig& c) {
  const GqaConfig& g = c.gqa;
  const MlaConfig& m = c.mla;
  Json j = {{"hidden_size", c.hidden},
            {"vocab_size", c.vocab},
            {"num_hidden_layers", c.layers()},
            {"max_position_embeddings", c.max_positions},
            {"intermediate_size", c.intermediate != 0 ? c.intermediate : c.moe.intermediate},
            {"rms_norm_eps", c.rms_norm_eps},
            {"hidden_act", "silu"},
            {"torch_dtype", "float32"},
            {"tie_word_embeddings", false},
            {"num_attention_heads", g.heads != 0 ? g.heads : m.heads}};
  if (g.heads != 0) {
    j["num_key_value_heads"] = g.kv_heads;
    j["head_dim"] = g.head_dim;
  }
  if (c.architecture == "llama") {
    j["model_type"] = c.moe.experts != 0 ? "mixtral" : "llama";
    j["rope_theta"] = c.moe.experts != 0 ? 1000000.0 : 500000.0;
    if (c.moe.experts != 0) j["num_local_experts"] = c.moe.experts;
  } else if (c.architecture == "deepseek2") {
    j.update({{"model_type", "deepseek_v3"},
              {"rope_theta", 10000.0},
              {"q_lora_rank", m.q_lora_rank},
              {"kv_lora_rank", m.kv_lora_rank},
              {"qk_nope_head_dim", m.qk_nope_dim},
              {"qk_rope_head_dim", m.qk_rope_dim},
              {"v_head_dim", m.v_dim},
              {"first_k_dense_replace", c.dense_layers},
              {"n_routed_experts", c.moe.experts},
              {"n_shared_experts", c.moe.shared_experts},
              {"routed_scaling_factor", c.moe.scaling_factor},
              {"n_group", 1},
              {"topk_group", 1},
              {"norm_topk_prob", true},
              {"scoring_func", "sigmoid"},
              {"topk_method", "noaux_tc"},
              {"moe_layer_freq", 1}});
  } else {
    j["model_type"] = c.architecture == "qwen3moe" ? "qwen3_moe" : c.architecture;
    j["rope_theta"] = 1000000.0;
    if (c.moe.experts != 0) j.update({{"num_experts", c.moe.experts}, {"norm_topk_prob", true}});
  }
  if (c.moe.experts != 0)
    j.update({{"num_experts_per_tok", c.moe.top_k}, {"moe_intermediate_size", c.moe.intermediate}});
  return j;
}

TEST(HuggingFaceFamilies, GiveTheLogitsOfTheGgufFilesThatTheyAre) {
  const char* folder = std::getenv("MYRIAD_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const std::filesystem::path data = std::filesystem::path(folder) / "golden/gguf";
  std::ifstream in(data / "golden.json");
  const Json golden = Json::parse(in, nullptr, false);
  if (!golden.is_object()) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("myriad-hf-{}", ::getpid());
  bool halves = false;  // the second time deepseek2 comes
  for (const char* file :
       {"llama-dense-Q8_0.gguf", "llama-moe-Q8_0.gguf", "qwen2-dense-Q8_0.gguf", "qwen3-dense-F32.gguf",
        "qwen3moe-moe-Q8_0.gguf", "deepseek2-moe-Q8_0.gguf", "deepseek2-moe-Q8_0.gguf"}) {
    const auto gguf = GgufWeights::open(data / file);
    ASSERT_TRUE(gguf) << gguf.error().to_string();
    std::filesystem::create_directories(directory);
    Converter(*gguf, halves).write(directory);
    Json config = config_of(gguf->config());
    if (halves) config["rope_interleave"] = false;
    if (gguf->config().architecture == "deepseek2") halves = true;
    std::ofstream(directory / "config.json") << config;
    const auto weights = HfWeights::open(directory);
    ASSERT_TRUE(weights) << file << ": " << weights.error().to_string();
    const Status complete = weights->verify_complete();
    ASSERT_TRUE(complete) << file << ": " << complete.error().to_string();
    auto interpreter = Interpreter::load(*weights, Profile::exact);
    ASSERT_TRUE(interpreter) << interpreter.error().to_string();
    const Json& entry = golden["files"][file];
    const auto found = interpreter->forward(entry["ids"].get<std::vector<std::int32_t>>());
    ASSERT_TRUE(found) << file;
    const auto exact = (entry.contains("logits_exact") ? entry["logits_exact"] : entry["logits"]).get<Logits>();
    double largest = 0, top = 0;
    for (std::size_t t = 0; t < exact.size(); ++t)
      for (std::size_t i = 0; i < exact[t].size(); ++i) {
        largest = std::max(largest, std::abs(double{(*found)[t][i]} - exact[t][i]));
        top = std::max(top, std::abs(double{exact[t][i]}));
      }
    EXPECT_LT(largest, 1e-4 * top) << file;
    // What a manifest carries is the same model.
    const auto read_back = parse_config(config_to_json(weights->config()));
    ASSERT_TRUE(read_back) << read_back.error().to_string();
    EXPECT_EQ(config_to_json(*read_back), config_to_json(weights->config())) << file;
    EXPECT_EQ(read_back->rope, weights->config().rope) << file;
    std::filesystem::remove_all(directory);
  }
}

// What a config leaves out must not be left out in silence.
TEST(HuggingFaceFamilies, TensorsThatTheConfigLeavesOutAreRefused) {
  const char* folder = std::getenv("MYRIAD_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const std::filesystem::path data = std::filesystem::path(folder) / "golden/gguf";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("myriad-hf-unused-{}", ::getpid());
  const auto open = [&](const char* file, const std::function<void(Json&)>& change) {
    const auto gguf = GgufWeights::open(data / file).value();
    std::filesystem::create_directories(directory);
    Converter(gguf).write(directory);
    Json config = config_of(gguf.config());
    change(config);
    std::ofstream(directory / "config.json") << config;
    auto weights = HfWeights::open(directory);
    std::filesystem::remove_all(directory);
    return weights;
  };
  const auto expect_refused = [&](const char* file, const std::function<void(Json&)>& change, const char* words) {
    const auto weights = open(file, change);
    ASSERT_FALSE(weights) << file << ", expected: " << words;
    EXPECT_EQ(weights.error().code, Code::unsupported);
    EXPECT_NE(weights.error().message.find(words), std::string::npos) << weights.error().message;
    EXPECT_NE(weights.error().message.find(directory.string()), std::string::npos) << weights.error().message;
  };
  const auto as_llama = [](Json& c) { c["model_type"] = "llama"; };
  const auto fewer = [](Json& c) { c["num_hidden_layers"] = c["num_hidden_layers"].get<int>() - 1; };
  expect_refused("qwen2-dense-Q8_0.gguf", as_llama, "self_attn.k_proj.bias");
  expect_refused("qwen3-dense-F32.gguf", as_llama, "self_attn.k_norm.weight");
  expect_refused("qwen2-dense-Q8_0.gguf", fewer, "model.layers.3.");
  expect_refused(
      "deepseek2-moe-Q8_0.gguf", [](Json& c) { c["n_shared_experts"] = 0; }, "shared_experts");
  expect_refused("deepseek2-moe-Q8_0.gguf", fewer, "model.layers.3.");
  // The last layer may be one of multi-token prediction, and a tied head may be stored all the same.
  const auto predicting = open("deepseek2-moe-Q8_0.gguf", [&](Json& c) {
    fewer(c);
    c["num_nextn_predict_layers"] = 1;
  });
  ASSERT_TRUE(predicting) << predicting.error().to_string();
  EXPECT_EQ(predicting->config().layers(), 3U);
  EXPECT_TRUE(predicting->verify_complete());
  const auto tied = open("llama-dense-Q8_0.gguf", [](Json& c) { c["tie_word_embeddings"] = true; });
  EXPECT_TRUE(tied) << tied.error().to_string();
}

// Up to its window a model runs as one without; beyond, nothing does.
TEST(HuggingFaceFamilies, NothingGoesBeyondASlidingWindow) {
  const char* folder = std::getenv("MYRIAD_TEST_DATA");
  if (folder == nullptr) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const std::filesystem::path data = std::filesystem::path(folder) / "golden/gguf";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("myriad-hf-window-{}", ::getpid());
  const auto gguf = GgufWeights::open(data / "llama-dense-Q8_0.gguf").value();
  std::filesystem::create_directories(directory);
  Converter(gguf).write(directory);
  Json config = config_of(gguf.config());
  config["model_type"] = "mistral";
  config["sliding_window"] = 8;
  std::ofstream(directory / "config.json") << config;
  const TestModel model = TestModel::open(directory);
  EXPECT_EQ(model.graph.config().attention_window, 8U);
  EXPECT_EQ(model.graph.config().max_positions, gguf.config().max_positions);
  EXPECT_EQ(parse_config(config_to_json(model.graph.config()))->attention_window, 8U);

  const std::vector<std::int32_t> eight = {1, 5, 9, 13, 17, 21, 25, 29};
  auto interpreter = Interpreter::load(*model.weights, Profile::exact);
  ASSERT_TRUE(interpreter);
  const auto within = interpreter->forward(eight);
  ASSERT_TRUE(within) << within.error().to_string();
  const auto beyond = interpreter->forward({33});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, Code::invalid_argument);
  EXPECT_NE(beyond.error().message.find("9 positions"), std::string::npos) << beyond.error().message;
  EXPECT_NE(beyond.error().message.find("sliding window of 8"), std::string::npos) << beyond.error().message;
  EXPECT_EQ(logits_of(*model.pipeline(Profile::exact, {}, {1, 8, 8}, 1), eight, 8), *within);
  EXPECT_THROW((void)model.pipeline(Profile::exact, {}, {1, 9, 8}, 1), std::runtime_error);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace myriad
