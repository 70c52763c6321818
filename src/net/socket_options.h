// Private to net/*.cc: the options that every TCP socket of a fleet gets.
#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

#include "base/error.h"

namespace myriad {

// No delay for small frames; "cubic" for congestion control where it is to be had, else "reno" (bbr, the default of
// some hosts, paces its packets and is slow between processes of one machine); kernel keep-alives, so that a peer whose
// machine vanished while nothing was being said is noticed in minutes. Whatever the kernel refuses is left as it is.
void set_socket_options(int fd);

// "10.0.0.5" for 10.0.0.5 and ::ffff:10.0.0.5, "fe80::1" for IPv6.
std::string numeric_address(const boost::asio::ip::address& address);

// Out of descriptors or memory for sockets: worth waiting for.
bool is_resource_shortage(const boost::system::error_code& error);

}  // namespace myriad
