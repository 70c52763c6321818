// The numerics contract: the interpreter agrees with the float64 reference, and every cut, chunking, batch and thread
// count gives the interpreter's bits.
#include <nlohmann/json.hpp>
#include <random>

#include "base/bytes.h"
#include "base/random.h"
#include "base/sha256.h"
#include "engine/test_model.h"
#include "model/interpreter.h"
#include "part/file_io.h"

namespace myriad {
namespace {

struct Golden {
  std::vector<std::int32_t> ids;
  std::vector<std::vector<double>> logits;
};

Golden golden(const std::filesystem::path& dir) {
  const auto json = nlohmann::json::parse(read_small_file(dir / "golden.json", std::size_t{16} << 20).value());
  return {json.at("ids").get<std::vector<std::int32_t>>(), json.at("logits").get<std::vector<std::vector<double>>>()};
}

// Largest difference over largest logit.
double relative_error(const Logits& found, const std::vector<std::vector<double>>& expected) {
  double difference = 0, largest = 0;
  for (std::size_t t = 0; t < expected.size(); ++t)
    for (std::size_t i = 0; i < expected[t].size(); ++i) {
      difference = std::max(difference, std::abs(static_cast<double>(found[t][i]) - expected[t][i]));
      largest = std::max(largest, std::abs(expected[t][i]));
    }
  return difference / largest;
}

class Numerics : public testing::TestWithParam<const char*> {};

TEST_P(Numerics, InterpreterMatchesTheReference) {
  const auto dir = test_model(GetParam());
  const Golden g = golden(dir);
  const TestModel model = TestModel::open(dir);
  auto interpreter = Interpreter::load(*model.weights, Profile::exact);
  ASSERT_TRUE(interpreter) << interpreter.error().to_string();
  const auto logits = interpreter->forward(g.ids);
  ASSERT_TRUE(logits) << logits.error().to_string();
  EXPECT_LT(relative_error(*logits, g.logits), std::string_view(GetParam()) == "random-k3" ? 2e-4 : 2e-5);
}

TEST_P(Numerics, EveryCutChunkBatchAndThreadCountGivesTheInterpretersBits) {
  const auto dir = test_model(GetParam());
  const Golden g = golden(dir);
  const TestModel model = TestModel::open(dir);
  for (const Profile profile : {Profile::exact, Profile::fast}) {
    auto interpreter = Interpreter::load(*model.weights, profile);
    ASSERT_TRUE(interpreter);
    const auto expected = interpreter->forward(g.ids);
    ASSERT_TRUE(expected) << expected.error().to_string();
    const std::uint64_t base = std::random_device{}();
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t seed = round == 0 ? 0 : base + round;  // 0: the ordinary cut
      CounterRandom random(seed);
      const auto pipeline = model.pipeline(profile, {std::uint64_t{1} << 20, seed}, {4, 64, 64}, 1 + round % 2);
      const auto chunk = static_cast<std::uint32_t>(1 + random.below(24));
      std::vector<std::vector<std::int32_t>> other_tokens(round % 4);
      std::vector<SequenceRun> others;
      for (auto& tokens : other_tokens) {
        for (int i = 0; i < 30; ++i) tokens.push_back(static_cast<std::int32_t>(random.below(256)));
        others.push_back({{100 + others.size()}, tokens});
      }
      const Logits found = logits_of(*pipeline, g.ids, chunk, others);
      ASSERT_EQ(found.size(), expected->size());
      for (std::size_t t = 0; t < found.size(); ++t)
        ASSERT_EQ(found[t], (*expected)[t]) << profile_name(profile) << " seed " << seed << " chunk " << chunk
                                            << " others " << others.size() << " position " << t;
    }
  }
}

// SHA-256 over all logits, little-endian f32: the same on every instruction set and byte order, so the digests stand
// here.
TEST_P(Numerics, DigestIsTheSameOnEveryMachine) {
  const auto dir = test_model(GetParam());
  const Golden g = golden(dir);
  const TestModel model = TestModel::open(dir);
  const bool k3 = std::string_view(GetParam()) == "random-k3";
  for (const Profile profile : {Profile::exact, Profile::fast}) {
    const auto pipeline = model.pipeline(profile, {}, {4, 64, 64}, 1);
    Sha256 digest;
    for (auto row : logits_of(*pipeline, g.ids, 64)) {
      little_in_place(std::span(row));
      digest.update(std::as_bytes(std::span(row)));
    }
    const char* expected = profile == Profile::exact
                               ? (k3 ? "bce9a6fab560c7bc27b7bd8742b931393695285e290cd7249cebfcd0e98d009e"
                                     : "b6142ec9f3e3e847ded75c6dfa0bef9be80e4db605a889853e7df20d22f96bb5")
                               : (k3 ? "02db58b42b915bdc303b770b4ba936143a9512ce5b80a6f7f3ee8715d8e2c92f"
                                     : "a85036523bbc61e2fbb6e2dcd624a18e627ff8171b8f3bd389ed677b0d2a568e");
    EXPECT_EQ(to_hex(digest.finish()), expected) << profile_name(profile);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Numerics, testing::Values("random-k3", "random-kimi-linear"),
                         [](const auto& i) { return std::string(i.param).substr(7, 2) == "k3" ? "K3" : "KimiLinear"; });

}  // namespace
}  // namespace myriad
