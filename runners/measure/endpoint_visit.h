// A conversation with a server that is measured over HTTP: what is sent, what of the answer is kept
// and when it came. The counterpart of generation.h.
#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "methods/open_turn.h"
#include "results/store.h"
#include "runners/endpoints/endpoint.h"
#include "runners/measure/generation.h"
#include "runners/measure/progress.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"

namespace evalrun::runners {

// A server that every further request would fail at, too: it is down, refuses the key, or has
// another model. Ends the run as a DeviceFault does: what is stored stays.
class EndpointGone : public base::Error {
 public:
  // `place`: in the run.
  EndpointGone(const std::string& place, const std::string& problem)
      : Error(base::ExitCode::kData, place + ": " + problem,
              "run the same command again when the server answers: it goes on after what is "
              "stored") {}
};
// The user wants to stop in the middle of a request: it is asked again when the run is resumed.
class EndpointStopped : public std::exception {
 public:
  const char* what() const noexcept override { return "interrupted in the middle of a request"; }
};

// A server's answer as a turn: cut as OpenTurn cuts, with the time of each piece.
struct AnsweredTurn {
  results::TurnRecord turn;
  // As it was sent, where the server gave text alone and nothing was cut. Else the text is that of
  // the tokens.
  std::optional<std::string> text;
};
// Times: prefill_ns is that of the piece with the first token, decode_ns from there to the piece
// with the last one that is kept. A piece is a step: tokens but for the answer's first, and
// verify_ns since the piece before. Where the server says that a stop token ended the answer and
// does not give it, the model's first stop token stands for it, at the time of the last byte.
AnsweredTurn answered_turn(const EndpointReply& reply, const methods::TurnRequest& request,
                           const Conversation& conversation);

// All turns of one conversation from seed g.seed; adds turns, texts and the times of tokenising and
// detokenising to `g`. Throws std::runtime_error where this request failed, EndpointGone where all
// would, EndpointStopped. `max_new`: limit of every turn, 0 = the prompt's.
void ask_conversation(const RunPlan& plan, const Conversation& conversation,
                      const PlannedPrompt& planned, Endpoint& endpoint, base::Clock& clock,
                      results::GenerationRecord& g, int max_new = 0);

// Connects the arms that are servers and asks each for its model, which is stored with the run.
// Throws data_error: a server is down, loads for too long, or has another model than when the run
// began.
void connect_endpoints(std::span<RunningArm> arms, int64_t run_id, results::ResultStore& store,
                       base::Clock& clock, const std::function<bool()>& stop);

// As warm_up(), of the arms that are servers: the suite's number of requests, or short ones until
// the times of pieces settle, five at most.
void warm_up_endpoints(const RunPlan& plan, const Conversation& conversation,
                       std::span<const Visit* const> pending, std::span<RunningArm> arms,
                       base::Clock& clock, ProgressSink& progress,
                       const std::function<bool()>& stop);

}  // namespace evalrun::runners
