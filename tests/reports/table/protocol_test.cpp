// What the protocol adds to a report: answers that run in a loop, replays, the machine's state, and
// arms of different engine modes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "reports/compare/compare.h"
#include "reports/gate/gate.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using results::GenerationRecord;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using tests::SyntheticArm;

constexpr int64_t kMs = 1'000'000;

void loop(GenerationRecord& g) {
  std::vector<int32_t>& tokens = g.turns[0].tokens;
  std::fill(tokens.end() - 32, tokens.end(), 7);
}

nlohmann::json json_row(const Report& report, const std::string& method) {
  for (const nlohmann::json& row : nlohmann::json::parse(to_json(report)))
    if (row["method"] == method) return row;
  throw std::runtime_error("no row " + method);
}

class ProtocolTest : public ReportTest {
 protected:
  ProtocolTest() { run_.tokens = 61; }
};

// ---- answers that run in a loop ----

TEST_F(ProtocolTest, WithoutLoopsNothingIsSaid) {
  const Report r = report();
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").loops.degenerate, 0);
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").loops.cells, 4);
  EXPECT_FALSE(row(r, "pld:k=4", "gsm8k").loops.speedup_without);
  EXPECT_THAT(to_text(r), Not(HasSubstr("loop")));
}

// The method loops on prompt 1, where it is twice as fast, the baseline on prompt 2.
TEST_F(ProtocolTest, LoopsAreKeptAndCountedOrLeftOutOfBothArms) {
  run_.change = [](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
    if (a.role == "method" && prompt == 1) loop(g), g.turns[0].decode_ns /= 2;
    if (a.role == "baseline" && prompt == 2) loop(g);
  };
  const int64_t id = tests::fill(store_, run_);
  const Report kept = build_report(store_, id);
  const Report left = build_report(store_, id, {.exclude_degenerate = true});
  const ReportRow& with = row(kept, "pld:k=4", "gsm8k");
  const ReportRow& without = row(left, "pld:k=4", "gsm8k");
  for (const ReportRow* r : {&with, &without}) {
    EXPECT_EQ(r->loops.degenerate, 2);
    EXPECT_EQ(r->loops.cells, 4);
    EXPECT_EQ(r->same_tokens.compared, 4) << "tokens and quality are about all answers";
  }
  EXPECT_EQ(row(kept, "ar", "gsm8k").loops.degenerate, 1);
  EXPECT_EQ(row(kept, "ar (A/A)", "gsm8k").loops.degenerate, 1);
  EXPECT_EQ(with.counts.prompts, 4);
  EXPECT_EQ(without.counts.prompts, 2);
  // Prompts 0 and 3 emit 60 and 72 tokens in steps; 10 tokens in 4 steps of 12 ms against 10 ms
  // each.
  EXPECT_EQ(without.acceptance.emitted, 60 + 72);
  EXPECT_DOUBLE_EQ(*without.speed.speedup, 132.0 * 10 / ((24 + 29) * 12));
  EXPECT_DOUBLE_EQ(*with.loops.speedup_without, *without.speed.speedup);
  EXPECT_EQ(with.loops.interval_without->lo, without.speed.interval->lo);
  EXPECT_GT(*with.speed.speedup, *without.speed.speedup);
  // The same by the view.
  double by_view = 0;
  store_.query(
      "SELECT (1.0 * sum(n_decode) / sum(decode_ns)) / (1.0 * sum(base_n_decode) / "
      "sum(base_decode_ns)) FROM v_pair WHERE arm_id = 3 AND NOT degenerate",
      {}, [&](const results::Row& r) {
        by_view = r.number(0);
        return false;
      });
  EXPECT_DOUBLE_EQ(by_view, *without.speed.speedup);

  for (const std::string& text : {to_text(kept), to_markdown(kept)}) {
    EXPECT_THAT(text, HasSubstr("in a loop"));
    EXPECT_THAT(text, HasSubstr("1 of 4 (ar, ar (A/A)); 2 of 4 (pld:k=4)."));
    EXPECT_THAT(text, HasSubstr("They are kept; the speedup without them: pld:k=4 2.08 ["));
  }
  EXPECT_THAT(to_text(left), HasSubstr("2 of 4"));
  EXPECT_THAT(to_text(left), HasSubstr("left out of the speed figures, of both arms"));
  EXPECT_THAT(to_html(kept, store_), HasSubstr("the speedup without them"));
  EXPECT_THAT(to_latex(kept), HasSubstr("Some answers run in a loop."));
  EXPECT_THAT(to_latex(left), HasSubstr("Answers that run in a loop are left out."));
  const nlohmann::json arm = json_row(kept, "pld:k=4");
  EXPECT_EQ(arm["degenerate"], 2);
  EXPECT_EQ(arm["degenerate_left_out"], false);
  EXPECT_DOUBLE_EQ(arm["speedup_without_degenerate"].get<double>(), *without.speed.speedup);
  EXPECT_EQ(json_row(left, "pld:k=4")["degenerate_left_out"], true);
}

