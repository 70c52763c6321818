// Tied embeddings lie in memory once, and nothing that is computed shows it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "engine/test_model.h"
#include "model/interpreter.h"
#include "model/safetensors_writer.h"

namespace myriad {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kVocabulary = 2500, kHidden = 64, kInner = 96;  // three granules of the vocabulary

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
};

// A Llama of one layer with random weights; untied: with a head that has the embedding's values.
void write_model(const std::filesystem::path& directory, bool tied) {
  std::filesystem::create_directories(directory);
  const Json config = {{"model_type", "llama"},  {"hidden_size", kHidden},      {"vocab_size", kVocabulary},
                       {"num_hidden_layers", 1}, {"num_attention_heads", 4},    {"num_key_value_heads", 2},
                       {"head_dim", 16},         {"intermediate_size", kInner}, {"max_position_embeddings", 128},
                       {"rms_norm_eps", 1e-5},   {"hidden_act", "silu"},        {"torch_dtype", "float32"},
                       {"rope_theta", 10000.0},  {"tie_word_embeddings", tied}};
  std::ofstream(directory / "config.json") << config;
  const std::string layer = "model.layers.0.";
  std::vector<Tensor> tensors = {
      {"model.embed_tokens.weight", {kVocabulary, kHidden}}, {"model.norm.weight", {kHidden}},
      {layer + "input_layernorm.weight", {kHidden}},         {layer + "post_attention_layernorm.weight", {kHidden}},
      {layer + "self_attn.q_proj.weight", {64, kHidden}},    {layer + "self_attn.k_proj.weight", {32, kHidden}},
      {layer + "self_attn.v_proj.weight", {32, kHidden}},    {layer + "self_attn.o_proj.weight", {kHidden, 64}},
      {layer + "mlp.gate_proj.weight", {kInner, kHidden}},   {layer + "mlp.up_proj.weight", {kInner, kHidden}},
      {layer + "mlp.down_proj.weight", {kHidden, kInner}}};
  if (!tied) tensors.push_back({"lm_head.weight", {kVocabulary, kHidden}});
  SafetensorsWriter out(directory, {});
  for (const Tensor& t : tensors) ASSERT_TRUE(out.declare(t.name, StorageType::f32, t.shape));
  ASSERT_TRUE(out.begin());
  for (const Tensor& t : tensors) {
    CounterRandom random(t.name == "lm_head.weight" ? 0 : static_cast<std::uint64_t>(&t - tensors.data()));
    std::vector<float> values(t.shape[0] * (t.shape.size() > 1 ? t.shape[1] : 1));
    for (float& v : values) v = static_cast<float>(random.below(2001)) / 4000.0F - 0.25F;
    little_in_place(std::span(values));
    ASSERT_TRUE(out.append(t.name, std::as_bytes(std::span(values))));
  }
  ASSERT_TRUE(out.finish());
}

class TiedEmbeddings : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "myriad-tied-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    write_model(folder_ / "tied", true);
    write_model(folder_ / "untied", false);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  const std::vector<std::int32_t> ids_ = {5, 2499, 1023, 1024, 7, 2048, 5, 1};
};

TEST_F(TiedEmbeddings, LieInMemoryOnce) {
  const TestModel tied = TestModel::open(folder_ / "tied"), untied = TestModel::open(folder_ / "untied");
  ASSERT_TRUE(tied.graph.config().tied_embeddings);
  std::uint64_t all = 0, embedding = 0;
  for (const std::uint64_t target : {std::uint64_t{1} << 20, std::uint64_t{1} << 17}) {
    all = embedding = 0;
    std::size_t parts = 0;
    for (const PartSpec& spec : cut(tied.graph, {target, 0})) {
      const std::uint64_t bytes = tied.graph.find(spec.op)->weight_bytes(spec.units());
      all += bytes;
      if (spec.op.role == OpRole::embed) {
        embedding += bytes;
        ++parts;
      }
    }
    EXPECT_EQ(parts, target == std::uint64_t{1} << 20 ? 1u : 3u);
    EXPECT_GT(embedding, kVocabulary * kHidden * sizeof(float));
    for (const Profile profile : {Profile::exact, Profile::fast}) {
      const auto once = tied.pipeline(profile, {target, 0}, {1, 64, 16}, 1);
      const auto twice = untied.pipeline(profile, {target, 0}, {1, 64, 16}, 1);
      EXPECT_EQ(once->part_bytes(), all - embedding);
      EXPECT_EQ(twice->part_bytes(), all);
      auto interpreter = Interpreter::load(*tied.weights, profile);
      ASSERT_TRUE(interpreter) << interpreter.error().to_string();
      const Logits expected = interpreter->forward(ids_).value();
      EXPECT_EQ(logits_of(*once, ids_, 3), expected);
      EXPECT_EQ(logits_of(*twice, ids_, 8), expected);
    }
  }
}

// Cut at random places, embedding and head each at its own: what does not fit is loaded as it is.
TEST_F(TiedEmbeddings, WhateverTheCut) {
  const TestModel tied = TestModel::open(folder_ / "tied");
  const Logits expected = Interpreter::load(*tied.weights, Profile::fast)->forward(ids_).value();
  for (std::uint64_t seed = 1; seed < 12; ++seed) {
    const auto pipeline = tied.pipeline(Profile::fast, {0, seed}, {1, 64, 16}, 1);
    EXPECT_EQ(logits_of(*pipeline, ids_, 5), expected) << seed;
  }
}

TEST_F(TiedEmbeddings, OnlyTheSameRowsAreSeenAsOthers) {
  const TestModel tied = TestModel::open(folder_ / "tied");
  const PartSpec head{{0, OpRole::head, 0}, 0, 1024}, same{{0, OpRole::embed, 0}, 0, 1024};
  std::optional<Part> seen;
  {
    auto part = Part::parse(build_part(*tied.weights, head).value(), tied.graph, nullptr);
    ASSERT_TRUE(part) << part.error().to_string();
    EXPECT_FALSE(part->seen_as({{0, OpRole::embed, 0}, 0, 2048}, tied.graph));
    EXPECT_FALSE(part->seen_as({{0, OpRole::embed, 0}, 1024, 2048}, tied.graph));
    EXPECT_FALSE(part->seen_as({{0, OpRole::dense_up, 0}, 0, 1024}, tied.graph));
    seen = part->seen_as(same, tied.graph);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->matrix(MatrixRole::weight)->data, part->matrix(MatrixRole::weight)->data);
  }
  // It outlives the part whose bytes it shows.
  const auto alone = Part::parse(build_part(*tied.weights, same).value(), tied.graph, nullptr);
  ASSERT_TRUE(alone);
  const MatrixView &a = *seen->matrix(MatrixRole::weight), &b = *alone->matrix(MatrixRole::weight);
  ASSERT_EQ(matrix_bytes(a.dtype, a.rows, a.k), matrix_bytes(b.dtype, b.rows, b.k));
  EXPECT_EQ(std::memcmp(a.data, b.data, matrix_bytes(a.dtype, a.rows, a.k)), 0);
  EXPECT_EQ(seen->bytes(), 0u);
  EXPECT_EQ(seen->spec().name(), alone->spec().name());
}

}  // namespace
}  // namespace myriad
