// Speculative sampling with a separate draft model (Leviathan et al. 2023, arXiv 2211.17192; Chen
// et al. 2023, arXiv 2302.01318): drafts of fixed length, of a length that follows the acceptance
// (the heuristic of transformers' assisted generation), or ended by the draft model's own doubt
// (the probability of its token, or the entropy of its distribution).
// The draft: a model given with --draft, a distilled one (draft=trained, scripts/train draft), the
// target's own first layers with its final norm and head (draft=layers:N), or the whole target with
// its weights in fewer bits (draft=self).
//
// draft=self is quantised self-speculation as in QuantSpec (Tiwari et al. 2025, arXiv 2502.10424):
// weights of 4 bits draft for the same weights in more, and the draft's cache may have fewer bits,
// too (draft_kv=int8, or int4 as in the paper). There the draft reads the upper half of the
// target's own cache. Here it has a session of its own, and computes the prompt a second time. What
// differs in the rounding is in engine/cpu/kernels/int4.h. The copy of the weights is one for all
// arms of a run (engine/model/format_copy.h).
//
// levels=pld: the draft model's own drafting is sped up by a look-up in the text, whose tokens it
// verifies (methods/model_draft/draft_lookup.h). The drafts stay the same.
//
// A model given with --draft may have a tokenizer of its own: vocab=intersect and vocab=text (Timor
// et al. 2025, arXiv 2502.05202, sections 3 and 4; methods/model_draft/foreign_vocabulary.h).
#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/devices.h"
#include "engine/model/format_copy.h"
#include "engine/model/model.h"
#include "engine/session_options.h"
#include "engine/tokenizer/tokenizer.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/heads/learned_drafter.h"
#include "methods/heads/trained_draft.h"
#include "methods/model_draft/model_drafter.h"

