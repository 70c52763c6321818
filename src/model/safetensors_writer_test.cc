#include "model/safetensors_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "model/safetensors.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class SafetensorsWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "myriad-writer-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  static std::string bytes_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // The tensors of a file and their data.
  static std::map<std::string, std::pair<TensorEntry, std::string>> read(const fs::path& path) {
    const std::string all = bytes_of(path);
    const auto length = safetensors_header_length(std::as_bytes(std::span(all)), all.size(), "written");
    EXPECT_TRUE(length);
    const auto entries = parse_safetensors_header(std::as_bytes(std::span(all)).subspan(8, *length),
                                                  all.size() - 8 - *length, "written");
    EXPECT_TRUE(entries) << (entries ? "" : entries.error().message);
    std::map<std::string, std::pair<TensorEntry, std::string>> out;
    for (const TensorEntry& e : *entries) out[e.name] = {e, all.substr(8 + *length + e.begin, e.end - e.begin)};
    return out;
  }
  static std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
    std::vector<std::byte> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 7 + seed);
    return out;
  }
  static std::string text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  static Status declare_three(SafetensorsWriter& out) {
    const std::uint64_t a[] = {4, 8}, b[] = {100}, c[] = {3, 1, 5};
    MYRIAD_TRY_STATUS(out.declare("a.weight", StorageType::bf16, a));
    MYRIAD_TRY_STATUS(out.declare("b \"quoted\"", StorageType::u8, b));
    return out.declare("c", StorageType::f32, c);
  }

  fs::path directory_;
};

TEST_F(SafetensorsWriterTest, WhatIsWrittenReadsBack) {
  SafetensorsWriter out(directory_, {});
  ASSERT_TRUE(declare_three(out));
  EXPECT_EQ(*out.begin(), 0U);
  const auto a = pattern(64, 1), b = pattern(100, 2), c = pattern(60, 3);
  ASSERT_TRUE(out.append("a.weight", std::span(a).first(10)));
  ASSERT_TRUE(out.append("a.weight", std::span(a).subspan(10)));
  ASSERT_TRUE(out.append("b \"quoted\"", b));
  const Status early = out.finish();
  ASSERT_FALSE(early);
  EXPECT_NE(early.error().message.find("tensor c has got 0 of 60"), std::string::npos) << early.error().message;
  ASSERT_TRUE(out.append("c", c));
  ASSERT_TRUE(out.finish());
  EXPECT_EQ(fs::file_size(directory_ / "model.safetensors"), out.bytes());
  auto there = read(directory_ / "model.safetensors");
  ASSERT_EQ(there.size(), 3U);
  EXPECT_EQ(there["a.weight"].second, text(a));
  EXPECT_EQ(there["b \"quoted\""].second, text(b));
  EXPECT_EQ(there["c"].second, text(c));
  EXPECT_EQ(there["c"].first.type, StorageType::f32);
  EXPECT_EQ(shape_text(there["c"].first.shape.span()), "[3, 1, 5]");
}

TEST_F(SafetensorsWriterTest, FilesAreBoundedAndIndexed) {
  SafetensorsWriter out(directory_, {.shard_bytes = 110});
  ASSERT_TRUE(declare_three(out));
  ASSERT_TRUE(out.begin());
  for (const auto& [name, n] : {std::pair("a.weight", 64), {"b \"quoted\"", 100}, {"c", 60}})
    ASSERT_TRUE(out.append(name, pattern(static_cast<std::size_t>(n), 4)));
  ASSERT_TRUE(out.finish());
  const auto index = nlohmann::json::parse(bytes_of(directory_ / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 224);
  EXPECT_EQ(index["weight_map"].size(), 3U);
  std::uint64_t bytes = 0;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const auto path = directory_ / file.get<std::string>();
    EXPECT_TRUE(read(path).contains(name));
    bytes += fs::file_size(path);
  }
  EXPECT_EQ(index["weight_map"]["c"], "model-00003-of-000003.safetensors");
  EXPECT_EQ(bytes, out.bytes());
}

