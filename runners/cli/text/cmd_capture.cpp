// evalrun capture: answers to many prompts, decoded at once, and the hidden states of all their
// tokens: what drafters learn from (runners/train/capture.h).
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "engine/tokenizer/chat/chat_template.h"
#include "engine/tokenizer/tokenizer.h"
#include "runners/cli/cli.h"
#include "runners/cli/jsonl.h"
#include "runners/cli/output.h"
#include "runners/cli/prompt_line.h"
#include "runners/cli/shard_option.h"
#include "runners/cli/text/dialogue.h"
#include "runners/cli/units.h"
#include "runners/measure/interrupt.h"
#include "runners/measure/progress.h"
#include "runners/train/capture.h"

namespace evalrun::cli {
namespace {

struct CaptureArguments {
  ModelOptions model;
  std::string in, out, residual = "auto", answers = "self";
  int max_new = 128, jobs = 32;
  int max_prompt = 0;  // 0 = not given: a prompt that does not fit is an error
  double max_time_s = 0;
  ShardOption shard;
};

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
  bool has_dialogues = false;
  std::shared_ptr<int64_t> turns_left_out = std::make_shared<int64_t>(0);
};

class InputReader {
 public:
  InputReader(const CaptureArguments& o, std::shared_ptr<const engine::Model> model)
      : o_(o), model_(std::move(model)), given_(o.answers == "dataset"), reader_(o.in) {
    // Most tokens of a prompt.
    room_ = model_->config().max_context - o.max_new;
    if (o.max_prompt > 0) room_ = std::min(room_, o.max_prompt);
  }

  // All prompts before the first forward: a broken line shows now and not after hours, and the
  // longest prompt says how large the caches must be.
  Input read() {
    while (const auto object = reader_.next()) {
      const bool is_chat = object->contains("messages") && !object->contains("prompt") &&
                           !object->contains("tokens");
      if (is_chat || (given_ && !object->contains("messages")))
        add_dialogue(std::make_shared<Dialogue>(reader_, *object, model_, given_));
      else
        add({reader_.line() - 1, read_prompt(reader_, *object, *model_), {}});
    }
    input_.n_lines = reader_.line();
    return std::move(input_);
  }

 private:
  bool fits(size_t tokens) const {
    return static_cast<int64_t>(tokens) <= static_cast<int64_t>(room_);
  }

  void add(runners::CapturePrompt prompt) {
    if (fits(prompt.tokens.size())) return input_.prompts.push_back(std::move(prompt));
    if (o_.max_prompt == 0)
      throw base::usage_error(
          fmt::format("{}: the prompt has {} tokens; with -n {} that is more than the model's "
                      "context of {}",
                      reader_.place(), prompt.tokens.size(), o_.max_new,
                      model_->config().max_context),
          "shorten the prompt, lower -n, or skip long prompts with --max-prompt N");
    ++input_.too_long;
  }

  void add_dialogue(const std::shared_ptr<const Dialogue>& dialogue) {
    runners::CaptureTurn first = dialogue->turn({});
    runners::CapturePrompt prompt{reader_.line() - 1, std::move(first.prompt),
                                  std::move(first.answer)};
    input_.has_dialogues = input_.has_dialogues || dialogue->n_turns() > 1;
    if (dialogue->n_turns() > 1 && fits(prompt.tokens.size())) {
      prompt.most_tokens = most_tokens(*dialogue);
      prompt.next = [dialogue, most = prompt.most_tokens, left_out = input_.turns_left_out](
                        std::span<const std::vector<int32_t>> answers)
          -> std::optional<runners::CaptureTurn> {
        if (answers.size() == dialogue->n_turns()) return std::nullopt;
        runners::CaptureTurn turn = dialogue->turn(answers);
        if (turn.prompt.size() <= most) return turn;
        *left_out += static_cast<int64_t>(dialogue->n_turns() - answers.size());
        return std::nullopt;
      };
    }
    add(std::move(prompt));
  }

  // What the caches must hold of a dialogue's prompts; a turn beyond that is left out. Answers of a
  // data set are looked at now, so that a broken one shows now.
  size_t most_tokens(const Dialogue& dialogue) const {
    std::vector<std::vector<int32_t>> answers;
    size_t most = 0;
    for (size_t t = 0; t < dialogue.n_turns(); ++t) {
      const runners::CaptureTurn turn = dialogue.turn(answers);
      // The model's own answers are not known. They have up to -n tokens each, and written again as
      // text seldom more.
      const size_t unknown = given_ ? 0 : t * static_cast<size_t>(o_.max_new + 1);
      if (fits(turn.prompt.size() + unknown))
        most = turn.prompt.size() + unknown;
      else
        most = given_ ? most : static_cast<size_t>(room_);
      answers.push_back(turn.answer);
    }
    return most;
  }

