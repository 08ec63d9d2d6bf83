// Lossless sampling of a server, by its draws alone. After a few texts both servers draw many short
// continuations, under load. Three questions:
// - Does each token follow the plain server's own log-probabilities, at the temperature, top-k and
//   top-p that were asked for? A tree of continuations is walked as far as draws suffice, because
//   drafts begin to matter with the second token only. The plain server's draws must pass the same
//   test, or it shows nothing: log-probabilities may be of something else than what is drawn from.
// - Are the continuations exchangeable with the plain server's (text_distribution.h)? That needs no
//   log-probabilities.
// - Which temperature do the draws look like, and how many lie outside of top-k and top-p?
// The test is sequential: it looks after a quarter, a half and all of the draws, and ends at the
// first refusal. Level of all looks and both tests together: kCertificateLevel (Bonferroni).
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runners/verify/endpoints/endpoint_answers.h"
#include "runners/verify/endpoints/endpoint_law.h"
#include "runners/verify/text_distribution.h"

namespace evalrun::runners {

struct EndpointPlace {
  std::string prompt;        // its id
  std::vector<int32_t> ids;  // what both servers go on from
  std::string text;
};

struct EndpointSamplingOptions {
  engine::SamplingParams sampling{1.0, 0, 1.0};  // temperature above 0
  int draws = 200;                               // of each place and server
  int max_new = 8;                               // tokens of a draw
  int clients = 1;
  double noise = 0;  // of the plain server's log-probabilities (PlainRange::bound)
  uint64_t seed = 1;
  int simulations = base::GoodnessOfFit::kMostSimulations;  // behind a p of one text
  bool power = true;              // find what the law's test would have found, which takes seconds
  std::vector<int32_t> stop_ids;  // of the model
};

// Of one server's draws.
struct DrawnFigures {
  double p = 1;  // that they follow the plain server's log-probabilities
  std::optional<SeenTemperature> temperature;
  int64_t inside = 0, outside = 0;  // of top-k and top-p, where that can be seen
};

struct EndpointSampling {
  int places = 0, nodes = 0, looks = 0;  // nodes: texts whose next token was tested
  int64_t draws = 0;                     // of each server
  double level = 0;                      // of one look of one test
  DrawnFigures speculative, plain;
  std::string no_law;  // why the first question has no answer; "" = it has
  CutOrder order = CutOrder::kTemperatureFirst;
  std::optional<double> smallest_found;  // total variation, as StepDistribution's
  TextDistribution texts;
  bool law_refused = false, texts_refused = false;
  std::string trouble;  // requests without an answer
};

// `tick` after every look. Throws what ask_with_clients() throws.
EndpointSampling test_endpoint_sampling(const EndpointServer& speculative,
                                        const EndpointServer& plain,
                                        const std::vector<EndpointPlace>& places,
                                        const EndpointSamplingOptions& options,
                                        const std::function<void()>& tick);

// Whole answers with the same seeds, where both APIs say that a seed makes the same answer again.
// Equality is the strongest that can be shown. Inequality is no fault: rejection sampling keeps the
// law and not the tokens.
struct SeededAnswers {
  int answers = 0, identical = 0;
  int plain_again = 0;  // answers that the plain server gave again with the same seed
  std::string trouble;
};
SeededAnswers compare_seeded(const EndpointServer& speculative, const EndpointServer& plain,
                             const std::vector<EndpointPrompt>& prompts, int max_new,
                             const EndpointSamplingOptions& options);

}  // namespace evalrun::runners
