// Files that differ from those of golden/gguf in one thing of metadata or tensors each, against llama.cpp:
// tests/data/gguf_variants.json names the changes and what llama.cpp makes of them, and tests/oracle/
// make_gguf_variants.py is what asked it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "engine/test_model.h"
#include "model/gguf_weights.h"
#include "model/gguf_writer.h"
#include "model/interpreter.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> dims;
  std::vector<float> values;
};

// A file in memory, its tensors widened to F32.
class Variant {
 public:
  explicit Variant(const fs::path& path) : file_(GgufFile::open(path).value()) {
    for (const GgufTensor& t : file_.tensors()) {
      std::vector<std::byte> raw(t.bytes);
      EXPECT_TRUE(file_.read(t, 0, raw));
      std::vector<float> values(t.elements());
      dequantize(*dtype_of(t.type), raw.data(), values.size(), values.data());
      tensors_.push_back({std::string(t.name), {t.dims().begin(), t.dims().end()}, std::move(values)});
    }
    prefix_ = std::string(file_.architecture().value()) + ".";
  }

  // The changes of a case, as make_gguf_variants.py makes them.
  void change(const Json& by) {
    const Json set = by.value("set", Json::object()), drop = by.value("drop", Json::array()),
               fill = by.value("fill", Json::object());
    for (const auto& [key, value] : set.items()) set_[prefix_ + key] = value;
    for (const auto& part : drop)
      std::erase_if(tensors_, [&](const Tensor& t) { return t.name.find(part.get<std::string>()) != t.name.npos; });
    if (by.contains("copy_block")) {
      const std::string from = fmt::format("blk.{}.", by["copy_block"][0].get<int>());
      const std::string to = fmt::format("blk.{}.", by["copy_block"][1].get<int>());
      for (std::size_t i = 0, n = tensors_.size(); i < n; ++i)
        if (tensors_[i].name.starts_with(from)) {
          Tensor copy = tensors_[i];
          copy.name = to + copy.name.substr(from.size());
          tensors_.push_back(std::move(copy));
        }
    }
    for (const auto& [name, range] : fill.items()) {
      const auto low = range[1].get<float>(), high = range[2].get<float>();
      Tensor t{name, range[0].get<std::vector<std::uint64_t>>(), {}};
      std::uint64_t n = 1;
      for (const auto d : t.dims) n *= d;
      for (std::uint64_t i = 0; i < n; ++i)
        t.values.push_back(low + (high - low) * (static_cast<float>(i) / static_cast<float>(n)));
      tensors_.push_back(std::move(t));
    }
  }

  // What products are made with as f16 or bf16, the rest as f32.
  void write(const fs::path& path, GgmlType matrices = GgmlType::f32) const {
    const auto type_of = [&](const Tensor& t) {
      for (const char* always : {"gate_inp", "conv", "ssm_f", "ssm_beta"})
        if (t.name.find(always) != std::string::npos) return GgmlType::f32;
      return t.dims.size() < 2 ? GgmlType::f32 : matrices;
    };
    GgufWriter out(path, {});
    for (const auto& [key, typed] : set_.items())
      if (!typed.is_null()) set(out, key, typed);
    for (const GgufKey& key : file_.metadata().keys())
      if (!set_.contains(key.name)) copy(out, key);
    for (const Tensor& t : tensors_) ASSERT_TRUE(out.declare(t.name, type_of(t), t.dims));
    ASSERT_TRUE(out.begin());
    for (const Tensor& t : tensors_) {
      if (const GgmlType type = type_of(t); type != GgmlType::f32) {
        std::vector<std::uint16_t> halves;
        for (const float v : t.values) halves.push_back(type == GgmlType::f16 ? f32_to_f16(v) : f32_to_bf16(v));
        little_in_place(std::span(halves));
        ASSERT_TRUE(out.append(t.name, std::as_bytes(std::span(halves))));
        continue;
      }
      std::vector<float> little = t.values;
      little_in_place(std::span(little));
      ASSERT_TRUE(out.append(t.name, std::as_bytes(std::span(little))));
    }
    ASSERT_TRUE(out.finish());
  }

