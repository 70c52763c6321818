#include "net/token_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/sha256.h"

namespace myriad {
namespace {

constexpr std::size_t kTokenRandomBytes = 32;

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::string system_error() {
  return std::strerror(errno);
}

}  // namespace

Result<std::string> random_hex(std::size_t bytes) {
  std::vector<std::byte> random(bytes);
  for (std::size_t at = 0; at < bytes;) {
    const ssize_t got = ::getrandom(random.data() + at, bytes - at, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(Code::io, "asking the system for {} random bytes: {}", bytes, system_error());
    at += static_cast<std::size_t>(got);
  }
  return to_hex(random);
}

Result<std::string> read_token_file(const std::filesystem::path& path, Secret secret) {
  const std::string_view what = secret == Secret::api_key ? "API key" : "fleet token";
  // Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0)
    return fail(errno == ENOENT ? Code::not_found : Code::io, "reading the {} file {}: {}", what, path.string(),
                system_error());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    return fail(Code::io, "reading the {} file {}: {}", what, path.string(), system_error());
  if (!S_ISREG(info.st_mode))
    return fail(Code::invalid_argument, "reading the {} file {}: it is not a regular file", what, path.string());
  // One byte more than any token with its line's end, so that a longer file is noticed.
  std::array<char, kMaxTokenBytes + 3> buffer{};
  std::size_t size = 0;
  while (size < buffer.size()) {
    const ssize_t got = ::read(file.get(), buffer.data() + size, buffer.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(Code::io, "reading the {} file {}: {}", what, path.string(), system_error());
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  std::string token(buffer.data(), size);
  while (!token.empty() &&
         (token.back() == '\n' || token.back() == '\r' || token.back() == ' ' || token.back() == '\t'))
    token.pop_back();
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes)
    return fail(Code::invalid_argument,
                "the {} in {} has {} bytes, expected {} to {}; `openssl rand -hex 32` makes a good one", what,
                path.string(), size == buffer.size() ? "too many" : std::to_string(token.size()), kMinTokenBytes,
                kMaxTokenBytes);
  for (const char c : token)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f)
      return fail(Code::invalid_argument,
                  "the {} in {} has more than one line or a control character; expected one line", what, path.string());
  if ((info.st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0)
    log(LogLevel::warning, "event=token_file_open_to_others file={} mode={:o} try={}", log_value(path.string()),
        info.st_mode & 0777U, log_value("chmod 600 " + path.string()));
  return token;
}

Result<std::string> create_token_file(const std::filesystem::path& path) {
  MYRIAD_TRY(std::string token, random_hex(kTokenRandomBytes));
  const File file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return fail(Code::io, "making the fleet token file {}: {}", path.string(), system_error());
  const std::string line = token + "\n";
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t put = ::write(file.get(), line.data() + at, line.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      const std::string why = system_error();
      ::unlink(path.c_str());  // half a token must not be found next time
      return fail(Code::io, "writing the fleet token file {}: {}", path.string(), why);
    }
    at += static_cast<std::size_t>(put);
  }
  if (::fsync(file.get()) != 0)
    return fail(Code::io, "writing the fleet token file {}: {}", path.string(), system_error());
  return token;
}

}  // namespace myriad
