#include "runners/cli/measure/run/run_shared.h"

#include <spdlog/spdlog.h>

#include <memory>

#include "engine/base/text.h"
#include "results/queries.h"
#include "runners/cli/command_line.h"
#include "runners/cli/instruments.h"
#include "runners/cli/measure/run/run_end.h"
#include "runners/cli/measure/run/shared_end.h"
#include "runners/cli/output.h"
#include "runners/cluster/device_processes.h"
#include "runners/cluster/shared_run.h"
#include "runners/cluster/socket_messages.h"

namespace evalrun::cli {

void check_shared(const RunArguments& o, const std::vector<OneRun>& all) {
  const std::string option = o.mpi ? "--mpi" : "--devices";
  const auto refuse = [&](bool given, const char* other, const char* remedy) {
    if (given) throw base::usage_error(fmt::format("{} with {}", option, other), remedy);
  };
  refuse(o.mpi && !o.devices.empty(), "--devices",
         "start a process for each device by mpirun, or leave out --mpi");
  refuse(!o.shard.empty(), "--shard", "leave out one of them: either divides the prompts");
  refuse(o.lock_step, "--lock-step", "leave out one of them");
  refuse(!o.copy_to.empty(), "--copy-to", "each process has a database of its own beside --db");
  refuse(all.size() > 1, "several runs", "give each option one value, in several commands");
  refuse(o.mpi && !o.resume && o.nonce.empty(), "--no-resume",
         "each process would draw a name of its own: give all of them --nonce NAME");
  refuse(o.peers.empty() && !o.devices.empty() && !o.model.device.empty(), "--device",
         "leave out one of them");
}

void start_devices(Context& context, const RunArguments& o, const std::string& nonce) {
  std::vector<std::string> words = process_arguments();
  std::erase(words, "--no-resume");
  if (!nonce.empty() && o.nonce.empty()) words.insert(words.end(), {"--nonce", nonce});
  context.exit_code = runners::run_device_processes(
      runners::parse_device_slots(o.devices, runners::allowed_cores()), words);
}

void run_as_part(Context& context, const RunArguments& o, const OneRun& one,
                 const std::string& nonce) {
  const std::unique_ptr<runners::Messages> messages =
      o.mpi ? runners::open_mpi() : runners::open_sockets(runners::parse_socket_peers(o.peers));
  const bool first = messages->rank() == 0;
  if (!first) spdlog::set_level(spdlog::level::warn);
  LoadedModels models;
  Instruments instruments(context.global);
  runners::PlanRequest request = make_run_request(o, one, nonce, false, models);
  if (!o.peers.empty())  // as it was before --devices made several of it
    request.command =
        resume_line(runners::without_option(runners::without_option(process_arguments(), "--peers"),
                                            "--device"),
                    nonce);
  runners::ProgressSink silent;
  runners::RunnerOptions& options = instruments.options();
  options.scoring = o.scoring;
  options.score_workers = o.jobs;
  options.max_time_s = o.max_time_s;
  if (first)
    warn_if_unsafe(o.scoring);
  else
    options.progress = &silent;
  const runners::SharedOutcome outcome =
      run_shared(*messages, request, context.global.db, instruments.clock(), options,
                 o.mpi ? "--mpi" : "--devices");
  if (!first) return;
  context.exit_code = tell_shared(outcome, context.global.db, request.command);
  if (!outcome.run_id) return;
  const results::ResultStore store(context.global.db);
  print_line(base::trim(run_table(store, {*outcome.run_id}, context.global.json ? "json" : o.format,
                                  context.global.no_color)));
  const int64_t failed = results::count_generations(store, *outcome.run_id).failed;
  if (failed > 0) spdlog::warn("{} generations failed; their rows say why (evalrun show)", failed);
  if (failed > 0 || !tokens_as_promised(store, *outcome.run_id))
    context.exit_code = static_cast<int>(base::ExitCode::kCorrectness);
}

}  // namespace evalrun::cli
