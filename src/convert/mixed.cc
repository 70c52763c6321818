#include "convert/mixed.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/bytes.h"
#include "convert/budget.h"
#include "convert/output.h"
#include "convert/quantize_model.h"

namespace myriad {
namespace {

constexpr std::array kCandidates = {DType::mxfp4, DType::iq4_nl, DType::q4_0, DType::q4_k,
                                    DType::q5_0,  DType::q5_k,   DType::q6_k, DType::q8_0};

struct Option {
  std::optional<DType> type;  // nothing: as it is
  std::uint64_t bytes = 0;
  double squared_error = 0, effect = 0;
};
struct Group {
  std::vector<std::size_t> tensors;
  std::string name;  // of its first tensor
  std::vector<Option> options;
};

std::vector<Group> groups_of(const ModelFiles& files) {
  std::map<ModelConfig::MatrixKey, Group> by_use;
  for (std::size_t i = 0; i < files.tensors().size(); ++i) {
    const InputTensor& t = files.tensors()[i];
    if (t.uses.empty() || !t.dtype || !reason_to_stay(t).empty()) continue;
    Group& g = by_use[t.uses.front()];
    if (g.tensors.empty()) g.name = t.name;
    g.tensors.push_back(i);
  }
  std::vector<Group> groups;
  for (auto& [use, group] : by_use) groups.push_back(std::move(group));
  return groups;
}

// The squared error of a whole group in a type.
Result<double> squared_error(const ModelFiles& files, const Group& group, DType type, Journal& journal,
                             ThreadPool& pool) {
  double sum = 0;
  for (const std::size_t i : group.tensors) {
    const InputTensor& t = files.tensors()[i];
    const std::string key = fmt::format("{} as {}", t.name, dtype_name(type));
    if (const auto known = journal.errors().find(key); known != journal.errors().end()) {
      sum += known->second.squared_error;
      continue;
    }
    MYRIAD_TRY(const WeightMatrix matrix, files.matrix(t));
    MYRIAD_TRY(const ErrorSums sums, errors_of(matrix, type, pool));
    MYRIAD_TRY_STATUS(journal.put_error(key, sums));
    sum += sums.squared_error;
  }
  return sum;
}

// The types that a group's rows can be stored in, and as it is, by their bytes alone.
std::vector<Option> options_of_shapes(const ModelFiles& files, const Group& group) {
  std::uint64_t now = 0;
  for (const std::size_t i : group.tensors) now += files.tensors()[i].bytes;
  std::vector<Option> all = {{std::nullopt, now}};
  for (const DType type : kCandidates) {
    Option o{type};
    const bool fits = std::all_of(group.tensors.begin(), group.tensors.end(), [&](std::size_t i) {
      const TensorPlan plan = plan_tensor(files.tensors()[i], type, false);
      o.bytes += planned_bytes(files.tensors()[i], plan);
      return plan.type == type;
    });
    if (fits) all.push_back(o);
  }
  return all;
}

// The types that a group can take, those left out that another one beats in bytes and error.
Status find_options(const ModelFiles& files, Group& group, Journal& journal, ThreadPool& pool) {
  std::vector<Option> all = options_of_shapes(files, group);
  for (Option& o : all)
    if (o.type) {
      MYRIAD_TRY(o.squared_error, squared_error(files, group, *o.type, journal, pool));
    }
  for (const Option& o : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&](const Option& p) {
      return p.bytes <= o.bytes && p.squared_error <= o.squared_error &&
             (p.bytes < o.bytes || p.squared_error < o.squared_error);
    });
    if (!beaten) group.options.push_back(o);
  }
  return {};
}

std::vector<TensorPlan> plan_of(const ModelFiles& files, const std::vector<Group>& groups,
                                const std::vector<std::size_t>& chosen) {
  std::vector<TensorPlan> plan(files.tensors().size());
  for (std::size_t i = 0; i < plan.size(); ++i)
    if (!files.tensors()[i].uses.empty()) plan[i].note = reason_to_stay(files.tensors()[i]);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const Option& o = groups[g].options[chosen[g]];
    for (const std::size_t i : groups[g].tensors)
      plan[i] = {o.type, false, o.type ? fmt::format("KL {:.2e}", o.effect) : std::string("kept")};
  }
  return plan;
}

// The bytes that the budget allows.
std::uint64_t limit_of(const ModelFiles& files, const SizeBudget& budget) {
  if (budget.bits_per_weight == 0) return budget.bytes;
  std::uint64_t others = 0, weights = 0;
  for (const InputTensor& t : files.tensors()) {
    if (t.uses.empty())
      others += t.bytes;
    else
      weights += std::uint64_t{t.rows} * t.cols;
  }
  return others + static_cast<std::uint64_t>(budget.bits_per_weight * static_cast<double>(weights) / 8);
}

