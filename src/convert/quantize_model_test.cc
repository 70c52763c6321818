#include "convert/quantize_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "convert/calibration.h"
#include "convert/divergence.h"
#include "convert/mixed.h"
#include "convert/overlay.h"
#include "quant/blocks.h"
#include "quant/quantize.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = fs::path(MYRIAD_SOURCE_DIR) / "tests/data/random-k3";

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class QuantizeModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "myriad-quantize-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  Status run(const fs::path& in, const fs::path& out_path, const QuantFormat& format, std::size_t stop_after = 0) {
    MYRIAD_TRY(const ModelFiles files, ModelFiles::open(in));
    const auto plan = uniform_plan(files, format);
    MYRIAD_TRY(const auto out, QuantizedOutput::create(files, plan, out_path));
    MYRIAD_TRY(Journal journal, Journal::open(out_path, format.name));
    std::size_t seen = 0;
    const InputTensor* last = nullptr;
    struct Stop {};
    try {
      MYRIAD_TRY_STATUS(quantize_model(files, plan, *out, journal, pool_, [&](const QuantizeProgress& p) {
        if (p.tensor != last && p.tensor != nullptr && stop_after != 0 && ++seen > stop_after) throw Stop();
        last = p.tensor;
      }));
    } catch (const Stop&) {
      return fail(Code::cancelled, "stopped");
    }
    errors_ = journal.errors();
    return journal.remove();
  }

  // Every matrix of `made` holds what quantising the original's rows gives.
  void expect_quantized(const fs::path& made, const QuantFormat& format) {
    const ModelFiles before = ModelFiles::open(kModel).value(), after = ModelFiles::open(made).value();
    EXPECT_TRUE(after.weights().verify_complete());
    const auto plan = uniform_plan(before, format);
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    std::size_t changed = 0;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      const InputTensor &a = before.tensors()[i], &b = after.tensors()[i];
      ASSERT_EQ(a.name, b.name);
      EXPECT_EQ(b.dtype, plan[i].type ? plan[i].type : a.dtype);
      EXPECT_EQ(b.bytes, planned_bytes(a, plan[i]));
      if (!a.dtype) continue;
      const WeightMatrix from = before.matrix(a).value(), to = after.matrix(b).value();
      std::vector<float> x(a.rows * a.cols), y(x.size());
      ASSERT_TRUE(from.read_rows_f32(0, a.rows, x));
      ASSERT_TRUE(to.read_rows_f32(0, a.rows, y));
      if (plan[i].type) {
        std::optional<float> scale;
        if (plan[i].one_scale) scale = scale_of_matrix(from).value();
        std::vector<std::byte> rows(a.rows * row_bytes(*plan[i].type, a.cols)), there(rows.size());
        ASSERT_TRUE(quantize_rows(*plan[i].type, x, a.cols, rows, 0, scale));
        ASSERT_TRUE(to.read_rows(0, a.rows, there));
        EXPECT_EQ(rows, there) << a.name;
        ErrorSums sums;
        sums.add(x, y);
        ASSERT_TRUE(errors_.contains(a.name));
        EXPECT_EQ(errors_.at(a.name).squared_error, sums.squared_error) << a.name;
        EXPECT_EQ(errors_.at(a.name).largest_error, sums.largest_error) << a.name;
        ++changed;
      } else {
        EXPECT_EQ(x, y) << a.name;
      }
    }
    EXPECT_GT(changed, 50U);
  }

  fs::path directory_;
  ThreadPool pool_{2};
  std::map<std::string, ErrorSums, std::less<>> errors_;
};

TEST_F(QuantizeModelTest, EveryFormatReadsBack) {
  for (const QuantFormat& format : quant_formats()) {
    const fs::path out = directory_ / format.name;
    const Status status = run(kModel, out, format);
    ASSERT_TRUE(status) << format.name << ": " << status.error().message;
    expect_quantized(out, format);
    EXPECT_FALSE(fs::exists(partial_path(out)));
    EXPECT_FALSE(fs::exists(directory_ / (std::string(format.name) + ".journal")));
    const auto config = nlohmann::json::parse(bytes_of(out / "config.json"));
    EXPECT_EQ(config["text_config"]["quantization_config"]["quant_method"], "myriad");
    EXPECT_FALSE(config.contains("quantization_config"));
  }
}

