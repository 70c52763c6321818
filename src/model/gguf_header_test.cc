#include "model/gguf_header.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>

#include "base/bytes.h"
#include "base/random.h"

namespace myriad {
namespace {

using enum GgufValueType;

// Bytes of a file, put together by hand.
class Raw : public ByteWriter {
 public:
  explicit Raw(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    text("GGUF");
    put(version);
    put(tensors);
    put(keys);
  }
  Raw& text(std::string_view s) {
    put_bytes(std::as_bytes(std::span(s)));
    return *this;
  }
  Raw& string(std::string_view s) {
    put(std::uint64_t{s.size()});
    return text(s);
  }
  template <class T>
  Raw& number(T value) {
    put(value);
    return *this;
  }
  Raw& type(GgufValueType t) { return number(static_cast<std::uint32_t>(t)); }
  Raw& key(std::string_view name, GgufValueType t) { return string(name).type(t); }
  Raw& array(std::string_view name, GgufValueType element, std::uint64_t count) {
    return key(name, GgufValueType::array).type(element).number(count);
  }
  Raw& tensor(std::string_view name, GgmlType t, std::vector<std::uint64_t> dims, std::uint64_t offset) {
    string(name).number(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t d : dims) put(d);
    return number(static_cast<std::uint32_t>(t)).number(offset);
  }
  Raw& data(std::size_t bytes, std::size_t alignment = 32) {
    align(alignment);
    this->bytes().resize(this->bytes().size() + bytes);
    return *this;
  }
};

// As a sparse file of `file_bytes` bytes, if that is more.
Result<GgufHeader> parse(std::span<const std::byte> bytes, std::uint64_t file_bytes = 0) {
  const GgufReadAt read = [&](std::uint64_t offset, std::span<std::byte> out) -> Status {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = offset + i < bytes.size() ? bytes[offset + i] : std::byte{0};
    return {};
  };
  return parse_gguf_header(read, std::max<std::uint64_t>(file_bytes, bytes.size()), "a.gguf");
}
Result<GgufHeader> parse(Raw raw, std::uint64_t file_bytes = 0) {
  return parse(raw.bytes(), file_bytes);
}
Result<GgufHeader> parse(std::string_view text) {
  return parse(std::as_bytes(std::span(text)));
}

template <class Input>
void expect_refused(Input&& input, Code code, std::string_view word, std::uint64_t file_bytes = 0) {
  Result<GgufHeader> header = [&] {
    if constexpr (std::is_convertible_v<Input, std::string_view>) {
      return parse(std::string_view(input));
    } else {
      return parse(input, file_bytes);
    }
  }();
  ASSERT_FALSE(header) << "expected: " << word;
  const std::string& message = header.error().message;
  EXPECT_EQ(header.error().code, code) << message;
  EXPECT_NE(message.find(word), std::string::npos) << message << "\nexpected: " << word;
  EXPECT_NE(message.find("a.gguf"), std::string::npos) << message;
}

// A small file with a bit of everything.
Raw good(std::uint32_t version = 3) {
  Raw raw(3, 9, version);
  raw.key("general.architecture", string).string("llama");
  raw.key("a.u8", u8).number(std::uint8_t{200});
  raw.key("a.i16", i16).number(std::int16_t{-5});
  raw.key("a.flag", boolean).number(std::uint8_t{1});
  raw.key("a.f32", f32).number(1.5F);
  raw.key("a.f64", f64).number(1e300);
  raw.array("tokens", string, 3).string("a").string("").string("\xc3\xa9");
  raw.array("per_layer", i32, 3).number(std::int32_t{0}).number(std::int32_t{1}).number(std::int32_t{7});
  raw.array("nested", array, 2);
  raw.type(u8).number(std::uint64_t{2}).number(std::uint8_t{1}).number(std::uint8_t{2});
  raw.type(string).number(std::uint64_t{1}).string("deep");
  raw.tensor("w", GgmlType::q8_0, {64, 2}, 0);           // 136 bytes
  raw.tensor("a.odd", GgmlType::iq2_xxs, {256}, 160);    // 66 bytes
  raw.tensor("b", static_cast<GgmlType>(77), {3}, 256);  // of no known type
  raw.data(288);
  return raw;
}

TEST(GgufHeader, Good) {
  for (const std::uint32_t version : {2U, 3U}) {
    Raw raw = good(version);
    const auto header = parse(raw);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->version, version);
    EXPECT_EQ(header->data_begin, raw.bytes().size() - 288);
    ASSERT_EQ(header->tensors.size(), 3U);
    const GgufTensor& w = header->tensors[2];
    EXPECT_EQ(w.name, "w");
    EXPECT_EQ(w.bytes, 136U);
    EXPECT_EQ(w.offset, header->data_begin);
    EXPECT_EQ(w.row(), 64U);
    EXPECT_EQ(w.rows(), 2U);
    EXPECT_EQ(gguf_dims_text(w.dims()), "[64, 2]");
    EXPECT_EQ(header->tensors[0].name, "a.odd");
    EXPECT_EQ(header->tensors[0].bytes, 66U);
    EXPECT_EQ(header->tensors[1].bytes, 0U);
    EXPECT_EQ(ggml_type_text(header->tensors[1].type), "type 77");
  }
  Raw empty(0, 0);
  EXPECT_TRUE(parse(empty));
}

TEST(GgufHeader, EveryTypeIsKnownByNameAndSize) {
  for (const GgmlTypeInfo& info : ggml_types()) {
    EXPECT_EQ(ggml_type_named(info.name), info.type);
    EXPECT_EQ(ggml_type_text(info.type), info.name);
    const std::uint64_t dims[] = {std::uint64_t{info.block_values} * 3, 5};
    const auto bytes = ggml_tensor_bytes(info.type, dims);
    EXPECT_EQ(bytes.has_value(), info.block_values > 0) << info.name;
    EXPECT_TRUE(info.block_values > 0 || !info.readable);
    EXPECT_EQ(bytes.value_or(0), std::uint64_t{info.block_bytes} * 15) << info.name;
  }
  EXPECT_EQ(ggml_type_named("q4_k"), GgmlType::q4_k);
  EXPECT_FALSE(ggml_type_named("Q4_K_M"));
  EXPECT_FALSE(ggml_type_named(""));
  // Bytes of a block of 256 values, as in llama.cpp's published bits per weight.
  const std::uint64_t dims[] = {256};
  EXPECT_EQ(ggml_tensor_bytes(GgmlType::q4_k, dims), 144U);
  EXPECT_EQ(ggml_tensor_bytes(GgmlType::q6_k, dims), 210U);
  EXPECT_EQ(ggml_tensor_bytes(GgmlType::mxfp4, dims), 136U);
  EXPECT_EQ(ggml_tensor_bytes(GgmlType::iq4_xs, dims), 136U);
  EXPECT_EQ(ggml_tensor_bytes(GgmlType::bf16, dims), 512U);
}

TEST(GgufHeader, Values) {
  Raw raw = good();
  const auto header = parse(raw);
  ASSERT_TRUE(header) << header.error().message;
  const GgufMetadata& m = header->metadata;
  EXPECT_EQ(m.size(), 9U);
  EXPECT_EQ(m.keys().front().name, "a.f32");
  EXPECT_TRUE(m.has("tokens"));
  EXPECT_FALSE(m.has("token"));
  EXPECT_EQ(m.get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(m.get<std::uint32_t>("a.u8").value(), 200U);
  EXPECT_EQ(m.get<std::int64_t>("a.u8").value(), 200);
  EXPECT_EQ(m.get<std::int32_t>("a.i16").value(), -5);
  EXPECT_EQ(m.get<float>("a.i16").value(), -5.0F);
  EXPECT_EQ(m.get<bool>("a.flag").value(), true);
  EXPECT_EQ(m.get<double>("a.f32").value(), 1.5);
  EXPECT_EQ(m.get<double>("a.f64").value(), 1e300);
  EXPECT_EQ(m.get<bool>("missing").value(), std::nullopt);
  EXPECT_EQ(m.get_or<std::uint64_t>("missing", 7).value(), 7U);
  EXPECT_EQ(m.get_or<std::uint64_t>("a.u8", 7).value(), 200U);
  const auto tokens = m.get_strings("tokens").value().value();
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[0], "a");
  EXPECT_EQ(tokens[1], "");
  EXPECT_EQ(tokens[2], "\xc3\xa9");
  EXPECT_EQ(m.get_array<std::uint64_t>("per_layer").value(), (std::vector<std::uint64_t>{0, 1, 7}));
  EXPECT_EQ(m.get_per_layer<std::uint64_t>("per_layer", 3).value(), (std::vector<std::uint64_t>{0, 1, 7}));
  EXPECT_EQ(m.get_per_layer<std::uint64_t>("a.u8", 2).value(), (std::vector<std::uint64_t>{200, 200}));
  EXPECT_EQ(m.get_per_layer<float>("missing", 2).value(), std::nullopt);
  EXPECT_EQ(m.value_text("tokens"), "[3] \"a\", \"\", \"\xc3\xa9\"");
  EXPECT_EQ(m.value_text("nested"), "[2] [2] 1, 2, [1] \"deep\"");
  EXPECT_EQ(m.value_text("a.flag"), "true");
  EXPECT_EQ(m.value_text("missing"), "");

  const auto expect_error = [](const auto& result, Code code, std::string_view word) {
    ASSERT_FALSE(result.has_value()) << word;
    EXPECT_EQ(result.error().code, code);
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find("a.gguf"), std::string::npos) << result.error().message;
  };
  expect_error(m.require<float>("x.y"), Code::not_found, "key x.y is missing, expected a number");
  expect_error(m.get<std::uint64_t>("a.i16"), Code::corrupt,
               "key a.i16 has the value -5, expected 0 to 18446744073709");
  expect_error(m.get<float>("a.f64"), Code::corrupt, "key a.f64 has the value 1e+300");
  expect_error(m.get<std::uint64_t>("a.f32"), Code::corrupt, "key a.f32 is the f32 1.5, expected a non-negative whole");
  expect_error(m.get<bool>("a.u8"), Code::corrupt, "key a.u8 is the u8 200, expected a bool");
  expect_error(m.get<std::uint64_t>("a.flag"), Code::corrupt, "key a.flag is the bool true");
  expect_error(m.get<float>("tokens"), Code::corrupt, "key tokens is the array of string [3] \"a\"");
  expect_error(m.get<std::string_view>("a.u8"), Code::corrupt, "expected a string");
  expect_error(m.get_strings("per_layer"), Code::corrupt, "expected an array of strings");
  expect_error(m.get_strings("a.u8"), Code::corrupt, "expected an array of strings");
  expect_error(m.get_array<float>("tokens"), Code::corrupt, "expected an array of numbers");
  expect_error(m.get_array<float>("nested"), Code::corrupt, "array of array");
  expect_error(m.get_array<bool>("per_layer"), Code::corrupt, "expected a bool");
  expect_error(m.get_per_layer<std::uint64_t>("per_layer", 4), Code::corrupt, "3 values, expected one for each of 4");
  expect_error(m.get_per_layer<float>("a.u8", kMaxGgufLayers + 1), Code::limit, "layers");
}