TEST_F(ProtocolTest, NothingButLoopsLeavesNoSpeedup) {
  run_.change = [](GenerationRecord& g, const SyntheticArm&, int, int, int) { loop(g); };
  const Report r = report({.exclude_degenerate = true});
  EXPECT_FALSE(row(r, "pld:k=4", "gsm8k").speed.speedup);
  EXPECT_EQ(row(r, "pld:k=4", "gsm8k").loops.degenerate, 4);
  EXPECT_THAT(to_text(r), HasSubstr("4 of 4"));
}

// ---- replays ----

class ReplayReport : public ProtocolTest {
 protected:
  // What the method would have emitted otherwise on prompt 2.
  int64_t fill(int differing, const std::string& key = "run") {
    run_.key = key;
    run_.change = [differing](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
      g.turns[0].asked = static_cast<int64_t>(g.turns[0].tokens.size()) - 1;
      for (int i = 0; a.role == "method" && prompt == 2 && i < differing; ++i)
        g.turns[0].divergences.push_back(
            {.index = i + 1, .expected = 1, .found = 2, .gap = 0.25 * i, .spacing = 0.125});
    };
    const int64_t id = tests::fill(store_, run_);
    store_.execute("UPDATE arm SET settings = '{\"replay\": \"reference\"}'");
    return id;
  }
};

TEST_F(ReplayReport, ShowsDisagreementsAndThatTokensAreEqualByForce) {
  const Report r = build_report(store_, fill(3));
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  ASSERT_TRUE(pld.replay);
  EXPECT_EQ(pld.replay->asked, 60 + 64 + 68 + 72);
  EXPECT_EQ(pld.replay->differing, 3);
  EXPECT_EQ(pld.replay->near_ties, 2);  // gaps of 0 and 0.25, two spacings of 0.125
  EXPECT_EQ(pld.replay->largest_gap, 0.5);
  EXPECT_FALSE(pld.same_tokens.share) << "by force, so it shows nothing";
  EXPECT_TRUE(pld.speed.speedup.has_value());
  EXPECT_EQ(row(r, "ar", "gsm8k").replay->differing, 0);
  for (const std::string& text : {to_text(r), to_markdown(r)}) {
    EXPECT_THAT(text, HasSubstr("by force"));
    EXPECT_THAT(text, HasSubstr("replay: differ"));
    EXPECT_THAT(text, HasSubstr("3 of 264, largest gap 0.500"));
    EXPECT_THAT(text, HasSubstr("0 of 264"));
  }
  EXPECT_THAT(to_html(r, store_), HasSubstr("Places where an arm would have gone on otherwise"));
  EXPECT_THAT(to_html(r, store_), HasSubstr("<td>by force</td>"));
  EXPECT_THAT(to_latex(r),
              AllOf(HasSubstr("& by force"), HasSubstr("made to follow plain decoding")));
  const nlohmann::json arm = json_row(r, "pld:k=4");
  EXPECT_EQ(arm["replay_asked"], 264);
  EXPECT_EQ(arm["replay_differing"], 3);
  EXPECT_EQ(arm["replay_near_ties"], 2);
  EXPECT_EQ(arm["replay_largest_gap"], 0.5);
  EXPECT_TRUE(arm["identical_share"].is_null());
}

TEST_F(ReplayReport, OfARunThatWasNotOneIsSilent) {
  const Report r = report();
  EXPECT_FALSE(row(r, "pld:k=4", "gsm8k").replay);
  EXPECT_THAT(to_text(r), Not(HasSubstr("replay")));
  EXPECT_TRUE(json_row(r, "pld:k=4")["replay_asked"].is_null());
}

