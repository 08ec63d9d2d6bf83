// Which planted faults of graded size the audit of decisions finds, and after how many decisions:
// fault_study MODEL METHOD [SEEDS] [TOKENS] [FAULT...]. A trial decodes the twelve sample prompts
// by the sampler's default, T = 1, until a decision is wrong. Minutes on the default model.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>

#include "datasets/dataset.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "runners/plan/plan.h"
#include "runners/verify/decision_audit.h"

namespace {

using namespace evalrun;
using namespace evalrun::runners;

const std::vector<std::string> kFaults = {"none",
                                          "wrong-accept:1%",
                                          "wrong-accept:2%",
                                          "wrong-accept:5%",
                                          "wrong-accept:10%",
                                          "redraw-from-target",
                                          "verify-temperature:95%",
                                          "verify-temperature:98%",
                                          "verify-temperature:99.5%",
                                          "verify-top-p:95%",
                                          "drop-below:0.1%",
                                          "misreport-draft:80%",
                                          "scale-acceptance:110%",
                                          "scale-acceptance:101%"};

struct Trial {
  int64_t decisions = 0;  // until the first wrong one, or all
  int64_t tokens = 0;
  bool found = false;
};

int run(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "fault_study MODEL METHOD [SEEDS] [TOKENS] [FAULT...]\n");
    return 2;
  }
  PlanRequest request;
  request.target = engine::load_model(argv[1], {.format = engine::weight_format_by_name("auto")});
  const int seeds = argc > 3 ? std::atoi(argv[3]) : 20, tokens = argc > 4 ? std::atoi(argv[4]) : 64;
  std::vector<std::string> faults(argv + std::min(argc, 5), argv + argc);
  if (faults.empty()) faults = kFaults;
  request.suite.methods = {argv[2]};
  request.suite.tasks = {{.task = "samples"}};
  request.suite.limit = 12;
  request.suite.max_new = tokens;
  request.suite.max_turns = 1;
  request.suite.aa = false;
  request.suite.evaluate = false;
  complete_suite(request.suite, "study");
  request.data_root = datasets::resolve_data_root("");
  const RunPlan plan = make_plan(request);
  const Conversation conversation(*request.target);
  const auto session = engine::Session::create(request.target, planned_session(request, plan));
  const auto beside = engine::Session::create(request.target, planned_session(request, plan));
  PlainAnswers plain;
  for (const PlannedPrompt& p : plan.prompts)
    plain.prompt.push_back(conversation.encode(p.prompt, conversation.render(p.prompt, {})));
  const PlannedArm& arm = plan.arms.back();
  base::SteadyClock clock;
  fmt::print("| fault | found | decisions until then: median | most | answers' tokens: median |\n");
  for (const std::string& fault : faults) {
    std::vector<Trial> trials;
    for (int seed = 1; seed <= seeds; ++seed) {
      auto method = arm.build();
      if (fault != "none") method = methods::plant_fault(std::move(method), fault);
      const AnswerOptions options{{1.0, 0, 1.0}, static_cast<uint64_t>(seed), 1};
      DecisionAuditor auditor(*method, *beside, clock);
      for (size_t i = 0; i < plan.prompts.size() && auditor.audit().first.empty(); ++i) {
        auditor.begin(plain.prompt[i], options.sampling, base::combine_seeds({options.seed, i}));
        auditor.end(
            decode_answer(*method, *session, plan.prompts, plain, i, conversation, options, clock),
            "", "");
      }
      const DecisionAudit& audit = auditor.audit();
      trials.push_back({audit.decisions(), audit.tokens, !audit.first.empty()});
    }
    const auto found =
        std::count_if(trials.begin(), trials.end(), [](const Trial& t) { return t.found; });
    std::vector<int64_t> decisions, text;
    for (const Trial& t : trials) decisions.push_back(t.decisions), text.push_back(t.tokens);
    std::sort(decisions.begin(), decisions.end());
    std::sort(text.begin(), text.end());
    fmt::print("| {} | {} of {} | {} | {} | {} |\n", fault, found, seeds,
               decisions[decisions.size() / 2], decisions.back(), text[text.size() / 2]);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fault_study: {}\n", e.what());
    return 1;
  }
}
