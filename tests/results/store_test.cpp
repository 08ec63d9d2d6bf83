// The store: what goes in comes out, keys, and the views by hand. Unfit files:
// store_files_test.cpp.
#include "results/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "results/certificates.h"
#include "tests/results/store_queries.h"
#include "tests/results/synthetic.h"

namespace evalrun::results {
namespace {

using ::testing::HasSubstr;
using tests::SyntheticRun;
using tests::TempFolder;

TEST(ResultStore, AFactLearntLaterJoinsTheEnvironmentAndStays) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  RunRecord run = run_record("k");
  run.environment["cpu"] = "one";
  const int64_t id = store.add_run(run);
  store.add_environment(id, "row_cost", "{}");
  store.add_environment(id, "row_cost", "{\"other\": 1}");
  store.add_environment(id, "cpu", "two");
  EXPECT_EQ(text(store, "SELECT group_concat(name || '=' || value) FROM environment"),
            "cpu=one,row_cost={}");
}

TEST(Certificates, OneOfAKeyReplacesTheOlderOne) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  EXPECT_FALSE(find_certificate(store, "k"));
  put_certificate(store, {"k", "t1", "pld", "inconclusive", "greedy", "{}"});
  put_certificate(store, {"other", "t1", "sps", "fails", "", "{}"});
  const std::string document =
      R"({"grades": {}, "shown": "greedy: identical; sampling T=1: law not refuted"})";
  put_certificate(store, {"k", "t2", "pld", "holds", "greedy: identical", document});
  const auto found = find_certificate(store, "k");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->created, "t2");
  EXPECT_EQ(found->outcome, "holds");
  EXPECT_EQ(found->proven, "greedy: identical");
  EXPECT_EQ(found->document, document);
  EXPECT_EQ(shown_by(*found), "greedy: identical; sampling T=1: law not refuted");
  EXPECT_EQ(find_certificate(store, "other")->outcome, "fails");
}

TEST(Certificates, AnArmHasOneForEachWayOfSampling) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  const AnswerSampling greedy, inverse{1, 0, 1, "inverse"}, noise{1, 0, 1, "gumbel"},
      cool{0.5, 0, 1, "inverse"};
  EXPECT_EQ(stored_key("k", greedy), "k") << "as files of 1.0 have it";
  EXPECT_EQ(stored_key("k", {1, 0, 1, ""}), stored_key("k", inverse)) << "1.0 stored no sampler";
  for (const AnswerSampling& other :
       {noise, cool, AnswerSampling{1, 5, 1, "inverse"}, AnswerSampling{1, 0, 0.9, "inverse"}})
    EXPECT_NE(stored_key("k", other), stored_key("k", inverse));
  const auto created = [&](const AnswerSampling& sampling) {
    const auto found = certificate_beside(store, "k", sampling);
    return found ? found->created : "none";
  };
  const char *whole = R"({"grades": {}, "greedy": {}})", *sampled = R"({"grades": {}})";
  EXPECT_EQ(created(inverse), "none");
  put_certificate(store, {stored_key("k", noise), "t1", "sps", "holds", "", sampled});
  EXPECT_EQ(created(greedy), "t1") << "there is no other";
  EXPECT_EQ(created(inverse), "t1");
  put_certificate(store, {stored_key("k", inverse), "t2", "sps", "holds", "", whole});
  put_certificate(store, {stored_key("k", noise), "t3", "sps", "holds", "", sampled});
  for (const char* key : {"j", "k1", "kk", "k@", "kA"})
    put_certificate(store, {key, "t9", "sps", "fails", "", whole});
  EXPECT_EQ(created(inverse), "t2") << "not replaced";
  EXPECT_EQ(created(noise), "t3");
  EXPECT_EQ(created(greedy), "t2") << "t3 does not tell of it";
  EXPECT_EQ(created(cool), "t2");
  put_certificate(store, {"k", "t4", "sps", "holds", "greedy: identical", whole});
  EXPECT_EQ(created(greedy), "t4");
  EXPECT_EQ(created(cool), "t4");
  EXPECT_EQ(created(inverse), "t2") << "its own, though an older one";
}