TEST(GgufHeader, ForeignTextIsPrintable) {
  EXPECT_EQ(gguf_printable("a\n\x7f\xc3\xa9\xc3"), "a\\x0a\\x7f\xc3\xa9\\xc3");
  std::string letters;
  for (int i = 0; i < 150; ++i) letters += "\xc3\xa9";
  EXPECT_EQ(gguf_printable(letters), letters.substr(0, 200) + "...");
  EXPECT_EQ(gguf_printable("x" + letters), "x" + letters.substr(0, 200) + "...");
  Raw raw(0, 1);
  raw.array("t", string, 2).string(letters).string("b");
  const auto header = parse(raw);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->metadata.value_text("t", 12), "[2] \"" + letters.substr(0, 8) + "...\", ...");
  EXPECT_EQ(header->metadata.value_text("t", 13), "[2] \"" + letters.substr(0, 8) + "...\", ...");
}

TEST(GgufHeader, EveryIntegerWidthAtItsEnds) {
  Raw raw(0, 12);
  const auto ends = [&]<class T>(std::string_view name, GgufValueType type, T) {
    raw.key(std::string(name) + ".min", type).number(std::numeric_limits<T>::min());
    raw.key(std::string(name) + ".max", type).number(std::numeric_limits<T>::max());
  };
  ends("i8", i8, std::int8_t{});
  ends("u16", u16, std::uint16_t{});
  ends("u32", u32, std::uint32_t{});
  ends("i32", i32, std::int32_t{});
  ends("u64", u64, std::uint64_t{});
  ends("i64", i64, std::int64_t{});
  const auto header = parse(raw);
  ASSERT_TRUE(header) << header.error().message;
  const GgufMetadata& m = header->metadata;
  EXPECT_EQ(m.get<std::int64_t>("i8.min").value(), -128);
  EXPECT_EQ(m.get<std::uint32_t>("i8.max").value(), 127U);
  EXPECT_EQ(m.get<std::int32_t>("u16.max").value(), 65535);
  EXPECT_EQ(m.get<std::uint32_t>("u32.max").value(), 0xffffffffU);
  EXPECT_FALSE(m.get<std::int32_t>("u32.max"));
  EXPECT_EQ(m.get<std::int64_t>("i32.min").value(), -2147483648LL);
  EXPECT_FALSE(m.get<std::uint32_t>("i32.min"));
  EXPECT_EQ(m.get<std::uint64_t>("u64.max").value(), ~std::uint64_t{0});
  EXPECT_FALSE(m.get<std::int64_t>("u64.max"));
  EXPECT_EQ(m.get<std::int64_t>("i64.min").value(), std::numeric_limits<std::int64_t>::min());
  EXPECT_FALSE(m.get<std::uint64_t>("i64.min"));
  EXPECT_EQ(m.get<double>("i64.min").value(), -0x1p63);
}

