// A Hugging Face directory of every family as a GGUF file: the same config, the same logits, the same tokenizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "convert/output.h"
#include "convert/quantize_model.h"
#include "convert/random_checkpoint_test.h"
#include "model/gguf_config.h"
#include "model/gguf_tokenizer.h"
#include "model/interpreter.h"
#include "model/model_text.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

Json dense(const char* type) {
  return {{"model_type", type},       {"architectures", {"TestForCausalLM"}},
          {"hidden_size", 64},        {"vocab_size", 96},
          {"num_hidden_layers", 2},   {"max_position_embeddings", 512},
          {"intermediate_size", 96},  {"rms_norm_eps", 1e-6},
          {"hidden_act", "silu"},     {"torch_dtype", "bfloat16"},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
          {"rope_theta", 10000.0},    {"bos_token_id", 1},
          {"eos_token_id", {2, 3}},   {"tie_word_embeddings", false}};
}

Json with(Json config, const Json& more) {
  config.update(more);
  return config;
}

Json deepseek(const char* type) {
  return with(dense(type), {{"num_hidden_layers", 3},
                            {"q_lora_rank", 24},
                            {"kv_lora_rank", 32},
                            {"qk_nope_head_dim", 24},
                            {"qk_rope_head_dim", 8},
                            {"v_head_dim", 16},
                            {"first_k_dense_replace", 1},
                            {"n_routed_experts", 8},
                            {"num_experts_per_tok", 3},
                            {"moe_intermediate_size", 32},
                            {"n_shared_experts", 1},
                            {"routed_scaling_factor", 2.5},
                            {"n_group", 4},
                            {"topk_group", 2},
                            {"norm_topk_prob", true},
                            {"scoring_func", "sigmoid"}});
}

Json kimi_linear() {
  Json config = Json::parse(std::ifstream(fs::path(MYRIAD_SOURCE_DIR) / "tests/data/random-kimi-linear/config.json"));
  return config;
}

struct Case {
  std::string name, architecture;
  Json config;
  bool same_bits = true;  // else what is summed comes in another order, or is rounded once more
};

std::vector<Case> cases() {
  const Json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 128}};
  return {
      {"llama", "llama", dense("llama"), false},
      {"llama in F32, head_dim, tied, linear", "llama",
       with(dense("llama"), {{"torch_dtype", "float32"},
                             {"head_dim", 24},
                             {"tie_word_embeddings", true},
                             {"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}}),
       false},
      {"llama 3", "llama",
       with(dense("llama"), {{"rope_theta", 500000.0},
                             {"rope_scaling",
                              {{"rope_type", "llama3"},
                               {"factor", 8.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 64}}}}),
       false},
      {"mistral", "llama", with(dense("mistral"), {{"sliding_window", 200}}), false},
      {"mixtral", "llama", with(dense("mixtral"), {{"num_local_experts", 8}, {"num_experts_per_tok", 3}}), false},
      {"qwen2", "qwen2", with(dense("qwen2"), {{"rope_theta", 1000000.0}, {"tie_word_embeddings", true}})},
      {"qwen2 with YaRN", "qwen2", with(dense("qwen2"), {{"rope_scaling", yarn}})},
      {"qwen3", "qwen3", with(dense("qwen3"), {{"head_dim", 32}, {"rope_theta", 1000000.0}})},
      {"qwen3 with YaRN and a magnitude", "qwen3",
       with(dense("qwen3"), {{"rope_scaling", with(yarn, {{"attention_factor", 1.5}, {"beta_fast", 16.0}})}})},
      {"qwen3 moe", "qwen3moe",
       with(dense("qwen3_moe"),
            {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 32}, {"norm_topk_prob", true}})},
      {"deepseek v3", "deepseek2", deepseek("deepseek_v3")},
      {"kimi k2 with YaRN, without q_lora", "deepseek2",
       with(deepseek("kimi_k2"),
            {{"q_lora_rank", nullptr},
             {"n_group", 1},
             {"topk_group", 1},
             {"rms_norm_eps", 1e-5},
             {"rope_scaling", with(yarn, {{"mscale", 1.0}, {"mscale_all_dim", 1.0}, {"factor", 32.0}})}})},
      {"deepseek v3, linear", "deepseek2",
       with(deepseek("deepseek_v3"), {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}})},
      {"deepseek v3, YaRN without a magnitude", "deepseek2",
       with(deepseek("deepseek_v3"), {{"rope_scaling", with(yarn, {{"attention_factor", 1.0}})}})},
      {"kimi linear", "kimi-linear", kimi_linear(), false},
  };
}

