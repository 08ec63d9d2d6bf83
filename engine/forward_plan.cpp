#include "engine/forward_plan.h"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "engine/base/error.h"

namespace evalrun::engine {

uint64_t PrefixBank::next_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

void check_draws(std::span<const DistributionDraw> draws, const DistributionStore* dists,
                 int outputs, int rows) {
  EVALRUN_CHECK(dists != nullptr, "no distributions to keep");
  EVALRUN_CHECK(dists->n_ids() == 0 ? outputs <= dists->vocab() : outputs == dists->n_ids(),
                "a distribution of {} outputs among distributions of {}", outputs,
                dists->n_ids() == 0 ? dists->vocab() : dists->n_ids());
  int last = -1;
  std::vector<bool> taken(static_cast<size_t>(dists->slots()));
  for (const DistributionDraw& d : draws) {
    EVALRUN_CHECK(d.row > last && d.row < rows, "row {} after row {} of {}", d.row, last, rows);
    EVALRUN_CHECK(d.slot >= 0 && d.slot < dists->slots(), "distribution {} of {}", d.slot,
                  dists->slots());
    EVALRUN_CHECK(!taken[static_cast<size_t>(d.slot)], "distribution {} is kept twice", d.slot);
    taken[static_cast<size_t>(d.slot)] = true;
    EVALRUN_CHECK(!d.uniforms.empty() && d.uniforms.size() <= static_cast<size_t>(kMostBest),
                  "{} draws of a row", d.uniforms.size());
    for (const double uniform : d.uniforms)
      EVALRUN_CHECK(uniform >= 0 && uniform < 1, "a uniform number of {}", uniform);
    last = d.row;
  }
}
namespace {

void check_dists(const ForwardRequest& request, int n) {
  const int rows = static_cast<int>(request.rows.size());
  if (!request.distribution_draws.empty())
    check_draws(request.distribution_draws, request.dists, n, rows);
  EVALRUN_CHECK(request.dists == nullptr || request.sampling == nullptr ||
                    request.sampling->sampler == Sampler::kInverse,
                "kept distributions are drawn from by their inverse, not by noise");
  for (const DistributionDraw& d : request.distribution_draws) {
    const Row& r = request.rows[static_cast<size_t>(d.row)];
    EVALRUN_CHECK(r.uniform == d.uniforms[0] && !r.logits,
                  "row {} draws by another uniform, or has logits", d.row);
  }
  int last = -1;
  size_t draws = 0;
  for (const RejectionTest& t : request.rejection_tests) {
    while (draws < request.distribution_draws.size() &&
           request.distribution_draws[draws].row < t.row)
      ++draws;
    EVALRUN_CHECK(draws == request.distribution_draws.size() ||
                      request.distribution_draws[draws].row != t.row,
                  "row {} draws and is tried", t.row);
    EVALRUN_CHECK(request.dists != nullptr, "no distributions to try by");
    EVALRUN_CHECK(t.row > last && t.row < rows, "row {} after row {} of {}", t.row, last, rows);
    EVALRUN_CHECK(t.slot >= 0 && t.slot < request.dists->slots(), "distribution {} of {}", t.slot,
                  request.dists->slots());
    const Row& r = request.rows[static_cast<size_t>(t.row)];
    EVALRUN_CHECK(r.uniform >= 0 && !r.logits,
                  "row {} is tried without a uniform number, or has logits", t.row);
    for (const int32_t child : t.children)
      EVALRUN_CHECK(child >= 0 && child < std::min(n, request.dists->vocab()), "child {} of {}",
                    child, n);
    last = t.row;
  }
}

}  // namespace

void check_request(const ForwardRequest& request, const ModelConfig& c) {
  const size_t layers = static_cast<size_t>(c.n_layers);
  if (request.prefix != nullptr) {
    const PrefixBank& p = *request.prefix;
    EVALRUN_CHECK(p.heads == 0 || p.heads == c.n_kv_heads || p.heads == c.n_heads,
                  "prefix bank of {} heads for {} and {}", p.heads, c.n_heads, c.n_kv_heads);
    const size_t size =
        static_cast<size_t>(p.length) *
        static_cast<size_t>(p.heads == c.n_heads ? c.n_heads * c.head_dim : c.kv_dim());
    EVALRUN_CHECK(p.k.size() == layers && p.v.size() == layers, "prefix bank: {} layers needed",
                  layers);
    for (size_t l = 0; l < layers; ++l)
      EVALRUN_CHECK(p.k[l].size() == size && p.v[l].size() == size,
                    "prefix bank: layer {} holds {} values, not {}", l, p.k[l].size(), size);
  }
  if (request.low_rank != nullptr)
    EVALRUN_CHECK(request.low_rank->layers.size() == layers, "low-rank delta: {} layers needed",
                  layers);
  if (request.skip != nullptr)
    EVALRUN_CHECK((request.skip->attention.empty() || request.skip->attention.size() == layers) &&
                      (request.skip->mlp.empty() || request.skip->mlp.size() == layers),
                  "skip set: {} layers needed", layers);
  for (const int l : request.residual_layers)
    EVALRUN_CHECK(l >= 0 && l <= c.n_layers, "residual layer {} of {}", l, c.n_layers);
  check_dists(request, c.n_logits());
}

// The list of a row is its parent's list and then itself (or its whole block). When the parent's
// list ends at the end of the arena it is extended in place, so a chain of n rows costs n entries,
// not n^2.
void ForwardPlan::append_visible(PlanRow& row, const PlanRow* parent, int first_member,
                                 int n_members) {
  const int32_t inherited = parent == nullptr ? 0 : parent->visible_count;
  const bool extend = parent != nullptr && static_cast<size_t>(parent->visible_begin) +
                                                   static_cast<size_t>(parent->visible_count) ==
                                               visible_.size();
  if (extend) {
    row.visible_begin = parent->visible_begin;
  } else {
    row.visible_begin = static_cast<int32_t>(visible_.size());
    for (int32_t j = 0; j < inherited; ++j)
      visible_.push_back(visible_[static_cast<size_t>(parent->visible_begin + j)]);
  }
  for (int m = 0; m < n_members; ++m) visible_.push_back(first_member + m);
  row.visible_count = inherited + n_members;
}

void ForwardPlan::build(const ForwardRequest& request, std::span<const int> lengths, int max_tokens,
                        const ModelConfig& config, bool answers) {
  const int n = static_cast<int>(request.rows.size());
  if (!request.extend) {
    all_rows_.clear();
    visible_.clear();
  }
  const int kept = n_kept_ = static_cast<int>(all_rows_.size());
  EVALRUN_CHECK(n >= 1 && kept + n <= kMaxRows, "a forward takes 1..{} rows, not {}", kMaxRows,
                kept + n);
  all_rows_.resize(static_cast<size_t>(kept + n));
  const auto new_row = [&](int i) -> PlanRow& { return all_rows_[static_cast<size_t>(kept + i)]; };
  logit_rows_.clear(), hidden_rows_.clear(), answer_rows_.clear();
  logits_of_.assign(static_cast<size_t>(n), -1);
  hidden_of_.assign(static_cast<size_t>(n), -1);
  kv_only_ = prefill_ = false;

  for (int i = 0; i < n;) {
    const Row& first = request.rows[static_cast<size_t>(i)];
    int members = 1;
    if (first.block >= 0)
      while (i + members < n && request.rows[static_cast<size_t>(i + members)].block == first.block)
        ++members;
    EVALRUN_CHECK(first.parent >= -1 && first.parent < kept + i,
                  "row {}: parent {} is not an earlier row", kept + i, first.parent);
    EVALRUN_CHECK(first.sequence >= 0 && static_cast<size_t>(first.sequence) < lengths.size(),
                  "row {}: sequence {} of {}", i, first.sequence, lengths.size());
    const PlanRow* parent =
        first.parent < 0 ? nullptr : &all_rows_[static_cast<size_t>(first.parent)];
    EVALRUN_CHECK(parent == nullptr || parent->sequence == first.sequence,
                  "row {}: parent {} belongs to another sequence", i, first.parent);
    const int context = lengths[static_cast<size_t>(first.sequence)];
    const int before = parent == nullptr ? 0 : parent->visible_count;

    for (int m = 0; m < members; ++m) {
      const Row& r = request.rows[static_cast<size_t>(i + m)];
      PlanRow& p = new_row(i + m);
      EVALRUN_CHECK(r.parent == first.parent && r.sequence == first.sequence,
                    "row {}: rows of one block share parent and sequence", i + m);
      EVALRUN_CHECK(r.embedding >= 0
                        ? r.embedding < request.embeddings.rows &&
                              request.embeddings.cols == config.input_width()
                        : !config.paired_input && r.token >= 0 && r.token < config.vocab_size,
                    "row {}: token {} / embedding {} out of range", i + m, r.token, r.embedding);
      EVALRUN_CHECK(!r.prefix || request.prefix != nullptr, "row {}: no prefix bank was given",
                    i + m);
      EVALRUN_CHECK(!r.low_rank || request.low_rank != nullptr,
                    "row {}: no low-rank delta was given", i + m);
      p.token = r.embedding >= 0 ? -1 : r.token;
      p.embedding = r.embedding;
      p.sequence = r.sequence;
      p.context = context;
      p.prefix = r.prefix, p.low_rank = r.low_rank;
      p.in_block = members > 1;
      p.position = r.position >= 0 ? r.position : context + before + m;
      if (p.position >= max_tokens)
        throw base::usage_error(
            fmt::format("row at position {} does not fit: the session holds {} tokens", p.position,
                        max_tokens),
            "shorten the prompt, lower max_new, or create the session with more tokens");
      const bool best_or_draw = r.best || r.uniform >= 0;
      if (r.logits || (best_or_draw && !answers)) {
        logits_of_[static_cast<size_t>(i + m)] = static_cast<int32_t>(logit_rows_.size());
        logit_rows_.push_back(i + m);
      } else if (r.top || best_or_draw) {
        answer_rows_.push_back(i + m);
      }
      if (r.hidden) {
        hidden_of_[static_cast<size_t>(i + m)] = static_cast<int32_t>(hidden_rows_.size());
        hidden_rows_.push_back(i + m);
      }
    }
    PlanRow& head = new_row(i);
    append_visible(head, parent, kept + i, members);
    for (int m = 1; m < members; ++m) {
      new_row(i + m).visible_begin = head.visible_begin;
      new_row(i + m).visible_count = head.visible_count;
    }
    // Logical order is order of positions. Trees have it by construction; explicit positions may
    // not.
    const auto by_position = [&](int32_t a, int32_t b) {
      const int32_t pa = all_rows_[static_cast<size_t>(a)].position,
                    pb = all_rows_[static_cast<size_t>(b)].position;
      return pa != pb ? pa < pb : a < b;
    };
    const auto list = visible_.begin() + head.visible_begin;
    if (!std::is_sorted(list, list + head.visible_count, by_position)) {
      // The list may share its front with an ancestor's, which must keep its order: copy, then
      // sort.
      const int32_t from = head.visible_begin;
      const int32_t to = static_cast<int32_t>(visible_.size());
      for (int32_t j = 0; j < head.visible_count; ++j)
        visible_.push_back(visible_[static_cast<size_t>(from + j)]);
      std::sort(visible_.begin() + to, visible_.end(), by_position);
      for (int m = 0; m < members; ++m) new_row(i + m).visible_begin = to;
    }
    i += members;
  }
}

void ForwardPlan::build_prefill(std::span<const PrefillPart> parts, bool hidden, bool kv_only) {
  size_t n = 0;
  for (const PrefillPart& part : parts) n += part.tokens.size();
  all_rows_.assign(n, PlanRow{});
  n_kept_ = 0;
  visible_.resize(n);
  std::iota(visible_.begin(), visible_.end(), 0);
  logit_rows_.clear(), hidden_rows_.clear(), answer_rows_.clear();
  logits_of_.assign(n, -1);
  hidden_of_.assign(n, -1);
  if (hidden) hidden_of_ = hidden_rows_ = visible_;  // all of them
  kv_only_ = kv_only;
  prefill_ = true;
  int32_t first = 0;
  for (const PrefillPart& part : parts) {
    for (int32_t i = 0; i < static_cast<int32_t>(part.tokens.size()); ++i) {
      PlanRow& r = all_rows_[static_cast<size_t>(first + i)];
      r.token = part.tokens[static_cast<size_t>(i)];
      r.sequence = part.sequence;
      r.context = part.length;
      r.position = part.length + i;
      r.visible_begin = first;
      r.visible_count = i + 1;
    }
    first += static_cast<int32_t>(part.tokens.size());
  }
}

}  // namespace evalrun::engine