 private:
  static void set(GgufWriter& out, const std::string& key, const Json& typed) {
    const std::string& kind = typed.begin().key();
    const Json& value = typed.begin().value();
    if (kind == "u32") {
      ASSERT_TRUE(out.set(key, value.get<std::uint32_t>()));
    } else if (kind == "f32") {
      ASSERT_TRUE(out.set(key, value.get<float>()));
    } else if (kind == "bool") {
      ASSERT_TRUE(out.set(key, value.get<bool>()));
    } else {
      ASSERT_EQ(kind, "string");
      ASSERT_TRUE(out.set(key, std::string_view(value.get_ref<const std::string&>())));
    }
  }
  // What the golden files hold: numbers, flags, strings, lists of them.
  void copy(GgufWriter& out, const GgufKey& key) const {
    const GgufMetadata& from = file_.metadata();
    switch (key.type) {
      case GgufValueType::string:
        ASSERT_TRUE(out.set(key.name, *from.get<std::string_view>(key.name).value()));
        break;
      case GgufValueType::boolean:
        ASSERT_TRUE(out.set(key.name, *from.get<bool>(key.name).value()));
        break;
      case GgufValueType::f32:
        ASSERT_TRUE(out.set(key.name, *from.get<float>(key.name).value()));
        break;
      case GgufValueType::array:
        if (key.element == GgufValueType::string) {
          const GgufStrings strings = *from.get_strings(key.name).value();
          std::vector<std::string_view> list;
          for (std::size_t i = 0; i < strings.size(); ++i) list.push_back(strings[i]);
          ASSERT_TRUE(out.set_strings(key.name, list));
        } else if (key.element == GgufValueType::f32) {
          ASSERT_TRUE(out.set_array<float>(key.name, *from.get_array<float>(key.name).value()));
        } else {
          ASSERT_TRUE(out.set_array<std::int32_t>(key.name, *from.get_array<std::int32_t>(key.name).value()));
        }
        break;
      default:
        if (key.name == kGgufAlignmentKey) break;
        ASSERT_TRUE(out.set(key.name, *from.get<std::uint32_t>(key.name).value()));
    }
  }

  GgufFile file_;
  std::string prefix_;
  std::vector<Tensor> tensors_;
  Json set_ = Json::object();
};

const Json& variants() {
  static const Json json = [] {
    std::ifstream in(fs::path(MYRIAD_SOURCE_DIR) / "tests/data/gguf_variants.json");
    return Json::parse(in);
  }();
  return json;
}

class GgufVariants : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("MYRIAD_TEST_DATA");
    if (folder == nullptr || !fs::exists(fs::path(folder) / "golden/gguf"))
      GTEST_SKIP() << "MYRIAD_TEST_DATA has no golden/gguf";
    golden_ = fs::path(folder) / "golden/gguf";
    path_ = fs::temp_directory_path() / fmt::format("myriad-variant-{}.gguf", ::getpid());
  }
  void TearDown() override {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }
  Result<GgufWeights> open(const std::string& file, const Json& changes) const {
    Variant variant(golden_ / file);
    variant.change(changes);
    variant.write(path_);
    return GgufWeights::open(path_);
  }
  void expect_refused(const std::string& file, const Json& changes, std::string_view words) const {
    const auto weights = open(file, changes);
    ASSERT_FALSE(weights) << file << " " << changes.dump() << ", expected: " << words;
    EXPECT_NE(weights.error().message.find(words), std::string::npos) << weights.error().message;
    EXPECT_NE(weights.error().message.find(path_.filename().string()), std::string::npos) << weights.error().message;
  }

  fs::path golden_, path_;
};

TEST_F(GgufVariants, GiveTheProbabilitiesOfLlamaCpp) {
  const auto ids = variants()["ids"].get<std::vector<std::int32_t>>();
  for (const Json& entry : variants()["cases"]) {
    const auto name = entry["name"].get<std::string>();
    const auto weights = open(entry["file"].get<std::string>(), entry);
    ASSERT_TRUE(weights) << name << ": " << weights.error().to_string();
    auto interpreter = Interpreter::load(*weights, Profile::exact);
    ASSERT_TRUE(interpreter) << name << ": " << interpreter.error().to_string();
    const auto logits = interpreter->forward(ids);
    ASSERT_TRUE(logits) << name << ": " << logits.error().to_string();
    double sum = 0;
    const std::vector<float>& last = logits->back();
    for (const float v : last) sum += std::exp(double{v});
    double most = 0;
    for (const Json& pair : entry["logprobs"])
      most = std::max(most, std::abs(double{last[pair[0].get<std::size_t>()]} - std::log(sum) - pair[1].get<double>()));
    EXPECT_LT(most, 1.5e-4) << name;
    if (std::getenv("MYRIAD_SHOW_DISTANCES") != nullptr) std::printf("%-60s %.2e\n", name.c_str(), most);
    // What a manifest carries is the same model.
    const std::string carried = config_to_json(weights->config());
    const auto read_back = parse_config(carried);
    ASSERT_TRUE(read_back) << name << ": " << read_back.error().to_string();
    EXPECT_EQ(config_to_json(*read_back), carried) << name;
  }
}

