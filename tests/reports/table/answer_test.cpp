// What the first lines of a report say.
#include "reports/table/answer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/stats.h"
#include "reports/format.h"
#include "reports/table/comparison_table.h"
#include "tests/reports/rendered.h"
#include "tests/reports/report_fixture.h"

namespace evalrun::reports {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class AnswerTest : public ReportTest {
 protected:
  AnswerTest() {
    run_.prompts_per_task = 40;
    // Prompts differ, as do the arms on each.
    run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                     int) {
      const int64_t own = static_cast<int64_t>(std::hash<std::string>()(a.label) % 7);
      g.turns[0].decode_ns += 1'000'000 * ((prompt * 3 + own * prompt) % 5);
    };
  }
  void add(const std::string& label, int64_t verify_ns, const std::string& lossless = "both") {
    tests::SyntheticArm arm = run_.arms.back();
    arm.label = label, arm.verify_ns = verify_ns, arm.lossless = lossless;
    run_.arms.push_back(arm);
  }
  std::string text() { return answer(report(), "gsm8k"); }
};

TEST_F(AnswerTest, NamesTheFastestWithBothSpeedups) {
  add("lossy", 1'000'000, "none");
  add("slow", 60'000'000);
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_EQ(
      answer(r, "gsm8k"),
      fmt::format("Fastest lossless here: pld:k=4, {}x {} in decoding, {}x {} for whole requests. "
                  "Slower than plain decoding: slow.",
                  number(pld.speed.speedup, 2), bracket(*pld.speed.interval, 2),
                  number(pld.speed.request, 2), bracket(*pld.speed.request_interval, 2)));
  EXPECT_FALSE(row(r, "lossy", "gsm8k").ranking);
  EXPECT_THAT(to_text(r), StartsWith("Fastest lossless here: pld:k=4"));
}

// However fast it is: it is no method.
TEST_F(AnswerTest, NeverNamesSyntheticAcceptance) {
  add("lossy", 1'000'000, "none");
  add("oracle:alpha=1", 1'000'000);
  run_.arms.back().method = "oracle";
  run_.arms.back().settings = {{"synthetic", "acceptance"}};
  const Report r = report();
  EXPECT_THAT(answer(r, "gsm8k"), StartsWith("Fastest lossless here: pld:k=4"));
  EXPECT_THAT(answer(r, "gsm8k"), Not(HasSubstr("oracle")));
  const ReportRow& oracle = row(r, "oracle:alpha=1", "gsm8k");
  EXPECT_FALSE(oracle.ranking);
  EXPECT_GT(oracle.speed.speedup.value_or(0), row(r, "pld:k=4", "gsm8k").speed.speedup.value_or(9));
  const std::string table = to_text(r);
  const size_t line = table.find("Synthetic acceptance: no method");
  ASSERT_NE(line, std::string::npos);
  EXPECT_LT(table.find("Not lossless, and not to be ranked"), line);
  EXPECT_LT(line, table.find("oracle:alpha=1", line));
  for (const auto& json : nlohmann::json::parse(to_json(r)))
    EXPECT_EQ(json["synthetic"], json["method"] == "oracle:alpha=1");
}

TEST_F(AnswerTest, NamesWhatCannotBeToldApart) {
  add("pld:k=5", run_.arms.back().verify_ns);
  EXPECT_THAT(text(), HasSubstr("Cannot be told apart from it: pld:k="));
}

TEST_F(AnswerTest, NeverCallsAWinnerThatThePromptsDoNotSupport) {
  // As fast as plain decoding, by construction.
  run_.arms.resize(2);
  add("even", run_.arms[0].verify_ns);
  run_.arms.back().role = "method";
  run_.arms.back().accepted = {0};
  const std::string said = text();
  EXPECT_THAT(said, ::testing::AnyOf(HasSubstr("is faster than plain decoding here"),
                                     HasSubstr("is shown to be faster than plain decoding")));
  EXPECT_THAT(said, Not(HasSubstr("Fastest lossless")));
}

TEST_F(AnswerTest, LeavesOutAMethodThatGaveOtherTokens) {
  add("wrong", 1'000'000);
  auto change = run_.change;
  run_.change = [change](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                         int repeat, int sample) {
    change(g, a, prompt, repeat, sample);
    if (a.label == "wrong" && prompt == 3) g.turns[0].tokens.back() += 1;
  };
  EXPECT_THAT(text(), StartsWith("Fastest lossless here: pld:k=4"));
}

