// What `evalrun verify --endpoint` asks servers, and how: the same requests to each, by several
// clients at once. A client is a thread with a connection of its own, and takes the next request as
// soon as its last one is answered.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runners/endpoints/endpoint.h"

namespace evalrun::runners {

struct EndpointPrompt {
  std::string id;            // "gsm8k gsm8k/17"
  std::string kind;          // "ordinary", "repetitive", "tool call"
  std::vector<int32_t> ids;  // rendered, BOS included
  std::string text;          // the same, for servers that take text
};

// A user's message, before the chat template.
struct MadePrompt {
  std::string id, kind, text;
};
// Our own, six of each kind. Repetitive: look-up drafts are long there, and often refused in the
// middle. Tool call: an answer in JSON after a list of functions, where one wrong token breaks a
// program.
std::vector<MadePrompt> made_endpoint_prompts();

struct EndpointServer {
  std::string name;  // as the user calls it
  // A client for one thread. Throws what make_endpoint() throws.
  std::function<std::unique_ptr<Endpoint>()> connect;
};

struct EndpointReplies {
  std::vector<EndpointReply> replies;  // [request]; kStopped without a problem = not asked
  int failed = 0;                      // asked, and no answer
  std::string trouble;                 // of the first that failed; "" = none did
};

// After so many requests without an answer no more are sent.
inline constexpr int kMostEndpointFailures = 3;

// A reply of more tokens than asked for becomes kOverLimit. Throws an Error (kInterrupted) where
// the user stops, and what a client throws.
EndpointReplies ask_with_clients(const EndpointServer& server,
                                 std::span<const EndpointRequest> requests, int clients);

// Asks until the server says that it is ready; after `seconds` throws what it said last. `pause` is
// called between. Throws an Error (kInterrupted) once `stop` says so.
void wait_until_ready(const EndpointServer& server, double seconds, base::Clock& clock,
                      const std::function<void()>& pause, const std::function<bool()>& stop);

// Two answers to one prompt, token by token or byte by byte.
struct EndpointAnswer {
  std::span<const int32_t> ids;  // without stop tokens at the end
  std::string_view text;
};
EndpointAnswer answer_of(const EndpointReply& reply, std::span<const int32_t> stop_ids);
// Length of what they begin with alike: tokens, or bytes up to the last whole character.
size_t common_length(const EndpointAnswer& a, const EndpointAnswer& b, bool by_ids);
bool same_answer(const EndpointAnswer& a, const EndpointAnswer& b, bool by_ids);

}  // namespace evalrun::runners