// What no operator would take, or what one would miss, is refused by its name: left out in silence it would give wrong
// results. So does llama.cpp ("wrong number of tensors").
TEST_F(GgufVariants, WithTensorsThatNothingTakesAreRefused) {
  const std::string llama = "llama-dense-Q8_0.gguf", qwen2 = "qwen2-dense-Q8_0.gguf", qwen3 = "qwen3-dense-F32.gguf";
  const auto added = [](const char* name, std::uint64_t n) { return Json{{"fill", {{name, {{n}, 0.5, 1.5}}}}}; };
  for (const char* name :
       {"blk.0.ffn_gate.bias", "blk.1.ffn_up.bias", "blk.3.ffn_down.bias", "blk.2.attn_output.bias",
        "blk.0.attn_sub_norm.weight", "blk.1.attn_q_norm.weight", "blk.4.attn_norm.weight", "output.bias",
        "output_norm.bias", "blk.0.nextn.enorm.weight", "rope_factors_long.weight", "blk.0.exp_probs_b.bias"})
    expect_refused(llama, added(name, 128), name);
  expect_refused(llama, {{"set", {{"block_count", {{"u32", 1}}}}}}, "blk.1.");
  expect_refused(qwen3, {{"set", {{"block_count", {{"u32", 3}}}}}}, "blk.3.");
  expect_refused("llama-moe-Q8_0.gguf", added("blk.0.ffn_gate_shexp.weight", 128), "blk.0.ffn_gate_shexp.weight");
  expect_refused("deepseek2-moe-Q8_0.gguf", {{"drop", {"blk.1.exp_probs_b"}}}, "blk.2.exp_probs_b.bias");
  expect_refused("deepseek2-moe-Q8_0.gguf", {{"set", {{"expert_shared_count", {{"u32", 0}}}}}}, "shexp.weight");
  // Not so what is there twice.
  EXPECT_TRUE(open(llama, added("rope_freqs.weight", 16)));
  EXPECT_TRUE(open(llama, added("blk.0.attn_rot_embd.weight", 16)));
}