TEST(GgufHeader, OtherFormatsAreNamed) {
  expect_refused("", Code::corrupt, "empty");
  expect_refused("GG", Code::corrupt, "begins with \"GG\"");
  expect_refused("GGUF", Code::corrupt, "cut short");
  expect_refused("FUGG\0\0\0\3", Code::unsupported, "bytes swapped");
  expect_refused("tjgg\3\0\0\0 old", Code::unsupported, "GGML file");
  expect_refused("lmgg", Code::unsupported, "GGML file");
  expect_refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", Code::corrupt, "git-lfs");
  expect_refused("\n<!DOCTYPE html><html>", Code::corrupt, "HTML");
  expect_refused("PK\x03\x04 archive", Code::unsupported, "ZIP");
  expect_refused("\x08\x01\x01\x01\x01\x01\x01\x01{\"a\":{}}", Code::unsupported, "safetensors");
  expect_refused(std::string_view("\0\0\0\0\0\0\0\0", 8), Code::corrupt, "zeros");
  expect_refused("\x01\x02xy", Code::corrupt, "\\x01\\x02xy");
  for (const std::uint32_t version : {0U, 1U, 4U, 0x01020304U}) {
    Raw raw(0, 0, version);
    expect_refused(raw, Code::unsupported, fmt::format("version {}, expected 2 or 3", version));
  }
  Raw swapped(0, 0, 0x03000000);
  expect_refused(swapped, Code::unsupported, "big-endian GGUF file (version 3");
}

