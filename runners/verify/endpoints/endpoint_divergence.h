// Looks at first differences with the plain server: what would it have given after the common
// prefix, how near were the two tokens, and is what follows an answer or garbage?
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "runners/verify/endpoints/endpoint_answers.h"

namespace evalrun::runners {

// How far the plain server differs from itself: the null.
struct PlainRange {
  int answers = 0;                                    // compared with its first pass
  int differing = 0;                                  // of them
  int by_repeat = 0, by_clients = 0, by_restart = 0;  // of these, in which kind of pass
  bool log_probs = false;                             // whether it gives any
  int64_t places = 0;                                 // where log-probabilities were compared
  double widest_shift = 0;  // of the gap to the runner-up, between two passes
  double widest_gap = 0;    // at a first difference of its own
  double bound() const { return std::max(widest_shift, widest_gap); }
};

enum class DivergenceKind { kNearTie, kStateFault, kDiffers, kOpen };
const char* to_string(DivergenceKind kind);  // "near tie", "state fault", "differs", "open"

// The first difference of one answer.
struct EndpointDivergence {
  size_t prompt = 0, pass = 0;            // in EndpointIdentity::passes
  size_t index = 0;                       // of tokens, or of bytes where an API gives no ids
  int32_t expected = -1, found = -1;      // token ids; -1 = the answer ended, or no ids
  std::string expected_text, found_text;  // what follows, cut
  // Log-probability of `expected` less that of `found` by the plain server, absolute. With
  // `at_least`, `found` is not among those that it lists.
  std::optional<double> gap;
  bool at_least = false;
  bool own_answer = false;         // the plain server gave this answer in another pass
  int asked = 0, gave_it = 0;      // the plain server with the common prefix; gave the other token
  std::optional<int64_t> refused;  // draft tokens refused in this answer
  int followed = 0, foreign = 0;   // tokens after it; of them not what the plain server would give
  DivergenceKind kind = DivergenceKind::kOpen;
  std::vector<std::string> signs;  // "only with neighbours", ...
};

// How many best tokens are asked for with each: what all APIs give.
inline constexpr int kEndpointLogProbs = 5;
// Differences for which the plain server is asked with the common prefix; of further ones the
// log-probabilities of its answers must tell.
inline constexpr int kMostLookedAt = 200;

// What two answers have at their first difference, by ids or by text.
struct TokenChoice {
  int32_t id = -1;        // -1: none, or no ids
  std::string_view rest;  // text from the token border at or before the difference on
};
struct LogProbGap {
  double value = 0;
  bool at_least = false;  // `found` is not listed
};
// From a list of the plain server at that place; nullopt where it does not list `expected` either.
std::optional<LogProbGap> gap_between(std::span<const EndpointLogProb> list,
                                      const TokenChoice& expected, const TokenChoice& found,
                                      bool by_ids);

// Bytes of a text answer up to the token in which byte `index` lies, by the token texts of the
// log-probabilities; without them up to the last space before.
size_t token_border(const EndpointReply& reply, size_t index);

class DivergenceProbe {
 public:
  // `clients`: how many ask at once where the plain server shall have neighbours.
  DivergenceProbe(const EndpointServer& plain, const std::vector<EndpointPrompt>& prompts,
                  int clients, std::span<const int32_t> stop_ids, const PlainRange& range,
                  bool by_ids);
  // Fills in tokens, texts, gap, asked, gave_it, and whether it is a near tie: kind is kNearTie,
  // kDiffers or kOpen. `expected`: the plain answer that is alike for longest.
  void look(EndpointDivergence& d, const EndpointReply& expected, const EndpointReply& found);
  // Fills in followed and foreign.
  void follow(EndpointDivergence& d, const EndpointReply& found);
  const std::string& trouble() const { return trouble_; }

 private:
  // Whether the plain server can be given a prefix in the form in which answers are compared.
  bool can_ask() const { return !by_ids_ || takes_ids_; }
  EndpointRequest request_after(size_t prompt, const EndpointReply& answer, size_t length) const;
  void ask_at_prefix(EndpointDivergence& d, const EndpointReply& expected,
                     const EndpointReply& found);
  void widen_gap(EndpointDivergence& d, std::span<const EndpointLogProb> list,
                 const TokenChoice& expected, const TokenChoice& found) const;

  const EndpointServer& plain_;
  const std::vector<EndpointPrompt>& prompts_;
  int clients_;
  std::span<const int32_t> stop_ids_;
  const PlainRange& range_;
  bool by_ids_, takes_ids_, log_probs_;
  int looked_at_ = 0;
  // The same difference in several passes is looked at once.
  std::map<std::tuple<size_t, std::string, int32_t, std::string>, EndpointDivergence> known_;
  std::string trouble_;
};

}  // namespace evalrun::runners