// What both files must say alike; where a family's rotation order and the like differ, that is the layout's business.
std::string comparable(ModelConfig c) {
  c.architecture.clear();
  c.trunk_dtype = DType::f32;
  c.expert_format = ExpertFormat::plain;
  c.dtypes.clear();
  c.f32_residual = false;         // of GGUF files,
  c.moe.renormalize_one = false;  // as is this, which says nothing beside several experts
  c.rope.order = RopeOrder::halves;
  return config_to_json(c);
}

std::vector<std::vector<float>> logits_of(const ModelWeights& weights) {
  auto interpreter = Interpreter::load(weights, Profile::exact);
  if (!interpreter) throw std::runtime_error(interpreter.error().to_string());
  std::vector<std::int32_t> ids;
  for (std::int32_t i = 0; i < 24; ++i) ids.push_back((5 + 37 * i) % static_cast<std::int32_t>(weights.config().vocab));
  return interpreter->forward(ids).value();
}

class GgufRoundTrip : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "myriad-gguf-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  // Everything as it is unless a format is named.
  Status convert(const fs::path& in, const fs::path& out_path, const char* format = nullptr,
                 std::size_t stop_after = 0) {
    MYRIAD_TRY(const ModelFiles files, ModelFiles::open(in, FileKind::gguf));
    std::vector<TensorPlan> plan(files.tensors().size());
    if (format != nullptr) plan = uniform_plan(files, *find_quant_format(format));
    MYRIAD_TRY(const auto out, QuantizedOutput::create(files, plan, out_path));
    MYRIAD_TRY(Journal journal, Journal::open(out_path, "test"));
    struct Stop {};
    std::size_t seen = 0;
    const InputTensor* last = nullptr;
    try {
      MYRIAD_TRY_STATUS(quantize_model(files, plan, *out, journal, pool_, [&](const QuantizeProgress& p) {
        if (p.tensor != last && p.tensor != nullptr && stop_after != 0 && ++seen > stop_after) throw Stop();
        last = p.tensor;
      }));
    } catch (const Stop&) {
      return fail(Code::cancelled, "stopped");
    }
    EXPECT_EQ(fs::file_size(out_path), out->bytes());
    return journal.remove();
  }

  void expect_the_same_model(const fs::path& original, const fs::path& made, std::string_view architecture,
                             bool same_bits) {
    const HfWeights before = HfWeights::open(original).value();
    const auto after = GgufWeights::open(made);
    ASSERT_TRUE(after) << after.error().to_string();
    const Status complete = after->verify_complete();
    ASSERT_TRUE(complete) << complete.error().to_string();
    EXPECT_EQ(after->file().architecture().value(), architecture);
    EXPECT_EQ(comparable(after->config()), comparable(before.config()));
    const auto expected = logits_of(before), found = logits_of(*after);
    double largest = 0, top = 0;
    for (std::size_t t = 0; t < expected.size(); ++t)
      for (std::size_t i = 0; i < expected[t].size(); ++i) {
        largest = std::max(largest, std::abs(double{found[t][i]} - expected[t][i]));
        top = std::max(top, std::abs(double{expected[t][i]}));
      }
    EXPECT_GT(top, 0.1);
    EXPECT_LE(largest, same_bits ? 0 : 1e-5 * top);
  }

  fs::path directory_;
  ThreadPool pool_{2};
};

TEST_F(GgufRoundTrip, EveryFamilyGivesTheSameLogits) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const fs::path model = directory_ / "model", out = directory_ / "model.gguf";
    RandomCheckpoint(c.config, 11).write(model);
    const Status status = convert(model, out);
    ASSERT_TRUE(status) << status.error().to_string();
    expect_the_same_model(model, out, c.architecture, c.same_bits);
    fs::remove_all(model);
    fs::remove(out);
  }
}

