// Requests over HTTP with bounds: time, bytes and redirects. What a server does never throws; it is
// in the response. One libcurl handle per client, so that a connection is used again.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"

namespace evalrun::net {

struct HttpRequest {
  std::string method = "POST";     // or "GET"
  std::string url;                 // http or https
  std::string body;                // JSON where there is one
  std::string key;                 // sent as a bearer token; "" = none. In no message.
  double connect_s = 10;           // longest wait for the connection
  double total_s = 600;            // longest time of the whole exchange
  double stall_s = 60;             // longest time without a byte, the first one included
  size_t longest_body = 64 << 20;  // bytes, of a streamed body all chunks together
};

// Why there is no complete body.
enum class HttpFailure {
  kNone,
  kRefused,  // nobody listens, or the name has no address
  kTimeout,  // total_s or stall_s, or no connection within connect_s
  kBroken,   // the connection ended in the middle of a body
  kTooLong,  // more than longest_body bytes
  kStopped,  // `stop` or the receiver said so
  kOther,    // `problem` says what
};

struct HttpResponse {
  long status = 0;           // 0 = no answer
  std::string body;          // "" where it was streamed, except of a status other than 200
  std::string content_type;  // lower case, without parameters
  double retry_after_s = 0;  // of a Retry-After header in seconds; 0 = none
  HttpFailure failure = HttpFailure::kNone;
  std::string problem;        // one line for people, without the key; "" when all is well
  int64_t sent_ns = 0;        // clock when the connection stood, before the request was sent
  int64_t first_byte_ns = 0;  // clock at the first byte of the body; 0 = there was none
  int64_t end_ns = 0;         // clock after the last byte
  bool ok() const { return status == 200 && failure == HttpFailure::kNone; }
};

// Bytes of a body as they arrive, with the clock's time of their arrival. False ends the exchange.
using OnBytes = std::function<bool(std::string_view bytes, int64_t arrival_ns)>;

class HttpClient {
 public:
  // Both must outlive the client. `stop` is asked several times a second; it may be empty.
  explicit HttpClient(base::Clock& clock, std::function<bool()> stop = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Redirects are not followed, a proxy is not asked for addresses of this machine, and a key is
  // never sent unencrypted to another machine: that is a usage_error. For one thread at a time.
  HttpResponse send(const HttpRequest& request, const OnBytes& on_bytes = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether a URL names this machine (127.0.0.1, localhost, [::1]). "http://localhost:x@elsewhere" is
// a user and a password, and does not.
bool is_local(std::string_view url);
// Throws usage_error with `what` ("endpoint plain") where `url` is not http or https, or where a
// key would travel unencrypted to another machine, or the key holds a line break. `key_source` is
// what a user unsets to send no key.
void check_url(std::string_view url, std::string_view key, std::string_view what,
               std::string_view key_source = "the variable that holds it");
// `text` with every copy of the key replaced: a server may echo what it was sent.
std::string without_key(std::string text, std::string_view key);

}  // namespace evalrun::net
