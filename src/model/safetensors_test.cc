#include "model/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/bytes.h"

namespace myriad {
namespace {

Result<std::vector<TensorEntry>> parse(std::string_view header, std::uint64_t data_bytes = 1000) {
  return parse_safetensors_header(std::as_bytes(std::span(header)), data_bytes, "a.safetensors");
}

void expect_refused(std::string_view header, Code code, std::string_view word, std::uint64_t data_bytes = 1000) {
  const auto entries = parse(header, data_bytes);
  ASSERT_FALSE(entries) << header.substr(0, 200);
  EXPECT_EQ(entries.error().code, code) << entries.error().message;
  EXPECT_NE(entries.error().message.find(word), std::string::npos) << entries.error().message << "\nexpected: " << word;
  EXPECT_NE(entries.error().message.find("a.safetensors"), std::string::npos) << entries.error().message;
}

TEST(Safetensors, GoodHeader) {
  const auto entries = parse(R"({"__metadata__":{"format":"pt","shape":"x","n":{"a":[1]}},)"
                             R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                             R"("a.weight":{"data_offsets":[0,4],"extra":[{"x":[1,2]}],"shape":[],"dtype":"F32"},)"
                             R"("empty":{"dtype":"U8","shape":[0,7],"data_offsets":[16,16]},)"
                             R"("nibbles":{"dtype":"F4","shape":[6],"data_offsets":[16,19]}}   )");
  ASSERT_TRUE(entries) << entries.error().message;
  ASSERT_EQ(entries->size(), 4U);
  EXPECT_EQ((*entries)[0].name, "b");
  EXPECT_EQ((*entries)[0].type, StorageType::bf16);
  EXPECT_EQ(shape_text((*entries)[0].shape.span()), "[2, 3]");
  EXPECT_EQ((*entries)[0].begin, 4U);
  EXPECT_EQ((*entries)[0].end, 16U);
  EXPECT_EQ((*entries)[1].name, "a.weight");
  EXPECT_EQ((*entries)[1].shape.rank, 0);
  EXPECT_EQ((*entries)[3].end, 19U);
  EXPECT_TRUE(parse("{}", 0));
}

TEST(Safetensors, EveryTypeNameReadsBack) {
  for (std::size_t i = 0; i < kStorageTypes; ++i) {
    const auto type = static_cast<StorageType>(i);
    const auto header = fmt::format(R"({{"t":{{"dtype":"{}","shape":[8],"data_offsets":[0,{}]}}}})",
                                    storage_type_name(type), storage_type_bits(type));
    const auto entries = parse(header);
    ASSERT_TRUE(entries) << entries.error().message;
    EXPECT_EQ((*entries)[0].type, type);
  }
}

TEST(Safetensors, HostileHeaders) {
  const auto tensor = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets);
  };
  const Code corrupt = Code::corrupt;
  expect_refused("", corrupt, "not JSON");
  expect_refused("[]", corrupt, "object of tensors");
  expect_refused("5", corrupt, "object of tensors");
  expect_refused("\"x\"", corrupt, "object of tensors");
  expect_refused("null", corrupt, "object of tensors");
  expect_refused("{\"a\":", corrupt, "not JSON");
  expect_refused("{} x", corrupt, "not JSON");
  expect_refused(R"({"t":5})", corrupt, "tensor t");
  expect_refused(R"({"t":"x"})", corrupt, "tensor t");
  expect_refused(R"({"t":null})", corrupt, "tensor t");
  expect_refused(R"({"t":[1]})", corrupt, "tensor t");
  expect_refused(R"({"t":{}})", corrupt, "no dtype");
  expect_refused(R"({"t":{"dtype":"U8","shape":[1]}})", corrupt, "no data_offsets");
  expect_refused(tensor("5", "[1]", "[0,1]"), corrupt, "name of a dtype");
  expect_refused(tensor("[\"U8\"]", "[1]", "[0,1]"), corrupt, "name of a dtype");
  expect_refused(tensor("{}", "[1]", "[0,1]"), corrupt, "name of a dtype");
  expect_refused(tensor("\"Q4\"", "[1]", "[0,1]"), Code::unsupported, "\"Q4\"");
  expect_refused(tensor("\"U8\"", "1", "[0,1]"), corrupt, "dimensions");
  expect_refused(tensor("\"U8\"", "[[1]]", "[0,1]"), corrupt, "dimensions");
  expect_refused(tensor("\"U8\"", "[{}]", "[0,1]"), corrupt, "dimensions");
  expect_refused(tensor("\"U8\"", "[-1]", "[0,1]"), corrupt, "-1");
  expect_refused(tensor("\"U8\"", "[1.0]", "[0,1]"), corrupt, "1.0");
  expect_refused(tensor("\"U8\"", "[true]", "[0,1]"), corrupt, "true");
  expect_refused(tensor("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), corrupt, "8 dimensions");
  expect_refused(tensor("\"U8\"", "[18446744073709551615]", "[0,1]"), corrupt, "whole number");
  expect_refused(tensor("\"U8\"", "[18446744073709551616]", "[0,1]"), corrupt, "tensor t");
  expect_refused(tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), corrupt,
                 "whole number");  // 2^64: 0 when it wraps
  expect_refused(tensor("\"F32\"", "[4611686018427387905]", "[0,4]"), corrupt, "whole number");
  expect_refused(tensor("\"F4\"", "[3]", "[0,2]"), corrupt, "whole number");
  expect_refused(tensor("\"U8\"", "[2]", "[0,1]"), corrupt, "takes 1 bytes, expected 2");
  expect_refused(tensor("\"U8\"", "[1]", "[0]"), corrupt, "1 data_offsets");
  expect_refused(tensor("\"U8\"", "[1]", "[0,1,2]"), corrupt, "data_offsets");
  expect_refused(tensor("\"U8\"", "[1]", "[1,0]"), corrupt, "[1, 0)");
  expect_refused(tensor("\"U8\"", "[1]", "[-1,0]"), corrupt, "-1");
  expect_refused(tensor("\"U8\"", "[1]", "[\"0\",1]"), corrupt, "offsets");
  expect_refused(tensor("\"U8\"", "[1]", "[1000,1001]"), corrupt, "cut short");
  expect_refused(tensor("\"U8\"", "[1]", "[18446744073709551614,18446744073709551615]"), corrupt, "cut short");
  expect_refused(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", corrupt, "twice");
  expect_refused(
      R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      corrupt, "tensor t is there twice");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[5],"data_offsets":[4,9]}})",
      corrupt, "overlap");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})",
      corrupt, "overlap");
  expect_refused(R"({"a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", corrupt, "control characters");
  constexpr char kNul[] = "{\"a\0b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  expect_refused(std::string_view(kNul, sizeof kNul - 1), corrupt, "not JSON");
  expect_refused(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", corrupt, "0 bytes");
  expect_refused(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})",
                             std::string(kMaxTensorName + 1, 'x')),
                 corrupt, "1025 bytes");
  expect_refused("{\"a\xff\":{}}", corrupt, "not JSON");
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep = R"({"__metadata__":{"x":)";
    for (int i = 0; i < 100000; ++i) deep += open;
    expect_refused(deep, Code::limit, "nested");
    deep = R"({"t":{"shape":)";
    for (int i = 0; i < 100000; ++i) deep += open;
    EXPECT_FALSE(parse(deep));
  }
}

