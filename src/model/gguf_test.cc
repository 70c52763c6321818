#include "model/gguf.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "base/bytes.h"
#include "model/gguf_writer.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFileTest() {
    std::string pattern = (fs::temp_directory_path() / "myriad-gguf-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    directory_ = pattern;
  }
  ~GgufFileTest() override { fs::remove_all(directory_); }

  void expect_refused(const std::string& file, Code code, std::string_view word) const {
    const auto opened = GgufFile::open(directory_ / file);
    ASSERT_FALSE(opened) << "expected: " << word;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    EXPECT_NE(opened.error().message.find(word), std::string::npos) << opened.error().message << "\nexpected: " << word;
    EXPECT_NE(opened.error().message.find(file), std::string::npos) << opened.error().message;
  }

  fs::path directory_;
};

// What a test writes: tensors of 16 f32 values, all equal to the number given.
struct Part {
  std::vector<std::pair<std::string, float>> tensors;
  std::optional<std::uint16_t> number;
  std::optional<std::uint16_t> count;
  std::optional<std::int32_t> total;
  std::string name = "model";
};

void write_part(const fs::path& path, const Part& part) {
  GgufWriter out(path, {});
  ASSERT_TRUE(out.set("general.name", part.name));
  if (part.number.value_or(0) == 0) {
    ASSERT_TRUE(out.set("general.architecture", "llama"));
  }
  if (part.number) {
    ASSERT_TRUE(out.set("split.no", *part.number));
  }
  if (part.count) {
    ASSERT_TRUE(out.set("split.count", *part.count));
  }
  if (part.total) {
    ASSERT_TRUE(out.set("split.tensors.count", *part.total));
  }
  const std::uint64_t dims[] = {8, 2};
  for (const auto& [name, value] : part.tensors) ASSERT_TRUE(out.declare(name, GgmlType::f32, dims));
  ASSERT_TRUE(out.begin());
  for (const auto& [name, value] : part.tensors) {
    std::array<std::byte, 64> bytes;
    for (std::size_t i = 0; i < 16; ++i) store_le(bytes.data() + 4 * i, value);
    ASSERT_TRUE(out.append(name, bytes));
  }
  ASSERT_TRUE(out.finish());
}

float first_value(const GgufFile& file, std::string_view name) {
  std::array<std::byte, 4> bytes{};
  const auto tensor = file.require(name);
  EXPECT_TRUE(tensor && file.read(**tensor, 60, bytes)) << name;
  return load_le<float>(bytes.data());
}

Part part(std::uint16_t number, std::vector<std::pair<std::string, float>> tensors) {
  return {std::move(tensors), number, 3, 4, "model"};
}

TEST_F(GgufFileTest, AnyPartOpensTheSplit) {
  // The first part may hold no tensors at all.
  write_part(directory_ / "m-00001-of-00003.gguf", part(0, {}));
  write_part(directory_ / "m-00002-of-00003.gguf", part(1, {{"d", 4}, {"a", 1}}));
  write_part(directory_ / "m-00003-of-00003.gguf", part(2, {{"c", 3}, {"b", 2}}));
  for (const char* name : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::open(directory_ / name);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->parts(), 3U);
    EXPECT_EQ(file->part_name(2), "m-00003-of-00003.gguf");
    EXPECT_EQ(file->path(), directory_ / name);
    EXPECT_EQ(file->architecture().value(), "llama");
    EXPECT_EQ(file->metadata().get<std::uint64_t>("split.no").value(), 0U);
    ASSERT_EQ(file->tensors().size(), 4U);
    EXPECT_EQ(file->tensors()[0].name, "a");
    EXPECT_EQ(file->find("b")->part, 2U);
    EXPECT_EQ(file->find("e"), nullptr);
    EXPECT_EQ(first_value(*file, "a"), 1);
    EXPECT_EQ(first_value(*file, "b"), 2);
    EXPECT_EQ(first_value(*file, "c"), 3);
    EXPECT_EQ(first_value(*file, "d"), 4);
  }
}