TEST_F(SafetensorsWriterTest, AnInterruptedRunGoesOn) {
  for (const std::uint64_t shard_bytes : {std::uint64_t{110}, std::uint64_t{1000}}) {
    const fs::path whole = directory_ / fmt::format("whole{}", shard_bytes);
    const std::pair<const char*, std::size_t> tensors[] = {{"a.weight", 64}, {"b \"quoted\"", 100}, {"c", 60}};
    for (std::size_t stop = 0; stop <= 3; ++stop)
      for (const bool in_the_middle : {false, true}) {
        const fs::path there = directory_ / fmt::format("{}-{}-{}", shard_bytes, stop, in_the_middle);
        fs::create_directories(there);
        {
          SafetensorsWriter out(there, {.shard_bytes = shard_bytes, .resumable = true});
          ASSERT_TRUE(declare_three(out));
          ASSERT_TRUE(out.begin());
          for (std::size_t i = 0; i < stop; ++i)
            ASSERT_TRUE(out.append(tensors[i].first, pattern(tensors[i].second, static_cast<unsigned>(i))));
          if (in_the_middle && stop < 3) {
            ASSERT_TRUE(out.append(tensors[stop].first, pattern(20, 99)));
          }
        }
        SafetensorsWriter out(there, {.shard_bytes = shard_bytes, .resumable = true});
        ASSERT_TRUE(declare_three(out));
        const auto done = out.begin();
        ASSERT_TRUE(done);
        EXPECT_EQ(*done, stop);
        for (std::size_t i = *done; i < 3; ++i)
          ASSERT_TRUE(out.append(tensors[i].first, pattern(tensors[i].second, static_cast<unsigned>(i))));
        ASSERT_TRUE(out.finish());
        if (stop == 0 && !in_the_middle) fs::copy(there, whole);
        for (const auto& entry : fs::directory_iterator(whole))
          EXPECT_EQ(bytes_of(there / entry.path().filename()), bytes_of(entry.path())) << entry.path();
      }
  }
}

TEST_F(SafetensorsWriterTest, OtherHeadersBeginAnew) {
  const std::uint64_t shape[] = {8};
  for (const char* name : {"first", "other"}) {
    SafetensorsWriter out(directory_, {.resumable = true});
    ASSERT_TRUE(out.declare(name, StorageType::u8, shape));
    ASSERT_TRUE(out.declare("second", StorageType::u8, shape));
    EXPECT_EQ(*out.begin(), 0U) << name;
    ASSERT_TRUE(out.append(name, pattern(8, 5)));
  }
}

TEST_F(SafetensorsWriterTest, MistakesAreNamed) {
  SafetensorsWriter out(directory_, {});
  const std::uint64_t shape[] = {8}, huge[] = {std::uint64_t{1} << 40, std::uint64_t{1} << 40}, odd[] = {3};
  EXPECT_FALSE(out.begin());
  SafetensorsWriter two(directory_, {});
  EXPECT_EQ(two.declare("", StorageType::u8, shape).error().code, Code::invalid_argument);
  EXPECT_EQ(two.declare("a\nb", StorageType::u8, shape).error().code, Code::invalid_argument);
  EXPECT_EQ(two.declare("a", StorageType::u8, huge).error().code, Code::limit);
  EXPECT_EQ(two.declare("a", StorageType::f4, odd).error().code, Code::invalid_argument);
  ASSERT_TRUE(two.declare("a", StorageType::u8, shape));
  EXPECT_EQ(two.declare("a", StorageType::u8, shape).error().code, Code::invalid_argument);
  EXPECT_FALSE(two.append("a", pattern(8, 1)));
  ASSERT_TRUE(two.begin());
  EXPECT_FALSE(two.declare("b", StorageType::u8, shape));
  EXPECT_FALSE(two.append("b", pattern(8, 1)));
  EXPECT_FALSE(two.append("a", pattern(9, 1)));
  SafetensorsWriter nowhere(directory_ / "none", {});
  ASSERT_TRUE(nowhere.declare("a", StorageType::u8, shape));
  EXPECT_EQ(nowhere.begin().error().code, Code::io);
}

}  // namespace
}  // namespace myriad
