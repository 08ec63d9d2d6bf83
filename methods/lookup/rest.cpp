// REST: retrieval-based speculative decoding (He et al. 2023, arXiv 2311.08252). What followed the
// last tokens elsewhere in a large text is the draft: the longest run of last tokens that occurs in
// the datastore is looked up, its continuations are counted as a trie, and the nodes counted most
// often are drafted.
//
// Differs from the released program. It tries spans from 16 down to 2; a longer span occurs only
// where the shorter one does, so that growing the span until it misses ends at the same one with
// fewer searches. It counts the first 5,000 occurrences in the order of the suffix array, those
// whose continuations come first in the order of ids; here `occurrences` are taken at even
// distances over all of them: as the array is sorted, every continuation with a share of
// 1/occurrences or more is seen, each about as often as its share. It prunes whole continuations
// until at most 64 nodes are left, and sometimes fails to; here nodes are taken one by one by count
// (then depth, then order of ids): no parent has a smaller count than its child, so that the tree
// is connected and each beginning of it is the best smaller tree. Without a hit it drafts a dummy
// token, here nothing; a continuation ends before a stop token (methods/lookup/stop_ids.h) and at
// the end of its document. Under sampling it draws for each path on its own, which changes the
// distribution; here drafts are verified node by node (methods/verifier.h).
//
// As published it asks the datastore in every step. With adaptive=true, and as a part of `hybrid`,
// it asks after 1, 2, 4, ... 32 tokens where nothing comes of it (methods/idle_backoff.h): the
// question costs about 2 % of a plain step of a model of 135M parameters.
#include <algorithm>

#include "engine/base/error.h"
#include "methods/adaptive.h"
#include "methods/builtin_methods.h"
#include "methods/corpus/corpus_files.h"
#include "methods/lookup/stop_ids.h"

namespace evalrun::methods {
namespace {

constexpr int kRarestQuery = 32;  // tokens

struct RestOptions {
  bool adaptive = false;
  std::string datastore = "default";
  int max_span = 16, min_span = 2, length = 10, nodes = 64, occurrences = 100;
};

class RestDrafter final : public Drafter {
 public:
  RestDrafter(std::shared_ptr<const SuffixCorpus> corpus, const RestOptions& options)
      : corpus_(std::move(corpus)), options_(options) {
    const size_t most =
        1 + static_cast<size_t>(options.occurrences) * static_cast<size_t>(options.length);
    trie_.reserve(most);
    order_.reserve(most);
    places_.reserve(static_cast<size_t>(options.occurrences));
    path_.resize(static_cast<size_t>(options.length) + 1);
    tree_node_.resize(most);
    corpus_->file().load();
  }

  std::unique_ptr<Drafter> another(int) const override {
    return std::make_unique<RestDrafter>(corpus_, options_);
  }

  void start(const GenerationContext& context) override { stop_ids_ = context.stop_ids; }

  void draft(std::span<const int32_t> sequence, int max_depth, TokenTree& tree) override {
    const SuffixCorpus::Range hits = longest_match(sequence, span_);
    if (hits.empty()) return;
    count_continuations(hits, span_, std::min(options_.length, max_depth));
    take_best(tree);
  }
  LargestStep largest_step() const override { return {.rows = 1 + options_.nodes}; }
  int rarest_query() const override { return kRarestQuery; }
  void add_kept(KeptMemory& kept) const override {
    kept.on_host += static_cast<double>(extra_parameter_bytes());
  }
  // The longer the span that was found, the likelier it goes on as it did there.
  int draft_class(int) const override { return std::min(span_, kDraftClasses - 1); }
  double expected(int span, int depth) const override {
    return depth > 1 ? 0.4 : span < 3 ? 0.1 : 0.2;
  }
  size_t extra_parameter_bytes() const override { return corpus_->file().info().file_bytes; }

 private:
  struct TrieNode {
    int32_t token;
    int32_t parent;
    int32_t depth;
    int32_t count;
  };

  SuffixCorpus::Range longest_match(std::span<const int32_t> sequence, int& span) const {
    SuffixCorpus::Range hits;
    const auto longest = std::min(static_cast<size_t>(options_.max_span), sequence.size());
    for (auto n = static_cast<size_t>(options_.min_span); n <= longest; ++n) {
      const SuffixCorpus::Range found = corpus_->find(sequence.last(n));
      if (found.empty()) break;
      hits = found;
      span = static_cast<int>(n);
    }
    return hits;
  }

