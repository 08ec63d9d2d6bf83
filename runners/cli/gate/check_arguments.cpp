#include "runners/cli/gate/check_arguments.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "results/queries.h"
#include "runners/cli/command_line.h"
#include "runners/cli/gate/baseline_servers.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;

[[noreturn]] void not_as_baseline(const CheckArguments& o, const std::string& option,
                                  const std::string& was, const std::string& given) {
  const std::string stored = was.empty() ? "the default" : fmt::format("'{}'", was);
  throw base::Error(
      ExitCode::kNoBaseline,
      fmt::format("not comparable: {} is '{}', baseline '{}' was measured with {}", option, given,
                  o.baseline, stored),
      fmt::format("leave {} out, or save a baseline measured with it: evalrun run ... {} {}, then "
                  "evalrun baseline save NAME",
                  option, option, given));
}

bool is_named_template(const std::string& name) {
  const std::vector<std::string> known = engine::chat_template_names();
  return std::find(known.begin(), known.end(), name) != known.end();
}

// The options that plain decoding of `baseline` was measured with. What the command line names must
// be the same: throws exit code 3 otherwise. Left open is what only the loaded model tells, see
// load_like().
struct StoredMode {
  ModelOptions model;
  std::string dtype, chat_template;  // as stored; "" = the model has no template
  std::string template_file;         // that held the template's text, "" = a named template
};

StoredMode stored_mode(const CheckArguments& o, const RunReference& baseline) {
  StoredMode mode;
  mode.model = o.model;
  ModelOptions& m = mode.model;
  std::string draft_dtype, kv_dtype, bits, isa, device;
  int threads = 0;
  for (const results::ArmRow& arm : results::arms(*baseline.store, baseline.run_id)) {
    const auto setting = [&](const char* name, const char* usual) {
      const auto found = arm.record.settings.find(name);
      return found == arm.record.settings.end() ? std::string(usual) : found->second;
    };
    // Of a second model; of the target's own copy the method's parameters tell.
    if (!arm.record.draft.empty()) draft_dtype = setting("draft_dtype", "");
    if (arm.record.method == results::kEndpointMethod) {
      mode.chat_template = setting("chat_template", "");
      continue;
    }
    if (arm.record.role != "baseline" && !mode.dtype.empty()) continue;
    mode.dtype = arm.record.dtype;
    isa = arm.record.isa;
    device = arm.record.device;
    threads = arm.record.threads;
    kv_dtype = setting("kv_dtype", "");
    bits = setting("bits", kDefaultBits);
    mode.chat_template = setting("chat_template", "");
  }
  const auto restore = [&](const char* option, std::optional<std::string>& given,
                           const std::string& was) {
    if (mode.dtype.empty()) return;  // servers alone: nothing was decoded here
    if (given && *given != was) not_as_baseline(o, option, was, *given);
    if (!was.empty()) given = was;
  };
  if (m.device == "cuda" && device == "cuda:0") m.device = device;
  restore("--device", m.device, device);
  restore("--isa", m.isa, isa);
  restore("--reproducible", m.bits, bits);
  restore("--kv-dtype", m.kv_dtype, kv_dtype);
  // A GPU's arms say 1 thread whatever -t was: only loading takes them.
  if (!engine::is_gpu(device) && !mode.dtype.empty()) {
    if (m.threads.value_or(0) != 0 && *m.threads != threads)
      not_as_baseline(o, "--threads", std::to_string(threads), std::to_string(*m.threads));
    m.threads = threads;
  }
  if (!m.dtype || *m.dtype != kDefaultDtype) restore("--dtype", m.dtype, mode.dtype);
  // What a file's template is called, the loaded model tells.
  if (m.chat_template && is_named_template(*m.chat_template))
    restore("--chat-template", m.chat_template, mode.chat_template);
  if (m.draft_dtype == kDefaultDtype) m.draft_dtype.reset();
  restore("--draft-dtype", m.draft_dtype, draft_dtype);
  auto environment = results::environment(*baseline.store, baseline.run_id);
  if (m.model.empty()) m.model = environment["model_path"];
  if (m.draft.empty()) m.draft = environment["draft_path"];
  mode.template_file = environment["chat_template_file"];
  return mode;
}

// Loads the models with the template that the baseline was measured with, or throws exit code 3.
void load_with_template(const CheckArguments& o, const StoredMode& mode, GateRequest& request) {
  const auto name = [&] {
    const auto* chat = request.plan.target->chat_template();
    return chat == nullptr ? std::string("none") : chat->name();
  };
  ModelOptions named = mode.model;
  std::error_code error;
  const bool by_file = mode.template_file.ends_with(".jinja") &&
                       std::filesystem::is_regular_file(mode.template_file, error);
  if (is_named_template(mode.chat_template))
    named.chat_template = mode.chat_template;
  else if (by_file && !named.chat_template)
    named.chat_template = mode.template_file;
  else
    not_as_baseline(o, "--chat-template", mode.chat_template, name());
  request.plan.target = nullptr;  // not two copies of the weights at once
  request.plan.draft = nullptr;
  request.plan.target = named.load();
  request.plan.draft = named.load_draft();
  if (name() != mode.chat_template)
    not_as_baseline(o, "--chat-template", mode.chat_template, name());
}

