#include "cli/exit_code.h"

#include <cstdio>

#include "cli/streams.h"

namespace myriad::cli {

int exit_code_of(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return kUsage;
    case Code::not_found:
    case Code::corrupt:
    case Code::unsupported:
    case Code::io:
      return kFile;
    case Code::unavailable:
    case Code::deadline:
    case Code::unauthenticated:
    case Code::version:
    case Code::busy:
    case Code::stale:
      return kFleet;
    case Code::does_not_fit:
      return kMemory;
    case Code::internal:
    case Code::cancelled:
    case Code::limit:
      break;
  }
  return kFailed;
}

void complain(std::string_view command, std::string_view sentence) {
  flush_out();
  print_err("myriad {}: {}\n", command, sentence);
}

int report(std::string_view command, const Error& error) {
  complain(command, error.to_string());
  return exit_code_of(error.code);
}

int finish(std::string_view command, const Status& status) {
  return status ? static_cast<int>(kDone) : report(command, status.error());
}

}  // namespace myriad::cli
