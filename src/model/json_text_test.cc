#include "model/json_text.h"

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace myriad {
namespace {

// Parsed and written again.
std::string again(std::string_view text, JsonStyle style = JsonStyle::spaced) {
  const auto value = parse_json_text(text);
  if (!value) return "error: " + value.error().message;
  return json_text(*value, style).value_or("error");
}

// Expectations are what Python 3.11's json.dumps(json.loads(text), ensure_ascii=False) prints.
TEST(JsonText, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(again("[1, -0, 007]"), "error: parsing JSON: '0' at byte 9 where ',' or ']' is expected");
  EXPECT_EQ(again("[0,-0,-0.0,1.0,10.50,1e3,1E-7]"), "[0, 0, -0.0, 1.0, 10.5, 1000.0, 1e-07]");
  EXPECT_EQ(again("[1e15,1e16,123456789012345680.0,0.0001,0.00001]"),
            "[1000000000000000.0, 1e+16, 1.2345678901234568e+17, 0.0001, 1e-05]");
  EXPECT_EQ(again("[5e-324,1.7976931348623157e308,0.1,0.30000000000000004]"),
            "[5e-324, 1.7976931348623157e+308, 0.1, 0.30000000000000004]");
  EXPECT_EQ(again("[9223372036854775807,-9223372036854775808,18446744073709551615]"),
            "[9223372036854775807, -9223372036854775808, 18446744073709551615]");
  EXPECT_EQ(again("[123456789012345678901234567890,-18446744073709551616]"),
            "[123456789012345678901234567890, -18446744073709551616]");
  EXPECT_EQ(again("[1e999,-1e999,1e-999,NaN,Infinity,-Infinity]"),
            "[Infinity, -Infinity, 0.0, NaN, Infinity, -Infinity]");
  EXPECT_EQ(again("[-1e-999999999999999999999999,0e999999999999999999999]"), "[-0.0, 0.0]");
  EXPECT_EQ(again("[" + std::string(400, '1') + "e-399," + std::string(400, '1') + "e0,0." + std::string(400, '0') +
                  "1e401]"),
            "[1.1111111111111112, Infinity, 1.0]");
}

TEST(JsonText, WritesStringsAsPythonDoes) {
  EXPECT_EQ(again(R"("\u0041\n\r\t\b\f\"\\\/\u001f\u007f")"), "\"A\\n\\r\\t\\b\\f\\\"\\\\/\\u001f\x7F\"");
  EXPECT_EQ(again(R"("é\u00e9\ud83d\ude00")"), "\"éé😀\"");
  EXPECT_EQ(again(R"("\ud83d x \ude00")"), "\"\xEF\xBF\xBD x \xEF\xBF\xBD\"");
  EXPECT_EQ(again(R"("\ud83d\u0041")"),
            "\"\xEF\xBF\xBD"
            "A\"");
}

TEST(JsonText, KeepsTheOrderOfMembersAndTheLastOfEqualOnes) {
  EXPECT_EQ(again(R"({"b":1,"a":{"z":[],"y":{}},"b":2})"), R"({"b": 2, "a": {"z": [], "y": {}}})");
  EXPECT_EQ(again(R"({"b":1,"a":[{"z":0,"é":1,"Z":2}]})", JsonStyle::compact_sorted),
            R"({"a":[{"Z":2,"z":0,"é":1}],"b":1})");
  EXPECT_EQ(again(R"({"b":1, "a":2})", JsonStyle::compact), R"({"b":1,"a":2})");
  std::string many = "{", expected = "{";
  for (int i = 0; i < 40; ++i) {
    many += fmt::format(R"("k{}":0,)", i);
    expected += fmt::format(R"({}"k{}": {})", i > 0 ? ", " : "", i, i == 30 ? 7 : 0);
  }
  EXPECT_EQ(again(many + R"("k30":7})"), expected + "}");
}

TEST(JsonText, SaysWhereTextIsNoJson) {
  for (const char* text : {"",         " ",           "{",           "[",
                           "[1",       "[1,]",        "[,]",         "{\"a\"}",
                           "{\"a\":}", "{\"a\":1,}",  "{a:1}",       "\"",
                           "\"\\x\"",  "\"\\u12G4\"", "\"\\u-123\"", "\"\n\"",
                           "nul",      "-",           "+1",          "1.",
                           ".5",       "1e",          "1 2",         "[1]]",
                           "{}x",      "'a'",         "\"\xFF\"",    "\"\xE2\x82\"",
                           "01",       "[1 2]",       "{\"a\" 1}",   "\xEF\xBB\xBF{}"}) {
    const auto value = parse_json_text(text);
    ASSERT_FALSE(value) << text;
    EXPECT_EQ(value.error().code, Code::corrupt) << text;
    EXPECT_NE(value.error().message.find("byte"), std::string::npos);
  }
}

TEST(JsonText, LimitsNestingAndDigits) {
  const std::string deep(kMaxJsonDepth, '['), end(kMaxJsonDepth, ']');
  EXPECT_TRUE(parse_json_text(deep + end));
  EXPECT_EQ(again(deep + end), deep + end);
  for (const std::string& text : {"[" + deep + end + "]", std::string(1'000'000, '['), std::string(5000, '1')}) {
    const auto value = parse_json_text(text);
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, Code::limit);
  }
  nlohmann::ordered_json nested;
  for (std::size_t i = 0; i < kMaxJsonDepth + 2; ++i) nested = nlohmann::ordered_json::array({std::move(nested)});
  EXPECT_FALSE(json_text(nested, JsonStyle::spaced));
}

// A look-up by linear search for each of them would take minutes.
TEST(JsonText, ManyMembersTakeNoQuadraticTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += fmt::format("{}\"{}\":{}", i > 0 ? "," : "", i, i);
  const auto start = std::chrono::steady_clock::now();
  const auto value = parse_json_text(text + "}");
  ASSERT_TRUE(value);
  EXPECT_EQ(value->size(), 200'000U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(JsonText, ReadsBackEveryDoubleThatItWrites) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  for (int i = 0; i < 20'000; ++i) {
    const double value = std::bit_cast<double>(rng());
    if (!std::isfinite(value)) continue;
    const std::string text = *json_text(value, JsonStyle::spaced);
    const auto read = parse_json_text(text);
    ASSERT_TRUE(read && read->is_number_float()) << text;
    EXPECT_EQ(read->get<double>(), value) << text;
  }
}

}  // namespace
}  // namespace myriad
