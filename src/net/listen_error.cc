#include "net/listen_error.h"

#include <boost/asio/error.hpp>

namespace myriad {

std::unexpected<Error> cannot_listen(const std::string& at, const boost::system::error_code& error) {
  if (error == boost::asio::error::address_in_use)
    return fail(Code::busy,
                "listening on {}: the port is in use; end the process that listens there, or choose another port (0 "
                "takes a free one)",
                at);
  if (error == boost::asio::error::access_denied)
    return fail(Code::io,
                "listening on {}: {}; ports below 1024 are kept for privileged processes: choose a higher one, such as "
                "8080",
                at, error.message());
  const bool is_system = error.category() == boost::system::system_category();
  if (!is_system || error.value() == EADDRNOTAVAIL || error.value() == EINVAL || error.value() == ENODEV ||
      error.value() == EAFNOSUPPORT)
    return fail(Code::invalid_argument,
                "listening on {}: {}; expected an address or name of this machine; try 127.0.0.1, which only this "
                "machine reaches, or * for every address of this machine",
                at, is_system ? error.message() : "the name cannot be resolved (" + error.message() + ")");
  return fail(Code::io, "listening on {}: {}; try another address or port", at, error.message());
}

}  // namespace myriad
