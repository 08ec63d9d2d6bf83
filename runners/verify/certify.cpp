#include "runners/verify/certify.h"

#include <algorithm>
#include <map>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"

namespace evalrun::runners {
namespace {

// Streams of seeds: answers of these never share one.
enum Stream : uint64_t { kPlain, kPlainAgain, kMethod, kControl };

// Tokens of a draw of the step test, for the share of the work that is done: half of the places
// have a lead.
constexpr int kStepWork = kDistributionDepth + kMostLead / 2;

// Of a row of the test of plain decoding's law, a second or a few.
constexpr int kLawWork = 300;

// Places looked at for each that is tested.
constexpr int kCandidates = 4;

std::vector<float> logits_after(engine::Session& session, std::span<const int32_t> text) {
  session.keep_features({});  // forgets what a method wanted kept
  session.reset();
  if (text.size() > 1) session.prefill(text.first(text.size() - 1));
  engine::Row row;
  row.token = text.back();
  engine::ForwardRequest request;
  request.rows = {&row, 1};
  const engine::ForwardResult result = session.forward(request);
  const auto logits = result.logits_row(0);
  return {logits.begin(), logits.end()};
}

bool is_plain(const PlannedArm& arm) {
  return arm.record.role != "method" || arm.record.method == "ar_tuned";
}

// What the arms of one model share: made when the first of them needs it.
struct PerModel {
  PlainAnswers greedy, sampled;
  std::optional<DecisionAudit> plain_audit;
  std::optional<PlainLaw> law;
  std::vector<StepContext> contexts;
  std::vector<SampledText> texts;
  std::optional<TextDistribution> plain_dist;
};

class Certifier {
 public:
  Certifier(const CertifyRequest& request, base::Clock& clock);
  nlohmann::ordered_json tests() const;
  void run(const std::function<bool(const results::ArmRecord&, const std::string&)>& known,
           const std::function<void(const Certificate&)>& done);

 private:
  Certificate certify_arm(const PlannedArm& arm);
  void certify_sampled(const PlannedArm& arm, methods::DecodingMethod& method,
                       engine::Session& session, PerModel& shared, Certificate& c);
  DecisionAudit audit(methods::DecodingMethod& method, const PlannedArm& arm, PerModel& shared);
  void test_law(engine::Session& session, PerModel& shared);
  std::unique_ptr<methods::DecodingMethod> build(const PlannedArm& arm,
                                                 const std::string& fault) const;
  void prepare_contexts(engine::Session& session, PerModel& shared);
  void prepare_texts(engine::Session& session, PerModel& shared);
  std::vector<SampledText> texts(methods::DecodingMethod& method, engine::Session& session,
                                 Stream stream);
  TextDistribution compare(const std::vector<SampledText>& plain,
                           const std::vector<SampledText>& texts);
  int longest() const;
  double level() const;  // of a part that tests laws
  // In decoded tokens, as if every step emitted one.
  double total_work() const;
  std::function<void()> ticker(int tokens);

