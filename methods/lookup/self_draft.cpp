// Self-Draft (Gao et al. 2025, "Multi-Branch Self-Drafting for LLM Inference Acceleration",
// AAAI-25; github.com/ZipECHO/Self-Draft): N branches of up to L tokens hang below the newest token
// and grow by the target's own greedy continuation, in the same forward that verifies the drafts.
// Grams of the branches fill a context cache (key token -> latest grams); a corpus cache holds
// frequent grams of general text. What either holds after the newest tokens is verified.
//
// Two geometries (parameter geometry). `paper`: N equal branches, each begun with `pad` random
// tokens, one token longer a step up to L, then sliding. `code`, as released: columns in a
// staircase; a warm-up of L-2 steps drops the first column, whose pads the text has reached, so
// that column 0 continues the text itself and is L-2 long, the others as long and their one or two
// pads.
//
// Readings of Algorithm 1: N branches, not N+1; the warm-up ends when the branches have their
// length; with j tokens of a draft matched j+1 are emitted, G+1 for a whole gram unless
// full_match_bonus=false, which is as released. A branch of L tokens is harvested in windows up to
// k = L (geometry=paper); the released program takes at most L-1 (geometry=code), because its
// columns 1.. may be that short. With L=2 only geometry=paper has branches.
//
// Differs: the released context cache lives on from prompt to prompt (persist=true) and takes in
// the text itself (harvest_text, not in the paper). Its reduction after every other question is not
// reproduced. The warm-up starts after the first token instead of inside the prefill, which is the
// same calls for every method. Drafts are verified as soon as there are any, so also before the
// branches have grown: where such a step takes several tokens, column 0 of geometry=code is no
// longer the exact continuation of the text. context=false, the paper's w/o-Context, drops the
// branches' rows with the cache, as nothing else uses them; an ablation that kept the rows would be
// slower.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/corpus/corpus_files.h"
#include "methods/lookup/gram_pool.h"
#include "methods/lookup/random_tokens.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

struct SelfDraftShape {
  bool adaptive = false;
  std::string corpus = "none";
  int corpus_candidates = 3;
  int capacity = 10;  // context grams per key, and the most drafts of both caches but two
  int branches = 6, gram = 4, length = 6, pad = 2;
  bool staircase = true;  // geometry=code
  bool context = true, full_match_bonus = true, harvest_text = true, persist = false, trie = true;
  TokenSource init = TokenSource::kPrompt;
};

// Of all branches in one step. Those of the staircase are fewer in every step of the warm-up, and
// a token longer: the largest step may be on the way.
int most_branch_rows(const SelfDraftShape& shape) {
  if (shape.branches == 0 || !shape.staircase) return shape.branches * shape.length;
  int most = 0;
  for (int f = 1; f < shape.length; ++f)
    most = std::max(most, (shape.branches + shape.length - 1 - f) * (shape.pad + f - 1));
  return most;
}

class SelfDraftDrafter final : public Drafter {
 public:
  // `corpus` may be null.
  SelfDraftDrafter(const SelfDraftShape& shape, int vocab,
                   std::shared_ptr<const NgramCorpus> corpus)
      : shape_(shape),
        vocab_(vocab),
        random_(shape.init, vocab),
        pool_(vocab, shape.gram, shape.capacity),
        corpus_(std::move(corpus)) {
    if (corpus_ != nullptr) corpus_->file().load();
    const auto gram = static_cast<size_t>(shape_.gram);
    gram_.resize(gram);
    joint_.reserve(2 * gram + static_cast<size_t>(shape_.length) + 2);
    tail_.reserve(gram);
    branches_.resize(static_cast<size_t>(first_columns()));
    for (Branch& branch : branches_)
      branch.tokens.reserve(static_cast<size_t>(shape_.length + shape_.pad) + 1);
  }

