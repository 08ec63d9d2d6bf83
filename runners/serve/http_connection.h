// One connection of HTTP/1.1, seen from the server: requests are read with bounds, answers written
// with deadlines. Boost.Beast parses; sockets are POSIX, because Beast's synchronous calls know no
// time limit.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::runners {

struct HttpLimits {
  size_t header = 16 << 10, body = 8 << 20;  // bytes
  double idle_s = 15;                        // longest wait for a request on an open connection
  double read_s = 30;                        // longest time from a request's first byte to its last
  double write_s = 30;  // longest time in which a client takes nothing of an answer
};

struct HttpQuery {
  std::string method, path;   // "POST", "/v1/completions", without what follows a "?"
  std::string authorization;  // of the header, "" = none
  std::string body;
  bool keep_alive = true;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpConnection {
 public:
  // Owns `socket` and closes it. `stop` is asked several times a second while a request is awaited.
  HttpConnection(int socket, const HttpLimits& limits, std::function<bool()> stop);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // The next request. Neither a query nor a status: nobody asks any more. A status is what is to be
  // answered to bytes that are no request within the limits (400, 408, 413, 431); the connection is
  // of no use afterwards.
  struct Read {
    std::optional<HttpQuery> query = {};
    int refused = 0;
    std::string why = {};
  };
  Read read();

  // False where the client has gone, or takes nothing for too long.
  bool respond(int status, std::string_view content_type, std::string_view body, bool keep_alive,
               const HttpHeaders& more = {});
  // An answer whose end is not known yet: a beginning, pieces, an end.
  bool begin_chunks(std::string_view content_type, bool keep_alive);
  bool chunk(std::string_view bytes);  // not empty
  bool end_chunks();
  // Whether the client has closed its side; asked between steps.
  bool gone() const;
  // Ends our side and lets the client read what was sent: a connection that is closed with bytes
  // unread is reset, and the answer may be lost.
  void drain(double seconds);

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Fill { kBytes, kClosed, kLate, kStopped };
  Fill fill(Time deadline);
  bool send(std::string_view bytes);
  std::string head(int status, std::string_view content_type, bool keep_alive) const;

  const int socket_;
  const HttpLimits limits_;
  const std::function<bool()> stop_;
  std::string rest_;          // bytes that were read and are not parsed yet
  std::optional<Time> last_;  // once the server is to end: nothing is sent after it
};

}  // namespace evalrun::runners