TEST_F(GgufFileTest, WrongPartsAreRefused) {
  const auto name = [](int i) { return fmt::format("m-{:05}-of-00003.gguf", i); };
  const auto restore = [&] {
    write_part(directory_ / name(1), part(0, {{"a", 1}}));
    write_part(directory_ / name(2), part(1, {{"b", 2}}));
    write_part(directory_ / name(3), part(2, {{"c", 3}, {"d", 4}}));
  };
  restore();
  ASSERT_TRUE(GgufFile::open(directory_ / name(2)));

  fs::remove(directory_ / name(2));
  expect_refused(name(3), Code::not_found, "m-00002-of-00003.gguf is missing (2 of 3 parts are there)");
  expect_refused(name(2), Code::not_found, name(2));

  fs::copy_file(directory_ / name(3), directory_ / name(2));
  expect_refused(name(1), Code::corrupt, "says of itself that it is part 2 of 3");
  expect_refused(name(2), Code::corrupt, "expected part 1 of 3");

  write_part(directory_ / name(2), {{{"b", 2}}, 1, 4, 4, "model"});
  expect_refused(name(1), Code::corrupt, "part 1 of 4");
  write_part(directory_ / name(2), {{{"b", 2}}, {}, {}, {}, "model"});
  expect_refused(name(1), Code::not_found, "key split.count is missing");
  write_part(directory_ / name(2), {{{"b", 2}}, 1, 3, 4, "other"});
  expect_refused(name(1), Code::corrupt, "the key general.name is \"other\"");
  write_part(directory_ / name(2), {{{"b", 2}}, 1, 3, 5, "model"});
  expect_refused(name(1), Code::corrupt, "the key split.tensors.count is 5");
  write_part(directory_ / name(2), part(1, {{"c", 2}}));
  expect_refused(name(1), Code::corrupt, "tensor c is in m-00002-of-00003.gguf and again in m-00003-of-00003.gguf");
  write_part(directory_ / name(2), part(1, {}));
  expect_refused(name(1), Code::corrupt, "3 tensors in 3 files, expected 4");

  restore();
  fs::rename(directory_ / name(1), directory_ / "model.gguf");
  expect_refused("model.gguf", Code::invalid_argument, "expected the name NAME-00001-of-00003.gguf");
  fs::rename(directory_ / "model.gguf", directory_ / "m-00001-of-00004.gguf");
  expect_refused("m-00001-of-00004.gguf", Code::invalid_argument, "it is one of 3 parts");
  write_part(directory_ / "m-00001-of-60000.gguf", {{}, 0, 60000, {}, "model"});
  expect_refused("m-00001-of-60000.gguf", Code::limit, "60000 parts, expected at most 4096");
}

TEST_F(GgufFileTest, ReadsAreBounded) {
  write_part(directory_ / "m.gguf", {{{"a", 1}, {"b", 2}}, {}, {}, {}, "model"});
  const auto file = GgufFile::open(directory_ / "m.gguf");
  ASSERT_TRUE(file) << file.error().message;
  const GgufTensor& a = *file->find("a");
  std::vector<std::byte> out(65);
  const auto code = [](const Status& status) { return status.error().code; };
  EXPECT_TRUE(file->read(a, 0, std::span(out).first(64)));
  EXPECT_TRUE(file->read(a, 64, {}));
  EXPECT_EQ(code(file->read(a, 0, out)), Code::invalid_argument);
  EXPECT_EQ(code(file->read(a, 60, std::span(out).first(5))), Code::invalid_argument);
  EXPECT_EQ(code(file->read(a, ~std::uint64_t{0}, std::span(out).first(2))), Code::invalid_argument);
  GgufTensor stranger = a;
  stranger.name = "z";
  EXPECT_EQ(code(file->read(stranger, 0, {})), Code::not_found);
  stranger = a;
  stranger.bytes = 1 << 20;  // what the file knows counts
  EXPECT_EQ(code(file->read(stranger, 0, out)), Code::invalid_argument);
  // Cut short while it is open: an error, not a signal.
  fs::resize_file(directory_ / "m.gguf", file->find("b")->offset + 10);
  EXPECT_TRUE(file->read(a, 0, std::span(out).first(64)));
  const Status cut = file->read(*file->find("b"), 0, std::span(out).first(64));
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Code::corrupt);
  EXPECT_NE(cut.error().message.find("tensor b"), std::string::npos) << cut.error().message;
  expect_refused("m.gguf", Code::corrupt, "tensor b");
  expect_refused("none.gguf", Code::not_found, "opening");
  fs::create_directory(directory_ / "dir.gguf");
  expect_refused("dir.gguf", Code::io, "not a regular file");
}

TEST_F(GgufFileTest, UnsupportedTypesAreNamedWhenAskedFor) {
  {
    GgufWriter out(directory_ / "m.gguf", {});
    const std::uint64_t dims[] = {256};
    ASSERT_TRUE(out.declare("good", GgmlType::f16, dims));
    ASSERT_TRUE(out.declare("odd", GgmlType::iq2_xxs, dims));
    ASSERT_TRUE(out.begin());
    ASSERT_TRUE(out.append("good", std::vector<std::byte>(512)));
    ASSERT_TRUE(out.append("odd", std::vector<std::byte>(66)));
    ASSERT_TRUE(out.finish());
  }
  const auto file = GgufFile::open(directory_ / "m.gguf");
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::byte> out(66);
  EXPECT_TRUE(file->require("good"));
  EXPECT_TRUE(file->read(*file->find("good"), 0, out));
  const auto odd = file->require("odd");
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, Code::unsupported);
  EXPECT_NE(odd.error().message.find("tensor odd is of IQ2_XXS, a type"), std::string::npos) << odd.error().message;
  EXPECT_EQ(file->read(*file->find("odd"), 0, out).error().code, Code::unsupported);
}