  // A cache of its own, which lives on in this slot alone (persist=true).
  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<SelfDraftDrafter>(shape_, vocab_, corpus_);
  }

  void start(const GenerationContext& context) override {
    stop_ids_ = context.stop_ids;
    if (!shape_.persist) pool_.clear();
    harvested_ = 0;
    random_.start(context.prompt);
    warm_ = 0;
    first_ = 0;
    used_ = first_columns();
    for (int i = 0; i < used_; ++i) {
      Branch& branch = branches_[static_cast<size_t>(i)];
      branch.tokens.clear();
      branch.pads = shape_.pad;
      if (shape_.staircase)  // the first L-2 are reached by the text before they could be longer
        branch.pads = i < shape_.length - 2
                          ? 1
                          : 1 + static_cast<int>(random_.below(std::max(shape_.pad, 1)));
      for (int p = 0; p < branch.pads; ++p) branch.tokens.push_back(random_.next());
    }
  }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    root_ = sequence.back();
    int n_context = 0;
    if (shape_.context) {
      if (shape_.harvest_text) harvest(sequence);
      const auto n = std::min(sequence.size(), gram_.size());
      tail_.assign(sequence.end() - static_cast<std::ptrdiff_t>(n), sequence.end());
      n_context = pool_.count(root_);
      for (int i = 0; i < n_context; ++i)
        tree.add_path(usable_draft(pool_.gram(root_, i), max_depth, stop_ids_), shape_.trie);
    }
    context_nodes_ = tree.size();
    if (corpus_ != nullptr) draft_from_corpus(sequence, max_depth, n_context, tree);
  }
  LargestStep largest_step() const override {
    const int corpus_gram = corpus_ == nullptr ? 0 : corpus_->gram_length();
    int drafted = 0;
    for (int n = 0; n <= (shape_.context ? shape_.capacity : 0); ++n)
      drafted = std::max(drafted, n * shape_.gram + corpus_grams(n) * corpus_gram);
    return {.rows = 1 + (shape_.context ? most_branch_rows(shape_) : 0) + drafted};
  }
  void add_kept(KeptMemory& kept) const override {
    kept.on_host += static_cast<double>(extra_parameter_bytes());
    kept.grown.per_slot += GramPool::most_bytes(vocab_, shape_.gram, shape_.capacity);
  }
  int draft_class(int node) const override { return node < context_nodes_ ? 0 : 1; }
  size_t extra_parameter_bytes() const override {
    return corpus_ == nullptr ? 0 : corpus_->file().info().file_bytes;
  }
  double expected(int draft_class, int depth) const override {
    if (draft_class == 0) return depth == 1 ? 0.3 : 0.7;
    return depth == 1 ? 0.1 : 0.4;
  }

  void side_rows(int max_rows, SideRows& side) override {
    if (!shape_.context) return;  // branches serve no other purpose
    int needed = 0;
    for (int i = first_; i < used_; ++i) needed += static_cast<int>(branch(i).tokens.size());
    if (needed > max_rows) return;
    for (int i = first_; i < used_; ++i) {
      int above = -1;
      for (const int32_t token : branch(i).tokens) above = side.add(token, above, steady());
      side.read.back() = 1;  // while it grows, only the end of a branch matters
    }
  }

  void side_tops(int32_t, std::span<const int32_t> tops) override {
    size_t at = 0;
    for (int i = first_; i < used_; ++i) {
      Branch& b = branch(i);
      const auto drafts = tops.subspan(at, b.tokens.size());
      at += b.tokens.size();
      if (steady()) {
        harvest_branch(b.tokens, drafts);
        if (shape_.staircase && i == first_) harvest_seam(b.tokens, drafts.back());
      }
      b.tokens.push_back(drafts.back());
    }
    if (steady()) {
      for (int i = first_; i < used_; ++i) branch(i).tokens.erase(branch(i).tokens.begin());
      return;
    }
    ++warm_;
    if (!shape_.staircase) return;
    if (warm_ > 1) ++first_;  // the text has reached this column: the next one takes its place
    Branch& b = branch(first_);
    b.tokens.erase(b.tokens.begin(), b.tokens.begin() + b.pads);
    b.pads = 0;
  }

  int max_accepted() const override {
    return shape_.full_match_bonus ? engine::kMaxRows : shape_.gram - 1;
  }

 private:
  struct Branch {
    std::vector<int32_t> tokens;
    int pads = 0;  // random tokens at the front
  };
  Branch& branch(int i) { return branches_[static_cast<size_t>(i)]; }
  int first_columns() const {
    if (shape_.branches == 0) return 0;
    return shape_.staircase ? shape_.branches + shape_.length - 3 : shape_.branches;
  }
  int warm_steps() const {
    return shape_.staircase ? shape_.length - 2 : std::max(shape_.length - shape_.pad, 0);
  }
  bool steady() const { return warm_ >= warm_steps(); }

  // Drafted from the corpus, at most, beside `n_context` of the context cache.
  int corpus_grams(int n_context) const {
    const int left = shape_.capacity - n_context;
    return std::min(shape_.corpus_candidates, left > 0 ? left : 2);
  }

  // What the context cache has not proposed, longest key first.
  void draft_from_corpus(std::span<const int32_t> sequence, int max_depth, int n_context,
                         TokenTree& tree) {
    int wanted = corpus_grams(n_context);
    if (wanted <= 0) return;
    corpus_->visit_suffixes(sequence, [&](std::span<const int32_t> gram) {
      const auto path = usable_draft(gram, max_depth, stop_ids_);
      if (tree.holds(path)) return true;
      tree.add_path(path, shape_.trie);
      return --wanted > 0;
    });
  }

  // Every window of the branch: its first token is the key; the tokens after it and the draft after
  // them are the gram.
  void harvest_branch(std::span<const int32_t> tokens, std::span<const int32_t> drafts) {
    const size_t gram = gram_.size();
    for (size_t j = 0; j + gram <= tokens.size(); ++j) {
      std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(j) + 1, gram - 1, gram_.begin());
      gram_.back() = drafts[j + gram - 1];
      pool_.insert(tokens[j], gram_);
    }
  }

  // Windows that begin in the text and end in column 0 or its draft: how the model expects the text
  // to go on.
  void harvest_seam(std::span<const int32_t> column, int32_t draft) {
    joint_.assign(tail_.begin(), tail_.end());
    joint_.insert(joint_.end(), column.begin(), column.end());
    joint_.push_back(draft);
    for (size_t j = 0; j < tail_.size() && j + gram_.size() < joint_.size(); ++j) {
      pool_.insert(joint_[j], std::span<const int32_t>(joint_).subspan(j + 1, gram_.size()));
    }
  }

  void harvest(std::span<const int32_t> sequence) {
    const size_t gram = gram_.size();
    for (; harvested_ + gram < sequence.size(); ++harvested_)
      pool_.insert(sequence[harvested_], sequence.subspan(harvested_ + 1, gram));
  }

  SelfDraftShape shape_;
  int vocab_;
  RandomTokens random_;
  GramPool pool_;
  std::shared_ptr<const NgramCorpus> corpus_;
  std::span<const int32_t> stop_ids_;
  int32_t root_ = -1;
  int context_nodes_ = 0;  // of the last draft: those in front come from the context cache
  size_t harvested_ = 0;   // grams of the text that begin before this place are in
  int warm_ = 0, first_ = 0, used_ = 0;  // branches first_..used_-1 are alive
  std::vector<Branch> branches_;
  std::vector<int32_t> gram_, tail_, joint_;  // tail_: newest tokens of the text, the root last
};