TEST(GgufHeader, HostileMetadata) {
  const auto refuse = [](Raw raw, Code code, std::string_view word, std::uint64_t file_bytes = 0) {
    expect_refused(raw, code, word, file_bytes);
  };
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 50;  // of a sparse file
  refuse(Raw(0, ~std::uint64_t{0}), Code::corrupt, "18446744073709551615 keys");
  refuse(Raw(~std::uint64_t{0}, 0), Code::corrupt, "18446744073709551615 tensors");
  refuse(Raw(0, kMaxGgufKeys + 1), Code::limit, "65537 keys, expected at most 65536", kHuge);
  refuse(Raw(kMaxGgufTensors + 1, 0), Code::limit, "262145 tensors", kHuge);
  const auto one = [] { return Raw(0, 1); };
  refuse(one().string("").type(u8).number(std::uint64_t{0}), Code::corrupt, "0 bytes long");
  refuse(one().number(~std::uint64_t{0}).type(u8).number(std::uint64_t{0}), Code::corrupt, "key 1 of 1");
  refuse(one().number(kMaxGgufKeyBytes + 1).data(70000), Code::corrupt, "65536 bytes long");
  refuse(one().key(std::string(60, 'k'), u8), Code::corrupt, "key kkkk");
  refuse(one().key(std::string_view("a\0b", 3), u8).number(std::uint8_t{0}), Code::corrupt, "\"a\\x00b\"");
  refuse(one().key("a\xff", u8).number(std::uint8_t{0}), Code::corrupt, "\"a\\xff\", expected UTF-8");
  refuse(one().string("key").number(std::uint32_t{13}).number(std::uint64_t{0}), Code::corrupt,
         "key key: the value type 13 at byte 35, expected 0 to 12");
  refuse(one().key("b", boolean).number(std::uint8_t{2}), Code::corrupt, "key b: the bool at byte 37 is 2");
  refuse(one().array("b", boolean, 3).number(std::uint16_t{1}).number(std::uint8_t{255}), Code::corrupt,
         "the bool at byte 51 is 255");
  refuse(one().key("s", string).number(~std::uint64_t{0}), Code::corrupt, "a string of 18446744073709551615 bytes");
  refuse(one().key("s", string).number(kMaxGgufMetadata + 1), Code::limit, "key s: at byte", kHuge);
  for (const GgufValueType element : {u8, u64, string, array}) {
    refuse(one().array("v", element, ~std::uint64_t{0}), Code::corrupt, "key v: 18446744073709551615 values");
    refuse(one().array("v", element, std::uint64_t{1} << 61), Code::corrupt, "values");
  }
  for (const GgufValueType element : {u8, u64, array})
    refuse(one().array("v", element, kMaxGgufMetadata), Code::limit, "67108864", kHuge);
  refuse(Raw(0, 2).key("a", u8).number(std::uint8_t{1}).key("a", i8).number(std::uint8_t{1}), Code::corrupt,
         "key a is there twice");
  Raw deep = one().array("d", array, 1);
  for (int i = 0; i < 100000; ++i) deep.type(array).number(std::uint64_t{1});
  refuse(deep, Code::limit, "key d: arrays nested more than 4 deep");
  Raw deep_enough = one().array("d", array, 1);
  for (int i = 0; i < 2; ++i) deep_enough.type(array).number(std::uint64_t{1});
  deep_enough.type(u8).number(std::uint64_t{1}).number(std::uint8_t{9});
  const auto header = parse(deep_enough);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->metadata.value_text("d"), "[1] [1] [1] [1] 9");
  Raw one_deeper = one().array("d", array, 1);
  for (int i = 0; i < 3; ++i) one_deeper.type(array).number(std::uint64_t{1});
  one_deeper.type(u8).number(std::uint64_t{1}).number(std::uint8_t{9});
  refuse(one_deeper, Code::limit, "nested more than 4 deep");
}