  const CaptureArguments& o_;
  std::shared_ptr<const engine::Model> model_;
  bool given_;
  JsonlReader reader_;
  int room_ = 0;
  Input input_;
};

void run_capture(const CaptureArguments& o, Context& context) {
  if (o.in == "-")
    throw base::usage_error("--in: prompts to capture cannot come from standard input",
                            "give a file: a later start must find the same lines");
  const std::shared_ptr<const engine::Model> model = o.model.load();
  runners::CaptureOptions options;
  options.parallel = o.jobs;
  options.max_new = o.max_new;
  options.residual_layers = parse_residual(o.residual, model->config().n_layers);
  const auto stop_ids = model->tokenizer()->stop_ids();
  options.stop_ids.assign(stop_ids.begin(), stop_ids.end());
  options.seconds = o.max_time_s;
  options.stop = runners::InterruptGuard::requested;

  engine::SessionOptions session = o.model.session_options(1);
  Input input = InputReader(o, model).read();
  std::erase_if(input.prompts,
                [&](const runners::CapturePrompt& p) { return !o.shard.takes(p.line); });
  runners::CaptureSettings settings;
  settings.describe(*model);
  settings.kv_dtype = session.kv_dtype.empty()
                          ? engine::Session::create(model, session)->options().kv_dtype
                          : session.kv_dtype;
  settings.bits = o.model.bits.value_or(kDefaultBits);
  // A file is known by what it holds: another text must not go on with this one's captures.
  if (o.model.chat_template && model->chat_template() != nullptr)
    settings.chat_template = model->chat_template()->name();
  settings.answers = o.answers;
  settings.dialogues = input.has_dialogues;
  settings.max_new = o.max_new;
  settings.residual_layers = options.residual_layers;
  settings.in_hash = base::sha256_file(o.in);
  settings.n_lines = input.n_lines;
  runners::CaptureFolder folder(o.out, settings);
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
  line["answers_now"] = outcome.answers;
  line["prompt_tokens_now"] = outcome.prompt_tokens;
  line["generated_now"] = outcome.generated;
  line["skipped"] = input.too_long;
  line["turns_left_out"] = *input.turns_left_out;
  line["left"] = outcome.left;
  line["seconds"] = std::round(outcome.seconds * 1e3) / 1e3;
  line["generated_per_second"] =
      outcome.seconds > 0
          ? std::round(static_cast<double>(outcome.generated) / outcome.seconds * 10) / 10
          : 0.0;
  print_json(line);
}

}  // namespace

void add_capture_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("capture", "Answers with hidden states, to train drafters on");
  auto options = std::make_shared<CaptureArguments>();
  CaptureArguments& o = *options;
  o.model.add_without_draft(*command);
  command
      ->add_option("--in", o.in,
                   "Prompts, one object per line: {\"prompt\" | \"messages\" | \"tokens\"}; every "
                   "turn of the user in messages is answered")
      ->required();
  command
      ->add_option("--out", o.out,
                   "Folder for tokens and final hidden states; the same command goes on where it "
                   "ended")
      ->type_name("DIR")
      ->required();
  command->add_option("-n,--max-new", o.max_new, "Tokens to generate per prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("-j,--jobs", o.jobs, "Prompts decoded at once")
      ->check(CLI::Range(1, engine::kMaxRows))
      ->capture_default_str();
  command
      ->add_option("--residual", o.residual,
                   "Residual streams to save too: the layers they enter, such as 2,15,27; eagle3 = "
                   "2, L/2, L-3 of L layers; none; auto = none")
      ->capture_default_str();
  command
      ->add_option("--answers", o.answers,
                   "self = the model's own, decoded greedily, each after its own earlier ones; "
                   "dataset = what the assistant says in messages, or field \"answer\", cut at -n "
                   "tokens: text to tune the model itself on")
      ->check(CLI::IsMember({"self", "dataset"}))
      ->capture_default_str();
  command
      ->add_option("--max-prompt", o.max_prompt,
                   "Skip and count prompts of more tokens, and those the context does not hold; a "
                   "dialogue ends before such a turn")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-time", o.max_time_s,
                   "Begin no further answer after this long: 90s, 10m, 2h")
      ->transform(as_seconds());
  o.shard.add(*command, "lines", "training takes the folders of all of them");
  command->footer(
      "DIR gets capture.json and part-NNNNN.safetensors with tokens, start, prompt, line, ended,\n"
      "hidden, residual and the answers of dialogues, and standard output one line with totals.\n"
      "Ctrl-C finishes the prompts that were begun; the same command goes on after them.\n\n"
      "Examples:\n"
      "  evalrun capture --in prompts.jsonl -n 256 --out train\n"
      "  evalrun capture --in prompts.jsonl -n 256 --out train --max-prompt 512 --residual eagle3");
  command->callback([options, &context] { run_capture(*options, context); });
}

}  // namespace evalrun::cli