void check_self_draft(const SelfDraftShape& shape) {
  const int length = shape.length, branches = shape.branches, pad = shape.pad;
  if (shape.staircase && length < 3)
    throw base::usage_error(
        fmt::format("self_draft: length={} is too short for geometry=code", length),
        "take length=3 or more, or geometry=paper");
  if (!shape.staircase && pad > length)
    throw base::usage_error(fmt::format("self_draft: pad={} is longer than length={}", pad, length),
                            "a branch begins with pad random tokens");
  const int side = std::max(branches * (length + pad), most_branch_rows(shape));
  const int rows = side + (shape.capacity + shape.corpus_candidates) * shape.gram + 1;
  if (rows > engine::kMaxRows)
    throw base::usage_error(
        fmt::format("self_draft: up to {} rows a step, {} are possible", rows, engine::kMaxRows),
        "a step has about branches * length + capacity * gram rows");
}

std::shared_ptr<const NgramCorpus> corpus_of(const SelfDraftShape& shape,
                                             const MethodBuildContext& context) {
  return shape.corpus == "none" ? nullptr
                                : open_ngram_corpus("self_draft", shape.corpus, *context.target);
}

}  // namespace

MethodInfo self_draft_method() {
  MethodInfo info;
  info.name = "self_draft";
  info.version = "2";
  info.summary = "branches of the model's own drafts fill a context cache; a corpus cache helps";
  info.source = "Gao et al. 2025, AAAI-25, Algorithm 1";
  info.needs = "nothing (a corpus cache helps: evalrun corpus build --kind ngrams)";
  info.notes =
      "Self-Draft rows of its paper use branches=6, length=6, gram=4 with a corpus cache of OANC; "
      "the released program (geometry=code) harvests the prompt, keeps its cache from prompt to "
      "prompt (persist=true) and emits at most 4 tokens a step (full_match_bonus=false). Memory of "
      "the cache: about 4 * capacity * gram bytes a token of the vocabulary at most in each slot, "
      "however long it lives.";
  using Shape = SelfDraftShape;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("corpus", &Shape::corpus,
               "path or name of a corpus cache (evalrun corpus build --kind ngrams); none")
          .add("corpus_candidates", &Shape::corpus_candidates, {0, 64},
               "most grams of the corpus cache a step; with the context grams at most capacity")
          .add("branches", &Shape::branches, {0, 64}, "draft branches (N)")
          .add("capacity", &Shape::capacity, {1, 128}, "grams the context cache keeps per key")
          .add(
              "context", &Shape::context,
              "context cache and branches; false is the paper's w/o-Context, without the branches' "
              "rows, so faster than one that only drops the drafts")
          .add("full_match_bonus", &Shape::full_match_bonus,
               "keep the target's own token after a wholly matched gram")
          .choice("geometry", &Shape::staircase, {{"code", true}, {"paper", false}},
                  "branches as in the released code, or equal ones as in the paper")
          .add("gram", &Shape::gram, {2, 32},
               "tokens of a gram after its key (G); with branches at most length - 1, or length "
               "(geometry=paper)")
          .add("harvest_text", &Shape::harvest_text,
               "grams of the prompt and the answer go into the context cache")
          .choice("init", &Shape::init, token_sources(),
                  "where the branches' first tokens are drawn")
          .add("length", &Shape::length, {2, 64},
               "longest branch, in tokens (L); 2 with geometry=paper only")
          .add("pad", &Shape::pad, {1, 16},
               "random tokens a branch begins with; geometry=code draws 1 to this many")
          .add("persist", &Shape::persist,
               "keep the context cache from prompt to prompt; runs then depend on order")
          .with(&ParamInfo::steps_at, {"true", StepReproducibility::kCarryState})
          .add("trie", &Shape::trie, "drafts with a common prefix share its rows");
  info.params = parameters.infos();
  info.check = parameters.bound(check_self_draft);
  info.files =
      parameters.bound([](const Shape& shape,
                          const MethodBuildContext& context) -> std::map<std::string, std::string> {
        const auto corpus = corpus_of(shape, context);
        if (corpus == nullptr) return {};
        return {{"corpus", corpus->info().content_hash}};
      });
  draft_by(info, parameters, [](Shape shape, const MethodBuildContext& context) {
    // A branch of L tokens holds windows of no more than L (released code: min(4, L - 1)).
    if (shape.context && shape.branches > 0)
      shape.gram = std::min(shape.gram, shape.length - (shape.staircase ? 1 : 0));
    return std::make_unique<SelfDraftDrafter>(shape, context.target->config().vocab_size,
                                              corpus_of(shape, context));
  });
  return info;
}

}  // namespace evalrun::methods