TEST(GgufHeader, HostileTensors) {
  const auto refuse = [](Raw raw, std::string_view word) { expect_refused(raw, Code::corrupt, word); };
  const auto one = [](GgmlType type, std::vector<std::uint64_t> dims, std::uint64_t offset) {
    return Raw(1, 0).tensor("t", type, std::move(dims), offset).data(1024);
  };
  EXPECT_TRUE(parse(one(GgmlType::f32, {256}, 0)));
  EXPECT_TRUE(parse(one(GgmlType::f32, {}, 32)));
  refuse(one(GgmlType::f32, {1, 1, 1, 1, 1}, 0), "tensor t: 5 dimensions, expected at most 4");
  refuse(one(GgmlType::f32, {8, 0}, 0), "tensor t: dimension 1 is 0");
  refuse(one(GgmlType::f32, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0), "at most 2^56 values");
  refuse(one(static_cast<GgmlType>(77), {~std::uint64_t{0}}, 0), "at most 2^56 values");
  refuse(one(GgmlType::f32, {std::uint64_t{1} << 56}, 0), "takes 288230376151711744 bytes");
  refuse(one(GgmlType::q8_0, {33}, 0), "tensor t: rows of 33 values of Q8_0, expected a multiple of 32");
  refuse(one(GgmlType::iq1_s, {128, 2}, 0), "rows of 128 values of IQ1_S");
  refuse(one(GgmlType::q8_0, {}, 0), "rows of 1 values");
  refuse(one(GgmlType::f32, {8}, 16), "tensor t lies at 16 of the data, expected a multiple of 32");
  refuse(one(GgmlType::f32, {257}, 0), "tensor t, F32 [257], takes 1028 bytes from 0");
  refuse(one(GgmlType::f32, {8}, 1024), "cut short");
  refuse(one(GgmlType::f32, {8}, ~std::uint64_t{31}), "cut short");
  refuse(one(static_cast<GgmlType>(77), {8}, 1024), "cut short");
  refuse(Raw(1, 0).tensor("", GgmlType::f32, {8}, 0).data(1024), "0 bytes long");
  refuse(Raw(1, 0).tensor(std::string(128, 'n'), GgmlType::f32, {8}, 0).data(1024), "128 bytes long");
  refuse(Raw(1, 0).tensor("a\nb", GgmlType::f32, {8}, 0).data(1024), "\"a\\x0ab\"");
  const auto two = [](std::string_view b, std::uint64_t offset) {
    return Raw(2, 0).tensor("a", GgmlType::f32, {16}, 0).tensor(b, GgmlType::f32, {16}, offset).data(1024);
  };
  EXPECT_TRUE(parse(two("b", 64)));
  refuse(two("a", 64), "tensor a is there twice");
  refuse(two("b", 32), "tensors a of 64 bytes");
  refuse(two("b", 0), "overlap");
  refuse(Raw(2, 0).tensor("a", GgmlType::f32, {16}, 0).tensor("b", GgmlType::iq1_s, {256}, 32).data(1024), "overlap");
  refuse(
      Raw(2, 0).tensor("a", static_cast<GgmlType>(77), {16}, 0).tensor("b", static_cast<GgmlType>(78), {1}, 0).data(99),
      "overlap");
}

