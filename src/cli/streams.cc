#include "cli/streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "cli/exit_code.h"

namespace myriad::cli {
namespace {

int first_failure = 0;  // errno of the first write to standard output that failed

void note_failure() {
  if (first_failure == 0) first_failure = errno != 0 ? errno : EIO;
}

}  // namespace

void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) (void)open("/dev/null", O_RDWR);  // takes the lowest free number
}

void write_out(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) note_failure();
}

void write_err(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
  (void)std::fflush(stderr);
}

void flush_out() {
  errno = 0;
  if (std::fflush(stdout) != 0) note_failure();
}

int end_streams(int code) {
  flush_out();
  errno = 0;
  if (std::ferror(stdout) != 0) note_failure();  // written by others, such as help
  if (first_failure == 0 || first_failure == EPIPE) return code;
  print_err("myriad: writing to standard output: {}; the output is not complete\n", std::strerror(first_failure));
  return code == kDone ? static_cast<int>(kFailed) : code;
}

}  // namespace myriad::cli
