#include "cli/process_group.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

namespace myriad::cli {
namespace {

constexpr std::size_t kMaxReadyBytes = std::size_t{16} << 10;
constexpr std::size_t kTailBytes = 600;

// Ticks after boot at which a process began (field 22 of /proc/PID/stat), 0 if it is gone or a zombie.
std::uint64_t start_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::size_t name_end = text.rfind(')');  // the name may hold spaces and parentheses
  if (name_end == std::string::npos) return 0;
  std::size_t at = name_end + 1;
  std::string_view rest = std::string_view(text).substr(at);
  std::uint64_t value = 0;
  for (int field = 3; field <= 22; ++field) {
    while (rest.starts_with(' ')) rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (field == 3 && (word == "Z" || word == "X")) return 0;
    if (field == 22) value = std::strtoull(std::string(word).c_str(), nullptr, 10);
    rest.remove_prefix(word.size());
  }
  return value;
}

int until(SteadyTime deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 1 << 30));
}

// A descriptor that becomes readable when the process ends; -1 if the system has none.
int open_pid(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

// Waits until the process has ended. An own child is reaped.
bool wait_end(const ProcessId& process, SteadyTime deadline) {
  const int fd = open_pid(process.pid);
  while (is_running(process)) {
    const int left = until(deadline);
    if (left == 0) break;
    pollfd p{fd, POLLIN, 0};
    if (fd >= 0)
      poll(&p, 1, left);
    else
      poll(nullptr, 0, std::min(left, 20));  // a kernel before 5.3: look again
    if (fd >= 0 && (p.revents & POLLIN) != 0) break;
  }
  if (fd >= 0) close(fd);
  waitpid(process.pid, nullptr, WNOHANG);
  return !is_running(process);
}

void stop(const ProcessId& process, int signal) {
  if (is_running(process)) kill(process.pid, signal);
}

// In the child, between fork and exec: only calls that are safe there. Never returns.
// `recorded` is the pipe on which the parent says that the program may run.
[[noreturn]] void become(const ChildOptions& options, char* const* arguments, int ready, int log, pid_t parent,
                         const int (&recorded)[2]) {
  if (options.dies_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
  } else {
    setsid();
  }
  if (options.data_limit.value != 0) {
    const rlimit limit{options.data_limit.value, options.data_limit.value};
    setrlimit(RLIMIT_DATA, &limit);
  }
  if (recorded[0] >= 0) {
    close(recorded[1]);
    char byte = 0;
    if (read(recorded[0], &byte, 1) != 1) _exit(127);  // all signals are blocked: nothing interrupts it
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {  // the parent's handlers are not for this process
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDWR);
  if (null >= 0) dup2(null, STDIN_FILENO);
  if (log >= 0) {
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
  } else if (null >= 0) {
    dup2(null, STDOUT_FILENO);
  }
  if (ready >= 0) fcntl(ready, F_SETFD, 0);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

}  // namespace

bool is_running(const ProcessId& process) {
  return process.pid > 0 && process.start != 0 && start_of(process.pid) == process.start;
}

Result<Child> spawn(const ChildOptions& options) {
  std::vector<std::string> words{"myriad"};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  int pipe_ends[2] = {-1, -1};
  if (options.ready_pipe) {
    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
      return fail(Code::io, "starting a process: no pipe: {}", std::strerror(errno));
    words.emplace_back("--ready-fd");
    words.push_back(std::to_string(pipe_ends[1]));
  }
  int log = -1;
  if (!options.log.empty()) {
    log = open(options.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
      const int why = errno;
      for (const int fd : pipe_ends)
        if (fd >= 0) close(fd);
      return fail(Code::io, "starting a process: its log {} cannot be opened: {}", options.log.string(),
                  std::strerror(why));
    }
  }
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::fflush(nullptr);  // or the child would have a copy of what is buffered
  const pid_t parent = getpid();
  int recorded[2] = {-1, -1};
  int why = options.record && pipe2(recorded, O_CLOEXEC) != 0 ? errno : 0;
  pid_t pid = -1;
  if (why == 0) {
    sigset_t all, here;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &here);  // the child runs no handler of this process
    pid = fork();
    if (pid == 0) become(options, arguments.data(), pipe_ends[1], log, parent, recorded);
    why = errno;
    pthread_sigmask(SIG_SETMASK, &here, nullptr);
  }
  for (const int fd : {log, pipe_ends[1]})
    if (fd >= 0) close(fd);
  Child child{{pid, pid > 0 ? start_of(pid) : 0}, pipe_ends[0], options.log};
  Status status = pid < 0 ? fail(Code::io, "starting a process: {}", std::strerror(why)) : Status{};
  if (status && options.record) status = options.record(child.id);
  if (recorded[1] >= 0) {
    if (status && write(recorded[1], "", 1) != 1)
      status = fail(Code::io, "starting a process: {}", std::strerror(errno));
    for (const int fd : recorded) close(fd);
    if (!status && pid > 0) wait_exit(child);  // it has seen that it may not run
  }
  if (status) return child;
  if (child.ready >= 0) close(child.ready);
  return std::unexpected(std::move(status).error());
}

Result<std::string> wait_ready(Child& child, SteadyTime deadline, int stop) {
  std::string text;
  bool ended = false;
  while (!ended && text.find('\n') == std::string::npos && text.size() < kMaxReadyBytes) {
    pollfd p[2] = {{child.ready, POLLIN, 0}, {stop, POLLIN, 0}};
    const int n = poll(p, 2, until(deadline));
    if (n < 0 && errno == EINTR) continue;
    if (n > 0 && p[1].revents != 0) return fail(Code::cancelled, "interrupted before it was ready");
    if (n <= 0)
      return fail(Code::deadline, "a process did not say in time that it is ready; its log {} ends with:\n{}",
                  child.log.string(), tail_of(child.log, kTailBytes));
    char buffer[4096];
    const ssize_t got = read(child.ready, buffer, sizeof buffer);
    if (got > 0)
      text.append(buffer, static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
      ended = true;
  }
  close(child.ready);
  child.ready = -1;
  text = text.substr(0, text.find('\n'));
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    const int status = wait_exit(child);
    return fail(Code::unavailable, "a process ended before it was ready ({} {}); its log {} ends with:\n{}",
                status > 128 ? "signal" : "exit code", status > 128 ? status - 128 : status, child.log.string(),
                tail_of(child.log, kTailBytes));
  }
  if (json.contains("error") && json["error"].is_string()) {
    const int code = json.contains("code") && json["code"].is_number_integer() ? json["code"].get<int>() : 0;
    return std::unexpected(
        Error{code >= 0 && code <= static_cast<int>(Code::stale) ? static_cast<Code>(code) : Code::internal,
              json["error"].get<std::string>(),
              {},
              {}});
  }
  return text;
}

int exit_status(const Child& child) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(child.id.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return -1;
  return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

int wait_exit(const Child& child) {
  int status = 0;
  while (waitpid(child.id.pid, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void stop_all(std::span<const ProcessId> processes, std::chrono::milliseconds grace) {
  for (const auto& process : processes) stop(process, SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + grace;
  for (const auto& process : processes)
    if (!wait_end(process, deadline)) stop(process, SIGKILL);
  for (const auto& process : processes) wait_end(process, std::chrono::steady_clock::now() + std::chrono::seconds(5));
}

bool kill_now(const ProcessId& process) {
  if (!is_running(process)) return false;
  stop(process, SIGKILL);
  wait_end(process, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  return true;
}

std::string tail_of(const std::filesystem::path& log, std::size_t bytes) {
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const auto size = static_cast<std::size_t>(in.tellg());
  const std::size_t from = size > bytes ? size - bytes : 0;
  in.seekg(static_cast<std::streamoff>(from));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (from != 0)
    if (const auto line = text.find('\n'); line != std::string::npos) text.erase(0, line + 1);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace myriad::cli