TEST_F(GgufVariants, WithTensorsMissingOfSomeLayersAreRefused) {
  const auto expect_missing = [&](const std::string& file, const Json& changes, std::string_view words) {
    const auto weights = open(file, changes);
    ASSERT_TRUE(weights) << weights.error().to_string();
    const Status complete = weights->verify_complete();
    ASSERT_FALSE(complete) << file << " " << changes.dump();
    EXPECT_NE(complete.error().message.find(words), std::string::npos) << complete.error().message;
    EXPECT_FALSE(Interpreter::load(*weights, Profile::exact));
  };
  for (const char* name : {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight", "blk.2.attn_k_norm.weight"})
    expect_missing("qwen3-dense-F32.gguf", {{"drop", {name}}}, name);
  for (const char* name : {"blk.0.attn_q.bias", "blk.0.attn_v.bias", "blk.3.attn_k.bias"})
    expect_missing("qwen2-dense-Q8_0.gguf", {{"drop", {name}}}, name);
  expect_missing("qwen3-dense-F32.gguf", {{"drop", {"blk.0.attn_q_norm", "blk.0.attn_k_norm"}}}, "attn_q_norm");
  expect_missing("llama-dense-Q8_0.gguf",
                 {{"fill", {{"blk.1.attn_k.bias", {{64}, 0.0, 1.0}}, {"blk.1.attn_v.bias", {{64}, 0.0, 1.0}}}}},
                 "blk.0.attn_q.bias");
}

TEST_F(GgufVariants, WithMetadataThatNothingRunsAreRefused) {
  const auto with = [](const char* key, const Json& value) { return Json{{"set", {{key, value}}}}; };
  expect_refused("llama-dense-Q8_0.gguf", with("attention.causal", {{"bool", false}}), "attention.causal is false");
  expect_refused("llama-dense-Q8_0.gguf", with("nextn_predict_layers", {{"u32", 4}}), "nextn_predict_layers is 4");
  EXPECT_TRUE(open("llama-dense-Q8_0.gguf", with("attention.causal", {{"bool", true}})));
}

// What this checks is the model's own formula (arXiv 2309.00071), not llama.cpp, which takes 32 and 1 for these
// architectures whatever the file says.
TEST_F(GgufVariants, TakeYarnsBetasFromTheFile) {
  const auto weights = open("qwen2-dense-Q8_0.gguf", {{"set",
                                                       {{"rope.scaling.type", {{"string", "yarn"}}},
                                                        {"rope.scaling.factor", {{"f32", 4.0}}},
                                                        {"rope.scaling.original_context_length", {{"u32", 2048}}},
                                                        {"rope.scaling.yarn_beta_fast", {{"f32", 8.0}}},
                                                        {"rope.scaling.yarn_beta_slow", {{"f32", 2.0}}},
                                                        {"rope.freq_base", {{"f32", 10000.0}}}}}});
  ASSERT_TRUE(weights) << weights.error().to_string();
  const std::vector<float>& f = weights->config().rope.frequencies;
  ASSERT_EQ(f.size(), 16U);
  // Pair i turns 2048·10000^(-i/16)/2π times: 8 times at i = 6.4, twice at 8.9; so the ramp goes from 6 to 9.
  for (std::size_t i = 0; i < f.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - 6) / 3, 0.0, 1.0);
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 16);
    EXPECT_NEAR(f[i], plain * (1 - ramp) + plain / 4 * ramp, 1e-6 * plain) << i;
  }
}

// Root mean square of the differences of log-probabilities to those of the same weights in `exact`: llama.cpp's beside
// the same file (node-llama-cpp 3.22.1, caches of F32, one thread), ours must not be half as large again.
TEST_F(GgufVariants, HalvesInFastStayAsNearAsLlamaCpp) {
  struct Case {
    const char* file;
    double f16, bf16;
  };
  std::ifstream in(golden_ / "golden.json");
  const Json files = Json::parse(in)["files"];
  std::vector<std::int32_t> ids;
  const auto log_probabilities = [&](const GgufWeights& weights, Profile profile) {
    Logits logits = Interpreter::load(weights, profile).value().forward(ids).value();
    for (auto& row : logits) {
      double sum = 0;
      for (const float v : row) sum += std::exp(double{v});
      for (float& v : row) v -= static_cast<float>(std::log(sum));
    }
    return logits;
  };
  for (const Case& c : {Case{"qwen3-dense-F32.gguf", 0.0014, 0.0112}, Case{"qwen2-dense-Q8_0.gguf", 0.0012, 0.0100},
                        Case{"llama-moe-Q8_0.gguf", 0.0013, 0.0098}, Case{"deepseek2-moe-Q8_0.gguf", 0.0020, 0.0162},
                        Case{"kimi-k3-moe-F32.gguf", 0.0034, 0.0335}, Case{"kimi-linear-moe-F32.gguf", 0.0023, 0.0233}})
    for (const GgmlType type : {GgmlType::f16, GgmlType::bf16}) {
      ids = files[c.file]["ids"].get<std::vector<std::int32_t>>();
      Variant(golden_ / c.file).write(path_, type);
      const auto weights = GgufWeights::open(path_);
      ASSERT_TRUE(weights) << weights.error().to_string();
      const Logits fast = log_probabilities(*weights, Profile::fast),
                   exact = log_probabilities(*weights, Profile::exact);
      double squares = 0, n = 0;
      for (std::size_t t = 0; t < exact.size(); ++t)
        for (std::size_t i = 0; i < exact[t].size(); ++i, ++n) squares += std::pow(double{fast[t][i]} - exact[t][i], 2);
      const double distance = std::sqrt(squares / n);
      EXPECT_LT(distance, 1.5 * (type == GgmlType::f16 ? c.f16 : c.bf16))
          << c.file << " " << (type == GgmlType::f16 ? "f16" : "bf16");
      EXPECT_GT(distance, 0);
    }
}

}  // namespace
}  // namespace myriad
