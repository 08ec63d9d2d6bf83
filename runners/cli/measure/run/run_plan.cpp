#include "runners/cli/measure/run/run_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/units.h"
#include "runners/cli/output.h"
#include "runners/measure/progress.h"
#include "runners/plan/batch_memory.h"
#include "runners/plan/shards.h"

namespace evalrun::cli {
namespace {

// One data set of a plan, or all of them.
struct Line {
  std::string task;
  int prompts = 0, turns = 0, max_new = 0, longest = 0;
  int64_t generations = 0;
  double seconds = 0;                    // of all its generations
  std::optional<double> deviation = {};  // measured; absent: unknown
  bool measured = false;                 // `seconds` follows from an earlier run
};

// Standard deviations of per-prompt log differences that are usual for such a run: identical text
// on a quiet and on an ordinary machine, or sampled text.
std::vector<double> usual_deviations(const runners::Suite& suite) {
  return suite.sampling.greedy() ? std::vector<double>{0.01, 0.03}
                                 : std::vector<double>{0.10, 0.15};
}

std::vector<double> deviations_of(const Line& line, const runners::Suite& suite) {
  return line.deviation ? std::vector<double>{*line.deviation} : usual_deviations(suite);
}

// By data set in the order of the plan, the pooled line last where there are several.
std::vector<Line> lines_of(const PlanReport& report) {
  const runners::RunPlan& plan = report.plan;
  std::vector<Line> lines;
  for (size_t i = 0; i < plan.prompts.size(); ++i) {
    if (!runners::in_shard(plan, i)) continue;
    const runners::PlannedPrompt& p = plan.prompts[i];
    auto line = std::find_if(lines.begin(), lines.end(),
                             [&](const Line& l) { return l.task == p.record.task; });
    if (line == lines.end()) line = lines.insert(lines.end(), {.task = p.record.task});
    ++line->prompts;
    line->turns += static_cast<int>(p.prompt.turns.size());
    line->max_new = p.max_new;
    line->longest = std::max(line->longest, p.first_turn_tokens);
    line->seconds += runners::estimate_seconds(plan, p, report.calibration, report.prices);
  }
  Line all = {.task = "all"};
  all.measured = !lines.empty();
  for (Line& line : lines) {
    line.generations = static_cast<int64_t>(line.prompts) * static_cast<int64_t>(plan.arms.size()) *
                       plan.suite.repeats * plan.suite.samples;
    if (report.history)
      if (const auto seen = report.history->tasks.find(line.task);
          seen != report.history->tasks.end()) {
        line.measured = true;
        line.seconds = seen->second.generation_s * static_cast<double>(line.generations);
        line.deviation = seen->second.deviation;
      }
    all.prompts += line.prompts, all.turns += line.turns;
    all.max_new = std::max(all.max_new, line.max_new);
    all.longest = std::max(all.longest, line.longest);
    all.generations += line.generations, all.seconds += line.seconds;
    all.measured = all.measured && line.measured;
  }
  if (all.measured) all.deviation = report.history->deviation;
  if (lines.size() != 1) lines.push_back(all);
  return lines;
}

double seconds_left(const PlanReport& report, double seconds) {
  const auto all = static_cast<double>(report.plan.schedule.size());
  return seconds * (all - report.stored) / all;
}

// "0.56 to 1.67 %", "0.40 % (deviation 0.7 %)"
std::string change_text(const Line& line, const runners::Suite& suite) {
  const auto percent = [&](double deviation) {
    return 100 * runners::minimum_detectable_effect(deviation, line.prompts);
  };
  const std::vector<double> sd = deviations_of(line, suite);
  return line.deviation
             ? fmt::format("{:.2f} % (deviation {:.1f} %)", percent(sd[0]), 100 * sd[0])
             : fmt::format("{:.2f} to {:.2f} %", percent(sd.front()), percent(sd.back()));
}

// A method of the plan, A/A apart, with the places of its arms by batch size.
struct PlannedMethod {
  std::string name;  // the label of its arms without their batch
  std::map<int, size_t> arms;
  std::vector<int> sizes() const {
    std::vector<int> of;
    for (const auto& [size, arm] : arms) of.push_back(size);
    return of;
  }
};

// In the order of the plan.
std::vector<PlannedMethod> methods_of(const runners::RunPlan& plan) {
  std::vector<PlannedMethod> methods;
  for (size_t i = 0; i < plan.arms.size(); ++i) {
    const results::ArmRecord& arm = plan.arms[i].record;
    const int batch = static_cast<int>(arm.batch);
    std::string name = arm.label;
    const std::string of_batch = runners::batch_label(batch, plan.suite.batches.mode);
    if (const size_t at = name.rfind(of_batch); !of_batch.empty() && at != std::string::npos)
      name.erase(at, of_batch.size());
    auto method = std::find_if(methods.begin(), methods.end(),
                               [&](const PlannedMethod& m) { return m.name == name; });
    if (method == methods.end()) method = methods.insert(methods.end(), {.name = name, .arms = {}});
    method->arms[batch] = i;
  }
  return methods;
}

// "9.3 (11)": plain steps, and rows; "1?" where the method does not say how many.
std::string price_text(const runners::StepPrice& price) {
  return price.rows > 0 ? fmt::format("{:.3g} ({})", price.plain_steps, price.rows) : "1?";
}

// A line per method, a column per batch size.
std::string price_table(const PlanReport& report) {
  const runners::Batches& batches = report.plan.suite.batches;
  std::vector<std::string> header = {"method"};
  for (const int size : batches.sizes)
    header.push_back(batches.one() ? "steps (rows)" : fmt::format("batch {}", size));
  std::vector<std::vector<std::string>> rows;
  for (const PlannedMethod& method : methods_of(report.plan)) {
    rows.push_back({method.name});
    for (const int size : batches.sizes) {
      const auto arm = method.arms.find(size);
      rows.back().push_back(arm == method.arms.end() ? "-"
                                                     : price_text(report.prices[arm->second]));
    }
  }
  return aligned_table(header, rows);
}

// Names in sequence, in lines of a terminal's width.
void print_names(const std::string& head, const std::vector<std::string>& names) {
  constexpr size_t kWidth = 100;
  std::string line = head;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string word = " " + names[i] + (i + 1 < names.size() ? "," : "");
    if (line.size() + word.size() > kWidth) {
      print_line(line);
      line = " ";
    }
    line += word;
  }
  print_line(line);
}

// A line per arm that is not worth measuring.
std::vector<std::string> hopeless_arms(const PlanReport& report) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < report.prices.size(); ++i) {
    if (!runners::has_usual_steps(report.plan.arms[i].record)) continue;
    std::string why = runners::hopeless_text(report.plan.arms[i].record.label, report.prices[i]);
    if (!why.empty()) lines.push_back(std::move(why));
  }
  return lines;
}