namespace evalrun::methods {
namespace {

constexpr std::string_view kLayers = "layers:", kSelf = "self";
constexpr int kTokensOfOne = 2;  // room in a foreign draft's cache, for one of the target's

struct SpsOptions {
  bool adaptive = false;
  double confidence = 0, entropy = 0;
  std::string draft = "file";
  engine::WeightFormat draft_dtype = engine::WeightFormat::kQ4;  // of draft=self
  std::string draft_kv;  // "" = as the target's, or as goes with the draft's weights
  double draft_temperature = 0;
  int k = 4, k_max = 20;
  int paths = 2;
  DraftLengthRule::Schedule schedule = DraftLengthRule::Schedule::kConstant;
  DraftRule rule = DraftRule::kAuto;
  VocabularyRule vocab = VocabularyRule::kSame;
  bool lookup_level = false;
  int level_k = 3;
  AdapterOptions adapter;  // of draft=trained
};

// Number of layers of draft=layers:N, 0 for the other kinds; throws for anything else.
int draft_layers(const std::string& text) {
  if (text == "file" || text == "trained" || text == kSelf) return 0;
  if (text.starts_with(kLayers)) {
    const auto layers = base::parse_number<int>(std::string_view(text).substr(kLayers.size()));
    if (layers && *layers >= 1) return *layers;
  }
  throw base::usage_error(
      fmt::format("sps: parameter 'draft' must be self, file, trained or layers:N, found '{}'",
                  text),
      "draft=file takes the model given with --draft PATH, draft=trained a distilled one, "
      "draft=layers:4 the target's own first 4 layers, draft=self the target in fewer bits");
}

void check_options(const SpsOptions& options) {
  draft_layers(options.draft);
  if (options.draft == kSelf) return;
  if (options.draft_dtype != SpsOptions().draft_dtype)
    throw base::usage_error(
        fmt::format("sps: parameter 'draft_dtype' is of draft=self, but draft is {}",
                    options.draft),
        "leave it out, or add draft=self; weights of a model given with --draft PATH are computed "
        "as --draft-dtype says");
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
        "take a draft model of the same family with --draft, or draft=layers:N; or draft with this "
        "one by vocab=intersect (the tokens that both have) or vocab=text (its text, tokenized "
        "again)");
}

// What to choose where draft_dtype has as many bits as the target, or more.
const char* narrower_than(int bits) {
  return bits > 8   ? "take draft_dtype=q4 or draft_dtype=int8"
         : bits > 4 ? "take draft_dtype=q4, or more bits for the target: --dtype bf16"
                    : "nothing has fewer bits than 4: give the target more, --dtype bf16 or int8";
}

// The copy that drafts where draft=self.
std::shared_ptr<const engine::Model> narrow_copy(const SpsOptions& options,
                                                 const MethodBuildContext& context) {
  const engine::Model& target = *context.target;
  const int bits = engine::weight_bits(target);
  if (engine::weight_bits(options.draft_dtype) >= bits)
    throw base::usage_error(
        fmt::format("sps: draft=self drafts in fewer bits than the target has, but draft_dtype={} "
                    "is not narrower than the target's {} ({} bits)",
                    engine::name_of(options.draft_dtype), engine::name_of(target.format()), bits),
        narrower_than(bits));
  // On a GPU a session has one thread, but loading has them all.
  return engine::copy_in_format(
      target, options.draft_dtype,
      engine::is_gpu(context.session.device) ? 0 : context.session.n_threads);
}

// Keys and values of the draft. A GPU has one type for each format of weights, and bytes.
std::string kv_of_draft(const SpsOptions& options, const MethodBuildContext& context) {
  const bool on_gpu = engine::is_gpu(context.session.device);
  if (on_gpu && options.draft_kv == "int4")
    throw base::usage_error(
        fmt::format("sps: draft_kv={} is not for device '{}': a cache there has the type that "
                    "goes with its weights, or int8 or fp8",
                    options.draft_kv, context.session.device),
        "draft_kv=int8, or compute on the CPU: --device cpu");
  if (!options.draft_kv.empty()) return options.draft_kv;
  if (options.draft == "trained") return "";
  if (options.draft != kSelf) return context.session.kv_dtype;
  if (on_gpu) return engine::kv_in_bytes(context.session.kv_dtype) ? context.session.kv_dtype : "";
  return engine::resolve_options(context.session, context.target->format()).kv_dtype;
}

// What a report must say of draft=self: the format of the copy, and whether it holds much the same
// values as the target because the file itself has no more bits.
std::map<std::string, std::string> copy_facts(const SpsOptions& options,
                                              const MethodBuildContext& context) {
  std::map<std::string, std::string> facts = {
      {"draft_dtype", std::string(engine::name_of(options.draft_dtype))}};
  const int stored = context.target->stored_bits();
  if (stored > 0 && stored <= engine::weight_bits(options.draft_dtype))
    facts["flatters"] = fmt::format("target's weights are {}-bit", stored);
  return facts;
}

std::shared_ptr<const engine::Model> draft_model(const SpsOptions& options,
                                                 const MethodBuildContext& context) {
  const int layers = draft_layers(options.draft);
  if (layers == 0) {
    if (context.draft == nullptr)
      throw base::usage_error("sps: draft=file, but no draft model was given",
                              "give one with --draft PATH, or use the target's own first layers: "
                              "sps:draft=layers:4, or "
                              "its weights in 4 bits: sps:draft=self");
    if (options.vocab == VocabularyRule::kSame) check_vocabularies(*context.target, *context.draft);
    return context.draft;
  }
  if (layers > context.target->config().n_layers)
    throw base::usage_error(
        fmt::format("sps: draft=layers:{}, but {} has {} layers", layers,
                    context.target->config().name, context.target->config().n_layers),
        "take fewer layers");
  return context.target->first_layers(layers);
}

void draft_foreign(VocabularyRule rule, std::shared_ptr<const engine::Model> target,
                   std::shared_ptr<const engine::Model> draft, ModelDrafter::Options& drafting) {
  drafting.foreign = std::make_shared<const ForeignVocabulary>(rule, target, draft);
  const VocabularyMap& map = drafting.foreign->map();
  if (rule == VocabularyRule::kText) {
    drafting.draft_vocab = drafting.common_vocab = static_cast<int>(map.to_target.size());
  } else {
    drafting.logits = map.draft_ids;
    drafting.ids = map.target_ids;
    drafting.draft_vocab = static_cast<int>(map.to_draft.size());
    drafting.common_vocab = static_cast<int>(map.draft_ids.size());
  }
}

// Drafts that were tokenized again have no distribution to be rejected by.
DraftRule sps_rule(const SpsOptions& options) {
  return options.vocab == VocabularyRule::kText && options.rule == DraftRule::kAuto
             ? DraftRule::kArgmax
             : options.rule;
}

void check_vocab(const SpsOptions& options) {
  if (options.vocab == VocabularyRule::kSame) return;
  if (options.draft != "file")
    throw base::usage_error(
        fmt::format("sps: vocab=intersect and vocab=text are for a draft model of another "
                    "vocabulary, and draft={} has the target's",
                    options.draft),
        "leave vocab out, or give a draft model with --draft PATH and leave draft out");
  const DraftRule rule = sps_rule(options);
  if (options.vocab == VocabularyRule::kText && rule != DraftRule::kArgmax &&
      rule != DraftRule::kMatch)
    throw base::usage_error(
        "sps: vocab=text verifies by match alone, because its drafts have no probabilities in the "
        "target's tokens",
        "take verify=argmax or verify=match, or vocab=intersect");
}

void check_levels(const SpsOptions& options) {
  if (!options.lookup_level) {
    if (options.level_k != SpsOptions().level_k)
      throw base::usage_error("sps: parameter 'level_k' is of levels=pld, but levels is none",
                              "add levels=pld, or leave level_k out");
    return;
  }
  if (options.rule == DraftRule::kManyPaths)
    throw base::usage_error("sps: levels=pld guesses one chain, and verify=gbv drafts several",
                            "take verify=rejection or verify=block, or leave levels out");
  if (options.vocab != VocabularyRule::kSame)
    throw base::usage_error(
        "sps: levels=pld looks the text up in the target's tokens, and vocab=intersect and "
        "vocab=text draft in another tokenizer's",
        "leave levels or vocab out");
}

// Of the arm: whose tokenizer drafts, and how much of the vocabularies is common.
std::map<std::string, std::string> vocabulary_settings(const SpsOptions& options,
                                                       const MethodBuildContext& context) {
  const ForeignVocabulary foreign(options.vocab, context.target, draft_model(options, context));
  const VocabularyMap& map = foreign.map();
  std::map<std::string, std::string> settings = {
      {"draft_tokenizer", context.draft->tokenizer()->vocabulary_hash()},
      {"common_tokens", to_text(map)}};
  if (map.share() < kFewCommonTokens) settings[kFewTokensSetting] = to_text(map);
  return settings;
}

std::unique_ptr<Drafter> sps_drafter(const SpsOptions& options, const MethodBuildContext& context) {
  ModelDrafter::Options drafting;
  engine::SessionOptions session = context.session;
  session.kv_dtype = kv_of_draft(options, context);
  std::shared_ptr<const engine::Model> draft;
  if (options.draft == "trained") {
    TrainedDraft opened =
        open_trained_draft(*open_adapter("draft", options.adapter, context).reader, *context.target,
                           options.adapter.format);
    draft = std::move(opened.model);
    drafting.ids = std::move(opened.ids);
    drafting.extra_weights = opened.extra_bytes;
    drafting.draft_vocab = draft->config().vocab_size;
    drafting.common_vocab = draft->config().n_logits();
  } else {
    draft = options.draft == kSelf ? narrow_copy(options, context) : draft_model(options, context);
    drafting.draft_vocab = draft->config().vocab_size;
    drafting.common_vocab =
        std::min(draft->config().vocab_size, context.target->config().vocab_size);
    if (options.vocab != VocabularyRule::kSame)
      draft_foreign(options.vocab, context.target, draft, drafting);
    drafting.extra_weights = draft_layers(options.draft) == 0 ? draft->weight_bytes() : 0;
  }
  session.n_sequences = drafting.slots = context.slots;
  // Another tokenizer may need more tokens for the same text, or many more, so that no pool made
  // for the target's would be sure to have room.
  if (drafting.foreign != nullptr) {
    session.max_tokens *= kTokensOfOne;
    session.pool_tokens = 0;
  }
  if (draft->config().max_context > 0)
    session.max_tokens = std::min(session.max_tokens, draft->config().max_context);
  drafting.rule = sps_rule(options);
  if (options.rule == DraftRule::kManyPaths) drafting.paths = options.paths;
  if (options.lookup_level) drafting.guesses = options.level_k;
  drafting.length.schedule = options.schedule;
  drafting.length.k = options.k;
  drafting.length.most = std::max(options.k, options.k_max);
  drafting.length.threshold = options.confidence;
  drafting.length.entropy = options.entropy;
  if (options.draft_temperature > 0) drafting.temperature = options.draft_temperature;
  drafting.cost = static_cast<double>(draft->streamed_bytes()) /
                  static_cast<double>(context.target->streamed_bytes());
  return std::make_unique<ModelDrafter>(engine::Session::create(draft, session), drafting);
}

Parameters<SpsOptions> sps_parameters() {
  using Shape = SpsOptions;
  using Schedule = DraftLengthRule::Schedule;
  return adaptive_parameters<Shape>()
      .add("confidence", &Shape::confidence, {0, 1},
           "drafting stops after a token the draft model gives less probability; 0 = never")
      .add("draft", &Shape::draft,
           "file (needs --draft PATH), trained (a distilled draft, see adapter), layers:N "
           "(the target's first N layers) or self (the target in fewer bits)")
      .choice("draft_dtype", &Shape::draft_dtype,
              {{"q4", engine::WeightFormat::kQ4}, {"int8", engine::WeightFormat::kInt8}},
              "weights of draft=self; fewer bits than the target's")
      .choice(
          "draft_kv", &Shape::draft_kv,
          {{"same", ""}, {"int8", "int8"}, {"fp8", "fp8"}, {"int4", "int4"}},
          "keys and values of the draft: as the target's (of draft=trained as its weights'), or "
          "8 bits (fp8: floating point) or 4 with a scale per position and head (4 bits: CPU)")
      .add("draft_temperature", &Shape::draft_temperature, {0, 100},
           "temperature of the draft when sampling; 0 = the target's")
      .add("entropy", &Shape::entropy, {0, 100},
           "drafting stops after a token whose draft distribution has sqrt(0.15 entropy in "
           "nats) "
           "above this (SVIP's released program: 0.3); 0 = never")
      .add("k", &Shape::k, {1, engine::kMaxRows - 1}, "draft length (gamma), in tokens")
      .add("k_max", &Shape::k_max, {1, engine::kMaxRows - 1}, "longest draft of the heuristic")
      .add("level_k", &Shape::level_k, {1, DraftModel::kMostRows - 1},
           "most tokens found in the text that one forward of the draft model checks (levels=pld)")
      .choice("levels", &Shape::lookup_level, {{"none", false}, {"pld", true}},
              "who drafts for the draft model: pld, a look-up in the text, so that it drafts the "
              "same tokens in fewer forwards")
      .add("paths", &Shape::paths, {1, kMostPaths}, kPathsText)
      .choice("schedule", &Shape::schedule,
              {{"constant", Schedule::kConstant},
               {"transient", Schedule::kTransient},
               {"heuristic", Schedule::kHeuristic}},
              "k tokens; or 2 more after a full match and 1 less otherwise, per answer "
              "(transient) or from answer to answer (heuristic: runs then depend on order)")
      .with(&ParamInfo::steps_at, {"heuristic", StepReproducibility::kCarryState})
      .choice("verify", &Shape::rule, kRules, kRuleText)
      .choice("vocab", &Shape::vocab,
              {{"same", VocabularyRule::kSame},
               {"intersect", VocabularyRule::kIntersect},
               {"text", VocabularyRule::kText}},
              "a draft model with another tokenizer: refused (same); drafts from the tokens "
              "that both have (intersect); or drafts in its own tokens, whose text the "
              "target's tokenizer cuts, verified by match (text)")
      .add(adapter_parameters(), &Shape::adapter);
}

}  // namespace

