#include "model/gguf_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "base/random.h"
#include "model/gguf.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class GgufWriterTest : public ::testing::Test {
 protected:
  GgufWriterTest() {
    std::string pattern = (fs::temp_directory_path() / "myriad-gguf-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    directory_ = pattern;
    path_ = directory_ / "model.gguf";
  }
  ~GgufWriterTest() override { fs::remove_all(directory_); }
  [[nodiscard]] fs::path partial() const { return path_.string() + ".partial"; }

  fs::path directory_;
  fs::path path_;
};

std::vector<std::byte> random_bytes(CounterRandom& random, std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::byte& b : out) b = static_cast<std::byte>(random.next());
  return out;
}

std::string random_text(CounterRandom& random, std::size_t most) {
  std::string out(random.below(most + 1), '\0');
  for (char& c : out) c = static_cast<char>(random.next());
  return out;
}

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class T>
void set_random(GgufWriter& out, const std::string& key, CounterRandom& random, std::vector<double>& expected) {
  const auto draw = [&]() -> T {
    if constexpr (std::floating_point<T>) {
      return static_cast<T>(random.symmetric());
    } else {
      return static_cast<T>(random.next() >> 12);  // at most 52 bits: a double holds it
    }
  };
  if (random.below(2) == 0) {
    const T value = draw();
    expected = {static_cast<double>(value)};
    ASSERT_TRUE(out.set(key, value));
  } else {
    std::vector<T> values(random.below(20));
    for (T& v : values) v = draw();
    expected.assign(values.begin(), values.end());
    ASSERT_TRUE(out.set_array<T>(key, values));
  }
}

TEST_F(GgufWriterTest, RandomRoundTrips) {
  constexpr std::uint64_t kSeed = 7;
  std::vector<GgmlType> types;
  for (const GgmlTypeInfo& info : ggml_types())
    if (info.readable) types.push_back(info.type);
  CounterRandom random(kSeed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << " round " << round);
    GgufWriter out(path_, {.alignment = std::uint64_t{1} << random.below(10), .resumable = false});
    std::map<std::string, std::vector<double>> numbers;
    std::map<std::string, std::vector<std::string>> texts;
    for (std::uint64_t i = random.below(30); i > 0; --i) {
      const std::string key = "key." + std::to_string(i);
      switch (random.below(12)) {
        case 0:
          set_random<std::uint8_t>(out, key, random, numbers[key]);
          break;
        case 1:
          set_random<std::int8_t>(out, key, random, numbers[key]);
          break;
        case 2:
          set_random<std::uint16_t>(out, key, random, numbers[key]);
          break;
        case 3:
          set_random<std::int16_t>(out, key, random, numbers[key]);
          break;
        case 4:
          set_random<std::uint32_t>(out, key, random, numbers[key]);
          break;
        case 5:
          set_random<std::int32_t>(out, key, random, numbers[key]);
          break;
        case 6:
          set_random<std::uint64_t>(out, key, random, numbers[key]);
          break;
        case 7:
          set_random<std::int64_t>(out, key, random, numbers[key]);
          break;
        case 8:
          set_random<float>(out, key, random, numbers[key]);
          break;
        case 9:
          set_random<double>(out, key, random, numbers[key]);
          break;
        case 10:
          texts[key] = {random_text(random, 100)};
          ASSERT_TRUE(out.set(key, texts[key][0]));
          break;
        default: {
          for (std::uint64_t n = random.below(30); n > 0; --n) texts[key].push_back(random_text(random, 9));
          const std::vector<std::string_view> views(texts[key].begin(), texts[key].end());
          ASSERT_TRUE(out.set_strings(key, views));
        }
      }
    }
    struct Stored {
      GgmlType type;
      std::vector<std::uint64_t> dims;
      std::vector<std::byte> bytes;
    };
    std::map<std::string, Stored> tensors;
    std::vector<std::string> order;
    for (std::uint64_t i = random.below(12); i > 0; --i) {
      Stored t{types[random.below(types.size())], {}, {}};
      t.dims.push_back(ggml_type_info(t.type)->block_values * (1 + random.below(3)));
      for (std::uint64_t n = random.below(4); n > 0; --n) t.dims.push_back(1 + random.below(4));
      t.bytes = random_bytes(random, ggml_tensor_bytes(t.type, t.dims).value());
      order.push_back("blk." + std::to_string(random.next() % 1000) + "." + std::to_string(i));
      ASSERT_TRUE(out.declare(order.back(), t.type, t.dims));
      tensors[order.back()] = std::move(t);
    }
    const std::uint64_t expected_bytes = out.file_bytes();
    ASSERT_EQ(out.begin().value(), 0U);
    for (const std::string& name : order) {
      for (std::span<const std::byte> left = tensors[name].bytes; !left.empty();) {
        const std::size_t n = 1 + random.below(left.size());
        ASSERT_TRUE(out.append(name, left.first(n)));
        left = left.subspan(n);
      }
    }
    EXPECT_FALSE(fs::exists(path_) && round == 0);
    const Status finished = out.finish();
    ASSERT_TRUE(finished) << finished.error().message;
    EXPECT_FALSE(fs::exists(partial()));
    EXPECT_EQ(fs::file_size(path_), expected_bytes);

    const auto file = GgufFile::open(path_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->version(), 3U);
    EXPECT_EQ(file->parts(), 1U);
    const GgufMetadata& m = file->metadata();
    std::size_t alignment_key = m.has(kGgufAlignmentKey) ? 1 : 0;
    EXPECT_EQ(m.size(), numbers.size() + texts.size() + alignment_key);
    for (const auto& [key, expected] : numbers) {
      const auto all = m.get_per_layer<double>(key, expected.size());
      ASSERT_TRUE(all) << all.error().message;
      EXPECT_EQ(**all, expected) << key;
    }
    for (const auto& [key, expected] : texts) {
      if (const auto one = m.get<std::string_view>(key); one) {
        EXPECT_EQ(**one, expected[0]) << key;
        continue;
      }
      const auto strings = m.get_strings(key);
      ASSERT_TRUE(strings) << strings.error().message;
      ASSERT_EQ((*strings)->size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ((**strings)[i], expected[i]) << key;
    }
    ASSERT_EQ(file->tensors().size(), tensors.size());
    for (const auto& [name, expected] : tensors) {
      const auto tensor = file->require(name);
      ASSERT_TRUE(tensor) << tensor.error().message;
      EXPECT_EQ((*tensor)->type, expected.type);
      EXPECT_EQ(std::vector((*tensor)->dims().begin(), (*tensor)->dims().end()), expected.dims);
      ASSERT_EQ((*tensor)->bytes, expected.bytes.size());
      const std::size_t from = random.below(expected.bytes.size());
      std::vector<std::byte> got(random.below(expected.bytes.size() - from + 1));
      ASSERT_TRUE(file->read(**tensor, from, got));
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.bytes.begin() + static_cast<std::ptrdiff_t>(from)));
    }
  }
}

