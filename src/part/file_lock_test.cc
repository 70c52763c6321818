#include "part/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "part/part_store.h"

namespace myriad {
namespace {

namespace fs = std::filesystem;

class FileLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "myriad-lock-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "lock";
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path folder_, path_;
};

TEST_F(FileLockTest, OneAtATime) {
  auto first = FileLock::take(path_);
  ASSERT_TRUE(first) << first.error().to_string();
  const auto second = FileLock::take(path_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::busy);
  EXPECT_EQ(second.error().message, fmt::format("process {} holds {}", ::getpid(), path_.string()));
  EXPECT_TRUE(fs::exists(path_)) << "who was refused must not remove it";
  const FileLock moved = std::move(*first);
  EXPECT_FALSE(FileLock::take(path_));
}

TEST_F(FileLockTest, IsLetGoWithItsObject) {
  { ASSERT_TRUE(FileLock::take(path_)); }
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_TRUE(FileLock::take(path_));
  const auto nowhere = FileLock::take(folder_ / "no" / "lock");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, Code::not_found);
}

TEST_F(FileLockTest, AKilledProcessHoldsNothing) {
  int ready[2];
  ASSERT_EQ(::pipe2(ready, O_CLOEXEC), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = FileLock::take(path_);
    const char said = held ? 'y' : 'n';
    if (::write(ready[1], &said, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  EXPECT_EQ(said, 'y');
  const auto refused = FileLock::take(path_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find(fmt::format("process {} ", child)), std::string::npos);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(fs::exists(path_)) << "it could not tidy up";
  const auto taken = FileLock::take(path_);
  EXPECT_TRUE(taken) << taken.error().to_string();
  ::close(ready[0]);
  ::close(ready[1]);
}

// Whoever waits gets it in turn, though each holder removes the file that the others wait at.
TEST_F(FileLockTest, WhoWaitsIsNeverBesideTheHolder) {
  std::atomic<int> inside{0}, most{0}, turns{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto held = FileLock::wait(path_);
        if (!held) continue;
        const int now = ++inside;
        if (now > most) most = now;
        ++turns;
        std::this_thread::yield();
        --inside;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_EQ(turns, 200);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(FileLockTest, APartStoreIsOneNodes) {
  const auto first = PartStore::open(folder_ / "store", {});
  ASSERT_TRUE(first) << first.error().to_string();
  const auto second = PartStore::open(folder_ / "store", {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::busy);
  for (const auto& words :
       {(folder_ / "store").string(), fmt::format("process {}", ::getpid()), std::string("--store")})
    EXPECT_NE(second.error().message.find(words), std::string::npos) << second.error().message;
  EXPECT_TRUE(PartStore::open(folder_ / "another", {folder_ / "store"})) << "reading from it is free";
}

}  // namespace
}  // namespace myriad