// −exp(A_log) in f32 is rounded: with A_log = 0 it is not, and nothing else may differ.
TEST_F(GgufRoundTrip, KimiK3WithItsExpertsInMxfp4) {
  for (const char* name : {"random-k3", "random-kimi-linear"}) {
    SCOPED_TRACE(name);
    const fs::path source = fs::path(MYRIAD_SOURCE_DIR) / "tests/data" / name;
    const fs::path zeroed = directory_ / name, out = directory_ / fmt::format("{}.gguf", name);
    fs::copy(source, zeroed);
    const HfWeights weights = HfWeights::open(source).value();
    for (const TensorInfo& t : weights.checkpoint().tensors()) {
      if (!t.name.ends_with("A_log")) continue;
      std::fstream file(zeroed / weights.checkpoint().shard_name(t.shard),
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(t.offset));
      file << std::string(t.bytes, '\0');
    }
    const std::string_view architecture = std::string_view(name) == "random-k3" ? "kimi-k3" : "kimi-linear";
    for (const bool whole : {true, false}) {
      const Status status = convert(whole ? zeroed : source, out);
      ASSERT_TRUE(status) << status.error().to_string();
      expect_the_same_model(whole ? zeroed : source, out, architecture, whole);
    }
  }
  const GgufFile k3 = GgufFile::open(directory_ / "random-k3.gguf").value();
  EXPECT_EQ(k3.require("blk.1.ffn_gate_exps.weight").value()->type, GgmlType::mxfp4);
  EXPECT_EQ(k3.require("blk.1.ffn_gate_inp.weight").value()->type, GgmlType::f32);
  EXPECT_EQ(k3.require("blk.1.attn_output.weight").value()->type, GgmlType::bf16);
  EXPECT_NE(k3.find("blk.0.ssm_a"), nullptr);
  EXPECT_NE(k3.find("output_res_score.weight"), nullptr);
}

// The rows of a quantised file are what quantising the rows of the directory gives, in their new places.
TEST_F(GgufRoundTrip, EveryFormatOfGguf) {
  const fs::path model = directory_ / "model";
  RandomCheckpoint(with(deepseek("deepseek_v3"), {{"hidden_size", 256}, {"intermediate_size", 288}}), 5).write(model);
  const ModelFiles files = ModelFiles::open(model, FileKind::gguf).value();
  for (const QuantFormat& format : quant_formats()) {
    SCOPED_TRACE(format.name);
    const fs::path out = directory_ / fmt::format("{}.gguf", format.name);
    const Status status = convert(model, out, std::string(format.name).c_str());
    if (!in_gguf(format.type)) {
      ASSERT_FALSE(status);
      EXPECT_EQ(status.error().code, Code::unsupported);
      EXPECT_FALSE(fs::exists(partial_path(out)));
      continue;
    }
    ASSERT_TRUE(status) << status.error().to_string();
    const GgufWeights made = GgufWeights::open(out).value();
    EXPECT_TRUE(made.verify_complete());
    const auto plan = uniform_plan(files, format);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const InputTensor& t = files.tensors()[i];
      const GgufTensor* there = made.file().require(t.name).value();
      const std::vector<std::uint64_t> dims(there->dims().begin(), there->dims().end());
      EXPECT_EQ(dims, t.shape) << t.name;
      EXPECT_EQ(there->bytes, planned_bytes(t, plan[i])) << t.name;
      if (!plan[i].type) continue;
      ++changed;
      const WeightMatrix from = files.matrix(t).value();
      std::vector<std::byte> expected(there->bytes), found(there->bytes);
      ASSERT_TRUE(quantized_on_read(from, *plan[i].type).read_rows(0, t.rows, expected));
      ASSERT_TRUE(made.file().read(*there, 0, found));
      EXPECT_EQ(expected, found) << t.name;
    }
    EXPECT_GT(changed, 20U);
    if (format.type == DType::q4_k) {
      EXPECT_EQ(made.file().require("blk.0.attn_q_a.weight").value()->type, GgmlType::q4_k);
      EXPECT_EQ(made.file().require("blk.0.attn_v_b.weight").value()->type, GgmlType::q5_0);  // rows of 32
      EXPECT_EQ(made.file().require("blk.0.attn_k_b.weight").value()->type, GgmlType::bf16);  // rows of 24
      EXPECT_EQ(made.file().require("blk.0.ffn_down.weight").value()->type, GgmlType::q5_0);  // rows of 288
      EXPECT_EQ(made.file().metadata().require<std::uint32_t>("general.file_type").value(), 14U);
    }
  }
}

