// evalrun merge OUT IN...: shards of a run as one run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "engine/base/text.h"
#include "results/merge/merge_runs.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/cli/results/merge_files.h"
#include "runners/cli/run_reference.h"

namespace evalrun::cli {
namespace {

struct MergeArguments {
  std::string out;
  std::vector<std::string> in;
};

// FILE, whose runs are all of one plan, or FILE:RUN.
results::MergeInput input_named(const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored) || split_file(text, "").first.empty())
    return {text};
  const RunReference found = find_run(text, "");
  return {found.store->path(), found.run_id};
}

std::string shard_text(const results::MissingShard& missing) {
  const auto& [number, count] = missing.shard;
  const std::string part =
      missing.incomplete == missing.prompts
          ? fmt::format("all its {} prompts", missing.prompts)
          : fmt::format("{} of its {} prompts", missing.incomplete, missing.prompts);
  return fmt::format("shard {}/{}: {} lack generations; {}", number, count, part,
                     missing.here ? "it was cut off" : "no file is of it");
}

std::string gap_text(const results::MergeGap& gap, int64_t planned) {
  std::string where;
  for (const results::Shard& shard : gap.shards)
    where += fmt::format(", shard {}/{}", shard.number, shard.count);
  return fmt::format("{}: {} ({} of {}{})", gap.task, gap.prompt, gap.stored, planned, where);
}

int64_t planned_each(const results::PlanRecord& plan) {
  return plan.arms * plan.repeats * plan.samples;
}

void print_gaps(const results::MergeOutcome& outcome) {
  print_line(fmt::format("unfinished: {} of the {} prompts of the plan lack generations",
                         outcome.incomplete, outcome.plan.prompts));
  for (const results::MissingShard& missing : outcome.missing)
    print_line("  " + shard_text(missing));
  for (const results::MergeGap& gap : outcome.first_gaps)
    print_line("  " + gap_text(gap, planned_each(outcome.plan)));
  if (outcome.incomplete > static_cast<int64_t>(outcome.first_gaps.size()))
    print_line(fmt::format("  and {} more",
                           outcome.incomplete - static_cast<int64_t>(outcome.first_gaps.size())));
  print_line(
      "run the shards that are missing or cut off again - what is stored is not measured "
      "twice - and merge their files into this one");
  for (const std::string& command : outcome.commands)
    print_line("  one of the shards was: " + command);
}

void print_outcome(const std::string& out, const results::MergeOutcome& outcome) {
  print_line(fmt::format("{}: {} of {} generations, {} new; {} of {}: {} (key {:.12})", out,
                         outcome.stored, outcome.plan.generations(), outcome.new_generations,
                         base::plural(outcome.runs, "run"),
                         base::plural(static_cast<int64_t>(outcome.machines.size()), "machine"),
                         fmt::join(outcome.machines, ", "), outcome.key));
  if (outcome.copies > 0)
    print_line(fmt::format("the same measurement in two files, kept once: {}", outcome.copies));
  if (outcome.twice > 0)
    print_line(
        fmt::format("measured twice: {}; of two the one stays that did not fail, then the one "
                    "that began first",
                    outcome.twice));
  for (const results::TwiceMeasured& t : outcome.first_twice)
    print_line(fmt::format("  {}, {}, repeat {}, sample {}: {}, not {}", t.arm, t.prompt, t.repeat,
                           t.sample, t.kept, t.left_out));
  if (outcome.complete())
    print_line("complete");
  else
    print_gaps(outcome);
}

nlohmann::ordered_json merge_json(const std::string& out, const results::MergeOutcome& outcome) {
  nlohmann::ordered_json json = {{"file", out},
                                 {"run", outcome.run_id},
                                 {"key", outcome.key},
                                 {"complete", outcome.complete()},
                                 {"runs", outcome.runs},
                                 {"machines", outcome.machines},
                                 {"planned", outcome.plan.generations()},
                                 {"stored", outcome.stored},
                                 {"new", outcome.new_generations},
                                 {"copies", outcome.copies},
                                 {"twice", outcome.twice},
                                 {"prompts", outcome.plan.prompts},
                                 {"incomplete_prompts", outcome.incomplete}};
  json["first_twice"] = nlohmann::json::array();
  for (const results::TwiceMeasured& t : outcome.first_twice)
    json["first_twice"].push_back({{"arm", t.arm},
                                   {"prompt", t.prompt},
                                   {"repeat", t.repeat},
                                   {"sample", t.sample},
                                   {"kept", t.kept},
                                   {"left_out", t.left_out}});
  json["missing_shards"] = nlohmann::json::array();
  for (const results::MissingShard& m : outcome.missing)
    json["missing_shards"].push_back({{"number", m.shard.number},
                                      {"count", m.shard.count},
                                      {"prompts", m.prompts},
                                      {"incomplete", m.incomplete},
                                      {"here", m.here}});
  json["first_gaps"] = nlohmann::json::array();
  for (const results::MergeGap& g : outcome.first_gaps)
    json["first_gaps"].push_back({{"task", g.task}, {"prompt", g.prompt}, {"stored", g.stored}});
  return json;
}

void run_merge(const MergeArguments& options, Context& context) {
  std::vector<results::MergeInput> inputs;
  for (const std::string& text : options.in) inputs.push_back(input_named(text));
  merge_files(context, options.out, inputs);
}

}  // namespace

void merge_files(Context& context, const std::string& out,
                 const std::vector<results::MergeInput>& inputs) {
  const results::MergeOutcome outcome = results::merge_runs(out, inputs);
  if (context.global.json)
    print_json_document(merge_json(out, outcome));
  else
    print_outcome(out, outcome);
  if (!outcome.complete()) context.exit_code = static_cast<int>(base::ExitCode::kInconclusive);
}

void add_merge_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("merge", "Shards of a run, or parts of one, as one run");
  auto options = std::make_shared<MergeArguments>();
  command
      ->add_option("out", options->out,
                   "Result file to make; one that holds a run of the same plan takes the others in")
      ->required();
  command
      ->add_option("in", options->in,
                   "Result files of `evalrun run --shard`, or of runs that were cut off; FILE:RUN "
                   "where a file holds other runs too")
      ->required();
  command->footer(
      "The order of files does not matter, and merging again changes nothing. OUT is there whole "
      "or\n"
      "as it was. Ends with 4 where parts are missing, which are named, with 3 for parts of other\n"
      "builds, models or suites, with 5 where two machines gave other tokens: docs/cluster.md\n\n"
      "Examples:\n"
      "  evalrun run suite.json --shard 1/2 --db a.db      # on one machine\n"
      "  evalrun run suite.json --shard 2/2 --db b.db      # on another\n"
      "  evalrun merge all.db a.db b.db && evalrun report --db all.db");
  command->callback([options, &context] { run_merge(*options, context); });
}

}  // namespace evalrun::cli
