#include "net/token_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "base/log.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class TokenFile : public ::testing::Test {
 protected:
  void SetUp() override {
    log_configure(LogLevel::off, "");
    std::string name = (fs::temp_directory_path() / "myriad-token-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(std::string_view text) const {
    const fs::path file = folder_ / "token";
    std::ofstream(file, std::ios::trunc) << text;
    return file;
  }
  fs::path folder_;
};

TEST_F(TokenFile, MadeOnceAndReadBack) {
  const fs::path file = folder_ / "fleet.token";
  const auto made = create_token_file(file);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->size(), 64U);
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_EQ(read_token_file(file).value(), *made);
  EXPECT_EQ(create_token_file(file).error().code, Code::io);  // an existing one is left alone
  EXPECT_EQ(read_token_file(file).value(), *made);
  EXPECT_NE(create_token_file(folder_ / "another").value(), *made);
}

TEST_F(TokenFile, AnExistingLinkIsNotFollowed) {
  const fs::path target = folder_ / "target", link = folder_ / "link";
  fs::create_symlink(target, link);
  EXPECT_FALSE(create_token_file(link));
  EXPECT_FALSE(fs::exists(target));
}

TEST_F(TokenFile, WhiteSpaceAtTheEndIsNoPartOfIt) {
  EXPECT_EQ(read_token_file(write("0123456789abcdef")).value(), "0123456789abcdef");
  EXPECT_EQ(read_token_file(write("0123456789abcdef\n")).value(), "0123456789abcdef");
  EXPECT_EQ(read_token_file(write("0123456789abcdef \r\n")).value(), "0123456789abcdef");
}

TEST_F(TokenFile, RefusesWhatIsNoToken) {
  const auto code = [&](std::string_view text) { return read_token_file(write(text)).error().code; };
  EXPECT_EQ(code(""), Code::invalid_argument);
  EXPECT_EQ(code("\n\n\n"), Code::invalid_argument);
  EXPECT_EQ(code("too short"), Code::invalid_argument);
  EXPECT_EQ(code(std::string(kMaxTokenBytes + 1, 'x')), Code::invalid_argument);
  EXPECT_EQ(code(std::string(1'000'000, 'x')), Code::invalid_argument);
  EXPECT_EQ(code("0123456789abcdef\nanother line\n"), Code::invalid_argument);
  EXPECT_EQ(read_token_file(write(std::string(kMaxTokenBytes, 'x') + "\n"))->size(), kMaxTokenBytes);
  EXPECT_EQ(read_token_file(folder_ / "absent").error().code, Code::not_found);
  EXPECT_EQ(read_token_file(folder_).error().code, Code::invalid_argument);
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_token_file(pipe).error().code, Code::invalid_argument);  // and does not wait for a writer
}

TEST_F(TokenFile, TheErrorDoesNotTellTheToken) {
  const auto error = read_token_file(write("secret\nsecret\nsecret\nsecret")).error();
  EXPECT_EQ(error.message.find("secret"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace myriad
