#include "runners/load/load_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/base/error.h"
#include "engine/base/parse_number.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "runners/plan/schedule.h"

namespace evalrun::runners {
namespace {

constexpr int kMostLoadClients = 1024;
constexpr double kHighestLoadRate = 10'000;

void check_load_specs(const std::vector<EndpointSpec>& servers) {
  if (servers.empty())
    throw base::usage_error("no server to load",
                            "name one or more: --endpoint NAME=URL; the first is the baseline");
  std::set<std::string> names;
  for (const EndpointSpec& server : servers)
    if (!names.insert(server.name).second)
      throw base::usage_error(fmt::format("--endpoint: two servers are called '{}'", server.name),
                              "give each a name of its own: --endpoint NAME=URL");
}

// The prompts as they are sent: the order, the ids and the tokens, or the text where there are
// none.
std::string hash_of_load_prompts(const std::vector<LoadPrompt>& prompts) {
  std::string all;
  for (const LoadPrompt& p : prompts) {
    all += fmt::format("{}\n{}\n", p.id.size(), p.id);
    for (const int32_t id : p.request.prompt_ids) all += fmt::format("{},", id);
    all += fmt::format("\n{}\n{}\n", p.request.prompt_text.size(), p.request.prompt_text);
  }
  return base::sha256_hex(all);
}

void refuse_level_twice(const std::vector<results::LoadLevel>& levels, const std::string& where) {
  for (size_t i = 0; i < levels.size(); ++i)
    if (std::find(levels.begin(), levels.begin() + static_cast<std::ptrdiff_t>(i), levels[i]) !=
        levels.begin() + static_cast<std::ptrdiff_t>(i))
      throw base::usage_error(fmt::format("{}: {} twice", where, to_string(levels[i])),
                              "name every level once; --repeats measures all of them again");
}

}  // namespace

int64_t LoadPlan::requests() const {
  return int64_t{setup.repeats} * static_cast<int64_t>(setup.levels.size()) *
         static_cast<int64_t>(servers.size()) * static_cast<int64_t>(prompts.size());
}

int slices_for(int prompts, const results::LoadLevel& level, int block) {
  if (block == 0) {
    block = (prompts + 3) / 4;
    if (!level.open()) block = std::max(block, 4 * level.clients);
  }
  return std::max(1, prompts / block);
}

std::pair<size_t, size_t> slice_of(size_t prompts, int slices, int i) {
  const auto n = static_cast<size_t>(slices), at = static_cast<size_t>(i);
  return {prompts * at / n, prompts * (at + 1) / n};
}

std::vector<results::LoadPlace> load_order(const results::LoadSetup& setup) {
  std::vector<std::vector<results::LoadPlace>> by_repeat(static_cast<size_t>(setup.repeats));
  for (size_t level = 0; level < setup.levels.size(); ++level) {
    // A slice takes the place of a prompt.
    ScheduleShape shape;
    shape.waves = waves_of_one(setup.slices[level]);
    shape.n_arms = static_cast<int>(setup.servers.size());
    shape.repeats = setup.repeats;
    const uint64_t seed = base::combine_seeds({setup.seed, level});
    for (const Visit& v : make_schedule(shape, Order::kInterleaved, seed))
      by_repeat[static_cast<size_t>(v.repeat)].push_back(
          {v.repeat, static_cast<int>(level), v.prompt, v.arm});
  }
  std::vector<results::LoadPlace> order;
  for (const auto& of : by_repeat) order.insert(order.end(), of.begin(), of.end());
  return order;
}

std::vector<int64_t> arrival_times(const results::LoadSetup& setup, const results::LoadPlace& place,
                                   size_t n) {
  const double rate = setup.levels[static_cast<size_t>(place.level)].rate;
  base::Rng rng(base::combine_seeds({setup.seed, 0x4c4f4144, static_cast<uint64_t>(place.level),
                                     static_cast<uint64_t>(place.repeat),
                                     static_cast<uint64_t>(place.slice)}));
  std::vector<int64_t> times;
  double seconds = 0;
  for (size_t i = 0; i < n; ++i) {
    seconds += -std::log1p(-rng.uniform()) / rate;
    times.push_back(static_cast<int64_t>(seconds * 1e9));
  }
  return times;
}

LoadPlan make_load_plan(results::LoadSetup setup, std::vector<EndpointSpec> servers,
                        std::vector<LoadPrompt> prompts, const LoadRequestLimits& limits) {
  check_load_specs(servers);
  if (prompts.empty())
    throw base::usage_error("no prompt to ask", "name a data set with prompts: --tasks gsm8k");
  if (setup.levels.empty())
    throw base::usage_error("no level to load a server with", "give --concurrency or --rate");
  LoadPlan plan;
  setup.prompts = static_cast<int>(prompts.size());
  setup.prompts_hash = hash_of_load_prompts(prompts);
  setup.slices.clear();
  for (const results::LoadLevel& level : setup.levels)
    setup.slices.push_back(slices_for(setup.prompts, level, limits.block));
  plan.setup = std::move(setup);
  plan.servers = std::move(servers);
  plan.prompts = std::move(prompts);
  if (plan.requests() > limits.max_requests)
    throw base::usage_error(
        fmt::format("{} requests: {} prompts, {} levels, {} servers, {} repeats; --max-requests "
                    "allows {}",
                    base::with_commas(plan.requests()), plan.prompts.size(),
                    plan.setup.levels.size(), plan.servers.size(), plan.setup.repeats,
                    base::with_commas(limits.max_requests)),
        "lower --limit or --repeats, or raise --max-requests");
  plan.order = load_order(plan.setup);
  return plan;
}

std::vector<results::LoadLevel> closed_levels(std::span<const std::string> words,
                                              const std::string& where) {
  std::vector<results::LoadLevel> levels;
  for (const std::string& word : words) {
    const auto clients = base::parse_number<int>(word);
    if (!clients || *clients < 1 || *clients > kMostLoadClients)
      throw base::usage_error(fmt::format("{}: '{}' is no number of clients from 1 to {}", where,
                                          word, kMostLoadClients),
                              fmt::format("for example {} 1,2,4,8", where));
    levels.push_back({*clients, 0});
  }
  refuse_level_twice(levels, where);
  return levels;
}

std::vector<results::LoadLevel> open_levels(std::span<const std::string> words, int max_clients,
                                            const std::string& where) {
  std::vector<results::LoadLevel> levels;
  for (const std::string& word : words) {
    const auto rate = base::parse_number<double>(word);
    if (!rate || !(*rate > 0) || *rate > kHighestLoadRate)
      throw base::usage_error(fmt::format("{}: '{}' is no rate above 0, up to {} requests a second",
                                          where, word, kHighestLoadRate),
                              fmt::format("for example {} 0.5,1,2", where));
    levels.push_back({max_clients, *rate});
  }
  refuse_level_twice(levels, where);
  return levels;
}

}  // namespace evalrun::runners
