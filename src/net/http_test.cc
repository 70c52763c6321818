#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/log.h"
#include "base/sha256.h"
#include "net/event_test.h"
#include "net/http_client.h"
#include "net/http_files.h"
#include "net/http_message.h"
#include "net/raw_peer_test.h"

namespace myriad {
namespace {

using namespace std::chrono_literals;
using test::Mailbox;
using test::RawListener;
using test::RawPeer;

TEST(HttpMessage, RangesAreReadAgainstASize) {
  ByteRange r;
  EXPECT_EQ(parse_http_range("bytes=0-9", 100, r), RangeKind::part);
  EXPECT_EQ(r.last, 9u);
  EXPECT_EQ(parse_http_range("bytes=90-", 100, r), RangeKind::part);
  EXPECT_EQ(r.first, 90u);
  EXPECT_EQ(r.last, 99u);
  EXPECT_EQ(parse_http_range("bytes=90-500", 100, r), RangeKind::part);
  EXPECT_EQ(r.last, 99u);
  EXPECT_EQ(parse_http_range("bytes=-10", 100, r), RangeKind::part);
  EXPECT_EQ(r.first, 90u);
  EXPECT_EQ(parse_http_range("bytes=-1000", 100, r), RangeKind::part);
  EXPECT_EQ(r.first, 0u);
  EXPECT_EQ(parse_http_range("bytes=100-", 100, r), RangeKind::unsatisfiable);
  EXPECT_EQ(parse_http_range("bytes=0-", 0, r), RangeKind::unsatisfiable);
  EXPECT_EQ(parse_http_range("bytes=-0", 100, r), RangeKind::unsatisfiable);
  for (const char* ignored : {"bytes=9-1", "bytes=0-1,5-6", "lines=0-1", "bytes=", "bytes=-", "bytes=a-", "bytes=1-x",
                              "bytes=99999999999999999999-", "bytes=+1-2"})
    EXPECT_EQ(parse_http_range(ignored, 100, r), RangeKind::whole) << ignored;
}

TEST(HttpMessage, HeadsAreReadStrictly) {
  const auto good = parse_http_request("GET /a?b HTTP/1.1\r\nHost: x\r\nRANGE:  bytes=1-2 \r\n\r\n");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->target, "/a?b");
  EXPECT_EQ(good->fields.only("range"), "bytes=1-2");
  for (const char* bad : {"", "GET\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET x HTTP/1.1\r\n\r\n",
                          "GET /a b HTTP/1.1\r\n\r\n", "G T / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nnocolon\r\n\r\n",
                          "GET / HTTP/1.1\r\n: x\r\n\r\n", "GET / HTTP/1.1\r\na b: x\r\n\r\n",
                          "GET / HTTP/1.1\r\n folded: x\r\n\r\n", "GET / HTTP/1.1\r\na: \x01\r\n\r\n"})
    EXPECT_FALSE(parse_http_request(bad)) << bad;
  EXPECT_EQ(parse_http_response("HTTP/1.1 206 Partial Content\r\n\r\n")->status, 206);
  EXPECT_FALSE(parse_http_response("HTTP/1.1 2066\r\n\r\n"));
  EXPECT_FALSE(parse_http_response("ICY 200 OK\r\n\r\n"));
  const auto range = parse_content_range("bytes 5-9/10");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->total, 10u);
  for (const char* bad : {"bytes 9-5/10", "bytes 5-10/10", "bytes */10", "5-9/10", "bytes 5-9", "bytes 5-9/*"})
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  std::string many = "GET / HTTP/1.1\r\n";
  for (std::size_t i = 0; i <= kMaxHttpFields; ++i) many += "a: b\r\n";
  EXPECT_EQ(parse_http_request(many + "\r\n").error().code, Code::limit);
}

