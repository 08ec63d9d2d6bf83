#include "runners/cli/measure/run/run_arguments.h"

#include "runners/cli/units.h"
#include "runners/plan/method_lists.h"
#include "runners/plan/plan.h"

namespace evalrun::cli {
namespace {

constexpr const char* kExamples = R"(Examples:
  evalrun run quick
  evalrun run ci -m model.gguf --methods ar,pld:k=10 --label before
  evalrun run --tasks gsm8k,mt_bench --limit 40 -n 128 --data-root DATA --plan
  evalrun run quick --endpoint plain=http://127.0.0.1:8080,api=llama \
    --endpoint spec=http://127.0.0.1:8081,api=llama

Several values of -m, --device, --dtype, --isa, --kv-dtype, -t, -n or --temperature are as many runs, each
with a label of its own, and one table: evalrun run quick --dtype q4,bf16 -t 1,2
Equal settings resume a run that was interrupted, and never measure twice; --no-resume starts afresh.)";

void add_suite_options(CLI::App& run, RunArguments& o) {
  const char* group = "What to measure (on top of the suite)";
  const auto option = [&](const char* name, auto& value, const std::string& text) {
    return run.add_option(name, value, text)->group(group);
  };
  // Not add_flag: CLI11 takes an optional<bool> for a counter and sets it to 0, given or not.
  const auto flag = [&](const char* name, std::optional<bool>& value, const char* text) {
    run.add_flag_function(
           name, [&value](int64_t count) { value = count > 0; }, text)
        ->group(group);
  };
  option(
      "--methods", o.methods,
      fmt::format(
          "Methods, e.g. ar,pld:k=10 (AR is always measured); auto = the choice of `evalrun tune "
          "method`; or lists: {}",
          runners::describe_method_lists()));
  option(
      "--endpoint", o.endpoints,
      "A server to measure over HTTP, NAME=URL[,api=...][,model=...][,key-env=...][,cache=...]; "
      "repeat it for more of them. Methods are measured beside servers where --methods or a suite "
      "with endpoints names them")
      ->allow_extra_args(false);
  option("--baseline", o.baseline,
         "What all arms are compared with beside servers: an endpoint's NAME or a method (default: "
         "the first endpoint)");
  option("--tasks", o.tasks, "Tasks, e.g. gsm8k,mt_bench or jsonl:FILE (evalrun list tasks)");
  option("--evaluators", o.evaluators, "auto (those of the task), none, or names, auto among them")
      ->delimiter(',');
  option("-n,--max-new", o.max_new, "Tokens per answer (default: the task's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::NonNegativeNumber);
  option("--limit", o.limit, "Prompts per task: a count, or a share below 1")
      ->check(CLI::NonNegativeNumber);
  option("--max-turns", o.max_turns, "Turns per conversation at most")->check(CLI::Range(0, 1000));
  option("-r,--repeats", o.repeats, "Times every prompt is measured, in rounds over the whole set")
      ->check(CLI::Range(1, 100000));
  option("--samples", o.samples, "Seeded generations per prompt (with --temperature)")
      ->check(CLI::Range(1, 100000));
  option("--batch", o.batch, "Prompts decoded at once: sizes, e.g. 1,2,4; every method at each")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, runners::kLargestBatch));
  option("--batch-mode", o.batch_mode,
         "static: slots start together; continuous: a free slot takes the next prompt")
      ->check(CLI::IsMember({"static", "continuous"}));
  option("--wave", o.wave, "Prompts that all arms decode in turn (default: by the largest batch)")
      ->check(CLI::Range(0, 1 << 20));
  option("--temperature", o.temperature, "0 = greedy")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(0.0, 100.0));
  option("--top-k", o.top_k, "Sample from the k likeliest tokens, 0 = off")
      ->check(CLI::NonNegativeNumber);
  option("--top-p", o.top_p, "Sample from the likeliest tokens that hold this share, 1 = off")
      ->check(CLI::Range(0.0, 1.0));
  option("--sampler", o.sampler,
         "inverse, or gumbel: plain decoding and drafters draw by the same noise, so that every "
         "method gives the same tokens")
      ->check(CLI::IsMember({"inverse", "gumbel"}));
  option("--seed", o.seed, "Seed of sampling and of the order of arms");
  option("-w,--warmup", o.warmup, "auto, or generations per arm");
  option("--order", o.order, "interleaved, random or sequential");
  flag("--aa,!--no-aa", o.aa, "A second AR arm: the noise floor");
  flag("--replay,!--no-replay", o.replay,
       "Lead every arm along plain decoding's text; greedy only");
  flag("--ignore-eos,!--no-ignore-eos", o.ignore_eos, "Always decode --max-new tokens");
  flag("--kv-cache,!--no-kv-cache", o.kv_cache, "Keep keys and values between steps");
}

}  // namespace

