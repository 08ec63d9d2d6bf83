#include "tests/runners/fault_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "methods/speculative_method.h"
#include "runners/verify/certify.h"
#include "runners/verify/decision_audit.h"
#include "tests/methods/support/harness.h"
#include "tests/runners/fakes.h"
#include "tests/runners/fault_law.h"

namespace evalrun::runners {
namespace {

using engine::Sampler;

// Parts of `verify` that test laws, which share the level: law, steps, texts.
constexpr int kLawParts = 3;
// Seeds of plain decoding's texts and of the method's, as `verify` has them.
constexpr uint64_t kPlainTexts = 0, kMethodTexts = 2;

void no_tick() {}

// A token per byte, its number modulo the vocabulary. No token ends an answer.
class LetterTokenizer final : public engine::Tokenizer {
 public:
  explicit LetterTokenizer(int vocab) : vocab_(vocab) {}
  std::vector<int32_t> encode(std::string_view text, const engine::EncodeOptions&) const override {
    std::vector<int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) % vocab_);
    return ids;
  }
  std::string token_bytes(int32_t id, bool) const override {
    return std::string(1, static_cast<char>('a' + id));
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) text += token_bytes(id, skip_special);
    return text;
  }
  int vocab_size() const override { return vocab_; }
  bool is_special(int32_t) const override { return false; }
  std::optional<int32_t> bos_id() const override { return std::nullopt; }
  std::optional<int32_t> id_of(std::string_view) const override { return std::nullopt; }
  const std::vector<int32_t>& stop_ids() const override { return stop_ids_; }
  const std::string& vocabulary_hash() const override { return hash_; }

 private:
  int vocab_;
  std::vector<int32_t> stop_ids_;
  std::string hash_ = "letters";
};

}  // namespace

FaultSubject tiny_subject(const std::string& method, int max_new) {
  constexpr int kVocab = 24, kPrompts = 12, kPromptTokens = 16;
  engine::ModelParts parts = tests::small_model(3, kVocab)->parts();
  parts.hash = "tiny";
  parts.tokenizer = std::make_shared<LetterTokenizer>(kVocab);
  parts.chat_template = std::make_shared<tests::LetterTemplate>();
  FaultSubject subject;
  subject.model = engine::Model::create(std::move(parts));
  // Room for a prompt, an answer, and the drafts that places are tested with.
  subject.session = tests::session_options(max_new + 128);
  base::Rng rng(1);
  for (int i = 0; i < kPrompts; ++i) {
    std::string text;  // of six letters, so that n-grams recur
    while (text.size() < kPromptTokens) text += static_cast<char>('a' + rng.below(6));
    PlannedPrompt planned;
    planned.prompt.id = planned.record.id = fmt::format("{}", i + 1);
    planned.prompt.turns = {text};
    planned.prompt.chat = false;
    planned.record.task = "letters";
    planned.max_new = max_new;
    subject.prompts.push_back(std::move(planned));
  }
  const methods::MethodSpec spec = methods::parse_method(method);
  methods::MethodBuildContext context;
  context.target = subject.model;
  context.session = subject.session;
  subject.build = [spec, context] { return spec.info->build(spec.params, context); };
  subject.sampled = [spec](const engine::SamplingParams& p) { return spec.sampled(p); };
  return subject;
}

FaultTable::FaultTable(FaultSubject subject, FaultBudget budget)
    : subject_(std::move(subject)),
      budget_(std::move(budget)),
      conversation_(*subject_.model),
      session_(engine::Session::create(subject_.model, subject_.session)),
      beside_(engine::Session::create(subject_.model, subject_.session)),
      text_prompts_(spread_prompts(subject_.prompts, budget_.text_prompts)) {
  for (const PlannedPrompt& p : subject_.prompts)
    prompts_.prompt.push_back(conversation_.encode(p.prompt, conversation_.render(p.prompt, {})));
  for (int seed = 1; seed <= budget_.seeds; ++seed) {
    OfSeed of;
    of.seed = static_cast<uint64_t>(seed);
    prepare(of);
    seeds_.push_back(std::move(of));
  }
}