  // Occurrences come in order of what follows them, so that a continuation shares its nodes with
  // the one before and with no other: `path_` holds the nodes of the one before.
  void count_continuations(const SuffixCorpus::Range& hits, int span, int length) {
    trie_.assign(1, {-1, -1, 0, 0});
    path_[0] = 0;
    places_.clear();
    const uint64_t n = std::min(hits.size(), static_cast<uint64_t>(options_.occurrences));
    for (uint64_t i = 0; i < n; ++i) {
      // The middle of the i-th of n equal parts.
      const uint64_t index = hits.begin + (2 * i + 1) * hits.size() / (2 * n);
      places_.push_back(corpus_->place(index));
      corpus_->prefetch(places_.back());
    }
    int before = 0;  // nodes on path_
    for (const uint64_t place : places_) {
      bool shared = true;
      int depth = 0;
      while (depth < length) {
        const int32_t token = corpus_->token_behind(place, static_cast<uint64_t>(span + depth));
        if (token < 0 || is_stop(stop_ids_, token)) break;
        const int32_t parent = path_[static_cast<size_t>(depth++)];
        int32_t& node = path_[static_cast<size_t>(depth)];
        shared = shared && depth <= before && trie_[static_cast<size_t>(node)].token == token;
        if (!shared) {
          node = static_cast<int32_t>(trie_.size());
          trie_.push_back({token, parent, depth, 0});
        }
        ++trie_[static_cast<size_t>(node)].count;
      }
      before = depth;
    }
  }

  // Nodes are numbered in order of their paths' ids, so that a smaller number breaks ties.
  void take_best(TokenTree& tree) {
    order_.clear();
    for (size_t i = 1; i < trie_.size(); ++i) order_.push_back(static_cast<int32_t>(i));
    const size_t n = std::min(order_.size(), static_cast<size_t>(options_.nodes));
    const auto middle = order_.begin() + static_cast<std::ptrdiff_t>(n);
    std::partial_sort(order_.begin(), middle, order_.end(), [this](int32_t a, int32_t b) {
      const TrieNode& x = trie_[static_cast<size_t>(a)];
      const TrieNode& y = trie_[static_cast<size_t>(b)];
      if (x.count != y.count) return x.count > y.count;
      return x.depth != y.depth ? x.depth < y.depth : a < b;
    });
    tree_node_[0] = 0;
    for (auto it = order_.begin(); it != middle; ++it) {
      const TrieNode& node = trie_[static_cast<size_t>(*it)];
      tree_node_[static_cast<size_t>(*it)] =
          tree.add(node.token, tree_node_[static_cast<size_t>(node.parent)]);
    }
  }

  std::shared_ptr<const SuffixCorpus> corpus_;
  RestOptions options_;
  std::span<const int32_t> stop_ids_;
  int span_ = 0;  // that the last draft was found by
  // Of one step; sized once.
  std::vector<TrieNode> trie_;      // node 0 is the root
  std::vector<int32_t> path_;       // [length + 1] node at each depth
  std::vector<uint64_t> places_;    // of the occurrences counted
  std::vector<int32_t> order_;      // trie nodes, best first
  std::vector<int32_t> tree_node_;  // trie node -> node of the draft
};

std::shared_ptr<const SuffixCorpus> datastore_of(const RestOptions& options,
                                                 const MethodBuildContext& context) {
  EVALRUN_CHECK(context.target != nullptr);
  return open_suffix_corpus("rest", options.datastore, *context.target);
}

}  // namespace

MethodInfo retrieval_method() {
  MethodInfo info;
  info.name = "rest";
  info.version = "2";
  info.summary = "retrieval: drafts what followed the last tokens in a large text";
  info.source = "REST, He et al. 2023, arXiv 2311.08252";
  info.needs = "a datastore of the target's tokens (evalrun corpus build --kind suffixes)";
  info.notes =
      "Acceptance is that of the datastore: keep evaluation data out of it, and name it with the "
      "figures. The paper uses ShareGPT and UltraChat for chat, The Stack for code, spans of 16 to "
      "2, 10 tokens of at most 5,000 occurrences, 64 nodes.";
  using Shape = RestOptions;
  const auto parameters =
      adaptive_parameters<Shape>()
          .add("datastore", &Shape::datastore, "path or name of the datastore")
          .add("max_span", &Shape::max_span, {1, 256}, "longest run of last tokens looked up")
          .add("min_span", &Shape::min_span, {1, 256}, "shortest")
          .add("length", &Shape::length, {1, 64}, "tokens of a continuation")
          .add("nodes", &Shape::nodes, {1, engine::kMaxRows - 1},
               "largest draft tree, in tokens (what a row costs: evalrun cost)")
          .add("occurrences", &Shape::occurrences, {1, 10000},
               "occurrences counted, at even distances over all");
  info.params = parameters.infos();
  info.check = parameters.bound([](const Shape& options) {
    if (options.min_span > options.max_span)
      throw base::usage_error(fmt::format("rest: min_span={} is larger than max_span={}",
                                          options.min_span, options.max_span),
                              "the longest run of min_span to max_span tokens is looked up");
  });
  info.files = parameters.bound([](const Shape& options, const MethodBuildContext& context) {
    return std::map<std::string, std::string>{
        {"datastore", datastore_of(options, context)->info().content_hash}};
  });
  draft_by(info, parameters, [](const Shape& options, const MethodBuildContext& context) {
    return std::make_unique<RestDrafter>(datastore_of(options, context), options);
  });
  return info;
}

}  // namespace evalrun::methods
