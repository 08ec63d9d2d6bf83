// How often is the gate wrong? Whole decisions of `evalrun check` (looks, confirmation and all) of
// an unchanged build and of planted faults, at the size of the suite `ci`. scripts/gate-study
// starts this program as often as processes are wanted and sums up.
//
//   gate_study model FOLDER            writes the small random model
//   gate_study process FOLDER -m ...   one process: appends to FOLDER/decisions.jsonl
//   gate_study summary FOLDER          all decisions counted, as runners/cli/gate/gate_study.json
//   gate_study summary FOLDER --markdown
//
// A process first judges itself against the last baseline of the process before it (two sessions,
// as in CI), then goes on with baselines of its own. Every decision has its own measurements; one
// about an unchanged build and one about a fault may share a baseline.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/stats.h"
#include "engine/base/text.h"
#include "engine/devices.h"
#include "engine/formats/safetensors_writer.h"
#include "engine/session.h"
#include "runners/cli/cli.h"
#include "runners/cli/gate/gate_drill.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"
#include "runners/measure/interrupt.h"

namespace evalrun::cli {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// Llama, 4 layers of 128: a step is short, so the noise of a machine weighs more than in a real
// model. Vocabulary and tokenizer are those of the folder given.
void write_model(const std::string& folder, const std::string& tokenizer) {
  constexpr int kLayers = 4, kModel = 128, kHeads = 4, kKvHeads = 2, kHead = 32, kFfn = 384;
  Json config = Json::parse(base::read_file(tokenizer + "/config.json"));
  config["hidden_size"] = kModel;
  config["intermediate_size"] = kFfn;
  config["num_hidden_layers"] = kLayers;
  config["num_attention_heads"] = kHeads;
  config["num_key_value_heads"] = kKvHeads;
  config["head_dim"] = kHead;
  const int64_t vocab = config["vocab_size"];
  base::Rng rng(1);
  std::vector<std::vector<float>> values;
  std::vector<engine::TensorToWrite> tensors;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, bool norm = false) {
    int64_t n = 1;
    for (const int64_t d : shape) n *= d;
    const double scale = 3.4 / std::sqrt(static_cast<double>(shape.back()));
    std::vector<float>& x = values.emplace_back(static_cast<size_t>(n));
    for (float& v : x) v = norm ? 1.0f : static_cast<float>(scale * (rng.uniform() - 0.5));
    tensors.push_back({name, engine::DType::kF32, std::move(shape), {}});
  };
  add("model.embed_tokens.weight", {vocab, kModel});
  for (int i = 0; i < kLayers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    add(layer + "input_layernorm.weight", {kModel}, true);
    add(layer + "self_attn.q_proj.weight", {kHeads * kHead, kModel});
    add(layer + "self_attn.k_proj.weight", {kKvHeads * kHead, kModel});
    add(layer + "self_attn.v_proj.weight", {kKvHeads * kHead, kModel});
    add(layer + "self_attn.o_proj.weight", {kModel, kHeads * kHead});
    add(layer + "post_attention_layernorm.weight", {kModel}, true);
    add(layer + "mlp.gate_proj.weight", {kFfn, kModel});
    add(layer + "mlp.up_proj.weight", {kFfn, kModel});
    add(layer + "mlp.down_proj.weight", {kModel, kFfn});
  }
  add("model.norm.weight", {kModel}, true);
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].bytes = engine::bytes_of_values(values[i]);
  fs::create_directories(folder);
  engine::write_safetensors(folder + "/model.safetensors", tensors);
  base::write_file_atomic(folder + "/config.json", config.dump(1) + "\n");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    fs::copy_file(tokenizer + "/" + file, folder + "/" + file,
                  fs::copy_options::overwrite_existing);
}

struct Options {
  ModelOptions model;
  std::string folder, tokenizer;
  std::string model_text, suite_text;  // what the summary calls them
  int unchanged = 8, slow = 4;
  bool ignore_eos = false, markdown = false;
};

std::string decisions_file(const std::string& folder) { return folder + "/decisions.jsonl"; }
std::string database(const std::string& folder, int process) {
  return fmt::format("{}/process-{}.db", folder, process);
}

std::vector<Json> read_decisions(const std::string& folder) {
  std::vector<Json> lines;
  std::ifstream in(decisions_file(folder));
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(Json::parse(line));
  return lines;
}