TEST(Certificates, ALawThatWasNotRefutedIsNoLongerCalledProven) {
  const TempFolder folder;
  ResultStore store(folder.file("r.db"));
  put_certificate(store, {"old", "t1", "sps", "holds", "greedy+sampling T=1", "{}"});
  EXPECT_EQ(find_certificate(store, "old")->proven, "greedy");
  EXPECT_EQ(shown_by(*find_certificate(store, "old")), "greedy");
  put_certificate(store, {"older", "t1", "sps", "holds", "sampling T=1", "not JSON"});
  EXPECT_EQ(find_certificate(store, "older")->proven, "");
}

TEST(ResultStore, RoundTrip) {
  TempFolder folder;
  const SyntheticRun run = usual();
  GenerationRecord g = tests::generation(run, run.arms[2], 1, 0, 0);
  g.seed = 0xFFFFFFFFFFFFFFFEull;  // does not fit a signed integer
  g.turns.push_back(g.turns[0]);
  g.turns[1].tokens = {-1, 0, 2147483647};
  g.turns[1].stop = StopReason::kStopToken;
  g.turns[1].nodes = {{.depth = 1, .rank = 0, .tested = 9, .accepted = 2},
                      {.depth = 1, .rank = 15, .tested = 7, .accepted = 1},
                      {.depth = 64, .rank = 0, .tested = 1, .accepted = 0}};
  g.texts = {"first", "second \xF0\x9F\x98\x80"};
  g.turns[0].asked = 30;
  g.turns[1].asked = 2;
  g.turns[1].divergences = {{.index = 1, .expected = 0, .found = 7, .gap = -0.5, .spacing = 0.125},
                            {.index = 2, .expected = 5, .found = 6, .gap = std::nullopt}};
  g.clock = ClockRecord{2600.5, 80, 60, 10, 5, 3, 7'000'000'000};
  g.gpu = GpuRecord{61.5, {}, 5'000'000'000, "power cap", GpuBusy{1, 2, 3, 4, 5, 6}};
  {
    ResultStore store(folder.file("a.db"));
    RunRecord r{.key = "k",
                .label = "l",
                .suite = "s",
                .suite_json = "{}",
                .commit = "c",
                .version = "v",
                .started = "t",
                .command = "evalrun run",
                .environment = {{"cpu", "x"}, {"kernel", "y"}}};
    const int64_t run_id = store.add_run(r);
    ArmRecord a = tests::arm_record(run, run.arms[2]);
    a.settings = {{"EVALRUN_X", "1"}};
    const int64_t arm = store.add_arm(run_id, a);
    PromptRecord p = tests::prompt_record("gsm8k", 1);
    p.reference = "42";
    const int64_t prompt = store.add_prompt(run_id, p);
    EXPECT_FALSE(store.has_generation(arm, prompt, 0, 0));
    store.add_generation(
        run_id, arm, prompt, g,
        {{.evaluator = "e", .version = "1", .value = 0.5, .extracted = "x", .detail = ""},
         {.evaluator = "f",
          .version = "1",
          .value = std::nullopt,
          .extracted = "",
          .status = "odd",
          .detail = ""}});
    EXPECT_TRUE(store.has_generation(arm, prompt, 0, 0));
    EXPECT_FALSE(store.has_generation(arm, prompt, 1, 0));
    EXPECT_FALSE(store.has_generation(arm, prompt, 0, 1));
  }
  const ResultStore store(folder.file("a.db"), ResultStore::Mode::kReadOnly);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM environment"), 2);
  EXPECT_EQ(text(store, "SELECT settings FROM arm"), R"({"EVALRUN_X":"1"})");
  EXPECT_EQ(text(store, "SELECT turns FROM prompt"), R"(["question 1"])");
  EXPECT_EQ(text(store, "SELECT reference FROM prompt"), "42");
  EXPECT_EQ(static_cast<uint64_t>(integer(store, "SELECT seed FROM generation")), g.seed);
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::string> texts;
  store.query(
      "SELECT tokens, text, stop, n_prompt_tokens, prefill_ns, decode_ns FROM turn ORDER BY idx",
      {}, [&](const Row& r) {
        const std::string bytes = r.blob(0);
        std::vector<int32_t> ids(bytes.size() / 4);
        std::memcpy(ids.data(), bytes.data(), bytes.size());
        const TurnRecord& t = g.turns[tokens.size()];
        EXPECT_EQ(r.text(2), to_string(t.stop));
        EXPECT_EQ(r.integer(3), t.n_prompt_tokens);
        EXPECT_EQ(r.integer(4), t.prefill_ns);
        EXPECT_EQ(r.integer(5), t.decode_ns);
        tokens.push_back(ids);
        texts.push_back(r.text(1));
        return true;
      });
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0], g.turns[0].tokens);
  EXPECT_EQ(tokens[1], g.turns[1].tokens);
  EXPECT_EQ(texts, g.texts);
  size_t i = 0;
  store.query(
      "SELECT s.rows, s.drafted, s.drafted_depth, s.accepted, s.emitted, s.target_forwards, "
      "s.draft_ns, s.verify_ns, s.commit_ns, s.other_ns FROM step s JOIN turn t ON t.id = "
      "s.turn_id "
      "WHERE t.idx = 0 ORDER BY s.idx",
      {}, [&](const Row& r) {
        const StepRecord& s = g.turns[0].steps.at(i++);
        const int64_t expected[] = {s.rows,      s.drafted,         s.drafted_depth, s.accepted,
                                    s.emitted,   s.target_forwards, s.draft_ns,      s.verify_ns,
                                    s.commit_ns, s.other_ns};
        for (int c = 0; c < r.columns(); ++c) EXPECT_EQ(r.integer(c), expected[c]) << r.name(c);
        return true;
      });
  EXPECT_EQ(i, g.turns[0].steps.size());
  for (size_t t = 0; t < g.turns.size(); ++t) {
    std::vector<NodeCount> nodes;
    store.query(
        "SELECT n.depth, n.rank, n.tested, n.accepted FROM node n JOIN turn t ON t.id = n.turn_id "
        "WHERE t.idx = ? ORDER BY n.depth, n.rank",
        {static_cast<int64_t>(t)}, [&](const Row& r) {
          nodes.push_back({static_cast<int32_t>(r.integer(0)), static_cast<int32_t>(r.integer(1)),
                           r.integer(2), r.integer(3)});
          return true;
        });
    EXPECT_EQ(nodes, g.turns[t].nodes);
  }
  EXPECT_EQ(integer(store, "SELECT asked FROM generation"), 32);
  EXPECT_EQ(text(store,
                 "SELECT group_concat(t.idx || ':' || d.idx || ' ' || expected || ' ' || found || "
                 "' ' || coalesce(gap, 'none') || ' ' || spacing, '; ') FROM divergence d JOIN "
                 "turn t ON t.id = d.turn_id"),
            "1:1 0 7 -0.5 0.125; 1:2 5 6 none 0.0");
  EXPECT_EQ(text(store,
                 "SELECT device_mhz || ' ' || available_ns || ' ' || own_ns || ' ' || others_ns || "
                 "' ' || steal_ns || ' ' || preempted FROM clock"),
            "2600.5 80 60 10 5 3");
  EXPECT_EQ(
      text(store,
           "SELECT temperature_c || ' ' || coalesce(power_w, 'none') || ' ' || energy_mj || "
           "' ' || slowed_by || ' ' || prefill_ns || ' ' || draft_prefill_ns || ' ' || "
           "draft_ns || ' ' || verify_ns || ' ' || commit_ns || ' ' || graph_misses FROM gpu"),
      "61.5 none 5000000000 power cap 1 2 3 4 5 6");
  // A score whose status is not ok has no value.
  EXPECT_EQ(integer(store, "SELECT count(*) FROM score WHERE value IS NULL"), 1);
  EXPECT_EQ(text(store, "SELECT evaluator FROM score WHERE value = 0.5"), "e");
}

