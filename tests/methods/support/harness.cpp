#include "tests/methods/support/harness.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "engine/base/error.h"
#include "methods/corpus/ngram_corpus.h"
#include "methods/corpus/suffix_corpus.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/foreign_draft.h"

namespace evalrun::tests {
namespace {

// A corpus of random tokens for models of `vocab` ids, made when it is first asked for.
const std::string& random_corpus(const std::string& kind, int vocab) {
  static const TempFolder folder;
  static std::map<std::string, std::string> made;
  const std::string name = std::to_string(vocab) + "." + kind;
  std::string& path = made[name];
  if (!path.empty()) return path;
  base::Rng rng(static_cast<uint64_t>(vocab));
  Documents documents;
  for (int i = 0; i < 20; ++i) documents.push_back(random_tokens(rng, 200, vocab));
  path = folder.file(name);
  const methods::CorpusText text = corpus_text(documents, {"", vocab});
  if (kind == "suffixes")
    methods::build_suffix_corpus(path, text);
  else
    methods::build_ngram_corpus(path, text, {.max_key = 2, .gram = 3, .top = 5, .min_count = 1});
  return path;
}

// "@suffixes" and "@ngrams" in a method's parameters stand for a random corpus, "@medusa" and the
// like for a random adapter.
methods::MethodSpec parse_with_files(std::string spec, const engine::Model& model) {
  const int vocab = model.config().vocab_size;
  for (const std::string kind :
       {"medusa", "eagle3", "eagle_stored", "eagle", "falcon_recurrent", "falcon3", "falcon",
        "draft", "bita_heads", "bita", "gated_lora", "pass", "space_tuned", "space"})
    if (const size_t at = spec.find("@" + kind); at != spec.npos)
      spec.replace(at, kind.size() + 1, random_adapter_path(kind, model));
  for (const std::string kind : {"suffixes", "ngrams"})
    if (const size_t at = spec.find("@" + kind); at != spec.npos)
      spec.replace(at, kind.size() + 1, random_corpus(kind, vocab));
  return methods::parse_method(spec);
}

// What a method needs before it can be built, or to draft from short texts: its first arm.
std::string first_arm(const std::string& name) {
  static const std::map<std::string, std::string> kFiles = {
      {"rest", "datastore=@suffixes"},
      {"medusa", "adapter=@medusa"},
      {"eagle", "adapter=@eagle"},
      {"eagle2", "adapter=@eagle"},
      {"eagle3", "adapter=@eagle3"},
      {"falcon", "adapter=@falcon"},
      {"bita", "adapter=@bita"},
      {"gated_lora", "adapter=@gated_lora"},
      {"pass", "adapter=@pass"},
      {"space", "adapter=@space"},
      {"suffix", "nodes=12"},
      {"sam", "k=10"},
      {"ngram_mod", "entries=4096,lot=1,n_match=1,n_max=12,n_min=0"},
      {"hybrid", "drafts=pld(match=recent)+eagle2(adapter=@eagle)"}};
  const auto files = kFiles.find(name);
  return files == kFiles.end() ? name : name + ":" + files->second;
}

// Numbers, texts and combinations that no list of choices holds: shapes of drafts, trees, windows,
// the ends of ranges. Choices and switches are added to these, see all_specs().
const std::vector<std::string> kShapes = {
    "pld:k=1,ngram=1",
    "pld:k=64,ngram=5,min_ngram=2",
    "pld:k=5,match=frequent,candidates=3",
    "pld:adaptive=true,match=frequent,candidates=3",
    "pld:k=4,match=recent,candidates=4",
    "pia:branch_length=3,decoding_length=9,query=3",
    "pia:adaptive=true,query=4",
    "pia:capacity=2,persist=true",
    "pia:corpus=@suffixes,branch_length=5,decoding_length=12",
    "pia:capacity=3,corpus=@suffixes,persist=true",
    "suffix:alpha=4,depth=24,nodes=12",
    "suffix:alpha=1.5,capacity=256,depth=32,min_prob=0.2,nodes=12,state=shared",
    "suffix:adaptive=true,alpha=2,nodes=12",
    "sam:k=6,min_match=2",
    "sam:bias=0,corpus=@suffixes,k=9",
    "sam:adaptive=true,bias=1,corpus=@suffixes,k=8",
    "sam:bias=0,capacity=256,corpus=@suffixes,state=warm",
    "ngram_mod:entries=4096,lot=2,n_match=1,n_max=5,n_min=1",
    "ngram_mod:adaptive=true,entries=1024,lot=1,n_match=1,n_max=12,n_min=0",
    "ngram_mod:entries=256,lot=1,n_match=1,n_max=9,n_min=0,state=shared",
    "recycling:k=3,tree=0+1+00+02+000",
    "recycling:adaptive=true",
    "recycling:k=2,tree=auto",
    "jacobi:n=1",
    "jacobi:n=9,block=fixed,init=vocabulary",
    "logitspec:k=2,length=1,ngram=1",
    "logitspec:adaptive=true,k=5,min_ngram=2",
    "stand:k=2,levels=3,ngram=2,nodes=7",
    "stand:nodes=40,tree=auto",
    "sps:k=1",
    "sps:draft=layers:1",
    "sps:draft=layers:2,k=6",
    "sps:k=3,schedule=transient,k_max=8,draft_temperature=0.7",
    "sps:k=6,confidence=0.3",
    "sps:adaptive=true,draft=layers:1,k=6",
    "sps:draft=trained,adapter=@draft,k=7,confidence=0.1",
    "sps:draft=trained,adapter=@draft,k=9",
    "sps:draft=layers:1,entropy=0.6,k=7",
    "sps:draft=trained,adapter=@draft,entropy=0.65,k=5",
    "self_spec:adaptive=true,attention=1,mlp=none,k=5",
    "self_spec:attention=1,mlp=none,k=5",
    "self_spec:attention=1,mlp=none,k=4,threshold=0.2,verify=gumbel",
    "sps:draft=layers:1,k=3,verify=match",
    "sps:k=3,vocab=intersect",
    "sps:k=4,paths=3,verify=gbv,vocab=intersect",
    "sps:k=6,verify=match,vocab=text",
    "sps:k=5,verify=argmax,vocab=text",
    "sps:draft=layers:1,k=4,paths=3,verify=gbv",
    "sps:confidence=0.2,k=6,verify=gbv",
    "self_spec:attention=1,mlp=none,k=3,threshold=0.1,verify=gbv",
    "sps:draft=trained,adapter=@draft,k=3,verify=gumbel",
    "sps:draft=self,draft_dtype=int8,k=5",
    "sps:draft=self,draft_kv=int8,k=3",
    "sps:draft=self,draft_kv=fp8,k=4",
    "sps:draft=self,draft_kv=int4,k=4",
    "sps:draft=layers:1,draft_kv=int4,k=5",
    "sps:draft=layers:1,k=6,level_k=5,levels=pld",
    "sps:confidence=0.3,draft=self,k=6,levels=pld,verify=block",
    "self_spec:attention=none,mlp=0-1",
    "lookahead:window=3,ngram=3,guesses=2",
    "lookahead:window=5,ngram=2,guesses=4,full_match_bonus=true,init=vocabulary",
    "lookahead:window=4,ngram=4,guesses=9,pool_from_prompt=true,trie=false",
    "lookahead:adaptive=true,pool_from_prompt=true",
    "self_draft:adaptive=true",
    "self_draft:geometry=paper,branches=3,length=5",
    "self_draft:harvest_text=false",
    "self_draft:branches=0,gram=6,full_match_bonus=false,trie=false",
    "self_draft:branches=2,length=3,gram=2,capacity=3",
    "self_draft:corpus=@ngrams",
    "self_draft:context=false,corpus=@ngrams,corpus_candidates=9",
    "self_draft:corpus=@ngrams,adaptive=true,branches=0,trie=false",
    "rest:datastore=@suffixes,min_span=1,nodes=3,length=2",
    "rest:datastore=@suffixes,nodes=1023,length=64",
    "rest:datastore=@suffixes,adaptive=true",
    "rest:datastore=@suffixes,min_span=1,max_span=3,occurrences=1",
    "medusa:adapter=@medusa,tree=chain:3",
    "medusa:adapter=@medusa,tree=0+00+1+000+01+2+0000",
    "medusa:adapter=@medusa,tree=delayed:2:1:2",
    "eagle:adapter=@eagle,tree=chain:4",
    "eagle:adapter=@eagle,tree=0+00+1+000+01+2+0000+02",
    "eagle:adapter=@eagle,tree=delayed:3:2:2",
    "eagle:adapter=@eagle_stored,tree=sequoia:6",
    "eagle2:adapter=@eagle,k=3,levels=8,total=20",
    "eagle2:adapter=@eagle,delta=0.1,k=6,levels=8,total=6",
    "eagle3:adapter=@eagle3,k=4,levels=5,total=12",
    "falcon:adapter=@falcon,tree=falcon_llama",
    "falcon:adapter=@falcon,tree=chain:5",
    "falcon:adapter=@falcon3,tree=0+00+1+000+0000+01+00000+10+1.0.0+000000",
    "falcon:adapter=@falcon,tree=dynamic,levels=7,total=20",
    "falcon:adapter=@falcon3,tree=dynamic,choices=4,levels=8,total=12",
    "falcon:adapter=@falcon_recurrent,tree=dynamic,total=0",
    "falcon:adapter=@falcon_recurrent",
    "falcon:adapter=@falcon_recurrent,tree=chain:6",
    "hybrid:drafts=pia+lookahead(window=3;ngram=3;guesses=2)",
    "hybrid:drafts=medusa(adapter=@medusa;draft=drawn)+pld(match=frequent;candidates=3;k=4)",
    "hybrid:drafts=pld+eagle(adapter=@eagle)+self_draft,mode=first",
    "hybrid:drafts=recycling(k=3;tree=0+1+00)+eagle2(adapter=@eagle),mode=bandit",
    "bita:adapter=@bita,tree=full:2",
    "bita:adapter=@bita_heads,tree=efficient:3",
    "bita:adapter=@bita,tree=straightforward",
    "bita:adapter=@bita,tree=chain:2,groups=1",
    "gated_lora:adapter=@gated_lora,tree=0+00+1+01,groups=2",
    "pass:adapter=@pass,calls=two,look_ahead=3",
    "pass:adapter=@pass,calls=one,look_ahead=2",
    "pass:adapter=@pass,calls=two,draft=best,look_ahead=1",
    "space:adapter=@space,k=1,draft=best",
    "space:adapter=@space,k=3,accept_scale=0.6",
    "space:adapter=@space,tree=upper-triangle:4,masks=3,draft=best"};

using Value = std::pair<std::string, std::string>;  // parameter, value

// What a value goes with: weights of that kind, or the draft that the parameter is about.
bool fits(const std::string& spec, const Value& value) {
  const auto has = [&](const char* text) { return spec.find(text) != spec.npos; };
  if (value == Value{"lstm", "none"}) return has("@falcon") && !has("@falcon3") && !has("@falcon_");
  if (value == Value{"lstm", "per_token"}) return has("@falcon3");
  if (value == Value{"lstm", "recurrent"}) return has("@falcon_recurrent");
  if (spec.starts_with("sps") && (value.first == "dtype" || value.first == "any_target"))
    return has("draft=trained");
  if (spec.starts_with("sps") && value.first == "draft_dtype")
    return has("draft=self") || value.second != "int8";
  return true;
}

std::string with(const std::string& spec, const Value& value) {
  return fmt::format("{}{}{}={}", spec, spec.find(':') == spec.npos ? ':' : ',', value.first,
                     value.second);
}
bool says(const std::string& spec, const std::string& parameter) {
  return spec.find(":" + parameter + "=") != spec.npos ||
         spec.find("," + parameter + "=") != spec.npos;
}
bool allowed(const std::string& spec) {
  try {
    methods::parse_method(spec);
  } catch (const base::Error&) {
    return false;
  }
  return true;
}
std::string value_of(const std::string& spec, const std::string& parameter) {
  return methods::parse_method(spec).params.text(parameter);
}

// Each choice and each state of a switch, in the order of the parameters.
std::vector<Value> values_of(const methods::MethodInfo& info) {
  std::vector<Value> values;
  for (const methods::ParamInfo& p : info.params)
    if (p.type == methods::ParamInfo::Type::kBool)
      values.insert(values.end(), {{p.name, "false"}, {p.name, "true"}});
    else
      for (const std::string& choice : p.choices) values.emplace_back(p.name, choice);
  return values;
}

// Steps that depend on earlier answers, or output that is no longer lossless: some properties allow
// neither, so that what shares an arm with such a value would be tested less.
bool stands_alone(const methods::MethodInfo& info, const std::string& spec) {
  const methods::MethodSpec parsed = methods::parse_method(spec);
  return parsed.steps() == methods::StepReproducibility::kCarryState ||
         parsed.lossless() != info.lossless;
}

// Arms of one method: its first, its shapes, and every value of the registry that none of these
// has: added to a shape (the one that got the fewest), or else in an arm of its own.
std::vector<std::string> specs_of(const methods::MethodInfo& info) {
  std::vector<std::string> specs = {first_arm(info.name)};
  for (const std::string& shape : kShapes)
    if (shape.starts_with(info.name + ":")) specs.push_back(shape);
  const std::vector<std::string> plain = specs;
  constexpr int kNoMore = std::numeric_limits<int>::max();
  std::vector<int> added(specs.size(), 0);
  added[0] = kNoMore;
  for (const Value& value : values_of(info)) {
    // The first arm keeps the defaults; others get more values, so that theirs must be said.
    bool there = false;
    for (size_t i = 0; i < specs.size(); ++i)
      there |= (i == 0 || says(specs[i], value.first)) && fits(specs[i], value) &&
               value_of(specs[i], value.first) == value.second;
    if (there) continue;
    const auto can = [&](const std::string& spec) {
      return !says(spec, value.first) && fits(spec, value) && allowed(with(spec, value));
    };
    const auto able = std::find_if(plain.begin(), plain.end(), can);
    if (able == plain.end()) continue;  // values_without_an_arm() tells
    const std::string own = with(*able, value);
    size_t best = 0;
    for (size_t i = 1; i < specs.size(); ++i)
      if (added[i] < added[best] && can(specs[i])) best = i;
    if (best == 0 || stands_alone(info, own)) {
      specs.push_back(own);
      added.push_back(stands_alone(info, own) ? kNoMore : 1);
    } else {
      specs[best] = with(specs[best], value);
      ++added[best];
    }
  }
  return specs;
}

}  // namespace

std::shared_ptr<const engine::Model> small_model(uint64_t seed, int vocab,
                                                 engine::WeightFormat format) {
  engine::ModelConfig config;
  config.architecture = "llama";
  config.name = "small random model";
  config.n_layers = 2;
  config.d_model = 32;
  config.n_heads = 4;
  config.n_kv_heads = 2;
  config.head_dim = 8;
  config.d_ffn = 48;
  config.vocab_size = vocab;
  config.max_context = 4096;
  return engine::make_random_model(config, seed, format);
}

engine::SessionOptions session_options(int max_tokens) {
  engine::SessionOptions options;
  options.max_tokens = max_tokens;
  options.n_threads = 1;  // the models are too small to share out
  return options;
}

std::unique_ptr<engine::Session> make_session(const std::shared_ptr<const engine::Model>& model,
                                              int max_tokens, int sequences) {
  engine::SessionOptions options = session_options(max_tokens);
  options.n_sequences = sequences;
  return engine::Session::create(model, options);
}

Arm arm_of(const std::string& spec) {
  const methods::MethodSpec parsed = methods::parse_method(spec);
  return {spec,
          [spec](const methods::MethodBuildContext& context) {
            const methods::MethodSpec method = parse_with_files(spec, *context.target);
            return method.info->build(
                method.params, wants_foreign_draft(method) ? with_foreign_draft(context) : context);
          },
          parsed.steps() == methods::StepReproducibility::kCarryState,
          parsed.lossless() != methods::Lossless::kBoth};
}

std::vector<std::string> all_specs() {
  std::vector<std::string> specs;
  for (const auto& [name, info] : methods::method_registry().entries())
    if (info.lossless != methods::Lossless::kNone && name != "ar_tuned" && !info.needs_answer)
      for (std::string& spec : specs_of(info)) specs.push_back(std::move(spec));
  return specs;
}

std::vector<std::string> values_without_an_arm() {
  const std::vector<std::string> specs = all_specs();
  std::vector<std::string> missing;
  for (const auto& [name, info] : methods::method_registry().entries()) {
    if (info.needs_answer) continue;
    for (const Value& value : values_of(info)) {
      const bool there = std::any_of(specs.begin(), specs.end(), [&](const std::string& spec) {
        return spec.substr(0, spec.find(':')) == name && fits(spec, value) &&
               value_of(spec, value.first) == value.second;
      });
      if (!there) missing.push_back(fmt::format("{}:{}={}", name, value.first, value.second));
    }
  }
  return missing;
}

std::vector<Arm> all_arms() {
  std::vector<Arm> arms;
  for (const std::string& spec : all_specs()) arms.push_back(arm_of(spec));
  for (int nodes : {5, 40}) {
    arms.push_back({"random trees of " + std::to_string(nodes),
                    [nodes](const methods::MethodBuildContext& context) {
                      return methods::make_speculative_method(std::make_unique<RandomTreeDrafter>(
                          nodes, context.target->config().vocab_size, 77));
                    }});
  }
  return arms;
}

engine::SamplingParams sampling_for(const Arm& arm, engine::SamplingParams sampling) {
  if (arm.name.find("verify=gumbel") != arm.name.npos) sampling.sampler = engine::Sampler::kGumbel;
  return sampling;
}

bool gives_the_same_tokens(const Arm& arm, const engine::SamplingParams& sampling) {
  if (arm.lossy) return false;
  if (arm.name.starts_with("random trees")) return true;
  return methods::parse_method(arm.name).sampled(sampling) == methods::SampledAnswers::kSameTokens;
}

std::unique_ptr<methods::DecodingMethod> build_arm(
    const Arm& arm, const std::shared_ptr<const engine::Model>& model, int max_tokens, int slots) {
  methods::MethodBuildContext context;
  context.target = model;
  context.slots = slots;
  context.session = session_options(max_tokens);
  context.draft = model->first_layers(1);
  return arm.build(context);
}

std::unique_ptr<methods::DecodingMethod> build_method(
    const std::string& spec, const std::shared_ptr<const engine::Model>& model, int max_tokens) {
  const methods::MethodSpec method = parse_with_files(spec, *model);
  methods::MethodBuildContext context;
  context.target = model;
  context.session = session_options(max_tokens);
  context.draft = model->first_layers(1);
  if (wants_foreign_draft(method)) context = with_foreign_draft(context);
  return method.info->build(method.params, context);
}

methods::TurnRequest request_of(const Turn& turn) {
  methods::TurnRequest request;
  request.prompt = turn.prompt;
  request.keep = turn.keep;
  request.max_new = turn.max_new;
  request.stop_ids = turn.stop_ids;
  request.stop_text = turn.stop_text;
  request.sampling = turn.sampling;
  request.seed = turn.seed;
  return request;
}

results::TurnRecord run(methods::DecodingMethod& method, engine::Session& session,
                        const Turn& turn) {
  base::SteadyClock clock;
  return methods::decode_turn(method, session, request_of(turn), clock);
}

std::vector<results::TurnRecord> run_batch(
    const std::vector<std::unique_ptr<methods::DecodingMethod>>& slots, engine::Session& session,
    const std::vector<Turn>& turns, methods::BatchMode mode) {
  std::vector<methods::TurnRequest> requests;
  for (const Turn& turn : turns) requests.push_back(request_of(turn));
  std::vector<methods::DecodingMethod*> objects;
  for (const auto& slot : slots) objects.push_back(slot.get());
  std::vector<results::TurnRecord> records(turns.size());
  methods::RequestList list(requests, [&](size_t request, results::TurnRecord record) {
    records[request] = std::move(record);
  });
  base::SteadyClock clock;
  methods::decode_batch(objects, session, list, mode, clock);
  return records;
}

std::string test_name(const std::string& name) {
  std::string out;
  for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return out;
}

Tokens random_tokens(base::Rng& rng, int n, int vocab) {
  Tokens tokens(static_cast<size_t>(n));
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocab)));
  return tokens;
}

}  // namespace evalrun::tests
