// Laws of verification rules, exactly: every answer that the uniform numbers can give is walked
// through and its probability added up, so that the distribution of the emitted tokens is computed,
// not sampled.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "methods/verifier.h"
#include "tests/methods/support/drafters.h"
#include "tests/methods/support/fake_session.h"

namespace evalrun::tests {

using engine::SamplingParams;
using methods::Siblings;
using methods::TargetView;
using methods::TokenTree;
using methods::UniformSource;
using methods::Verifier;
using Tokens = std::vector<int32_t>;
using Distribution = std::map<Tokens, double>;

// Sums of at most a few ten thousand products of float64 numbers.
inline constexpr double kExact = 1e-12;

// Replays a script of choices and advances it like an odometer until all have been taken.
class EnumeratingUniforms final : public UniformSource {
 public:
  bool accept(double target_prob, double draft_prob) override {
    const double p = std::min(1.0, target_prob / draft_prob);
    return choose(std::vector<double>{p, 1 - p}) == 0;
  }
  int32_t draw(std::span<const double> prob) override { return choose(prob); }

  double probability() const { return probability_; }
  // Moves on to the next combination; false after the last.
  bool next() {
    at_ = 0;
    probability_ = 1;
    while (!script_.empty()) {
      Choice& last = script_.back();
      while (++last.taken < static_cast<int>(last.prob.size()))
        if (last.prob[static_cast<size_t>(last.taken)] > 0) return true;
      script_.pop_back();
    }
    return false;
  }

 private:
  struct Choice {
    int taken;
    std::vector<double> prob;
  };
  int32_t choose(std::span<const double> prob) {
    if (at_ == script_.size()) {
      int first = 0;
      while (!(prob[static_cast<size_t>(first)] > 0)) ++first;
      script_.push_back({first, {prob.begin(), prob.end()}});
    }
    const Choice& choice = script_[at_++];
    probability_ *= choice.prob[static_cast<size_t>(choice.taken)];
    return choice.taken;
  }

  std::vector<Choice> script_;
  size_t at_ = 0;
  double probability_ = 1;
};

// A target and a draft distribution over contexts of a toy vocabulary.
struct Toy {
  int vocab, draft_vocab;
  LogitTable target, draft;
  SamplingParams sampling;        // of the target
  SamplingParams draft_sampling;  // what drafts are drawn with

