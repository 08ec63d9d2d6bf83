// Speculative sampling with a separate draft model (Leviathan et al. 2023, arXiv 2211.17192; Chen
// et al. 2023, arXiv 2302.01318): drafts of fixed length, of a length that follows the acceptance
// (the heuristic of transformers' assisted generation), or ended by the draft model's own doubt.
// The draft: a model given with --draft, a distilled one (draft=trained, scripts/train draft), or
// the target's own first layers with its final norm and head (draft=layers:N).
#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/model/model.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/trained_draft.h"
#include "methods/model_draft/model_drafter.h"

namespace evalrun::methods {
namespace {

constexpr std::string_view kLayers = "layers:";

struct SpsOptions {
  bool adaptive = false;
  double confidence = 0;
  std::string draft = "file";
  double draft_temperature = 0;
  int k = 4, k_max = 20;
  DraftLengthRule::Schedule schedule = DraftLengthRule::Schedule::kConstant;
  DraftRule rule = DraftRule::kAuto;
  AdapterOptions adapter;  // of draft=trained
};

// Number of layers of draft=layers:N, 0 for the other kinds; throws for anything else.
int draft_layers(const std::string& text) {
  if (text == "file" || text == "trained") return 0;
  if (text.starts_with(kLayers)) {
    const auto layers = base::parse_number<int>(std::string_view(text).substr(kLayers.size()));
    if (layers && *layers >= 1) return *layers;
  }
  throw base::usage_error(
      fmt::format("sps: parameter 'draft' must be file, trained or layers:N, found '{}'", text),
      "draft=file takes the model given with --draft PATH, draft=trained a distilled one, "
      "draft=layers:4 the target's own first 4 layers");
}

std::string describe(const engine::Model& model) {
  const engine::Tokenizer* tokenizer = model.tokenizer();
  return fmt::format(
      "{} ({}, {} ids{})", model.config().name, model.path(), model.config().vocab_size,
      tokenizer == nullptr ? ", no tokenizer"
                           : fmt::format(", vocabulary {:.12}", tokenizer->vocabulary_hash()));
}

// Two models may speculate together iff an id means the same text in both. Widths may then differ
// by padding. Models without a tokenizer are compared by width alone.
void check_vocabularies(const engine::Model& target, const engine::Model& draft) {
  const engine::Tokenizer* a = target.tokenizer();
  const engine::Tokenizer* b = draft.tokenizer();
  const bool same = a != nullptr && b != nullptr
                        ? a->vocabulary_hash() == b->vocabulary_hash()
                        : target.config().vocab_size == draft.config().vocab_size;
  if (!same)
    throw base::usage_error(
        fmt::format("sps: the draft model has another vocabulary than the target\n  target: {}\n"
                    "  draft:  {}",
                    describe(target), describe(draft)),
        "take a draft model of the same family with --draft, or draft=layers:N");
}

std::shared_ptr<const engine::Model> draft_model(const std::string& text,
                                                 const MethodBuildContext& context) {
  const int layers = draft_layers(text);
  if (layers == 0) {
    if (context.draft == nullptr)
      throw base::usage_error(
          "sps: draft=file, but no draft model was given",
          "give one with --draft PATH, or use the target's own first layers: sps:draft=layers:4");
    check_vocabularies(*context.target, *context.draft);
    return context.draft;
  }
  if (layers > context.target->config().n_layers)
    throw base::usage_error(
        fmt::format("sps: draft=layers:{}, but {} has {} layers", layers,
                    context.target->config().name, context.target->config().n_layers),
        "take fewer layers");
  return context.target->first_layers(layers);
}

std::unique_ptr<Drafter> sps_drafter(const SpsOptions& options, const MethodBuildContext& context) {
  ModelDrafter::Options drafting;
  const bool trained = options.draft == "trained";
  std::shared_ptr<const engine::Model> draft;
  if (trained) {
    TrainedDraft opened =
        open_trained_draft(*open_adapter("draft", options.adapter, context).reader, *context.target,
                           options.adapter.format);
    draft = std::move(opened.model);
    drafting.ids = std::move(opened.ids);
    drafting.extra_weights = opened.extra_bytes;
    drafting.draft_vocab = draft->config().vocab_size;
    drafting.common_vocab = draft->config().n_logits();
  } else {
    draft = draft_model(options.draft, context);
    drafting.draft_vocab = draft->config().vocab_size;
    drafting.common_vocab =
        std::min(draft->config().vocab_size, context.target->config().vocab_size);
    drafting.extra_weights = draft_layers(options.draft) == 0 ? draft->weight_bytes() : 0;
  }
  engine::SessionOptions session = context.session;
  session.n_sequences = drafting.slots = context.slots;
  if (trained) session.kv_dtype.clear();
  if (draft->config().max_context > 0)
    session.max_tokens = std::min(session.max_tokens, draft->config().max_context);
  drafting.rule = options.rule;
  drafting.length.schedule = options.schedule;
  drafting.length.k = options.k;
  drafting.length.most = std::max(options.k, options.k_max);
  drafting.length.threshold = options.confidence;
  if (options.draft_temperature > 0) drafting.temperature = options.draft_temperature;
  drafting.cost = static_cast<double>(draft->streamed_bytes()) /
                  static_cast<double>(context.target->streamed_bytes());
  return std::make_unique<ModelDrafter>(engine::Session::create(draft, session), drafting);
}

}  // namespace

MethodInfo speculative_sampling_method() {
  MethodInfo info;
  info.name = "sps";
  info.summary = "speculative sampling: a smaller model drafts a chain";
  info.source = "Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318";
  info.needs = "a draft model (--draft PATH, draft=trained or draft=layers:N)";
  info.takes_draft_model = true;
  info.notes =
      "Papers call it speculative decoding, SpS, SpeDe or assisted generation. Self-Draft and "
      "Spec-Bench measure transformers' assisted generation: k=5, schedule=heuristic, with a 68M "
      "draft model. draft=layers:N stands in where no draft model exists, and is no row of any "
      "paper.";
  using Shape = SpsOptions;
  using Schedule = DraftLengthRule::Schedule;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("confidence", &Shape::confidence, {0, 1},
               "drafting stops after a token the draft model gives less probability; 0 = never")
          .add("draft", &Shape::draft,
               "file (needs --draft PATH), trained (a distilled draft, see adapter) or layers:N "
               "(the target's first N layers)")
          .add("draft_temperature", &Shape::draft_temperature, {0, 100},
               "temperature of the draft when sampling; 0 = the target's")
          .add("k", &Shape::k, {1, engine::kMaxRows - 1}, "draft length (gamma), in tokens")
          .add("k_max", &Shape::k_max, {1, engine::kMaxRows - 1}, "longest draft of the heuristic")
          .choice("schedule", &Shape::schedule,
                  {{"constant", Schedule::kConstant},
                   {"transient", Schedule::kTransient},
                   {"heuristic", Schedule::kHeuristic}},
                  "k tokens; or 2 more after a full match and 1 less otherwise, per answer "
                  "(transient) or from answer to answer (heuristic: runs then depend on order)")
          .with(&ParamInfo::steps_at, {"heuristic", StepReproducibility::kCarryState})
          .choice("verify", &Shape::rule, kRules, kRuleText)
          .add(adapter_parameters(), &Shape::adapter);
  info.params = parameters.infos();
  info.check = parameters.bound([](const Shape& options) { draft_layers(options.draft); });
  draft_by(info, parameters, sps_drafter);
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(options.rule, sampling);
  });
  info.files =
      parameters.bound([](const Shape& options,
                          const MethodBuildContext& context) -> std::map<std::string, std::string> {
        if (options.draft != "trained") return {};
        return adapter_file("draft", options.adapter, context);
      });
  return info;
}

}  // namespace evalrun::methods
