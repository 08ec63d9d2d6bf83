#include "runners/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/session_options.h"
#include "evaluators/evaluator.h"
#include "methods/faults.h"
#include "methods/speculative_method.h"
#include "runners/machine/environment.h"
#include "runners/machine/gpu_state.h"

namespace evalrun::runners {
namespace {

// Room behind the longest conversation for the rows of one step. Methods that want more get less at
// the end of the longest answers only.
constexpr int kRowRoom = 512;

// Of a label that must differ from another.
constexpr int kMostFolders = 64;

// "medusa:adapter=/x/y/z.st" -> "medusa:adapter=y/z.st" for one folder.
std::string with_folders(const std::string& label, int folders) {
  std::vector<std::string> pieces = base::split(label, ',');
  for (std::string& piece : pieces) {
    const size_t value = piece.find('=') + 1;  // 0 without one
    size_t slash = piece.rfind('/');
    for (int i = 0; i < folders && slash != piece.npos; ++i)
      slash = slash > value ? piece.rfind('/', slash - 1) : piece.npos;
    if (value > 0 && slash != piece.npos) piece.erase(value, slash + 1 - value);
  }
  return fmt::format("{}", fmt::join(pieces, ","));
}

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
  if (suite.evaluators.empty()) {
    names = set.info.evaluators;
  } else {
    // Another convention of an evaluator of the set fits as well: pass@codegeex for pass@evalrun. A
    // set that names none takes what it is given, if there is something to compare with.
    const bool takes_any =
        set.info.evaluators.empty() &&
        std::any_of(set.prompts.begin(), set.prompts.end(),
                    [](const datasets::Prompt& p) { return p.reference.has_value(); });
    std::set<std::string> fitting;
    for (const std::string& id : set.info.evaluators)
      fitting.insert(evaluators::find_evaluator(id).info.name);
    for (const std::string& text : suite.evaluators) {
      const evaluators::EvaluatorInfo& info = evaluators::find_evaluator(text).info;
      if (fitting.contains(info.name) || takes_any) names.push_back(info.id());
    }
  }
  used.insert(names.begin(), names.end());
  return names;
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
    const std::vector<std::string> empty(n_turns - 1);
    const std::string last = conversation.render(planned.prompt, empty);
    longest = static_cast<int>(conversation.encode(planned.prompt, last).size());
  }
  planned.least_tokens = longest + planned.max_new;
  planned.most_tokens = longest + planned.max_new * static_cast<int>(n_turns);
}

class Planner {
 public:
  explicit Planner(const PlanRequest& request) : request_(request), conversation_(*request.target) {
    plan_.suite = request.suite;
  }

  RunPlan make() {
    for (const TaskSpec& task : request_.suite.tasks) add_task(task);
    check_prompts();
    int most = 0;
    for (const PlannedPrompt& p : plan_.prompts) most = std::max(most, p.most_tokens);
    plan_.capacity = std::min(most + kRowRoom, context());
    for (const std::string& method : request_.suite.methods) {
      add_arm(method, plan_.arms.empty() ? "baseline" : "method");
      if (plan_.arms.size() == 1 && request_.suite.aa) add_arm(method, "aa");
    }
    for (const std::string& method : request_.suite.optional_methods) try {
        add_arm(method, "method");
      } catch (const base::Error& e) {
        if (e.code() != base::ExitCode::kUsage) throw;
        plan_.left_out.push_back(
            fmt::format("{} ({})", methods::parse_method(method).label(), e.message()));
      }
    check_faults();
    shorten_labels();
    check_engine_mode();
    plan_.schedule =
        make_schedule({static_cast<int>(plan_.prompts.size()), static_cast<int>(plan_.arms.size()),
                       plan_.suite.repeats, plan_.suite.samples},
                      plan_.suite.order, plan_.suite.seed);
    describe_run();
    return std::move(plan_);
  }

 private:
  int context() const { return request_.target->config().max_context; }

