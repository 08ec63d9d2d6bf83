#include "runners/cli/measure/verify_endpoint.h"

#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "datasets/dataset.h"
#include "engine/base/text.h"
#include "runners/cli/instruments.h"
#include "runners/cli/output.h"
#include "runners/plan/conversation.h"

namespace evalrun::cli {
namespace {

using runners::DivergenceKind;
using runners::EndpointPass;
using runners::EndpointVerdict;
using runners::EndpointVerification;

constexpr double kFirstWait = 60;  // seconds for a server that is still loading
constexpr int kMostClients = 256;

// The data sets' prompts, first turns, and our own.
std::vector<runners::EndpointPrompt> endpoint_prompts(const EndpointVerifyRun& run,
                                                      const runners::Conversation& conversation) {
  std::vector<runners::EndpointPrompt> prompts;
  const auto add = [&](const datasets::Prompt& prompt, const std::string& id,
                       const std::string& kind) {
    const std::string text = conversation.render(prompt, {});
    prompts.push_back({id, kind, conversation.encode(prompt, text), text});
  };
  const std::string root = datasets::resolve_data_root(run.data_root);
  for (const std::string& task : run.tasks) {
    const datasets::LoadedDataset set = datasets::load_dataset(task, root);
    for (const datasets::Prompt& prompt : datasets::limit_prompts(set.prompts, run.limit))
      add(prompt, set.task + " " + prompt.id, "ordinary");
  }
  for (const runners::MadePrompt& made : runners::made_endpoint_prompts()) {
    datasets::Prompt prompt;
    prompt.id = made.id;
    prompt.turns = {made.text};
    add(prompt, made.id, made.kind);
  }
  return prompts;
}

// Its output goes to standard error: standard output holds results. The command itself is in no
// message: it may hold a key.
void run_restart_command(const std::string& command) {
  const int status = std::system(("(" + command + "\n) 1>&2").c_str());
  if (status == 0) return;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (code == 128 + SIGINT)
    throw base::Error(base::ExitCode::kInterrupted, "interrupted: there is no verdict",
                      "run the same command again");
  throw base::data_error("--restart-command", "", fmt::format("ended with code {}", code),
                         "it must restart both servers and end with code 0");
}

runners::EndpointServer endpoint_server(const std::string& text, const char* option,
                                        const runners::EndpointTools& tools) {
  const runners::EndpointSpec spec = runners::parse_endpoint(text, option);
  return {spec.name, [spec, tools] { return runners::make_endpoint(spec, tools); }};
}

std::string clients_text(const EndpointPass& pass) {
  return base::plural(pass.clients, "client") +
         (pass.restart > 0 ? fmt::format(", restart {}", pass.restart) : "");
}

// A row a pass of the speculative server, with the plain one's pass of the same kind.
reports::Table pass_table(const EndpointVerification& v) {
  const runners::EndpointIdentity& greedy = *v.greedy;
  reports::Table table;
  table.columns = {{.name = "asked by", .words = true},
                   {.name = "answers"},
                   {.name = "same"},
                   {.name = "near tie"},
                   {.name = "differs"},
                   {.name = "state fault"},
                   {.name = "open"},
                   {.name = "failed"},
                   {.name = "plain unlike itself"}};
  for (size_t i = 0; i < greedy.passes.size(); ++i) {
    const EndpointPass& pass = greedy.passes[i];
    if (!pass.speculative) continue;
    const auto n = [&](DivergenceKind kind) {
      return static_cast<int>(
          std::count_if(greedy.divergences.begin(), greedy.divergences.end(),
                        [&](const auto& d) { return d.pass == i && d.kind == kind; }));
    };
    const auto answers = std::count_if(pass.answers.replies.begin(), pass.answers.replies.end(),
                                       [](const auto& reply) { return reply.ok(); });
    const auto different = std::count_if(greedy.divergences.begin(), greedy.divergences.end(),
                                         [&](const auto& d) { return d.pass == i; });
    int plain = 0;
    for (const EndpointPass& other : greedy.passes)
      if (!other.speculative && other.clients == pass.clients && other.restart == pass.restart)
        plain += other.differing;
    const auto bad = [&](DivergenceKind kind) {
      const int count = n(kind);
      return reports::Cell(std::to_string(count),
                           count > 0 ? reports::Style::kBad : reports::Style::kPlain);
    };
    table.rows.push_back(
        {clients_text(pass), std::to_string(answers), std::to_string(answers - different),
         std::to_string(n(DivergenceKind::kNearTie)), bad(DivergenceKind::kDiffers),
         bad(DivergenceKind::kStateFault), std::to_string(n(DivergenceKind::kOpen)),
         std::to_string(pass.answers.failed), std::to_string(plain)});
  }
  return table;
}

std::string range_text(const EndpointVerification& v) {
  const runners::PlainRange& r = v.greedy->range;
  std::string text = fmt::format(
      "The plain server against itself: {} of {} answers differ ({} asked again, {} with other "
      "clients, {} after restarts)",
      r.differing, r.answers, r.by_repeat, r.by_clients, r.by_restart);
  text += r.places > 0 ? fmt::format(
                             "; at {} places its gaps moved by up to {:.2g}, which is the null of "
                             "a near tie.",
                             base::with_commas(r.places), r.bound())
                       : "; it gives no log-probabilities to compare.";
  return text;
}

std::string drawn_text(const char* whose, const runners::DrawnFigures& figures) {
  std::string text = fmt::format("{} p {:.2g}", whose, figures.p);
  if (figures.temperature)
    text += fmt::format(", temperature {:.2f} [{:.2f}, {:.2f}]", figures.temperature->value,
                        figures.temperature->interval.lo, figures.temperature->interval.hi);
  if (figures.inside + figures.outside > 0)
    text += fmt::format(", {} of {} outside of top-k and top-p", figures.outside,
                        figures.inside + figures.outside);
  return text;
}

void add_sampling(const EndpointVerification& v, reports::Document& document) {
  if (v.seeded && v.seeded->answers > 0)
    document.note(fmt::format(
        "Equal seeds: {} of {} answers are the plain server's; it gave {} of them again itself.",
        v.seeded->identical, v.seeded->answers, v.seeded->plain_again));
  if (!v.sampling) return;
  const runners::EndpointSampling& s = *v.sampling;
  if (s.no_law.empty())
    document.note(fmt::format(
        "Law of {} draws, asked for temperature {}, top-k {}, top-p {}, at {} texts: {}; {}{}. It "
        "fails below p {:.2g}.",
        base::with_commas(s.draws), v.asked.temperature, v.asked.top_k, v.asked.top_p, s.nodes,
        drawn_text("speculative", s.speculative), drawn_text("plain", s.plain),
        s.smallest_found
            ? fmt::format("; would find a total variation of {:.2g}", *s.smallest_found)
            : "",
        s.level));
  document.note(fmt::format("Continuations against the plain server's: p {:.2g} by {}.",
                            s.texts.p(),
                            base::plural(static_cast<int64_t>(s.texts.tests.size()), "test")));
}

}  // namespace

void EndpointVerifyOptions::add(CLI::App& app) {
  const char* group = "Servers";
  app.add_option("--endpoint", endpoint,
                 "Server with speculation: NAME=URL[,api=llama|vllm|openai|sglang|tgi][,model=...]"
                 "[,key-env=VAR]")
      ->group(group);
  app.add_option("--against", against, "The same model on a server without speculation")
      ->group(group);
  app.add_option("--clients", clients, "Requests at a time; 1 is always among them")
      ->delimiter(',')
      ->check(CLI::Range(1, kMostClients))
      ->capture_default_str()
      ->group(group);
  CLI::Option* const command =
      app.add_option("--restart-command", restart_command,
                     "Shell command that restarts both servers, run between rounds")
          ->group(group);
  app.add_option("--restarts", restarts, "How often")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->needs(command)
      ->group(group);
  app.add_option("--restart-wait", restart_wait, "Seconds until both are ready again")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->needs(command)
      ->group(group);
}

std::vector<std::string> endpoint_verify_options() {
  return {"--against", "--clients", "--restart-command", "--restarts", "--restart-wait"};
}

std::vector<int> client_counts(std::vector<int> clients, size_t prompts) {
  clients.push_back(1);
  std::sort(clients.begin(), clients.end());
  clients.erase(std::unique(clients.begin(), clients.end()), clients.end());
  if (static_cast<size_t>(clients.back()) > prompts)
    throw base::usage_error(
        fmt::format("--clients {}: there are {} prompts, so not all clients would be at work",
                    clients.back(), prompts),
        "name fewer clients, or more prompts with --tasks and --limit");
  return clients;
}

reports::Document endpoint_document(const EndpointVerification& v) {
  reports::Document document{.name = "verify"};
  const EndpointVerdict verdict = runners::verdict_of(v);
  document.paragraph(
      fmt::format("{} against {}: {}.", v.speculative, v.plain, runners::to_string(verdict)), true);
  if (v.greedy) {
    document.table(pass_table(v));
    document.note(range_text(v));
    document.note(fmt::format(
        "Compared by {}, {} tokens alike. Drafts: {}.", v.greedy->by_ids ? "token ids" : "text",
        base::with_commas(v.greedy->tokens),
        v.greedy->drafted
            ? fmt::format("{} of {} tokens accepted", base::with_commas(*v.greedy->accepted),
                          base::with_commas(*v.greedy->drafted))
            : "the server does not count them, so whether it drafts is not known"));
  }
  add_sampling(v, document);
  for (const std::string& reason : runners::reasons_of(v)) document.note(reason);
  return document;
}

base::ExitCode endpoint_exit_code(const EndpointVerification& v) {
  const EndpointVerdict verdict = runners::verdict_of(v);
  if (verdict == EndpointVerdict::kDiffers || verdict == EndpointVerdict::kStateFault)
    return base::ExitCode::kCorrectness;
  if (!v.trouble().empty()) return base::ExitCode::kData;
  return verdict == EndpointVerdict::kUnseen ? base::ExitCode::kInconclusive : base::ExitCode::kOk;
}

void verify_endpoints(Context& context, const EndpointVerifyOptions& options,
                      const EndpointVerifyRun& run) {
  engine::validate(run.sampling);
  if ((run.seeded || run.draws) && run.sampling.greedy())
    throw base::usage_error("--temperature 0 is greedy: there is no distribution to test",
                            "give one above 0, or --parts greedy");
  Instruments instruments(context.global);
  const auto stop = instruments.options().stop;
  runners::EndpointTools tools{instruments.clock(), stop};
  tools.alone = false;
  runners::EndpointVerifyRequest request;
  request.speculative = endpoint_server(options.endpoint, "--endpoint", tools);
  request.plain = endpoint_server(options.against, "--against", tools);
  for (const auto* server : {&request.plain, &request.speculative}) {
    const std::unique_ptr<runners::Endpoint> endpoint = server->connect();
    (void)endpoint->check(endpoint->spec().start_s.value_or(kFirstWait));
  }
  const auto model = run.model.load();
  const runners::Conversation conversation(*model);
  request.prompts = endpoint_prompts(run, conversation);
  request.greedy = run.greedy;
  request.seeded = run.seeded;
  request.law = run.draws;
  request.places = run.places;
  request.identity.clients = client_counts(options.clients, request.prompts.size());
  request.identity.max_new = run.max_new;
  request.identity.restarts = options.restart_command.empty() ? 0 : options.restarts;
  request.identity.stop_ids = conversation.stop_ids();
  request.identity.restart = [&] {
    run_restart_command(options.restart_command);
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(500)); };
    for (const auto* server : {&request.plain, &request.speculative})
      runners::wait_until_ready(*server, options.restart_wait, instruments.clock(), pause, stop);
  };
  const int64_t begin = instruments.clock().now_ns();
  request.identity.progress = [&](const std::string& what, double share) {
    instruments.progress().working(what, share,
                                   static_cast<double>(instruments.clock().now_ns() - begin) / 1e9);
  };
  request.sampling.sampling = run.sampling;
  request.sampling.draws = run.n_draws;
  request.sampling.max_new = run.draw_tokens;
  request.sampling.seed = run.seed;
  const EndpointVerification v = runners::verify_endpoint(request);
  instruments.progress().end();
  const nlohmann::ordered_json json = runners::to_json(v);
  if (!run.out.empty())
    base::write_file_atomic(
        run.out, json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  if (context.global.json)
    print_json_document(json);
  else
    print_line(base::trim(reports::render(
        endpoint_document(v), reports::Format::kText,
        {.width = report_width(), .colour = colour_wanted(context.global.no_color)})));
  context.exit_code = static_cast<int>(endpoint_exit_code(v));
}

}  // namespace evalrun::cli
