// evalrun serve: the engine and one method behind OpenAI's completions API, so that other programs
// can drive them.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "engine/session_options.h"
#include "methods/registration.h"
#include "runners/cli/cli.h"
#include "runners/cli/output.h"
#include "runners/machine/row_cost_cache.h"
#include "runners/measure/interrupt.h"
#include "runners/plan/suite.h"
#include "runners/serve/engine_worker.h"
#include "runners/serve/server.h"

namespace evalrun::cli {
namespace {

constexpr int kLongestDefaultContext = 8192;  // of memory for the cache, where nobody says

struct ServeArguments {
  ModelOptions model;
  std::string method = "ar";
  runners::ServerOptions server;
  std::string key_env;
  std::optional<int> context;
  int queue = 16;
};

std::string key_from(const std::string& variable) {
  if (variable.empty()) return {};
  const char* key = std::getenv(variable.c_str());
  if (key == nullptr || *key == '\0')
    throw base::usage_error(
        fmt::format("--key-env {}: that environment variable is not set, or empty", variable),
        "export it before the server is started");
  return key;
}

// "SmolLM2-135M-Instruct.Q4_1" of a file, "my-model" of a folder.
std::string served_name(const std::string& path) {
  std::filesystem::path place = std::filesystem::path(path).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();
  return (place.extension() == ".gguf" ? place.stem() : place.filename()).string();
}

int served_context(const ServeArguments& o, const engine::Model& model) {
  const int longest = model.config().max_context;
  if (!o.context) return std::min(longest, kLongestDefaultContext);
  if (*o.context > longest)
    throw base::usage_error(
        fmt::format("--context {}: the model was made for {}", *o.context, longest));
  return *o.context;
}

void run_server(ServeArguments& o) {
  if (o.method == runners::kAutoMethod)
    throw base::usage_error(
        "--method auto: it is chosen for data sets, which a server does not know",
        "name the method that evalrun tune method chose");
  const methods::MethodSpec method = methods::parse_method(o.method);
  o.server.key = key_from(o.key_env);
  o.server.log = [](const std::string& line) { spdlog::debug("{}", line); };
  runners::check_server_options(o.server);  // before a model is read for seconds
  const auto model = o.model.load();
  if (model->tokenizer() == nullptr)
    throw base::data_error(model->path(), "tokenizer", "the model has none",
                           "prompts are text: use a file or folder that holds a tokenizer");
  const runners::ServedModel served{served_name(o.model.path()), model, served_context(o, *model)};
  const runners::InterruptGuard guard("\nending after this step\n");
  runners::EngineSetup setup;
  setup.target = model;
  setup.draft = o.model.load_draft();
  setup.method = method;
  setup.session = o.model.session_options(served.context);
  setup.context = served.context;
  setup.queue = o.queue;
  setup.row_cost =
      runners::obtain_row_cost({.model = model,
                                .session = engine::resolve_options(setup.session, model->format()),
                                .cache_file = runners::row_cost_cache_path(),
                                .seconds = runners::kRowCostSeconds})
          .table;
  runners::ServerMetrics metrics;
  runners::EngineWorker engine(std::move(setup), metrics);
  const runners::Server server(o.server, served, engine, metrics);
  print_line("listening on " + server.url());
  engine.run(runners::InterruptGuard::requested);
}

}  // namespace

void add_serve_command(CLI::App& app, Context&) {
  auto* command =
      app.add_subcommand("serve", "Answer OpenAI's completions API with the engine and a method");
  auto options = std::make_shared<ServeArguments>();
  options->model.add(*command);
  command->add_option("--method", options->method, "Method, e.g. pld:adaptive=true")
      ->capture_default_str();
  command->add_option("--host", options->server.host, "Numeric address to listen at")
      ->capture_default_str();
  command->add_option("--port", options->server.port, "Port; 0 = one that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      ->add_option("--key-env", options->key_env,
                   "Environment variable with the key that clients must send; wanted for an "
                   "address that other machines reach")
      ->type_name("VAR");
  command
      ->add_option("--context", options->context,
                   fmt::format("Tokens of a prompt and its answer (default: the model's, at most "
                               "{})",
                               kLongestDefaultContext))
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--queue", options->queue, "Requests that may wait; more get status 429")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->footer(
      "One request at a time, in the order in which they come. The address is printed when the\n"
      "server is ready; Ctrl-C ends it after the current step or prompt. Routes: POST "
      "/v1/completions,\n"
      "POST /v1/chat/completions, POST /tokenize, POST /detokenize, GET /tokenizer_info, GET "
      "/v1/models,\n"
      "GET /health, GET /metrics.\n\nExamples:\n"
      "  evalrun serve --method pld:adaptive=true\n"
      "  evalrun serve -m model.gguf --port 0 --context 2048\n"
      "  KEY=secret evalrun serve --host 0.0.0.0 --key-env KEY");
  command->callback([options] { run_server(*options); });
}

}  // namespace evalrun::cli
