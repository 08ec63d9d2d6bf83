#include "runners/verify/endpoints/endpoint_sampling.h"

#include <algorithm>
#include <deque>
#include <map>

#include "engine/base/error.h"
#include "engine/base/fit_power.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "runners/verify/certificate.h"

namespace evalrun::runners {
namespace {

constexpr int kEndpointLooks = 3;        // after 1/4, 1/2 and all of the draws
constexpr int kLeastOnPath = 30;         // draws of either server that reach a text
constexpr size_t kMostNodesAtPlace = 6;  // texts that are tested at one place
constexpr int kCandidatesAsked[] = {20, 5};

enum SeedStream : uint64_t { kSpeculativeDraws = 101, kPlainDraws, kSameSeeds };

// Servers take seeds of 32 bits, some of them signed.
uint64_t request_seed(uint64_t seed, uint64_t stream, uint64_t place, uint64_t draw) {
  return base::combine_seeds({seed, stream, place, draw}) & 0x7fffffff;
}

using TokenPath = std::vector<int32_t>;

// A text whose next token is looked at.
struct LawNode {
  size_t place = 0;
  TokenPath path;
  TokenCandidates candidates;
};

// One server's draws at one place; nullopt = a failed one.
using PlaceDraws = std::vector<std::optional<EndpointReply>>;

class SequentialTest {
 public:
  SequentialTest(const EndpointServer& speculative, const EndpointServer& plain,
                 const std::vector<EndpointPlace>& places, const EndpointSamplingOptions& options)
      : speculative_(speculative), plain_(plain), places_(places), options_(options) {
    const auto speculating = speculative.connect()->abilities();
    abilities_ = plain.connect()->abilities();
    if (!speculating.gives_ids || !abilities_.gives_ids || !abilities_.takes_ids)
      result_.no_law = "an API without token ids";
    else if (!abilities_.log_probs)
      result_.no_law = "an API without log-probabilities";
    by_ids_ = speculating.gives_ids && abilities_.gives_ids;
    result_.places = static_cast<int>(places.size());
    result_.level = kCertificateLevel / (2 * kEndpointLooks);
    drawn_[0].resize(places.size());
    drawn_[1].resize(places.size());
  }

  EndpointSampling run(const std::function<void()>& tick) {
    for (int look = 1; look <= kEndpointLooks && !places_.empty(); ++look) {
      const int until = std::max(1, options_.draws >> (kEndpointLooks - look));
      draw(speculative_, kSpeculativeDraws, until, drawn_[0]);
      draw(plain_, kPlainDraws, until, drawn_[1]);
      drawn_each_ = until;
      result_.looks = look;
      result_.draws = static_cast<int64_t>(until) * static_cast<int64_t>(places_.size());
      if (!result_.trouble.empty()) break;
      if (result_.no_law.empty()) look_at_law();
      if (!result_.law_refused) look_at_texts();
      tick();
      if (result_.law_refused || result_.texts_refused) break;
    }
    if (options_.power && !fits_.empty() && result_.no_law.empty() && !result_.law_refused)
      result_.smallest_found = base::smallest_variation_found(fits_, result_.level, options_.seed);
    return std::move(result_);
  }

 private:
  void draw(const EndpointServer& server, uint64_t stream, int until,
            std::vector<PlaceDraws>& drawn);
  // The token after `path` of a draw: its id, -1 = it ended there; nullopt = it is another text.
  std::optional<int32_t> next_token(const EndpointReply& reply, const TokenPath& path) const;
  TokenCounts count(const LawNode& node, const std::vector<PlaceDraws>& drawn) const;
  void find_nodes();
  void children_of(size_t place, const TokenPath& path, std::deque<TokenPath>& open) const;
  void ask_candidates(std::vector<LawNode>& nodes);
  void look_at_law();
  DrawnFigures figures(const std::vector<PlaceDraws>& drawn, CutOrder order,
                       std::vector<base::GoodnessOfFit>* fits) const;
  void look_at_texts();