  std::vector<float> logits(const Tokens& context) const {
    std::vector<float> l(static_cast<size_t>(vocab));
    target(context, l);
    return l;
  }
  std::vector<double> target_dist(const Tokens& context) const {
    std::vector<double> p;
    engine::WarpScratch scratch;
    engine::warp(logits(context), sampling, p, scratch);
    return p;
  }
  std::vector<double> draft_dist(const Tokens& context) const {
    std::vector<float> l(static_cast<size_t>(draft_vocab));
    draft(context, l);
    std::vector<double> q;
    engine::WarpScratch scratch;
    engine::warp(l, draft_sampling, q, scratch);
    return q;
  }
  // Plain decoding of n tokens.
  Distribution autoregressive(int n) const {
    EnumeratingUniforms uniform;
    Distribution dist;
    do {
      Tokens text;
      while (static_cast<int>(text.size()) < n) text.push_back(uniform.draw(target_dist(text)));
      dist[text] += uniform.probability();
    } while (uniform.next());
    return dist;
  }
};

inline Toy make_toy(int vocab, uint64_t seed, const SamplingParams& sampling) {
  return {vocab,    vocab,   markov_table(seed, 4, 2.0f), markov_table(seed + 100, 4, 2.0f),
          sampling, sampling};
}

// A tree with the distributions its nodes were drawn from.
struct Draft {
  TokenTree tree;
  std::vector<std::vector<double>> q;  // per node
  Tokens path_to(int node) const {
    Tokens path;
    for (int i = node; i > 0; i = tree.parent[static_cast<size_t>(i)])
      path.insert(path.begin(), tree.token[static_cast<size_t>(i)]);
    return path;
  }
};
using MakeDraft = std::function<Draft(const Toy&, UniformSource&)>;

// The tokens that a step emits, of a draft.
using Decide = std::function<Tokens(const Toy&, const Draft&, UniformSource&)>;

// Distribution of the first n tokens when one verified draft comes first and plain decoding fills
// up; n = 0: of what the step alone emits.
inline Distribution law_of(const Toy& toy, int n, const MakeDraft& make, const Decide& decide) {
  EnumeratingUniforms uniform;
  Distribution dist;
  do {
    Tokens text = decide(toy, make(toy, uniform), uniform);
    while (static_cast<int>(text.size()) < n) text.push_back(uniform.draw(toy.target_dist(text)));
    if (n > 0) text.resize(static_cast<size_t>(n));
    dist[text] += uniform.probability();
  } while (uniform.next());
  return dist;
}

inline Decide by_verifier(Siblings siblings, const methods::RejectionRule& rule = {},
                          int max_accepted = engine::kMaxRows) {
  return [=](const Toy& toy, const Draft& draft, UniformSource& uniform) {
    Verifier verifier(toy.sampling, siblings, std::nullopt, rule);
    std::vector<float> logits;
    const auto logits_of = [&](int node) {
      logits = toy.logits(draft.path_to(node));
      return std::span<const float>(logits);
    };
    const auto q_of = [&](int node) {
      return std::span<const double>(draft.q[static_cast<size_t>(node)]);
    };
    const Verifier::Result result = verifier.verify(draft.tree, TargetView::with_logits(logits_of),
                                                    q_of, uniform, max_accepted);
    Tokens text;
    for (int node : result.path) text.push_back(draft.tree.token[static_cast<size_t>(node)]);
    text.push_back(result.bonus);
    return text;
  };
}

inline Distribution distribution_of(const Toy& toy, int n, const MakeDraft& make, Siblings siblings,
                                    const methods::RejectionRule& rule = {}) {
  return law_of(toy, n, make, by_verifier(siblings, rule));
}

inline double distance(const Distribution& a, const Distribution& b) {
  double largest = 0;
  Distribution all = a;
  for (const auto& [text, p] : b) all[text] += 0;
  for (const auto& [text, unused] : all) {
    const auto x = a.find(text), y = b.find(text);
    largest = std::max(largest,
                       std::abs((x == a.end() ? 0 : x->second) - (y == b.end() ? 0 : y->second)));
  }
  return largest;
}

// `children` drawn children per node, `depth` levels.
inline MakeDraft drawn(int depth, int children, Siblings siblings) {
  return [=](const Toy& toy, UniformSource& uniform) {
    Draft draft;
    draft.tree.reset(0);
    draft.q.emplace_back();
    for (int node = 0; node < draft.tree.size(); ++node) {
      if (draft.tree.level[static_cast<size_t>(node)] == depth) continue;
      const std::vector<double> q = toy.draft_dist(draft.path_to(node));
      std::vector<double> left = q;
      for (int c = 0; c < children; ++c) {
        double sum = 0;
        for (double v : left) sum += v;
        if (!(sum > 0)) break;  // fewer tokens than children
        std::vector<double> dist = left;
        for (double& v : dist) v /= sum;
        const int32_t token = uniform.draw(dist);
        draft.tree.add(token, node);
        draft.q.push_back(q);
        if (siblings == Siblings::kWithoutReplacement) left[static_cast<size_t>(token)] = 0;
      }
    }
    return draft;
  };
}

// A tree that is always the same; equal siblings and all shapes included.
inline MakeDraft fixed(uint64_t seed, int nodes, int depth) {
  return [=](const Toy& toy, UniformSource&) {
    Draft draft;
    draft.tree.reset(0);
    RandomTreeDrafter drafter(nodes, toy.vocab, seed);
    drafter.draft(Tokens{0}, depth, draft.tree);
    draft.q.resize(static_cast<size_t>(draft.tree.size()));
    return draft;
  };
}

// max(share p - q, 0) over the vocabulary; a `q` that ends early is 0 from there.
inline std::vector<double> lacking(const std::vector<double>& p, std::vector<double> q,
                                   double share) {
  q.resize(p.size());
  std::vector<double> left(p.size());
  for (size_t i = 0; i < p.size(); ++i) left[i] = std::max(0.0, share * p[i] - q[i]);
  return left;
}
inline double total(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum;
}

inline const SamplingParams kCells[] = {
    {1.0, 0, 1.0}, {0.7, 0, 1.0}, {1.0, 2, 1.0}, {1.0, 0, 0.8}, {1.3, 3, 0.9}};

}  // namespace evalrun::tests