TEST_F(AnswerTest, ArmsAreComparedWithEachOther) {
  EXPECT_THAT(text(), Not(HasSubstr("compared with each other"))) << "one method";
  run_.key = "more";
  add("slower", 15'000'000);
  add("slowest", 40'000'000);
  const Report r = report();
  const std::string said = to_text(r);
  EXPECT_THAT(said, HasSubstr("compared with each other"));
  EXPECT_THAT(said, HasSubstr("hold for all arms at once"));
  const Ranking& best = *row(r, "pld:k=4", "gsm8k").ranking;
  const Ranking& last = *row(r, "slowest", "gsm8k").ranking;
  EXPECT_EQ(best.lowest, 1);
  EXPECT_FALSE(best.against_fastest_interval);
  EXPECT_GT(last.lowest, best.highest);
  EXPECT_LT(last.against_fastest_interval->hi, 1);
  EXPECT_THAT(to_json(r), HasSubstr("\"rank_lo\": 1"));
}

TEST_F(AnswerTest, FewPromptsAreSaid) {
  run_.prompts_per_task = 4;
  EXPECT_THAT(text(), HasSubstr("From 4 prompts: indicative only."));
  run_.key = "one";
  run_.prompts_per_task = 1;
  EXPECT_EQ(text(), "");
}

// Every form of the report says it before it names a method.
TEST_F(AnswerTest, BeginsWithWhyTheRunIsNotQuotable) {
  const auto with_noise = [&](int64_t percent) {
    const auto change = run_.change;
    run_.key += "x";
    run_.change = [=](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt,
                      int repeat, int sample) {
      change(g, a, prompt, repeat, sample);
      if (a.role == "aa") g.turns[0].decode_ns += g.turns[0].decode_ns * percent / 100;
    };
    const Report r = report();
    run_.change = change;
    return r;
  };
  const Report noisy = with_noise(25);
  const std::string aa = number(row(noisy, "ar (A/A)", "gsm8k").speed.speedup, 2);
  const std::string warning =
      "Not quotable: plain decoding against itself gives " + aa +
      ", so no speedup here can be trusted. Measure again on a quiet machine.";
  EXPECT_THAT(answer(noisy, "gsm8k"), StartsWith(warning + " Fastest lossless here: pld:k=4"));
  EXPECT_THAT(to_text(noisy), StartsWith("Not quotable: "));
  EXPECT_THAT(to_markdown(noisy), StartsWith(warning));
  EXPECT_THAT(to_html(noisy, store_), HasSubstr(warning));
  EXPECT_THAT(to_latex(noisy), HasSubstr("% " + warning + " Fastest lossless here"));
  EXPECT_THAT(to_latex(noisy), HasSubstr("smaller differences mean nothing. " + warning));
  for (const auto& r : nlohmann::json::parse(to_json(noisy))) EXPECT_EQ(r["quotable"], false);

  const Report quiet = with_noise(2);
  EXPECT_THAT(to_html(quiet, store_) + to_text(quiet) + to_latex(quiet),
              Not(HasSubstr("Not quotable")));
  EXPECT_TRUE(nlohmann::json::parse(to_json(quiet))[0]["quotable"].is_null());
}

// Where nothing can be ranked, too.
TEST_F(AnswerTest, TheWarningNeedsNoWinner) {
  run_.prompts_per_task = 1;
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role == "aa") g.turns[0].decode_ns *= 2;
  };
  const std::string said = text();
  EXPECT_THAT(said, StartsWith("Not quotable: plain decoding against itself gives 0.50"));
  EXPECT_THAT(said, ::testing::EndsWith("Measure again on a quiet machine."));
}

TEST_F(AnswerTest, ARequestHoldsThePrefill) {
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  double base = 0, own = 0;
  store_.query(
      "SELECT role, sum(s.prefill_ns + s.draft_prefill_ns + s.decode_ns) FROM v_sample s "
      "JOIN arm a ON a.id = s.arm_id WHERE role IN ('baseline', 'method') GROUP BY role",
      {}, [&](const results::Row& x) {
        (x.text(0) == "baseline" ? base : own) = x.number(1);
        return true;
      });
  EXPECT_NEAR(*pld.speed.request, base / own, 1e-12);  // the tokens are the same
  EXPECT_LT(*pld.speed.request, *pld.speed.speedup);
  EXPECT_TRUE(pld.speed.request_interval);
  EXPECT_EQ(*row(r, "ar", "gsm8k").speed.request, 1);
}

