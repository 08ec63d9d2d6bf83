// What test servers share: a port on the loopback interface, and sending all of a text.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

#include "engine/base/error.h"

namespace evalrun::tests {

class LoopbackListener {
 public:
  explicit LoopbackListener(int waiting) {
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EVALRUN_CHECK(::bind(fd_, generic, size) == 0 && ::listen(fd_, waiting) == 0);
    EVALRUN_CHECK(::getsockname(fd_, generic, &size) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackListener() { ::close(fd_); }
  LoopbackListener(const LoopbackListener&) = delete;
  LoopbackListener& operator=(const LoopbackListener&) = delete;
  int fd() const { return fd_; }
  int port() const { return port_; }

 private:
  int fd_ = -1, port_ = 0;
};

// False where the other side has closed.
inline bool send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace evalrun::tests