void print_prices(const PlanReport& report) {
  const std::string& problem = report.plan.row_cost->problem;
  if (report.prices.empty())
    return print_line(fmt::format(
        "what rows cost here is not known{}: times take them to cost nothing, and steps of many "
        "rows may take far longer (evalrun cost shows how much)",
        problem.empty() ? "" : " (" + problem + ")"));
  const bool silent = std::any_of(report.prices.begin(), report.prices.end(),
                                  [](const runners::StepPrice& p) { return p.rows == 0; });
  print_line(fmt::format(
      "a step costs at most, in steps of plain decoding{} (in brackets: rows of the target{}){}:",
      report.plan.suite.batches.one() ? "" : " of the same batch",
      report.plan.suite.batches.one() ? "" : " for each sequence",
      silent ? "; 1?: the method does not say, taken as 1" : ""));
  print_line(price_table(report));
  print_line(
      "so many tokens must such a step give (tau) to break even; with every draft token accepted, "
      "rows over steps is its speedup");
  for (const std::string& why : hopeless_arms(report)) print_line("warning: " + why);
}

// What the arms' tables grow to at most, by arm; those that keep nothing are left out.
std::vector<std::string> grown_texts(const runners::RunPlan& plan) {
  std::vector<std::string> texts;
  for (const runners::PlannedArm& arm : plan.arms)
    if (std::string text = runners::grown_text(arm); !text.empty())
      texts.push_back(std::move(text));
  return texts;
}