class Process {
 public:
  Process(const Options& o, int number) : folder_(o.folder), number_(number) {
    runners::Suite suite = runners::load_suite("ci");
    suite.ignore_eos = o.ignore_eos;
    runners::complete_suite(suite, "ci");
    request_.plan.suite = suite;
    request_.plan.session = o.model.session_options(0);
    request_.plan.target = o.model.load();
    request_.plan.command = "gate_study";
    options_.stop = runners::InterruptGuard::requested;
    options_.row_cost_seconds = runners::kRowCostSeconds;
    options_.row_cost_cache = folder_ + "/row-cost.json";
    // A process that was cut short left a file behind.
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(database(folder_, number_) + suffix);
    store_ = std::make_shared<results::ResultStore>(database(folder_, number_));
  }

  void run(int unchanged, int slow) {
    const std::string before = database(folder_, number_ - 1);
    if (number_ > 1 && fs::exists(before)) {
      if (const auto baseline = find_baseline("self-test", before)) {
        decide("unchanged", *baseline, true);
        decide("slow:5%", *baseline, true);
      }
    }
    const int rounds = std::max(unchanged, slow);
    for (int i = 0; i < rounds; ++i) {
      const RunReference baseline = measure_baseline(request_, store_, clock_, options_);
      if (i < unchanged) decide("unchanged", baseline, false);
      if (i < slow) decide("slow:5%", baseline, false);
      if (i > 0) continue;
      for (const char* fault : {"ar-slow:5%", "all-slow:5%", "wrong-accept", "miscount"})
        decide(fault, baseline, false);
    }
    for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(before + suffix);
  }

 private:
  void decide(const std::string& kind, const RunReference& baseline, bool cross) {
    const int64_t begin = clock_.now_ns();
    const GateRequest request = kind == "unchanged" ? request_ : with_fault(request_, kind);
    const GateOutcome outcome = measure_and_judge(request, baseline, *store_, clock_, options_);
    Json causes = Json::array();
    for (const reports::Cause c : speed_causes_of(outcome.result))
      causes.push_back(reports::to_string(c));
    Json line = {{"process", number_},
                 {"kind", kind},
                 {"cross_process", cross},
                 {"exit_code", static_cast<int>(outcome.code)},
                 {"first_exit_code", static_cast<int>(outcome.result.code)},
                 {"looks", outcome.looks},
                 {"confirmed", outcome.confirming_run != 0},
                 {"causes", causes},
                 {"noise_floor", outcome.result.noise_floor},
                 {"steal_share", outcome.steal_share},
                 {"seconds", static_cast<double>(clock_.now_ns() - begin) * 1e-9}};
    for (const reports::GateCheck& v : outcome.result.checks)
      if (v.metric == "speed" && v.effect)
        line["effect"] = *v.effect, line["lo"] = *v.lo, line["hi"] = *v.hi;
    std::ofstream out(decisions_file(folder_), std::ios::app);
    out << line.dump() << std::endl;
    if (!out) throw base::data_error(decisions_file(folder_), "", "cannot be written", "make room");
    // The study keeps verdicts, not times: a database of them all would fill a disk.
    store_->execute("DELETE FROM run WHERE id NOT IN (SELECT run_id FROM baseline)");
  }

  std::string folder_;
  int number_;
  GateRequest request_;
  base::SteadyClock clock_;
  runners::InterruptGuard guard_;
  runners::RunnerOptions options_;
  std::shared_ptr<results::ResultStore> store_;
};

void run_process(const Options& o) {
  int number = 1;
  for (const Json& line : read_decisions(o.folder))
    number = std::max(number, line["process"].get<int>() + 1);
  Process(o, number).run(o.unchanged, o.slow);
}

