// A controller's status (Fleet::status_json) for people.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace myriad::cli {

// The memory account, one line a node. Errors: corrupt.
Result<std::string> account_of_status(std::string_view status_json);
// State, model, nodes, stages, the last events.
Result<std::string> status_text(std::string_view status_json);

}  // namespace myriad::cli
