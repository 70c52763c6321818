// What is said when a process cannot listen where it was told to.
#pragma once

#include <boost/system/error_code.hpp>
#include <string>

#include "base/error.h"

namespace myriad {

// Why this process cannot listen there, and what to try. `error`: of the system, or of looking the name up. Errors:
// busy (the port is in use), invalid_argument (this machine has no such address), io.
std::unexpected<Error> cannot_listen(const std::string& at, const boost::system::error_code& error);

}  // namespace myriad
