// The files of golden/gguf (random weights, eight architectures, several types) against llama.cpp's logits, and that
// these would notice if the mathematics were wrong.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/test_model.h"
#include "model/gguf_weights.h"
#include "model/interpreter.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

const Json& golden() {
  static const Json json = [] {
    const char* folder = std::getenv("MYRIAD_TEST_DATA");
    if (folder == nullptr) return Json();
    std::ifstream in(std::filesystem::path(folder) / "golden/gguf/golden.json");
    return Json::parse(in, nullptr, false);
  }();
  return json;
}

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(std::getenv("MYRIAD_TEST_DATA")) / "golden/gguf" / name;
}

struct Distance {
  double largest = 0;  // difference, of the largest logit
  double root_mean_square = 0;
};
Distance distance(const Logits& a, const Logits& b) {
  double largest = 0, top = 0, squares = 0, n = 0;
  for (std::size_t t = 0; t < a.size(); ++t)
    for (std::size_t i = 0; i < a[t].size(); ++i, ++n) {
      const double d = std::abs(double{a[t][i]} - b[t][i]);
      largest = std::max(largest, d);
      top = std::max(top, std::abs(double{b[t][i]}));
      squares += d * d;
    }
  return {largest / top, std::sqrt(squares / n)};
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  if (golden().is_object())
    for (const auto& [name, entry] : golden()["files"].items()) out.push_back(name);
  if (out.empty()) out.emplace_back("absent");
  return out;
}

class GgufGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "absent") GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
    entry_ = golden()["files"][GetParam()];
    ids_ = entry_["ids"].get<std::vector<std::int32_t>>();
    llama_ = entry_["logits"].get<Logits>();
    exact_ = entry_.contains("logits_exact") ? entry_["logits_exact"].get<Logits>() : llama_;
  }
  Json entry_;
  std::vector<std::int32_t> ids_;
  Logits llama_, exact_;
};

