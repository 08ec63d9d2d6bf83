#include "runners/verify/endpoints/endpoint_identity.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"

namespace evalrun::runners {
namespace {

// Gaps wider than this say nothing about ties, and their noise is another.
constexpr double kNearGap = 2;
// A pattern that chance would make more often than this is none.
constexpr double kChanceOfPattern = 0.05;
constexpr int kLeastFollowed = 4;
constexpr int kMostFollowed = 24;  // differences; garbage shows in few of them

bool is_same_token(const EndpointLogProb& a, const EndpointLogProb& b) {
  return a.token >= 0 && b.token >= 0 ? a.token == b.token : a.text == b.text;
}

// The likeliest but the token itself, which is the first of a list.
const EndpointLogProb* runner_up(const std::vector<EndpointLogProb>& list) {
  const EndpointLogProb* second = nullptr;
  for (size_t k = 1; k < list.size(); ++k)
    if (!is_same_token(list[k], list[0]) && std::isfinite(list[k].log_prob) &&
        (second == nullptr || list[k].log_prob > second->log_prob))
      second = &list[k];
  return second;
}

class EndpointComparison {
 public:
  EndpointComparison(const EndpointServer& speculative, const EndpointServer& plain,
                     const std::vector<EndpointPrompt>& prompts,
                     const EndpointIdentityOptions& options)
      : speculative_(speculative), plain_(plain), prompts_(prompts), options_(options) {
    EVALRUN_CHECK(!options.clients.empty() && options.clients.front() == 1);
    ours_ = speculative.connect()->abilities();
    theirs_ = plain.connect()->abilities();
  }
  EndpointIdentity run() {
    ask_all();
    result_.by_ids = answers_have_ids();
    measure_range();
    compare_all();
    judge_all();
    return std::move(result_);
  }

 private:
  void ask_all();
  bool restart_servers();
  bool ask(bool speculative, int clients, int restart, bool again);
  bool answers_have_ids() const;
  void measure_range();
  void add_shifts(const EndpointReply& a, const EndpointReply& b, size_t common);
  void compare_all();
  void compare(size_t pass, size_t prompt);
  void judge_all();
  bool is_right(size_t pass, size_t prompt) const;
  void find_signs(EndpointDivergence& d, bool behind_refusals) const;
  bool only_behind_refusals() const;
  EndpointAnswer answer(const EndpointReply& r) const { return answer_of(r, options_.stop_ids); }
  const EndpointReply& reply(size_t pass, size_t prompt) const {
    return result_.passes[pass].answers.replies[prompt];
  }