  const EndpointServer& speculative_;
  const EndpointServer& plain_;
  const std::vector<EndpointPlace>& places_;
  const EndpointSamplingOptions& options_;
  EndpointAbilities abilities_;
  bool by_ids_ = false;
  std::vector<PlaceDraws> drawn_[2];  // of the speculative server, of the plain one
  int drawn_each_ = 0;
  std::vector<LawNode> nodes_;
  std::map<std::pair<size_t, TokenPath>, TokenCandidates> asked_;
  size_t list_length_ = 0;  // in kCandidatesAsked
  std::vector<base::GoodnessOfFit> fits_;
  EndpointSampling result_;
};

// Places take turns, so that neighbours on the server have other texts.
void SequentialTest::draw(const EndpointServer& server, uint64_t stream, int until,
                          std::vector<PlaceDraws>& drawn) {
  std::vector<EndpointRequest> requests;
  for (int d = drawn_each_; d < until; ++d)
    for (size_t p = 0; p < places_.size(); ++p) {
      EndpointRequest request;
      request.prompt_ids = places_[p].ids;
      request.prompt_text = places_[p].text;
      request.max_new = options_.max_new;
      request.sampling = options_.sampling;
      request.seed = request_seed(options_.seed, stream, p, static_cast<uint64_t>(d));
      requests.push_back(std::move(request));
    }
  EndpointReplies got = ask_with_clients(server, requests, options_.clients);
  for (size_t i = 0; i < got.replies.size(); ++i) {
    EndpointReply& reply = got.replies[i];
    auto& list = drawn[i % places_.size()];
    if (reply.ok())
      list.emplace_back(std::move(reply));
    else
      list.emplace_back();
  }
  if (result_.trouble.empty()) result_.trouble = got.trouble;
}

std::optional<int32_t> SequentialTest::next_token(const EndpointReply& reply,
                                                  const TokenPath& path) const {
  const std::span<const int32_t> ids = answer_of(reply, options_.stop_ids).ids;
  if (ids.size() < path.size() || !std::equal(path.begin(), path.end(), ids.begin()))
    return std::nullopt;
  if (ids.size() > path.size()) return ids[path.size()];
  return static_cast<int>(path.size()) < options_.max_new ? std::optional<int32_t>(-1)
                                                          : std::nullopt;
}

TokenCounts SequentialTest::count(const LawNode& node, const std::vector<PlaceDraws>& drawn) const {
  TokenCounts counts;
  counts.of.resize(node.candidates.ids.size());
  const auto find = [&](auto matches) {
    const auto found =
        std::find_if(node.candidates.ids.begin(), node.candidates.ids.end(), matches);
    return static_cast<size_t>(found - node.candidates.ids.begin());
  };
  const auto is_stop = [&](int32_t id) {
    return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), id) !=
           options_.stop_ids.end();
  };
  for (const auto& reply : drawn[node.place]) {
    if (!reply) continue;
    const auto token = next_token(*reply, node.path);
    if (!token) continue;
    const size_t at = *token < 0 ? find(is_stop) : find([&](int32_t id) { return id == *token; });
    ++(at < counts.of.size() ? counts.of[at] : counts.others);
  }
  return counts;
}

void SequentialTest::children_of(size_t place, const TokenPath& path,
                                 std::deque<TokenPath>& open) const {
  std::map<int32_t, int> reached[2];
  for (size_t server = 0; server < 2; ++server)
    for (const auto& reply : drawn_[server][place]) {
      if (!reply) continue;
      const auto token = next_token(*reply, path);
      if (token && *token >= 0) ++reached[server][*token];
    }
  std::vector<std::pair<int, int32_t>> children;  // most draws first
  for (const auto& [token, n] : reached[0])
    if (std::min(n, reached[1][token]) >= kLeastOnPath) children.emplace_back(-n, token);
  std::sort(children.begin(), children.end());
  for (const auto& [ignored, token] : children) {
    open.push_back(path);
    open.back().push_back(token);
  }
}