// "9 arms: ar, ar (A/A), pld, each at batch 1, 2, 4", a line per set of sizes.
void print_arms(const runners::RunPlan& plan) {
  struct Group {
    std::vector<int> sizes;
    std::vector<std::string> names;
  };
  std::vector<Group> groups;
  for (const PlannedMethod& method : methods_of(plan)) {
    const std::vector<int> sizes = method.sizes();
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& g) { return g.sizes == sizes; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.sizes = sizes, .names = {}});
    group->names.push_back(method.name);
  }
  for (Group& group : groups) {
    const size_t n = group.names.size() * group.sizes.size();
    if (!plan.suite.batches.one())
      group.names.push_back(fmt::format("each at batch {}", fmt::join(group.sizes, ", ")));
    print_names(fmt::format("{} arms:", n), group.names);
  }
}

}  // namespace

nlohmann::ordered_json plan_json(const PlanReport& report) {
  const runners::RunPlan& plan = report.plan;
  const std::vector<Line> lines = lines_of(report);
  const Line& all = lines.back();
  nlohmann::ordered_json json = {
      {"suite", nlohmann::json::parse(plan.run.suite_json)},
      {"run_key", plan.run.key},
      {"generations", plan.schedule.size()},
      {"waves", plan.waves.size()},
      {"stored", report.stored},
      {"seconds_at_most",
       seconds_left(report, runners::estimate_seconds(plan, report.calibration, report.prices))},
      {"seconds_at_plain_speed",
       seconds_left(report, runners::estimate_seconds(plan, report.calibration))},
      {"step_seconds", report.calibration.step_s},
      {"prefill_seconds_per_token", report.calibration.prefill_s_per_token},
      {"context_tokens", plan.capacity},
      {"skipped_too_long", plan.skipped},
      {"left_out", plan.left_out}};
  if (plan.shard)
    json["shard"] = {{"number", plan.shard->number},
                     {"count", plan.shard->count},
                     {"prompts", lines.back().prompts},
                     {"plan_prompts", plan.prompts.size()},
                     {"plan_key", plan.whole.key}};
  json["arms"] = nlohmann::json::array();
  for (const runners::PlannedArm& arm : plan.arms) json["arms"].push_back(arm.record.label);
  json["grown_bytes"] = nlohmann::json::array();
  for (const runners::PlannedArm& arm : plan.arms)
    if (arm.kept.grown > 0)
      json["grown_bytes"].push_back({{"arm", arm.record.label}, {"at_most", arm.kept.grown}});
  json["largest_steps"] = nlohmann::json::array();
  json["ceilings"] = nlohmann::json::array();
  for (size_t i = 0; i < report.prices.size(); ++i) {
    const auto& [rows, plain_steps, ceiling] = report.prices[i];
    json["largest_steps"].push_back(
        {{"arm", plan.arms[i].record.label},
         {"rows", rows > 0 ? nlohmann::json(rows) : nlohmann::json()},
         {"plain_steps", rows > 0 ? nlohmann::json(plain_steps) : nlohmann::json()}});
    if (ceiling <= 0) continue;
    const std::optional<double> needed = runners::acceptance_needed(report.prices[i]);
    json["ceilings"].push_back(
        {{"arm", plan.arms[i].record.label},
         {"speedup", ceiling},
         {"break_even_tau", plain_steps},
         {"acceptance_needed", needed ? nlohmann::json(*needed) : nlohmann::json()}});
  }
  json["warnings"] = hopeless_arms(report);
  const auto effects = [&](const Line& line) {
    nlohmann::ordered_json list = nlohmann::json::array();
    for (const double sd : deviations_of(line, plan.suite))
      list.push_back(
          {{"sd", sd}, {"effect", runners::minimum_detectable_effect(sd, line.prompts)}});
    return list;
  };
  json["tasks"] = nlohmann::json::array();
  for (const Line& line : lines)
    if (&line != &all || lines.size() == 1)
      json["tasks"].push_back({{"task", line.task},
                               {"prompts", line.prompts},
                               {"turns", line.turns},
                               {"max_new", line.max_new},
                               {"generations", line.generations},
                               {"seconds", line.seconds},
                               {"measured", line.measured},
                               {"detectable_effect", effects(line)}});
  json["seconds"] = seconds_left(report, all.seconds);
  json["measured_in_run"] =
      report.history ? nlohmann::json(report.history->run_id) : nlohmann::json();
  json["detectable_effect"] = effects(all);
  return json;
}