TEST(ResultStore, StepsOfATurnInOrderAndNoMoreThanAsked) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run;
  run.arms = tests::usual_arms();
  tests::fill(store, run);
  int64_t turn = 0;
  store.query(
      "SELECT t.id FROM turn t JOIN generation g ON g.id = t.generation_id JOIN arm a ON a.id = "
      "g.arm_id WHERE a.label = 'pld:k=4' ORDER BY t.id LIMIT 1",
      {}, [&](const Row& r) { return turn = r.integer(0), false; });
  const std::vector<StepRecord> written =
      tests::generation(run, run.arms[2], 0, 0, 0).turns[0].steps;
  const auto same = [](const StepRecord& a, const StepRecord& b) {
    return a.rows == b.rows && a.drafted == b.drafted && a.drafted_depth == b.drafted_depth &&
           a.accepted == b.accepted && a.emitted == b.emitted &&
           a.target_forwards == b.target_forwards && a.draft_ns == b.draft_ns &&
           a.verify_ns == b.verify_ns && a.commit_ns == b.commit_ns && a.other_ns == b.other_ns;
  };
  const std::vector<StepRecord> all = store.steps(turn), some = store.steps(turn, 3);
  EXPECT_TRUE(std::equal(all.begin(), all.end(), written.begin(), written.end(), same));
  ASSERT_EQ(some.size(), 3u);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), written.begin(), same));
  EXPECT_TRUE(store.steps(turn, 0).empty());
  EXPECT_TRUE(store.steps(999'999).empty());
}

TEST(ResultStore, EqualKeysGiveTheExistingRow) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  RunRecord r = run_record("k", "first");
  r.environment = {{"cpu", "x"}};
  const int64_t id = store.add_run(r);
  r.label = "second";
  EXPECT_EQ(store.add_run(r), id);
  EXPECT_EQ(text(store, "SELECT label FROM run"), "first");
  r.key = "other";
  EXPECT_NE(store.add_run(r), id);
  const SyntheticRun run = usual();
  ArmRecord a = tests::arm_record(run, run.arms[0]);
  const int64_t arm = store.add_arm(id, a);
  a.dtype = "other";
  EXPECT_EQ(store.add_arm(id, a), arm);
  const int64_t prompt = store.add_prompt(id, tests::prompt_record("t", 0));
  EXPECT_EQ(store.add_prompt(id, tests::prompt_record("t", 0)), prompt);
  EXPECT_NE(store.add_prompt(id, tests::prompt_record("t", 1)), prompt);
}