  const EndpointServer& speculative_;
  const EndpointServer& plain_;
  const std::vector<EndpointPrompt>& prompts_;
  const EndpointIdentityOptions& options_;
  EndpointAbilities ours_, theirs_;
  EndpointIdentity result_;
  std::vector<size_t> nearest_;  // of each divergence: the pass of the plain answer it is held to
  std::set<std::pair<size_t, size_t>> wrong_;  // pass and prompt of what is no near tie
};

void EndpointComparison::ask_all() {
  for (int restart = 0; restart <= options_.restarts; ++restart) {
    if (restart > 0 && !restart_servers()) return;
    for (const int clients : options_.clients) {
      if (!ask(false, clients, restart, false)) return;
      if (restart == 0 && clients == 1 && !ask(false, 1, 0, true)) return;
      if (!ask(true, clients, restart, false)) return;
    }
  }
}

bool EndpointComparison::restart_servers() {
  try {
    options_.restart();
    return true;
  } catch (const base::Error& e) {
    if (e.code() == base::ExitCode::kInterrupted) throw;
    result_.trouble = e.message();
    return false;
  }
}

// False where the server is in trouble.
bool EndpointComparison::ask(bool speculative, int clients, int restart, bool again) {
  const EndpointServer& server = speculative ? speculative_ : plain_;
  const auto passes =
      static_cast<double>(2 * options_.clients.size()) * (options_.restarts + 1) + 1;
  if (options_.progress)
    options_.progress(fmt::format("{}, {} clients", server.name, clients),
                      static_cast<double>(result_.passes.size()) / passes);
  // Of the plain server alone: asked for log-probabilities, some servers do not speculate. Its
  // repeat has none, so that what asking for them changes is part of the null.
  const bool others = options_.clients.size() > 1 || options_.restarts > 0;
  const bool log_probs = !speculative && theirs_.log_probs && !(again && others);
  std::vector<EndpointRequest> requests;
  for (const EndpointPrompt& prompt : prompts_) {
    EndpointRequest request;
    request.prompt_ids = prompt.ids;
    request.prompt_text = prompt.text;
    request.max_new = options_.max_new;
    request.log_probs = log_probs ? kEndpointLogProbs : 0;
    requests.push_back(std::move(request));
  }
  result_.passes.push_back(
      {speculative, clients, restart, again, ask_with_clients(server, requests, clients), 0});
  const EndpointReplies& got = result_.passes.back().answers;
  if (result_.trouble.empty()) result_.trouble = got.trouble;
  return got.failed < kMostEndpointFailures;
}

bool EndpointComparison::answers_have_ids() const {
  if (!ours_.gives_ids || !theirs_.gives_ids) return false;
  for (const EndpointPass& pass : result_.passes)
    for (const EndpointReply& r : pass.answers.replies)
      if (r.ok() && r.ids.empty() && !r.text.empty()) return false;
  return true;
}

// The first pass is the plain server at rest; every other one of its passes is compared with it.
void EndpointComparison::measure_range() {
  PlainRange& range = result_.range;
  range.log_probs = theirs_.log_probs;
  for (size_t pass = 1; pass < result_.passes.size(); ++pass) {
    EndpointPass& other = result_.passes[pass];
    if (other.speculative) continue;
    for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
      const EndpointReply &a = reply(0, prompt), &b = reply(pass, prompt);
      if (!a.ok() || !b.ok()) continue;
      ++range.answers;
      const size_t common = common_length(answer(a), answer(b), result_.by_ids);
      add_shifts(a, b, common);
      if (same_answer(answer(a), answer(b), result_.by_ids)) continue;
      ++range.differing;
      ++other.differing;
      ++(other.restart > 0 ? range.by_restart : other.again ? range.by_repeat : range.by_clients);
      if (!result_.by_ids || common >= a.log_probs.size()) continue;
      const auto id = [&](const EndpointReply& r) {
        const auto ids = answer(r).ids;
        return common < ids.size() ? ids[common] : -1;
      };
      const auto gap = gap_between(a.log_probs[common], {id(a), {}}, {id(b), {}}, true);
      if (gap && !gap->at_least) range.widest_gap = std::max(range.widest_gap, gap->value);
    }
  }
}

// How far the gap between a token and its runner-up moved from one pass to the other, at every
// place that both share.
void EndpointComparison::add_shifts(const EndpointReply& a, const EndpointReply& b, size_t common) {
  size_t length = 0;  // of what the tokens until here add up to
  for (size_t i = 0; i < std::min(a.log_probs.size(), b.log_probs.size()); ++i) {
    const auto &here = a.log_probs[i], &there = b.log_probs[i];
    if (here.empty() || there.empty()) return;
    length += result_.by_ids ? 1 : here[0].text.size();
    if (length > common || !is_same_token(here[0], there[0])) return;
    const EndpointLogProb* second = runner_up(here);
    if (second == nullptr) continue;
    const EndpointLogProb* later = nullptr;
    for (size_t k = 1; k < there.size(); ++k)
      if (is_same_token(there[k], *second)) later = &there[k];
    if (later == nullptr) continue;
    const double before = here[0].log_prob - second->log_prob;
    const double after = there[0].log_prob - later->log_prob;
    if (!std::isfinite(before) || !std::isfinite(after) || before > kNearGap) continue;
    ++result_.range.places;
    result_.range.widest_shift = std::max(result_.range.widest_shift, std::abs(before - after));
  }
}

void EndpointComparison::compare_all() {
  for (size_t pass = 0; pass < result_.passes.size(); ++pass) {
    if (!result_.passes[pass].speculative) continue;
    for (size_t prompt = 0; prompt < prompts_.size(); ++prompt)
      if (reply(pass, prompt).ok() && reply(0, prompt).ok()) compare(pass, prompt);
  }
}

void EndpointComparison::compare(size_t pass, size_t prompt) {
  const EndpointReply& found = reply(pass, prompt);
  const EndpointCounts& counts = found.counts;
  ++result_.answers;
  if (counts.drafted && counts.accepted) {
    result_.drafted = result_.drafted.value_or(0) + *counts.drafted;
    result_.accepted = result_.accepted.value_or(0) + *counts.accepted;
  }
  const auto same = [&](size_t other) {
    return reply(other, prompt).ok() &&
           same_answer(answer(found), answer(reply(other, prompt)), result_.by_ids);
  };
  if (same(0)) {
    ++result_.identical;
    result_.tokens += result_.by_ids ? static_cast<int64_t>(answer(found).ids.size())
                                     : std::max<int64_t>(0, counts.new_tokens.value_or(0));
    return;
  }
  EndpointDivergence d;
  d.prompt = prompt;
  d.pass = pass;
  if (counts.drafted && counts.accepted) d.refused = *counts.drafted - *counts.accepted;
  // The plain answer that is alike for longest.
  size_t nearest = 0;
  for (size_t other = 0; other < result_.passes.size(); ++other) {
    if (result_.passes[other].speculative || !reply(other, prompt).ok()) continue;
    d.own_answer = d.own_answer || same(other);
    const size_t common =
        common_length(answer(found), answer(reply(other, prompt)), result_.by_ids);
    if (other == 0 || common > d.index) d.index = common, nearest = other;
  }
  if (result_.by_ids) result_.tokens += static_cast<int64_t>(d.index);
  if (d.own_answer) {
    d.kind = DivergenceKind::kNearTie;
    nearest = 0;
    d.index = common_length(answer(found), answer(reply(0, prompt)), result_.by_ids);
  }
  result_.divergences.push_back(std::move(d));
  nearest_.push_back(nearest);
}

bool EndpointComparison::is_right(size_t pass, size_t prompt) const {
  return reply(pass, prompt).ok() && reply(0, prompt).ok() && !wrong_.contains({pass, prompt});
}

// Whether what is wrong keeps to answers with refused drafts, more than by chance.
bool EndpointComparison::only_behind_refusals() const {
  int with = 0, all = 0;
  std::set<size_t> prompts;
  for (size_t pass = 0; pass < result_.passes.size(); ++pass) {
    if (!result_.passes[pass].speculative) continue;
    for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
      const EndpointCounts& counts = reply(pass, prompt).counts;
      if (!reply(pass, prompt).ok() || !counts.drafted || !counts.accepted) continue;
      const bool refused = *counts.drafted > *counts.accepted;
      ++all;
      with += refused ? 1 : 0;
      if (!wrong_.contains({pass, prompt})) continue;
      if (!refused) return false;
      prompts.insert(prompt);
    }
  }
  return all > 0 && !prompts.empty() &&
         std::pow(static_cast<double>(with) / all, static_cast<double>(prompts.size())) <
             kChanceOfPattern;
}

