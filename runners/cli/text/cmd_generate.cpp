// evalrun generate: the same decode loop as `run`, prompt by prompt, with every token shown. For
// looking at what a method really emits, and at the logits that decided it.
#include <memory>
#include <span>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/decode_loop.h"
#include "methods/registration.h"
#include "runners/cli/cli.h"
#include "runners/cli/jsonl.h"
#include "runners/cli/output.h"
#include "runners/cli/prompt_line.h"
#include "runners/cli/shard_option.h"
#include "runners/measure/forced_logits.h"
#include "runners/measure/runner.h"
#include "runners/plan/method_lists.h"

namespace evalrun::cli {
namespace {

constexpr int kRowsInFlight = 256;   // of a step, and of one teacher-forced forward
constexpr int kCapacityStep = 1024;  // sessions grow in steps, so that few prompts rebuild them

struct GenerateArguments {
  ModelOptions model;
  std::string in;
  std::string methods = "ar";
  int max_new = 128;
  int top_logits = 0;
  engine::SamplingParams sampling;
  uint64_t seed = 0;
  bool ignore_eos = false;
  ShardOption shard;
};

struct Arm {
  std::string label;  // as given on the command line
  methods::MethodSpec spec;
  std::shared_ptr<const engine::Model> model;  // what it decodes
  std::unique_ptr<methods::DecodingMethod> method;
  engine::Session* session;
};

// Sessions and methods sized for the longest prompt so far.
class Generator {
 public:
  explicit Generator(const GenerateArguments& options)
      : options_(options), model_(options.model.load()) {
    for (const std::string& text :
         runners::expanded_method_lists(methods::split_method_list(options.methods)))
      arms_.push_back({text, methods::parse_method(text), nullptr, nullptr, nullptr});
    draft_ = options.model.load_draft();
  }

  void run() {
    JsonlReader reader(options_.in);
    for (int64_t index = 0; const auto object = reader.next(); ++index) {
      if (!options_.shard.takes(index)) continue;
      const std::vector<int32_t> prompt = read_prompt(reader, *object, *model_);
      reserve(reader, static_cast<int>(prompt.size()));
      const auto id = object->find("id");
      for (Arm& arm : arms_) {
        nlohmann::ordered_json line;
        line["id"] = id == object->end() ? nlohmann::json() : *id;
        line["method"] = arm.label;
        generate(arm, prompt, index, line);
        print_json(line);
      }
    }
  }

 private:
  // Makes sessions and methods that hold this prompt; keeps the ones there are when they do.
  void reserve(const JsonlReader& reader, int prompt_tokens) {
    const int context = model_->config().max_context;
    if (prompt_tokens + options_.max_new > context)
      throw base::usage_error(
          fmt::format("{}: the prompt has {} tokens; with -n {} that is more than the model's "
                      "context of {}",
                      reader.place(), prompt_tokens, options_.max_new, context),
          "shorten the prompt or lower -n");
    // Rows in flight stand after the context, so a step needs room for a whole tree.
    const int needed = prompt_tokens + options_.max_new + kRowsInFlight;
    if (capacity_ >= needed) return;
    capacity_ = (needed + kCapacityStep - 1) / kCapacityStep * kCapacityStep;
    for (Arm& arm : arms_) arm.method.reset();
    sessions_.reset();  // before the new ones: two long caches need not fit
    methods::MethodBuildContext build;
    build.target = model_;
    build.session = options_.model.session_options(capacity_);
    build.draft = draft_;
    sessions_ = std::make_unique<runners::ModelSessions>(build.session);
    for (Arm& arm : arms_) {
      if (arm.model == nullptr) arm.model = methods::decoded_model(arm.spec, build);
      arm.session = &sessions_->of(arm.model);
      build.session = arm.session->options();  // defaults resolved
      arm.method = arm.spec.info->build(arm.spec.params, build);
    }
  }

  void generate(Arm& arm, std::span<const int32_t> prompt, int64_t index,
                nlohmann::ordered_json& line) {
    arm.session->reset();
    methods::TurnRequest request;
    request.prompt = prompt;
    request.max_new = options_.max_new;
    if (!options_.ignore_eos) request.stop_ids = model_->tokenizer()->stop_ids();
    request.sampling = options_.sampling;
    // Per input line, the same for every method: lines are independent draws.
    request.seed = base::combine_seeds({options_.seed, static_cast<uint64_t>(index)});
    const results::TurnRecord turn =
        methods::decode_turn(*arm.method, *arm.session, request, clock_);
    line["prompt_tokens"] = std::vector<int32_t>(prompt.begin(), prompt.end());
    line["tokens"] = turn.tokens;
    line["text"] = model_->tokenizer()->decode(turn.tokens, true);
    if (options_.top_logits > 0) line["top"] = top_logits(arm, prompt, turn.tokens);
  }

