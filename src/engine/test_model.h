// Shared by the engine's tests: a checkpoint of tests/data, cut somehow and loaded into a LocalPipeline.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/local_pipeline.h"
#include "model/hf_weights.h"
#include "part/cutter.h"

namespace myriad {

inline std::filesystem::path test_model(std::string_view name) {
  return std::filesystem::path(MYRIAD_SOURCE_DIR) / "tests/data" / name;
}

// While it lives, pipelines that are made compute with this instruction set.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) {
    if (const char* before = std::getenv("MYRIAD_ISA")) before_ = before;
    ::setenv("MYRIAD_ISA", std::string(isa_name(isa)).c_str(), 1);
  }
  ~WithIsa() {
    if (before_)
      ::setenv("MYRIAD_ISA", before_->c_str(), 1);
    else
      ::unsetenv("MYRIAD_ISA");
  }
  WithIsa(const WithIsa&) = delete;
  WithIsa& operator=(const WithIsa&) = delete;

 private:
  std::optional<std::string> before_;
};

struct TestModel {
  std::shared_ptr<const ModelWeights> weights;
  Graph graph;

  static TestModel open(const std::filesystem::path& dir) {
    auto weights = HfWeights::open(dir);
    if (!weights) throw std::runtime_error(weights.error().to_string());
    auto held = std::make_shared<HfWeights>(std::move(*weights));
    return {held, held->graph()};
  }
  [[nodiscard]] std::unique_ptr<LocalPipeline> pipeline(Profile profile, CutOptions options, Budget budget,
                                                        std::size_t threads) const {
    const auto specs = cut(graph, options);
    auto made =
        LocalPipeline::create(graph, "test", profile, budget, threads, specs, [&](std::size_t i) -> Result<Part> {
          MYRIAD_TRY(AlignedBuffer bytes, build_part(*weights, specs[i]));
          return Part::parse(std::move(bytes), graph, nullptr);
        });
    if (!made) throw std::runtime_error(made.error().to_string());
    return std::move(*made);
  }
};

using Logits = std::vector<std::vector<float>>;

inline Logits logits_of(Pipeline& pipeline, const std::vector<std::int32_t>& ids, std::uint32_t chunk,
                        std::span<const SequenceRun> others = {}, std::uint64_t sequence = 1) {
  Logits out;
  const auto status =
      run_logits(pipeline, {{sequence}, ids}, others, chunk,
                 [&](std::size_t, std::span<const float> row) { out.emplace_back(row.begin(), row.end()); });
  if (!status) ADD_FAILURE() << status.error().to_string();
  return out;
}

}  // namespace myriad
