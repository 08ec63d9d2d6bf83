#include "tests/endpoints/scripted_server.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "engine/base/text.h"
#include "tests/loopback.h"

namespace evalrun::tests {

namespace {

bool read_more(int fd, std::string& bytes) {
  char buffer[16384];
  const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  bytes.append(buffer, static_cast<size_t>(n));
  return true;
}

void parse_head(std::string_view head, SeenRequest* request) {
  const std::vector<std::string> lines = base::split(head, '\n');
  const std::vector<std::string> first = base::split(lines.front(), ' ');
  request->method = first.front();
  if (first.size() > 1) request->path = first[1];
  for (size_t i = 1; i < lines.size(); ++i) {
    const size_t colon = lines[i].find(':');
    if (colon == std::string::npos) continue;
    std::string name = lines[i].substr(0, colon);
    for (char& c : name)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    request->headers.emplace_back(
        name, std::string(base::trim(std::string_view(lines[i]).substr(colon + 1))));
  }
}

// From what was read already and what comes. None where the other side has closed.
std::optional<SeenRequest> read_request(int fd, std::string& bytes) {
  size_t head = 0;
  while ((head = bytes.find("\r\n\r\n")) == std::string::npos)
    if (!read_more(fd, bytes)) return std::nullopt;
  SeenRequest request;
  parse_head(std::string_view(bytes).substr(0, head), &request);
  const std::string length = request.header("content-length");
  const size_t begin = head + 4, size = length.empty() ? 0 : std::stoul(length);
  while (bytes.size() < begin + size)
    if (!read_more(fd, bytes)) return std::nullopt;
  request.body = bytes.substr(begin, size);
  request.text = bytes.substr(0, begin + size);
  bytes.erase(0, begin + size);
  return request;
}

std::string head_of(const ScriptedReply& reply) {
  std::string head = fmt::format("HTTP/1.1 {} Scripted\r\n", reply.status);
  if (reply.chunked) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (reply.endless) {
    head += "Connection: close\r\n";
  } else {
    size_t size = reply.cut ? 1 : 0;  // a byte that never comes
    for (const ScriptedPiece& piece : reply.pieces) size += piece.bytes.size();
    head += fmt::format("Content-Length: {}\r\n", size);
  }
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head + "\r\n";
}

// An empty chunk would be the last one.
std::string as_chunk(const std::string& bytes) {
  return bytes.empty() ? "" : fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace

std::string SeenRequest::header(std::string_view name) const {
  for (const auto& [one, value] : headers)
    if (one == name) return value;
  return "";
}

ScriptedReply json_reply(std::string body, int status) {
  ScriptedReply reply;
  reply.status = status;
  reply.headers = {{"Content-Type", "application/json"}};
  reply.pieces.push_back({std::move(body), 0});
  reply.chunked = false;
  return reply;
}

ScriptedReply event_reply(std::vector<std::string> events, int wait_ms) {
  ScriptedReply reply;
  reply.headers = {{"Content-Type", "text/event-stream"}};
  for (const std::string& event : events)
    reply.pieces.push_back({fmt::format("data: {}\n\n", event), wait_ms});
  return reply;
}

struct ScriptedServer::Impl {
  explicit Impl(Handler h) : handler(std::move(h)), acceptor([this] { accept_all(); }) {}

  void accept_all() {
    while (wait(0)) {
      pollfd p{listener.fd(), POLLIN, 0};
      if (::poll(&p, 1, 20) != 1) continue;
      const int fd = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const std::scoped_lock lock(mutex);
      if (end) {
        ::close(fd);
        return;
      }
      open.insert(fd);
      threads.emplace_back([this, fd] { serve(fd); });
    }
  }

  void serve(int fd) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::string bytes;
    while (const std::optional<SeenRequest> request = read_request(fd, bytes)) {
      {
        const std::scoped_lock lock(mutex);
        seen.push_back(*request);
      }
      if (!answer(fd, handle(*request))) break;
    }
    const std::scoped_lock lock(mutex);
    open.erase(fd);
    ::close(fd);
  }

  ScriptedReply handle(const SeenRequest& request) {
    const std::scoped_lock lock(handling);
    return handler(request);
  }

  // False: the connection ends.
  bool answer(int fd, const ScriptedReply& reply) {
    if (reply.silent) {
      while (wait(1000)) {
      }
      return false;
    }
    if (!reply.raw.empty()) {
      send_all(fd, reply.raw);
      return false;
    }
    if (reply.status == 0 || !send_all(fd, head_of(reply))) return false;
    do {
      for (const ScriptedPiece& piece : reply.pieces) {
        if (!wait(piece.wait_ms)) return false;
        const std::string bytes = piece.make ? piece.make() : piece.bytes;
        if (!send_all(fd, reply.chunked ? as_chunk(bytes) : bytes)) return false;
      }
    } while (reply.endless && wait(0));
    if (reply.cut) return false;
    return !reply.chunked || send_all(fd, "0\r\n\r\n");
  }

  // False when the server ends.
  bool wait(int ms) {
    std::unique_lock lock(mutex);
    return !ending.wait_for(lock, std::chrono::milliseconds(ms), [this] { return end; });
  }

  const Handler handler;
  LoopbackListener listener{64};
  std::mutex handling;       // while the handler is called; it may ask for seen()
  mutable std::mutex mutex;  // of what follows
  std::condition_variable ending;
  bool end = false;
  std::set<int> open;  // connections
  std::vector<SeenRequest> seen;
  std::vector<std::thread> threads;  // one per connection
  std::thread acceptor;              // last: it uses everything above
};

ScriptedServer::ScriptedServer(Handler handler)
    : impl_(std::make_unique<Impl>(std::move(handler))) {}

ScriptedServer::~ScriptedServer() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->end = true;
    // Threads that read or send on them get an error.
    for (const int fd : impl_->open) ::shutdown(fd, SHUT_RDWR);
    ::shutdown(impl_->listener.fd(), SHUT_RDWR);
  }
  impl_->ending.notify_all();
  impl_->acceptor.join();
  for (std::thread& thread : impl_->threads) thread.join();
}

std::string ScriptedServer::url() const {
  return fmt::format("http://127.0.0.1:{}", impl_->listener.port());
}

std::vector<SeenRequest> ScriptedServer::seen() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->seen;
}

int ScriptedServer::connections() const {
  const std::scoped_lock lock(impl_->mutex);
  return static_cast<int>(impl_->threads.size());
}

}  // namespace evalrun::tests