TEST(ResultStore, ASecondGenerationForTheSameCellIsRefused) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  const int64_t before = integer(store, "SELECT count(*) FROM generation");
  EXPECT_THROW(store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 0, 0), {}),
               base::InternalError);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), before);
  // The store still works.
  store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {});
  EXPECT_EQ(integer(store, "SELECT count(*) FROM generation"), before + 1);
}

TEST(ResultStore, AFailureInTheMiddleStoresNothing) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  const auto counts = [&] {
    return std::vector<int64_t>{integer(store, "SELECT count(*) FROM generation"),
                                integer(store, "SELECT count(*) FROM turn"),
                                integer(store, "SELECT count(*) FROM step"),
                                integer(store, "SELECT count(*) FROM score")};
  };
  const auto before = counts();
  const ScoreRecord s{
      .evaluator = "twice", .version = "1", .value = 1, .extracted = "", .detail = ""};
  EXPECT_THROW(store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {s, s}),
               base::InternalError);
  EXPECT_EQ(counts(), before);
  EXPECT_FALSE(store.has_generation(1, 1, 9, 0));
  store.add_generation(1, 1, 1, tests::generation(run, run.arms[0], 0, 9, 0), {s});
  EXPECT_TRUE(store.has_generation(1, 1, 9, 0));
}

TEST(ResultStore, FindRunPrefersNumberThenKeyThenNewestLabelThenBaseline) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  EXPECT_FALSE(store.find_run("").has_value());
  const int64_t a = store.add_run(run_record("ka", "x"));
  const int64_t b = store.add_run(run_record("kb", "x"));
  const int64_t c = store.add_run(run_record("kc", fmt::format("{}", a)));
  EXPECT_EQ(store.find_run(""), c);
  EXPECT_EQ(store.find_run("latest"), c);
  EXPECT_EQ(store.find_run(fmt::format("{}", a)), a);  // not the run labelled so
  EXPECT_EQ(store.find_run("ka"), a);
  EXPECT_EQ(store.find_run("x"), b);
  EXPECT_FALSE(store.find_run("main").has_value());
  store.save_baseline("main", a, "first");
  EXPECT_EQ(store.find_run("main"), a);
  store.save_baseline("main", b, "again");
  EXPECT_EQ(store.find_run("main"), b);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM baseline"), 1);
  EXPECT_TRUE(store.remove_baseline("main"));
  EXPECT_FALSE(store.remove_baseline("main"));
}

