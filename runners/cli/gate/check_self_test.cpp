// evalrun check --self-test: the drills on this machine, and the gate's error rates on simulated
// ones.
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "reports/gate/simulated/simulated_gate.h"
#include "runners/cli/gate/check_arguments.h"
#include "runners/cli/gate/gate_drill.h"
#include "runners/cli/gate/temporary_folder.h"
#include "runners/cli/instruments.h"
#include "runners/cli/output.h"

namespace evalrun::cli {
namespace {

using base::ExitCode;
using Json = nlohmann::ordered_json;

// One of these takes about a millisecond, and a third of the drills' faults have a share of these.
constexpr int kSimulatedTrials = 200;
constexpr uint64_t kSimulatedSeed = 1;
constexpr double kSimulatedSlowdown = 1.05;

struct SimulatedShare {
  std::string machine;
  const char* way;  // as GateOutcome::way
  double called_slower = 0, inconclusive = 0;
};

// How often a build whose method takes `factor` times as long is called slower.
std::vector<SimulatedShare> simulated_shares(double factor) {
  std::vector<SimulatedShare> shares;
  for (const reports::MachineKind& kind : reports::machine_kinds())
    for (const auto& [way, name] :
         {std::pair(reports::SimulatedWay::kStored, GateWay::kStored),
          std::pair(reports::SimulatedWay::kLockStep, GateWay::kLockStep)}) {
      const reports::SimulatedRates r = reports::simulated_rates(
          kind, way, {1, factor}, reports::usual_size(way), kSimulatedTrials, kSimulatedSeed);
      shares.push_back({kind.name, to_string(name), r.share(r.slower), r.share(r.inconclusive)});
    }
  return shares;
}

Json shares_json(const std::vector<SimulatedShare>& shares) {
  Json array = Json::array();
  for (const SimulatedShare& s : shares)
    array.push_back({{"machine", s.machine},
                     {"way", s.way},
                     {"called_slower", s.called_slower},
                     {"inconclusive", s.inconclusive}});
  return array;
}

std::string shares_text(const std::vector<SimulatedShare>& unchanged,
                        const std::vector<SimulatedShare>& slow) {
  std::vector<std::vector<std::string>> rows;
  const auto percent = [](double share) { return fmt::format("{:.1f} %", 100 * share); };
  for (size_t i = 0; i < unchanged.size(); ++i)
    rows.push_back({unchanged[i].machine, unchanged[i].way, percent(unchanged[i].called_slower),
                    percent(unchanged[i].inconclusive), percent(slow[i].called_slower),
                    percent(slow[i].inconclusive)});
  return aligned_table({"simulated machine", "way", "unchanged: slower", "inconclusive",
                        "5 % slower: found", "inconclusive"},
                       rows);
}

Json drill_json(const DrillOutcome& d) {
  return {{"drill", d.drill.name},
          {"expected", static_cast<int>(d.drill.expected)},
          {"found", static_cast<int>(d.gate.code)},
          {"ok", d.passed()},
          {"cause", d.drill.cause ? reports::to_string(*d.drill.cause) : ""},
          {"seconds", d.seconds},
          {"verdict", Json::parse(gate_json(d.gate))}};
}

}  // namespace

void run_self_test(const CheckArguments& o, Context& context, int64_t begin_ns) {
  const TemporaryFolder folder("self-test");
  Instruments instruments(context.global);
  std::vector<std::vector<std::string>> rows;
  Json array = Json::array();
  bool passed = true, speed_missed = false;
  const auto note = [&](const DrillOutcome& d) {
    passed = passed && d.passed();
    // Correctness is judged by equality, so only these can go wrong by the machine's doing.
    speed_missed = speed_missed || (!d.passed() && d.drill.lock_step);
    spdlog::info("{}: exit code {}, expected {}", d.drill.name, static_cast<int>(d.gate.code),
                 static_cast<int>(d.drill.expected));
    rows.push_back({d.drill.name, std::to_string(static_cast<int>(d.drill.expected)),
                    std::to_string(static_cast<int>(d.gate.code)), d.passed() ? "ok" : "WRONG",
                    base::format_duration(d.seconds), d.gate.result.summary});
    array.push_back(drill_json(d));
  };
  reports::CiReport report;
  try {
    // First: a suite that cannot be measured is said to be one before a model is looked for.
    const std::string suite = self_test_suite(o).name;
    const DrillMeans means{against_request(o, own_program()),
                           [&] { return make_request(o, self_test_suite(o), o.model); },
                           folder.file("runs.db"), instruments.clock(), instruments.options()};
    report = ci_report(run_drills(means, note), suite, o.model.path());
  } catch (const std::exception& e) {
    tell_error(o, begin_ns, e);
    throw;
  }
  const std::vector<SimulatedShare> unchanged = simulated_shares(1),
                                    slow = simulated_shares(kSimulatedSlowdown);
  for (Json& drill : array) {
    if (drill["drill"] == "unchanged") drill["simulated"] = shares_json(unchanged);
    if (drill["drill"] == "slow:5%") drill["simulated"] = shares_json(slow);
  }
  report.seconds = seconds_since(begin_ns);
  if (!o.verdict.empty()) base::write_file_atomic(o.verdict, array.dump(2) + "\n");
  o.ci.write(report);
  if (context.global.json) {
    print_json_document(array);
  } else {
    print_line(aligned_table({"drill", "expected", "found", "", "time", "why"}, rows));
    print_line(
        fmt::format("\nof {} simulated checks (docs/gate.md, \"How often the gate is "
                    "wrong\"):\n{}",
                    kSimulatedTrials, shares_text(unchanged, slow)));
  }
  if (speed_missed)
    spdlog::warn(
        "a drill about speed went wrong: processes of this machine differ by more than a fault of "
        "5 % lets. More sessions (--sessions 8, --max-extra-runs 8) average that out, "
        "--max-regression 10% asks for less; docs/gate.md, \"How often the gate is wrong\"");
  if (!passed) context.exit_code = static_cast<int>(ExitCode::kCorrectness);
}

}  // namespace evalrun::cli
