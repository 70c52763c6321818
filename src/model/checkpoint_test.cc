#include "model/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/bytes.h"
#include "model/hf_weights.h"
#include "model/shard_files.h"
#include "quant/blocks.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kSource = MYRIAD_SOURCE_DIR;

// A directory that goes away with the test.
class Directory {
 public:
  Directory() {
    std::string pattern = (fs::temp_directory_path() / "myriad-checkpoint-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() { fs::remove_all(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Tensors in memory, to be changed and written as a checkpoint.
struct Stored {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Stored>;

void write_file(const fs::path& path, const Tensors& tensors) {
  Json header = Json::object();
  std::string data;
  for (const auto& [name, t] : tensors) {
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  const std::string text = header.dump();
  std::string length(8, '\0');
  store_le(length.data(), std::uint64_t{text.size()});
  spill(path, length + text + data);
}

struct Fixture {
  Json config;
  Tensors tensors;

  explicit Fixture(const std::string& directory = "tests/data/random-k3") {
    const fs::path dir = kSource / directory;
    config = Json::parse(slurp(dir / "config.json"));
    for (const char* file : {"model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"}) {
      const std::string bytes = slurp(dir / file);
      const auto length = load_le<std::uint64_t>(bytes.data());
      const Json header = Json::parse(bytes.substr(8, length));
      for (const auto& [name, t] : header.items()) {
        const std::uint64_t begin = t["data_offsets"][0];
        const std::uint64_t end = t["data_offsets"][1];
        tensors[name] = {t["dtype"], t["shape"], bytes.substr(8 + length + begin, end - begin)};
      }
    }
  }
  Stored& at(const std::string& name) { return tensors.at("language_model." + name); }
  // One file, no index.
  void write(const Directory& to) const {
    spill(to.path() / "config.json", config.dump());
    write_file(to.path() / "model.safetensors", tensors);
  }
};

void expect_error(const Error& error, Code code, std::initializer_list<std::string> words) {
  EXPECT_EQ(error.code, code) << error.message;
  for (const std::string& word : words)
    EXPECT_NE(error.message.find(word), std::string::npos) << error.message << "\nexpected: " << word;
}

void expect_open_fails(const Directory& dir, Code code, std::initializer_list<std::string> words) {
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_FALSE(checkpoint);
  expect_error(checkpoint.error(), code, words);
}

TEST(Checkpoint, OpensAndIsComplete) {
  struct Case {
    const char* directory;
    std::size_t tensors;
    std::string_view prefix;
  };
  for (const auto& [directory, tensors, prefix] : {Case{"tests/data/random-k3", 618, "language_model."},
                                                   {"tests/data/random-kimi-linear", 233, ""},
                                                   {"models/tiny-k3", 512, "language_model."}}) {
    const auto checkpoint = Checkpoint::open(kSource / directory);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->tensors().size(), tensors) << directory;
    EXPECT_EQ(checkpoint->prefix(), prefix);
    EXPECT_EQ(checkpoint->shards(), 2U);
    EXPECT_EQ(checkpoint->config_json(), slurp(kSource / directory / "config.json"));
    const Status complete = checkpoint->verify_complete();
    EXPECT_TRUE(complete) << complete.error().message;
    EXPECT_TRUE(std::is_sorted(checkpoint->tensors().begin(), checkpoint->tensors().end(),
                               [](const auto& a, const auto& b) { return a.name < b.name; }));
    for (const TensorInfo& t : checkpoint->tensors()) EXPECT_EQ(checkpoint->find(t.name), &t);
    EXPECT_EQ(checkpoint->find("model.layers.0.self_attn.q_proj"), nullptr);
    EXPECT_EQ(checkpoint->find(""), nullptr);
    EXPECT_EQ(checkpoint->find("zzz"), nullptr);
  }
}

TEST(Checkpoint, EveryTensorReadsAsStored) {
  for (const char* directory : {"tests/data/random-k3", "tests/data/random-kimi-linear"}) {
    const Fixture fixture(directory);
    auto opened = Checkpoint::open(kSource / directory);
    ASSERT_TRUE(opened);
    const Checkpoint checkpoint = std::move(*opened);  // views survive the move
    ASSERT_EQ(checkpoint.tensors().size(), fixture.tensors.size());
    for (const TensorInfo& t : checkpoint.tensors()) {
      const Stored& stored = fixture.tensors.at(std::string(t.stored_name));
      std::vector<std::byte> bytes(t.bytes);
      ASSERT_TRUE(checkpoint.read(t, 0, bytes));
      ASSERT_EQ(std::memcmp(bytes.data(), stored.bytes.data(), bytes.size()), 0) << t.name;
      EXPECT_TRUE(std::equal(t.shape.begin(), t.shape.end(), stored.shape.begin(), stored.shape.end()));
      EXPECT_EQ(storage_type_name(t.type), stored.dtype);
      if (t.bytes > 3) {
        std::array<std::byte, 2> part{};
        ASSERT_TRUE(checkpoint.read(t, t.bytes - 2, part));
        EXPECT_EQ(std::memcmp(part.data(), stored.bytes.data() + t.bytes - 2, 2), 0);
      }
      EXPECT_FALSE(checkpoint.read(t, 1, bytes));
      EXPECT_FALSE(checkpoint.read(t, ~std::uint64_t{0}, bytes));
    }
  }
}

TEST(Checkpoint, QuantisedMatrices) {
  EXPECT_EQ(type_of_suffix("a.weight_q4_0"), DType::q4_0);
  EXPECT_EQ(type_of_suffix("a.weight_i8_row"), DType::i8_row);
  for (const char* name : {"a.weight", "a.weight_packed", "a.weight_scale", "a.weight_bf16", "a.weight_", "q4_0", ""})
    EXPECT_FALSE(type_of_suffix(name)) << name;

  const std::string stem = "model.layers.0.mlp.up_proj";  // [96, 64]
  const auto with = [&](const std::string& suffix, Stored stored) {
    Fixture f;
    f.tensors.erase("language_model." + stem + ".weight");
    f.tensors["language_model." + stem + suffix] = std::move(stored);
    return f;
  };
  const auto zeros = [](std::size_t n) { return std::string(n, '\0'); };
  {
    std::string bytes = zeros(96 * 36);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 61);  // finite scales
    const Directory dir;
    with(".weight_q4_0", {"U8", {96, 36}, bytes}).write(dir);
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->verify_complete());
    const MatrixSource m = checkpoint->matrix(stem, 96, 64).value();
    EXPECT_EQ(m.dtype(), DType::q4_0);
    EXPECT_EQ(m.stored_bytes(), bytes.size());
    std::vector<std::byte> rows(2 * 36);
    ASSERT_TRUE(m.read_rows(94, 96, rows));
    EXPECT_EQ(std::memcmp(rows.data(), bytes.data() + 94 * 36, rows.size()), 0);
    std::vector<float> widened(2 * 64), expected(2 * 64);
    ASSERT_TRUE(m.read_rows_widened(94, 96, widened));
    for (std::size_t r = 0; r < 2; ++r) dequantize(DType::q4_0, rows.data() + r * 36, 64, expected.data() + r * 64);
    EXPECT_EQ(widened, expected);
    EXPECT_FALSE(m.read_rows(95, 97, rows));
  }
  const struct {
    std::string suffix;
    Stored stored;
    Code code;
    std::initializer_list<std::string> words;
  } kBad[] = {
      {".weight_q4_0",
       {"U8", {96, 35}, zeros(96 * 35)},
       Code::corrupt,
       {stem + ".weight_q4_0", "[96, 35]", "[96, 36]"}},
      {".weight_q4_0", {"U8", {95, 36}, zeros(95 * 36)}, Code::corrupt, {"[95, 36]", "[96, 36]"}},
      {".weight_q4_0", {"I8", {96, 36}, zeros(96 * 36)}, Code::unsupported, {stem + ".weight_q4_0", "I8", "U8"}},
      {".weight_q6_k", {"U8", {96, 36}, zeros(96 * 36)}, Code::corrupt, {"q6_k", "64", "256"}},
      {".weight_q9_9", {"U8", {96, 36}, zeros(96 * 36)}, Code::not_found, {stem + ".weight"}},
      {".weight_mxfp4", {"U8", {96, 34}, zeros(96 * 34)}, Code::not_found, {stem + ".weight"}},
  };
  for (const auto& bad : kBad) {
    const Directory dir;
    with(bad.suffix, bad.stored).write(dir);
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto matrix = checkpoint->matrix(stem, 96, 64);
    ASSERT_FALSE(matrix) << bad.suffix;
    expect_error(matrix.error(), bad.code, bad.words);
    EXPECT_FALSE(checkpoint->verify_complete());
  }
}

// The bytes of the released model that spec §2.3 quotes.
TEST(Checkpoint, MatrixSources) {
  Fixture f;
  Stored& packed = f.at("model.layers.1.block_sparse_moe.experts.0.w1.weight_packed");
  Stored& scale = f.at("model.layers.1.block_sparse_moe.experts.0.w1.weight_scale");
  packed.bytes.replace(16, 4, "\x16\xb9\xce\x23");  // row 1 of [32, 16]
  scale.bytes[1] = 121;
  scale.bytes[2] = 0;
  Stored& up = f.at("model.layers.0.mlp.up_proj.weight");  // [96, 64] BF16; make it F32
  std::string wide;
  for (std::size_t i = 0; i < up.bytes.size(); i += 2) wide += std::string(2, '\0') + up.bytes.substr(i, 2);
  up = {"F32", up.shape, wide};
  const Directory dir;
  f.write(dir);
  const auto original = Checkpoint::open(kSource / "tests/data/random-k3");
  ASSERT_TRUE(original);
  MatrixSource expert, plain, floats;
  {
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    expert = checkpoint->matrix("model.layers.1.block_sparse_moe.experts.0.w1", 32, 32).value();
    plain = checkpoint->matrix("model.layers.0.mlp.down_proj", 64, 96).value();
    floats = checkpoint->matrix("model.layers.0.mlp.up_proj", 96, 64).value();
  }  // sources outlive their checkpoint
  EXPECT_EQ(expert.dtype(), DType::mxfp4);
  EXPECT_EQ(expert.stored_bytes(), 32U * 17);
  std::vector<std::uint8_t> codes(2 * 16), scales(2);
  ASSERT_TRUE(expert.read_rows_mxfp4(1, 3, codes, scales));
  EXPECT_EQ(std::memcmp(codes.data(), packed.bytes.data() + 16, 32), 0);
  EXPECT_EQ(scales[0], 121);
  std::vector<float> row(64);
  ASSERT_TRUE(expert.read_rows_widened(1, 3, row));
  const std::array<float, 8> want = {0.0625F,  0.0078125F, -0.0078125F, -0.0234375F,
                                     -0.0625F, -0.03125F,  0.0234375F,  0.015625F};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(row[i], want[i]) << i;
  EXPECT_EQ(row[32], kE2M1[static_cast<unsigned char>(packed.bytes[32]) & 15U] * std::ldexp(1.0F, -127));

  EXPECT_EQ(plain.dtype(), DType::bf16);
  std::vector<std::uint16_t> words(3 * 96);
  ASSERT_TRUE(plain.read_rows_bf16(61, 64, words));
  const Stored& down = f.at("model.layers.0.mlp.down_proj.weight");
  for (std::size_t i = 0; i < words.size(); ++i)
    ASSERT_EQ(words[i], load_le<std::uint16_t>(down.bytes.data() + (61 * 96 + i) * 2));
  std::vector<float> values(3 * 96);
  ASSERT_TRUE(plain.read_rows_widened(61, 64, values));
  for (std::size_t i = 0; i < words.size(); ++i) ASSERT_EQ(values[i], bf16_to_f32(words[i]));

  EXPECT_EQ(floats.dtype(), DType::f32);
  std::vector<float> as_floats(96 * 64), as_bf16(96 * 64);
  ASSERT_TRUE(floats.read_rows_f32(0, 96, as_floats));
  ASSERT_TRUE(original->matrix("model.layers.0.mlp.up_proj", 96, 64)->read_rows_widened(0, 96, as_bf16));
  EXPECT_EQ(as_floats, as_bf16);

  // Misuse is refused, not read past the end.
  EXPECT_FALSE(plain.read_rows_bf16(61, 65, std::span(words)));
  EXPECT_FALSE(plain.read_rows_bf16(2, 1, std::span(words).first(0)));
  EXPECT_FALSE(plain.read_rows_bf16(0, 2, words));
  EXPECT_FALSE(plain.read_rows_f32(0, 3, values));
  EXPECT_FALSE(expert.read_rows_mxfp4(0, 2, codes, std::span(scales).first(1)));
  EXPECT_FALSE(expert.read_rows_widened(31, 33, row));
}

TEST(Checkpoint, NanScaleNamesTheRow) {
  Fixture f;
  f.at("model.layers.2.block_sparse_moe.experts.7.w2.weight_scale").bytes[5] = '\xff';
  const Directory dir;
  f.write(dir);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint);
  const auto m = checkpoint->matrix("model.layers.2.block_sparse_moe.experts.7.w2", 32, 32);
  ASSERT_TRUE(m) << m.error().message;
  std::vector<std::uint8_t> codes(32 * 16), scales(32);
  EXPECT_TRUE(m->read_rows_mxfp4(0, 5, std::span(codes).first(5 * 16), std::span(scales).first(5)));
  const Status status = m->read_rows_mxfp4(3, 32, std::span(codes).first(29 * 16), std::span(scales).first(29));
  ASSERT_FALSE(status);
  expect_error(status.error(), Code::corrupt, {"experts.7.w2.weight_scale", "model.safetensors", "row 5", "255"});
}

TEST(Checkpoint, SmallTensorsInTheirOtherForms) {
  Fixture f;
  const auto before = Checkpoint::open(kSource / "tests/data/random-k3");
  ASSERT_TRUE(before);
  const std::vector<float> conv = before->read_conv(1, 'k').value();
  const std::vector<float> decay = before->read_a_log(1).value();
  ASSERT_EQ(decay.size(), 4U);
  // [P, taps] instead of [P, 1, taps]; A_log [1, 1, N, 1] without padding; o_norm in BF16.
  f.at("model.layers.1.self_attn.k_conv1d.weight").shape = {64, 4};
  Stored& a = f.at("model.layers.1.self_attn.A_log");
  a = {"F32", {1, 1, 4, 1}, a.bytes.substr(0, 16)};
  f.at("model.layers.1.self_attn.o_norm.weight") = {"BF16", {16}, std::string(32, '\x3f')};
  const Directory dir;
  f.write(dir);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_TRUE(checkpoint->verify_complete());
  EXPECT_EQ(checkpoint->read_conv(1, 'k').value(), conv);
  EXPECT_EQ(checkpoint->read_a_log(1).value(), decay);
  EXPECT_EQ(checkpoint->read_vector("model.layers.1.self_attn.o_norm.weight", 16).value(),
            std::vector<float>(16, bf16_to_f32(0x3f3f)));
  EXPECT_EQ(checkpoint->read_vector("model.output_attn_res_proj.weight", 64)->size(), 64U);  // [1, 64]
  const auto codes = checkpoint->find("model.layers.1.block_sparse_moe.experts.0.w1.weight_packed");
  std::vector<float> one(1);
  EXPECT_EQ(checkpoint->read_f32(*codes, 0, one).error().code, Code::unsupported);
}

TEST(Checkpoint, WhatIsMissingOrWrongIsNamed) {
  struct Case {
    std::string tensor;
    std::function<void(Tensors&, const std::string&)> change;
    Code code;
    std::vector<std::string> words;
  };
  const auto erase = [](Tensors& t, const std::string& name) { t.erase(name); };
  const auto reshape = [](std::vector<std::uint64_t> shape) {
    return [shape](Tensors& t, const std::string& name) { t.at(name).shape = shape; };
  };
  const auto retype = [](std::string type) {
    return [type](Tensors& t, const std::string& name) { t.at(name).dtype = type; };
  };
  const std::string w = "model.layers.3.block_sparse_moe.experts.5.w3.weight";
  const std::vector<Case> cases = {
      {"model.norm.weight", erase, Code::not_found, {"no file has", "[64]"}},
      {"model.layers.8.self_attn.kv_b_proj.weight", erase, Code::not_found, {"no file has", "[128, 32]"}},
      {w + "_packed", erase, Code::not_found, {"no file has", "[32, 32]"}},
      {w + "_scale", erase, Code::not_found, {"no file has", "U8 or F8_E8M0 [32, 1]"}},
      {w + "_scale", reshape({1, 32}), Code::corrupt, {"model.safetensors", "[1, 32]", "expected", "[32, 1]"}},
      {"lm_head.weight", reshape({64, 256}), Code::corrupt, {"model.safetensors", "BF16 [64, 256]", "[256, 64]"}},
      {"lm_head.weight", retype("F16"), Code::internal, {}},  // as good as BF16
      {"lm_head.weight", retype("I16"), Code::unsupported, {"I16", "BF16 or F16 or F32"}},
      {"model.norm.weight", retype("I16"), Code::unsupported, {"I16", "BF16, F16 or F32"}},
      {"model.layers.0.self_attn.A_log", reshape({2, 64}), Code::internal, {}},  // flattened: still fine
      {"model.layers.0.self_attn.dt_bias", reshape({8, 8}), Code::corrupt, {"[8, 8]", "[64]"}},
      {"model.layers.0.self_attn.q_conv1d.weight", reshape({64, 4, 1}), Code::corrupt, {"[64, 4, 1]", "[64, 1, 4]"}},
      {"model.layers.5.self_attn.g_proj.weight", erase, Code::not_found, {"[64, 64]"}},
      {"model.layers.0.mlp.down_proj.weight", erase, Code::not_found, {"[64, 96]"}},
      {"model.layers.0.mlp_res_proj.weight", erase, Code::not_found, {"[64]"}},
      {"model.layers.4.block_sparse_moe.gate.e_score_correction_bias", erase, Code::not_found, {"[8]"}},
  };
  for (const Case& c : cases) {
    Fixture f;
    c.change(f.tensors, "language_model." + c.tensor);
    const Directory dir;
    f.write(dir);
    const auto checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const Status status = checkpoint->verify_complete();
    if (c.code == Code::internal) {
      EXPECT_TRUE(status);
      continue;
    }
    ASSERT_FALSE(status) << c.tensor;
    EXPECT_EQ(status.error().code, c.code) << status.error().message;
    EXPECT_NE(status.error().message.find(c.tensor.substr(0, c.tensor.find("_packed"))), std::string::npos)
        << status.error().message;
    for (const std::string& word : c.words)
      EXPECT_NE(status.error().message.find(word), std::string::npos) << status.error().message;
  }
}

TEST(Checkpoint, PrefixMayBeAbsent) {
  Fixture f;
  Tensors bare;
  for (const auto& [name, t] : f.tensors) bare[name.substr(std::strlen("language_model."))] = t;
  f.tensors = bare;
  const Directory dir;
  f.write(dir);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->prefix(), "");
  EXPECT_TRUE(checkpoint->verify_complete());
  // Both at once are two answers to one question.
  f.tensors["language_model.model.norm.weight"] = f.tensors["model.norm.weight"];
  f.write(dir);
  expect_open_fails(dir, Code::corrupt, {"model.norm.weight", "expected once"});
}

