#include "tests/methods/support/harness.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "methods/corpus/ngram_corpus.h"
#include "methods/corpus/suffix_corpus.h"
#include "tests/methods/support/adapters.h"
#include "tests/methods/support/corpora.h"
#include "tests/methods/support/drafters.h"

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
       {"medusa", "eagle3", "eagle", "falcon_recurrent", "falcon3", "falcon", "draft", "bita_heads",
        "bita", "gated_lora", "space_tuned", "space"})
    if (const size_t at = spec.find("@" + kind); at != spec.npos)
      spec.replace(at, kind.size() + 1, random_adapter_path(kind, model));
  for (const std::string kind : {"suffixes", "ngrams"})
    if (const size_t at = spec.find("@" + kind); at != spec.npos)
      spec.replace(at, kind.size() + 1, random_corpus(kind, vocab));
  return methods::parse_method(spec);
}

// Methods whose default is a datastore or weights that the user has.
bool needs_files(const methods::MethodInfo& info) {
  return std::any_of(info.params.begin(), info.params.end(), [&](const methods::ParamInfo& p) {
    return p.name == "datastore" || (p.name == "adapter" && info.name != "sps");
  });
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
                                              int max_tokens) {
  return engine::Session::create(model, session_options(max_tokens));
}

Arm arm_of(const std::string& spec) {
  return {spec, [spec](const methods::MethodBuildContext& context) {
            const methods::MethodSpec method = parse_with_files(spec, *context.target);
            return method.info->build(method.params, context);
          }};
}

std::vector<Arm> all_arms() {
  std::vector<Arm> arms;
  const auto add = [&arms](const std::string& spec) { arms.push_back(arm_of(spec)); };
  for (const auto& [name, info] : methods::method_registry().entries())
    if (info.lossless != methods::Lossless::kNone && !needs_files(info)) add(name);
  for (const char* spec :
       {"pld:k=1,ngram=1",
        "pld:k=3,match=recent",
        "pld:k=64,ngram=5,min_ngram=2",
        "pld:k=6,match=frequent",
        "pld:k=5,match=frequent,candidates=3",
        "pld:k=4,match=recent,candidates=4",
        "sps:k=1",
        "sps:k=9",
        "sps:draft=layers:1",
        "sps:draft=layers:2,k=6",
        "sps:k=3,schedule=transient,k_max=8,draft_temperature=0.7",
        "sps:k=6,confidence=0.3",
        "pld:adaptive=true,match=frequent,candidates=3",
        "lookahead:adaptive=true,pool_from_prompt=true",
        "self_draft:adaptive=true",
        "sps:adaptive=true,draft=layers:1,k=6",
        "self_spec:adaptive=true,attention=1,mlp=none,k=5",
        "self_spec:attention=1,mlp=none,k=5",
        "self_spec:attention=none,mlp=0-1,verify=match",
        "lookahead:window=3,ngram=3,guesses=2,full_match_bonus=true",
        "lookahead:window=5,ngram=2,guesses=4,full_match_bonus=true,init=vocabulary",
        "lookahead:window=4,ngram=4,guesses=9,pool_from_prompt=true,trie=false",
        "self_draft:geometry=paper,branches=3,length=5",
        "self_draft:harvest_text=false",
        "self_draft:branches=0,gram=6,full_match_bonus=false,trie=false",
        "self_draft:branches=2,length=3,gram=2,capacity=3,init=vocabulary",
        "self_draft:corpus=@ngrams",
        "self_draft:context=false,corpus=@ngrams,corpus_candidates=9",
        "self_draft:corpus=@ngrams,adaptive=true,branches=0,trie=false",
        "rest:datastore=@suffixes",
        "rest:datastore=@suffixes,min_span=1,nodes=3,length=2",
        "rest:datastore=@suffixes,nodes=1023,length=64",
        "rest:datastore=@suffixes,adaptive=true",
        "rest:datastore=@suffixes,min_span=1,max_span=3,occurrences=1",
        "medusa:adapter=@medusa",
        "medusa:adapter=@medusa,tree=chain:3,draft=drawn",
        "medusa:adapter=@medusa,tree=0+00+1+000+01+2+0000,dtype=bf16",
        "eagle:adapter=@eagle",
        "eagle:adapter=@eagle,tree=chain:4,draft=best",
        "eagle:adapter=@eagle,tree=0+00+1+000+01+2+0000+02,dtype=f32",
        "eagle2:adapter=@eagle",
        "eagle2:adapter=@eagle,k=3,levels=8,total=20",
        "eagle3:adapter=@eagle3,k=4,levels=5,total=12",
        "eagle3:adapter=@eagle3",
        "falcon:adapter=@falcon",
        "falcon:adapter=@falcon,tree=falcon_llama,align=chunk",
        "falcon:adapter=@falcon,tree=chain:5,draft=drawn",
        "falcon:adapter=@falcon3,tree=0+00+1+000+0000+01+00000+10+1.0.0+000000",
        "falcon:adapter=@falcon_recurrent,align=chunk",
        "falcon:adapter=@falcon_recurrent,tree=chain:6",
        "bita:adapter=@bita",
        "bita:adapter=@bita,tree=full:2,draft=drawn",
        "bita:adapter=@bita_heads,tree=efficient:3",
        "bita:adapter=@bita,tree=straightforward",
        "bita:adapter=@bita,tree=chain:2,groups=1",
        "gated_lora:adapter=@gated_lora",
        "gated_lora:adapter=@gated_lora,tree=0+00+1+01,groups=2,draft=drawn",
        "space:adapter=@space",
        "space:adapter=@space,k=1,draft=best",
        "space:adapter=@space,k=3,accept_scale=0.6",
        "space:adapter=@space,tree=upper-triangle:4,masks=3,draft=best",
        "sps:draft=trained,adapter=@draft",
        "sps:draft=trained,adapter=@draft,k=7,confidence=0.1"})
    add(spec);
  for (int nodes : {5, 40}) {
    arms.push_back({"random trees of " + std::to_string(nodes),
                    [nodes](const methods::MethodBuildContext& context) {
                      return methods::make_speculative_method(std::make_unique<RandomTreeDrafter>(
                          nodes, context.target->config().vocab_size, 77));
                    }});
  }
  return arms;
}

bool samples_then_matches(const Arm& arm) {
  const auto has = [&](const char* text) { return arm.name.find(text) != arm.name.npos; };
  if (arm.name.starts_with("sps") || has("draft=drawn")) return false;
  if (arm.name.starts_with("space:") && !has("draft=best")) return false;
  if (arm.name.starts_with("eagle:") && !has("draft=best")) return false;
  return !arm.name.starts_with("self_spec") || has("verify=match");
}

std::unique_ptr<methods::DecodingMethod> build_arm(
    const Arm& arm, const std::shared_ptr<const engine::Model>& model, int max_tokens) {
  methods::MethodBuildContext context;
  context.target = model;
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
  return method.info->build(method.params, context);
}

results::TurnRecord run(methods::DecodingMethod& method, engine::Session& session,
                        const Turn& turn) {
  methods::TurnRequest request;
  request.prompt = turn.prompt;
  request.keep = turn.keep;
  request.max_new = turn.max_new;
  request.stop_ids = turn.stop_ids;
  request.stop_text = turn.stop_text;
  request.sampling = turn.sampling;
  request.seed = turn.seed;
  base::SteadyClock clock;
  return methods::decode_turn(method, session, request, clock);
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