TEST_F(GgufWriterTest, WrongUseIsRefused) {
  const std::uint64_t dims[] = {32, 2};
  const std::uint64_t none[] = {32, 0};
  const std::uint64_t odd[] = {33};
  const std::uint64_t five[] = {1, 1, 1, 1, 1};
  const std::vector<std::byte> bytes(68);
  const auto refused = [](const auto& result, std::string_view word) {
    ASSERT_FALSE(result.has_value()) << word;
    EXPECT_EQ(result.error().code, Code::invalid_argument);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find("model.gguf"), std::string::npos) << result.error().message;
  };
  {
    GgufWriter out(path_, {});
    refused(out.append("t", bytes), "before the header");
    refused(out.finish(), "before the header");
    ASSERT_TRUE(out.set("a", std::uint32_t{1}));
    refused(out.set("a", "text"), "key a is set twice");
    refused(out.set("", true), "0 bytes");
    refused(out.set("a\n", true), "a\\x0a");
    refused(out.set("general.alignment", std::uint32_t{32}), "by the writer");
    refused(out.declare("t", GgmlType::q8_0, odd), "whole blocks");
    refused(out.declare("t", GgmlType::q8_0, none), "Q8_0 [32, 0]");
    refused(out.declare("t", GgmlType::f32, five), "1 to 4 dimensions");
    refused(out.declare("t", GgmlType::f32, {}), "1 to 4 dimensions");
    refused(out.declare("t", static_cast<GgmlType>(77), dims), "type 77");
    refused(out.declare(std::string(64, 't'), GgmlType::f32, dims), "64 bytes");
    ASSERT_TRUE(out.declare("t", GgmlType::q8_0, dims));
    ASSERT_TRUE(out.declare("u", GgmlType::q8_0, dims));
    refused(out.declare("t", GgmlType::q8_0, dims), "tensor t is declared twice");
    ASSERT_TRUE(out.begin());
    EXPECT_TRUE(fs::exists(partial()));
    refused(out.begin(), "twice");
    refused(out.set("b", true), "after the header");
    refused(out.declare("v", GgmlType::f32, dims), "after the header");
    refused(out.append("u", bytes), "data of tensor u, expected that of t");
    ASSERT_TRUE(out.append("t", std::span(bytes).first(60)));
    refused(out.append("t", std::span(bytes).first(9)), "9 bytes of tensor t at 60, expected 68 in all");
    refused(out.finish(), "tensor t has got 60 of 68 bytes");
    ASSERT_TRUE(out.append("t", std::span(bytes).first(8)));
    refused(out.finish(), "tensor u has got 0 of 68 bytes");
  }
  EXPECT_FALSE(fs::exists(partial()));  // gone with its writer
  EXPECT_FALSE(fs::exists(path_));
  GgufWriter odd_alignment(path_, {.alignment = 48, .resumable = false});
  refused(odd_alignment.declare("t", GgmlType::f32, dims), "an alignment of 48");
  GgufWriter nowhere(directory_ / "no" / "model.gguf", {});
  const auto begun = nowhere.begin();
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code, Code::io);
}