  // The K largest target logits at the position of each emitted token. They come from a second pass
  // over the emitted tokens as a chain after the prompt, in the same session: the engine's outputs
  // for a row do not depend on what else was in the request (engine/session.h), so these are the
  // same bits as the rows that verified the tokens, whatever tree they stood in. The check below
  // catches an engine or a method that breaks that rule.
  nlohmann::ordered_json top_logits(const Arm& arm, std::span<const int32_t> prompt,
                                    std::span<const int32_t> tokens) {
    arm.session->rewind(static_cast<int>(prompt.size()) - 1);
    const bool greedy_lossless =
        options_.sampling.greedy() && arm.spec.info->lossless != methods::Lossless::kNone;
    nlohmann::ordered_json top = nlohmann::ordered_json::array();
    runners::forced_logits(
        *arm.session, prompt.back(), tokens, [&](size_t i, std::span<const float> logits) {
          if (greedy_lossless && engine::argmax(logits) != tokens[i])
            throw base::Error(
                base::ExitCode::kCorrectness,
                fmt::format("{} emitted token {} as number {}, but the target's "
                            "argmax there is {}",
                            arm.label, tokens[i], i, engine::argmax(logits)),
                "a method or the engine is wrong: please report this with the prompt");
          nlohmann::ordered_json pairs = nlohmann::ordered_json::array();
          for (const engine::TokenLogit& t : engine::top_k(logits, options_.top_logits))
            pairs.push_back({t.token, t.logit});
          top.push_back(std::move(pairs));
        });
    return top;
  }

  const GenerateArguments& options_;
  std::shared_ptr<const engine::Model> model_, draft_;
  std::vector<Arm> arms_;
  int capacity_ = 0;
  std::unique_ptr<runners::ModelSessions> sessions_;
  base::SteadyClock clock_;
};

}  // namespace

void add_generate_command(CLI::App& app, Context&) {
  auto* command = app.add_subcommand("generate", "Decode prompts and show the tokens (JSON Lines)");
  auto options = std::make_shared<GenerateArguments>();
  options->model.add(*command);
  command
      ->add_option("--in", options->in,
                   "Prompts, one object per line: {\"id\", \"prompt\" | \"messages\" | "
                   "\"tokens\"}; - = standard input")
      ->required();
  command->add_option("-n,--max-new", options->max_new, "Tokens to generate per prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--methods", options->methods, "Methods, e.g. ar,pld:k=5,sps:draft=layers:8")
      ->capture_default_str();
  command
      ->add_option("--top-logits", options->top_logits,
                   "Add the K largest target logits at the position of each emitted token")
      ->type_name("K")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--temperature", options->sampling.temperature, "0 = greedy")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--top-k", options->sampling.top_k, "0 = off")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--top-p", options->sampling.top_p, "1 = off")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command
      ->add_option_function<std::string>(
          "--sampler",
          [options](const std::string& text) {
            options->sampling.sampler = engine::parse_sampler(text, "--sampler");
          },
          "inverse, or gumbel: drafters draw by the target's noise")
      ->check(CLI::IsMember({"inverse", "gumbel"}))
      ->default_str("inverse");
  command->add_option("--seed", options->seed, "Seed of the draws")->capture_default_str();
  options->shard.add(*command, "lines", "all outputs together hold every line once");
  command->add_flag("--ignore-eos", options->ignore_eos, "Do not stop at end-of-text tokens");
  command->footer(
      "One line per input and method: {\"id\", \"method\", \"prompt_tokens\", \"tokens\", "
      "\"text\"\n"
      "[, \"top\": [[[token, logit], ...], ...]]}. prompt_tokens and tokens are ids; tokens "
      "includes\n"
      "the stop token, text leaves special tokens out. \"prompt\" is encoded as a document of its\n"
      "own, \"messages\" go through the model's chat template.\n\nExamples:\n"
      "  echo '{\"id\": 1, \"prompt\": \"Once upon a time\"}' | evalrun generate --in - -n 32\n"
      "  evalrun generate --in prompts.jsonl -n 64 --methods ar,pld:k=5 --top-logits 5\n"
      "  evalrun generate --in chat.jsonl -n 128 --temperature 0.8 --top-p 0.95 --seed 7");
  command->callback([options] {
    if (options->sampling.greedy() && options->sampling.sampler != engine::Sampler::kInverse)
      throw base::usage_error(
          fmt::format("--sampler {} with temperature 0: greedy decoding draws nothing",
                      engine::to_string(options->sampling.sampler)),
          "sample with a --temperature above 0, or leave --sampler out");
    Generator(*options).run();
  });
}

}  // namespace evalrun::cli
