#include "runners/plan/plan_prompts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/evaluator.h"

namespace evalrun::runners {
namespace {

class PromptPlanner {
 public:
  PromptPlanner(const PlanRequest& request, RunPlan& plan)
      : request_(request), plan_(plan), conversation_(*request.target) {}

  PlannedData add_all() {
    for (const TaskSpec& task : request_.suite.tasks) add_task(task);
    check_prompts();
    return std::move(data_);
  }

 private:
  void add_task(const TaskSpec& task);
  void describe_data(const datasets::LoadedDataset& set, size_t n_measured);
  void add_prompt(const std::string& task, PlannedPrompt planned);
  void check_prompts() const;
  int context() const { return request_.target->config().max_context; }

  const PlanRequest& request_;
  RunPlan& plan_;
  Conversation conversation_;
  PlannedData data_;
  std::set<std::string> prompts_seen_;
};

int max_new_of(const Suite& suite, const TaskSpec& task, const datasets::DatasetInfo& info) {
  if (task.max_new > 0) return task.max_new;
  return suite.max_new > 0 ? suite.max_new : info.default_max_new;
}

// Evaluators of the data set, or those the suite asks for that fit it. One that was named but fits
// no data set at all is an error, found by the caller through `used`.
std::vector<std::string> evaluators_of(const Suite& suite, const datasets::LoadedDataset& set,
                                       std::set<std::string>& used) {
  std::vector<std::string> names;
  if (!suite.evaluate) return names;
  if (suite.evaluators.empty()) names = set.info.evaluators;
  // Another convention of an evaluator of the set fits as well: pass@codegeex for pass@evalrun. A
  // set that names none takes what it is given, if there is something to compare with; and any set
  // what a model says of its references, or what is said of an answer alone.
  const bool compares = std::any_of(set.prompts.begin(), set.prompts.end(),
                                    [](const auto& p) { return p.reference.has_value(); });
  std::set<std::string> fitting;
  for (const std::string& id : set.info.evaluators)
    fitting.insert(evaluators::find_evaluator(id).info.name);
  const auto add = [&](const std::string& id) {
    if (std::find(names.begin(), names.end(), id) == names.end()) names.push_back(id);
  };
  for (const std::string& text : suite.evaluators) {
    if (text == kOwnEvaluators) {
      for (const std::string& id : set.info.evaluators) add(id);
      continue;
    }
    const evaluators::EvaluatorInfo& info = evaluators::find_evaluator(text).info;
    const bool takes = compares && (info.by_model || set.info.evaluators.empty());
    if (fitting.contains(info.name) || takes || !info.needs_reference) add(info.id());
  }
  used.insert(names.begin(), names.end());
  return names;
}

// Whether an evaluator of the set is one of the prompt: where that names its own, those, and what
// needs nothing to compare with.
bool applies_to(const datasets::Prompt& prompt, const std::string& id) {
  const evaluators::EvaluatorInfo& info = evaluators::find_evaluator(id).info;
  return prompt.evaluators.empty() || info.by_model || !info.needs_reference ||
         std::find(prompt.evaluators.begin(), prompt.evaluators.end(), id) !=
             prompt.evaluators.end();
}

// The last turn after empty answers. Some templates refuse an empty answer; those get one letter.
std::string last_turn(const Conversation& conversation, const datasets::Prompt& prompt) {
  const size_t n_answers = prompt.turns.size() - 1;
  try {
    return conversation.render(prompt, std::vector<std::string>(n_answers));
  } catch (const base::Error&) {
    return conversation.render(prompt, std::vector<std::string>(n_answers, "."));
  }
}

// Tokens of the longest turn when every answer is empty, and of the first turn.
void measure_lengths(const Conversation& conversation, PlannedPrompt& planned) {
  const auto n_turns = planned.prompt.turns.size();
  const std::string first = conversation.render(planned.prompt, {});
  planned.record.rendered_hash = base::sha256_hex(first);
  planned.record.rendered = first;
  planned.first_turn_tokens = static_cast<int>(conversation.encode(planned.prompt, first).size());
  int longest = planned.first_turn_tokens;
  if (n_turns > 1) {
    const std::string last = last_turn(conversation, planned.prompt);
    longest = static_cast<int>(conversation.encode(planned.prompt, last).size());
  }
  planned.least_tokens = longest + planned.max_new;
  planned.most_tokens = longest + planned.max_new * static_cast<int>(n_turns);
}

void PromptPlanner::add_task(const TaskSpec& task) {
  const datasets::LoadedDataset set = datasets::load_dataset(task.task, request_.data_root);
  const double limit = task.limit != 0 ? task.limit : request_.suite.limit;
  std::vector<datasets::Prompt> prompts = datasets::limit_prompts(set.prompts, limit);
  plan_.origins.push_back(fmt::format("{}: {} of {} prompts, {}, {}", set.task, prompts.size(),
                                      set.prompts.size(), set.verification, set.origin));
  describe_data(set, prompts.size());
  const std::vector<std::string> evaluators = evaluators_of(request_.suite, set, data_.evaluators);
  for (datasets::Prompt& prompt : prompts) {
    if (request_.suite.max_turns > 0 &&
        prompt.turns.size() > static_cast<size_t>(request_.suite.max_turns))
      prompt.turns.resize(static_cast<size_t>(request_.suite.max_turns));
    PlannedPrompt planned;
    planned.max_new = max_new_of(request_.suite, task, set.info);
    if (prompt.chat) prompt.chat_template = task.chat_template;
    for (const std::string& id : evaluators)
      if (applies_to(prompt, id)) planned.evaluators.push_back(id);
    planned.prompt = std::move(prompt);
    add_prompt(set.task, std::move(planned));
  }
  data_.max_new[set.task] = max_new_of(request_.suite, task, set.info);
}

// For table headers: how many of the official prompts were measured, from what kind of file.
void PromptPlanner::describe_data(const datasets::LoadedDataset& set, size_t n_measured) {
  const nlohmann::json data = {{"measured", n_measured},
                               {"loaded", set.prompts.size()},
                               {"official", set.info.official_count},
                               {"verification", set.verification},
                               {"version", set.info.version},
                               {"origin", set.origin}};
  plan_.run.environment["data." + set.task] = data.dump();
}

void PromptPlanner::add_prompt(const std::string& task, PlannedPrompt planned) {
  results::PromptRecord& record = planned.record;
  record.task = task;
  record.id = planned.prompt.id;
  record.category = planned.prompt.category;
  record.language = planned.prompt.language;
  record.group = planned.prompt.group;
  record.turns = planned.prompt.turns;
  record.reference = planned.prompt.reference;
  EVALRUN_CHECK(!record.turns.empty(), "prompt {} has no turns", record.id);
  measure_lengths(conversation_, planned);
  if (planned.least_tokens > context()) {
    if (!request_.skip_long)
      throw base::usage_error(
          fmt::format("prompt {} of {} needs {} tokens with its answer ({} new); the context of {} "
                      "holds {}",
                      record.id, task, planned.least_tokens, planned.max_new,
                      request_.target->config().name, context()),
          "lower -n/--max-new, or leave such prompts out with --skip-long");
    plan_.skipped.push_back(record.id);
    return;
  }
  record.key = prompt_key(record, planned.prompt);
  if (!prompts_seen_.insert(record.id + "\n" + record.rendered_hash).second)
    throw base::usage_error(fmt::format("prompt {} of {} is listed twice", record.id, task),
                            "two of the data sets overlap (samples holds samples/chat, ...)");
  plan_.prompts.push_back(std::move(planned));
}

void PromptPlanner::check_prompts() const {
  if (plan_.prompts.empty())
    throw base::usage_error(
        plan_.skipped.empty()
            ? std::string("no prompts to measure")
            : fmt::format("no prompts left: all {} are too long", plan_.skipped.size()),
        "check --tasks, --limit and --max-new");
  for (const std::string& name : request_.suite.evaluators)
    if (name != kOwnEvaluators &&
        !data_.evaluators.contains(evaluators::find_evaluator(name).info.id()))
      throw base::usage_error(fmt::format("evaluator {} fits none of the data sets", name),
                              "`evalrun list tasks` shows which evaluators apply");
}

}  // namespace

PlannedData plan_prompts(const PlanRequest& request, RunPlan& plan) {
  return PromptPlanner(request, plan).add_all();
}

}  // namespace evalrun::runners