TEST(ResultStore, RunsOfChecksAreNotTheNewest) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  const int64_t check = store.add_run(run_record("ka", "check"));
  EXPECT_EQ(store.find_run("latest"), check) << "there is no other";
  const int64_t own = store.add_run(run_record("kb", "checked by hand"));
  const int64_t fault = store.add_run(run_record("kc", "check with slow:5%"));
  const int64_t again = store.add_run(run_record("kd", "check"));
  EXPECT_EQ(store.find_run(""), own);
  EXPECT_EQ(store.find_run("check"), again) << "they have names all the same";
  EXPECT_EQ(store.find_run(fmt::format("{}", fault)), fault);
}

TEST(ResultStore, ArmBytesKeepTheirPeak) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  const SyntheticRun run = usual();
  tests::fill(store, run);
  ArmRecord a = tests::arm_record(run, run.arms[0]);
  a.peak_bytes = 500, a.kv_bytes = 7;
  store.update_arm_bytes(1, a);
  a.peak_bytes = 400, a.kv_bytes = 9;
  store.update_arm_bytes(1, a);
  EXPECT_EQ(integer(store, "SELECT peak_bytes FROM arm WHERE id = 1"), 500);
  EXPECT_EQ(integer(store, "SELECT kv_bytes FROM arm WHERE id = 1"), 9);
}

// ---- views, by hand ----

TEST(Views, MedianOverRepeats) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.prompts_per_task = 1;
  run.repeats = 3;
  const int64_t times[] = {900, 100, 300};
  run.change = [&](GenerationRecord& g, const auto&, int, int repeat, int) {
    g.turns[0].decode_ns = times[repeat];
  };
  const int64_t odd = tests::fill(store, run);
  EXPECT_EQ(
      real(store,
           fmt::format("SELECT decode_ns FROM v_sample WHERE run_id = {} AND arm_id = 1", odd)),
      300);
  run.key = "even";
  run.repeats = 2;
  const int64_t even = tests::fill(store, run);
  EXPECT_EQ(real(store, fmt::format("SELECT min(decode_ns) FROM v_sample WHERE run_id = {}", even)),
            500);
  EXPECT_EQ(integer(store, "SELECT min(stable) FROM v_sample"), 1);
}

TEST(Views, ASampleIsUnstableWhenRepeatsDiffer) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.repeats = 3;
  run.change = [&](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int repeat, int) {
    if (a.role == "method" && prompt == 2 && repeat == 1) g.turns[0].tokens[5] += 1;
  };
  tests::fill(store, run);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_sample WHERE NOT stable"), 1);
  EXPECT_EQ(integer(store, "SELECT prompt_id FROM v_sample WHERE NOT stable"), 3);
  // 11 of 12 generations of the method equal the baseline's.
  EXPECT_DOUBLE_EQ(real(store, "SELECT identical_share FROM v_identity WHERE arm_id = 3"),
                   11.0 / 12);
  EXPECT_DOUBLE_EQ(real(store, "SELECT identical_share FROM v_identity WHERE arm_id = 2"), 1);
}