void FaultTable::prepare(OfSeed& of) {
  if (!budget_.draws.empty()) {
    const std::vector<PlannedPrompt> prompts = place_prompts(subject_.prompts, budget_.contexts);
    of.places = step_places(prompts, decode_plainly(*session_, prompts, conversation_,
                                                    {sampling(), of.seed, 1}, clock_, no_tick));
  }
  const auto plain = methods::parse_method("ar").info->build({}, {});
  for (const int samples : budget_.samples)
    of.texts.push_back(sample_texts(*plain, *session_, text_prompts_, conversation_,
                                    text_options(of.seed, samples), kPlainTexts, clock_, no_tick));
}

std::unique_ptr<methods::DecodingMethod> FaultTable::build(const std::string& fault) const {
  auto method = subject_.build();
  return fault == kNoFault ? std::move(method) : methods::plant_fault(std::move(method), fault);
}

engine::SamplingParams FaultTable::sampling(Sampler sampler) const {
  return {budget_.temperature, 0, 1.0, sampler};
}

AnswerOptions FaultTable::answer_options(uint64_t seed, int round, Sampler sampler) const {
  const uint64_t of_round =
      round == 0 ? seed : base::combine_seeds({seed, static_cast<uint64_t>(round)});
  return {sampling(sampler), of_round, 1};
}

int FaultTable::rounds() const { return budget_.answers.empty() ? 0 : budget_.answers.back(); }

TextDistributionOptions FaultTable::text_options(uint64_t seed, int samples) const {
  return {samples, budget_.sample_tokens, sampling(), seed};
}

std::optional<Sampler> FaultTable::sampler_of_tokens() const {
  for (const Sampler sampler : {Sampler::kInverse, Sampler::kGumbel})
    if (subject_.sampled(sampling(sampler)) == methods::SampledAnswers::kSameTokens) return sampler;
  return std::nullopt;
}

FaultRow FaultTable::row(const std::string& fault) {
  FaultRow row;
  row.variation = variation(fault);
  row.audited.resize(budget_.answers.size());
  if (sampler_of_tokens()) row.other_tokens.resize(budget_.answers.size());
  row.by_steps.resize(budget_.draws.size());
  row.by_texts.resize(budget_.samples.size());
  for (OfSeed& of : seeds_) {
    const Audited audited = audit(fault, of.seed);
    row.steps.push_back(audited.steps);
    row.decisions.push_back(audited.decisions);
    count(audited.round, row.audited);
    if (sampler_of_tokens()) count(round_of_other_tokens(fault, of), row.other_tokens);
    if (!budget_.draws.empty()) test_steps(fault, of, row);
    test_texts(fault, of, row);
  }
  std::sort(row.steps.begin(), row.steps.end());
  std::sort(row.decisions.begin(), row.decisions.end());
  return row;
}

// What is found in a round is found by every budget that goes so far.
void FaultTable::count(int round, std::vector<int>& found) const {
  for (size_t b = 0; b < found.size(); ++b)
    found[b] += round > 0 && round <= budget_.answers[b] ? 1 : 0;
}

