#include <gtest/gtest.h>

#include "net/connection.h"

namespace myriad {
namespace {

TEST(Endpoint, IsReadAndWritten) {
  const auto read = [](std::string_view text) {
    const auto e = parse_endpoint(text, 7070);
    return e ? e->to_string() : "error";
  };
  EXPECT_EQ(read("10.0.0.5"), "10.0.0.5:7070");
  EXPECT_EQ(read("10.0.0.5:1"), "10.0.0.5:1");
  EXPECT_EQ(read("[::1]:7"), "[::1]:7");
  EXPECT_EQ(read("[::1]"), "[::1]:7070");
  EXPECT_EQ(read("::1"), "[::1]:7070");
  EXPECT_EQ(read("node-3.example.org:65535"), "node-3.example.org:65535");
  EXPECT_EQ(read("*:0"), "*:0");
  EXPECT_EQ(read(":80"), ":80");
  for (const char* bad : {"[::1", "[::1]x", "a:b", "a:", "a:65536", "a:-1", "a b:1", "http://a:1", "a:1 "})
    EXPECT_EQ(read(bad), "error") << bad;
  EXPECT_EQ(read(std::string(300, 'a')), "error");
}

}  // namespace
}  // namespace myriad
