#include "runners/plan/plan_arms.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/session_options.h"
#include "methods/faults.h"
#include "methods/registration.h"
#include "methods/speculative_method.h"
#include "runners/machine/environment.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/plan/batch_memory.h"
#include "runners/plan/endpoint_arm.h"
#include "runners/plan/suite_endpoints.h"

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
  void add_methods();
  void add_beside_servers();
  void add_server(const EndpointSpec& spec, const std::string& role);
  void add_optional(const std::string& method);
  void add_arm(const std::string& text, const std::string& role, int batch);
  bool has_arm(const std::function<bool(const results::ArmRecord&)>& f) const;
  const results::ArmRecord& baseline_of(int batch) const;
  PlannedArm make_arm(const methods::MethodSpec& spec, const std::string& role, int batch) const;
  std::function<std::unique_ptr<methods::DecodingMethod>()> builder(
      const methods::MethodSpec& spec, const methods::MethodBuildContext& context) const;
  engine::SessionOptions session_options() const;
  void describe_engine(const engine::Model& model, int batch, results::ArmRecord& r) const;
  void describe_suite(results::ArmRecord& r) const;
  void shorten_labels();
  void plant_faults();
  void name_choice();
  void check_engine_mode() const;

  const PlanRequest& request_;
  const std::map<std::string, int>& max_new_;  // by task
  RunPlan& plan_;
};

void ArmPlanner::add_all() {
  if (request_.suite.endpoints.empty())
    add_methods();
  else
    add_beside_servers();
  for (const std::string& method : request_.suite.optional_methods) add_optional(method);
  shorten_labels();
  plant_faults();
  name_choice();
  check_engine_mode();
}

void ArmPlanner::add_methods() {
  const Suite& suite = request_.suite;
  for (const std::string& method : suite.methods) {
    const bool plain = &method == suite.methods.data();  // the suite has it first
    for (const int batch : suite.batches.sizes) {
      add_arm(method, plain ? "baseline" : "method", batch);
      if (plain && suite.aa) add_arm(method, "aa", batch);
    }
  }
}

// The baseline first, so that arm 0 is always it.
void ArmPlanner::add_beside_servers() {
  const Suite& suite = request_.suite;
  const EndpointArms arms = {suite.endpoints, suite.baseline, suite.methods};
  const EndpointSpec* server = baseline_endpoint(arms);
  const std::string baseline = server == nullptr ? baseline_method(arms) : "";
  for (const char* role : {"baseline", "aa"}) {
    if (role == std::string_view("aa") && !suite.aa) continue;
    if (server != nullptr)
      add_server(*server, role);
    else
      add_arm(baseline, role, 1);
  }
  for (const EndpointSpec& other : suite.endpoints)
    if (&other != server) add_server(other, "method");
  for (const std::string& method : suite.methods)
    if (method != baseline) add_arm(method, "method", 1);
}

void ArmPlanner::add_server(const EndpointSpec& spec, const std::string& role) {
  PlannedArm arm;
  arm.model = request_.target;
  arm.endpoint = spec;
  arm.connect = [spec, connect = request_.connect](const EndpointTools& tools) {
    return connect(spec, tools);
  };
  base::SteadyClock clock;
  const EndpointAbilities can = arm.connect({.clock = clock})->abilities();
  describe_endpoint(request_.suite, spec, can, arm.record);
  describe_suite(arm.record);
  arm.record.role = role;
  if (role == "aa") arm.record.label += kAgain;
  arm.record.key = arm_key(arm.record);
  plan_.arms.push_back(std::move(arm));
}

// One that cannot be measured at some size is left out at all of them.
void ArmPlanner::add_optional(const std::string& method) {
  const size_t before = plan_.arms.size();
  try {
    for (const int batch : request_.suite.batches.sizes) add_arm(method, "method", batch);
  } catch (const base::Error& e) {
    if (e.code() != base::ExitCode::kUsage) throw;
    plan_.arms.erase(plan_.arms.begin() + static_cast<std::ptrdiff_t>(before), plan_.arms.end());
    plan_.left_out.push_back(
        fmt::format("{} ({})", methods::parse_method(method).label(), e.message()));
  }
}

