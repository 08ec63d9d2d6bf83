// Which check finds which planted fault, and after how much work: a row of the table that
// fault_study prints, and that a test pins in short. What a seed does is what `evalrun verify` does
// with it: its places, draws and answers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/model/model.h"
#include "engine/session.h"
#include "methods/draft_rule.h"
#include "methods/method.h"
#include "runners/plan/conversation.h"
#include "runners/plan/plan.h"
#include "runners/verify/step_distribution.h"
#include "runners/verify/text_distribution.h"
#include "runners/verify/token_identity.h"

namespace evalrun::runners {

// A method on a model, and prompts.
struct FaultSubject {
  std::shared_ptr<const engine::Model> model;  // has a tokenizer
  engine::SessionOptions session;
  std::vector<PlannedPrompt> prompts;
  std::function<std::unique_ptr<methods::DecodingMethod>()> build;
  std::function<methods::SampledAnswers(const engine::SamplingParams&)> sampled;
};
// Two layers of random weights, 24 tokens, and twelve prompts of 16 letters.
FaultSubject tiny_subject(const std::string& method, int max_new);

// The default of `evalrun verify` and ten times as much, but for the test of texts, which takes
// long. An empty list: that check is left out.
struct FaultBudget {
  int seeds = 20;
  std::vector<int> answers = {1, 10};     // to each prompt, ascending: token identity and the audit
  std::vector<int> draws = {200, 2'000};  // at each place of the law of steps
  std::vector<int> samples = {16};        // answers to each prompt of the law of texts
  int contexts = 4, text_prompts = 6, sample_tokens = 32;
  double temperature = 1;
};

// Counts are of seeds, for each budget of the list.
struct FaultRow {
  // Between the fault's law of the next token and the target's: the median over the steps of honest
  // answers. nullopt: not known for this fault, or this method drafts otherwise than token by token
  // from a distribution.
  std::optional<double> variation;
  std::vector<int> other_tokens;  // by FaultBudget::answers; empty: the method promises no tokens
  std::vector<int> audited;       // by FaultBudget::answers
  // [seed], ascending: what was audited until the first wrong decision, or all of it.
  std::vector<double> steps, decisions;
  std::vector<int> by_steps;  // by FaultBudget::draws
  std::vector<int> by_texts;  // by FaultBudget::samples
};

inline constexpr const char* kNoFault = "none";

class FaultTable {
 public:
  FaultTable(FaultSubject subject, FaultBudget budget);
  // Of kNoFault: the honest build's. usage_error for a fault that the method cannot have.
  FaultRow row(const std::string& fault);
  // How token identity samples: as the method promises plain decoding's tokens. nullopt: never.
  std::optional<engine::Sampler> sampler_of_tokens() const;

 private:
  struct OfSeed {  // what all faults share
    uint64_t seed = 0;
    std::vector<StepContext> places;
    std::vector<PlainAnswers> plain;              // [round], for token identity
    std::vector<std::vector<SampledText>> texts;  // by FaultBudget::samples
  };
  struct Audited {
    int round = 0;  // of the first wrong decision, from 1 on; 0 = none
    double steps = 0, decisions = 0;
  };

  std::unique_ptr<methods::DecodingMethod> build(const std::string& fault) const;
  engine::SamplingParams sampling(engine::Sampler sampler = engine::Sampler::kInverse) const;
  // Of one answer to each prompt: the first round has the seeds that `verify` has.
  AnswerOptions answer_options(uint64_t seed, int round, engine::Sampler sampler) const;
  int rounds() const;
  TextDistributionOptions text_options(uint64_t seed, int samples) const;
  void prepare(OfSeed& of);

  std::optional<double> variation(const std::string& fault);
  int round_of_other_tokens(const std::string& fault, OfSeed& of);  // as Audited::round
  Audited audit(const std::string& fault, uint64_t seed);
  void test_steps(const std::string& fault, const OfSeed& of, FaultRow& row);
  void test_texts(const std::string& fault, const OfSeed& of, FaultRow& row);
  void count(int round, std::vector<int>& found) const;

  FaultSubject subject_;
  FaultBudget budget_;
  Conversation conversation_;
  base::SteadyClock clock_;
  std::unique_ptr<engine::Session> session_, beside_;
  PlainAnswers prompts_;  // their tokens alone
  std::vector<PlannedPrompt> text_prompts_;
  std::vector<OfSeed> seeds_;
};

}  // namespace evalrun::runners