// Quantising what is quantised: only what gets smaller changes.
TEST_F(QuantizeModelTest, AQuantisedDirectoryIsAnInput) {
  ASSERT_TRUE(run(kModel, directory_ / "eight", *find_quant_format("q8_0")));
  ASSERT_TRUE(run(directory_ / "eight", directory_ / "four", *find_quant_format("q4_0")));
  ASSERT_TRUE(run(directory_ / "four", directory_ / "again", *find_quant_format("q8_0")));
  const ModelFiles four = ModelFiles::open(directory_ / "four").value(),
                   again = ModelFiles::open(directory_ / "again").value();
  std::size_t fours = 0;
  for (std::size_t i = 0; i < four.tensors().size(); ++i) {
    fours += four.tensors()[i].dtype == DType::q4_0 ? 1 : 0;
    EXPECT_EQ(four.tensors()[i].dtype, again.tensors()[i].dtype) << four.tensors()[i].name;
  }
  EXPECT_GT(fours, 50U);
}

TEST_F(QuantizeModelTest, AnInterruptedRunGivesTheSameFiles) {
  for (const char* name : {"int4-zero", "mxfp4"}) {
    const QuantFormat& format = *find_quant_format(name);
    const fs::path whole = directory_ / fmt::format("whole-{}", name);
    ASSERT_TRUE(run(kModel, whole, format));
    const auto errors = errors_;
    for (const std::size_t stop : {1U, 40U, 333U}) {
      const fs::path out = directory_ / fmt::format("{}-{}", name, stop);
      EXPECT_EQ(run(kModel, out, format, stop).error().code, Code::cancelled);
      EXPECT_TRUE(fs::exists(partial_path(out)));
      EXPECT_FALSE(fs::exists(out));
      ASSERT_TRUE(run(kModel, out, format));
      EXPECT_EQ(errors_.size(), errors.size());
      for (const auto& [tensor, sums] : errors) EXPECT_EQ(errors_[tensor].squared_error, sums.squared_error) << tensor;
      for (const auto& entry : fs::directory_iterator(whole))
        EXPECT_EQ(bytes_of(out / entry.path().filename()), bytes_of(entry.path())) << entry.path();
    }
  }
}

TEST_F(QuantizeModelTest, WhatIsNoNumberNamesItsTensor) {
  const fs::path broken = directory_ / "broken";
  fs::copy(kModel, broken);
  const ModelFiles files = ModelFiles::open(kModel).value();
  const TensorInfo* t = files.directory()->checkpoint().find("model.layers.3.self_attn.o_proj.weight");
  ASSERT_NE(t, nullptr);
  {
    std::fstream file(broken / files.directory()->checkpoint().shard_name(t->shard),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(t->offset + 2 * (5 * t->shape[1] + 7)));
    file.write("\xc0\x7f", 2);  // a NaN
  }
  const Status status = run(broken, directory_ / "out", *find_quant_format("q8_0"));
  ASSERT_FALSE(status);
  for (const char* word : {"model.layers.3.self_attn.o_proj", "row 5 column 7", "nan"})
    EXPECT_NE(status.error().to_string().find(word), std::string::npos) << status.error().to_string();
  EXPECT_FALSE(fs::exists(directory_ / "out"));
}

TEST_F(QuantizeModelTest, KindsThatDoNotGoTogether) {
  const ModelFiles files = ModelFiles::open(kModel).value();
  const auto plan = uniform_plan(files, *find_quant_format("q8_0"));
  const auto out = QuantizedOutput::create(files, plan, directory_ / "a.gguf");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, Code::invalid_argument);
}