void EndpointComparison::find_signs(EndpointDivergence& d, bool behind_refusals) const {
  const EndpointPass& here = result_.passes[d.pass];
  bool right_alone = false, right_before = false, right_later = false;
  for (size_t pass = 0; pass < result_.passes.size(); ++pass) {
    const EndpointPass& other = result_.passes[pass];
    if (!other.speculative || !is_right(pass, d.prompt)) continue;
    right_alone |= here.clients > 1 && other.clients == 1 && other.restart == here.restart;
    right_before |= other.clients == here.clients && other.restart < here.restart;
    right_later |= other.clients == here.clients && other.restart > here.restart;
  }
  if (right_alone) d.signs.emplace_back("only with neighbours");
  if (right_before) d.signs.emplace_back("only after a restart");
  if (right_later) d.signs.emplace_back("gone after a restart");
  if (behind_refusals) d.signs.emplace_back("only where drafts were refused");
  if (d.followed >= kLeastFollowed && 2 * d.foreign >= d.followed)
    d.signs.emplace_back("garbage follows");
  if (!d.signs.empty()) d.kind = DivergenceKind::kStateFault;
}

void EndpointComparison::judge_all() {
  DivergenceProbe probe(plain_, prompts_, options_.clients.back(), options_.stop_ids, result_.range,
                        result_.by_ids);
  int followed = 0;
  for (size_t i = 0; i < result_.divergences.size(); ++i) {
    EndpointDivergence& d = result_.divergences[i];
    probe.look(d, reply(nearest_[i], d.prompt), reply(d.pass, d.prompt));
    if (d.kind != DivergenceKind::kDiffers) continue;
    wrong_.insert({d.pass, d.prompt});
    if (followed++ < kMostFollowed) probe.follow(d, reply(d.pass, d.prompt));
  }
  const bool behind_refusals = only_behind_refusals();
  for (EndpointDivergence& d : result_.divergences)
    if (d.kind == DivergenceKind::kDiffers) find_signs(d, behind_refusals);
  if (result_.trouble.empty()) result_.trouble = probe.trouble();
}

}  // namespace

int EndpointIdentity::count(DivergenceKind kind) const {
  return static_cast<int>(std::count_if(divergences.begin(), divergences.end(),
                                        [&](const auto& d) { return d.kind == kind; }));
}

EndpointIdentity compare_endpoints(const EndpointServer& speculative, const EndpointServer& plain,
                                   const std::vector<EndpointPrompt>& prompts,
                                   const EndpointIdentityOptions& options) {
  return EndpointComparison(speculative, plain, prompts, options).run();
}

}  // namespace evalrun::runners