TEST_F(GgufFileTest, CopiesReadFromManyThreadsAndOutliveTheFirst) {
  std::vector<std::pair<std::string, float>> tensors;
  for (int i = 0; i < 50; ++i) tensors.emplace_back("t" + std::to_string(i), static_cast<float>(i));
  write_part(directory_ / "m.gguf", {tensors, {}, {}, {}, "model"});
  auto first = std::make_unique<GgufFile>(GgufFile::open(directory_ / "m.gguf").value());
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n)
    threads.emplace_back([copy = *first, &wrong] {
      for (int round = 0; round < 20; ++round)
        for (int i = 0; i < 50; ++i)
          if (first_value(copy, "t" + std::to_string(i)) != static_cast<float>(i)) ++wrong;
    });
  first.reset();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

// Files written by llama.cpp, of eight architectures.
TEST_F(GgufFileTest, GoldenFiles) {
  const char* const data = std::getenv("MYRIAD_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "MYRIAD_TEST_DATA is not set";
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(fs::path(data) / "golden" / "gguf"))
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path());
  EXPECT_GE(paths.size(), 19U);
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.filename());
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const GgufMetadata& m = file->metadata();
    const std::string architecture(file->architecture().value());
    EXPECT_TRUE(path.filename().string().starts_with(architecture + "-")) << architecture;
    const auto layers = m.require<std::uint64_t>(architecture + ".block_count");
    const auto hidden = m.require<std::uint64_t>(architecture + ".embedding_length");
    ASSERT_TRUE(layers && hidden);
    EXPECT_GT(m.require<float>(architecture + ".attention.layer_norm_rms_epsilon").value(), 0);
    EXPECT_EQ(m.get_per_layer<std::uint64_t>(architecture + ".attention.head_count_kv", *layers).value()->size(),
              *layers);
    const auto tokens = m.get_strings("tokenizer.ggml.tokens").value().value();
    const auto embedding = file->require("token_embd.weight");
    ASSERT_TRUE(embedding) << embedding.error().message;
    EXPECT_EQ(std::vector((*embedding)->dims().begin(), (*embedding)->dims().end()),
              (std::vector<std::uint64_t>{*hidden, tokens.size()}));
    EXPECT_NE(file->find(fmt::format("blk.{}.attn_norm.weight", *layers - 1)), nullptr);
    EXPECT_EQ(file->find(fmt::format("blk.{}.attn_norm.weight", *layers)), nullptr);
    std::uint64_t end = 0;
    for (const GgufTensor& t : file->tensors()) {
      EXPECT_TRUE(ggml_type_readable(t.type)) << t.name;
      std::vector<std::byte> bytes(t.bytes);
      EXPECT_TRUE(file->read(t, 0, bytes)) << t.name;
      end = std::max(end, t.offset + t.bytes);
      if (t.type != GgmlType::f32) continue;
      for (std::size_t i = 0; i < bytes.size(); i += 4)  // weights, if the offset is right
        ASSERT_LT(std::abs(load_le<float>(bytes.data() + i)), 100.0F) << t.name << " at " << i;
    }
    EXPECT_LT(fs::file_size(path) - end, 32U);  // nothing but padding behind the last one
  }
}

TEST_F(GgufFileTest, Stories) {
  const char* const data = std::getenv("MYRIAD_TEST_DATA");
  if (data == nullptr) GTEST_SKIP() << "MYRIAD_TEST_DATA is not set";
  for (const char* name : {"stories260K.gguf", "stories260K-q8_0.gguf"}) {
    const auto file = GgufFile::open(fs::path(data) / "models" / name);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->tensors().size(), 48U);
    const GgufMetadata& m = file->metadata();
    EXPECT_EQ(file->architecture().value(), "llama");
    EXPECT_EQ(m.require<std::string_view>("tokenizer.ggml.model").value(), "llama");
    EXPECT_EQ(m.require<std::uint64_t>("llama.block_count").value(), 5U);
    EXPECT_EQ(m.require<std::uint64_t>("llama.attention.head_count_kv").value(), 4U);
    const auto tokens = m.get_strings("tokenizer.ggml.tokens").value().value();
    ASSERT_EQ(tokens.size(), 512U);
    EXPECT_EQ(tokens[1], "<s>");
    EXPECT_EQ(tokens[3], "<0x00>");
    EXPECT_EQ(m.get_array<float>("tokenizer.ggml.scores").value()->size(), 512U);
    EXPECT_EQ(m.get_array<std::int32_t>("tokenizer.ggml.token_type").value()->at(0), 2);
    EXPECT_FALSE(m.get<std::int32_t>("tokenizer.ggml.padding_token_id"));  // 2^32 − 1: there is none
  }
}

}  // namespace
}  // namespace myriad
