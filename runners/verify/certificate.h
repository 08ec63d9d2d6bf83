// What `evalrun verify` found out about one arm, and what it is bound to. A certificate holds for
// one build, one set of weights (target, draft model, adapters) and one engine mode. Its key
// (results/certificates.h) has the hash of these, and a report shows it beside arms of the same
// hash only. The rest of the key says how answers were sampled, so that an arm has one for each
// way.
//
// Parts, each a struct of its own header. Two prove:
// - equality of tokens with plain decoding, greedy and sampled (token_identity.h);
// - for methods that keep the distribution and not the tokens, an audit of every decision
//   (decision_audit.h).
// Three test laws and say how small a fault they would have found: plain decoding's own draws
// (plain_law.h), single steps (step_distribution.h), whole answers (text_distribution.h). The last
// two carry a negative control: the same method with a planted wrong acceptance, which the same
// test must refuse; else the test has shown nothing.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "results/certificates.h"
#include "runners/verify/acceptance_bound.h"
#include "runners/verify/decision_audit.h"
#include "runners/verify/plain_law.h"
#include "runners/verify/step_distribution.h"
#include "runners/verify/text_distribution.h"
#include "runners/verify/token_identity.h"

namespace evalrun::runners {

// kHolds: what the method claims is so, of all that was looked at. kFails: it is not so.
// kInconclusive: nothing spoke against it, but something could not be looked at, or a test did not
// refuse its negative control either, or had nothing to test. kLossy: the method claims nothing (of
// what was tested), so nothing is judged.
enum class Outcome { kHolds, kFails, kInconclusive, kLossy };
const char* to_string(Outcome outcome);  // "holds", "fails", "inconclusive", "lossy"

// What is known of a claim, weakest first. Only the last two are proofs.
enum class Grade {
  kNotShown,
  kNotRefuted,  // tests of laws found nothing; they say how small a fault they would have found
  kAudited,     // every decision was made again and was equal
  kIdentical,   // the tokens are plain decoding's
};
// "not shown", "law not refuted", "decisions audited", "identical"
const char* to_string(Grade grade);

// A test and its negative control.
template <class Result>
struct Controlled {
  Result result, control;
};

struct Certificate {
  results::ArmRecord arm;
  std::string commit, created;
  nlohmann::ordered_json settings;  // of the tests: prompts, draws, sampling, seed
  std::optional<TokenIdentity> greedy;
  // Of sampled answers: one of the two, by what the method promises (MethodSpec::sampled()).
  std::optional<TokenIdentity> sampled;
  std::optional<DecisionAudit> audit;
  // Of the same answers, where it was asked for. Not judged.
  std::optional<AcceptanceBound> bound;
  // Of plain decoding of the same model, which both rest on: the audit of its draws, and their law.
  std::optional<DecisionAudit> plain_audit;
  std::optional<PlainLaw> law;
  std::optional<Controlled<StepDistribution>> steps;
  std::optional<Controlled<TextDistribution>> texts;
  std::optional<TextDistribution>
      plain_texts;  // plain decoding against itself, by the test of `texts`
};

// Level of a certificate's tests of laws together. Each part (law, steps, texts) has an equal share
// of it (Bonferroni). So an honest arm fails at most that often.
inline constexpr double kCertificateLevel = 0.001;
double level_of_part(int parts);
double level_of_part(const Certificate& certificate);

Outcome outcome_of_greedy(const TokenIdentity& identity, const results::ArmRecord& arm);
// Of `sampled` or `audit`, with plain decoding's audit; nullopt without either.
std::optional<Outcome> outcome_of_sampled(const Certificate& certificate);
// Why outcome_of_sampled() is kInconclusive; "" = it is not.
std::string why_open(const Certificate& certificate);
// Of parts whose tests have this level.
Outcome outcome_of(const PlainLaw& law, double level);
Outcome outcome_of(const Controlled<StepDistribution>& steps, const results::ArmRecord& arm,
                   double level);
Outcome outcome_of(const Controlled<TextDistribution>& texts, const results::ArmRecord& arm,
                   double level);
// The worst of the parts; kInconclusive without any.
Outcome outcome_of(const Certificate& certificate);

Grade greedy_grade(const Certificate& certificate);
Grade sampling_grade(const Certificate& certificate);
// The smallest total variation that what the grade rests on finds with a probability of 95 %; 0 for
// kIdentical, nullopt for kNotShown and where no power was computed.
std::optional<double> smallest_found(const Certificate& certificate);
// What is proven: "greedy: identical; sampling T=1: decisions audited"; "" = nothing. Nothing is
// where any part fails.
std::string proven_parts(const Certificate& certificate);
// The same with tests of laws, and how much was looked at: "greedy: identical over 2,560 tokens;
// sampling T=1: decisions audited (2,113; would find 0.0014)", "...: law not refuted (would find
// 0.12)".
std::string shown_parts(const Certificate& certificate);

// What a certificate of `arm` by these tests (Certificate::settings) is stored by.
std::string key_by_tests(const results::ArmRecord& arm, const std::string& commit,
                         const nlohmann::ordered_json& tests);

nlohmann::ordered_json to_json(const Certificate& certificate);

}  // namespace evalrun::runners