TEST_F(GgufRoundTrip, AnInterruptedRunGivesTheSameFile) {
  const fs::path model = fs::path(MYRIAD_SOURCE_DIR) / "tests/data/random-k3";
  const auto bytes_of = [](const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  ASSERT_TRUE(convert(model, directory_ / "whole.gguf", "q8_0"));
  for (const std::size_t stop : {1U, 60U, 170U}) {
    const fs::path out = directory_ / fmt::format("{}.gguf", stop);
    EXPECT_EQ(convert(model, out, "q8_0", stop).error().code, Code::cancelled);
    EXPECT_TRUE(fs::exists(partial_path(out)));
    ASSERT_TRUE(convert(model, out, "q8_0"));
    EXPECT_TRUE(bytes_of(out) == bytes_of(directory_ / "whole.gguf")) << stop;
  }
}

// Myriad's own types, which GGUF has not, are widened; what is in one of GGUF's stays.
TEST_F(GgufRoundTrip, AQuantisedDirectoryIsAnInput) {
  const fs::path model = directory_ / "model";
  RandomCheckpoint(dense("qwen3"), 3).write(model);
  for (const char* format : {"int8-channel", "q8_0"}) {
    const fs::path small = directory_ / format, out = directory_ / fmt::format("{}.gguf", format);
    {
      const ModelFiles files = ModelFiles::open(model).value();
      const auto plan = uniform_plan(files, *find_quant_format(format));
      const auto output = QuantizedOutput::create(files, plan, small).value();
      Journal journal = Journal::open(small, "test").value();
      ASSERT_TRUE(quantize_model(files, plan, *output, journal, pool_, [](const auto&) {}));
    }
    ASSERT_TRUE(convert(small, out));
    expect_the_same_model(small, out, "qwen3", true);
    const GgufFile file = GgufFile::open(out).value();
    EXPECT_EQ(file.require("blk.0.attn_q.weight").value()->type,
              std::string_view(format) == "q8_0" ? GgmlType::q8_0 : GgmlType::f32);
  }
}

// There and back: a directory that was made of a GGUF file brings that file's metadata along.
TEST_F(GgufRoundTrip, ADirectoryFromAGgufFile) {
  for (const char* name : {"llama 3", "qwen2 with YaRN", "kimi k2 with YaRN, without q_lora"}) {
    SCOPED_TRACE(name);
    const auto all = cases();
    const Case& c = *std::find_if(all.begin(), all.end(), [&](const Case& one) { return one.name == name; });
    const fs::path model = directory_ / "model", first = directory_ / "first.gguf", back = directory_ / "back",
                   second = directory_ / "second.gguf";
    Json config = c.config;
    config["torch_dtype"] = "float32";
    RandomCheckpoint(config, 17).write(model);
    ASSERT_TRUE(convert(model, first));
    {
      const ModelFiles files = ModelFiles::open(first, FileKind::directory).value();
      const std::vector<TensorPlan> plan(files.tensors().size());
      const auto output = QuantizedOutput::create(files, plan, back).value();
      Journal journal = Journal::open(back, "test").value();
      ASSERT_TRUE(quantize_model(files, plan, *output, journal, pool_, [](const auto&) {}));
    }
    const Status status = convert(back, second);
    ASSERT_TRUE(status) << status.error().to_string();
    const GgufWeights a = GgufWeights::open(first).value(), b = GgufWeights::open(second).value();
    EXPECT_EQ(comparable(a.config()), comparable(b.config()));
    EXPECT_EQ(logits_of(a), logits_of(b));
    for (const fs::path& path : {model, first, back, second}) fs::remove_all(path);
  }
}

TEST_F(GgufRoundTrip, TokenizerAndChatTemplateComeAlong) {
  const fs::path tokenizers = fs::path(MYRIAD_SOURCE_DIR) / "tests/data/tokenizers";
  const std::string chat = "{% for m in messages %}<|begin|>{{ m.content }}\r\n{% endfor %}";
  for (const char* kind : {"tokenizer.json", "tokenizer.model", "tiktoken.model", "none"}) {
    SCOPED_TRACE(kind);
    const fs::path model = directory_ / kind, out = directory_ / fmt::format("{}.gguf", kind);
    RandomCheckpoint(with(dense("llama"), {{"vocab_size", 4100}, {"eos_token_id", {2, 1001, 3, 5}}}), 2).write(model);
    Json config = {
        {"chat_template", chat}, {"eos_token", "<|end|>"}, {"pad_token", "<|end|>"}, {"add_eos_token", true}};
    if (std::string_view(kind) == "tokenizer.json") {
      Json json = Json::parse(std::ifstream(tokenizers / "byte_level.json"));
      json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
      std::ofstream(model / "tokenizer.json") << json;
    } else if (std::string_view(kind) == "tokenizer.model") {
      fs::copy_file(tokenizers / "sentencepiece.model", model / "tokenizer.model");
      config["eos_token"] = "</s>";
    } else if (std::string_view(kind) == "tiktoken.model") {
      fs::copy_file(fs::path(MYRIAD_SOURCE_DIR) / "models/tiny-k3/tiktoken.model", model / "tiktoken.model");
      config.erase("eos_token");
      config["chat_template"] = {{{"name", "tools"}, {"template", "no"}}, {{"name", "default"}, {"template", chat}}};
    }
    if (std::string_view(kind) != "none") std::ofstream(model / "tokenizer_config.json") << config;
    const Status status = convert(model, out);
    ASSERT_TRUE(status) << status.error().to_string();
    const GgufFile file = GgufFile::open(out).value();
    const GgufMetadata& data = file.metadata();
    EXPECT_EQ(data.require<std::string_view>("general.name").value(), kind);
    if (std::string_view(kind) == "none") {
      EXPECT_EQ(data.require<std::string_view>("tokenizer.ggml.model").value(), "no_vocab");
      EXPECT_EQ(gguf_tokenizer(file).error().code, Code::not_found);
      continue;
    }
    EXPECT_EQ(gguf_chat_template(file).value(), chat);
    EXPECT_TRUE(data.require<bool>("tokenizer.ggml.add_eos_token").value());
    const Tokenizer before = Tokenizer::load(model, 4100).value(), after = gguf_tokenizer(file).value();
    ASSERT_EQ(after.vocab_size(), 4100);
    EXPECT_EQ(after.bos(), before.bos().value_or(1));  // the config's, where the tokenizer names none
    EXPECT_EQ(after.add_bos(), before.add_bos());
    for (const char* text :
         {"Once upon a time, there was a little girl.", "  1234 é\xF0\x9F\x98\x80\n\n", "<|begin|>the<think>"}) {
      EXPECT_EQ(after.encode(text), before.encode(text)) << text;
      EXPECT_EQ(after.encode_with_specials(text), before.encode_with_specials(text)) << text;
      EXPECT_EQ(after.decode(before.encode(text)), before.decode(before.encode(text))) << text;
    }
    // The tokenizer's own end first where the config has it, then the config's others.
    const auto end = [&](const char* name) {
      return data.require<std::uint32_t>(fmt::format("tokenizer.ggml.{}_token_id", name)).value();
    };
    const bool json = std::string_view(kind) == "tokenizer.json";
    EXPECT_EQ(end("eos"), json ? 1001U : 2U);
    EXPECT_EQ(end("eot"), json ? 2U : 1001U);
    EXPECT_EQ(end("eom"), 3U);
    EXPECT_EQ(data.has("tokenizer.ggml.padding_token_id"), json);
  }
}

// What the code of llama.cpp for an architecture could not be told.
TEST_F(GgufRoundTrip, WhatGgufCannotSayIsRefusedByName) {
  const struct {
    Json config;
    const char* word;
  } kCases[] = {
      {with(dense("qwen3_moe"),
            {{"num_experts", 8}, {"num_experts_per_tok", 3}, {"moe_intermediate_size", 32}, {"norm_topk_prob", false}}),
       "norm_topk_prob"},
      {with(dense("qwen2"),
            {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 64}}}}),
       "llama3"},
      {with(deepseek("deepseek_v3"), {{"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}}}), "mscale"},
      {with(kimi_linear(), {{"moe_renormalize", false}}), "moe_renormalize"},
  };
  for (const auto& c : kCases) {
    const fs::path model = directory_ / "model";
    RandomCheckpoint(c.config, 1).write(model);
    const auto files = ModelFiles::open(model, FileKind::gguf);
    ASSERT_FALSE(files) << c.word;
    EXPECT_EQ(files.error().code, Code::unsupported);
    EXPECT_NE(files.error().to_string().find(c.word), std::string::npos) << files.error().to_string();
    fs::remove_all(model);
  }
}

}  // namespace
}  // namespace myriad
