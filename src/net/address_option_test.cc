#include "net/address_option.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace myriad {
namespace {

template <class T>
void expect_refused(const Result<T>& result, std::string_view option, std::string_view found, std::string_view why) {
  ASSERT_FALSE(result) << found;
  EXPECT_EQ(result.error().code, Code::invalid_argument);
  const std::string& said = result.error().message;
  EXPECT_TRUE(said.starts_with(fmt::format("reading the option {}", option))) << said;
  for (const std::string& words :
       {fmt::format("\"{}\"", found), std::string(why), std::string("expected "), fmt::format("try {}", option)})
    EXPECT_NE(said.find(words), std::string::npos) << words << " in: " << said;
}

TEST(AddressOption, ListensAndJoins) {
  EXPECT_EQ(parse_listen_option("--http", "*", 8080)->to_string(), "*:8080");
  EXPECT_EQ(parse_listen_option("--http", ":81", 8080)->to_string(), ":81");
  EXPECT_EQ(parse_listen_option("--http", "127.0.0.1:0", 8080)->port, 0);
  EXPECT_EQ(parse_join_option("--join", "node-1.example.org", 7200)->to_string(), "node-1.example.org:7200");
  EXPECT_EQ(parse_join_option("--join", "[fe80::1%eth0]:1", 7200)->to_string(), "[fe80::1%eth0]:1");
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"999.1.1.1", "0 to 255"}, {"1.2.3:80", "four numbers"}, {"1.2.3.4:80:90", "IPv6"},
      {"[1.2.3.4]x", "bracket"}, {"[::g]:1", "IPv6"},          {"[::1", "bracket"},
      {"a host", "characters"},  {"http://a:1", "characters"}, {"*.example.org", "stands alone"},
      {"a:99999", "0 to 65535"}, {"a:x", "0 to 65535"}};
  for (const auto& [text, why] : wrong) {
    expect_refused(parse_listen_option("--http", text, 8080), "--http", text, why);
    expect_refused(parse_join_option("--join", text, 7200), "--join", text, why);
  }
  expect_refused(parse_listen_option("--http", "", 8080), "--http", "", "empty");
  for (const char* text : {"", "*", ":7200", "*:7200"})
    expect_refused(parse_join_option("--join", text, 7200), "--join", text, "no host");
  expect_refused(parse_join_option("--join", "a:0", 7200), "--join", "a:0", "port 0");
}

TEST(AddressOption, PortsHostsAndOrigins) {
  EXPECT_EQ(parse_port_option("--http-port", "65535", 7201), 65535);
  for (const char* text : {"", "65536", "-1", "x", "80x"})
    expect_refused(parse_port_option("--http-port", text, 7201), "--http-port", text, "no port");
  EXPECT_EQ(parse_host_option("--advertise", ""), "");
  EXPECT_EQ(parse_host_option("--advertise", "10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(parse_host_option("--advertise", "fe80::7"), "fe80::7");
  EXPECT_EQ(parse_host_option("--advertise", "[fe80::7]"), "fe80::7");
  expect_refused(parse_host_option("--advertise", "10.0.0.7:80"), "--advertise", "10.0.0.7:80", "has a port");
  expect_refused(parse_host_option("--advertise", "10.0.0.7:1"), "--advertise", "10.0.0.7:1", "has a port");
  expect_refused(parse_host_option("--advertise", "*"), "--advertise", "*", "no host");
  expect_refused(parse_host_option("--advertise", "999.1.1.1"), "--advertise", "999.1.1.1", "0 to 255");
  for (const char* text : {"*", "null", "https://chat.example.org", "http://127.0.0.1:3000", "tauri://localhost"})
    EXPECT_EQ(parse_origin_option("--cors-origin", text), text);
  const std::vector<std::pair<std::string, std::string>> wrong = {{"999.1.1.1", "no scheme"},
                                                                  {"", "no scheme"},
                                                                  {"https://a.example/", "a path"},
                                                                  {"https://", "no host"},
                                                                  {"https://a b", "characters"}};
  for (const auto& [text, why] : wrong)
    expect_refused(parse_origin_option("--cors-origin", text), "--cors-origin", text, why);
}

}  // namespace
}  // namespace myriad