void print_plan(const PlanReport& report) {
  const runners::RunPlan& plan = report.plan;
  const runners::Suite& suite = plan.suite;
  const std::vector<Line> lines = lines_of(report);
  std::vector<std::vector<std::string>> rows;
  bool guessed = false;
  const bool bounded = !report.prices.empty();
  const char* mark = bounded ? "<" : "~";  // before a time that was not measured
  for (const Line& line : lines) {
    rows.push_back(
        {line.task, std::to_string(line.prompts), std::to_string(line.turns),
         std::to_string(line.max_new), std::to_string(line.longest),
         std::to_string(plan.arms.size()), std::to_string(line.generations),
         (line.measured ? "" : fmt::format("{} ", mark)) + base::format_duration(line.seconds),
         change_text(line, suite)});
    guessed = guessed || !line.deviation;
  }
  print_line(aligned_table({"data set", "prompts", "turns", "max new", "longest prompt", "arms",
                            "generations", "time", "smallest change"},
                           rows));
  if (suite.batches.wave_size() > 1)
    print_line(
        fmt::format("{}, {} of them", runners::describe_batches(suite.batches), plan.waves.size()));
  if (plan.shard)
    print_line(fmt::format("shard {} of {}: {} of the {} prompts of the plan", plan.shard->number,
                           plan.shard->count, lines.back().prompts, plan.prompts.size()));
  print_arms(plan);
  if (const std::vector<std::string> grown = grown_texts(plan); !grown.empty())
    print_names("memory that grows with texts:", grown);
  for (const std::string& origin : plan.origins) print_line("data: " + origin);
  for (const std::string& method : plan.left_out) print_line("left out: " + method);
  if (!plan.skipped.empty())
    print_line(
        fmt::format("left out, too long for the context: {}", fmt::join(plan.skipped, ", ")));
  print_line(fmt::format(
      "{} generations ({} repeats, {} samples, order {}), {} already stored; session of {} tokens",
      plan.schedule.size(), suite.repeats, suite.samples, runners::to_string(suite.order),
      report.stored, plan.capacity));
  std::string left = base::format_duration(seconds_left(report, lines.back().seconds));
  if (!lines.back().measured && bounded)
    left = fmt::format("at most {} ({} at the speed of plain decoding)", left,
                       base::format_duration(seconds_left(
                           report, runners::estimate_seconds(plan, report.calibration))));
  else if (!lines.back().measured)
    left = "about " + left;
  print_line(fmt::format(
      "time left: {}, warm-up up to {}; {}: every answer at full length and {} ({} per step of one "
      "row, {} per prompt token)",
      left, base::format_duration(suite.warmup < 0 ? suite.warmup_limit_s : 0), mark,
      bounded ? "no draft token accepted" : "at the speed of plain decoding",
      base::format_duration(report.calibration.step_s),
      base::format_duration(report.calibration.prefill_s_per_token)));
  print_prices(report);
  if (report.history)
    print_line(fmt::format(
        "as measured in run {} '{}' of the same arms: times without {}, deviations in brackets",
        report.history->run_id, report.history->label, mark));
  const std::vector<double> usual = usual_deviations(suite);
  print_line(fmt::format(
      "smallest change: of a method against an earlier run, one-sided 5 %, power 80 %{}",
      guessed ? fmt::format("; not measured yet: if prompts differ by {:.0f} to {:.0f} %",
                            100 * usual.front(), 100 * usual.back())
              : ""));
  print_line("run key: " + plan.run.key);
}

}  // namespace evalrun::cli
