#include "runners/verify/endpoints/endpoint_divergence.h"

#include <algorithm>
#include <cmath>

namespace evalrun::runners {
namespace {

constexpr int kTokensFollowed = 6;
constexpr int kTokensPastPrefix = 8;  // of text, until the place of the difference is passed
constexpr size_t kTextShown = 60;

std::string shown_text(std::string_view text) {
  size_t n = std::min(text.size(), kTextShown);
  while (n > 0 && n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) --n;
  return std::string(text.substr(0, n));
}

size_t common_bytes(std::string_view a, std::string_view b) {
  const size_t n = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < n && a[i] == b[i]) ++i;
  return i;
}

// The entry that a choice is, nullptr when it is not listed.
const EndpointLogProb* entry_of(std::span<const EndpointLogProb> list, const TokenChoice& choice,
                                bool by_ids) {
  const EndpointLogProb* best = nullptr;
  for (const EndpointLogProb& entry : list) {
    if (!std::isfinite(entry.log_prob)) continue;
    if (by_ids && entry.token >= 0) {
      if (choice.id >= 0 && entry.token == choice.id) return &entry;
      continue;
    }
    if (entry.text.empty() || !choice.rest.starts_with(entry.text)) continue;
    if (best == nullptr || entry.text.size() > best->text.size()) best = &entry;
  }
  return best;
}

int32_t id_at(std::span<const int32_t> ids, size_t index) {
  return index < ids.size() ? ids[index] : -1;
}

// Tokens of an answer before byte `border`, by the token texts of its log-probabilities; nullopt
// where these do not tell.
std::optional<size_t> tokens_before(const EndpointReply& reply, size_t border) {
  size_t begin = 0;
  for (size_t i = 0; i < reply.log_probs.size(); ++i) {
    if (begin == border) return i;
    if (reply.log_probs[i].empty()) return std::nullopt;
    begin += reply.log_probs[i][0].text.size();
  }
  return begin == border ? std::optional<size_t>(reply.log_probs.size()) : std::nullopt;
}

// What an answer begins with, as a key.
std::string prefix_of(const EndpointAnswer& answer, size_t length, bool by_ids) {
  if (!by_ids) return std::string(answer.text.substr(0, length));
  std::string key;
  for (const int32_t id : answer.ids.first(length)) key += std::to_string(id) + " ";
  return key;
}

// Whether an answer of the plain server after the prefix is what `rest` is past byte `index`.
bool gives_text(const EndpointReply& reply, std::string_view rest, size_t index) {
  if (rest.size() <= index) return reply.text.size() == rest.size() && rest == reply.text;
  return common_bytes(reply.text, rest) > index;
}

}  // namespace

const char* to_string(DivergenceKind kind) {
  switch (kind) {
    case DivergenceKind::kNearTie:
      return "near tie";
    case DivergenceKind::kStateFault:
      return "state fault";
    case DivergenceKind::kDiffers:
      return "differs";
    case DivergenceKind::kOpen:
      return "open";
  }
  return "";
}

std::optional<LogProbGap> gap_between(std::span<const EndpointLogProb> list,
                                      const TokenChoice& expected, const TokenChoice& found,
                                      bool by_ids) {
  const EndpointLogProb* a = entry_of(list, expected, by_ids);
  const EndpointLogProb* b = entry_of(list, found, by_ids);
  if (a == nullptr || a == b) return std::nullopt;
  if (b != nullptr) return LogProbGap{std::abs(a->log_prob - b->log_prob), false};
  double least = a->log_prob;
  for (const EndpointLogProb& entry : list)
    if (std::isfinite(entry.log_prob)) least = std::min(least, entry.log_prob);
  return LogProbGap{a->log_prob - least, true};
}

size_t token_border(const EndpointReply& reply, size_t index) {
  size_t begin = 0;
  bool known = !reply.log_probs.empty();
  for (const auto& list : reply.log_probs) {
    if (list.empty() || list[0].text.empty() ||
        !std::string_view(reply.text).substr(begin).starts_with(list[0].text)) {
      known = false;
      break;
    }
    if (begin + list[0].text.size() > index) return begin;
    begin += list[0].text.size();
  }
  if (known) return std::min(begin, index);
  const size_t space = std::string_view(reply.text).substr(0, index).rfind(' ');
  return space == std::string_view::npos ? 0 : space;
}

DivergenceProbe::DivergenceProbe(const EndpointServer& plain,
                                 const std::vector<EndpointPrompt>& prompts, int clients,
                                 std::span<const int32_t> stop_ids, const PlainRange& range,
                                 bool by_ids)
    : plain_(plain),
      prompts_(prompts),
      clients_(clients),
      stop_ids_(stop_ids),
      range_(range),
      by_ids_(by_ids) {
  const EndpointAbilities abilities = plain.connect()->abilities();
  takes_ids_ = abilities.takes_ids;
  log_probs_ = abilities.log_probs;
}

// The prompt and the first `length` of an answer to it: tokens where the server takes ids, else
// bytes.
EndpointRequest DivergenceProbe::request_after(size_t prompt, const EndpointReply& answer,
                                               size_t length) const {
  EndpointRequest request;
  request.log_probs = log_probs_ ? kEndpointLogProbs : 0;
  request.prompt_ids = prompts_[prompt].ids;
  request.prompt_text = prompts_[prompt].text;
  request.max_new = by_ids_ ? 1 : kTokensPastPrefix;
  if (takes_ids_) {
    const auto n = static_cast<std::ptrdiff_t>(std::min(length, answer.ids.size()));
    request.prompt_ids.insert(request.prompt_ids.end(), answer.ids.begin(), answer.ids.begin() + n);
  } else {
    request.prompt_ids.clear();
    request.prompt_text += answer.text.substr(0, length);
  }
  return request;
}