void SequentialTest::find_nodes() {
  nodes_.clear();
  for (size_t place = 0; place < places_.size(); ++place) {
    std::deque<TokenPath> open = {{}};
    for (size_t n = 0; n < kMostNodesAtPlace && !open.empty(); ++n) {
      const TokenPath path = std::move(open.front());
      open.pop_front();
      nodes_.push_back({place, path, {}});
      if (static_cast<int>(path.size()) + 1 < options_.max_new) children_of(place, path, open);
    }
  }
  ask_candidates(nodes_);
}

// One client: a server at rest gives the least noise.
void SequentialTest::ask_candidates(std::vector<LawNode>& nodes) {
  std::vector<std::pair<size_t, TokenPath>> missing;
  for (const LawNode& node : nodes)
    if (!asked_.contains({node.place, node.path})) missing.emplace_back(node.place, node.path);
  while (!missing.empty()) {
    std::vector<EndpointRequest> requests;
    for (const auto& [place, path] : missing) {
      EndpointRequest request;
      request.prompt_ids = places_[place].ids;
      request.prompt_ids.insert(request.prompt_ids.end(), path.begin(), path.end());
      request.max_new = 1;
      request.log_probs = kCandidatesAsked[list_length_];
      requests.push_back(std::move(request));
    }
    const EndpointReplies got = ask_with_clients(plain_, requests, 1);
    const bool refused = got.replies[0].fault == EndpointFault::kRefused;
    if (refused && list_length_ + 1 < std::size(kCandidatesAsked)) {
      ++list_length_;  // some servers list five at most
      continue;
    }
    if (got.failed > 0) {
      result_.no_law = "log-probabilities refused: " + got.trouble;
      return;
    }
    for (size_t i = 0; i < missing.size(); ++i)
      asked_[missing[i]] = got.replies[i].log_probs.empty()
                               ? TokenCandidates{}
                               : candidates_of(got.replies[i].log_probs[0]);
    missing.clear();
  }
  for (LawNode& node : nodes) node.candidates = asked_[{node.place, node.path}];
}

DrawnFigures SequentialTest::figures(const std::vector<PlaceDraws>& drawn, CutOrder order,
                                     std::vector<base::GoodnessOfFit>* fits) const {
  DrawnFigures figures;
  std::vector<base::TestP> tests;
  std::vector<TokenLaw> laws;
  std::vector<TokenCounts> counts;
  std::vector<const TokenCandidates*> candidates;
  for (const LawNode& node : nodes_) {
    auto law = token_law(node.candidates, options_.sampling, order, options_.noise);
    if (!law) continue;
    TokenCounts counted = count(node, drawn);
    const uint64_t seed = base::combine_seeds({options_.seed, tests.size()});
    auto test = test_counts(*law, counted, seed, options_.simulations);
    if (!test) continue;
    tests.push_back({test->p, test->fit.cells() > 1});
    if (fits != nullptr) fits->push_back(std::move(test->fit));
    if (law->closed) {
      int64_t inside = 0;
      for (size_t i = 0; i < law->prob.size(); ++i)
        if (law->prob[i] > 0) inside += counted.of[i];
      figures.inside += inside;
      figures.outside += counted.all() - inside;
    }
    laws.push_back(std::move(*law));
    counts.push_back(std::move(counted));
    candidates.push_back(&node.candidates);
  }
  std::vector<LawPlaceView> views;
  for (size_t i = 0; i < laws.size(); ++i) views.push_back({candidates[i], &laws[i], &counts[i]});
  figures.temperature = seen_temperature(views);
  figures.p = base::joint_p(tests);
  return figures;
}

void SequentialTest::look_at_law() {
  find_nodes();
  if (!result_.no_law.empty()) return;
  result_.order = CutOrder::kTemperatureFirst;
  result_.plain = figures(drawn_[1], result_.order, nullptr);
  if (options_.sampling.top_p < 1 && options_.sampling.temperature != 1) {
    // Which comes first is the server's convention: the plain server's draws tell.
    const DrawnFigures other = figures(drawn_[1], CutOrder::kCutFirst, nullptr);
    if (other.p > result_.plain.p || result_.plain.inside + result_.plain.outside == 0) {
      result_.plain = other;
      result_.order = CutOrder::kCutFirst;
    }
  }
  fits_.clear();
  result_.speculative = figures(drawn_[0], result_.order, &fits_);
  result_.nodes = static_cast<int>(fits_.size());
  if (fits_.empty()) {
    result_.no_law = "the listed tokens do not tell what top-k and top-p leave";
    return;
  }
  if (result_.plain.p < result_.level) {
    result_.no_law =
        fmt::format("the plain server's own draws do not follow its log-probabilities (p {:.1g})",
                    result_.plain.p);
    return;
  }
  result_.law_refused = result_.speculative.p < result_.level;
}