  void add_task(const TaskSpec& task) {
    const datasets::LoadedDataset set = datasets::load_dataset(task.task, request_.data_root);
    const double limit = task.limit != 0 ? task.limit : request_.suite.limit;
    std::vector<datasets::Prompt> prompts = datasets::limit_prompts(set.prompts, limit);
    plan_.origins.push_back(fmt::format("{}: {} of {} prompts, {}, {}", set.task, prompts.size(),
                                        set.prompts.size(), set.verification, set.origin));
    describe_data(set, prompts.size());
    const std::vector<std::string> evaluators =
        evaluators_of(request_.suite, set, used_evaluators_);
    for (datasets::Prompt& prompt : prompts) {
      if (request_.suite.max_turns > 0 &&
          prompt.turns.size() > static_cast<size_t>(request_.suite.max_turns))
        prompt.turns.resize(static_cast<size_t>(request_.suite.max_turns));
      PlannedPrompt planned;
      planned.max_new = max_new_of(request_.suite, task, set.info);
      for (const std::string& id : evaluators)
        if (prompt.evaluators.empty() ||
            std::find(prompt.evaluators.begin(), prompt.evaluators.end(), id) !=
                prompt.evaluators.end())
          planned.evaluators.push_back(id);
      planned.prompt = std::move(prompt);
      add_prompt(set.task, std::move(planned));
    }
    max_new_[set.task] = max_new_of(request_.suite, task, set.info);
  }

  // For table headers: how many of the official prompts were measured, from what kind of file.
  void describe_data(const datasets::LoadedDataset& set, size_t n_measured) {
    const nlohmann::json data = {{"measured", n_measured},
                                 {"loaded", set.prompts.size()},
                                 {"official", set.info.official_count},
                                 {"verification", set.verification},
                                 {"version", set.info.version},
                                 {"origin", set.origin}};
    plan_.run.environment["data." + set.task] = data.dump();
  }

  void add_prompt(const std::string& task, PlannedPrompt planned) {
    results::PromptRecord& record = planned.record;
    record.task = task;
    record.id = planned.prompt.id;
    record.category = planned.prompt.category;
    record.language = planned.prompt.language;
    record.turns = planned.prompt.turns;
    record.reference = planned.prompt.reference;
    EVALRUN_CHECK(!record.turns.empty(), "prompt {} has no turns", record.id);
    measure_lengths(conversation_, planned);
    if (planned.least_tokens > context()) {
      if (!request_.skip_long)
        throw base::usage_error(
            fmt::format(
                "prompt {} of {} needs {} tokens with its answer ({} new); the context of {} "
                "holds {}",
                record.id, task, planned.least_tokens, planned.max_new,
                request_.target->config().name, context()),
            "lower -n/--max-new, or leave such prompts out with --skip-long");
      plan_.skipped.push_back(record.id);
      return;
    }
    record.key = prompt_key(record, planned.prompt.stop);
    if (!prompts_seen_.insert(record.id + "\n" + record.rendered_hash).second)
      throw base::usage_error(fmt::format("prompt {} of {} is listed twice", record.id, task),
                              "two of the data sets overlap (samples holds samples/chat, ...)");
    plan_.prompts.push_back(std::move(planned));
  }

  void check_prompts() const {
    if (plan_.prompts.empty())
      throw base::usage_error(
          plan_.skipped.empty()
              ? std::string("no prompts to measure")
              : fmt::format("no prompts left: all {} are too long", plan_.skipped.size()),
          "check --tasks, --limit and --max-new");
    for (const std::string& name : request_.suite.evaluators)
      if (!used_evaluators_.contains(evaluators::find_evaluator(name).info.id()))
        throw base::usage_error(fmt::format("evaluator {} fits none of the data sets", name),
                                "`evalrun list tasks` shows which evaluators apply");
  }

  void add_arm(const std::string& text, const std::string& role) {
    const methods::MethodSpec spec = methods::parse_method(text);
    PlannedArm arm = make_arm(spec, role);
    // Plain decoding of a tuned target that was added for an earlier method and is listed, too.
    if (has_arm([&](const results::ArmRecord& r) { return r.key == arm.record.key; })) return;
    if (arm.model != request_.target && spec.info->plain) {
      const std::string plain = spec.info->plain(spec.params);
      const std::string name = methods::parse_method(plain).info->name;
      if (!has_arm([&](const results::ArmRecord& r) {
            return r.method == name && r.model_hash == arm.record.model_hash;
          }))
        add_arm(plain, "method");
    }
    plan_.arms.push_back(std::move(arm));
  }

