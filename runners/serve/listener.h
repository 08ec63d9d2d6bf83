// The socket at which a server waits.
#pragma once
#include <functional>
#include <string>

namespace evalrun::runners {

// Whether an address is of this machine alone: 127.0.0.0/8, ::1, localhost. usage_error for what is
// neither a numeric address nor localhost: a name may have several addresses.
bool is_loopback(const std::string& host);

class Listener {
 public:
  // Port 0: one that is free. Throws usage_error where the address is not of this machine or the
  // port is taken.
  Listener(const std::string& host, int port);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  int port() const { return port_; }
  std::string url() const;  // "http://127.0.0.1:8080"
  // The next connection; -1 once `stop`, which is asked several times a second.
  int accept(const std::function<bool()>& stop) const;
  void wake();  // has accept() ask `stop` at once; nobody can connect any more

 private:
  int socket_ = -1, port_ = 0;
  std::string host_;
};

}  // namespace evalrun::runners