TEST(GgufHeader, Alignment) {
  for (const std::uint64_t alignment : {1U, 8U, 64U, 4096U, 1U << 20}) {
    Raw raw(1, 1);
    raw.key("general.alignment", u32).number(static_cast<std::uint32_t>(alignment));
    raw.tensor("t", GgmlType::f32, {8}, alignment).data(alignment + 32, alignment);
    const auto header = parse(raw);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->alignment, alignment);
    EXPECT_EQ(header->tensors[0].offset + 32, raw.bytes().size());
  }
  for (const std::uint32_t alignment : {0U, 3U, 48U, 1U << 21, 1U << 31}) {
    Raw raw(0, 1);
    raw.key("general.alignment", u32).number(alignment);
    expect_refused(raw, Code::corrupt, fmt::format("general.alignment is {}, expected a power of two", alignment));
  }
  Raw text(0, 1);
  text.key("general.alignment", string).string("32");
  expect_refused(text, Code::corrupt, "general.alignment is \"32\"");
}

// A header longer than the window that it is read through.
TEST(GgufHeader, LongVocabulary) {
  constexpr std::size_t kTokens = 50'000;
  const auto token = [](std::size_t i) { return std::string(i % 97, static_cast<char>('a' + i % 26)); };
  Raw raw(1, 2);
  raw.array("tokenizer.ggml.tokens", string, kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) raw.string(token(i));
  raw.array("tokenizer.ggml.scores", f32, kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) raw.number(-static_cast<float>(i));
  raw.tensor("t", GgmlType::f32, {8}, 0).data(32);
  const auto header = parse(raw);
  ASSERT_TRUE(header) << header.error().message;
  const GgufMetadata copy = header->metadata;
  const auto tokens = copy.get_strings("tokenizer.ggml.tokens").value().value();
  const auto scores = copy.get_array<float>("tokenizer.ggml.scores").value().value();
  ASSERT_EQ(tokens.size(), kTokens);
  ASSERT_EQ(scores.size(), kTokens);
  for (std::size_t i = 0; i < kTokens; ++i) {
    ASSERT_EQ(tokens[i], token(i));
    ASSERT_EQ(scores[i], -static_cast<float>(i));
  }
}

