#include "runners/serve/listener.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

constexpr int kAcceptPollMs = 100;
constexpr int kWaitingConnections = 64;

struct SocketAddress {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
  bool loopback = false;
  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
};

SocketAddress address_of(const std::string& host, int port) {
  const std::string text = host == "localhost" ? "127.0.0.1" : host;
  SocketAddress address;
  sockaddr_in v4 = {};
  sockaddr_in6 v6 = {};
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&address.bytes, &v4, sizeof v4);
    address.size = sizeof v4;
    address.loopback = (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(port));
    std::memcpy(&address.bytes, &v6, sizeof v6);
    address.size = sizeof v6;
    address.loopback = std::memcmp(&v6.sin6_addr, &in6addr_loopback, sizeof v6.sin6_addr) == 0;
  } else {
    throw base::usage_error(fmt::format("'{}' is neither a numeric address nor localhost", host),
                            "127.0.0.1 is this machine alone, 0.0.0.0 all of its addresses");
  }
  return address;
}

}  // namespace

bool is_loopback(const std::string& host) { return address_of(host, 0).loopback; }

Listener::Listener(const std::string& host, int port) : host_(host) {
  SocketAddress address = address_of(host, port);
  socket_ = ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (socket_ >= 0) ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (socket_ < 0 || ::bind(socket_, address.generic(), address.size) != 0 ||
      ::listen(socket_, kWaitingConnections) != 0) {
    const int why = errno;
    if (socket_ >= 0) ::close(socket_);
    throw base::usage_error(
        fmt::format("cannot listen at {}, port {}: {}", host, port, std::strerror(why)),
        why == EADDRINUSE ? "another program has this port: choose another one, or --port 0 for "
                            "any that is free"
                          : "choose another --host or --port");
  }
  if (::getsockname(socket_, address.generic(), &address.size) == 0) {
    uint16_t number = 0;  // at the same place in both kinds of addresses
    std::memcpy(&number, reinterpret_cast<const char*>(&address.bytes) + sizeof(sa_family_t),
                sizeof number);
    port_ = ntohs(number);
  }
}

Listener::~Listener() { ::close(socket_); }

std::string Listener::url() const {
  return host_.find(':') == std::string::npos ? fmt::format("http://{}:{}", host_, port_)
                                              : fmt::format("http://[{}]:{}", host_, port_);
}

void Listener::wake() { ::shutdown(socket_, SHUT_RDWR); }

int Listener::accept(const std::function<bool()>& stop) const {
  while (!stop()) {
    pollfd wanted{socket_, POLLIN, 0};
    if (::poll(&wanted, 1, kAcceptPollMs) <= 0) continue;
    const int connection = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
      // Out of descriptors, say: what is open ends some time.
      if (errno != EINTR && errno != ECONNABORTED && !stop()) ::poll(nullptr, 0, kAcceptPollMs);
      continue;
    }
    const int on = 1;  // a step's tokens are sent at once, not gathered
    ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
  }
  return -1;
}

}  // namespace evalrun::runners