void add_run_options(CLI::App& run, RunArguments& o) {
  run.add_option("suite", o.suite, "Built-in suite (quick, ci) or JSON file")
      ->option_text("[SUITE]");
  o.model.add(run);
  add_suite_options(run, o);
  add_data_root(run, o.data_root);
  run.add_option("--label", o.label, "Name of the run, for report and compare");
  run.add_flag("--resume,!--no-resume", o.resume,
               "Continue an earlier run of the same settings (default)");
  run.add_option("--nonce", o.nonce, "Keep separate from other runs of the same settings");
  run.add_option("--shard", o.shard,
                 "I/N, from 1/N to N/N: measure this part of the prompts alone, to be merged with "
                 "the others (evalrun merge)");
  run.add_option(
         "--row-cost", o.row_cost,
         "T(n) for methods that go by it, of `evalrun cost --json`, instead of measuring it: "
         "the same drafts on every machine")
      ->check(CLI::ExistingFile);
  run.add_option("--max-time", o.max_time_s,
                 "Stop after this long, once the current prompt is finished: 90s, 10m, 2h")
      ->transform(as_seconds());
  run.add_option("--devices", o.devices,
                 "A process for each of these devices, which share the prompts: cuda:0,cuda:1; or "
                 "cores of this machine: cpu,cpu or cpu:0-3,cpu:4-7")
      ->delimiter(',')
      ->allow_extra_args(false);
  run.add_flag("--mpi", o.mpi,
               "Share the prompts with the other processes that mpirun has started");
  // Hidden: --devices starts processes with it.
  run.add_option("--peers", o.peers, "RANK/SIZE:DESCRIPTORS")->group("");
  run.add_option("--copy-to", o.copy_to,
                 "Keep a copy of the result database in this file, on a shared disk: made between "
                 "generations and at the end; a run begins with it where it holds more than --db");
  run.add_option("--copy-every", o.copy_every_s, "How often, with --copy-to")
      ->transform(as_seconds())
      ->default_str("5m");
  run.add_option(
         "-j,--jobs", o.jobs,
         "Generated programs run at once when answers are judged, after the timed part (default: "
         "the cores this process may use)")
      ->check(CLI::Range(0, 1024));
  add_scoring_options(run, o.scoring);
  run.add_flag("--energy", o.energy, "End at once where the energy of what decodes cannot be read");
  run.add_flag("--skip-long", o.skip_long, "Leave out prompts longer than the context");
  run.add_flag("--plan,--dry-run", o.plan, "Show cells, time and detectable effect; store nothing");
  run.add_option("-o,--format", o.format, "Table as text, md, csv or json")
      ->check(CLI::IsMember({"text", "md", "csv", "json"}))
      ->capture_default_str();
  // Hidden: `check --against` starts this and says when to measure. A fault is planted for `check
  // --self-test` alone; its rows are stamped as such.
  run.add_option("--lock-step", o.fault, "Measure when told to on standard input")
      ->expected(0, 1)
      ->group("");
  run.footer(kExamples);
}

}  // namespace evalrun::cli
