// A server on the loopback interface that does what a test says: byte for byte, with waits, and
// with connections that end too early. Not an HTTP library: broken answers are the point.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace evalrun::tests {

// A request as it was read.
struct SeenRequest {
  std::string method, path;                                  // "POST", "/v1/completions"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string text;                                 // all of it, as it came
  std::string header(std::string_view name) const;  // "" when it is missing
};

// Bytes of the body, sent after a wait. Without bytes it is a wait alone.
struct ScriptedPiece {
  std::string bytes;
  int wait_ms = 0;
  std::function<std::string()> make =
      {};  // instead of `bytes`, called after the wait; chunked only
};

struct ScriptedReply {
  int status = 200;  // 0 = none: the connection ends without an answer
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<ScriptedPiece> pieces;  // each is one chunk where `chunked`
  bool chunked = true;                // else Content-Length of all pieces
  bool cut = false;                   // the connection ends before the body does
  bool endless = false;               // the pieces again and again until the client goes away
  std::string raw = {};               // not empty: these bytes instead, then the connection ends
  bool silent = false;                // no byte ever; the connection stays open
};
ScriptedReply json_reply(std::string body, int status = 200);
// Events "data: ...\n\n", one piece each.
ScriptedReply event_reply(std::vector<std::string> events, int wait_ms = 0);

class ScriptedServer {
 public:
  using Handler = std::function<ScriptedReply(const SeenRequest&)>;
  // One thread per connection; `handler` is called with a lock held.
  explicit ScriptedServer(Handler handler);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;
  std::string url() const;  // "http://127.0.0.1:PORT"
  std::vector<SeenRequest> seen() const;
  int connections() const;  // so many were made

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace evalrun::tests
