// What `evalrun verify` found out about one arm, and what it is bound to. A certificate holds for
// one build, one set of weights (target, draft model, adapters) and one engine mode: its key
// (results/certificates.h) is the hash of these, and a report shows it beside arms of the same key
// only.
//
// Three parts, each a struct of its own header: greedy identity (greedy_proof.h), the distribution
// of single steps under sampling (step_distribution.h), the distribution of whole answers
// (text_distribution.h). The last two carry a negative control: the same method with a planted
// wrong acceptance, which the same test must refuse; else the test has shown nothing.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "results/certificates.h"
#include "runners/verify/greedy_proof.h"
#include "runners/verify/step_distribution.h"
#include "runners/verify/text_distribution.h"

namespace evalrun::runners {

// kFails: what the method claims is not so. kInconclusive: nothing spoke against it, but a test
// that did not refuse its negative control either, or had nothing to test, proves nothing.
// kLossy: the method claims nothing (of what was tested), so nothing is judged.
enum class Outcome { kHolds, kFails, kInconclusive, kLossy };
const char* to_string(Outcome outcome);  // "holds", "fails", "inconclusive", "lossy"

// A test and its negative control.
template <class Result>
struct Controlled {
  Result result, control;
};

struct Certificate {
  results::ArmRecord arm;
  std::string commit, created;
  nlohmann::ordered_json settings;  // of the tests: prompts, draws, sampling, seed
  std::optional<GreedyProof> greedy;
  std::optional<Controlled<StepDistribution>> steps;
  std::optional<Controlled<TextDistribution>> texts;
  std::optional<TextDistribution>
      plain_texts;  // plain decoding against itself, by the test of `texts`
};

// Level of one arm's sampling part, shared by its tests (Bonferroni).
inline constexpr double kCertificateLevel = 0.001;

Outcome outcome_of(const GreedyProof& proof, const results::ArmRecord& arm);
Outcome outcome_of(const Controlled<StepDistribution>& steps, const results::ArmRecord& arm);
Outcome outcome_of(const Controlled<TextDistribution>& texts, const results::ArmRecord& arm);
// The worst of the parts; kInconclusive without any.
Outcome outcome_of(const Certificate& certificate);
// "greedy", "greedy+sampling T=1", ... the parts that hold, and how was sampled then; "" = none.
std::string proven_parts(const Certificate& certificate);

nlohmann::ordered_json to_json(const Certificate& certificate);

}  // namespace evalrun::runners
