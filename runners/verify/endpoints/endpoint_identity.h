// Greedy answers of a server with speculation against those of the same model without, under load
// and over restarts. The plain server is asked everything that the other one is asked, at as many
// clients and after as many restarts, and once more at rest. How far it differs from itself is the
// null: nothing is assumed about number formats, kernels or batches.
//
// The first difference of an answer is
// - a near tie, when the plain server itself gave that answer in another pass; or gives the other
//   token when it is asked with the common prefix, alone or beside others; or when the gap of
//   log-probabilities between both tokens is no wider than what it shows of itself
//   (PlainRange::bound);
// - a state fault, when it is no near tie and comes and goes with what should not matter: it needs
//   neighbours, or a restart, or a refused draft, or what follows is garbage;
// - else a difference.
// Where the plain server differs from itself and gives no log-probabilities, a difference that it
// does not show when asked again stays open.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runners/verify/endpoints/endpoint_answers.h"
#include "runners/verify/endpoints/endpoint_divergence.h"

namespace evalrun::runners {

struct EndpointIdentityOptions {
  std::vector<int> clients = {1, 2, 4, 8};  // ascending; begins with 1
  int max_new = 64;
  int restarts = 0;
  // Restarts both servers and waits until they are ready; called `restarts` times.
  std::function<void()> restart;
  std::vector<int32_t> stop_ids;  // of the model
  std::function<void(const std::string& what, double share_done)> progress;
};

// One server, asked all prompts once.
struct EndpointPass {
  bool speculative = false;
  int clients = 1;
  int restart = 0;     // how many came before
  bool again = false;  // the plain server at rest once more
  EndpointReplies answers;
  int differing = 0;  // of a plain pass: answers that are not those of the first one
};

struct EndpointIdentity {
  bool by_ids = false;  // else answers were compared as text
  std::vector<EndpointPass> passes;
  PlainRange range;
  std::vector<EndpointDivergence> divergences;  // of speculative passes, in their order
  // Of the speculative server, over all passes.
  int answers = 0, identical = 0;
  int64_t tokens = 0;                        // compared and equal, before any difference
  std::optional<int64_t> drafted, accepted;  // absent where it does not count
  std::string trouble;                       // requests without an answer
  int count(DivergenceKind kind) const;
};

// Throws an Error (kInterrupted), and what the servers' clients and `restart` throw. A server that
// fails ends the passes: what was seen until then is judged.
EndpointIdentity compare_endpoints(const EndpointServer& speculative, const EndpointServer& plain,
                                   const std::vector<EndpointPrompt>& prompts,
                                   const EndpointIdentityOptions& options);

}  // namespace evalrun::runners
