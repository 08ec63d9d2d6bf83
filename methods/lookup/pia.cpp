// PIA's trie look-up (Zhao et al. 2024, "Lookahead: An Inference Acceleration Framework for Large
// Language Model with Lossless Generation Accuracy", arXiv 2312.12728, KDD 2024;
// github.com/alipay/PainlessInferenceAcceleration). For each token a trie holds what followed it,
// in the prompt and in answers (methods/lookup/prefix_trie.h). What followed the last `query`
// tokens is the draft; where that is less than a branch, what followed fewer of them. The draft is
// a tree (the paper's hierarchical multi-branch draft).
//
// The prompt's branches go in before the first step and are forgotten with the answer; the answer's
// go in while it grows, each as soon as it has its full length. As published the cache lives on
// from prompt to prompt, which makes steps depend on the order of prompts: that is persist=true.
// The default begins each answer with an empty cache, or where there is a `corpus` with the
// branches of its texts. The figures of the paper come from a cache that was filled with the
// answers of a training set before.
//
// Not to be confused with Lookahead decoding (methods/lookup/lookahead.cpp).
//
// Written after the released program's LookaheadCache, not after the paper's text.
//
// Differs from it:
// - Tokens of an answer's last step are not learnt: a drafter does not see them.
// - A branch ends before a stop token, and what comes after that token is read as well. The
//   released program reads a prompt up to its first stop token only.
// - Nodes that only the prompt had are removed with it, instead of having their counts set to zero.
//   The same tokens are drafted, and the limit of all nodes of a key (65,536) is not needed.
// - Where fewer tokens find nothing, because their key was pruned, what more tokens found is
//   drafted, not nothing.
// - All tries together are bounded (nodes=): those of the released program grow with the texts.
//   A corpus is held to it after each of its texts.
// - Texts that fill the cache beforehand are pruned at once, not after the first answer; they are
//   read whole, as they hold no stop tokens (evalrun corpus build).
// - Its other two draft shapes are not here: one branch, and parallel branches that share no rows.
//   Nor are its stop words, tokens that are never looked up alone.
// - Under sampling both take a draft token where the target's own draw is the same.
#include <algorithm>

#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/corpus/corpus_files.h"
#include "methods/lookup/prefix_trie.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct PiaShape {
  bool adaptive = false;
  int branch_length = 12, capacity = 512, decoding_length = 64;
  int nodes = PrefixTrie::Limits{}.nodes;
  int query = 2;
  std::string corpus = "none";
  bool persist = false;
};

class PiaDrafter final : public Drafter {
 public:
  // `corpus` may be null. Each of the slots has a trie of its own, filled with the corpus.
  PiaDrafter(const PiaShape& shape, int vocab, const SuffixCorpus* corpus, int slots)
      : shape_(shape),
        vocab_(vocab),
        slots_(slots),
        width_(static_cast<size_t>(shape.branch_length) + 1),
        trie_(vocab, {shape.capacity, PrefixTrie::Limits{}.changed, shape.nodes}) {
    rest_.reserve(width_);
    if (corpus != nullptr) fill(*corpus);
    filled_bytes_ = trie_.bytes();
  }

  // Before the first answer. With persist=true the trie then lives on in this slot alone.
  std::unique_ptr<Drafter> another(int) const override {
    auto drafter = std::make_unique<PiaDrafter>(*this);
    drafter->rest_.reserve(width_);
    return drafter;
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    learn(rest_, 0, rest_.size());  // of the answer before; nothing unless the cache lives on
    rest_.clear();
    if (shape_.persist || filled_bytes_ > 0)
      trie_.end_answer();
    else
      trie_.clear();
    matched_ = 0;
    const size_t tokens = context.prompt.size() + static_cast<size_t>(context.max_new);
    trie_.reserve(tokens * (width_ + 1));
    for (size_t i = 0; i < context.prompt.size(); ++i)
      trie_.insert(context.prompt[i], branch(context.prompt, i), PrefixTrie::Source::kPrompt);
    learnt_ = context.prompt.size();
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    if (sequence.size() > learnt_ + width_) {
      learn(sequence, learnt_, sequence.size() - width_);
      learnt_ = sequence.size() - width_;
    }
    if (shape_.persist)
      rest_.assign(sequence.begin() + static_cast<std::ptrdiff_t>(learnt_), sequence.end());
    const int depth = std::min(shape_.branch_length, max_depth);
    matched_ = 0;
    for (size_t n = std::min(static_cast<size_t>(shape_.query), sequence.size()); n > 0; --n) {
      if (!trie_.draft(sequence.last(n), shape_.decoding_length, depth, tree)) continue;
      matched_ = static_cast<int>(n);
      if (tree.size() >= depth) break;  // a branch of the full length, or as many tokens
    }
  }

  LargestStep largest_step() const override { return {.rows = shape_.decoding_length}; }
  size_t extra_parameter_bytes() const override {
    return filled_bytes_ * static_cast<size_t>(slots_);
  }
  void add_kept(KeptMemory& kept) const override {
    kept.on_host += static_cast<double>(extra_parameter_bytes());
    const bool keeps = shape_.persist || filled_bytes_ > 0;
    kept.grown.per_slot += PrefixTrie::most_bytes(vocab_, keeps ? shape_.nodes : 0);
    kept.grown.per_token += PrefixTrie::kMostBytesPerNode * static_cast<double>(width_ + 1);
  }
  // The longer the text that was found, the likelier it goes on as it did there.
  int draft_class(int) const override { return std::min(matched_, kDraftClasses - 1); }
  double expected(int matched, int depth) const override {
    return depth > 1 ? 0.7 : matched < 2 ? 0.2 : 0.4;
  }

