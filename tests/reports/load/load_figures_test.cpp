// Figures of servers under load, on times that are worked out by hand.
#include "reports/load/load_figures.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace evalrun::reports {
namespace {

using results::LoadBlock;
using results::LoadRequest;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kLoadMs = 1'000'000;

struct LoadPiece {
  int64_t ms = 0, tokens = 0;
};

// Sent at `sent` ms; pieces at times since then; ends with the last one.
LoadRequest load_request(int index, int64_t sent, const std::vector<LoadPiece>& pieces) {
  LoadRequest r;
  r.index = index;
  r.prompt = "p" + std::to_string(index);
  r.scheduled_ns = r.sent_ns = r.end_ns = sent * kLoadMs;
  for (const LoadPiece& p : pieces) {
    r.end_ns = (sent + p.ms) * kLoadMs;
    r.arrivals.push_back({r.end_ns, p.tokens});
    r.tokens += p.tokens;
  }
  if (!r.arrivals.empty()) r.first_ns = r.arrivals.front().ns;
  return r;
}

LoadBlock load_block(const results::LoadPlace& place, std::vector<LoadRequest> requests) {
  LoadBlock b;
  b.place = place;
  b.requests = std::move(requests);
  for (const LoadRequest& r : b.requests) b.wall_ns = std::max(b.wall_ns, r.end_ns);
  return b;
}

results::LoadRun run_of(std::vector<results::LoadLevel> levels, std::vector<LoadBlock> blocks) {
  results::LoadRun run;
  for (const char* name : {"plain", "spec"}) {
    results::LoadServer server;
    server.name = name;
    server.verified = true;
    run.setup.servers.push_back(server);
  }
  run.setup.slices.assign(levels.size(), 8);
  run.setup.levels = std::move(levels);
  run.setup.tasks = "samples";
  run.blocks = std::move(blocks);
  return run;
}

TEST(LoadPercentiles, AreThoseOfBatches) {
  std::vector<PromptTime> times;
  for (int i = 100; i >= 1; --i) times.push_back({static_cast<double>(i), 1, i});
  const LoadPercentiles p = percentiles_by_prompt(times, 1).value();
  EXPECT_EQ(p.p50.value, 50);
  EXPECT_EQ(p.p95.value, 95);
  EXPECT_EQ(p.p99.value, 99);
  EXPECT_EQ(p.prompts, 100);
  // The order statistics that a binomial gives for the median of 100: about 40 to 60.
  EXPECT_NEAR(p.p50.interval->lo, 40, 3);
  EXPECT_NEAR(p.p50.interval->hi, 60, 3);
  EXPECT_LE(p.p99.interval->hi, 100);
}

TEST(LoadPercentiles, PromptsAreTheUnits) {
  // A hundred times of two prompts are two units, not a hundred.
  std::vector<PromptTime> times;
  for (int i = 0; i < 50; ++i) times.push_back({1, 1, 0}), times.push_back({9, 1, 1});
  const LoadPercentiles p = percentiles_by_prompt(times, 1).value();
  EXPECT_EQ(p.prompts, 2);
  EXPECT_EQ(p.p50.interval->lo, 1);
  EXPECT_EQ(p.p50.interval->hi, 9);
  EXPECT_FALSE(percentiles_by_prompt({{1, 3, 0}}, 1)->p50.interval.has_value());
  EXPECT_FALSE(percentiles_by_prompt({{1, 0, 0}}, 1).has_value());
  EXPECT_FALSE(percentiles_by_prompt({}, 1).has_value());
}

TEST(LoadFigures, LatenciesOfOneRequest) {
  // First token after 100 ms, then pieces of 3 and of 1 tokens.
  LoadRequest r = load_request(0, 10, {{100, 1}, {160, 3}, {180, 1}});
  r.scheduled_ns = 4 * kLoadMs;
  const LoadReport report = load_report(run_of({{1, 0}}, {load_block({}, {r})}));
  const LoadRow& row = report.rows.at(0);
  EXPECT_DOUBLE_EQ(row.ttft->p50.value, 106);  // from the schedule
  EXPECT_DOUBLE_EQ(row.latency->p50.value, 186);
  EXPECT_DOUBLE_EQ(row.tpot->p50.value, 80.0 / 4);  // 4 tokens after the first
  EXPECT_DOUBLE_EQ(*row.longest_stall_ms, 60);
  EXPECT_DOUBLE_EQ(row.itl->p50.value, 20);  // 60 over 3 tokens, and 20
  EXPECT_EQ(row.itl->values, 4);
  EXPECT_EQ(row.gap->values, 4);
  EXPECT_DOUBLE_EQ(row.gap->p50.value, 0);  // two gaps of 0, one of 20, one of 60
  EXPECT_DOUBLE_EQ(row.gap->p95.value, 60);
}

TEST(LoadFigures, TokensAreCountedNotPieces) {
  // The same 12 tokens in the same time, one by one and in bursts of four.
  std::vector<LoadPiece> single, bursts;
  for (int i = 1; i <= 12; ++i) single.push_back({10 * i, 1});
  bursts = {{10, 1}, {50, 4}, {90, 4}, {120, 3}};
  const auto of = [](const std::vector<LoadPiece>& pieces) {
    return load_report(run_of({{1, 0}}, {load_block({}, {load_request(0, 0, pieces)})})).rows.at(0);
  };
  const LoadRow a = of(single), b = of(bursts);
  EXPECT_NEAR(a.tok_s->value, 100, 1e-9);
  EXPECT_NEAR(b.tok_s->value, 100, 1e-9);
  EXPECT_DOUBLE_EQ(a.tpot->p50.value, 10);
  EXPECT_DOUBLE_EQ(b.tpot->p50.value, 10);
  EXPECT_DOUBLE_EQ(b.itl->p50.value, 10);
  EXPECT_DOUBLE_EQ(b.gap->p99.value, 40);
  EXPECT_EQ(b.uncounted, 0);
  // Pieces without counts: no ITL of them, but tokens and TPOT by the server's total.
  LoadRequest hidden = load_request(0, 0, bursts);
  for (results::LoadArrival& arrival : hidden.arrivals) arrival.tokens = 0;
  const LoadRow c = load_report(run_of({{1, 0}}, {load_block({}, {hidden})})).rows.at(0);
  EXPECT_EQ(c.uncounted, 1);
  EXPECT_FALSE(c.itl.has_value());
  EXPECT_FALSE(c.full_tok_s.has_value());
  EXPECT_NEAR(c.tok_s->value, 100, 1e-9);
  EXPECT_DOUBLE_EQ(c.tpot->p50.value, 10);
  EXPECT_DOUBLE_EQ(*c.longest_stall_ms, 40);
}

TEST(LoadFigures, ThroughputAndRatio) {
  std::vector<LoadBlock> blocks;
  for (int slice = 0; slice < 3; ++slice) {
    // Two clients: 20 tokens in 100 ms; the second one goes on alone for 100 ms more.
    blocks.push_back(
        load_block({0, 0, slice, 0}, {load_request(2 * slice, 0, {{50, 5}, {100, 5}}),
                                      load_request(2 * slice + 1, 0, {{100, 10}, {200, 10}})}));
    blocks.push_back(
        load_block({0, 0, slice, 1}, {load_request(2 * slice, 0, {{25, 5}, {50, 5}}),
                                      load_request(2 * slice + 1, 0, {{50, 10}, {100, 10}})}));
  }
  const LoadReport report = load_report(run_of({{2, 0}}, blocks));
  const LoadRow &plain = report.rows.at(0), &spec = report.rows.at(1);
  EXPECT_NEAR(plain.tok_s->value, 150, 1e-9);
  EXPECT_NEAR(plain.req_s->value, 10, 1e-9);
  EXPECT_DOUBLE_EQ(*plain.full_tok_s, 200);  // until the first client had nothing to ask
  EXPECT_DOUBLE_EQ(plain.in_flight, 1.5);
  EXPECT_FALSE(plain.tok_s_ratio.has_value());
  EXPECT_NEAR(spec.tok_s_ratio->value, 2, 1e-9);
  EXPECT_NEAR(spec.tpot_ratio->value, 0.5, 1e-9);
}

TEST(LoadFigures, IdleSpeculationCosts) {
  std::vector<LoadBlock> blocks;
  for (int slice = 0; slice < 4; ++slice) {
    LoadRequest idle = load_request(slice, 0, {{10, 1}, {120, 10}});
    LoadRequest busy = load_request(slice, 0, {{10, 1}, {20, 10}});
    idle.drafted = 40, idle.accepted = 0;
    busy.drafted = 40, busy.accepted = 20;
    blocks.push_back(load_block({0, 0, slice, 0}, {load_request(slice, 0, {{10, 1}, {110, 10}})}));
    blocks.push_back(load_block({0, 0, slice, 1}, {slice < 2 ? idle : busy}));
  }
  const LoadReport report = load_report(run_of({{1, 0}}, blocks));
  EXPECT_NEAR(report.rows.at(1).idle_ratio->value, 1.1, 1e-9);
  EXPECT_DOUBLE_EQ(*report.rows.at(1).alpha, 0.25);
  EXPECT_FALSE(report.rows.at(0).idle_ratio.has_value());
  EXPECT_FALSE(report.rows.at(0).alpha.has_value());
}

// 100 requests a second for a second; each takes `ms`, one after the other where `queued`.
LoadBlock open_block(int64_t ms, bool queued) {
  std::vector<LoadRequest> requests;
  int64_t free_at = 0;
  for (int i = 0; i < 100; ++i) {
    const int64_t scheduled = 10 * (i + 1);
    const int64_t begins = queued ? std::max(free_at, scheduled) : scheduled;
    free_at = begins + ms;
    LoadRequest r =
        load_request(i, scheduled, {{free_at - scheduled - 1, 1}, {free_at - scheduled, 1}});
    requests.push_back(r);
  }
  return load_block({}, requests);
}

TEST(LoadFigures, SaturationIsAQueueThatGrows) {
  const auto of = [](const LoadBlock& b) {
    return load_report(run_of({{64, 100}}, {b})).rows.at(0);
  };
  const LoadRow calm = of(open_block(8, true));  // 125 a second could be served
  EXPECT_EQ(calm.saturated, false);
  EXPECT_NEAR(*calm.offered_rps, 100, 3);
  EXPECT_NEAR(*calm.served_rps, 100, 3);
  const LoadRow slow = of(open_block(20, true));  // 50 a second
  EXPECT_EQ(slow.saturated, true);
  EXPECT_NEAR(*slow.served_rps, 50, 3);
  EXPECT_EQ(of(open_block(200, false)).saturated, false);  // slow, but nobody waits
  EXPECT_FALSE(of(open_block(900, false)).saturated.has_value()) << "too short to tell";
  const LoadReport report = load_report(run_of({{64, 100}}, {open_block(20, true)}));
  EXPECT_THAT(render(document(report), Format::kText), HasSubstr("the queue grows"));
  EXPECT_FALSE(load_report(run_of({{8, 0}}, {open_block(20, true)})).rows.at(0).saturated);
}

TEST(LoadFigures, TheKneeIsNamed) {
  const auto level = [](int number, int64_t ms) {
    return load_block({0, number, 0, 0}, {load_request(0, 0, {{1, 1}, {ms, 99}})});
  };
  const LoadReport report =
      load_report(run_of({{1, 0}, {2, 0}, {4, 0}}, {level(0, 1000), level(1, 500), level(2, 480)}));
  EXPECT_THAT(render(document(report), Format::kText),
              HasSubstr("plain: saturated at 2 clients; 4 clients give 104 %"));
}

TEST(LoadFigures, Goodput) {
  LoadRequest failed = load_request(3, 0, {});
  failed.fault = "timeout", failed.problem = "http://x: no answer in 3 s";
  const LoadBlock b = load_block({}, {load_request(0, 0, {{100, 1}, {140, 4}}),   // TPOT 10
                                      load_request(1, 0, {{600, 1}, {640, 4}}),   // TTFT too long
                                      load_request(2, 0, {{100, 1}, {1000, 4}}),  // TPOT too long
                                      failed});
  const LoadReport report =
      load_report(run_of({{4, 0}}, {b}), parse_objective("ttft=500ms,tpot=0.05s", "--slo"));
  const LoadRow& row = report.rows.at(0);
  EXPECT_DOUBLE_EQ(*row.good_share, 0.25);
  EXPECT_DOUBLE_EQ(*row.good_rps, 1);
  EXPECT_LT(row.good_interval->lo, 0.25);
  EXPECT_GT(row.good_interval->hi, 0.25);
  EXPECT_EQ(row.failed, 1);
  EXPECT_NEAR(row.tok_s->value, 15, 1e-9);
  EXPECT_THAT(render(document(report), Format::kText),
              HasSubstr("1 of 4 requests failed, the first one: http://x: no answer in 3 s"));
}

TEST(LoadFigures, ObjectivesAreChecked) {
  const auto refusal = [](const std::string& text) {
    try {
      parse_objective(text, "--slo");
    } catch (const base::Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refusal("nonsense"), HasSubstr("--slo: 'nonsense'"));
  EXPECT_THAT(refusal("ttft=500"), HasSubstr("500ms"));
  EXPECT_THAT(refusal("ttft=0ms"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("ttft=1s,p99=3ms"), HasSubstr("'p99=3ms'"));
  EXPECT_EQ(parse_objective("tpot=50ms", "--slo").tpot_ms, 50);
}

TEST(LoadFigures, AllFailedHasNoSpeeds) {
  LoadRequest failed = load_request(0, 0, {});
  failed.fault = "refused", failed.problem = "http://x: 401";
  const LoadReport report = load_report(run_of({{1, 0}}, {load_block({}, {failed})}));
  EXPECT_TRUE(all_failed(report.rows.at(0)));
  EXPECT_FALSE(report.rows[0].tok_s.has_value());
  EXPECT_FALSE(report.rows[0].ttft.has_value());
  EXPECT_THAT(render(document(report), Format::kText), HasSubstr("http://x: 401"));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_TRUE(json["rows"][0]["tok_s"].is_null());
  EXPECT_EQ(json["rows"][0]["failed"], 1);
}

TEST(LoadFigures, TooFewPromptsForTheClientsAreNamed) {
  results::LoadRun run = run_of({{4, 0}}, {load_block({}, {load_request(0, 0, {{1, 1}, {9, 1}})})});
  run.setup.slices = {2};
  run.setup.prompts = 8;
  EXPECT_THAT(render(document(load_report(run)), Format::kText), Not(HasSubstr("fewer in flight")));
  run.setup.prompts = 6;
  EXPECT_THAT(render(document(load_report(run)), Format::kText),
              HasSubstr("4 clients: blocks of 3 prompts keep fewer in flight"));
}

TEST(LoadFigures, ABusyClientIsNamed) {
  LoadBlock b = load_block({}, {load_request(0, 0, {{1, 1}, {100, 1}})});
  b.cpu_ns = b.wall_ns / 20;
  const auto text = [](const LoadBlock& of) {
    return render(document(load_report(run_of({{1, 0}}, {of}))), Format::kText);
  };
  EXPECT_THAT(text(b), Not(HasSubstr("of a core")));
  b.cpu_ns = b.wall_ns / 5;
  EXPECT_THAT(text(b), HasSubstr("the client itself took 20 % of a core"));
}

}  // namespace
}  // namespace evalrun::reports
