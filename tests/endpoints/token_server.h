// Servers without a network: a model of twelve tokens whose logits come from a hash of the text, a
// count of clients and restarts, and faults to plant.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/rng.h"
#include "runners/verify/endpoints/endpoint_answers.h"
#include "tests/endpoints/memory_server.h"

namespace evalrun::tests {

inline constexpr int kFakeVocabulary = 12;
inline constexpr size_t kFakePrompt = 2;  // tokens of a prompt: its number and 100

// `noise`: of a logit at most half of it, by `salt`, as other orders of additions would give.
inline std::vector<double> fake_logits(std::span<const int32_t> text, uint64_t salt, double noise) {
  uint64_t hash = text.size();
  for (const int32_t token : text.last(std::min<size_t>(text.size(), 3)))
    hash = base::combine_seeds({hash, static_cast<uint64_t>(token)});
  hash = base::combine_seeds({hash, static_cast<uint64_t>(text[0])});
  base::Rng rng(hash), other(base::combine_seeds({hash, salt, 17}));
  std::vector<double> logits(kFakeVocabulary);
  for (double& logit : logits) logit = 5 * rng.uniform() + noise * (other.uniform() - 0.5);
  return logits;
}

inline int32_t fake_best(std::span<const double> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}
inline int32_t fake_worst(std::span<const double> logits) {
  return static_cast<int32_t>(std::min_element(logits.begin(), logits.end()) - logits.begin());
}

// Tokens by falling logit.
inline std::vector<int32_t> fake_order(std::span<const double> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

// Temperature and top-k; `tilt` of the probability goes from the best token to the second.
inline std::vector<double> fake_law(std::span<const double> logits,
                                    const engine::SamplingParams& sampling, double tilt) {
  const std::vector<int32_t> order = fake_order(logits);
  const size_t kept = sampling.top_k > 0 ? static_cast<size_t>(sampling.top_k) : order.size();
  std::vector<double> prob(logits.size());
  double sum = 0;
  for (size_t i = 0; i < std::min(kept, order.size()); ++i) {
    const auto at = static_cast<size_t>(order[i]);
    prob[at] =
        std::exp((logits[at] - logits[static_cast<size_t>(order[0])]) / sampling.temperature);
    sum += prob[at];
  }
  for (double& p : prob) p /= sum;
  const double moved = std::min(tilt, prob[static_cast<size_t>(order[0])]);
  prob[static_cast<size_t>(order[0])] -= moved;
  prob[static_cast<size_t>(order[1])] += moved;
  return prob;
}

// Where a fault may strike.
struct FakePlace {
  int32_t prompt = 0;
  size_t index = 0;  // of the answer's tokens
  int clients = 1, restart = 0;
  std::span<const double> logits;
};

// A server of that model.
struct TokenServer : MemoryServer {
  TokenServer() {
    abilities = {.takes_ids = true,
                 .gives_ids = true,
                 .seeded = true,
                 .counts_drafts = true,
                 .log_probs = true,
                 .cache_off = true};
    model = "fake";
    keeps_requests = false;  // there are many
    answer = [this](const runners::EndpointRequest& request) { return decode(request); };
  }

  std::string name;
  double noise = 0;  // by clients and restarts
  double tilt = 0;
  std::function<std::optional<int32_t>(const FakePlace&)> wrong;  // token instead
  std::function<engine::SamplingParams(engine::SamplingParams)> applied;
  std::function<void(const runners::EndpointRequest&, runners::EndpointReply&)> spoil;
  std::optional<int64_t> drafted, accepted;  // of each answer
  uint64_t salt = 0;
  int restart = 0;

 private:
  runners::EndpointReply decode(const runners::EndpointRequest& request) const {
    runners::EndpointReply reply;
    std::vector<int32_t> text = read_prompt_of(request);
    engine::SamplingParams sampling = request.sampling;
    if (applied) sampling = applied(sampling);
    base::Rng rng(request.seed * 2 + salt);
    for (int i = 0; i < request.max_new; ++i) {
      const std::vector<double> logits = fake_logits(text, salt_now(), noise);
      int32_t token = fake_best(logits);
      if (!sampling.greedy()) {
        const std::vector<double> law = fake_law(logits, sampling, tilt);
        double left = rng.uniform();
        token = 0;
        while (token + 1 < kFakeVocabulary && left >= law[static_cast<size_t>(token)])
          left -= law[static_cast<size_t>(token++)];
      }
      if (wrong)
        token =
            wrong({text[0], text.size() - kFakePrompt, clients, restart, logits}).value_or(token);
      text.push_back(token);
      if (abilities.gives_ids) reply.ids.push_back(token);
      reply.text += word(token);
      if (request.log_probs > 0) reply.log_probs.push_back(list(logits, token, request.log_probs));
    }
    reply.counts.drafted = drafted;
    reply.counts.accepted = accepted;
    reply.stop = runners::EndpointStop::kLimit;
    if (spoil) spoil(request, reply);
    return reply;
  }
  // Letters, so that a text can be read back: a server that takes text alone has one token a byte.
  static std::string word(int32_t token) { return std::string(1, static_cast<char>('a' + token)); }
  // Of text: "N:" and the answer so far.
  std::vector<int32_t> read_prompt_of(const runners::EndpointRequest& request) const {
    if (abilities.takes_ids) return request.prompt_ids;
    std::vector<int32_t> text = {std::stoi(request.prompt_text), 100};
    for (size_t i = request.prompt_text.find(':') + 1; i < request.prompt_text.size(); ++i)
      text.push_back(request.prompt_text[i] - 'a');
    return text;
  }
  uint64_t salt_now() const {
    return base::combine_seeds(
        {salt, static_cast<uint64_t>(clients.load()), static_cast<uint64_t>(restart)});
  }
  std::vector<runners::EndpointLogProb> list(std::span<const double> logits, int32_t token,
                                             int n) const {
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    const auto entry = [&](int32_t t) {
      return runners::EndpointLogProb{abilities.gives_ids ? t : -1, word(t),
                                      logits[static_cast<size_t>(t)] - std::log(sum)};
    };
    std::vector<runners::EndpointLogProb> entries = {entry(token)};
    const std::vector<int32_t> order = fake_order(logits);
    for (int i = 0; i < std::min(n, kFakeVocabulary); ++i)
      entries.push_back(entry(order[static_cast<size_t>(i)]));
    return entries;
  }
};

inline runners::EndpointServer serve(TokenServer& server) {
  return {server.name,
          [&server] { return std::make_unique<MemoryEndpoint>(runners::EndpointSpec(), server); }};
}

inline std::vector<runners::EndpointPrompt> fake_prompts(int n) {
  std::vector<runners::EndpointPrompt> prompts;
  for (int i = 0; i < n; ++i)
    prompts.push_back({"fake/" + std::to_string(i), "ordinary", {i, 100}, std::to_string(i) + ":"});
  return prompts;
}

}  // namespace evalrun::tests