// Where a step drafts one token after the root; more children are tested one after another.
std::optional<double> FaultTable::variation(const std::string& fault) {
  std::vector<double> variations, p, q;
  engine::WarpScratch scratch;
  const auto method = build(kNoFault);
  methods::SpeculativeMethod& honest = methods::with_verdicts(*method, "a study of faults");
  honest.let_keep_dists(false);
  honest.set_verdict_hook([&](const methods::SpeculativeMethod::Verdict& verdict) {
    int child = -1, children = 0;
    for (int i = 1; i < verdict.tree.size(); ++i)
      if (verdict.tree.parent[static_cast<size_t>(i)] == 0) child = i, ++children;
    if (children != 1) return;
    const std::span<const double> drawn_from = verdict.drafter.q_of(child);
    if (drawn_from.empty()) return;
    const std::span<const float> logits = verdict.target.logits(0);
    q.assign(drawn_from.begin(), drawn_from.end());
    q.resize(logits.size());
    engine::warp(logits, verdict.context.sampling, p, scratch);
    if (const auto law = faulty_law(fault, logits, verdict.context.sampling, q))
      variations.push_back(total_variation(p, *law));
  });
  const AnswerOptions options = answer_options(1, 0, Sampler::kInverse);
  for (size_t i = 0; i < subject_.prompts.size(); ++i)
    decode_answer(*method, *session_, subject_.prompts, prompts_, i, conversation_, options,
                  clock_);
  if (variations.empty()) return std::nullopt;
  return base::median(variations);
}

int FaultTable::round_of_other_tokens(const std::string& fault, OfSeed& of) {
  const auto method = build(fault);
  for (int round = 0; round < rounds(); ++round) {
    if (of.plain.size() <= static_cast<size_t>(round)) of.plain.emplace_back();
    const TokenIdentity identity =
        compare_tokens(*method, *session_, subject_.prompts, conversation_,
                       answer_options(of.seed, round, *sampler_of_tokens()),
                       of.plain[static_cast<size_t>(round)], clock_, no_tick);
    if (identity.identical < identity.answers) return round + 1;
  }
  return 0;
}

// As audit_decisions() does it, until a decision is wrong.
FaultTable::Audited FaultTable::audit(const std::string& fault, uint64_t seed) {
  const auto method = build(fault);
  DecisionAuditor auditor(*method, *beside_, clock_);
  const std::vector<AuditDifference>& wrong = auditor.audit().first;
  int round = 0;
  for (; round < rounds() && wrong.empty(); ++round) {
    const AnswerOptions options = answer_options(seed, round, Sampler::kInverse);
    for (size_t i = 0; i < subject_.prompts.size() && wrong.empty(); ++i) {
      auditor.begin(prompts_.prompt[i], options.sampling, base::combine_seeds({options.seed, i}));
      const results::PromptRecord& prompt = subject_.prompts[i].record;
      auditor.end(decode_answer(*method, *session_, subject_.prompts, prompts_, i, conversation_,
                                options, clock_),
                  prompt.task, prompt.id);
    }
  }
  return {wrong.empty() ? 0 : round, static_cast<double>(auditor.audit().steps),
          static_cast<double>(auditor.audit().decisions())};
}

void FaultTable::test_steps(const std::string& fault, const OfSeed& of, FaultRow& row) {
  StepDistributionOptions options;
  options.sampling = sampling();
  options.seed = of.seed;
  const std::vector<StepContext> places =
      most_refused(*build(fault), *session_, of.places, budget_.contexts, options, clock_);
  for (size_t b = 0; b < budget_.draws.size(); ++b) {
    options.draws = budget_.draws[b];
    const StepDistribution dist =
        test_step_dist(*build(fault), *session_, places, options, clock_, no_tick);
    row.by_steps[b] += dist.rejected(level_of_part(kLawParts)) ? 1 : 0;
  }
}

void FaultTable::test_texts(const std::string& fault, const OfSeed& of, FaultRow& row) {
  for (size_t b = 0; b < budget_.samples.size(); ++b) {
    const TextDistributionOptions options = text_options(of.seed, budget_.samples[b]);
    const std::vector<SampledText> texts =
        sample_texts(*build(fault), *session_, text_prompts_, conversation_, options, kMethodTexts,
                     clock_, no_tick);
    row.by_texts[b] +=
        compare_texts(of.texts[b], texts, options).rejected(level_of_part(kLawParts)) ? 1 : 0;
  }
}

}  // namespace evalrun::runners