  bool has_arm(const std::function<bool(const results::ArmRecord&)>& f) const {
    return std::any_of(plan_.arms.begin(), plan_.arms.end(),
                       [&](const PlannedArm& arm) { return f(arm.record); });
  }

  // Labels name files, not paths; files of one name in different folders with as many of these as
  // it takes. The whole path is among the parameters.
  void shorten_labels() {
    std::map<std::string, std::vector<std::string*>> same;  // file names alone -> labels
    for (PlannedArm& arm : plan_.arms)
      if (arm.record.role != "aa")
        same[with_folders(arm.record.label, 0)].push_back(&arm.record.label);
    for (const auto& [name, labels] : same) {
      int folders = 0;
      std::set<std::string> told_apart;
      do {
        told_apart.clear();
        for (const std::string* label : labels) told_apart.insert(with_folders(*label, folders));
      } while (told_apart.size() < labels.size() && ++folders < kMostFolders);
      for (std::string* label : labels) *label = with_folders(*label, folders);
    }
  }

  // A method that cannot be built (no draft model, another vocabulary) must fail now, not after an
  // hour of measuring the arms before it.
  PlannedArm make_arm(const methods::MethodSpec& spec, const std::string& role) const {
    const methods::MethodBuildContext context = {request_.target, session_options(),
                                                 request_.draft};
    PlannedArm arm;
    arm.model = methods::decoded_model(spec, context);
    results::ArmRecord& r = arm.record;
    r.label = role == "aa" ? spec.label() + " (A/A)" : spec.label();
    r.method = spec.info->name;
    r.params = spec.params.canonical();
    r.method_version = spec.info->version;
    r.role = role;
    r.lossless = methods::to_string(spec.lossless());
    describe_engine(*arm.model, r);
    if (request_.draft != nullptr && spec.info->takes_draft_model) {
      r.draft = request_.draft->path();
      r.draft_hash = request_.draft->hash();
      // `auto` may give the draft model another format than the target.
      r.settings["draft_dtype"] = engine::name_of(request_.draft->format());
    }
    if (spec.steps() != methods::StepReproducibility::kFixed)
      r.settings["steps"] = spec.steps() == methods::StepReproducibility::kCarryState
                                ? "carry state"
                                : "follow the machine";
    if (spec.info->files)
      for (const auto& [name, hash] : spec.info->files(spec.params, context))
        r.settings[name] = hash;
    if (const auto it = request_.faults.find(r.label); it != request_.faults.end())
      arm.fault = it->second;
    arm.build = [spec, context, fault = arm.fault, costs = plan_.row_cost] {
      methods::MethodBuildContext now = context;
      if (!costs->table.empty()) now.row_cost = &costs->table;
      std::unique_ptr<methods::DecodingMethod> method = spec.info->build(spec.params, now);
      return fault.empty() ? std::move(method) : methods::plant_fault(std::move(method), fault);
    };
    const std::unique_ptr<methods::DecodingMethod> method = arm.build();
    if (request_.suite.replay) methods::with_verdicts(*method, fmt::format("{}: replay", r.label));
    r.extra_parameter_bytes = static_cast<int64_t>(method->extra_parameter_bytes());
    r.key = arm_key(r);
    return arm;
  }

  engine::SessionOptions session_options() const {
    engine::SessionOptions options = request_.session;
    options.max_tokens = plan_.capacity;
    options.kv_cache = request_.suite.kv_cache;
    return engine::resolve_engine(std::move(options));
  }

  void describe_engine(const engine::Model& model, results::ArmRecord& r) const {
    const Suite& suite = request_.suite;
    const engine::SessionOptions options = session_options();
    r.model = model.config().name;
    r.model_hash = model.hash();
    r.dtype = engine::name_of(model.format());
    r.isa = options.isa;
    r.device = options.device;
    r.threads = options.n_threads;
    r.kv_cache = suite.kv_cache;
    r.temperature = suite.sampling.temperature;
    r.top_p = suite.sampling.top_p;
    r.top_k = suite.sampling.top_k;
    for (const auto& [task, max_new] : max_new_) r.max_new = std::max(r.max_new, max_new);
    r.ignore_eos = suite.ignore_eos;
    r.weight_bytes = static_cast<int64_t>(model.weight_bytes());
    r.settings = figure_variables();
    for (const auto& [task, max_new] : max_new_)
      if (max_new != r.max_new) r.settings["max_new." + task] = std::to_string(max_new);
    if (options.one_isa) r.settings["bits"] = "one-isa";
    if (!options.kv_dtype.empty()) r.settings["kv_dtype"] = options.kv_dtype;
    r.settings["seed"] = std::to_string(suite.seed);
    r.settings["order"] = runners::to_string(suite.order);
    if (suite.replay) r.settings["replay"] = "reference";
    if (suite.max_turns > 0) r.settings["max_turns"] = std::to_string(suite.max_turns);
    if (request_.target->chat_template() != nullptr)
      r.settings["chat_template"] = request_.target->chat_template()->name();
  }

