// One libcurl transfer at a time, waited for by poll() on the sockets that libcurl names
// (curl_multi_socket_action). curl_multi_perform() after curl_multi_poll() asks the kernel once
// more whether there is something to read.
#pragma once
#include <curl/curl.h>
#include <poll.h>

#include <cstdint>
#include <vector>

namespace evalrun::net {

class TransferLoop {
 public:
  // `multi` must outlive this.
  explicit TransferLoop(CURLM* multi);
  ~TransferLoop();  // libcurl calls nothing of this any more
  TransferLoop(const TransferLoop&) = delete;
  TransferLoop& operator=(const TransferLoop&) = delete;

  // Waits until a socket is ready, libcurl's own time has come or `most_ms` are over, and lets
  // libcurl do what there is to do. False once no transfer is left.
  bool step(int most_ms);

 private:
  static int on_socket(CURL* easy, curl_socket_t fd, int what, void* user, void* of_socket);
  static int on_timer(CURLM* multi, long wait_ms, void* user);
  void watch(curl_socket_t fd, int what);

  CURLM* multi_;
  std::vector<pollfd> sockets_;
  int64_t due_ns_ = -1;  // of the real clock: when libcurl wants to be called; -1 = not by time
};

}  // namespace evalrun::net