// One prompt has most of the time of requests, but an ordinary share of decoding.
TEST_F(AnswerTest, ARequestFromFewPromptsHasAStar) {
  run_.change = [](results::GenerationRecord& g, const tests::SyntheticArm&, int prompt, int, int) {
    g.turns[0].prefill_ns = prompt == 7 ? 100'000'000'000 : 1'000'000;
  };
  const Report r = report();
  const ReportRow& pld = row(r, "pld:k=4", "gsm8k");
  EXPECT_GT(pld.speed.n_eff, kIndicativeBelow);
  EXPECT_LT(pld.speed.request_n_eff, 2);
  ASSERT_TRUE(pld.speed.request_interval);
  const std::string figure = number(pld.speed.request, 2);
  const std::string range = bracket(*pld.speed.request_interval, 2);
  const Table t = comparison_table(r, "gsm8k", DatasetRows(r, "gsm8k"));
  EXPECT_FALSE(t.rows[1][1].indicative);
  EXPECT_EQ(t.columns[2].name, "request [95 %]");
  EXPECT_EQ(t.rows[0][2].plain(), "1.00");
  EXPECT_EQ(t.rows[1][2].plain(), figure + " " + range + "*");
  EXPECT_THAT(to_text(r), HasSubstr("*: from fewer than 20 prompts of equal weight"));
  EXPECT_THAT(t.caption, HasSubstr("*: from fewer than 20 prompts of equal weight"));
  EXPECT_THAT(to_html(r, store_),
              HasSubstr(fmt::format("<td>{} <span class=\"range\">{}</span><a href=\"#def-indic",
                                    figure, range)));
  const nlohmann::json rows = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(rows[2]["method"], "pld:k=4");
  EXPECT_EQ(rows[2]["request_speedup_n_eff"], pld.speed.request_n_eff);
  EXPECT_TRUE(rows[0]["request_speedup_n_eff"].is_null());
}

// Neither the drafter's prefill nor later turns take part.
TEST_F(AnswerTest, TheFirstTokenTakesThePrefillOfTheFirstTurn) {
  run_.prompts_per_task = 4;
  const double plain[] = {50, 60, 70, 80}, own[] = {55, 72, 77, 96};  // ms: 260 and 300
  run_.change = [&](results::GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int,
                    int) {
    g.turns.push_back(g.turns[0]);
    g.texts.emplace_back("text");
    const bool drafts = a.role == "method";
    g.turns[0].prefill_ns = static_cast<int64_t>(1e6 * (drafts ? own : plain)[prompt]);
    g.turns[0].draft_prefill_ns = drafts ? 30'000'000 : 0;
  };
  const int64_t id = tests::fill(store_, run_);
  const Report r = build_report(store_, id, {.columns = {"first_token_ms", "first_token_ratio"}});
  const SpeedFigures& pld = row(r, "pld:k=4", "gsm8k").speed;
  EXPECT_DOUBLE_EQ(*pld.first_token_ms, 75);
  EXPECT_DOUBLE_EQ(*pld.first_token_ratio, 300.0 / 260);
  // As of a speedup (ReportTest.ByHand); the method's n_eff is the smaller one.
  std::vector<double> logs;
  double squares = 0;
  for (int i = 0; i < 4; ++i) {
    logs.push_back(std::log((300 - own[i]) / (260 - plain[i])));
    squares += own[i] * own[i];
  }
  const double n_eff = 300 * 300 / squares;
  EXPECT_NEAR(pld.first_token_n_eff, n_eff, 1e-9);
  const double half = base::student_t_quantile(0.975, n_eff - 1) * 3 / 2 * base::sample_sd(logs);
  ASSERT_TRUE(pld.first_token_interval);
  EXPECT_NEAR(pld.first_token_interval->lo, 300.0 / 260 * std::exp(-half), 1e-9);
  EXPECT_NEAR(pld.first_token_interval->hi, 300.0 / 260 * std::exp(half), 1e-9);
  const SpeedFigures& ar = row(r, "ar", "gsm8k").speed;
  EXPECT_DOUBLE_EQ(*ar.first_token_ms, 65);
  EXPECT_EQ(*ar.first_token_ratio, 1);
  EXPECT_FALSE(ar.first_token_interval);
  int views = 0;
  store_.query(
      "SELECT avg(s.first_token_ns) FROM v_sample s JOIN arm a ON a.id = s.arm_id "
      "WHERE a.role = 'method'",
      {}, [&](const results::Row& x) {
        EXPECT_EQ(x.number(0), 75e6);
        ++views;
        return true;
      });
  EXPECT_EQ(views, 1);

  const Table t = comparison_table(r, "gsm8k", DatasetRows(r, "gsm8k"));
  ASSERT_EQ(t.columns.size(), 3u);
  EXPECT_EQ(t.columns[1].name, "first token ms");
  EXPECT_EQ(t.columns[2].name, "first token / plain [95 %]");
  EXPECT_EQ(t.rows[1][1].plain(), "75.0");
  EXPECT_EQ(t.rows[1][2].plain(), "1.15 " + bracket(*pld.first_token_interval, 2) + "*");
  EXPECT_THAT(t.caption, HasSubstr("First token: time of the target's prefill, first turns."));
  const nlohmann::json rows = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(rows[0]["first_token_ms"], 65);
  EXPECT_EQ(rows[0]["first_token_ratio"], 1);
  EXPECT_TRUE(rows[0]["first_token_ratio_lo"].is_null());
  EXPECT_TRUE(rows[0]["first_token_ratio_n_eff"].is_null());
  EXPECT_EQ(rows[2]["first_token_ratio"], *pld.first_token_ratio);
  EXPECT_EQ(rows[2]["first_token_ratio_lo"], pld.first_token_interval->lo);
  EXPECT_EQ(rows[2]["first_token_ratio_hi"], pld.first_token_interval->hi);
  EXPECT_EQ(rows[2]["first_token_ratio_n_eff"], pld.first_token_n_eff);
}

