// Private to net/*.cc: a TCP connection to an endpoint: resolves its name, tries every address.
#pragma once

#include <functional>

#include "net/connection.h"
#include "net/reactor_impl.h"

namespace myriad {

// From any thread; `done` on the loop's thread, once, within `timeout`. Errors name the endpoint: unavailable,
// not_found (the name), deadline.
void dial(const std::shared_ptr<Core>& core, Endpoint to, Nanos timeout,
          std::function<void(Result<boost::asio::ip::tcp::socket>)> done);

}  // namespace myriad