// Every beginning of a good file is refused and says why.
TEST(GgufHeader, EveryTruncation) {
  Raw raw = good();
  ASSERT_TRUE(parse(raw));
  // Behind the last tensor's first byte (its size is not known) only padding follows.
  const std::size_t least = parse(raw)->data_begin + 257;
  for (std::size_t n = 0; n < raw.bytes().size(); ++n) {
    const auto header = parse(std::span(raw.bytes()).first(n));
    ASSERT_EQ(header.has_value(), n >= least) << n;
    if (header) continue;
    EXPECT_EQ(header.error().code, Code::corrupt) << n;
    EXPECT_NE(header.error().message.find("a.gguf"), std::string::npos);
  }
}

// Random damage: refused, or what is accepted is consistent. (gguf_fuzz looks further.)
TEST(GgufHeader, RandomDamage) {
  constexpr std::uint64_t kSeed = 20261201;
  CounterRandom random(kSeed);
  Raw raw = good();
  const std::vector<std::byte> whole = raw.bytes();
  int accepted = 0;
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::byte> bytes = whole;
    for (std::uint64_t n = random.below(3) + 1; n > 0; --n) {
      std::byte& b = bytes[random.below(bytes.size() - 288)];
      b = random.below(2) == 0 ? b ^ std::byte{1} << random.below(8) : static_cast<std::byte>(random.below(256));
    }
    const auto header = parse(bytes);
    if (!header) {
      ASSERT_FALSE(header.error().message.empty());
      continue;
    }
    ++accepted;
    for (const GgufTensor& t : header->tensors) {
      ASSERT_GE(t.offset, header->data_begin) << "seed " << kSeed << " round " << round;
      ASSERT_LE(t.offset + std::max<std::uint64_t>(t.bytes, 1), bytes.size()) << "seed " << kSeed << " round " << round;
    }
    for (const GgufKey& key : header->metadata.keys()) ASSERT_FALSE(header->metadata.value_text(key.name).empty());
  }
  EXPECT_GT(accepted, kRounds / 100);  // letters of names and strings, for instance
  EXPECT_LT(accepted, kRounds);
}

}  // namespace
}  // namespace myriad