TEST(Safetensors, HeaderLength) {
  const auto length = [](std::uint64_t value, std::uint64_t file_bytes) {
    std::array<std::byte, 8> first{};
    store_le(first.data(), value);
    return safetensors_header_length(first, file_bytes, "a.safetensors");
  };
  EXPECT_EQ(length(100, 108).value(), 100U);
  for (const std::uint64_t value :
       {std::uint64_t{101}, std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7}) {
    ASSERT_FALSE(length(value, 108)) << value;
    EXPECT_EQ(length(value, 108).error().code, Code::corrupt);
    EXPECT_NE(length(value, 108).error().message.find(std::to_string(value)), std::string::npos);
  }
  EXPECT_EQ(length(kMaxSafetensorsHeader + 1, std::uint64_t{1} << 40).error().code, Code::limit);
  EXPECT_FALSE(safetensors_header_length({}, 3, "a.safetensors"));
}

// Random damage to a good header: it is refused, or what is accepted is consistent. (safetensors_fuzz looks further.)
TEST(Safetensors, RandomDamage) {
  const std::string good =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},)"
      R"("b":{"dtype":"F32","shape":[4],"data_offsets":[12,28]}})";
  const unsigned seed = 20261130;
  std::mt19937 random(seed);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string header = good;
    for (unsigned n = random() % 3 + 1; n > 0; --n)
      header[random() % header.size()] = "0123456789{}[],:\"aUF\\x"[random() % 22];
    const auto entries = parse(header, 28);
    if (!entries) continue;
    ++accepted;
    std::uint64_t sum = 0;
    for (const TensorEntry& e : *entries) {
      ASSERT_LE(e.begin, e.end) << "seed " << seed << " round " << round;
      ASSERT_LE(e.end, 28U);
      sum += e.end - e.begin;
    }
    ASSERT_LE(sum, 28U) << header;
  }
  EXPECT_GT(accepted, 100);  // names changed, for instance
}

}  // namespace
}  // namespace myriad