TEST(Checkpoint, WhichFilesBelongToIt) {
  const Fixture f;
  Tensors first, second;
  Json map = Json::object();
  for (const auto& [name, t] : f.tensors) (first.size() < 300 ? first : second)[name] = t;
  const Directory dir;
  expect_open_fails(dir, Code::not_found, {"config.json"});
  spill(dir.path() / "config.json", f.config.dump());
  expect_open_fails(dir, Code::not_found, {"no *.safetensors"});
  write_file(dir.path() / "model-00002-of-000002.safetensors", second);
  expect_open_fails(dir, Code::not_found, {"model-00001-of-000002.safetensors is missing", "1 of 2"});
  write_file(dir.path() / "model-00001-of-000002.safetensors", first);
  EXPECT_TRUE(Checkpoint::open(dir.path()).value().verify_complete());
  // A five-digit total and names of any other kind.
  for (const auto& [a, b] : {std::pair{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
                             std::pair{"layers.safetensors", "rest.safetensors"},
                             std::pair{"model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"}}) {
    const Directory other;
    spill(other.path() / "config.json", f.config.dump());
    fs::copy(dir.path() / "model-00001-of-000002.safetensors", other.path() / a);
    fs::copy(dir.path() / "model-00002-of-000002.safetensors", other.path() / b);
    const auto checkpoint = Checkpoint::open(other.path());
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    EXPECT_TRUE(checkpoint->verify_complete());
  }
  // A stray file counts without an index, and not with one.
  write_file(dir.path() / "stray.safetensors", {*first.begin()});
  expect_open_fails(dir, Code::corrupt, {first.begin()->first, "stray.safetensors", "expected once"});
  for (const auto& [name, t] : first) map[name] = "model-00001-of-000002.safetensors";
  for (const auto& [name, t] : second) map[name] = "model-00002-of-000002.safetensors";
  const fs::path index = dir.path() / "model.safetensors.index.json";
  const auto write_index = [&](const Json& weight_map) {
    spill(index,
          Json{{"metadata", {{"total_size", 1}, {"more", {1, Json::object()}}}}, {"weight_map", weight_map}}.dump());
  };
  write_index(map);
  EXPECT_TRUE(Checkpoint::open(dir.path()).value().verify_complete());

  const std::string name = second.begin()->first;
  const auto with = [&](const std::string& tensor, const Json& file) {
    Json changed = map;
    changed[tensor] = file;
    write_index(changed);
  };
  with(name, "model-00001-of-000002.safetensors");
  expect_open_fails(dir, Code::corrupt, {"index.json", name, "but it is in model-00002-of-000002.safetensors"});
  with("language_model.model.ghost", "model-00001-of-000002.safetensors");
  expect_open_fails(dir, Code::corrupt, {"index.json", "ghost", "no header has it"});
  with(name, "model-00003-of-000002.safetensors");
  expect_open_fails(dir, Code::not_found, {"model-00003-of-000002.safetensors", "missing", "2 of 3"});
  with(name, "../../etc/passwd.safetensors");
  expect_open_fails(dir, Code::corrupt, {"index.json", name, "beside the index"});
  with(name, "config.json");
  expect_open_fails(dir, Code::corrupt, {"index.json", name});
  with(name, 5);
  expect_open_fails(dir, Code::corrupt, {"index.json", "weight_map"});
  with(name, Json::array({"a"}));
  expect_open_fails(dir, Code::corrupt, {"index.json", "weight_map"});
  write_index({"a"});
  expect_open_fails(dir, Code::corrupt, {"index.json"});
  for (const std::string& text : {std::string(), std::string("{}"), std::string("[]"),
                                  std::string("{\"weight_map\":{\"a\":"), "{\"x\":" + std::string(100000, '[')}) {
    spill(index, text);
    EXPECT_FALSE(Checkpoint::open(dir.path())) << text.substr(0, 30);
  }
}

TEST(Checkpoint, DamagedFiles) {
  const Fixture f;
  const Directory dir;
  f.write(dir);
  const fs::path file = dir.path() / "model.safetensors";
  const std::string good = slurp(file);
  const auto header = load_le<std::uint64_t>(good.data());
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{1000}, std::size_t{header + 7}}) {
    spill(file, good.substr(0, n));
    expect_open_fails(dir, Code::corrupt, {"model.safetensors"});
  }
  for (const std::size_t n : {std::size_t{header + 8}, good.size() - 1}) {
    spill(file, good.substr(0, n));
    expect_open_fails(dir, Code::corrupt, {"model.safetensors", "cut short"});
  }
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{good.size()}}) {
    std::string bad = good;
    store_le(bad.data(), length);
    spill(file, bad);
    expect_open_fails(dir, Code::corrupt, {"model.safetensors", std::to_string(length)});
  }
  // Cut after it was opened: the read says so.
  spill(file, good);
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint);
  fs::resize_file(file, header + 8 + 100);
  std::vector<std::byte> bytes(checkpoint->tensors().back().bytes);
  const Status status = checkpoint->read(checkpoint->tensors().back(), 0, bytes);
  ASSERT_FALSE(status);
  expect_error(status.error(), Code::corrupt,
               {std::string(checkpoint->tensors().back().stored_name), "model.safetensors", "cut short"});
  // Nothing waits for a writer that never comes.
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_open_fails(dir, Code::io, {"not a regular file"});
  EXPECT_EQ(Checkpoint::open(file).error().code, Code::invalid_argument);
  EXPECT_EQ(Checkpoint::open(dir.path() / "nowhere").error().code, Code::not_found);
}