// Equal tokens prove nothing there; the gate looks at what the method wanted.
TEST_F(ReplayReport, TheGateRefusesALosslessMethodThatWantedOtherTokens) {
  const int64_t sound = fill(0, "sound"), wrong = fill(1, "wrong");
  const auto lossless = [&](int64_t id) {
    const GateResult g = evaluate_gate(store_, sound, store_, id);
    for (const GateCheck& v : g.checks)
      if (v.metric == "lossless" && v.method == "pld:k=4") return std::pair(g.code, v);
    throw std::runtime_error("no verdict");
  };
  EXPECT_EQ(lossless(sound).second.outcome, Outcome::kOk);
  EXPECT_EQ(lossless(sound).second.n, 264);
  const auto [code, verdict] = lossless(wrong);
  EXPECT_EQ(code, base::ExitCode::kCorrectness);
  EXPECT_EQ(verdict.outcome, Outcome::kCorrectness);
  EXPECT_THAT(verdict.reason, HasSubstr("at 1 of 264 places"));
}

// ---- the machine ----

class ConditionsTest : public ReportTest {
 protected:
  using Clock = std::function<results::ClockRecord(const SyntheticArm&, int n)>;
  // `n` counts the generations of an arm.
  Report with(const Clock& clock) {
    run_.prompts_per_task = 20;
    run_.key += "x";
    run_.change = [=](GenerationRecord& g, const SyntheticArm& a, int prompt, int, int) {
      g.clock = clock(a, prompt);
    };
    return report();
  }
};

TEST_F(ConditionsTest, QuietMachinesAreQuotable) {
  const Report r = with([](const SyntheticArm&, int n) {
    return results::ClockRecord{2600.0 + n % 2, 1000 * kMs, 900 * kMs, 20 * kMs, 10 * kMs, 1};
  });
  EXPECT_EQ(r.conditions.generations, 60);
  EXPECT_EQ(r.conditions.disturbed, 0);
  EXPECT_TRUE(r.conditions.quotable());
  EXPECT_THAT(to_text(r), HasSubstr("2.60 GHz, 2.0 % of the processor time to other processes, "
                                    "1.0 % to other guests: quotable."));
  EXPECT_EQ(json_row(r, "ar")["quotable"], true);
  // Without clocks there is no verdict.
  run_.key = "old", run_.change = nullptr;
  const Report old = report();
  EXPECT_THAT(to_text(old), Not(HasSubstr("quotable")));
  EXPECT_TRUE(json_row(old, "ar")["quotable"].is_null());
}

