// How a command ends: its exit code, and one sentence on standard error when it failed.
#pragma once

#include <string_view>

#include "base/error.h"

namespace myriad::cli {

// Part of the interface (docs/cli.md, `myriad --help`): never renumber.
enum Exit : int {
  kDone = 0,
  kFailed = 1,  // the work itself failed: bad input on stdin, a run that broke off, a bug
  kUsage = 2,   // an option or argument that makes no sense
  kFile = 3,    // a model, text or token file that is missing, damaged or of a kind that nothing here reads
  kFleet = 4,   // a fleet, controller or node that is not there, not ready, refuses the token or answers too late
  kMemory = 5,  // more memory is needed than was given
};
int exit_code_of(Code code);

// `myriad COMMAND: SENTENCE` on standard error; returns the exit code of the error.
int report(std::string_view command, const Error& error);
void complain(std::string_view command, std::string_view sentence);
// kDone, or what report() says.
int finish(std::string_view command, const Status& status);

}  // namespace myriad::cli