MethodInfo speculative_sampling_method() {
  MethodInfo info;
  info.name = "sps";
  info.summary = "speculative sampling: a smaller model drafts a chain";
  info.source =
      "Leviathan et al. 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318; foreign "
      "vocabularies: Timor et al. 2025, arXiv 2502.05202";
  info.needs = "a draft model (--draft PATH, draft=trained, draft=self or draft=layers:N)";
  info.takes_draft_model = true;
  info.notes =
      "Papers call it speculative decoding, SpS, SpeDe or assisted generation. Self-Draft and "
      "Spec-Bench measure transformers' assisted generation: k=5, schedule=heuristic, with a 68M "
      "draft model. draft=layers:N stands in where no draft model exists, and is no row of any "
      "paper. draft=self is quantised self-speculation (QuantSpec, arXiv 2502.10424), with a cache "
      "of its own: the target's weights in draft_dtype draft for the same weights in more bits. "
      "Where the model's file has no more bits than that, both hold much the same values; reports "
      "mark such rows. SVIP (Zhang et al. 2024, arXiv 2411.18462): entropy=0.3,k=40. "
      "vocab=intersect is TLI of Timor et al. and vocab=text their SLEM, which drafts greedily "
      "here unless verify=match.";
  using Shape = SpsOptions;
  const auto parameters = sps_parameters();
  info.params = parameters.infos();
  info.check = parameters.bound([](const Shape& options) {
    check_options(options);
    check_vocab(options);
    check_levels(options);
  });
  info.takes_draft_with =
      parameters.bound([](const Shape& options) { return options.draft == "file"; });
  draft_by(info, parameters, sps_drafter);
  info.sampled = parameters.bound([](const Shape& options, const engine::SamplingParams& sampling) {
    return sampled_answers(sps_rule(options), sampling);
  });
  info.files =
      parameters.bound([](const Shape& options,
                          const MethodBuildContext& context) -> std::map<std::string, std::string> {
        if (options.vocab != VocabularyRule::kSame) return vocabulary_settings(options, context);
        if (options.draft == kSelf) return copy_facts(options, context);
        if (options.draft != "trained") return {};
        return adapter_file("draft", options.adapter, context);
      });
  return info;
}

}  // namespace evalrun::methods
