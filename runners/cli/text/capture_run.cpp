#include "runners/cli/text/capture_run.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/tokenizer/tokenizer.h"
#include "runners/cli/jsonl.h"
#include "runners/cli/output.h"
#include "runners/cli/prompt_line.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/train/capture.h"

namespace evalrun::cli {
namespace {

// "auto", "none", "eagle3" or layers such as 2,15,27.
std::vector<int> parse_residual(const std::string& text, int n_layers) {
  if (text == "auto" || text == "none") return {};
  if (text == "eagle3") {
    // Early, middle and late: Li et al. 2025 (arXiv 2503.01840), as their code chooses them.
    const std::vector<int> layers = {2, n_layers / 2, n_layers - 3};
    if (layers[0] >= layers[1] || layers[1] >= layers[2])
      throw base::usage_error(
          fmt::format("--residual eagle3 means layers 2, L/2 and L-3; this model has {} layers",
                      n_layers),
          "name the layers: --residual a,b,c");
    return layers;
  }
  std::vector<int> layers;
  for (const std::string& piece : base::split(text, ',')) {
    int layer = -1;
    const auto [stop, error] = std::from_chars(piece.data(), piece.data() + piece.size(), layer);
    if (error != std::errc() || stop != piece.data() + piece.size() || layer < 0 ||
        layer > n_layers)
      throw base::usage_error(
          fmt::format("--residual {}: '{}' is not a layer from 0 to {}", text, piece, n_layers),
          "auto, none, eagle3, or layers separated by commas; a stream is taken where it enters a "
          "layer");
    layers.push_back(layer);
  }
  return layers;
}

struct Input {
  std::vector<runners::CapturePrompt> prompts;
  int64_t n_lines = 0, too_long = 0;
};

// All prompts before the first forward: a broken line shows now and not after hours, and the
// longest prompt says how large the caches must be.
Input read_input(const std::string& path, const engine::Model& model, int max_new,
                 const CaptureRunOptions& o) {
  Input input;
  JsonlReader reader(path);
  const int context = model.config().max_context;
  while (const auto object = reader.next()) {
    runners::CapturePrompt prompt{reader.line() - 1, read_prompt(reader, *object, model), {}};
    if (o.answers == "dataset") prompt.answer = read_answer(reader, *object, model);
    const auto n = static_cast<int64_t>(prompt.tokens.size());
    const bool fits = n + max_new <= context;
    if (!fits && o.max_prompt == 0)
      throw base::usage_error(
          fmt::format("{}: the prompt has {} tokens; with -n {} that is more than the model's "
                      "context of {}",
                      reader.place(), n, max_new, context),
          "shorten the prompt, lower -n, or skip long prompts with --max-prompt N");
    if (!fits || (o.max_prompt > 0 && n > o.max_prompt))
      ++input.too_long;
    else
      input.prompts.push_back(std::move(prompt));
  }
  input.n_lines = reader.line();
  return input;
}

}  // namespace

void CaptureRunOptions::add(CLI::App& command) {
  const char* group = "Hidden states";
  CLI::Option* save =
      command
          .add_option("--save-hidden", folder,
                      "Decode greedily, many prompts at once, and save tokens and final hidden "
                      "states to this folder; the same command goes on where it ended")
          ->type_name("DIR")
          ->group(group);
  command.add_option("--parallel", parallel, "Prompts decoded at once")
      ->check(CLI::Range(1, engine::kMaxRows))
      ->capture_default_str()
      ->needs(save)
      ->group(group);
  command
      .add_option("--residual", residual,
                  "Residual streams to save too: the layers they enter, such as 2,15,27; eagle3 = "
                  "2, L/2, L-3 of L layers; none; auto = none")
      ->capture_default_str()
      ->needs(save)
      ->group(group);
  command
      .add_option("--answers", answers,
                  "self = the model's own, decoded; dataset = field \"answer\" of every line, cut "
                  "at -n tokens: text to tune the model itself on")
      ->check(CLI::IsMember({"self", "dataset"}))
      ->capture_default_str()
      ->needs(save)
      ->group(group);
  command
      .add_option("--max-prompt", max_prompt,
                  "Skip and count prompts of more tokens, and those the context does not hold")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(save)
      ->group(group);
  command
      .add_option("--limit-tokens", limit_tokens,
                  "End once the folder holds so many tokens, prompts included")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->needs(save)
      ->group(group);
  command.add_option("--seconds", seconds, "End after so many seconds; begun answers are finished")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->needs(save)
      ->group(group);
}

void run_capture(Context& context, const ModelOptions& model_options, const std::string& in,
                 int max_new, const CaptureRunOptions& o) {
  if (in == "-")
    throw base::usage_error("--save-hidden cannot read prompts from standard input",
                            "give a file with --in: a later start must find the same lines");
  const std::shared_ptr<const engine::Model> model = model_options.load();
  runners::CaptureOptions options;
  options.parallel = o.parallel;
  options.max_new = max_new;
  options.residual_layers = parse_residual(o.residual, model->config().n_layers);
  const auto stop_ids = model->tokenizer()->stop_ids();
  options.stop_ids.assign(stop_ids.begin(), stop_ids.end());
  options.limit_tokens = o.limit_tokens;
  options.seconds = o.seconds;
  options.stop = runners::InterruptGuard::requested;

  engine::SessionOptions session = model_options.session_options(1);
  const Input input = read_input(in, *model, max_new, o);
  runners::CaptureSettings settings;
  settings.describe(*model);
  settings.kv_dtype = session.kv_dtype.empty()
                          ? engine::Session::create(model, session)->options().kv_dtype
                          : session.kv_dtype;
  settings.bits = model_options.bits.value_or(kDefaultBits);
  settings.chat_template = model_options.chat_template.value_or("");
  settings.answers = o.answers;
  settings.max_new = max_new;
  settings.residual_layers = options.residual_layers;
  settings.in_hash = base::sha256_file(in);
  settings.n_lines = input.n_lines;
  runners::CaptureFolder folder(o.folder, settings);
  const int64_t before = folder.n_sequences();

  base::SteadyClock clock;
  runners::ConsoleProgress console(stderr, ::isatty(STDERR_FILENO) != 0, clock);
  if (context.global.verbosity >= 0)
    options.progress = [&](const runners::CaptureProgress& p) {
      console.capturing(p.done, p.total, p.generated, p.elapsed_s, p.left_s);
    };
  const runners::InterruptGuard guard;
  const runners::CaptureOutcome outcome =
      runners::capture(model, session, input.prompts, options, folder, clock);
  console.end();
  if (outcome.interrupted) context.exit_code = static_cast<int>(base::ExitCode::kInterrupted);
  if (outcome.sequences == 0 && outcome.left == 0)
    spdlog::info("{} holds every prompt already; nothing was decoded", folder.path());

  nlohmann::ordered_json line;
  line["folder"] = folder.path();
  line["parts"] = folder.n_parts();
  line["sequences"] = folder.n_sequences();
  line["tokens"] = folder.n_tokens();
  line["sequences_before"] = before;
  line["sequences_now"] = outcome.sequences;
  line["prompt_tokens_now"] = outcome.prompt_tokens;
  line["generated_now"] = outcome.generated;
  line["skipped"] = input.too_long;
  line["left"] = outcome.left;
  line["seconds"] = std::round(outcome.seconds * 1e3) / 1e3;
  line["generated_per_second"] =
      outcome.seconds > 0
          ? std::round(static_cast<double>(outcome.generated) / outcome.seconds * 10) / 10
          : 0.0;
  print_json(line);
}

}  // namespace evalrun::cli