void ArmPlanner::add_arm(const std::string& text, const std::string& role, int batch) {
  const methods::MethodSpec spec = methods::parse_method(text);
  PlannedArm arm = make_arm(spec, role, batch);
  // Plain decoding of a tuned target that was added for an earlier method and is listed, too.
  if (has_arm([&](const results::ArmRecord& r) { return r.key == arm.record.key; })) return;
  if (arm.model != request_.target && spec.info->plain) {
    const std::string plain = spec.info->plain(spec.params);
    const std::string name = methods::parse_method(plain).info->name;
    if (!has_arm([&](const results::ArmRecord& r) {
          return r.method == name && r.model_hash == arm.record.model_hash && r.batch == batch;
        }))
      add_arm(plain, "method", batch);
  }
  plan_.arms.push_back(std::move(arm));
}

bool ArmPlanner::has_arm(const std::function<bool(const results::ArmRecord&)>& f) const {
  return std::any_of(plan_.arms.begin(), plan_.arms.end(),
                     [&](const PlannedArm& arm) { return f(arm.record); });
}

// Plain decoding that arms of this batch are compared with.
const results::ArmRecord& ArmPlanner::baseline_of(int batch) const {
  const auto found = std::find_if(plan_.arms.begin(), plan_.arms.end(), [&](const PlannedArm& a) {
    return a.record.role == "baseline" && a.record.batch == batch;
  });
  EVALRUN_CHECK(found != plan_.arms.end(), "no plain decoding of batch {}", batch);
  return found->record;
}

// A method that cannot be built (no draft model, another vocabulary) must fail now, not after an
// hour of measuring the arms before it.
PlannedArm ArmPlanner::make_arm(const methods::MethodSpec& spec, const std::string& role,
                                int batch) const {
  methods::MethodBuildContext context = {request_.target, session_options(), request_.draft};
  context.slots = batch;
  PlannedArm arm;
  arm.model = methods::decoded_model(spec, context);
  results::ArmRecord& r = arm.record;
  r.label = spec.label() + batch_label(batch, request_.suite.batches.mode);
  if (role == "aa") r.label += kAgain;
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
  describe_engine(*arm.model, batch, r);
  if (spec.steps() != methods::StepReproducibility::kFixed)
    r.settings["steps"] = spec.steps() == methods::StepReproducibility::kCarryState
                              ? "carry state"
                              : "follow the machine";
  if (request_.row_cost && spec.steps() != methods::StepReproducibility::kFixed)
    r.settings["row_cost"] = row_cost_id(*request_.row_cost);
  if (spec.info->files)
    for (const auto& [name, hash] : spec.info->files(spec.params, context)) r.settings[name] = hash;
  if (request_.draft != nullptr && spec.takes_draft_model()) {
    r.draft = request_.draft->path();
    r.draft_hash = request_.draft->hash();
    // `auto` may give the draft model another format than the target.
    r.settings["draft_dtype"] = engine::name_of(request_.draft->format());
  }
  arm.needs_answer = spec.info->needs_answer;
  if (arm.needs_answer) r.settings["synthetic"] = "acceptance";
  arm.sampled = [spec](const engine::SamplingParams& sampling) { return spec.sampled(sampling); };
  arm.build = builder(spec, context);
  methods::MethodBuildContext alone = context;
  alone.slots = 1;
  const std::unique_ptr<methods::DecodingMethod> method = builder(spec, alone)();
  arm.kept = kept_by(*method, batch, plan_.capacity);
  if (request_.suite.replay) methods::with_verdicts(*method, fmt::format("{}: replay", r.label));
  r.extra_parameter_bytes = static_cast<int64_t>(method->extra_parameter_bytes());
  r.key = arm_key(r);
  return arm;
}

// What rows cost is known by the time a run builds its methods, if ever.
std::function<std::unique_ptr<methods::DecodingMethod>()> ArmPlanner::builder(
    const methods::MethodSpec& spec, const methods::MethodBuildContext& context) const {
  return
      [spec, context, costs = plan_.row_cost, of_batch = std::make_shared<engine::RowCostTable>()] {
        methods::MethodBuildContext now = context;
        *of_batch = costs->of_batch(now.slots);
        if (!of_batch->empty()) now.row_cost = of_batch.get();
        return spec.info->build(spec.params, now);
      };
}