class Http : public ::testing::Test {
 protected:
  void SetUp() override {
    log_configure(LogLevel::off, "");
    directory_ = std::filesystem::temp_directory_path() / fmt::format("myriad-http-{}", ::getpid());
    std::filesystem::create_directories(directory_);
    std::mt19937 random(9);
    data_.resize(3000007);
    for (char& c : data_) c = static_cast<char>(random());
    std::ofstream(directory_ / "part", std::ios::binary) << data_;
    std::ofstream(directory_ / "empty", std::ios::binary);
    std::ofstream(directory_ / "secret", std::ios::binary) << "not to be served";
    reactor_.start();
    auto files = HttpFiles::open(
        reactor_, {"", 0},
        [this](std::string_view path) -> std::optional<std::filesystem::path> {
          if (path == "/parts/one") return directory_ / "part";
          if (path == "/empty") return directory_ / "empty";
          if (path == "/directory") return directory_;
          if (path == "/gone") return directory_ / "gone";
          return std::nullopt;
        },
        [](std::string_view ticket) {
          return equal_constant_time(std::as_bytes(std::span(ticket)),
                                     std::as_bytes(std::span(std::string_view("ticket-1"))));
        },
        {.max_connections = 8, .head_timeout = 500ms, .idle_timeout = 5s});
    ASSERT_TRUE(files) << files.error().message;
    files_ = std::move(*files);
  }
  void TearDown() override {
    reactor_.stop();
    std::filesystem::remove_all(directory_);
  }

  // Returns what came, and how it ended.
  std::pair<std::string, Status> fetch(std::uint16_t port, std::string path, std::string ticket, std::uint64_t offset,
                                       std::uint64_t total, std::size_t stop_after = SIZE_MAX, Nanos idle = 5s) {
    std::string got;
    Mailbox<Status> done;
    http_get_range(
        reactor_, {"127.0.0.1", port}, std::move(path), std::move(ticket), offset, total,
        [&](std::span<const std::byte> bytes) -> Status {
          EXPECT_LE(bytes.size(), std::size_t{64} << 10);
          got.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          if (got.size() > stop_after) return fail(Code::io, "the disk is full");
          return {};
        },
        idle, [&](Status s) { done.put(std::move(s)); });
    auto end = done.take();
    return {std::move(got), end ? std::move(*end) : fail(Code::internal, "never ended")};
  }

  // A raw request to the server; everything it answers until it closes.
  std::string ask(const std::string& request) {
    const RawPeer peer = RawPeer::dial(files_->port());
    peer.write(request);
    return text_of(peer.read(std::size_t{4} << 20));
  }
  static std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // What a server that answers with `response` makes of a fetch of bytes [2, 10).
  Error error_of(const std::string& response, Nanos idle = 5s) {
    RawListener listener;
    Mailbox<Status> done;
    http_get_range(
        reactor_, {"127.0.0.1", listener.port()}, "/x", "t", 2, 10, [](auto) { return Status{}; }, idle,
        [&](Status s) { done.put(std::move(s)); });
    RawPeer peer = listener.accept();
    std::string request;
    while (!http_head_end(request)) {
      const auto byte = peer.read(1);
      if (byte.empty()) break;
      request += text_of(byte);
    }
    peer.write(response);
    if (response.empty()) {
      const auto end = done.take();
      return end && !*end ? end->error() : Error{};
    }
    peer.close();
    const auto end = done.take();
    return end && !*end ? end->error() : Error{};
  }

  std::filesystem::path directory_;
  std::string data_;
  std::unique_ptr<HttpFiles> files_;
  Reactor reactor_;
};

TEST_F(Http, AnInterruptedFetchGoesOnWhereItWas) {
  const auto [first, interrupted] = fetch(files_->port(), "/parts/one", "ticket-1", 0, data_.size(), 1000000);
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().message, "the disk is full");
  EXPECT_GT(first.size(), 1000000u);
  const auto [rest, end] = fetch(files_->port(), "/parts/one", "ticket-1", first.size(), data_.size());
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_TRUE(first + rest == data_);
  const auto [nothing, done] = fetch(files_->port(), "/parts/one", "ticket-1", data_.size(), data_.size());
  EXPECT_TRUE(done);
  EXPECT_EQ(nothing, "");
}

