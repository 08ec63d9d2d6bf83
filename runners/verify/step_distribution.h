// Lossless sampling, step by step: from a fixed text a method decodes the next tokens many times
// with different seeds; the tokens must follow the target's own distribution there, which is
// computed from one plain forward and not sampled. So the test is one-sided in its noise and exact
// in its hypothesis, on a real model with its real vocabulary.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/goodness_of_fit.h"
#include "engine/session.h"
#include "methods/registration.h"

namespace evalrun::runners {

// A place to go on from: `text` is committed, then the method is made to follow `lead` (at least
// one token; methods/replay.h), because many draft from what earlier steps gave them.
struct StepContext {
  std::string task, prompt;
  int position = 0;  // tokens of the answer before the first one drawn here
  std::vector<int32_t> text, lead;
};

// One test: the tokens drawn `depth` after the lead (1 = the next one), where the ones between are
// the commonest of all draws.
struct StepTest {
  int context = 0, depth = 0;
  int64_t draws = 0;
  int cells = 0;  // base::GoodnessOfFit's
  double p = 1;
};

struct StepDistribution {
  std::vector<StepTest> tests;
  int64_t draws = 0;
  // Draft tokens put to the test in these draws, and accepted: without any, nothing is shown.
  int64_t tested = 0, accepted = 0;
  double smallest_p() const;  // 1 without tests
  // Of all tests together, which are independent (base::joint_p).
  double p() const;
  bool rejected(double level) const { return p() < level; }
  std::vector<base::GoodnessOfFit> fits;  // of the tests, for find_power()
  // The smallest total variation that the tests would have found at `level` with a probability of
  // 95 % (base::smallest_variation_found, which says of which faults); 1 where none. Not computed
  // before find_power(level), which takes a second or a few.
  std::optional<double> smallest_found;
  void find_power(double level, uint64_t seed);
};

struct StepDistributionOptions {
  int draws = 200;  // per context
  engine::SamplingParams sampling{1.0, 0, 1.0};
  uint64_t seed = 1;
};

inline constexpr int kDistributionDepth = 3;  // tokens after the lead that are looked at
inline constexpr int kMostLead = 8;           // tokens a method is made to follow
inline constexpr int kLeastDraws = 60;        // of a test
inline constexpr int kDraftRoom = 32;         // tokens a method may think are wanted

// The n of `candidates` where the method refuses a draft most often at a place that is tested, in a
// few draws with seeds of their own; in their old order. Where nothing is drafted a method is plain
// decoding, and where every draft is accepted a wrong acceptance changes nothing: a test there
// shows nothing.
std::vector<StepContext> most_refused(methods::DecodingMethod& method, engine::Session& session,
                                      std::span<const StepContext> candidates, int n,
                                      const StepDistributionOptions& options, base::Clock& clock);

// The tests of one context, into `dist`: of `draws`, each kDistributionDepth tokens, against the
// distribution that `dist_after` gives after some tokens of a draw.
using StepDraws = std::vector<std::vector<int32_t>>;
void test_draws(int context, const StepDraws& draws,
                const std::function<std::vector<double>(std::span<const int32_t>)>& dist_after,
                uint64_t seed, StepDistribution& dist);

// `session` of the method's model, capacity for the texts and a step. `tick` after every context.
StepDistribution test_step_dist(methods::DecodingMethod& method, engine::Session& session,
                                std::span<const StepContext> contexts,
                                const StepDistributionOptions& options, base::Clock& clock,
                                const std::function<void()>& tick);

}  // namespace evalrun::runners
