// `myriad bench kernels`: products of one token and of many with weights of every type, each beside what the machine
// can do at most: a plain reader of the same memory.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/input.h"
#include "cli/streams.h"
#include "kernels/kernels.h"
#include "kernels/read_bandwidth.h"
#include "kernels/thread_pool.h"
#include "model/layer.h"
#include "part/product_batch.h"
#include "quant/quantize.h"

namespace myriad::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kDifferentTiles = 16;  // repeated over all of the memory
constexpr std::size_t kManyTokens = 512, kManyTiles = 32;
constexpr int kRounds = 5;
constexpr std::uint32_t kExpertHidden = 3584, kExpertInner = 3072;  // Kimi K3's

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

// Tiles of random weights, as many as fit.
Result<std::size_t> fill(DType t, std::size_t k, std::span<std::byte> room) {
  const std::size_t rows = kDifferentTiles * kTileRows, tile = tile_bytes(t, k);
  CounterRandom random(1 + static_cast<std::uint64_t>(t));
  std::vector<float> values(rows * k);
  for (float& v : values) v = 0.02F * random.symmetric();
  std::vector<std::byte> tiles(matrix_bytes(t, rows, k));
  if (t == DType::f32) {
    pack_f32(values.data(), rows, k, tiles);
  } else if (t == DType::bf16) {
    std::vector<std::uint16_t> halves(values.size());
    std::ranges::transform(values, halves.begin(), f32_to_bf16);
    pack_bf16(halves.data(), rows, k, tiles);
  } else {
    std::vector<std::byte> storage(rows * row_bytes(t, k));
    MYRIAD_TRY_STATUS(quantize_rows(t, values, k, storage));
    pack_rows(t, storage.data(), rows, k, tiles);
  }
  const std::size_t count = room.size() / tile;
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(room.data() + i * tile, tiles.data() + i % kDifferentTiles * tile, tile);
  return count;
}

struct Rates {
  double bytes = 0, reader = 0, operations = 0;  // bytes and operations a second; the last 0 if not measured
};

class KernelBench {
 public:
  KernelBench(const Kernels& kernels, ThreadPool& pool, std::size_t k, std::span<std::byte> memory)
      : kernels_(kernels), pool_(pool), k_(k), memory_(memory) {}

  Result<Rates> run(DType t) {
    MYRIAD_TRY(const std::size_t tiles, fill(t, k_, memory_));
    const double bytes = static_cast<double>(tiles * tile_bytes(t, k_));
    std::vector<double> one, reader, many;
    for (int round = 0; round < kRounds; ++round) {
      auto start = Clock::now();
      multiply(t, tiles, 1);
      one.push_back(bytes / seconds_since(start));
      start = Clock::now();
      read();
      reader.push_back(static_cast<double>(memory_.size()) / seconds_since(start));
      const std::size_t some = std::min(tiles, kManyTiles * pool_.threads());
      start = Clock::now();
      multiply(t, some, kManyTokens);
      many.push_back(2.0 * kTileRows * static_cast<double>(some * k_ * kManyTokens) / seconds_since(start));
    }
    return Rates{median(one), median(reader), median(many)};
  }

  // One token through experts of Kimi K3's real size in MXFP4, one after the other until all of the memory was read:
  // gate and up, SiTU, int8, down.
  Result<Rates> run_experts() {
    const std::size_t wide = matrix_bytes(DType::mxfp4, kExpertInner, kExpertHidden),
                      narrow = matrix_bytes(DType::mxfp4, kExpertHidden, kExpertInner), expert = 2 * wide + narrow;
    const std::size_t count = memory_.size() / expert;
    for (std::size_t i = 0; i < count; ++i) {
      MYRIAD_TRY([[maybe_unused]] const std::size_t wide_tiles,
                 fill(DType::mxfp4, kExpertHidden, memory_.subspan(i * expert, 2 * wide)));
      MYRIAD_TRY([[maybe_unused]] const std::size_t narrow_tiles,
                 fill(DType::mxfp4, kExpertInner, memory_.subspan(i * expert + 2 * wide, narrow)));
    }
    Activation x(Form::f32, 1, kExpertHidden);
    std::ranges::fill(x.values, 0.5F);
    if (!seal(kernels_, x, Form::i8)) return fail(Code::internal, "an activation is not finite");
    const ActivationSpec situ{ActivationKind::situ, 4, 25};
    std::vector<double> speeds, reader;
    for (int round = 0; round < kRounds; ++round) {
      auto start = Clock::now();
      for (std::size_t i = 0; i < count; ++i) {
        const std::byte* at = memory_.data() + i * expert;
        const MatrixView gate{MatrixRole::gate, DType::mxfp4, 1, kExpertInner, kExpertHidden, at},
            up{MatrixRole::up, DType::mxfp4, 1, kExpertInner, kExpertHidden, at + wide},
            down{MatrixRole::down, DType::mxfp4, 1, kExpertHidden, kExpertInner, at + 2 * wide};
        ProductBatch batch(kernels_, pool_, Profile::fast);
        const std::size_t inner_at = batch.add_glu(gate, up, situ, x);
        batch.run();
        Activation inner = batch.take(inner_at);
        if (!seal(kernels_, inner, Form::i8)) return fail(Code::internal, "a value inside the expert is not finite");
        const std::size_t out = batch.add(down, inner);
        batch.run();
        seen_ ^= static_cast<std::uint64_t>(batch.take(out).values.front() > 0);
      }
      speeds.push_back(static_cast<double>(count * expert) / seconds_since(start));
      start = Clock::now();
      read();
      reader.push_back(static_cast<double>(memory_.size()) / seconds_since(start));
    }
    return Rates{median(speeds), median(reader), 0};
  }