// What is measured with matrices that are quantised on reading is what the written files give.
TEST_F(QuantizeModelTest, AnOverlayIsTheWrittenModel) {
  const ModelFiles files = ModelFiles::open(kModel).value();
  for (const char* name : {"q4_0", "i4_zero", "mxfp4"}) {
    const QuantFormat& format = *find_quant_format(name);
    ASSERT_TRUE(run(kModel, directory_ / name, format));
    const HfWeights written = HfWeights::open(directory_ / name).value();
    const auto plan = uniform_plan(files, format);
    std::map<std::size_t, DType> types;
    for (std::size_t i = 0; i < plan.size(); ++i)
      if (plan[i].type) types[i] = *plan[i].type;
    const OverlaidWeights overlay = OverlaidWeights::create(files, types).value();
    ASSERT_EQ(overlay.graph().operators().size(), written.graph().operators().size());
    for (const Operator& op : written.graph().operators())
      for (const auto& m : op.matrices) {
        const WeightMatrix a = overlay.matrix(op.ref, m.role).value(), b = written.matrix(op.ref, m.role).value();
        ASSERT_EQ(a.dtype(), b.dtype()) << a.name();
        EXPECT_EQ(overlay.config().dtype_of(op.ref.layer, op.ref.role, m.role), m.dtype) << a.name();
        std::vector<std::byte> x(a.rows() * a.row_bytes()), y(x.size());
        ASSERT_TRUE(a.read_rows(0, a.rows(), x));
        ASSERT_TRUE(b.read_rows(0, b.rows(), y));
        EXPECT_EQ(x, y) << a.name();
      }
  }
}

TEST_F(QuantizeModelTest, EffectsGrowAsBitsShrink) {
  const ModelFiles files = ModelFiles::open(kModel).value();
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(i * 37 % static_cast<int>(files.weights().config().vocab));
  EXPECT_EQ(Calibration::create(files, {1, 2, 3}, {.window = 16}).error().code, Code::invalid_argument);
  const Calibration calibration =
      Calibration::create(files, ids, {.profile = Profile::exact, .threads = 1, .window = 16}).value();
  EXPECT_EQ(calibration.effect({}).value(), 0);
  // Of the head alone: what other matrices change, a model of random weights makes anything of.
  const auto head = std::find_if(files.tensors().begin(), files.tensors().end(),
                                 [](const InputTensor& t) { return t.name == "lm_head"; });
  ASSERT_NE(head, files.tensors().end());
  double last = 1e-12;
  for (const DType t : {DType::q8_0, DType::q5_0, DType::mxfp4}) {
    const double effect = calibration.effect({{static_cast<std::size_t>(head - files.tensors().begin()), t}}).value();
    EXPECT_GT(effect, 2 * last) << dtype_name(t);
    last = effect;
  }
}

TEST_F(QuantizeModelTest, MixedMeetsItsBudgetAndRemembers) {
  const ModelFiles files = ModelFiles::open(kModel).value();
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 32; ++i) ids.push_back(i * 37 % static_cast<int>(files.weights().config().vocab));
  const CalibrationOptions options{.threads = 2, .window = 32};
  const auto smallest =
      QuantizedOutput::create(files, uniform_plan(files, *find_quant_format("mxfp4")), directory_ / "x");
  const auto largest =
      QuantizedOutput::create(files, uniform_plan(files, *find_quant_format("q8_0")), directory_ / "x");
  const std::uint64_t budget = ((*smallest)->bytes() + (*largest)->bytes()) / 2;
  Journal journal = Journal::open(directory_ / "out", "key").value();
  std::vector<TensorPlan> first;
  for (int run = 0; run < 2; ++run) {
    const std::size_t measured = journal.effects().size();
    const auto plan =
        mixed_plan(files, {.bytes = budget}, directory_ / "out", ids, options, journal, pool_, [](auto&) {});
    ASSERT_TRUE(plan) << plan.error().message;
    const std::uint64_t bytes = (*QuantizedOutput::create(files, *plan, directory_ / "out"))->bytes();
    EXPECT_LE(bytes, budget);
    EXPECT_GE(static_cast<double>(bytes), 0.99 * static_cast<double>(budget));
    if (run == 0) {
      first = *plan;
    } else {
      EXPECT_EQ(measured, journal.effects().size());
    }
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].type, (*plan)[i].type);
  }
  const auto too_small =
      mixed_plan(files, {.bytes = 1000}, directory_ / "out", ids, options, journal, pool_, [](auto&) {});
  ASSERT_FALSE(too_small);
  EXPECT_EQ(too_small.error().code, Code::invalid_argument);
}