void SequentialTest::look_at_texts() {
  std::map<std::string, int32_t> words;
  const auto tokens_of = [&](const EndpointReply& reply) {
    const EndpointAnswer answer = answer_of(reply, options_.stop_ids);
    if (by_ids_) return TokenPath(answer.ids.begin(), answer.ids.end());
    TokenPath tokens;
    for (const std::string& word : base::split(std::string(answer.text), ' '))
      tokens.push_back(words.try_emplace(word, static_cast<int32_t>(words.size())).first->second);
    return tokens;
  };
  std::vector<SampledText> texts[2];
  for (size_t place = 0; place < places_.size(); ++place) {
    const size_t n = std::min(drawn_[0][place].size(), drawn_[1][place].size());
    for (size_t i = 0; i < n; ++i) {
      if (!drawn_[0][place][i] || !drawn_[1][place][i]) continue;
      for (size_t server = 0; server < 2; ++server)
        texts[server].push_back({static_cast<int>(place), tokens_of(*drawn_[server][place][i])});
    }
  }
  const TextDistributionOptions options{.samples = drawn_each_,
                                        .max_new = options_.max_new,
                                        .sampling = options_.sampling,
                                        .seed = options_.seed};
  result_.texts = compare_texts(texts[1], texts[0], options);
  result_.texts_refused = result_.texts.rejected(result_.level);
}

}  // namespace

EndpointSampling test_endpoint_sampling(const EndpointServer& speculative,
                                        const EndpointServer& plain,
                                        const std::vector<EndpointPlace>& places,
                                        const EndpointSamplingOptions& options,
                                        const std::function<void()>& tick) {
  EVALRUN_CHECK(!options.sampling.greedy() && options.draws > 0);
  return SequentialTest(speculative, plain, places, options).run(tick);
}

SeededAnswers compare_seeded(const EndpointServer& speculative, const EndpointServer& plain,
                             const std::vector<EndpointPrompt>& prompts, int max_new,
                             const EndpointSamplingOptions& options) {
  SeededAnswers result;
  const auto ours = speculative.connect()->abilities(), theirs = plain.connect()->abilities();
  if (!ours.seeded || !theirs.seeded) return result;
  std::vector<EndpointRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    EndpointRequest request;
    request.prompt_ids = prompts[i].ids;
    request.prompt_text = prompts[i].text;
    request.max_new = max_new;
    request.sampling = options.sampling;
    request.seed = request_seed(options.seed, kSameSeeds, i, 0);
    requests.push_back(std::move(request));
  }
  const EndpointReplies reference = ask_with_clients(plain, requests, options.clients);
  const EndpointReplies again = ask_with_clients(plain, requests, options.clients);
  const EndpointReplies found = ask_with_clients(speculative, requests, options.clients);
  for (const EndpointReplies* replies : {&reference, &again, &found})
    if (result.trouble.empty()) result.trouble = replies->trouble;
  const bool by_ids = ours.gives_ids && theirs.gives_ids;
  const auto same = [&](const EndpointReply& a, const EndpointReply& b) {
    return a.ok() && b.ok() &&
           same_answer(answer_of(a, options.stop_ids), answer_of(b, options.stop_ids), by_ids);
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!reference.replies[i].ok() || !found.replies[i].ok()) continue;
    ++result.answers;
    result.identical += same(reference.replies[i], found.replies[i]) ? 1 : 0;
    result.plain_again += same(reference.replies[i], again.replies[i]) ? 1 : 0;
  }
  return result;
}

}  // namespace evalrun::runners