// The words of `evalrun run` that measure the suite as asked for, in this build and any other: old
// names are known to all.
std::vector<std::string> run_words(const CheckArguments& o) {
  const ModelOptions& m = o.model;
  std::vector<std::string> words = {o.suite, "-q", "-m", m.path()};
  const auto add = [&](const char* name, const std::string& value, const std::string& usual = "") {
    if (value != usual) words.insert(words.end(), {name, value});
  };
  for (const std::string& word : m.words())
    words.push_back(word == "--reproducible" ? "--bits" : word);  // its old name
  add("--data-root", o.data_root);
  add("-r", std::to_string(o.repeats), "0");
  add("-n", std::to_string(o.max_new), "0");
  add("--limit", fmt::format("{}", o.limit), "0");
  return words;
}

// Of a session in lock step: every prompt once, as many sessions are measured. Of the built-in
// suite two prompts of each task: a short session leaves time for more of them, and it is their
// number that counts (usual_size(), reports/gate/simulated/simulated_gate.h).
std::vector<std::string> lock_step_words(const CheckArguments& o) {
  std::vector<std::string> words;
  if (o.repeats == 0) words.insert(words.end(), {"-r", "1"});
  if (!o.suite_named && o.limit == 0) words.insert(words.end(), {"--limit", "2"});
  if (!o.suite_named) words.insert(words.end(), {"-w", "1"});
  return words;
}

// Two builds, and a build with a fault, are compared arm by arm.
void refuse_choice(const std::string& name, const runners::Suite& suite) {
  const bool by_choice = std::any_of(
      suite.methods.begin(), suite.methods.end(),
      [](const std::string& method) { return base::trim(method) == runners::kAutoMethod; });
  if (by_choice)
    throw base::usage_error(
        fmt::format("suite {} has method auto: two builds may have chosen different methods, and a "
                    "fault is planted in one that is named",
                    name),
        "name the method in the suite, which evalrun tune method has printed");
}

}  // namespace

reports::GateOptions gate_options(const CheckArguments& o) {
  reports::GateOptions gate;
  gate.max_regression = o.max_regression;
  gate.max_quality_loss = o.max_quality_loss;
  gate.alpha = o.significance;
  gate.yardstick = o.yardstick;
  return gate;
}

GateRequest make_request(const CheckArguments& o, const runners::Suite& suite, ModelOptions model) {
  GateRequest request;
  request.plan.suite = suite;
  request.plan.session = model.session_options(0);  // capacity follows from the prompts
  request.plan.data_root = datasets::resolve_data_root(o.data_root);
  request.plan.label = "check";
  request.plan.command = shell_line(process_arguments());
  request.plan.target = model.load();
  request.plan.draft = model.load_draft();
  request.gate = gate_options(o);
  request.max_extra_runs = o.max_extra_runs;
  request.confirm = o.confirm;
  return request;
}

GateRequest request_like(const CheckArguments& o, const RunReference& baseline) {
  const std::string where = fmt::format("suite of baseline '{}'", o.baseline);
  const auto row = results::find_run_row(*baseline.store, baseline.run_id);
  EVALRUN_CHECK(row.has_value(), "baseline '{}' names no run", o.baseline);
  runners::Suite suite = runners::parse_suite(row->suite_json, where);
  move_servers(o.endpoints, o.baseline, suite);
  runners::complete_suite(suite, where);
  const StoredMode mode = stored_mode(o, baseline);
  GateRequest request = make_request(o, suite, mode.model);
  // `--dtype auto` is what the file gives.
  const std::string dtype(engine::name_of(request.plan.target->format()));
  if (!mode.dtype.empty() && dtype != mode.dtype) not_as_baseline(o, "--dtype", mode.dtype, dtype);
  // The name stored is that of the model's own template or of the one named: which, the model says.
  const auto* own = request.plan.target->chat_template();
  if (!mode.chat_template.empty() && (own == nullptr || own->name() != mode.chat_template))
    load_with_template(o, mode, request);
  return request;
}

runners::Suite self_test_suite(const CheckArguments& o) {
  runners::Suite suite = runners::load_suite(o.suite);
  refuse_choice(o.suite, suite);
  if (o.repeats > 0) suite.repeats = o.repeats;
  if (o.limit != 0) suite.limit = o.limit;
  if (o.max_new > 0) suite.max_new = o.max_new;
  if (o.model.chat_template)
    for (runners::TaskSpec& task : suite.tasks) task.chat_template.clear();
  if (!suite.models.empty() && o.model.model.empty())
    throw base::usage_error(fmt::format("suite {} names models of its own", o.suite),
                            "the self-test measures one: name it with -m");
  suite.models.clear();
  runners::complete_suite(suite, o.suite);
  return suite;
}

AgainstRequest against_request(const CheckArguments& o, const std::string& program) {
  const runners::Suite suite = runners::load_suite(o.suite);
  refuse_choice(o.suite, suite);
  if (const int batch = suite.batches.largest(); batch > 1)
    throw base::usage_error(
        fmt::format("--against with suite {}: its batches of {} cannot be measured in turns",
                    o.suite, batch),
        "name a suite of batches of one, or check against a stored baseline: evalrun check");
  AgainstRequest request;
  request.program = program;
  request.arguments = run_words(o);
  request.lock_step_arguments = lock_step_words(o);
  request.gate = gate_options(o);
  request.sessions = o.sessions;
  if (o.extra_runs_named) request.max_extra_runs = o.max_extra_runs;
  return request;
}

double seconds_since(int64_t begin_ns) {
  base::SteadyClock clock;
  return static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
}

void tell_error(const CheckArguments& o, int64_t begin_ns, const std::exception& e) {
  reports::CiReport report = ci_report(e, o.baseline);
  report.seconds = seconds_since(begin_ns);
  try {
    o.ci.write(report);
  } catch (const base::Error& unwritten) {
    spdlog::error("{}", unwritten.message());  // the first error is the one that counts
  }
}

}  // namespace evalrun::cli