TEST_F(Http, FetchErrorsSayWhatToDo) {
  const auto port = files_->port();
  const auto code = [&](auto outcome) { return outcome.second ? Code::internal : outcome.second.error().code; };
  EXPECT_EQ(code(fetch(port, "/parts/one", "ticket-2", 0, data_.size())), Code::unauthenticated);
  EXPECT_EQ(code(fetch(port, "/parts/two", "ticket-1", 0, data_.size())), Code::not_found);
  EXPECT_EQ(code(fetch(port, "/parts/one", "ticket-1", 0, data_.size() - 1)), Code::corrupt);
  EXPECT_EQ(code(fetch(port, "/parts/one", "ticket-1", data_.size() + 5, data_.size() + 9)), Code::corrupt);
  EXPECT_EQ(code(fetch(port, "/parts/one", "a\r\nb", 0, 1)), Code::invalid_argument);
  EXPECT_EQ(code(fetch(port, "/a b", "t", 0, 1)), Code::invalid_argument);
  EXPECT_EQ(code(fetch(port, "/a", "t", 2, 1)), Code::invalid_argument);
  const auto outcome = fetch(port, "/parts/two", "ticket-1", 0, 5);
  EXPECT_NE(outcome.second.error().message.find(fmt::format("http://127.0.0.1:{}/parts/two", port)), std::string::npos)
      << outcome.second.error().message;
}

