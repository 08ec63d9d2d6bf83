#include "runners/plan/plan_arms.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/session_options.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "methods/speculative_method.h"
#include "runners/machine/environment.h"

namespace evalrun::runners {
namespace {

// Folders of a path that a label may hold: labels that differ in nothing else are left as they are.
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

constexpr const char* kAgain = " (A/A)";

class ArmPlanner {
 public:
  ArmPlanner(const PlanRequest& request, const std::map<std::string, int>& max_new, RunPlan& plan)
      : request_(request), max_new_(max_new), plan_(plan) {}
  void add_all();

 private:
  void add_arm(const std::string& text, const std::string& role);
  bool has_arm(const std::function<bool(const results::ArmRecord&)>& f) const;
  PlannedArm make_arm(const methods::MethodSpec& spec, const std::string& role) const;
  engine::SessionOptions session_options() const;
  void describe_engine(const engine::Model& model, results::ArmRecord& r) const;
  void shorten_labels();
  void plant_faults();
  void check_engine_mode() const;

  const PlanRequest& request_;
  const std::map<std::string, int>& max_new_;  // by task
  RunPlan& plan_;
};

void ArmPlanner::add_all() {
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
  shorten_labels();
  plant_faults();
  check_engine_mode();
}

void ArmPlanner::add_arm(const std::string& text, const std::string& role) {
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

bool ArmPlanner::has_arm(const std::function<bool(const results::ArmRecord&)>& f) const {
  return std::any_of(plan_.arms.begin(), plan_.arms.end(),
                     [&](const PlannedArm& arm) { return f(arm.record); });
}

// A method that cannot be built (no draft model, another vocabulary) must fail now, not after an
// hour of measuring the arms before it.
PlannedArm ArmPlanner::make_arm(const methods::MethodSpec& spec, const std::string& role) const {
  const methods::MethodBuildContext context = {request_.target, session_options(), request_.draft};
  PlannedArm arm;
  arm.model = methods::decoded_model(spec, context);
  results::ArmRecord& r = arm.record;
  r.label = role == "aa" ? spec.label() + kAgain : spec.label();
  r.method = spec.info->name;
  r.params = spec.params.canonical();
  r.method_version = spec.info->version;
  r.role = role;
  r.lossless = methods::to_string(spec.lossless());
  if (const engine::SamplingParams& sampling = request_.suite.sampling; !sampling.greedy()) {
    r.settings["sampler"] = engine::to_string(sampling.sampler);
    if (spec.lossless() == methods::Lossless::kBoth)
      r.settings["sampled"] = spec.sampled(sampling) == methods::SampledAnswers::kSameTokens
                                  ? "same tokens"
                                  : "same distribution";
  }
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
    for (const auto& [name, hash] : spec.info->files(spec.params, context)) r.settings[name] = hash;
  arm.sampled = [spec](const engine::SamplingParams& sampling) { return spec.sampled(sampling); };
  arm.build = [spec, context, costs = plan_.row_cost] {
    methods::MethodBuildContext now = context;
    if (!costs->table.empty()) now.row_cost = &costs->table;
    return spec.info->build(spec.params, now);
  };
  const std::unique_ptr<methods::DecodingMethod> method = arm.build();
  if (request_.suite.replay) methods::with_verdicts(*method, fmt::format("{}: replay", r.label));
  r.extra_parameter_bytes = static_cast<int64_t>(method->extra_parameter_bytes());
  r.key = arm_key(r);
  return arm;
}

engine::SessionOptions ArmPlanner::session_options() const {
  engine::SessionOptions options = request_.session;
  options.max_tokens = plan_.capacity;
  options.kv_cache = request_.suite.kv_cache;
  return engine::resolve_engine(std::move(options));
}

void ArmPlanner::describe_engine(const engine::Model& model, results::ArmRecord& r) const {
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
  r.settings.merge(figure_variables());
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
  for (const TaskSpec& task : suite.tasks)
    if (!task.chat_template.empty()) r.settings["chat_template." + task.task] = task.chat_template;
}

// By the labels that the plan has in the end.
void ArmPlanner::plant_faults() {
  for (const auto& [label, fault] : request_.faults) {
    const auto arm = std::find_if(plan_.arms.begin(), plan_.arms.end(),
                                  [&](const PlannedArm& a) { return a.record.label == label; });
    EVALRUN_CHECK(arm != plan_.arms.end(), "no arm '{}' to plant '{}' in", label, fault);
    arm->fault = fault;
    arm->build = [sound = arm->build, text = fault] { return methods::plant_fault(sound(), text); };
  }
}

// Labels name files, not paths; files of one name in different folders with as many of these as it
// takes. The whole path is among the parameters.
void ArmPlanner::shorten_labels() {
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
  for (PlannedArm& arm : plan_.arms)
    if (arm.record.role == "aa") arm.record.label = plan_.arms.front().record.label + kAgain;
}

// A speedup compares arms that differ in the method alone (reports refuse anything else).
void ArmPlanner::check_engine_mode() const {
  const results::ArmRecord& first = plan_.arms.front().record;
  for (const PlannedArm& arm : plan_.arms) {
    const results::ArmRecord& r = arm.record;
    EVALRUN_CHECK(r.dtype == first.dtype && r.isa == first.isa && r.device == first.device &&
                      r.threads == first.threads && r.batch == first.batch &&
                      r.kv_cache == first.kv_cache,
                  "{} and {} are planned in different engine modes", r.label, first.label);
  }
}

}  // namespace

void plan_arms(const PlanRequest& request, const std::map<std::string, int>& max_new,
               RunPlan& plan) {
  ArmPlanner(request, max_new, plan).add_all();
}

}  // namespace evalrun::runners
