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

// Places looked at for each that is tested.
constexpr int kCandidates = 4;

// n of them, evenly over the list.
std::vector<PlannedPrompt> spread(const std::vector<PlannedPrompt>& prompts, int n) {
  std::vector<PlannedPrompt> chosen;
  const size_t take = std::min(prompts.size(), static_cast<size_t>(std::max(n, 1)));
  for (size_t i = 0; i < take; ++i) chosen.push_back(prompts[i * prompts.size() / take]);
  return chosen;
}

bool is_plain(const PlannedArm& arm) {
  return arm.record.role != "method" || arm.record.method == "ar_tuned";
}

// What the arms of one model share: made when the first of them needs it.
struct PerModel {
  PlainAnswers greedy;
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
  std::unique_ptr<methods::DecodingMethod> build(const PlannedArm& arm,
                                                 const std::string& fault) const;
  // Two places in a sampled answer of plain decoding: after its first token, where a method
  // starts, and late in it, where it is led for a while first.
  void prepare_contexts(engine::Session& session, PerModel& shared);
  void prepare_texts(engine::Session& session, PerModel& shared);
  std::vector<SampledText> texts(methods::DecodingMethod& method, engine::Session& session,
                                 Stream stream);
  TextDistribution compare(const std::vector<SampledText>& plain,
                           const std::vector<SampledText>& texts);
  int longest() const;
  // In decoded tokens, as if every step emitted one.
  double total_work() const;
  std::function<void()> ticker(int tokens);

  const CertifyRequest& request_;
  base::Clock& clock_;
  RunPlan plan_;
  Conversation conversation_;
  std::unique_ptr<ModelSessions> sessions_;
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
      text_prompts_(spread(plan_.prompts, request.text_prompts)),
      context_prompts_(spread(plan_.prompts, kCandidates * request.contexts / 2)) {
  for (const PlannedArm& arm : plan_.arms)
    if (!is_plain(arm)) arms_.push_back(&arm);
  if (request.runner.progress != nullptr)
    for (const std::string& prompt : plan_.skipped)
      request.runner.progress->left_out("prompt " + prompt + ", too long for the context");
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
    return nlohmann::ordered_json{
        {"temperature", s.temperature}, {"top_k", s.top_k}, {"top_p", s.top_p}};
  };
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
    c.greedy = prove_greedy(*method, session, plan_.prompts, conversation_, shared.greedy, clock_,
                            ticker(longest()));
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
    c.steps->result.find_power(kCertificateLevel, request_.step_options.seed);
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

std::unique_ptr<methods::DecodingMethod> Certifier::build(const PlannedArm& arm,
                                                          const std::string& fault) const {
  auto method = arm.build();
  return fault.empty() ? std::move(method) : methods::plant_fault(std::move(method), fault);
}

void Certifier::prepare_contexts(engine::Session& session, PerModel& shared) {
  if (!shared.contexts.empty()) return;
  part_ = "places for the step test";
  const PlainAnswers answers =
      decode_plainly(session, context_prompts_, conversation_, request_.step_options.sampling,
                     request_.step_options.seed, clock_, ticker(longest()));
  for (size_t i = 0; i < context_prompts_.size(); ++i) {
    const std::vector<int32_t>& answer = answers.answer[i];
    const results::PromptRecord& prompt = context_prompts_[i].record;
    for (const size_t root : {size_t{0}, answer.size() * 3 / 4}) {
      if (root > 0 && root + 1 >= answer.size()) continue;  // an answer of one or two tokens
      StepContext context{
          prompt.task, prompt.id, static_cast<int>(root) + 1, answers.prompt[i], {}};
      const auto end = answer.begin() + static_cast<std::ptrdiff_t>(root) + 1;
      const auto lead = end - std::min<std::ptrdiff_t>(kMostLead, end - answer.begin());
      context.text.insert(context.text.end(), answer.begin(), lead);
      context.lead.assign(lead, end);
      shared.contexts.push_back(std::move(context));
    }
  }
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
  if (request_.greedy) work += (n + m) * static_cast<double>(plan_.prompts.size()) * longest();
  if (request_.steps)
    work += tests * request_.contexts * request_.step_options.draws * kStepWork +
            m * static_cast<double>(context_prompts_.size()) * longest();
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

void certify(const CertifyRequest& request, base::Clock& clock,
             const std::function<bool(const results::ArmRecord&, const std::string& tests)>& known,
             const std::function<void(const Certificate&)>& done) {
  Certifier(request, clock).run(known, done);
}

}  // namespace evalrun::runners