TEST(Views, ArmsOfATunedTargetAreComparedWithItsPlainDecoding) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.arms = tests::arms_with_a_tuned_target();
  // The plain decoding may stand after the method, and need not exist at all.
  std::swap(run.arms[3], run.arms[4]);
  run.arms.push_back(run.arms[3]);
  run.arms.back().label = "space:k=2";
  run.arms.back().model_hash = "another";
  // A second plain decoding of the same target is its own reference and nobody else's.
  run.arms.push_back(run.arms[4]);
  run.arms.back().label = "ar_tuned:adapter=copy";
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.model_hash == "tuned") g.turns[0].tokens[0] += 1;
  };
  tests::fill(store, run);
  run.key = "another run";
  tests::fill(store, run);
  const std::string of_run =
      "SELECT group_concat(pair, ' ') FROM (SELECT a.label || '>' || b.label AS pair FROM "
      "v_reference r JOIN arm a ON a.id = r.arm_id JOIN arm b ON b.id = r.reference_id AND "
      "b.run_id = r.run_id WHERE r.run_id = {} ORDER BY a.id)";
  for (const int id : {1, 2})
    EXPECT_EQ(text(store, fmt::format(fmt::runtime(of_run), id)),
              "ar>ar ar (A/A)>ar pld:k=4>ar space>ar_tuned ar_tuned>ar_tuned space:k=2>ar "
              "ar_tuned:adapter=copy>ar_tuned:adapter=copy");
  EXPECT_EQ(text(store,
                 "SELECT group_concat(identical_share, ' ') FROM (SELECT * FROM v_identity "
                 "WHERE run_id = 1 ORDER BY arm_id)"),
            "1.0 1.0 1.0 1.0 1.0 1.0 1.0");
  const std::string speedup = "SELECT speedup FROM v_speed WHERE arm_id = ";
  EXPECT_DOUBLE_EQ(real(store, speedup + "3"), 152.0 * 10 / (60 * 12));
  EXPECT_DOUBLE_EQ(real(store, speedup + "4"), 152.0 * 8 / (60 * 12));
  EXPECT_DOUBLE_EQ(real(store, speedup + "5"), 1);
}

TEST(Views, FailedGenerationsAndFaultsStayOut) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.arms[2].fault = "slow:10%";
  run.change = [&](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    if (a.role == "aa" && prompt == 0) {
      g.status = "failed: out of memory";
      g.turns.clear(), g.texts.clear();
    }
  };
  tests::fill(store, run);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation WHERE arm_id = 3"), 0);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_generation_all WHERE arm_id = 3"), 4);
  EXPECT_EQ(text(store, "SELECT DISTINCT fault FROM v_sample WHERE arm_id = 3"), "slow:10%");
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_sample WHERE arm_id = 2"), 3);
  EXPECT_EQ(integer(store, "SELECT failed FROM v_count WHERE arm_id = 2"), 1);
  EXPECT_EQ(integer(store, "SELECT generations FROM v_count WHERE arm_id = 2"), 4);
}

// Three arms by four prompts; pld accepts 3, 1, 0, 2 of 4 in turn.
TEST(Views, StepsWithoutADraftAndRows) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int, int, int) {
    if (a.role == "method")
      for (StepRecord& s : g.turns[0].steps)
        if (s.accepted == 0) s.drafted = s.drafted_depth = 0, s.rows = 3;  // two rows beside it
  };
  tests::fill(store, run);
  EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
  const auto of_steps = [&](const std::string& what) {
    return real(store, "SELECT 1.0 * sum(" + what +
                           ") / count(*) FROM step s JOIN turn t ON t.id = s.turn_id "
                           "JOIN generation g ON g.id = t.generation_id WHERE g.arm_id = 3");
  };
  const auto of_view = [&](const std::string& column, int arm) {
    return real(store, fmt::format("SELECT {} FROM v_acceptance WHERE arm_id = {}", column, arm));
  };
  EXPECT_EQ(of_view("no_draft", 1), 1);
  EXPECT_EQ(of_view("rows_per_step", 1), 1);
  EXPECT_EQ(of_view("no_draft", 3), of_steps("s.drafted = 0"));
  EXPECT_EQ(of_view("rows_per_step", 3), of_steps("s.rows"));
  EXPECT_GT(of_view("no_draft", 3), 0.2);
  EXPECT_LT(of_view("no_draft", 3), 0.3);
}

TEST(Views, NodesAreCountedOverAllFinishedGenerations) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.repeats = 2;
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    g.turns[0].nodes.clear();
    if (a.role == "method")
      g.turns[0].nodes = {{.depth = 1, .rank = 0, .tested = 10, .accepted = 5},
                          {.depth = 1, .rank = 1, .tested = 5 + prompt, .accepted = 1}};
    if (prompt == 3) g.status = "failed: of course";
  };
  tests::fill(store, run);
  EXPECT_EQ(text(store,
                 "SELECT group_concat(arm_id || ' ' || depth || '.' || rank || ' ' || accepted || "
                 "'/' || tested || ' ' || share, '; ') FROM v_node_acceptance WHERE fault = ''"),
            "3 1.0 30/60 0.5; 3 1.1 6/36 " + text(store, "SELECT 6.0 / 36"));
}