TEST_F(GgufWriterTest, CopiesMetadata) {
  {
    GgufWriter out(path_, {.alignment = 64, .resumable = false});
    ASSERT_TRUE(out.set("general.architecture", "llama"));
    ASSERT_TRUE(out.set("general.file_type", std::uint32_t{0}));
    ASSERT_TRUE(out.set("split.count", std::uint16_t{1}));
    ASSERT_TRUE(out.set("llama.nextn_predict_layers", std::uint32_t{1}));
    ASSERT_TRUE(out.set_bools("flags", {true, false, true}));
    const std::string_view words[] = {"one", "", "three"};
    ASSERT_TRUE(out.set_strings("words", words));
    ASSERT_TRUE(out.begin());
    ASSERT_TRUE(out.finish());
  }
  const auto first = GgufFile::open(path_);
  ASSERT_TRUE(first) << first.error().message;
  GgufWriter out(path_, {});
  ASSERT_TRUE(out.set("general.file_type", std::uint32_t{7}));
  ASSERT_TRUE(out.copy_metadata(first->metadata(), ".nextn_predict_layers"));
  ASSERT_TRUE(out.begin());
  ASSERT_TRUE(out.finish());
  const auto second = GgufFile::open(path_);
  ASSERT_TRUE(second) << second.error().message;
  const GgufMetadata& m = second->metadata();
  EXPECT_EQ(m.size(), 4U);
  EXPECT_EQ(second->architecture().value(), "llama");
  EXPECT_EQ(m.get<std::uint32_t>("general.file_type").value(), 7U);
  EXPECT_EQ(m.get_array<bool>("flags").value(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(m.value_text("words"), "[3] \"one\", \"\", \"three\"");
}

// However far an interrupted run came, the finished file is the same as in one go.
TEST_F(GgufWriterTest, Resumes) {
  CounterRandom random(3);
  const std::uint64_t dims[] = {32, 3};
  std::vector<std::vector<std::byte>> data;
  for (int i = 0; i < 4; ++i) data.push_back(random_bytes(random, 102));
  const auto name = [](std::size_t i) { return "t" + std::to_string(i); };
  const auto prepare = [&](GgufWriter& out, std::string_view text) {
    ASSERT_TRUE(out.set("general.name", text));
    for (std::size_t i = 0; i < data.size(); ++i) ASSERT_TRUE(out.declare(name(i), GgmlType::q8_0, dims));
  };
  const auto finish = [&](std::string_view text) {
    GgufWriter out(path_, {.resumable = true});
    prepare(out, text);
    const std::size_t done = out.begin().value();
    for (std::size_t i = done; i < data.size(); ++i) EXPECT_TRUE(out.append(name(i), data[i]));
    EXPECT_TRUE(out.finish());
    return done;
  };
  EXPECT_EQ(finish("x"), 0U);
  const std::string whole = slurp(path_);
  const std::size_t begin = GgufFile::open(path_)->find("t0")->offset;
  for (std::size_t length = 0; length <= whole.size(); length += 13) {
    fs::remove(path_);
    std::ofstream(partial(), std::ios::binary) << whole.substr(0, length);
    const std::size_t expected = length < begin ? 0 : (length - begin) / 128;  // 102 bytes and padding each
    EXPECT_EQ(finish("x"), expected) << length;
    ASSERT_EQ(slurp(path_), whole) << length;
  }
  {
    GgufWriter out(path_, {.resumable = true});
    prepare(out, "x");
    ASSERT_EQ(out.begin().value(), 0U);
    ASSERT_TRUE(out.append("t0", data[0]));
    ASSERT_TRUE(out.append("t1", std::span(data[1]).first(50)));
    GgufWriter second(path_, {});
    prepare(second, "x");
    const auto begun = second.begin();
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code, Code::busy) << begun.error().message;
  }
  EXPECT_TRUE(fs::exists(partial()));
  EXPECT_EQ(finish("x"), 1U);
  EXPECT_EQ(slurp(path_), whole);
  // Another header: nothing of the old one is kept.
  std::ofstream(partial(), std::ios::binary) << whole;
  EXPECT_EQ(finish("y"), 0U);
  EXPECT_EQ(slurp(path_).size(), whole.size());
  EXPECT_EQ(GgufFile::open(path_)->metadata().value_text("general.name"), "\"y\"");
}

}  // namespace
}  // namespace myriad