TEST_F(ConditionsTest, ClocksThatDifferBetweenArmsOrDriftAreNot) {
  Report last;
  const auto at = [&](const std::function<double(const SyntheticArm&, int)>& mhz) {
    last = with([=](const SyntheticArm& a, int n) {
      return results::ClockRecord{mhz(a, n), 1000 * kMs, 900 * kMs, 0, 0, 0};
    });
    return last.conditions.throttling;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(at([](const SyntheticArm& a, int) { return a.role == "method" ? 2019 : 2000; }),
              ElementsAre());
  EXPECT_THAT(at([](const SyntheticArm& a, int) { return a.role == "method" ? 1960 : 2000; }),
              ElementsAre(HasSubstr("pld:k=4 ran at a clock -2.0 % off ar's")));
  EXPECT_THAT(to_text(last), StartsWith("Not quotable: pld:k=4 ran at a clock -2.0 % off ar's, so "
                                        "no speedup here can be trusted. Measure again at a steady "
                                        "clock. "));
  EXPECT_THAT(at([](const SyntheticArm&, int n) { return n < 15 ? 2000 : 1901; }), ElementsAre());
  EXPECT_THAT(at([](const SyntheticArm&, int n) { return n < 10 ? 2000 : 1890; }),
              ElementsAre(HasSubstr("moved by -5.5 % within the run")));
}

TEST_F(ConditionsTest, BusyMachinesAreNot) {
  const auto taken = [&](int disturbed) {
    return with([=](const SyntheticArm& a, int n) {
      const bool busy = a.role == "baseline" && n < disturbed;
      return results::ClockRecord{std::nullopt, 1000 * kMs, 800 * kMs, busy ? 200 * kMs : 0, 0, 0};
    });
  };
  EXPECT_TRUE(taken(6).conditions.quotable());  // of 60
  const Report busy = taken(7);
  EXPECT_FALSE(busy.conditions.quotable());
  EXPECT_THAT(to_text(busy), HasSubstr("NOT QUOTABLE, others had more than a tenth of the "
                                       "processor time during 7 of 60 generations."));
  EXPECT_THAT(to_text(busy), Not(HasSubstr("GHz")));
  EXPECT_THAT(to_text(busy), StartsWith("Not quotable: others had more than a tenth of the "
                                        "processor time during 7 of 60 generations, so no "
                                        "speedup here can be trusted. Measure again on a quiet "
                                        "machine. "));
  EXPECT_EQ(json_row(busy, "ar")["quotable"], false);
}

// 90 % to others and yet quotable: short generations, which lose less than 50 ms.
TEST_F(ConditionsTest, WhyABusyMachineIsQuotableIsSaid) {
  const Report r = with([](const SyntheticArm&, int) {
    return results::ClockRecord{std::nullopt, 20 * kMs, 1 * kMs, 18 * kMs, 0, 0};
  });
  EXPECT_TRUE(r.conditions.quotable());
  EXPECT_THAT(to_text(r), HasSubstr("90.0 % of the processor time to other processes, 0.0 % to "
                                    "other guests: quotable all the same, as others took both 50 "
                                    "ms and a tenth of the processor time during 0 of 60 "
                                    "generations only."));
}

TEST_F(ConditionsTest, WeightsReadAreComparedWithTheMemory) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_FALSE(row(build_report(store_, id), "ar", "gsm8k").why.bandwidth);
  store_.add_environment(id, "read_bandwidth", "20000000000");
  store_.add_environment(id, "forward_bytes", "100000000");
  const Report r = build_report(store_, id);
  // 0.1 GB in each step of 10 ms and of 12 ms, of 20 GB/s.
  EXPECT_DOUBLE_EQ(*row(r, "ar", "gsm8k").why.bandwidth, 0.5);
  EXPECT_DOUBLE_EQ(*row(r, "pld:k=4", "gsm8k").why.bandwidth, 0.5 / 1.2);
  EXPECT_THAT(to_text(r), HasSubstr("bandwidth"));
  EXPECT_DOUBLE_EQ(json_row(r, "ar")["bandwidth_share"].get<double>(), 0.5);
}

// ---- one engine mode ----

TEST_F(ReportTest, ArmsOfAnotherEngineModeThanTheirReferenceAreRefused) {
  run_.arms = tests::arms_with_a_tuned_target();
  run_.prompts_per_task = 24;
  const int64_t id = tests::fill(store_, run_);
  EXPECT_NO_THROW(build_report(store_, id));
  const auto refused = [&](const std::string& arm, const std::string& change,
                           const std::string& back, const std::string& named) {
    const auto set = [&](const std::string& what) {
      store_.execute("UPDATE arm SET " + what + " WHERE label = ?", {arm});
    };
    set(change);
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { build_report(store_, id); }, [&] { evaluate_gate(store_, id, store_, id); }}) {
      try {
        use();
        ADD_FAILURE() << "accepted: " << arm << " " << change;
      } catch (const base::Error& e) {
        EXPECT_EQ(e.code(), base::ExitCode::kEnvironment);
        EXPECT_THAT(e.what(), HasSubstr(named));
      }
    }
    set(back);
  };
  refused("pld:k=4", "dtype = 'q4'", "dtype = 'f32'", "pld:k=4 was measured with dtype 'q4', ar");
  refused("ar (A/A)", "threads = 1", "threads = 2", "threads '1', ar with '2'");
  refused("pld:k=4", "isa = 'avx2'", "isa = 'avx512'", "isa");
  refused("pld:k=4", "device = 'gpu'", "device = 'cpu'", "device");
  refused("pld:k=4", "batch = 2", "batch = 1", "batch");
  refused("pld:k=4", "kv_cache = 0", "kv_cache = 1", "KV cache 'off'");
  refused("pld:k=4", "settings = '{\"kv_dtype\": \"int8\"}'", "settings = '{}'", "kv_dtype 'int8'");
  refused("pld:k=4", "settings = '{\"replay\": \"reference\"}'", "settings = '{}'", "replay");
  // Each with its own reference: ar_tuned is space's.
  refused("space", "threads = 1", "threads = 2", "space was measured with threads '1', ar_tuned");
}

}  // namespace
}  // namespace evalrun::reports