  const CertifyRequest& request_;
  base::Clock& clock_;
  RunPlan plan_;
  Conversation conversation_;
  std::unique_ptr<ModelSessions> sessions_;
  std::unique_ptr<ModelSessions> beside_;  // for audits
  std::vector<PlannedPrompt> text_prompts_, context_prompts_;
  std::vector<const PlannedArm*> arms_;
  std::map<const engine::Model*, PerModel> shared_;
  std::string label_, part_;
  double work_ = 1, worked_ = 0;
  int64_t begin_ns_ = 0;
};

Certifier::Certifier(const CertifyRequest& request, base::Clock& clock)
    : request_(request),
      clock_(clock),
      plan_(make_plan(request.plan)),
      conversation_(*request.plan.target),
      sessions_(nullptr),
      text_prompts_(spread_prompts(plan_.prompts, request.text_prompts)),
      context_prompts_(place_prompts(plan_.prompts, request.contexts)) {
  for (const PlannedArm& arm : plan_.arms) {
    if (is_plain(arm)) continue;
    if (arm.needs_answer)
      throw base::usage_error(
          fmt::format("{}: synthetic acceptance is no method, and is not verified",
                      arm.record.label),
          "leave it out: evalrun run compares its tokens with plain decoding's");
    arms_.push_back(&arm);
    if (request.sampled) (void)arm.sampled(request.answers.sampling);  // a rule may need a sampler
  }
  if (request.runner.progress != nullptr)
    for (const std::string& prompt : plan_.skipped)
      request.runner.progress->left_out("prompt " + prompt + ", too long for the context");
  if (arms_.empty() && !plan_.chosen.empty())
    throw base::usage_error(
        "method auto stands for plain decoding here, because nothing paid: there is nothing to "
        "verify",
        "name methods with --methods, e.g. pld,lookahead");
  if (arms_.empty())
    throw base::usage_error("there is no method to verify",
                            "name some with --methods, e.g. pld,lookahead");
}

nlohmann::ordered_json Certifier::tests() const {
  nlohmann::ordered_json tests;
  nlohmann::ordered_json prompts = nlohmann::ordered_json::array();
  for (const PlannedPrompt& p : plan_.prompts)
    prompts.push_back(p.record.task + " " + p.record.id + " " + p.record.rendered_hash);
  if (request_.greedy)
    tests["greedy"] = {{"prompts", plan_.prompts.size()}, {"max_new", longest()}};
  const auto dist = [](const engine::SamplingParams& s) {
    return nlohmann::ordered_json{{"temperature", s.temperature},
                                  {"top_k", s.top_k},
                                  {"top_p", s.top_p},
                                  {"sampler", engine::to_string(s.sampler)}};
  };
  if (request_.sampled) {
    tests["sampled"] = {{"prompts", plan_.prompts.size()},
                        {"answers_per_prompt", request_.answers.per_prompt},
                        {"max_new", longest()},
                        {"seed", request_.answers.seed}};
    tests["sampled"].update(dist(request_.answers.sampling));
    if (request_.bound) tests["sampled"]["bound"] = true;
  }
  if (request_.law) {
    tests["law"] = {{"rows", request_.contexts},
                    {"draws", request_.law_options.draws},
                    {"seed", request_.law_options.seed}};
    tests["law"].update(dist(request_.law_options.sampling));
  }
  if (request_.steps) {
    tests["steps"] = {{"contexts", request_.contexts},
                      {"draws", request_.step_options.draws},
                      {"lead", kMostLead},
                      {"seed", request_.step_options.seed}};
    tests["steps"].update(dist(request_.step_options.sampling));
  }
  if (request_.texts) {
    tests["texts"] = {{"prompts", text_prompts_.size()},
                      {"samples", request_.text_options.samples},
                      {"max_new", request_.text_options.max_new},
                      {"seed", request_.text_options.seed}};
    tests["texts"].update(dist(request_.text_options.sampling));
  }
  if (request_.steps || request_.texts) tests["negative_control"] = kNegativeControl;
  tests["prompts_hash"] = base::sha256_hex(prompts.dump());
  return tests;
}

void Certifier::run(const std::function<bool(const results::ArmRecord&, const std::string&)>& known,
                    const std::function<void(const Certificate&)>& done) {
  const std::string tests_text = tests().dump();
  std::erase_if(arms_, [&](const PlannedArm* arm) { return known(arm->record, tests_text); });
  if (arms_.empty()) return;
  measure_row_cost(request_.plan, plan_, request_.runner);  // before any session exists
  sessions_ = std::make_unique<ModelSessions>(planned_session(request_.plan, plan_));
  beside_ = std::make_unique<ModelSessions>(planned_session(request_.plan, plan_));
  work_ = total_work();
  begin_ns_ = clock_.now_ns();
  for (const PlannedArm* arm : arms_) done(certify_arm(*arm));
}

Certificate Certifier::certify_arm(const PlannedArm& arm) {
  label_ = arm.record.label;
  Certificate c;
  c.arm = arm.record;
  c.commit = build_info().commit;
  c.created = utc_now();
  c.settings = tests();
  engine::Session& session = sessions_->of(arm.model);
  PerModel& shared = shared_[arm.model.get()];
  const auto method = build(arm, request_.fault);
  if (request_.greedy) {
    part_ = "greedy";
    c.greedy = compare_tokens(*method, session, plan_.prompts, conversation_, {}, shared.greedy,
                              clock_, ticker(longest()));
  }
  if (request_.sampled) certify_sampled(arm, *method, session, shared, c);
  if (request_.law) {
    test_law(session, shared);
    c.law = shared.law;
  }
  // Nothing to control where nothing is claimed.
  const bool controlled = arm.record.lossless == "both";
  const auto control =
      controlled && (request_.steps || request_.texts) ? build(arm, kNegativeControl) : nullptr;
  if (request_.steps) {
    prepare_contexts(session, shared);
    const std::vector<StepContext> contexts = most_refused(
        *method, session, shared.contexts, request_.contexts, request_.step_options, clock_);
    const auto tick = ticker(request_.step_options.draws * kStepWork);
    const auto test = [&](methods::DecodingMethod& m) {
      return test_step_dist(m, session, contexts, request_.step_options, clock_, tick);
    };
    part_ = "steps";
    c.steps.emplace();
    c.steps->result = test(*method);
    c.steps->result.find_power(level(), request_.step_options.seed);
    part_ = "steps, negative control";
    if (controlled) c.steps->control = test(*control);
  }
  if (request_.texts) {
    prepare_texts(session, shared);
    part_ = "texts";
    c.texts.emplace();
    c.texts->result = compare(shared.texts, texts(*method, session, kMethod));
    part_ = "texts, negative control";
    if (controlled) c.texts->control = compare(shared.texts, texts(*control, session, kControl));
    c.plain_texts = shared.plain_dist;
  }
  return c;
}

// Equality where the method promises it, and where it promises nothing, which is not judged.
void Certifier::certify_sampled(const PlannedArm& arm, methods::DecodingMethod& method,
                                engine::Session& session, PerModel& shared, Certificate& c) {
  if (shared.sampled.answer.empty()) {
    part_ = "sampled answers of plain decoding";
    shared.sampled = decode_plainly(session, plan_.prompts, conversation_, request_.answers, clock_,
                                    ticker(longest()));
  }
  if (arm.record.lossless == "both") {
    if (!shared.plain_audit) {
      part_ = "audit of plain decoding";
      const auto plain = methods::parse_method("ar").info->build({}, {});
      shared.plain_audit = audit(*plain, arm, shared);
    }
    c.plain_audit = shared.plain_audit;
  }
  const bool by_tokens = arm.record.lossless != "both" || arm.sampled(request_.answers.sampling) ==
                                                              methods::SampledAnswers::kSameTokens;
  part_ = by_tokens ? "sampled" : "audit";
  if (by_tokens)
    c.sampled = compare_tokens(method, session, plan_.prompts, conversation_, request_.answers,
                               shared.sampled, clock_, ticker(longest()));
  else
    c.audit = audit(method, arm, shared);
  if (!request_.bound) return;
  part_ = "bound";
  c.bound =
      measure_acceptance(method, session, beside_->of(arm.model), plan_.prompts, shared.sampled,
                         conversation_, request_.answers, clock_, ticker(2 * longest()));
}

DecisionAudit Certifier::audit(methods::DecodingMethod& method, const PlannedArm& arm,
                               PerModel& shared) {
  return audit_decisions(method, sessions_->of(arm.model), beside_->of(arm.model), plan_.prompts,
                         shared.sampled, conversation_, request_.answers, clock_,
                         ticker(2 * longest()));
}

// On the rows after the texts of the step test's places.
void Certifier::test_law(engine::Session& session, PerModel& shared) {
  if (shared.law) return;
  prepare_contexts(session, shared);
  std::vector<std::vector<float>> rows;
  const auto n = static_cast<size_t>(request_.contexts);
  for (size_t i = 0; i < std::min(n, shared.contexts.size()); ++i)
    rows.push_back(logits_after(
        session,
        shared.contexts[i * shared.contexts.size() / std::min(n, shared.contexts.size())].text));
  part_ = "law of plain decoding";
  shared.law = test_plain_law(rows, request_.law_options, clock_, ticker(kLawWork));
  shared.law->find_power(level(), request_.law_options.seed);
}

std::unique_ptr<methods::DecodingMethod> Certifier::build(const PlannedArm& arm,
                                                          const std::string& fault) const {
  auto method = arm.build();
  return fault.empty() ? std::move(method) : methods::plant_fault(std::move(method), fault);
}

void Certifier::prepare_contexts(engine::Session& session, PerModel& shared) {
  if (!shared.contexts.empty()) return;
  part_ = "places for the step test";
  const PlainAnswers answers = decode_plainly(
      session, context_prompts_, conversation_,
      {request_.step_options.sampling, request_.step_options.seed, 1}, clock_, ticker(longest()));
  shared.contexts = step_places(context_prompts_, answers);
}

void Certifier::prepare_texts(engine::Session& session, PerModel& shared) {
  if (shared.plain_dist) return;
  part_ = "texts of plain decoding";
  const auto plain = methods::parse_method("ar").info->build({}, {});
  shared.texts = texts(*plain, session, kPlain);
  shared.plain_dist = compare(shared.texts, texts(*plain, session, kPlainAgain));
}

std::vector<SampledText> Certifier::texts(methods::DecodingMethod& method, engine::Session& session,
                                          Stream stream) {
  const TextDistributionOptions& o = request_.text_options;
  return sample_texts(method, session, text_prompts_, conversation_, o, stream, clock_,
                      ticker(o.samples * o.max_new));
}

TextDistribution Certifier::compare(const std::vector<SampledText>& plain,
                                    const std::vector<SampledText>& texts) {
  return compare_texts(plain, texts, request_.text_options);
}

int Certifier::longest() const {
  int most = 0;
  for (const PlannedPrompt& p : plan_.prompts) most = std::max(most, p.max_new);
  return most;
}

double Certifier::level() const {
  return level_of_part((request_.law ? 1 : 0) + (request_.steps ? 1 : 0) +
                       (request_.texts ? 1 : 0));
}

double Certifier::total_work() const {
  const auto n = static_cast<double>(arms_.size());
  std::map<const engine::Model*, int> models;
  double twice = 0;  // arms with a negative control
  for (const PlannedArm* arm : arms_) {
    ++models[arm->model.get()];
    twice += arm->record.lossless == "both";
  }
  const auto m = static_cast<double>(models.size());
  const auto tests = n + twice;
  double work = 0;
  const double answers = static_cast<double>(plan_.prompts.size()) * longest();
  if (request_.greedy) work += (n + m) * answers;
  // An audit of plain decoding, and of methods that reject, is about twice their work.
  if (request_.sampled) work += (2 * n + 3 * m) * answers * request_.answers.per_prompt;
  if (request_.sampled && request_.bound) work += 2 * n * answers * request_.answers.per_prompt;
  if (request_.steps || request_.law)
    work += m * static_cast<double>(context_prompts_.size()) * longest();
  if (request_.law) work += m * request_.contexts * kLawWork;
  if (request_.steps) work += tests * request_.contexts * request_.step_options.draws * kStepWork;
  if (request_.texts)
    work += (tests + 2 * m) * static_cast<double>(text_prompts_.size()) *
            request_.text_options.samples * request_.text_options.max_new;
  return work;
}

std::function<void()> Certifier::ticker(int tokens) {
  return [this, tokens] {
    worked_ += tokens;
    if (request_.runner.progress != nullptr)
      request_.runner.progress->working(label_ + ": " + part_, std::min(1.0, worked_ / work_),
                                        static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9);
    if (request_.runner.stop && request_.runner.stop())
      throw base::Error(base::ExitCode::kInterrupted,
                        fmt::format("interrupted at {}: {}", label_, part_),
                        "certificates that are whole are stored; the same command goes on");
  };
}

}  // namespace

std::vector<PlannedPrompt> spread_prompts(const std::vector<PlannedPrompt>& prompts, int n) {
  std::vector<PlannedPrompt> chosen;
  const size_t take = std::min(prompts.size(), static_cast<size_t>(std::max(n, 1)));
  for (size_t i = 0; i < take; ++i) chosen.push_back(prompts[i * prompts.size() / take]);
  return chosen;
}

std::vector<PlannedPrompt> place_prompts(const std::vector<PlannedPrompt>& prompts, int contexts) {
  return spread_prompts(prompts, kCandidates * contexts / 2);
}

std::vector<StepContext> step_places(std::span<const PlannedPrompt> prompts,
                                     const PlainAnswers& answers) {
  std::vector<StepContext> places;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t>& answer = answers.answer[i];
    const results::PromptRecord& prompt = prompts[i].record;
    for (const size_t root : {size_t{0}, answer.size() * 3 / 4}) {
      if (root > 0 && root + 1 >= answer.size()) continue;  // an answer of one or two tokens
      StepContext context{
          prompt.task, prompt.id, static_cast<int>(root) + 1, answers.prompt[i], {}};
      const auto end = answer.begin() + static_cast<std::ptrdiff_t>(root) + 1;
      const auto lead = end - std::min<std::ptrdiff_t>(kMostLead, end - answer.begin());
      context.text.insert(context.text.end(), answer.begin(), lead);
      context.lead.assign(lead, end);
      places.push_back(std::move(context));
    }
  }
  return places;
}

void certify(const CertifyRequest& request, base::Clock& clock,
             const std::function<bool(const results::ArmRecord&, const std::string& tests)>& known,
             const std::function<void(const Certificate&)>& done) {
  Certifier(request, clock).run(known, done);
}

}  // namespace evalrun::runners
