// evalrun cluster submit|status|collect|resubmit: one run as a job array of a scheduler.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <memory>
#include <thread>

#include "engine/base/text.h"
#include "engine/base/units.h"
#include "runners/cli/cli.h"
#include "runners/cli/cluster/cluster_words.h"
#include "runners/cli/cluster/collect_shards.h"
#include "runners/cli/command_line.h"
#include "runners/cli/output.h"
#include "runners/cli/units.h"
#include "runners/cluster/cluster_state.h"
#include "runners/cluster/embedded_scripts.h"
#include "runners/measure/interrupt.h"

namespace evalrun::cli {
namespace {

namespace fs = std::filesystem;
using runners::ClusterFolder;
using runners::ClusterPlan;
using runners::ShardView;
using runners::Slurm;

struct ClusterArguments {
  std::string scheduler = "slurm", folder, store, local, program, out;
  std::vector<std::string> options, words;
  int shards = 0;
  bool dry_run = false, follow = false;
  double every_s = 15;
};

ClusterFolder folder_named(const std::string& name) {
  return ClusterFolder(fs::absolute(name).lexically_normal().string());
}

std::string absolute_or_empty(const std::string& path) {
  return path.empty() ? "" : fs::absolute(path).lexically_normal().string();
}

void write_script(const ClusterFolder& folder) {
  for (const base::EmbeddedFile& file : runners::embedded_scripts())
    if (file.name == "evalrun.sbatch") return base::write_file_atomic(folder.script(), file.text);
  EVALRUN_CHECK(false, "no job script is compiled in");
}

// The line that does the same by hand. Before the folder is made, a comment of the shell says what
// the line lacks.
std::string by_hand(const ClusterFolder& folder, const ClusterPlan& plan,
                    const std::vector<int>& shards) {
  std::string line;
  if (!fs::exists(folder.script()))
    line = fmt::format("# {} is not there yet: cluster submit without --dry-run writes it\n",
                       folder.script());
  for (const auto& [name, value] : Slurm::variables(folder, plan))
    line += fmt::format("{}={} ", name, shell_line({value}));
  return line + shell_line(Slurm::submit_words(folder, plan, shards));
}

void tell_submitted(const Context& context, const ClusterFolder& folder,
                    const runners::SubmittedJob& job) {
  if (context.global.json)
    return print_json_document(
        {{"job", job.id}, {"shards", job.shards}, {"folder", folder.path()}});
  print_line(fmt::format("job {}: {} of {}", job.id,
                         base::plural(static_cast<int64_t>(job.shards.size()), "shard"),
                         folder.path()));
  print_line(
      fmt::format("follow it: evalrun cluster status {} --follow", shell_line({folder.path()})));
  print_line(fmt::format("then:      evalrun cluster collect {}", shell_line({folder.path()})));
}

void submit(Context& context, const ClusterArguments& o) {
  check_run_words(o.words);
  const ClusterFolder folder = folder_named(o.folder);
  ClusterPlan plan;
  plan.scheduler = o.scheduler;
  plan.shards = o.shards;
  plan.program = o.program.empty() ? fs::read_symlink("/proc/self/exe").string()
                                   : absolute_or_empty(o.program);
  plan.words = o.words;
  plan.options = o.options;
  plan.store = absolute_or_empty(o.store);
  plan.local = absolute_or_empty(o.local);
  std::vector<int> all;
  for (int shard = 1; shard <= o.shards; ++shard) all.push_back(shard);
  if (o.dry_run) return print_line(by_hand(folder, plan, all));
  folder.create(plan);
  write_script(folder);
  try {
    plan.jobs.push_back({Slurm().submit(folder, plan, all), all});
  } catch (...) {  // nothing runs: the folder is free for another attempt
    std::error_code ignored;
    fs::remove(folder.plan_file(), ignored);
    throw;
  }
  folder.save(plan);
  tell_submitted(context, folder, plan.jobs.back());
}

std::vector<ShardView> views_of(const ClusterFolder& folder, const ClusterPlan& plan) {
  return runners::shard_views(folder, plan, Slurm().states(plan));
}

// "resubmit" with the folder, and whose fault it was.
void warn_of_missing(const ClusterFolder& folder, const std::vector<ShardView>& views) {
  const std::vector<int> missing = runners::missing_shards(views);
  if (missing.empty()) return;
  for (const ShardView& view : views)
    if (view.missing())
      spdlog::warn("shard {} {}: {}", view.shard, to_string(view.phase), view.why);
  spdlog::warn("{} {} missing; this measures what is left of them:\n  evalrun cluster resubmit {}",
               missing.size() == 1 ? "shard" : "shards",
               runners::array_text(missing) + (missing.size() == 1 ? " is" : " are"),
               shell_line({folder.path()}));
}

std::string age_text(const runners::ShardStatus& status) {
  const auto age = static_cast<double>(std::time(nullptr) - status.updated_unix_s);
  return base::format_duration(std::max(0.0, age));
}

void print_views(const std::vector<ShardView>& views) {
  std::vector<std::vector<std::string>> rows;
  for (const ShardView& v : views) {
    std::string state = to_string(v.phase);
    if (v.phase == runners::ShardPhase::kRunning && v.status) state = v.status->state;
    if (v.phase == runners::ShardPhase::kWaiting && !v.task.reason.empty())
      state += fmt::format(" ({})", v.task.reason);
    const bool planned = v.status && v.status->planned > 0;
    rows.push_back({std::to_string(v.shard), state,
                    v.status && !v.status->host.empty() ? v.status->host : v.task.node,
                    planned ? fmt::format("{}/{}", v.status->stored, v.status->planned) : "-",
                    v.status && v.status->failed > 0 ? std::to_string(v.status->failed) : "-",
                    v.status ? age_text(*v.status) + " ago" : "-"});
  }
  print_line(aligned_table({"shard", "state", "node", "generations", "failed", "heard of"}, rows));
}

void print_views_json(const ClusterFolder& folder, const ClusterPlan& plan,
                      const std::vector<ShardView>& views) {
  const runners::JobProgress job = progress_of(views);
  nlohmann::ordered_json json = {
      {"folder", folder.path()},
      {"scheduler", plan.scheduler},
      {"shards", nlohmann::json::array()},
      {"complete", job.complete},
      {"running", job.running},
      {"planned", job.planned},
      {"stored", job.stored},
      {"seconds_left", job.seconds_left ? nlohmann::json(*job.seconds_left) : nlohmann::json()},
      {"missing", runners::missing_shards(views)}};
  for (const ShardView& v : views)
    json["shards"].push_back({{"shard", v.shard},
                              {"phase", to_string(v.phase)},
                              {"task", v.task.name},
                              {"reason", v.task.reason},
                              {"node", v.task.node},
                              {"planned", v.status ? v.status->planned : 0},
                              {"stored", v.status ? v.status->stored : 0},
                              {"failed", v.status ? v.status->failed : 0},
                              {"why", v.why}});
  print_json_document(json);
}

bool going_on(const std::vector<ShardView>& views) {
  return std::any_of(views.begin(), views.end(), [](const ShardView& v) {
    return v.phase == runners::ShardPhase::kRunning || v.phase == runners::ShardPhase::kWaiting;
  });
}

// A line whenever it says something new, until nothing goes on.
std::vector<ShardView> follow(const ClusterFolder& folder, const ClusterPlan& plan,
                              double every_s) {
  const runners::InterruptGuard guard("\nthe job goes on; it is only no longer followed\n");
  std::string last;
  for (;;) {
    std::vector<ShardView> views = views_of(folder, plan);
    if (const std::string line = runners::progress_line(views); line != last)
      print_line(last = line);
    if (!going_on(views)) return views;
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::duration<double>(every_s);
    while (Clock::now() < end) {
      if (runners::InterruptGuard::requested()) return views;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
}

void status(Context& context, const ClusterArguments& o) {
  const ClusterFolder folder = folder_named(o.folder);
  const ClusterPlan plan = folder.load();
  const bool lines = o.follow && !context.global.json;
  const std::vector<ShardView> views =
      lines ? follow(folder, plan, o.every_s) : views_of(folder, plan);
  if (context.global.json) {
    print_views_json(folder, plan, views);
  } else {
    print_views(views);
    print_line(runners::progress_line(views));
  }
  warn_of_missing(folder, views);
  if (!runners::missing_shards(views).empty())
    context.exit_code = static_cast<int>(base::ExitCode::kData);
}

void resubmit(Context& context, const ClusterArguments& o) {
  const ClusterFolder folder = folder_named(o.folder);
  ClusterPlan plan = folder.load();
  if (!o.options.empty()) plan.options = o.options;
  const std::vector<ShardView> views = views_of(folder, plan);
  const std::vector<int> missing = runners::missing_shards(views);
  if (missing.empty())
    return print_line(going_on(views) ? "nothing is missing: every shard is complete, waits or runs"
                                      : "nothing is missing: every shard is complete");
  if (o.dry_run) return print_line(by_hand(folder, plan, missing));
  write_script(folder);  // of this program, as the tasks are
  plan.jobs.push_back({Slurm().submit(folder, plan, missing), missing});
  folder.save(plan);
  tell_submitted(context, folder, plan.jobs.back());
}

void collect(Context& context, const ClusterArguments& o) {
  const ClusterFolder folder = folder_named(o.folder);
  const ClusterPlan plan = folder.load();
  collect_shards(context, folder, plan, o.out.empty() ? context.global.db : o.out);
}

void add_folder(CLI::App& command, ClusterArguments& o) {
  command.add_option("folder", o.folder, "The --folder of `cluster submit`")->required();
}

void add_scheduler_options(CLI::App& command, ClusterArguments& o) {
  command
      .add_option("--option", o.options,
                  "A word for sbatch, such as --option=--partition=gpu; repeat it for more")
      ->allow_extra_args(false);
  command.add_flag("--dry-run", o.dry_run, "Print the command that would submit; do nothing");
}

void add_submit(CLI::App& cluster, Context& context,
                const std::shared_ptr<ClusterArguments>& options) {
  auto* command = cluster.add_subcommand("submit", "Submit a run as a job array");
  ClusterArguments& o = *options;
  command->add_option("--scheduler", o.scheduler, "slurm")
      ->check(CLI::IsMember({"slurm"}))
      ->capture_default_str();
  command->add_option("--shards", o.shards, "Parts of the run, a task each")
      ->check(CLI::Range(1, 10000))
      ->required();
  command
      ->add_option("--folder", o.folder,
                   "New folder for copies of the shards, logs and the plan, seen by every node")
      ->required();
  command->add_option("--store", o.store,
                      "Folder with models/, corpora/, data/ and adapters/, seen by every node and "
                      "only read (default: EVALRUN_HOME)");
  command->add_option("--local", o.local,
                      "Folder on a disk of each node for the shards' databases (default: TMPDIR)");
  command->add_option("--program", o.program, "evalrun on the nodes (default: this program)");
  add_scheduler_options(*command, o);
  command->add_option("run", o.words, "Suite and options of `evalrun run`, after --")->required();
  command->callback([&context, options] { submit(context, *options); });
  command->footer(
      "Examples:\n"
      "  evalrun cluster submit --shards 8 --folder /shared/ci-run -- ci --methods ar,pld\n"
      "  evalrun cluster submit --shards 8 --folder run --option=--partition=gpu \\\n"
      "    --option=--gres=gpu:1 -- ci -m llama-3.1-8b.gguf --device cuda");
}

}  // namespace

void add_cluster_command(CLI::App& app, Context& context) {
  auto* cluster =
      app.add_subcommand("cluster", "One run on many nodes: submit, follow and collect its shards");
  cluster->require_subcommand(1);
  cluster->footer(
      "Examples:\n"
      "  evalrun cluster submit --shards 8 --folder run -- ci -m model.gguf\n"
      "  evalrun cluster status run --follow\n"
      "  evalrun cluster resubmit run          what failed, and nothing else\n"
      "  evalrun cluster collect run --out ci.db");
  auto options = std::make_shared<ClusterArguments>();
  add_submit(*cluster, context, options);

  auto* status_command = cluster->add_subcommand("status", "How far the shards are");
  add_folder(*status_command, *options);
  status_command->add_flag("--follow", options->follow, "A line of progress until nothing goes on");
  status_command->add_option("--every", options->every_s, "How often to look, with --follow")
      ->transform(as_seconds())
      ->default_str("15s");
  status_command->callback([&context, options] { status(context, *options); });
  status_command->footer(
      "Exit code 7 where shards are missing: their tasks ended before they were complete.");

  auto* resubmit_command =
      cluster->add_subcommand("resubmit", "Submit the shards that are missing, and only these");
  add_folder(*resubmit_command, *options);
  add_scheduler_options(*resubmit_command, *options);
  resubmit_command->callback([&context, options] { resubmit(context, *options); });

  auto* collect_command = cluster->add_subcommand("collect", "Merge the shards into one run");
  add_folder(*collect_command, *options);
  collect_command->add_option("--out", options->out, "Result database (default: --db)");
  collect_command->callback([&context, options] { collect(context, *options); });
  collect_command->footer(
      "What is complete is merged even where shards are missing. The exit code says whether they "
      "are.");
}

}  // namespace evalrun::cli