void DivergenceProbe::widen_gap(EndpointDivergence& d, std::span<const EndpointLogProb> list,
                                const TokenChoice& expected, const TokenChoice& found) const {
  const auto gap = gap_between(list, expected, found, by_ids_);
  if (!gap || (d.gap && *d.gap >= gap->value)) return;
  d.gap = gap->value;
  d.at_least = gap->at_least;
}

void DivergenceProbe::ask_at_prefix(EndpointDivergence& d, const EndpointReply& expected,
                                    const EndpointReply& found) {
  const size_t border = by_ids_ ? d.index : token_border(expected, d.index);
  const TokenChoice theirs{
      d.expected, by_ids_ ? std::string_view() : std::string_view(expected.text).substr(border)};
  const TokenChoice ours{
      d.found, by_ids_ ? std::string_view() : std::string_view(found.text).substr(border)};
  const auto tokens = by_ids_ ? std::optional(d.index) : tokens_before(expected, border);
  // The list that came with the plain server's own answer. It has one for each token.
  if (tokens && *tokens < expected.log_probs.size())
    widen_gap(d, expected.log_probs[*tokens], theirs, ours);
  if (!can_ask() || looked_at_++ >= kMostLookedAt || !trouble_.empty()) return;
  if (takes_ids_ && (!tokens || *tokens > expected.ids.size())) return;
  const EndpointRequest request = request_after(d.prompt, expected, takes_ids_ ? *tokens : border);
  // At rest, then beside others, where its sums may be added in another order.
  const std::vector<EndpointRequest> crowd(static_cast<size_t>(std::max(2, clients_)), request);
  for (const size_t n : {size_t{1}, crowd.size()}) {
    const EndpointReplies got =
        ask_with_clients(plain_, std::span(crowd).first(n), static_cast<int>(n));
    if (trouble_.empty()) trouble_ = got.trouble;
    for (const EndpointReply& reply : got.replies) {
      if (!reply.ok()) continue;
      ++d.asked;
      const EndpointAnswer answer = answer_of(reply, stop_ids_);
      d.gave_it += (by_ids_ ? id_at(answer.ids, 0) == d.found
                            : gives_text(reply, ours.rest, d.index - border))
                       ? 1
                       : 0;
      if (!reply.log_probs.empty()) widen_gap(d, reply.log_probs[0], theirs, ours);
    }
  }
}

void DivergenceProbe::look(EndpointDivergence& d, const EndpointReply& expected,
                           const EndpointReply& found) {
  const EndpointAnswer theirs = answer_of(expected, stop_ids_);
  const EndpointAnswer ours = answer_of(found, stop_ids_);
  if (by_ids_) {
    d.expected = id_at(theirs.ids, d.index);
    d.found = id_at(ours.ids, d.index);
  } else {
    d.expected_text = shown_text(theirs.text.substr(std::min(d.index, theirs.text.size())));
    d.found_text = shown_text(ours.text.substr(std::min(d.index, ours.text.size())));
  }
  const std::tuple key{d.prompt, prefix_of(ours, d.index, by_ids_), d.found,
                       by_ids_ ? std::string() : d.found_text};
  if (d.own_answer) {
    d.kind = DivergenceKind::kNearTie;
  } else if (const auto known = known_.find(key); known != known_.end()) {
    d.gap = known->second.gap;
    d.at_least = known->second.at_least;
    d.asked = known->second.asked;
    d.gave_it = known->second.gave_it;
    d.kind = known->second.kind;
  } else {
    ask_at_prefix(d, expected, found);
    const bool within = d.gap && !d.at_least && *d.gap <= range_.bound();
    // Without log-probabilities nothing tells a tie from a fault, where the server has ties.
    const bool tells = d.gap ? d.asked > 0 || !can_ask() : d.asked > 0 && range_.differing == 0;
    d.kind = d.gave_it > 0 || within ? DivergenceKind::kNearTie
             : tells                 ? DivergenceKind::kDiffers
                                     : DivergenceKind::kOpen;
    known_[key] = d;
  }
  if (by_ids_) {
    const size_t at = common_length(theirs, ours, false);
    d.expected_text = shown_text(theirs.text.substr(at));
    d.found_text = shown_text(ours.text.substr(at));
  }
}

void DivergenceProbe::follow(EndpointDivergence& d, const EndpointReply& found) {
  const EndpointAnswer ours = answer_of(found, stop_ids_);
  if (!by_ids_ || !can_ask() || !trouble_.empty()) return;
  std::vector<EndpointRequest> requests;
  std::vector<int32_t> next;
  for (size_t i = d.index + 1; i < ours.ids.size() && next.size() < kTokensFollowed; ++i) {
    requests.push_back(request_after(d.prompt, found, i));
    next.push_back(ours.ids[i]);
  }
  if (requests.empty()) return;
  const EndpointReplies got = ask_with_clients(plain_, requests, 1);
  if (trouble_.empty()) trouble_ = got.trouble;
  for (size_t i = 0; i < next.size(); ++i) {
    const EndpointReply& reply = got.replies[i];
    if (!reply.ok()) continue;
    ++d.followed;
    const int32_t given = id_at(answer_of(reply, stop_ids_).ids, 0);
    if (given == next[i]) continue;
    const auto gap = reply.log_probs.empty()
                         ? std::nullopt
                         : gap_between(reply.log_probs[0], {given, {}}, {next[i], {}}, true);
    if (!gap || gap->at_least || gap->value > range_.bound()) ++d.foreign;
  }
}

}  // namespace evalrun::runners
