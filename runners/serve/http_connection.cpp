#include "runners/serve/http_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cerrno>
#include <cstdint>

namespace evalrun::runners {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using RequestParser = http::request_parser<http::string_body>;
using SteadyTime = std::chrono::steady_clock;

constexpr int kLookForStopMs = 100;

SteadyTime::time_point seconds_from_now(double seconds) {
  return SteadyTime::now() +
         std::chrono::duration_cast<SteadyTime::duration>(std::chrono::duration<double>(seconds));
}

std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

HttpQuery query_of(RequestParser& parser) {
  HttpQuery query;
  query.keep_alive = parser.keep_alive();
  auto& message = parser.get();
  query.method = text_of(message.method_string());
  query.path = text_of(message.target());
  query.path = query.path.substr(0, query.path.find('?'));
  query.authorization = text_of(message[http::field::authorization]);
  query.body = std::move(message.body());
  return query;
}

// What a parser's error is answered with.
HttpConnection::Read refusal(const beast::error_code& error, const HttpLimits& limits) {
  if (error == http::error::body_limit)
    return {.refused = 413, .why = fmt::format("the body is longer than {} bytes", limits.body)};
  if (error == http::error::header_limit)
    return {.refused = 431,
            .why = fmt::format("the header is longer than {} bytes", limits.header)};
  return {.refused = 400, .why = fmt::format("this is no HTTP/1.1 request: {}", error.message())};
}

}  // namespace

HttpConnection::HttpConnection(int socket, const HttpLimits& limits, std::function<bool()> stop)
    : socket_(socket), limits_(limits), stop_(std::move(stop)) {}

HttpConnection::~HttpConnection() { ::close(socket_); }

HttpConnection::Read HttpConnection::read() {
  RequestParser parser;
  parser.eager(true);
  parser.header_limit(static_cast<std::uint32_t>(limits_.header));
  parser.body_limit(static_cast<std::uint64_t>(limits_.body));
  bool begun = !rest_.empty(), continued = false;
  Time deadline = seconds_from_now(begun ? limits_.read_s : limits_.idle_s);
  while (true) {
    if (!rest_.empty()) {
      beast::error_code error;
      const size_t n = parser.put(boost::asio::const_buffer(rest_.data(), rest_.size()), error);
      rest_.erase(0, n);
      if (error && error != http::error::need_more) return refusal(error, limits_);
      if (parser.is_done()) return {.query = query_of(parser)};
      // libcurl waits for this before it sends a large body.
      if (!continued && parser.is_header_done() &&
          text_of(parser.get()[http::field::expect]) == "100-continue") {
        continued = true;
        if (!send("HTTP/1.1 100 Continue\r\n\r\n")) return {};
      }
    }
    switch (fill(deadline)) {
      case Fill::kBytes:
        break;
      case Fill::kLate:
        if (!begun) return {};
        return {.refused = 408,
                .why = fmt::format("the request took more than {} seconds", limits_.read_s)};
      case Fill::kClosed:
      case Fill::kStopped:
        return {};
    }
    if (!begun) deadline = seconds_from_now(limits_.read_s);
    begun = true;
  }
}

HttpConnection::Fill HttpConnection::fill(Time deadline) {
  std::array<char, 1 << 16> buffer;
  while (true) {
    if (stop_()) return Fill::kStopped;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyTime::now());
    if (left.count() <= 0) return Fill::kLate;
    pollfd wanted{socket_, POLLIN, 0};
    const int ready =
        ::poll(&wanted, 1, static_cast<int>(std::min<int64_t>(left.count(), kLookForStopMs)));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t n = ready < 0 ? -1 : ::recv(socket_, buffer.data(), buffer.size(), 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return Fill::kClosed;
    rest_.append(buffer.data(), static_cast<size_t>(n));
    return Fill::kBytes;
  }
}

bool HttpConnection::send(std::string_view bytes) {
  Time deadline = seconds_from_now(limits_.write_s);
  while (!bytes.empty()) {
    // A client that reads slowly does not hold back a server that is to end.
    if (!last_ && stop_()) last_ = seconds_from_now(1);
    if (const Time now = SteadyTime::now(); now >= deadline || (last_ && now >= *last_))
      return false;
    pollfd wanted{socket_, POLLOUT, 0};
    const int ready = ::poll(&wanted, 1, kLookForStopMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0) return false;
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
    deadline = seconds_from_now(limits_.write_s);
  }
  return true;
}

std::string HttpConnection::head(int status, std::string_view content_type, bool keep_alive) const {
  const auto reason = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nConnection: {}\r\n", status,
                     text_of(reason), content_type, keep_alive ? "keep-alive" : "close");
}

bool HttpConnection::respond(int status, std::string_view content_type, std::string_view body,
                             bool keep_alive, const HttpHeaders& more) {
  std::string text = head(status, content_type, keep_alive);
  for (const auto& [name, value] : more) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("Content-Length: {}\r\n\r\n", body.size());
  text += body;
  return send(text);
}

bool HttpConnection::begin_chunks(std::string_view content_type, bool keep_alive) {
  return send(head(200, content_type, keep_alive) +
              "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool HttpConnection::chunk(std::string_view bytes) {
  return send(fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes));
}

bool HttpConnection::end_chunks() { return send("0\r\n\r\n"); }

bool HttpConnection::gone() const {
  char byte = 0;
  const ssize_t n = ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

void HttpConnection::drain(double seconds) {
  ::shutdown(socket_, SHUT_WR);
  const Time deadline = seconds_from_now(seconds);
  while (fill(deadline) == Fill::kBytes) rest_.clear();
}

}  // namespace evalrun::runners
