#include "engine/net/transfer_loop.h"

#include <algorithm>
#include <cerrno>

#include "engine/base/clock.h"
#include "engine/base/error.h"

namespace evalrun::net {

namespace {

int64_t loop_clock_ns() { return base::SteadyClock().now_ns(); }

int ready_for(short events) {
  int what = 0;
  if ((events & (POLLIN | POLLHUP)) != 0) what |= CURL_CSELECT_IN;
  if ((events & POLLOUT) != 0) what |= CURL_CSELECT_OUT;
  if ((events & (POLLERR | POLLNVAL)) != 0) what |= CURL_CSELECT_ERR;
  return what;
}

}  // namespace

TransferLoop::TransferLoop(CURLM* multi) : multi_(multi) {
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &on_socket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &on_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
}

TransferLoop::~TransferLoop() {
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, static_cast<curl_socket_callback>(nullptr));
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION,
                    static_cast<curl_multi_timer_callback>(nullptr));
}

void TransferLoop::watch(curl_socket_t fd, int what) {
  const auto is_it = [fd](const pollfd& one) { return one.fd == fd; };
  const auto known = std::find_if(sockets_.begin(), sockets_.end(), is_it);
  if (what == CURL_POLL_REMOVE) {
    if (known != sockets_.end()) sockets_.erase(known);
    return;
  }
  pollfd& socket = known == sockets_.end() ? sockets_.emplace_back() : *known;
  socket.fd = fd;
  socket.events = 0;
  if (what == CURL_POLL_IN || what == CURL_POLL_INOUT) socket.events |= POLLIN;
  if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT) socket.events |= POLLOUT;
}

int TransferLoop::on_socket(CURL*, curl_socket_t fd, int what, void* user, void*) {
  static_cast<TransferLoop*>(user)->watch(fd, what);
  return 0;
}

int TransferLoop::on_timer(CURLM*, long wait_ms, void* user) {
  static_cast<TransferLoop*>(user)->due_ns_ =
      wait_ms < 0 ? -1 : loop_clock_ns() + wait_ms * int64_t{1'000'000};
  return 0;
}

bool TransferLoop::step(int most_ms) {
  int wait_ms = most_ms;
  if (due_ns_ >= 0) {
    const int64_t left_ns = std::max<int64_t>(0, due_ns_ - loop_clock_ns());
    wait_ms = static_cast<int>(std::min<int64_t>(most_ms, (left_ns + 999'999) / 1'000'000));
  }
  int ready = 0;
  if (wait_ms > 0 || !sockets_.empty()) {
    ready = ::poll(sockets_.data(), sockets_.size(), wait_ms);
    EVALRUN_CHECK(ready >= 0 || errno == EINTR, "poll: errno {}", errno);
  }
  int running = 1;
  if (ready > 0) {
    // libcurl changes the list while it is told.
    const std::vector<pollfd> told = sockets_;
    for (const pollfd& socket : told)
      if (socket.revents != 0)
        EVALRUN_CHECK(curl_multi_socket_action(multi_, socket.fd, ready_for(socket.revents),
                                               &running) == CURLM_OK);
  }
  if (due_ns_ >= 0 && loop_clock_ns() >= due_ns_) {
    due_ns_ = -1;
    EVALRUN_CHECK(curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running) == CURLM_OK);
  }
  return running > 0;
}

}  // namespace evalrun::net