  void check_faults() const {
    for (const auto& [label, fault] : request_.faults)
      EVALRUN_CHECK(std::any_of(plan_.arms.begin(), plan_.arms.end(),
                                [&](const PlannedArm& arm) { return arm.record.label == label; }),
                    "no arm '{}' to plant '{}' in", label, fault);
  }

  // A speedup compares arms that differ in the method alone (reports refuse anything else).
  void check_engine_mode() const {
    const results::ArmRecord& first = plan_.arms.front().record;
    for (const PlannedArm& arm : plan_.arms) {
      const results::ArmRecord& r = arm.record;
      EVALRUN_CHECK(r.dtype == first.dtype && r.isa == first.isa && r.device == first.device &&
                        r.threads == first.threads && r.batch == first.batch &&
                        r.kv_cache == first.kv_cache,
                    "{} and {} are planned in different engine modes", r.label, first.label);
    }
  }

  void describe_run() {
    results::RunRecord& run = plan_.run;
    run.environment.merge(capture_environment());
    run.environment.merge(gpu_environment(plan_.arms.front().record.device));
    run.environment["model_path"] = request_.target->path();
    run.environment["model_hash"] = request_.target->hash();
    if (request_.draft != nullptr) run.environment["draft_path"] = request_.draft->path();
    run.label = request_.label.empty() ? plan_.suite.name : request_.label;
    run.suite = plan_.suite.name;
    run.suite_json = to_json(plan_.suite).dump(2);
    run.commit = build_info().commit;
    run.version = build_info().version;
    run.started = utc_now();
    run.command = request_.command;
    RunKeyParts parts;
    for (const PlannedArm& arm : plan_.arms) parts.arm_keys.push_back(arm.record.key);
    for (const PlannedPrompt& prompt : plan_.prompts)
      parts.prompt_keys.push_back(prompt.record.key);
    const BuildInfo& build = build_info();
    parts.build = fmt::format("{} {} {} {} {}", build.version, build.id, build.build_type,
                              build.compiler, build.sanitizers);
    parts.machine =
        fmt::format("{}, {} cores", run.environment["cpu"], run.environment["cores_allowed"]);
    if (const auto gpu = run.environment.find("gpu"); gpu != run.environment.end())
      parts.machine += ", " + gpu->second;
    parts.label = run.label;
    parts.nonce = request_.nonce;
    parts.faults = request_.faults;
    for (const std::string& name : used_evaluators_)
      parts.evaluator_versions[name] = evaluators::evaluator_registry().get(name).info.version;
    run.key = run_key(plan_.suite, parts);
  }

  const PlanRequest& request_;
  Conversation conversation_;
  RunPlan plan_;
  std::map<std::string, int> max_new_;  // per task
  std::set<std::string> prompts_seen_, used_evaluators_;
};

}  // namespace

RunPlan make_plan(const PlanRequest& request) { return Planner(request).make(); }

engine::SessionOptions planned_session(const PlanRequest& request, const RunPlan& plan) {
  engine::SessionOptions options = request.session;
  options.max_tokens = plan.capacity;
  options.kv_cache = request.suite.kv_cache;
  options.n_threads = plan.arms.front().record.threads;
  options.isa = plan.arms.front().record.isa;
  options.device = plan.arms.front().record.device;
  return options;
}

double minimum_detectable_effect(double sd, int n) {
  constexpr double kQuantiles = 1.6449 + 0.8416;  // normal, 95 % and 80 %
  return 1 - std::exp(-kQuantiles * sd / std::sqrt(static_cast<double>(n)));
}

}  // namespace evalrun::runners