TEST_F(Http, OtherServersAreNotTrusted) {
  const std::string good = "HTTP/1.1 206 Partial Content\r\nContent-Length: 8\r\nContent-Range: bytes 2-9/10\r\n\r\n";
  EXPECT_EQ(error_of(good + "1234").code, Code::unavailable);  // cut short
  EXPECT_EQ(error_of(good + "123456789").code, Code::corrupt);
  EXPECT_EQ(error_of("HTTP/1.1 206 P\r\nContent-Length: 8\r\nContent-Range: bytes 0-7/10\r\n\r\n").code, Code::corrupt);
  EXPECT_EQ(error_of("HTTP/1.1 206 P\r\nContent-Length: 8\r\n\r\n").code, Code::corrupt);
  EXPECT_EQ(error_of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").code, Code::unsupported);
  EXPECT_EQ(error_of("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n").code, Code::corrupt);
  EXPECT_EQ(error_of("HTTP/1.1 503 Busy\r\n\r\n").code, Code::busy);
  EXPECT_EQ(error_of("HTTP/1.1 500 Oops\r\n\r\n").code, Code::unavailable);
  EXPECT_EQ(error_of("nonsense\r\n\r\n").code, Code::corrupt);
  EXPECT_EQ(error_of("HTTP/1.1 206 P\r\nx: " + std::string(kMaxHttpHeadBytes, 'x')).code, Code::limit);
  EXPECT_EQ(error_of("", 150ms).code, Code::deadline);
}

TEST_F(Http, AServerThatIgnoresTheRangeIsReadPast) {
  RawListener listener;
  Mailbox<std::string> done;
  std::string got;
  http_get_range(
      reactor_, {"127.0.0.1", listener.port()}, "/x", "t", 2, 10,
      [&](std::span<const std::byte> b) {
        got.append(reinterpret_cast<const char*>(b.data()), b.size());
        return Status{};
      },
      5s, [&](Status s) { done.put(s ? got : s.error().message); });
  const RawPeer peer = listener.accept();
  peer.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789");
  EXPECT_EQ(done.take(), "23456789");
}

TEST_F(Http, StatusesAreRight) {
  const std::string host = "Host: x\r\n";
  const std::string ticket = host + "Authorization: Bearer ticket-1\r\nConnection: close\r\n";
  const auto begins = [&](const std::string& request, std::string_view status) {
    const std::string answer = ask(request);
    EXPECT_EQ(answer.substr(0, 12), fmt::format("HTTP/1.1 {}", status)) << request << answer.substr(0, 200);
    return answer;
  };
  EXPECT_TRUE(begins("GET /parts/one HTTP/1.1\r\n" + ticket + "\r\n", "200").ends_with(data_));
  EXPECT_TRUE(begins("GET /parts/one?x HTTP/1.1\r\n" + ticket + "Range: bytes=5-8\r\n\r\n", "206")
                  .ends_with("\r\n\r\n" + data_.substr(5, 4)));
  const auto head = begins("HEAD /parts/one HTTP/1.1\r\n" + ticket + "\r\n", "200");
  EXPECT_NE(head.find("Content-Length: 3000007\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  EXPECT_TRUE(begins("GET /empty HTTP/1.1\r\n" + ticket + "\r\n", "200").ends_with("\r\n\r\n"));
  begins("GET /parts/one HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", "401");
  begins("GET /parts/one HTTP/1.1\r\n" + host + "Connection: close\r\nAuthorization: Bearer \r\n\r\n", "401");
  begins("GET /nothing HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
         "401");  // says nothing about names to strangers
  for (const char* path : {"/nothing", "/../secret", "/parts/../../secret", "/directory", "/gone", "/parts/one/"})
    begins(fmt::format("GET {} HTTP/1.1\r\n{}\r\n", path, ticket), "404");
  EXPECT_NE(begins("GET /parts/one HTTP/1.1\r\n" + ticket + "Range: bytes=3000007-\r\n\r\n", "416")
                .find("Content-Range: bytes */3000007\r\n"),
            std::string::npos);
  EXPECT_NE(begins("POST /parts/one HTTP/1.1\r\n" + ticket + "\r\n", "405").find("Allow: GET, HEAD"),
            std::string::npos);
  begins("GET /parts/one HTTP/1.1\r\n" + ticket + "Content-Length: 5\r\n\r\nhello", "400");
  begins("GET /parts/one HTTP/1.1\r\n\r\n", "400");
  begins("hello\r\n\r\n", "400");
  begins("GET / HTTP/1.1\r\nx: " + std::string(kMaxHttpHeadBytes, 'x'), "431");
}

TEST_F(Http, AConnectionServesManyRequestsAndSlowHeadsEnd) {
  const RawPeer peer = RawPeer::dial(files_->port());
  const std::string request =
      "GET /parts/one HTTP/1.1\r\nHost: x\r\nAuthorization: bearer ticket-1\r\nRange: bytes=7-9\r\n\r\n";
  std::string expected;
  peer.write(request + request);  // one after the other in one packet
  peer.write(request.substr(0, 20));
  std::string got;
  for (int i = 0; i < 2; ++i) {
    std::string answer;
    while (!http_head_end(answer)) {
      const auto byte = peer.read(1);
      ASSERT_FALSE(byte.empty());
      answer += text_of(byte);
    }
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 206"));
    EXPECT_EQ(text_of(peer.read(3)), data_.substr(7, 3));
  }
  peer.write(request.substr(20));
  EXPECT_TRUE(text_of(peer.read(12)).starts_with("HTTP/1.1 206"));
  const RawPeer slow = RawPeer::dial(files_->port());
  slow.write("GET / HT");
  EXPECT_TRUE(slow.closed_by_peer());
}

TEST_F(Http, TooManyVisitorsAreTurnedAway) {
  std::vector<RawPeer> visitors;
  for (int i = 0; i < 8; ++i) visitors.push_back(RawPeer::dial(files_->port()));
  EXPECT_TRUE(RawPeer::dial(files_->port()).closed_by_peer());
}

}  // namespace
}  // namespace myriad