 private:
  // What follows place i. One token longer than a draft may be: the second token of a query is part
  // of it.
  std::span<const int32_t> branch(std::span<const int32_t> text, size_t i) const {
    return usable_draft(text.subspan(i + 1), static_cast<int>(width_), stop_ids_);
  }
  void learn(std::span<const int32_t> text, size_t begin, size_t end) {
    const auto source =
        shape_.persist ? PrefixTrie::Source::kAnswer : PrefixTrie::Source::kPassingAnswer;
    for (size_t i = begin; i < end; ++i) trie_.insert(text[i], branch(text, i), source);
  }
  // As if its texts had been the answers to earlier prompts.
  void fill(const SuffixCorpus& corpus) {
    const uint64_t length = corpus.size() + corpus.info().source.documents;
    std::vector<int32_t> text;
    for (uint64_t place = 0; place < length; ++place) {
      if (const int32_t token = corpus.token_behind(place, 0); token >= 0) {
        text.push_back(token);
        continue;
      }
      trie_.reserve(text.size() * (width_ + 1));
      for (size_t i = 0; i < text.size(); ++i)
        trie_.insert(text[i], branch(text, i), PrefixTrie::Source::kAnswer);
      trie_.hold_limit();
      text.clear();
    }
    trie_.end_answer();
  }

  const PiaShape shape_;
  const int vocab_, slots_;
  const size_t width_;  // of a branch
  PrefixTrie trie_;
  std::span<const int32_t> stop_ids_;
  size_t filled_bytes_ = 0;    // of the trie before any prompt: a corpus' branches
  size_t learnt_ = 0;          // branches of the text that begin before this place are in
  int matched_ = 0;            // tokens that the last draft was found by
  std::vector<int32_t> rest_;  // persist: the answer's end, whose branches are too short yet
};

std::shared_ptr<const SuffixCorpus> pia_corpus(const PiaShape& shape,
                                               const MethodBuildContext& context) {
  return shape.corpus == "none" ? nullptr
                                : open_suffix_corpus("pia", shape.corpus, *context.target);
}

}  // namespace

MethodInfo pia_method() {
  MethodInfo info;
  info.name = "pia";
  info.summary =
      "a trie of the prompt and of answers drafts a tree of what followed the last tokens";
  info.source = "PIA, Zhao et al. 2024, arXiv 2312.12728";
  info.needs = "nothing (a corpus fills its cache: evalrun corpus build --kind suffixes)";
  info.notes =
      "The paper calls it \"Lookahead\"; it is not Lookahead decoding (`lookahead`). Defaults are "
      "the released program's; its benchmarks also use decoding_length=128, branch_length=32 and "
      "capacity=16*decoding_length. As published the cache lives on from prompt to prompt "
      "(persist=true) and was filled with answers of a training set before it was timed "
      "(corpus=NAME); the default begins each answer with an empty one. Memory: a node of 36 bytes "
      "for each different beginning of a branch. In each slot that is 36 * `nodes` bytes for what "
      "is "
      "kept (302 MB at most by default), 36 * (branch_length + 2) for each token of the "
      "conversation, and 52 for each token of the vocabulary.";
  using Shape = PiaShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("branch_length", &Shape::branch_length, {1, 64}, "deepest draft, in tokens")
          .add("capacity", &Shape::capacity, {1, 65536},
               "nodes of a leading token, seen in answers, above which it is pruned (persist=true, "
               "corpus)")
          .add("corpus", &Shape::corpus,
               "path or name of texts that fill the cache beforehand (evalrun corpus build --kind "
               "suffixes); without persist each answer begins with these alone; none")
          .add("decoding_length", &Shape::decoding_length, {2, engine::kMaxRows},
               "rows of a step, the newest token included (what a row costs: evalrun cost)")
          .add("nodes", &Shape::nodes, {1024, 1 << 28},
               "nodes kept from answer to answer; when there are more, half of them go, those seen "
               "least first (persist=true, corpus)")
          .add("persist", &Shape::persist,
               "keep the branches of answers from prompt to prompt; runs then depend on order")
          .with(&ParamInfo::steps_at, {"true", StepReproducibility::kCarryState})
          .add("query", &Shape::query, {1, 16},
               "last tokens looked up; fewer where that finds less than a branch");
  info.params = parameters.infos();
  info.files =
      parameters.bound([](const Shape& shape,
                          const MethodBuildContext& context) -> std::map<std::string, std::string> {
        const auto corpus = pia_corpus(shape, context);
        if (corpus == nullptr) return {};
        return {{"corpus", corpus->info().content_hash}};
      });
  draft_by(info, parameters, [](const Shape& shape, const MethodBuildContext& context) {
    const auto corpus = pia_corpus(shape, context);
    return std::make_unique<PiaDrafter>(shape, context.target->config().vocab_size, corpus.get(),
                                        context.slots);
  });
  return info;
}

}  // namespace evalrun::methods