TEST(Journal, ATornLineIsForgottenAndAnotherKeyBeginsAnew) {
  const fs::path out = fs::temp_directory_path() / fmt::format("myriad-journal-{}", ::getpid());
  fs::path file = out;
  file += ".journal";
  {
    Journal journal = Journal::open(out, "a").value();
    EXPECT_FALSE(journal.continued());
    ASSERT_TRUE(journal.put_error("one \"quoted\"", {10, 0.1, 2.5, 1e-30}));
    ASSERT_TRUE(journal.put_effect("one", 0.125));
    EXPECT_EQ(Journal::open(out, "a").error().code, Code::busy);
  }
  std::ofstream(file, std::ios::app) << "{\"tensor\": \"two\", \"val";
  {
    Journal journal = Journal::open(out, "a").value();
    EXPECT_TRUE(journal.continued());
    ASSERT_EQ(journal.errors().size(), 1U);
    EXPECT_EQ(journal.errors().at("one \"quoted\"").squared_error, 0.1);
    EXPECT_EQ(journal.errors().at("one \"quoted\"").largest_error, 1e-30);
    EXPECT_EQ(journal.effects().at("one"), 0.125);
    ASSERT_TRUE(journal.put_effect("three", 3));
  }
  {
    Journal journal = Journal::open(out, "a").value();
    EXPECT_EQ(journal.effects().size(), 2U);
  }
  Journal other = Journal::open(out, "b").value();
  EXPECT_FALSE(other.continued());
  EXPECT_TRUE(other.errors().empty());
  ASSERT_TRUE(other.remove());
  EXPECT_FALSE(fs::exists(file));
}

TEST(Divergence, AgreesWithItsDefinition) {
  const std::vector<float> p = {1, 2, 3}, q = {3, 1, 2};
  double sp = 0, sq = 0, expected = 0;
  for (int i = 0; i < 3; ++i) {
    sp += std::exp(static_cast<double>(p[static_cast<std::size_t>(i)]));
    sq += std::exp(static_cast<double>(q[static_cast<std::size_t>(i)]));
  }
  for (std::size_t i = 0; i < 3; ++i)
    expected += std::exp(static_cast<double>(p[i])) / sp *
                (static_cast<double>(p[i]) - std::log(sp) - static_cast<double>(q[i]) + std::log(sq));
  EXPECT_NEAR(compare_rows(p, q).kl, expected, 1e-12);
  EXPECT_EQ(compare_rows(p, p).kl, 0);
  const std::vector<float> far = {1003, 1001, 1002};  // the same distribution as q
  EXPECT_NEAR(compare_rows(p, q).p_log_sum, std::log(sp), 1e-12);
  EXPECT_NEAR(compare_rows(p, far).kl, expected, 1e-12);
}

TEST(SizeBudget, IsBytesOrBits) {
  EXPECT_EQ(parse_size_budget("3MiB")->bytes, 3U << 20);
  EXPECT_EQ(parse_size_budget("4.5bpw")->bits_per_weight, 4.5);
  for (const char* bad : {"", "0", "bpw", "-1bpw", "4.5xbpw", "nanbpw", "99bpw", "much"})
    EXPECT_FALSE(parse_size_budget(bad)) << bad;
}

}  // namespace
}  // namespace myriad
