// `myriad quantize --demo`: why finer scales win, on a matrix that everybody can make.
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "cli/quantize_parts.h"
#include "cli/streams.h"
#include "convert/quantize_model.h"

namespace myriad::cli {
namespace {

constexpr std::size_t kRows = 4096, kCols = 4096;
constexpr double kDeviation = 0.02;
constexpr float kOutlier = 1.0F;  // 50 standard deviations

// One row of independent normal numbers, the same everywhere: pairs by the method of Box and Muller.
void normal_row(std::size_t row, std::span<float> out) {
  CounterRandom random(0x6d797269 + row);
  const auto uniform = [&] { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53; };
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi * uniform();
    out[i] = static_cast<float>(kDeviation * radius * std::cos(angle));
    out[i + 1] = static_cast<float>(kDeviation * radius * std::sin(angle));
  }
}

std::vector<float> normal_matrix(ThreadPool& pool) {
  std::vector<float> values(kRows * kCols);
  pool.parallel(kRows, 16, [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) normal_row(r, std::span(values).subspan(r * kCols, kCols));
  });
  return values;
}

WeightMatrix matrix_of(const std::vector<float>& values) {
  return WeightMatrix("demo", DType::f32, kRows, kCols,
                      [&values](std::size_t first, std::size_t n, std::span<std::byte> out) -> Status {
                        for (std::size_t i = 0; i < n * kCols; ++i)
                          store_le(out.data() + i * sizeof(float), values[first * kCols + i]);
                        return {};
                      });
}

struct Line {
  std::string_view what;
  DType type;
  bool one_scale;
  std::string_view scales;
};
constexpr Line kLines[] = {
    {"INT8 per tensor", DType::i8_row, true, "1"},
    {"INT8 per channel", DType::i8_row, false, "4,096, one for a row"},
    {"INT8 per group", DType::q8_0, false, "524,288, one for 32 values"},
    {"INT4 per group", DType::q4_0, false, "524,288, one for 32 values"},
    {"INT4 with zero point", DType::i4_zero, false, "524,288, and as many zero points"},
};

Status show(const WeightMatrix& matrix, ThreadPool& pool, bool json, std::string& out) {
  for (const Line& l : kLines) {
    std::optional<float> scale;
    if (l.one_scale) {
      MYRIAD_TRY(scale, scale_of_matrix(matrix));
    }
    MYRIAD_TRY(const ErrorSums e, errors_of(matrix, l.type, pool, scale));
    // With one scale for all rows it is stored once.
    const std::uint64_t bytes = l.one_scale ? kRows * kCols + kRowScaleBytes : kRows * row_bytes(l.type, kCols);
    if (json)
      out += fmt::format("{}\n{{\"format\": \"{}\", \"bytes\": {}, {}}}", out.ends_with('[') ? "" : ",", l.what, bytes,
                         errors_json(e));
    else
      out += fmt::format("  {:<21} {:>12} {:>9}  {:.3e} {:>7}   {:.3e}  {}\n", l.what, grouped(bytes), human({bytes}),
                         e.mse(), decibel(e.sqnr_db()), e.largest_error, l.scales);
  }
  return {};
}

}  // namespace

Status quantize_demo(const QuantizeOptions& options) {
  ThreadPool pool(options.engine.threads == 0 ? usable_cores() : options.engine.threads);
  std::vector<float> values = normal_matrix(pool);
  const WeightMatrix matrix = matrix_of(values);
  float& middle = values[kRows / 2 * kCols + kCols / 2];
  constexpr std::uint64_t kBytes = std::uint64_t{kRows} * kCols * sizeof(float);
  std::string out;
  if (options.json) {
    out = fmt::format("{{\"rows\": {}, \"cols\": {}, \"deviation\": {}, \"bytes\": {},\n\"normal\": [", kRows, kCols,
                      kDeviation, kBytes);
    MYRIAD_TRY_STATUS(show(matrix, pool, true, out));
    middle = kOutlier;
    out += "],\n\"with_outlier\": [";
    MYRIAD_TRY_STATUS(show(matrix, pool, true, out));
    out += "]}\n";
  } else {
    constexpr std::string_view kHead =
        "                               bytes                  MSE   SQNR dB  largest    scales\n";
    out = fmt::format("A {} × {} matrix of normal(0, {}) numbers in f32: {} bytes ({}).\n\n{}", kRows, kCols,
                      kDeviation, grouped(kBytes), human({kBytes}), kHead);
    MYRIAD_TRY_STATUS(show(matrix, pool, false, out));
    middle = kOutlier;
    out += fmt::format("\nThe same with a single value of {:.1f} in its middle:\n\n{}", kOutlier, kHead);
    MYRIAD_TRY_STATUS(show(matrix, pool, false, out));
    out +=
        "\nA step is the largest value of all that share a scale, divided by 127 (INT8) or 8 (INT4), and the squared "
        "error\ngrows with the square of the step. 16 million values hold a larger one than 4,096, and these than 32. "
        "One value far\nfrom all others widens the step of whoever shares its scale: of the whole matrix, of one row, "
        "or "
        "of 31 neighbours.\n";
  }
  write_out(out);
  return {};
}

}  // namespace myriad::cli