TEST_P(GgufGolden, LogitsAreThoseOfTheWeights) {
  auto weights = GgufWeights::open(golden_file(GetParam()));
  ASSERT_TRUE(weights) << weights.error().to_string();
  const auto held = std::make_shared<GgufWeights>(std::move(*weights));
  const TestModel model{held, held->graph()};
  for (const Profile profile : {Profile::exact, Profile::fast}) {
    auto interpreter = Interpreter::load(*held, profile);
    ASSERT_TRUE(interpreter) << interpreter.error().to_string();
    const auto defined = interpreter->forward(ids_);
    ASSERT_TRUE(defined) << defined.error().to_string();
    const Distance d = distance(*defined, exact_);
    if (profile == Profile::exact) {
      EXPECT_LT(d.largest, 1e-4);
    } else {
      const double theirs = distance(llama_, exact_).root_mean_square;
      EXPECT_LT(d.root_mean_square, theirs == 0 ? 1e-2 : 1.5 * theirs);
    }
    // Cut somewhere, in chunks, beside others, by the kernels of every instruction set that is here: the same bits.
    std::uint64_t seed = 0;
    for (const Isa isa : kAllIsas) {
      if (kernels_for(isa) == nullptr) continue;
      const WithIsa chosen(isa);
      CutOptions cut;
      cut.random_seed = seed;
      const auto pipeline = model.pipeline(profile, cut, {3, 64, 16}, seed == 0 ? 1 : 2);
      std::vector<SequenceRun> others;
      const std::vector<std::int32_t> backwards(ids_.rbegin(), ids_.rend()), few(ids_.begin(), ids_.begin() + 5);
      if (seed != 0) {
        others.push_back({{8}, backwards});
        others.push_back({{9}, few});
      }
      EXPECT_EQ(logits_of(*pipeline, ids_, seed == 0 ? 16 : 5, others), *defined)
          << profile_name(profile) << " cut " << seed << " " << isa_name(isa);
      seed += 7;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, GgufGolden, testing::ValuesIn(names()), [](const auto& file) {
  std::string name = file.param;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

// What a cache stores is part of the definition, whatever the cut; coarser types stay near.
TEST(GgufCaches, EveryTypeGivesTheInterpretersBits) {
  if (!golden().is_object()) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  for (const char* file : {"llama-dense-Q8_0.gguf", "qwen3-dense-F32.gguf", "deepseek2-moe-Q8_0.gguf"}) {
    auto weights = GgufWeights::open(golden_file(file));
    ASSERT_TRUE(weights) << weights.error().to_string();
    const auto held = std::make_shared<GgufWeights>(std::move(*weights));
    const TestModel model{held, held->graph()};
    const auto ids = golden()["files"][file]["ids"].get<std::vector<std::int32_t>>();
    Logits straight;
    for (const KvCache cache : {KvCache::f32, KvCache::bf16, KvCache::f16, KvCache::i8}) {
      auto interpreter = Interpreter::load(*held, Profile::exact, cache);
      ASSERT_TRUE(interpreter) << interpreter.error().to_string();
      const auto defined = interpreter->forward(ids);
      ASSERT_TRUE(defined) << defined.error().to_string();
      const auto pipeline = model.pipeline(Profile::exact, {.random_seed = 3},
                                           {.sequences = 2, .context = 64, .step_rows = 16, .cache = cache}, 2);
      EXPECT_EQ(logits_of(*pipeline, ids, 5), *defined) << file << " " << kv_cache_name(cache);
      if (cache == KvCache::f32) straight = *defined;
      const double moved = distance(*defined, straight).largest;
      EXPECT_LT(moved, cache == KvCache::i8 ? 0.1 : 0.03) << file << " " << kv_cache_name(cache);
      EXPECT_EQ(moved == 0, cache == KvCache::f32) << file << " " << kv_cache_name(cache);
    }
  }
}

// Another model's mathematics over the same weights.
class Mutant final : public ModelWeights {
 public:
  Mutant(std::shared_ptr<const ModelWeights> of, Graph graph) : ModelWeights(std::move(graph)), of_(std::move(of)) {}
  [[nodiscard]] Result<WeightMatrix> matrix(OpRef op, MatrixRole role) const override { return of_->matrix(op, role); }
  [[nodiscard]] Result<std::vector<float>> vector(OpRef op, VectorRole role) const override {
    auto values = of_->vector(op, role);
    if (values && change) change(role, *values);
    return values;
  }
  [[nodiscard]] Result<std::vector<std::string>> write_tokenizer_files(const std::filesystem::path& d) const override {
    return of_->write_tokenizer_files(d);
  }
  [[nodiscard]] Inventory inventory() const override { return of_->inventory(); }
  [[nodiscard]] std::filesystem::path path() const override { return of_->path(); }

  std::function<void(VectorRole, std::vector<float>&)> change;

 private:
  std::shared_ptr<const ModelWeights> of_;
};

struct Mutation {
  std::string what, file;
  std::function<void(ModelConfig&)> config;
  std::function<void(VectorRole, std::vector<float>&)> vector;
  std::function<void(Kernels&, const ModelConfig&)> kernels;
};

// Mutations of the loops themselves. Function pointers hold no state, so what these need is here.
namespace mutant {
std::size_t width = 0;    // of what is left out
std::vector<float> bias;  // of the first router

void no_delta_rule(float* state, std::size_t dk, std::size_t dv, const float* q, const float* k, const float* decay,
                   float beta, const float* v, float* out) {
  std::fill_n(out, dv, 0.0F);
  for (std::size_t i = 0; i < dk; ++i)
    for (std::size_t j = 0; j < dv; ++j) {
      float& s = state[i * dv + j];
      s = std::fma(k[i], beta * v[j], s * decay[i]);
      out[j] = std::fma(q[i], s, out[j]);
    }
}
void no_head_norm(const float* x, const float* w, float eps, float* y, std::size_t n) {
  if (n != width) return scalar_kernels().rms_norm(x, w, eps, y, n);
  std::copy_n(x, n, y);
}
// The channels of the keys behind the latent ones.
void no_shared_channels(const AttentionBlock& block) {
  std::vector<float> queries(block.queries, block.queries + block.query_ld * block.query_count);
  for (std::size_t i = 0; i < block.query_count; ++i)
    std::fill_n(queries.data() + i * block.query_ld + width, block.key_dims - width, 0.0F);
  AttentionBlock other = block;
  other.queries = queries.data();
  scalar_kernels().attention(other);
}
// With the selection bias zeroed, experts are chosen as before, but weighed with it.
void bias_inside_the_weights(const float* in, float* out, std::size_t n) {
  scalar_kernels().sigmoid(in, out, n);
  if (n == bias.size())
    for (std::size_t e = 0; e < n; ++e) out[e] += bias[e];
}
}  // namespace mutant

std::function<void(VectorRole, std::vector<float>&)> on(VectorRole role,
                                                        std::function<void(std::vector<float>&)> change) {
  return [role, change](VectorRole r, std::vector<float>& v) {
    if (r == role) change(v);
  };
}

TEST(GgufMutations, EachMovesTheLogitsFarBeyondTheBound) {
  if (!golden().is_object()) GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
  const auto zero = [](std::vector<float>& v) { std::ranges::fill(v, 0.0F); };
  const auto one = [](std::vector<float>& v) { std::ranges::fill(v, 1.0F); };
  const auto no_rope = [](ModelConfig& c) { c.rope.frequencies.clear(); };
  const auto other_order = [](ModelConfig& c) {
    c.rope.order = c.rope.order == RopeOrder::halves ? RopeOrder::pairs : RopeOrder::halves;
  };
  const auto reversed_taps = [](std::vector<float>& v) {
    for (std::size_t i = 0; i + 4 <= v.size(); i += 4)
      std::reverse(v.begin() + static_cast<long>(i), v.begin() + static_cast<long>(i) + 4);
  };
  const std::vector<Mutation> mutations = {
      {"no rotation", "llama-dense-Q8_0.gguf", no_rope, {}},
      {"other pairs turn", "llama-dense-Q8_0.gguf", other_order, {}},
      {"other base",
       "qwen2-dense-Q8_0.gguf",
       [](ModelConfig& c) {
         for (float& f : c.rope.frequencies) f *= 3;
       },
       {}},
      {"other pairs turn", "qwen2-dense-Q8_0.gguf", other_order, {}},
      {"no bias", "qwen2-dense-Q8_0.gguf", {}, on(VectorRole::q_bias, zero)},
      {"no q norm weight", "qwen3-dense-F32.gguf", {}, on(VectorRole::q_norm, one)},
      {"no k norm weight", "qwen3-dense-F32.gguf", {}, on(VectorRole::k_norm, one)},
      {"softmax scale", "qwen3-dense-F32.gguf", [](ModelConfig& c) { c.softmax_scale = 1; }, {}},
      {"sigmoid router", "qwen3moe-moe-Q8_0.gguf", [](ModelConfig& c) { c.moe.score = RouterScore::sigmoid; }, {}},
      {"not renormalised", "qwen3moe-moe-Q8_0.gguf", [](ModelConfig& c) { c.moe.renormalize = false; }, {}},
      {"two experts", "llama-moe-Q8_0.gguf", [](ModelConfig& c) { c.moe.top_k = 2; }, {}},
      {"shared keys do not turn", "deepseek2-moe-Q8_0.gguf", no_rope, {}},
      {"shared keys turn in halves", "deepseek2-moe-Q8_0.gguf", other_order, {}},
      {"routing not scaled", "deepseek2-moe-Q8_0.gguf", [](ModelConfig& c) { c.moe.scaling_factor = 1; }, {}},
      {"no selection bias", "deepseek2-moe-Q8_0.gguf", {}, on(VectorRole::router_bias, zero)},
      {"no decay",
       "kimi-linear-moe-F32.gguf",
       {},
       on(VectorRole::a_log, [](auto& v) { std::ranges::fill(v, -30.0F); })},
      {"convolution reversed", "kimi-linear-moe-F32.gguf", {}, on(VectorRole::conv_k, reversed_taps)},
      {"no decay bias", "kimi-linear-moe-F32.gguf", {}, on(VectorRole::dt_bias, zero)},
      {"unbounded decay", "kimi-k3-moe-F32.gguf", [](ModelConfig& c) { c.kda.gate_lower_bound.reset(); }, {}},
      {"residual scores zeroed", "kimi-k3-moe-F32.gguf", {}, on(VectorRole::res_score, zero)},
      {"residual blocks of two", "kimi-k3-moe-F32.gguf", [](ModelConfig& c) { c.attn_res_block_size = 2; }, {}},
      {"SwiGLU for SiTU", "kimi-k3-moe-F32.gguf", [](ModelConfig& c) { c.activation = {}; }, {}},
      {"no selection bias", "kimi-k3-moe-F32.gguf", {}, on(VectorRole::router_bias, zero)},
      {"no latent norm", "kimi-k3-moe-F32.gguf", [](ModelConfig& c) { c.moe.latent_norm = false; }, {}},
      {"no delta rule",
       "kimi-linear-moe-F32.gguf",
       {},
       {},
       [](Kernels& k, const ModelConfig&) { k.kda_step = mutant::no_delta_rule; }},
      {"no norm of queries and keys",
       "qwen3-dense-F32.gguf",
       {},
       {},
       [](Kernels& k, const ModelConfig& c) {
         mutant::width = c.gqa.head_dim;
         k.rms_norm = mutant::no_head_norm;
       }},
      {"shared key channels dropped",
       "deepseek2-moe-Q8_0.gguf",
       {},
       {},
       [](Kernels& k, const ModelConfig& c) {
         mutant::width = c.mla.kv_lora_rank;
         k.attention = mutant::no_shared_channels;
       }},
      {"bias inside the router's weights",
       "kimi-k3-moe-F32.gguf",
       {},
       on(VectorRole::router_bias,
          [](std::vector<float>& v) {
            mutant::bias = v;
            std::ranges::fill(v, 0.0F);
          }),
       [](Kernels& k, const ModelConfig&) { k.sigmoid = mutant::bias_inside_the_weights; }},
  };
  for (const Mutation& m : mutations) {
    auto weights = GgufWeights::open(golden_file(m.file));
    ASSERT_TRUE(weights) << weights.error().to_string();
    ModelConfig config = weights->config();
    if (m.config) m.config(config);
    auto graph = Graph::build(config);
    ASSERT_TRUE(graph);
    Mutant mutant(std::make_shared<GgufWeights>(std::move(*weights)), std::move(*graph));
    mutant.change = m.vector;
    const Json& entry = golden()["files"][m.file];
    const auto exact =
        entry.contains("logits_exact") ? entry["logits_exact"].get<Logits>() : entry["logits"].get<Logits>();
    for (const Profile profile : {Profile::exact, Profile::fast}) {
      Kernels kernels = scalar_kernels();
      if (m.kernels) m.kernels(kernels, config);
      auto interpreter = Interpreter::load(mutant, profile, KvCache::by_profile, kernels);
      ASSERT_TRUE(interpreter) << interpreter.error().to_string();
      const auto found = interpreter->forward(entry["ids"].get<std::vector<std::int32_t>>());
      ASSERT_TRUE(found);
      const Distance d = distance(*found, exact);
      EXPECT_GT(d.largest, 0.1) << m.what << " in " << m.file;
      const double theirs = distance(entry["logits"].get<Logits>(), exact).root_mean_square;
      EXPECT_GT(d.root_mean_square, 1.5 * std::max(theirs, 1e-2))
          << m.what << " in " << m.file << ": the bound in fast";
    }
  }
}

}  // namespace
}  // namespace myriad
