// evalrun doctor: is this machine, this build and this set-up fit to measure?
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>

#include "datasets/dataset.h"
#include "datasets/manifest.h"
#include "engine/base/text.h"
#include "engine/base/units.h"
#include "engine/cost/machine_probes.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/node_memory.h"
#include "engine/cpu/places.h"
#include "engine/cuda/runtime/nvml.h"
#include "engine/cuda/runtime/product_path.h"
#include "engine/devices.h"
#include "engine/model/weight_matrix.h"
#include "evaluators/self_test.h"
#include "reports/format.h"
#include "results/store.h"
#include "runners/cli/cli.h"
#include "runners/cli/measure/doctor_checks.h"
#include "runners/cli/measure/doctor_code.h"
#include "runners/cli/measure/doctor_findings.h"
#include "runners/cli/shard_option.h"
#include "runners/machine/build_info.h"
#include "runners/machine/environment.h"
#include "runners/machine/processor_energy.h"

namespace evalrun::cli {
namespace {

// Of the default model's file (docs of scripts/get-model).
constexpr const char* kDefaultModelSha256 =
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
constexpr double kOverheadLimitNs =
    20e3;  // a step of the smallest model worth measuring takes 4 ms
constexpr double kProbeSeconds = 0.2;
constexpr size_t kBandwidthBytes = size_t{256} << 20;  // more than the last cache of most machines
constexpr double kLowDiskBytes = 200e6;

struct DoctorArguments {
  std::string model, data_root;
  bool code = false;
  int workers = 0;
  ShardOption shard;
};

std::string value_or(const std::map<std::string, std::string>& map, const std::string& key,
                     const std::string& fallback) {
  const auto it = map.find(key);
  return it == map.end() ? fallback : it->second;
}

void examine_build(Findings& out) {
  const runners::BuildInfo& build = runners::build_info();
  Finding f{"build", fmt::format("evalrun {}, commit {}, {}, {}", build.version, build.commit,
                                 build.build_type, build.compiler)};
  if (build.build_type != "Release") {
    f.level = Level::kWarning;
    f.hint = "times of this build are not comparable: use the release preset";
  } else if (!build.sanitizers.empty()) {
    f.level = Level::kWarning;
    f.hint = "built with sanitizers: times mean nothing";
  }
  out.push_back(std::move(f));
}

void examine_machine(Findings& out) {
  const auto e = runners::capture_environment();
  out.push_back({"processor", value_or(e, "cpu", "unknown")});
  out.push_back({"cores", fmt::format("{} of {} allowed", value_or(e, "cores_allowed", "?"),
                                      value_or(e, "cores", "?"))});
  out.push_back(
      {"memory", base::format_bytes(std::atof(value_or(e, "memory_bytes", "0").c_str()))});
  out.push_back({"system", fmt::format("{}, {}", value_or(e, "os", "unknown"),
                                       value_or(e, "kernel", "unknown kernel"))});
  const std::string governor = value_or(e, "governor", "not readable");
  out.push_back({"frequency governor", governor,
                 governor == "powersave" ? Level::kWarning : Level::kNote,
                 governor == "powersave" ? "set it to performance while measuring" : ""});
  const runners::EnergyReading energy = runners::read_energy();
  out.push_back({"energy of the processor",
                 energy.domains.empty() ? "not readable: " + energy.refusal
                                        : value_or(e, "energy_domains", ""),
                 Level::kNote, energy.remedy});
  const double load = std::atof(value_or(e, "load", "0").c_str());
  const bool busy = load > 0.5 * std::atof(value_or(e, "cores_allowed", "1").c_str());
  out.push_back({"load (1 min)", fmt::format("{:.2f}", load), busy ? Level::kWarning : Level::kOk,
                 busy ? "other work is running: measured times will vary" : ""});
  const double steal = std::atof(value_or(e, "steal_share", "0").c_str());
  out.push_back({"time taken by other guests", reports::percent(steal, 1) + " since boot",
                 steal > 0.05 ? Level::kWarning : Level::kOk,
                 steal > 0.05 ? "a shared machine: trust ratios, not seconds" : ""});
}

// What is not known is left out.
void examine_gpu(const engine::cuda::Device& gpu,
                 const std::optional<engine::cuda::GpuFacts>& facts,
                 const std::optional<engine::cuda::GpuSample>& sample, Findings& out) {
  Finding f{fmt::format("cuda:{}", gpu.index),
            fmt::format("{}, compute {}.{}, {}", gpu.name, gpu.compute_major, gpu.compute_minor,
                        base::format_bytes(gpu.memory_bytes))};
  const auto add = [&](const char* what, const char* unit, const std::optional<double>& now,
                       const std::optional<double>& most) {
    if (!now && !most) return;
    f.value += fmt::format(", {}{}{} {}", what, now ? fmt::format("{:.0f}", *now) : "?",
                           most ? fmt::format(" of {:.0f}", *most) : "", unit);
  };
  const engine::cuda::GpuFacts known = facts.value_or(engine::cuda::GpuFacts{});
  const engine::cuda::GpuSample now = sample.value_or(engine::cuda::GpuSample{});
  add("SM ", "MHz", now.sm_mhz, known.sm_mhz_max);
  add("memory ", "MHz", known.memory_mhz, known.memory_mhz_max);
  add("", "W", now.power_w, known.power_limit_w);
  add("", "°C", now.temperature_c, std::nullopt);
  if (known.memory_free_bytes) f.value += ", free " + base::format_bytes(*known.memory_free_bytes);
  if (!known.driver_version.empty()) f.value += ", driver " + known.driver_version;
  if (!facts) f.value += ", clocks and power not available (no NVML)";
  f.value += fmt::format(", products: {}", engine::cuda::name_of(engine::cuda::product_path()));
  const std::string reasons = engine::cuda::words_of_reasons(now.reasons.value_or(0));
  if (!reasons.empty()) f.value += ", clock limited by: " + reasons;
  const std::string unusable = engine::unusable_because(gpu);
  if (!unusable.empty()) {
    f.level = Level::kNote;
    f.hint = "cannot be used: " + unusable;
  } else if (const std::string path =
                 engine::cuda::path_refused(gpu.compute_major, gpu.compute_minor);
             !path.empty()) {
    f.level = Level::kWarning;
    f.hint = fmt::format("cannot be used: {}; {}", path, engine::cuda::kPathRemedy);
  } else if (engine::cuda::is_slowed(now.reasons.value_or(0))) {
    f.level = Level::kWarning;
    f.hint = "its clock is held back: let it cool, or raise its power limit";
  }
  out.push_back(std::move(f));
}

void examine_devices(Findings& out) {
  using engine::cuda::Nvml;
  const engine::cuda::DeviceList& cuda = engine::cuda::list_devices();
  const engine::GpuObstacle obstacle = engine::gpu_obstacle(cuda);
  out.push_back({"CUDA",
                 obstacle.why.empty()
                     ? fmt::format("{}, driver for {}", cuda.runtime_version, cuda.driver_version)
                     : "cannot be used: " + obstacle.why,
                 obstacle.why.empty() ? Level::kOk : Level::kNote, obstacle.remedy});
  const Nvml& nvml = Nvml::of_this_machine();
  for (const engine::cuda::Device& d : cuda.devices)
    examine_gpu(d, nvml.facts(d.pci_bus_id), nvml.sample(d.pci_bus_id), out);
  if (!cuda.devices.empty()) return;
  for (const engine::cuda::GpuFacts& f : nvml.all())  // there, and of no use to this build
    out.push_back({"GPU", fmt::format("{}, driver {}", f.name, f.driver_version), Level::kNote});
}

void examine_model(const std::string& given, Findings& out) {
  ModelOptions options;
  options.model = given;
  try {
    const std::string path = options.path();
    if (!given.empty()) {
      const auto model = engine::load_model(path, {});
      out.push_back({"model", fmt::format("{}, {}", path, model->config().name)});
      return;
    }
    const bool right = base::sha256_file(path) == kDefaultModelSha256;
    out.push_back({"model", path + (right ? ", SHA-256 right" : ", wrong SHA-256"),
                   right ? Level::kOk : Level::kProblem,
                   right ? "" : "a broken download: run `evalrun data model` again"});
  } catch (const base::Error& error) {
    out.push_back({"model", error.message(), Level::kProblem, error.hint()});
  }
}

void examine_data(const std::string& given, Findings& out) {
  const std::string root = datasets::resolve_data_root(given);
  if (root.empty()) {
    out.push_back({"data root", "none: the built-in samples only", Level::kNote,
                   "set EVALRUN_DATA for gsm8k, mt_bench and others (evalrun data fetch)"});
    return;
  }
  try {
    int present = 0, contradicting = 0;
    std::string names;
    for (const datasets::FileCheck& check : datasets::verify_data(root)) {
      present += check.state != datasets::FileState::kMissing ? 1 : 0;
      if (!check.is_error()) continue;
      ++contradicting;
      names += " " + check.file.path;
    }
    out.push_back({"data root", fmt::format("{}: {} files known to the manifest", root, present),
                   contradicting > 0 ? Level::kProblem : Level::kOk,
                   contradicting > 0 ? "files with wrong bytes:" + names : ""});
  } catch (const base::Error& error) {
    out.push_back({"data root", error.message(), Level::kProblem, error.hint()});
  }
}

void examine_database(const std::string& path, Findings& out) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file = fs::absolute(path, error);
  const fs::path folder = file.parent_path();
  const bool exists = fs::exists(file, error);
  try {
    if (exists) results::ResultStore(path, results::ResultStore::Mode::kReadOnly);
    // SQLite writes its journal beside the file, so the folder must be writable too.
    const bool writable =
        ::access(folder.c_str(), W_OK) == 0 && (!exists || ::access(file.c_str(), W_OK) == 0);
    if (!writable)
      throw base::data_error(path, "", "cannot be written to",
                             "choose another place with --db or EVALRUN_DB");
    out.push_back({"result database", file.string() + (exists ? "" : " (will be created)")});
  } catch (const base::Error& e) {
    out.push_back({"result database", e.message(), Level::kProblem, e.hint()});
  }
  const fs::space_info space = fs::space(folder, error);
  if (!error)
    out.push_back(
        {"free disk space", base::format_bytes(space.available),
         static_cast<double>(space.available) < kLowDiskBytes ? Level::kWarning : Level::kOk,
         static_cast<double>(space.available) < kLowDiskBytes
             ? "a long run stores tens of megabytes"
             : ""});
}

void examine_numerics(Findings& out) {
  const std::vector<std::string> problems = compare_isa_paths();
  out.push_back(
      {"bit identity",
       problems.empty() ? "all paths agree, alone and in groups of rows" : problems.front(),
       problems.empty() ? Level::kOk : Level::kProblem,
       problems.empty() ? "" : "results of this machine cannot be trusted: please report"});
}

void examine_evaluators(Findings& out) {
  const evaluators::SelfTestResult result = evaluators::self_test();
  const bool right = result.problems.empty();
  out.push_back(
      {"text evaluators",
       right ? fmt::format("{}, all {} vectors right", result.n_evaluators, result.n_vectors)
             : result.problems.front(),
       right ? Level::kOk : Level::kProblem,
       right ? "" : "scores of this build cannot be trusted: please report"});
}

void examine_placement(Findings& out) {
  const double ns = engine::cache_line_round_trip_ns(engine::allowed_cores());
  if (ns == 0) return;  // one core
  const bool far = ns >= engine::kFarRoundTripNs;
  out.push_back({"cache line between cores and back", fmt::format("{:.0f} ns", ns),
                 far ? Level::kNote : Level::kOk,
                 far ? "cores far apart: every barrier costs more, and T(n) rises earlier" : ""});
}

// Of the CPUs that this process may use.
void examine_nodes(Findings& out) {
  const std::vector<int> nodes =
      engine::cpu::places_of(engine::cpu::cpu_order().cpus, "/sys/devices/system").nodes();
  Finding f{"NUMA nodes", std::to_string(nodes.size())};
  if (nodes.size() > 1) {
    // Pages of this node or another: the kernel says whether it would move them.
    const engine::WeightMatrix pages(1024, 1024);
    const std::string refusal = engine::cpu::move_pages_to(pages.bytes(), {nodes.data(), 1});
    if (!refusal.empty()) {
      f.value += fmt::format(", and the kernel moves no pages ({})", refusal);
      f.level = Level::kNote;
      f.hint =
          "weights stay on the nodes of the threads that loaded or copied them; containers need "
          "the capability SYS_NICE and a seccomp profile that allows move_pages";
    }
  }
  out.push_back(std::move(f));
}

void examine_speed(Findings& out) {
  const double overhead = measure_step_overhead_ns();
  const bool slow = overhead > kOverheadLimitNs;
  out.push_back({"harness overhead per step", base::format_duration(1e-9 * overhead),
                 slow ? Level::kWarning : Level::kOk,
                 slow ? "unusually long: is the machine busy?" : ""});
  const double bandwidth =
      engine::read_bandwidth(kBandwidthBytes, engine::allowed_cores(), kProbeSeconds);
  out.push_back({"memory read bandwidth", fmt::format("{:.1f} GB/s", bandwidth / 1e9)});
}

void examine_code(Findings& out) {
  for (const CodeCheck& check : check_sandbox_and_toolchains())
    out.push_back({check.name, check.value,
                   check.problem ? Level::kProblem
                   : check.ok    ? Level::kOk
                                 : Level::kNote,
                   check.hint});
}

// Only the official solutions: they take minutes.
void run_code_doctor(const DoctorArguments& options, Context& context) {
  const int workers = options.workers > 0 ? options.workers : engine::allowed_cores();
  print_solutions(check_solutions(datasets::resolve_data_root(options.data_root), workers,
                                  [&](int64_t index) { return options.shard.takes(index); }),
                  workers, context.global.json);
}

void run_doctor(const DoctorArguments& options, Context& context) {
  if (options.code) return run_code_doctor(options, context);
  Findings findings;
  examine_build(findings);
  examine_machine(findings);
  examine_isas(findings);
  examine_placement(findings);
  examine_nodes(findings);
  examine_devices(findings);
  examine_model(options.model, findings);
  examine_data(options.data_root, findings);
  examine_database(context.global.db, findings);
  examine_code(findings);
  examine_numerics(findings);
  examine_evaluators(findings);
  examine_speed(findings);

  print_findings(findings, context.global.json);
  if (count_problems(findings) > 0)
    context.exit_code = static_cast<int>(base::ExitCode::kEnvironment);
}

}  // namespace

void add_doctor_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("doctor", "Is this machine and set-up fit to measure?");
  auto options = std::make_shared<DoctorArguments>();
  auto* model = command->add_option("-m,--model", options->model,
                                    "Model to look at (default: the default model)");
  add_data_root(*command, options->data_root);
  auto* code = command->add_flag(
      "--code", options->code,
      "Run the official solutions of all programming languages instead (minutes)");
  code->excludes(model);
  command->add_option("-j,--jobs", options->workers, "Programs at once (default: one per core)")
      ->check(CLI::Range(1, 64))
      ->needs(code);
  options->shard.add(*command, "problems of each language", "passed and total add up");
  command->get_option("--shard")->needs(code);
  command->footer(
      "Exit code 6 when something must be fixed first.\n\nExamples:\n"
      "  evalrun doctor\n"
      "  evalrun doctor --json\n"
      "  evalrun doctor --code --data-root ~/data\n"
      "  evalrun doctor -m model.gguf --data-root ~/data");
  command->callback([options, &context] { run_doctor(*options, context); });
}

}  // namespace evalrun::cli