TEST(Checkpoint, OnlyAnnouncedPredictionLayersMayBeLeftUnused) {
  Fixture f;
  const Directory dir;
  f.write(dir);
  EXPECT_TRUE(HfWeights::open(dir.path()));
  f.tensors["vision_tower.encoder.final_layernorm.weight"] = f.at("model.norm.weight");
  f.tensors["mm_projector.post_norm.weight"] = f.at("model.norm.weight");
  f.write(dir);
  EXPECT_TRUE(HfWeights::open(dir.path()));
  const auto expect_unused = [&](const char* name) {
    const auto weights = HfWeights::open(dir.path());
    ASSERT_FALSE(weights) << name;
    expect_error(weights.error(), Code::unsupported, {name, "model.safetensors", "num_hidden_layers"});
  };
  f.tensors["language_model.model.layers.9.eh_proj.weight"] = f.at("model.norm.weight");
  f.write(dir);
  expect_unused("layers.9.eh_proj");
  f.config["text_config"]["num_nextn_predict_layers"] = 1;
  f.write(dir);
  EXPECT_TRUE(HfWeights::open(dir.path()));
  f.tensors["language_model.model.layers.10.eh_proj.weight"] = f.at("model.norm.weight");
  f.write(dir);
  expect_unused("layers.10.eh_proj");
  f.tensors.erase("language_model.model.layers.10.eh_proj.weight");
  f.tensors["language_model.model.layers.0.self_attn.q_proj.bias"] = f.at("model.norm.weight");
  f.write(dir);
  expect_unused("layers.0.self_attn.q_proj.bias");
}

TEST(Checkpoint, HandlesAreBoundedAndReadsMayRunTogether) {
  const Directory dir;
  std::vector<std::string> names;
  constexpr std::size_t kFiles = kMaxOpenShards + 40;
  for (std::size_t i = 0; i < kFiles; ++i) {
    names.push_back(fmt::format("{:03}.bin", i));
    spill(dir.path() / names.back(), std::string(4096, static_cast<char>(i)));
  }
  const ShardFiles files(dir.path(), names);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::array<std::byte, 64> buffer{};
      for (std::size_t i = 0; i < 2 * kFiles; ++i) {
        const auto shard = static_cast<std::uint32_t>(i * (t + 1) % kFiles);
        const Status status = files.read(shard, 4096 - 64, buffer);
        if (!status || buffer.front() != static_cast<std::byte>(shard) ||
            buffer.back() != static_cast<std::byte>(shard))
          ++wrong;
        if (files.open_handles() > kMaxOpenShards) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(files.open_handles(), kMaxOpenShards);
}

}  // namespace
}  // namespace myriad