TEST(Views, DegenerateCellsCountInBothArms) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.tokens = 60;
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    // The method loops on the second prompt, the baseline on the third.
    if ((a.role == "method" && prompt == 1) || (a.role == "baseline" && prompt == 2))
      std::fill(g.turns[0].tokens.end() - 32, g.turns[0].tokens.end(), 7);
  };
  tests::fill(store, run);
  EXPECT_EQ(text(store,
                 "SELECT group_concat(arm_id || ': ' || degenerate || '/' || cells, ' ') FROM "
                 "(SELECT * FROM v_degenerate ORDER BY arm_id)"),
            "1: 1/4 2: 1/4 3: 2/4");
}

TEST(Views, DivergencesAreCountedOverReplaysOnly) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    if (a.role == "aa") return;
    g.turns[0].asked = 10;
    if (a.role != "method" || prompt == 0) return;
    g.turns[0].divergences = {{.index = 1, .gap = 0.2, .spacing = 0.125},
                              {.index = 2, .gap = 3.5, .spacing = 0.125},
                              {.index = 3, .gap = std::nullopt}};
  };
  tests::fill(store, run);
  EXPECT_EQ(text(store,
                 "SELECT group_concat(arm_id || ' ' || differing || '/' || asked || ' ' || "
                 "near_ties || ' ' || coalesce(largest_gap, 'none') || ' ' || rate, '; ') FROM "
                 "(SELECT * FROM v_divergence ORDER BY arm_id)"),
            "1 0/40 0 none 0.0; 3 9/40 3 3.5 0.225");
}

TEST(Views, AGenerationIsDisturbedWhenOthersTookATenth) {
  TempFolder folder;
  ResultStore store(folder.file("a.db"));
  SyntheticRun run = usual();
  run.change = [](GenerationRecord& g, const tests::SyntheticArm& a, int prompt, int, int) {
    constexpr int64_t kMs = 1'000'000;
    const int64_t others[] = {20 * kMs, 60 * kMs, 90 * kMs, 110 * kMs};
    if (a.role == "method")  // 50 ms are within what the kernel may be off by
      g.clock = ClockRecord{.available_ns = (prompt == 0 ? 100 : 1000) * kMs,
                            .others_ns = others[prompt] / 2,
                            .steal_ns = others[prompt] / 2};
  };
  tests::fill(store, run);
  EXPECT_EQ(text(store, "SELECT group_concat(disturbed, ' ') FROM v_clock ORDER BY generation_id"),
            "0 0 0 1");
  EXPECT_DOUBLE_EQ(real(store, "SELECT max(steal_share) FROM v_clock"), 0.1);
}

TEST(Views, AccountingFindsEachKindOfMiscount) {
  const std::vector<std::pair<std::string, std::function<void(TurnRecord&)>>> cases = {
      {"steps emitted another number of tokens", [](TurnRecord& t) { t.tokens.pop_back(); }},
      {"steps emitted another number of tokens", [](TurnRecord& t) { t.steps.pop_back(); }},
      {"a step emitted other than accepted + 1", [](TurnRecord& t) { t.steps[1].accepted += 1; }},
      {"accepted more than was drafted", [](TurnRecord& t) { t.steps[0].drafted_depth = 1; }},
      {"the last step emitted other than accepted or accepted + 1",
       [](TurnRecord& t) { t.steps.back().accepted = t.steps.back().emitted - 2; }},
  };
  const SyntheticRun run = usual();
  for (const auto& [problem, spoil] : cases) {
    TempFolder folder;
    ResultStore store(folder.file("a.db"));
    tests::fill(store, run);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 0);
    GenerationRecord g = tests::generation(run, run.arms[2], 0, 5, 0);
    spoil(g.turns[0]);
    store.add_generation(1, 3, 1, g, {});
    EXPECT_EQ(text(store, "SELECT problem FROM v_accounting"), problem);
    EXPECT_EQ(integer(store, "SELECT count(*) FROM v_accounting"), 1) << problem;
  }
}

}  // namespace
}  // namespace evalrun::results