Json summary_of(const Options& o) {
  const std::map<std::string, std::string> expected = {{"unchanged", "ok"},
                                                       {"slow:5%", "slower"},
                                                       {"ar-slow:5%", "slower"},
                                                       {"all-slow:5%", "ok"},
                                                       {"wrong-accept", "wrong output"},
                                                       {"miscount", "wrong output"}};
  std::map<std::string, Json> kinds;
  int processes = 0;
  for (const Json& line : read_decisions(o.folder)) {
    const std::string kind = line["kind"];
    processes = std::max(processes, line["process"].get<int>());
    Json& k = kinds[kind];
    if (k.is_null())
      k = {{"kind", kind},      {"expected", expected.at(kind)},
           {"decisions", 0},    {"cross_process", 0},
           {"red", 0},          {"red_cross_process", 0},
           {"ok", 0},           {"inconclusive", 0},
           {"wrong_output", 0}, {"other", 0},
           {"looks", 0},        {"confirmed", 0},
           {"seconds", 0.0},    {"causes", Json::object()}};
    const auto count = [&](const std::string& name, int64_t by = 1) {
      k[name] = k[name].get<int64_t>() + by;
    };
    count("decisions");
    const bool cross = line["cross_process"];
    if (cross) count("cross_process");
    const int code = line["exit_code"];
    if (code == 1 && cross) count("red_cross_process");
    count(code == 1   ? "red"
          : code == 0 ? "ok"
          : code == 4 ? "inconclusive"
          : code == 5 ? "wrong_output"
                      : "other");
    count("looks", line["looks"].get<int64_t>());
    if (line["confirmed"].get<bool>()) count("confirmed");
    k["seconds"] = k["seconds"].get<double>() + line["seconds"].get<double>();
    std::string cause;
    for (const Json& c : line["causes"])
      cause += (cause.empty() ? "" : ", ") + c.get<std::string>();
    Json& n = k["causes"][cause.empty() ? "none" : cause];
    n = (n.is_null() ? int64_t{0} : n.get<int64_t>()) + 1;
  }
  const auto machine = runners::capture_environment();
  Json all = {{"date", runners::utc_now().substr(0, 10)},
              {"processor", machine.contains("cpu") ? machine.at("cpu") : "unknown"},
              {"cores", engine::allowed_cores()},
              {"commit", runners::build_info().commit},
              {"model", o.model_text},
              {"suite", o.suite_text},
              {"processes", processes},
              {"kinds", Json::array()}};
  for (const char* kind :
       {"unchanged", "slow:5%", "ar-slow:5%", "all-slow:5%", "wrong-accept", "miscount"})
    if (kinds.contains(kind)) all["kinds"].push_back(kinds.at(kind));
  return all;
}

// Share of decisions with the exit code that the kind should have.
std::string right_share(const Json& k) {
  const std::string expected = k["expected"];
  const char* column = expected == "ok" ? "ok" : expected == "slower" ? "red" : "wrong_output";
  const auto hits = k[column].get<int64_t>(), all = k["decisions"].get<int64_t>();
  const double share = static_cast<double>(hits) / static_cast<double>(all);
  const base::Interval i = base::wilson_interval(share, static_cast<size_t>(all), 0.95);
  return fmt::format("{:.1f} % [{:.1f}, {:.1f}]", 100 * share, 100 * i.lo, 100 * i.hi);
}

void print_summary(const Options& o) {
  const Json all = summary_of(o);
  if (!o.markdown) {
    std::cout << all.dump(1) << "\n";
    return;
  }
  std::cout
      << "| planted | decisions (of them between processes) | slower | ok | inconclusive | wrong "
         "output | other | as expected [95 %] | named cause |\n"
         "|:--|--:|--:|--:|--:|--:|--:|:--|:--|\n";
  for (const Json& k : all["kinds"]) {
    std::string causes;
    for (const auto& [name, n] : k["causes"].items())
      causes += fmt::format("{}{} {}", causes.empty() ? "" : "; ", name, n.get<int64_t>());
    const auto n = [&](const char* name) { return k[name].get<int64_t>(); };
    std::cout << fmt::format("| {} | {} ({}) | {} | {} | {} | {} | {} | {} | {} |\n",
                             k["kind"].get<std::string>(), n("decisions"), n("cross_process"),
                             n("red"), n("ok"), n("inconclusive"), n("wrong_output"), n("other"),
                             right_share(k), causes);
  }
}

int main_of(int argc, char** argv) {
  CLI::App app("Decisions of the gate about itself");
  app.require_subcommand(1);
  Options o;
  auto* model = app.add_subcommand("model", "Write the small random model");
  model->add_option("folder", o.folder)->required();
  model->add_option("--tokenizer", o.tokenizer)->required();
  model->callback([&] { write_model(o.folder, o.tokenizer); });
  auto* process = app.add_subcommand("process", "One process of decisions");
  process->add_option("folder", o.folder)->required();
  o.model.add(*process);
  process->add_option("--unchanged", o.unchanged)->capture_default_str();
  process->add_option("--slow", o.slow)->capture_default_str();
  process->add_flag("--ignore-eos", o.ignore_eos);
  process->callback([&] { run_process(o); });
  auto* summary = app.add_subcommand("summary", "Count what was decided");
  summary->add_option("folder", o.folder)->required();
  summary->add_option("--model-text", o.model_text);
  summary->add_option("--suite-text", o.suite_text);
  summary->add_flag("--markdown", o.markdown);
  summary->callback([&] { print_summary(o); });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  } catch (const base::Error& e) {
    std::cerr << e.message() << "\n";
    return static_cast<int>(e.code());
  }
  return 0;
}

}  // namespace
}  // namespace evalrun::cli

int main(int argc, char** argv) { return evalrun::cli::main_of(argc, argv); }