 private:
  void multiply(DType t, std::size_t tiles, std::size_t tokens) {
    const std::size_t groups = (k_ + kGroup - 1) / kGroup, ldy = tiles * kTileRows;
    y_.resize(std::max(y_.size(), ldy * tokens));
    if (is_quantized(t)) {
      const std::vector<std::int8_t> q(k_ * tokens, 3);
      const std::vector<float> scales(groups * tokens, 0.01F);
      std::vector<std::byte> laid_out(kernels_.laid_out_bytes(t, k_, tokens));
      kernels_.lay_out_i8(t, {q.data(), scales.data()}, k_, tokens, 0, groups, laid_out.data());
      pool_.parallel(tiles, 4, [&](std::size_t begin, std::size_t end) {
        kernels_.matmul_i8(t, memory_.data(), k_, begin, end, laid_out.data(), tokens, y_.data(), ldy);
      });
    } else {
      const std::vector<float> x(k_ * tokens, 0.01F);
      pool_.parallel(tiles, 4, [&](std::size_t begin, std::size_t end) {
        kernels_.matmul(t, memory_.data(), k_, begin, end, x.data(), k_, tokens, y_.data(), ldy);
      });
    }
  }
  void read() {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    std::atomic<std::uint64_t> sink = 0;
    pool_.parallel(memory_.size() / kPiece, 16, [&](std::size_t begin, std::size_t end) {
      sink.fetch_xor(read_words(memory_.subspan(begin * kPiece, (end - begin) * kPiece)), std::memory_order_relaxed);
    });
    seen_ ^= sink.load();
  }

  const Kernels& kernels_;
  ThreadPool& pool_;
  std::size_t k_;
  std::span<std::byte> memory_;
  std::vector<float> y_;
  std::uint64_t seen_ = 0;  // so that the reading is not for nothing
};

Status bench_kernels(const BenchKernelsOptions& o) {
  if (o.columns % 256 != 0)
    return fail(Code::invalid_argument, "matrices of {} columns: blocks of some types have 256; give a multiple",
                o.columns);
  constexpr std::uint64_t kLeast = std::uint64_t{64} << 20, kMost = std::uint64_t{64} << 30;
  if (o.bytes.value < kLeast || o.bytes.value > kMost)
    return fail(Code::invalid_argument, "{} of weights: expected {} to {}", human(o.bytes), human({kLeast}),
                human({kMost}));
  const bool experts = o.type.empty() || o.type == "experts";
  std::vector<DType> types;
  for (std::size_t i = 0; i < kDTypes; ++i) {
    const auto t = static_cast<DType>(i);
    if (!can_quantize(t) && t != DType::f32 && t != DType::bf16) continue;
    if (o.type.empty() || lower_case(o.type) == dtype_name(t)) types.push_back(t);
  }
  if (types.empty() && !experts)
    return fail(Code::invalid_argument, "'{}' is no type that can be measured; leave --type out to see all", o.type);
  MYRIAD_TRY(const Kernels* kernels, choose_kernels());
  ThreadPool pool(o.threads == 0 ? usable_cores() : o.threads);
  MYRIAD_TRY(AlignedBuffer memory,
             AlignedBuffer::allocate(o.bytes.value / (std::size_t{1} << 20) * (std::size_t{1} << 20),
                                     "weights to measure with"));
  std::memset(memory.data(), 1, memory.size());
  KernelBench bench(*kernels, pool, o.columns, memory.bytes());
  if (!o.json)
    print_out("{} kernels, {} thread{}, {} columns, {} of weights\n{:<8} {:>12} {:>12} {:>9} {:>18}\n", kernels->name,
              pool.threads(), pool.threads() == 1 ? "" : "s", o.columns, human({memory.size()}), "weights", "one token",
              "reader", "share", "512 tokens");
  for (const DType t : types) {
    MYRIAD_TRY(const Rates r, bench.run(t));
    if (o.json)
      print_out(
          "{{\"type\": \"{}\", \"kernels\": \"{}\", \"threads\": {}, \"gigabytes_per_second\": {:.3f}, "
          "\"reader_gigabytes_per_second\": {:.3f}, \"giga_operations_per_second\": {:.1f}}}\n",
          dtype_name(t), kernels->name, pool.threads(), r.bytes / 1e9, r.reader / 1e9, r.operations / 1e9);
    else
      print_out("{:<8} {:>7.2f} GB/s {:>7.2f} GB/s {:>7.0f} % {:>11.1f} Gop/s\n", dtype_name(t), r.bytes / 1e9,
                r.reader / 1e9, 100 * r.bytes / r.reader, r.operations / 1e9);
    flush_out();
  }
  if (!experts) return {};
  MYRIAD_TRY(const Rates r, bench.run_experts());
  if (o.json)
    fmt::print(
        "{{\"type\": \"experts\", \"kernels\": \"{}\", \"threads\": {}, \"gigabytes_per_second\": {:.3f}, "
        "\"reader_gigabytes_per_second\": {:.3f}}}\n",
        kernels->name, pool.threads(), r.bytes / 1e9, r.reader / 1e9);
  else
    fmt::print("{:<8} {:>7.2f} GB/s {:>7.2f} GB/s {:>7.0f} %  (Kimi K3's, {} x {} in MXFP4, all three products)\n",
               "experts", r.bytes / 1e9, r.reader / 1e9, 100 * r.bytes / r.reader, kExpertHidden, kExpertInner);
  return {};
}

}  // namespace

int bench_kernels_command(const BenchKernelsOptions& options) {
  const Status status = bench_kernels(options);
  return status ? kDone : report("bench kernels", status.error());
}

}  // namespace myriad::cli
