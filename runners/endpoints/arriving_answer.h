// One answer while it arrives: pieces with the time of their arrival, and what they add up to.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runners/endpoints/endpoint.h"
#include "runners/endpoints/joined_text.h"

namespace evalrun::runners {

// What one event of a stream brought. It may hold no token (text that was held back), or several.
struct AnswerPiece {
  std::string text = {};              // as the server cut it
  std::vector<int32_t> ids = {};      // empty where the API has none
  std::optional<int64_t> total = {};  // tokens of the answer so far, as it counts
  std::vector<std::vector<EndpointLogProb>> log_probs = {};  // by token of this piece
};

class ArrivingAnswer {
 public:
  explicit ArrivingAnswer(const EndpointRequest& asked) : request(asked) {}

  // The event that is read now: the clock's time of its arrival, and whether its text was hidden
  // (joined_text.h).
  void begin_event(int64_t ns, bool hidden);
  void add(AnswerPiece piece);
  // More tokens than were asked for; where nothing is counted, more pieces than they could make.
  bool over_limit() const;
  // After the last event: arrivals count from `sent_ns`, and ids, tokens of pieces and
  // log-probabilities that do not cover the whole answer are taken away.
  void finish(int64_t sent_ns);

  const EndpointRequest& request;  // must outlive this
  EndpointReply reply;             // stop, counts and model are for the API to fill
  bool done = false;               // for the API to set: the last event was read

 private:
  void count_by_totals();
  JoinedText joined_;
  std::vector<std::optional<int64_t>> totals_;  // of arrivals
  int64_t now_ns_ = 0, pieces_ = 0, total_ = 0;
  bool hidden_ = false;
};

}  // namespace evalrun::runners
