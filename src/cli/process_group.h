// Starting, watching and ending the processes of a fleet on this machine. They are this same program with another
// subcommand.
//
// A child says that it is up (or why it is not) by one line of JSON on the pipe whose number it gets as `--ready-fd`;
// see cli/service.h for its side.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace myriad::cli {

using SteadyTime = std::chrono::steady_clock::time_point;

// A process by more than its number, which the system gives to others later.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start = 0;  // clock ticks after the machine's start
  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};
bool is_running(const ProcessId& process);

struct ChildOptions {
  std::vector<std::string> arguments;  // after the program's name: subcommand and its options
  std::filesystem::path log;           // standard output and error go to its end; empty: they are inherited
  Bytes data_limit;                    // RLIMIT_DATA: private writable memory; 0: none
  bool dies_with_parent = true;        // else it is a session of its own that outlives this process
  bool ready_pipe = true;              // `--ready-fd N` is added to the arguments
  // Called with the new process while it waits; it runs the program only if this succeeds, and never if this process
  // ends before. So whoever is written down here cannot be lost.
  std::function<Status(const ProcessId&)> record;
};

// A started child. Movable; says nothing when it is destroyed.
struct Child {
  ProcessId id;
  int ready = -1;  // reading end, -1 if there is none any more
  std::filesystem::path log;
};

// Errors: io, those of `record`.
Result<Child> spawn(const ChildOptions& options);
// The child's line. Errors: what the child reported; unavailable if it ended without one (with the end of its log);
// deadline; cancelled, if the descriptor `stop` became readable before.
Result<std::string> wait_ready(Child& child, SteadyTime deadline, int stop = -1);
// How a child ended: -1 while it runs, its exit code, or 128 + the signal. Only for own children.
int exit_status(const Child& child);
// Blocks until an own child has ended; the same numbers.
int wait_exit(const Child& child);

// SIGTERM to all, SIGKILL to those that are still there after `grace`; returns when all have ended. Own children are
// reaped. Processes that are gone already, or whose number belongs to somebody else now, are left alone.
void stop_all(std::span<const ProcessId> processes, std::chrono::milliseconds grace);
// SIGKILL to one, and waits for its end. False if it was gone already.
bool kill_now(const ProcessId& process);

// The end of a log, at most `bytes`, whole lines.
std::string tail_of(const std::filesystem::path& log, std::size_t bytes);

}  // namespace myriad::cli