// What the budget counts: the files, or the tensors alone.
Result<std::uint64_t> size_of(const ModelFiles& files, const std::vector<TensorPlan>& plan, const SizeBudget& budget,
                              const std::filesystem::path& out) {
  if (budget.bits_per_weight == 0) {
    MYRIAD_TRY(const std::unique_ptr<QuantizedOutput> draft, QuantizedOutput::create(files, plan, out));
    return draft->bytes();
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < plan.size(); ++i) sum += planned_bytes(files.tensors()[i], plan[i]);
  return sum;
}

}  // namespace

Result<SizeBudget> parse_size_budget(std::string_view text) {
  constexpr std::string_view kBits = "bpw";
  if (!text.ends_with(kBits)) {
    MYRIAD_TRY(const Bytes bytes, parse_bytes(text));
    if (bytes.value == 0) return fail(Code::invalid_argument, "a budget of no bytes");
    return SizeBudget{.bytes = bytes.value};
  }
  const std::string_view digits = text.substr(0, text.size() - kBits.size());
  SizeBudget budget;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), budget.bits_per_weight);
  if (error != std::errc() || end != digits.data() + digits.size() || !(budget.bits_per_weight > 0) ||
      budget.bits_per_weight > 64)
    return fail(Code::invalid_argument, "\"{}\", expected bytes such as 3GiB or bits a weight such as 4.5bpw", text);
  return budget;
}

Status check_size_budget(const ModelFiles& files, const SizeBudget& budget, const std::filesystem::path& out) {
  std::vector<Group> groups = groups_of(files);
  std::vector<std::size_t> smallest;
  for (Group& g : groups) {
    g.options = options_of_shapes(files, g);
    smallest.push_back(
        static_cast<std::size_t>(std::min_element(g.options.begin(), g.options.end(),
                                                  [](const Option& x, const Option& y) { return x.bytes < y.bytes; }) -
                                 g.options.begin()));
  }
  MYRIAD_TRY(const std::uint64_t least, size_of(files, plan_of(files, groups, smallest), budget, out));
  const std::uint64_t limit = limit_of(files, budget);
  if (least > limit)
    return fail(Code::invalid_argument, "a budget of {} bytes is too small: {} is the least that this model takes",
                grouped(limit), grouped(least));
  return {};
}

Result<std::vector<TensorPlan>> mixed_plan(const ModelFiles& files, const SizeBudget& budget,
                                           const std::filesystem::path& out, std::vector<std::int32_t> ids,
                                           const CalibrationOptions& options, Journal& journal, ThreadPool& pool,
                                           const std::function<void(const MixedProgress&)>& progress) {
  MYRIAD_TRY_STATUS(check_size_budget(files, budget, out));
  const std::uint64_t limit = limit_of(files, budget);
  std::vector<Group> groups = groups_of(files);
  MixedProgress at;
  at.what = "errors of the types";
  at.all = groups.size();
  for (Group& g : groups) {
    progress(at);
    MYRIAD_TRY_STATUS(find_options(files, g, journal, pool));
    ++at.done;
  }

  at = {.what = "the original"};
  for (const Group& g : groups) at.all += g.options.size() - 1;
  progress(at);
  const std::string digest = fmt::format("{} {} ", ids.size(), profile_name(options.profile));
  std::optional<Calibration> calibration;
  for (Group& g : groups)
    for (Option& o : g.options) {
      if (!o.type) continue;
      at.what = fmt::format("{} as {}", g.name, dtype_name(*o.type));
      const std::string key = digest + at.what;
      progress(at);
      if (const auto known = journal.effects().find(key); known != journal.effects().end()) {
        o.effect = known->second;
      } else {
        if (!calibration) {
          MYRIAD_TRY(calibration, Calibration::create(files, ids, options));
        }
        std::map<std::size_t, DType> types;
        for (const std::size_t i : g.tensors) types[i] = *o.type;
        MYRIAD_TRY(o.effect, calibration->effect(types));
        MYRIAD_TRY_STATUS(journal.put_effect(key, o.effect));
      }
      ++at.done;
    }
  at.what = "done";
  progress(at);

  std::vector<std::vector<Choice>> choices;
  for (const Group& g : groups) {
    choices.emplace_back();
    for (const Option& o : g.options) choices.back().push_back({o.bytes, o.effect});
  }
  // Headers and padding depend a little on the types: the room for matrices is what the last choice left for them.
  std::uint64_t around = 0;
  constexpr int kRounds = 8;
  for (int round = 0; round < kRounds && around <= limit; ++round) {
    MYRIAD_TRY(const std::vector<std::size_t> chosen, choose_within(choices, limit - around));
    std::vector<TensorPlan> plan = plan_of(files, groups, chosen);
    MYRIAD_TRY(const std::uint64_t bytes, size_of(files, plan, budget, out));
    if (bytes <= limit && round > 0) return plan;
    std::uint64_t taken = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) taken += choices[g][chosen[g]].bytes;
    around = std::max(around, bytes - taken);
  }
  return fail(Code::internal, "no choice of types stays within {} bytes", limit);
}

}  // namespace myriad