engine::SessionOptions ArmPlanner::session_options() const {
  engine::SessionOptions options = request_.session;
  options.max_tokens = plan_.capacity;
  options.kv_cache = request_.suite.kv_cache;
  return engine::resolve_engine(std::move(options));
}

void ArmPlanner::describe_engine(const engine::Model& model, int batch,
                                 results::ArmRecord& r) const {
  const Suite& suite = request_.suite;
  const engine::SessionOptions options = session_options();
  r.model = model.config().name;
  r.model_hash = model.hash();
  r.dtype = engine::name_of(model.format());
  r.isa = options.isa;
  r.device = options.device;
  r.threads = options.n_threads;
  r.batch = batch;
  r.kv_cache = suite.kv_cache;
  r.weight_bytes = static_cast<int64_t>(model.weight_bytes());
  r.settings.merge(figure_variables());
  if (options.one_isa) r.settings["bits"] = "one-isa";
  if (!options.kv_dtype.empty()) r.settings["kv_dtype"] = options.kv_dtype;
  if (batch > 1) r.settings["batch_mode"] = runners::to_string(suite.batches.mode);
  if (suite.replay) r.settings["replay"] = "reference";
  describe_suite(r);
}

// What is asked for, of whatever answers.
void ArmPlanner::describe_suite(results::ArmRecord& r) const {
  const Suite& suite = request_.suite;
  r.temperature = suite.sampling.temperature;
  r.top_p = suite.sampling.top_p;
  r.top_k = suite.sampling.top_k;
  for (const auto& [task, max_new] : max_new_) r.max_new = std::max(r.max_new, max_new);
  r.ignore_eos = suite.ignore_eos;
  for (const auto& [task, max_new] : max_new_)
    if (max_new != r.max_new) r.settings["max_new." + task] = std::to_string(max_new);
  r.settings["seed"] = std::to_string(suite.seed);
  r.settings["order"] = runners::to_string(suite.order);
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

// "auto = pld:k=4": the arm that `auto` stands for, which is the baseline where nothing pays. After
// the faults, which are planted by the labels of methods.
void ArmPlanner::name_choice() {
  if (plan_.chosen.empty()) return;
  const methods::MethodSpec spec = methods::parse_method(plan_.chosen);
  const auto arm = std::find_if(plan_.arms.begin(), plan_.arms.end(), [&](const PlannedArm& a) {
    return a.record.role != "aa" && a.record.method == spec.info->name &&
           a.record.params == spec.params.canonical();
  });
  EVALRUN_CHECK(arm != plan_.arms.end(), "no arm of {}", plan_.chosen);
  arm->record.label = "auto = " + arm->record.label;
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
    if (arm.record.role == "aa") arm.record.label = baseline_of(arm.record.batch).label + kAgain;
}

// A speedup compares arms that differ in the method alone (reports refuse anything else).
void ArmPlanner::check_engine_mode() const {
  for (const PlannedArm& arm : plan_.arms) {
    const results::ArmRecord& r = arm.record;
    const results::ArmRecord& plain = baseline_of(r.batch);
    if (r.method == results::kEndpointMethod || plain.method == results::kEndpointMethod) continue;
    EVALRUN_CHECK(r.dtype == plain.dtype && r.isa == plain.isa && r.device == plain.device &&
                      r.threads == plain.threads && r.kv_cache == plain.kv_cache,
                  "{} and {} are planned in different engine modes", r.label, plain.label);
  }
}

}  // namespace

void plan_arms(const PlanRequest& request, const std::map<std::string, int>& max_new,
               RunPlan& plan) {
  ArmPlanner(request, max_new, plan).add_all();
}

void build_batches(RunPlan& plan) {
  for (PlannedArm& arm : plan.arms)
    if (arm.record.batch > 1)
      arm.record.extra_parameter_bytes = static_cast<int64_t>(arm.build()->extra_parameter_bytes());
}

}  // namespace evalrun::runners