// Both intervals stay on one line where what explains them less has no room.
TEST_F(AnswerTest, ANarrowTerminalHasBothIntervals) {
  add("pld:adaptive=true", 12'000'000);
  const Report r = report();
  const Table t = comparison_table(r, "gsm8k", DatasetRows(r, "gsm8k"));
  const std::string text = text_of(t, {.width = 80});
  EXPECT_THAT(text, HasSubstr("(no room for: alpha; COLUMNS=0 shows all)"));
  EXPECT_EQ(text.find("pld:k=4"), text.rfind("pld:k=4")) << "one part";
  const SpeedFigures& pld = row(r, "pld:k=4", "gsm8k").speed;
  EXPECT_THAT(text, HasSubstr(bracket(*pld.interval, 2)));
  EXPECT_THAT(text, HasSubstr(bracket(*pld.request_interval, 2)));
  EXPECT_THAT(text, HasSubstr("tok/s"));
  EXPECT_THAT(text_of(t, {.width = 100}), Not(HasSubstr("no room")));
}

TEST_F(AnswerTest, ColumnsAreThoseAskedFor) {
  const int64_t id = tests::fill(store_, run_);
  const auto header = [&](const std::vector<std::string>& columns) {
    const Report r = build_report(store_, id, {.columns = columns});
    std::vector<std::string> names;
    for (const Column& c : comparison_table(r, "gsm8k", DatasetRows(r, "gsm8k")).columns)
      names.push_back(c.name);
    return names;
  };
  EXPECT_EQ(header({}), (std::vector<std::string>{"method", "speedup [95 %]", "request [95 %]",
                                                  "tok/s", "tau", "alpha", "same tokens"}));
  EXPECT_EQ(header({"de", "tau"}), (std::vector<std::string>{"method", "tau", "DE"}));
  EXPECT_EQ(header({"all"}).size(), column_names().size());
}

// The terminal's width is never passed, whatever is shown.
TEST_F(AnswerTest, NoLineIsWiderThanTheTerminal) {
  run_.tasks = {"gsm8k", "mt_bench"};
  add("self_spec:attn_skip=1;2;3;4;5;6;7;8;9;10;11;12,mlp_skip=1;2;3;4;5;6", 3'000'000);
  add("sps:draft=layers:10,k=4,accept=exact,adaptive=true", 90'000'000);
  const int64_t id = tests::fill(store_, run_);
  for (const size_t width : {40u, 60u, 80u, 100u, 132u}) {
    for (const bool all : {false, true}) {
      ReportOptions options{.explain = all};
      if (all) options.columns = {"all"};
      const std::string text =
          render(document(build_report(store_, id, options)), Format::kText, {.width = width});
      for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\n', at);
        size_t columns = 0;
        for (size_t i = at; i < end; ++i)
          columns += (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
        EXPECT_LE(columns, width) << text.substr(at, end - at);
        at = end + 1;
      }
    }
  }
}

TEST_F(AnswerTest, QualityIsOneLineWhereNothingDiffers) {
  const int64_t id = tests::fill(store_, run_);
  EXPECT_THAT(to_text(build_report(store_, id)),
              HasSubstr("Quality: every answer scores as ar's does: exact@1 0.513"));
  store_.execute(
      "UPDATE score SET value = 1 - value WHERE generation_id IN (SELECT g.id FROM "
      "generation g JOIN arm a ON a.id = g.arm_id WHERE a.role = 'method' LIMIT 1)");
  EXPECT_THAT(to_text(build_report(store_, id)), HasSubstr("quality against ar"));
}

}  // namespace
}  // namespace evalrun::reports
