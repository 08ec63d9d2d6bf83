// Scoring separately from a run: the pool, files of generations, means, exports.
#include <gmock/gmock.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "evaluators/generations_file.h"
#include "runners/score/score_export.h"
#include "runners/score/score_pool.h"
#include "runners/score/score_summary.h"

namespace evalrun::runners {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Counts the bytes of the answer; waits for some, so that scores do not arrive in order.
evaluators::EvaluatorEntry length_judge() {
  evaluators::EvaluatorEntry entry;
  entry.info.name = "length";
  entry.info.version = "1";
  entry.info.unit = "bytes";
  entry.score = [](const datasets::Prompt&, const std::vector<std::string>& texts,
                   const evaluators::ScoringContext&) {
    const std::string& text = texts.back();
    if (text == "throw") throw base::Error(base::ExitCode::kEnvironment, "no sandbox here");
    if (text.size() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    results::ScoreRecord record;
    record.value = static_cast<double>(text.size());
    return record;
  };
  return entry;
}

class ScorePool : public ::testing::Test {
 protected:
  void fill(size_t n) {
    for (size_t i = 0; i < n; ++i) texts_.push_back({std::string(i, 'x')});
    make_jobs();
  }
  void make_jobs() {
    jobs_.clear();
    for (const std::vector<std::string>& text : texts_) jobs_.push_back({&judge_, &prompt_, &text});
  }
  evaluators::EvaluatorEntry judge_ = length_judge();
  datasets::Prompt prompt_;
  std::vector<std::vector<std::string>> texts_;
  std::vector<ScoreJob> jobs_;
  base::SteadyClock clock_;
  ScorePoolOptions options_;
};

TEST_F(ScorePool, ScoresInOrderWhateverTheWorkers) {
  fill(100);
  for (const int workers : {1, 2, 8, 200}) {
    std::vector<size_t> order;
    size_t last_done = 0;
    const std::thread::id caller = std::this_thread::get_id();
    options_.workers = workers;
    options_.on_score = [&](size_t i, const results::ScoreRecord& score) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(score.value, static_cast<double>(i));
      order.push_back(i);
    };
    options_.on_progress = [&](const ScoreProgress& progress) {
      EXPECT_GT(progress.done, last_done);
      EXPECT_EQ(progress.total, 100u);
      EXPECT_GE(progress.left_s, 0);
      last_done = progress.done;
    };
    const auto scores = score_all(jobs_, {}, clock_, options_);
    ASSERT_EQ(scores.size(), 100u);
    ASSERT_EQ(order.size(), 100u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(last_done, 100u);
    for (size_t i = 0; i < scores.size(); ++i)
      EXPECT_EQ(scores[i].value().value, static_cast<double>(i));
  }
}

TEST_F(ScorePool, StopsWhenAsked) {
  for (size_t i = 0; i < 100000; ++i) texts_.push_back({"xxx"});
  make_jobs();
  options_.workers = 2;
  size_t delivered = 0;
  options_.on_score = [&](size_t, const results::ScoreRecord&) { ++delivered; };
  options_.stop_requested = [&] { return delivered > 3; };
  const auto scores = score_all(jobs_, {}, clock_, options_);
  EXPECT_GT(delivered, 3u);
  EXPECT_LT(delivered, 100000u);
  // What was begun was finished, and nothing after it was begun.
  const auto n = static_cast<size_t>(
      std::count_if(scores.begin(), scores.end(), [](const auto& s) { return s.has_value(); }));
  EXPECT_EQ(n, delivered);
  for (size_t i = 0; i < n; ++i) EXPECT_TRUE(scores[i].has_value());
}

TEST_F(ScorePool, AnErrorEndsTheWorkAndKeepsItsKind) {
  fill(50);
  texts_[20] = {"throw"};
  make_jobs();
  options_.workers = 4;
  try {
    score_all(jobs_, {}, clock_, options_);
    FAIL() << "no error";
  } catch (const base::Error& error) {
    EXPECT_EQ(error.code(), base::ExitCode::kEnvironment);
  }
  // An error of the caller's own callback leaves no thread behind either.
  texts_[20] = {"x"};
  make_jobs();
  options_.on_score = [](size_t i, const results::ScoreRecord&) {
    if (i == 5) throw std::runtime_error("disk full");
  };
  EXPECT_THROW(score_all(jobs_, {}, clock_, options_), std::runtime_error);
  EXPECT_TRUE(score_all({}, {}, clock_, options_).empty());
}

datasets::LoadedDataset small_set() {
  datasets::LoadedDataset set;
  set.info.name = set.info.family = "set";
  for (const char* id : {"set/0", "set/1", "set/two", "other/two"}) {
    datasets::Prompt prompt;
    prompt.id = id;
    prompt.turns = {"question"};
    prompt.reference = "#### 1";
    set.prompts.push_back(prompt);
  }
  auto code = std::make_shared<datasets::CodeProblem>();
  code->task = "Python/1";
  set.prompts[1].code = code;
  set.prompts[2].turns = {"first", "second"};
  return set;
}

TEST(GenerationsFile, KnowsPromptsByTheNamesOfTheSetAndOurs) {
  const evaluators::GenerationsFile file =
      evaluators::read_generations(R"({"id": "set/0", "text": "a", "model": "ignored"})"
                                   "\n"
                                   R"({"id": 0, "text": "b", "sample": 1})"
                                   "\n\n"
                                   R"({"id": "Python/1", "text": ""})"
                                   "\n"
                                   R"({"id": "set/1", "text": ["c"], "sample": 7})"
                                   "\n"
                                   R"({"id": "two", "text": ["d", "e"]})",
                                   "g.jsonl", small_set());
  EXPECT_THAT(file.problems, ElementsAre());
  ASSERT_EQ(file.generations.size(), 5u);
  std::vector<size_t> prompts;
  for (const evaluators::OutsideGeneration& g : file.generations) prompts.push_back(g.prompt);
  EXPECT_THAT(prompts, ElementsAre(0, 0, 1, 1, 2));
  EXPECT_EQ(file.generations[1].id, "0");
  EXPECT_EQ(file.generations[3].sample, 7);
  EXPECT_THAT(file.generations[4].texts, ElementsAre("d", "e"));
}

TEST(GenerationsFile, NamesEveryBrokenLineAndReadsTheOthers) {
  const std::vector<std::pair<std::string, std::string>> lines = {
      {R"({"id": "set/0", "text": "a"})", ""},
      {R"({"id": "set/0", "text": )", "not valid JSON"},
      {R"([1])", "line 3"},
      {R"({"id": "set/0", "text": "a", "n": 1e999})", "number"},
      {R"({"id": "set/9", "text": "a"})", "'set/9' is no prompt of set"},
      {R"({"text": "a"})", "'id' is missing"},
      {R"({"id": 1.5, "text": "a"})", "'id'"},
      {R"({"id": "set/1"})", "'text' is missing"},
      {R"({"id": "set/1", "text": 5})", "'text'"},
      {R"({"id": "set/1", "text": null})", "'text'"},
      {R"({"id": "set/1", "text": ["a", 1]})", "'text'"},
      {R"({"id": "set/1", "text": []})", "has 0 answers"},
      {R"({"id": "two", "text": "only one"})", "has 1 answers, the prompt has 2 turns"},
      {R"({"id": "set/1", "text": "a", "sample": -1})", "'sample' is below 0"},
      {R"({"id": "set/1", "text": "a", "sample": 0.5})", "'sample'"},
      {"{\"id\": \"set/1\", \"text\": \"\xff\"}", "byte 0xff is not UTF-8"},
      {R"({"id": "0", "text": "again"})", "was there before with sample 0"},
      {R"({"id": "set/1", "text": "b"})", ""}};
  std::string text;
  for (const auto& [line, problem] : lines) text += line + "\n";
  const evaluators::GenerationsFile file =
      evaluators::read_generations(text, "g.jsonl", small_set());
  EXPECT_EQ(file.generations.size(), 2u);
  size_t n = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].second.empty()) continue;
    ASSERT_LT(n, file.problems.size());
    EXPECT_THAT(file.problems[n], HasSubstr(fmt::format("g.jsonl: line {}", i + 1)));
    EXPECT_THAT(file.problems[n++], HasSubstr(lines[i].second));
  }
  EXPECT_EQ(n, file.problems.size());
  EXPECT_THROW(evaluators::read_generations("\n \n", "g.jsonl", small_set()), base::Error);
}

TEST(ScoreSummary, IsTheMeanOverPrompts) {
  const auto record = [](std::optional<double> value, const char* status) {
    results::ScoreRecord score;
    score.value = value;
    score.status = status;
    return score;
  };
  const std::vector<results::ScoreRecord> scores = {record(1, "ok"), record(0, "ok"),
                                                    record(1, "ok"), record({}, "too long")};
  // Two samples of prompt 0, one of prompt 5.
  const std::vector<JudgedAnswer> answers = {
      {0, &scores[0]}, {0, &scores[1]}, {5, &scores[2]}, {6, &scores[3]}};
  const ScoreSummary summary = summarise(answers);
  EXPECT_EQ(summary.value, 0.75);
  EXPECT_DOUBLE_EQ(summary.standard_error.value(), 0.25);  // of 0.5 and 1
  EXPECT_EQ(summary.n_prompts, 2u);
  EXPECT_EQ(summary.n_answers, 3u);
  EXPECT_EQ(summary.statuses.at("too long"), 1u);
  EXPECT_FALSE(summarise({}).value.has_value());

  const results::ScoreRecord broken = record({}, "sandbox_error");
  const ScoreSummary stopped = summarise(std::vector<JudgedAnswer>{{0, &scores[0]}, {1, &broken}});
  EXPECT_TRUE(stopped.stopped);
  EXPECT_FALSE(stopped.value.has_value());
}

class Export : public ::testing::Test {
 protected:
  Export() {
    judges_ = {&evaluators::find_evaluator("gsm8k@evalrun"),
               &evaluators::find_evaluator("gsm8k_strict")};
    file_ = evaluators::read_generations(R"({"id": "Python/1", "text": "#### 1"}
{"id": "set/0", "text": "no"}
{"id": "set/0", "text": "1.", "sample": 1})",
                                         "g", set_);
    for (const evaluators::OutsideGeneration& g : file_.generations) {
      scores_.emplace_back();
      for (const auto* judge : judges_)
        scores_.back().push_back(judge->score(set_.prompts[g.prompt], g.texts, {}));
    }
  }
  std::vector<json> lines(ExportFormat format) {
    ExportRequest request{format, &set_, file_.generations, judges_, scores_, "m", 12.5};
    std::vector<json> rows;
    for (const std::string& line : base::split(export_generations(request), '\n'))
      if (!line.empty()) rows.push_back(json::parse(line));
    return rows;
  }
  datasets::LoadedDataset set_ = small_set();
  evaluators::GenerationsFile file_;
  std::vector<const evaluators::EvaluatorEntry*> judges_;
  std::vector<std::vector<results::ScoreRecord>> scores_;
};

TEST_F(Export, HumanEval) {
  const std::vector<json> rows = lines(ExportFormat::kHumanEval);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], json::parse(R"({"task_id": "Python/1", "completion": "#### 1",
                                     "result": "ok", "passed": true})"));
  EXPECT_EQ(rows[1]["passed"], false);
  // A verdict of two turns would have to be cut.
  file_.generations[0].texts = {"a", "b"};
  EXPECT_THROW(lines(ExportFormat::kHumanEval), base::Error);
}

TEST_F(Export, SpecBench) {
  const std::vector<json> rows = lines(ExportFormat::kSpecBench);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["question_id"], 0);
  EXPECT_EQ(rows[0]["choices"], json::parse(R"([{"index": 0, "turns": ["no"]},
                                                {"index": 1, "turns": ["1."]}])"));
  EXPECT_EQ(rows[0]["model_id"], "m");
  EXPECT_EQ(rows[0]["tstamp"], 12.5);
  EXPECT_NE(rows[0]["answer_id"], rows[1]["answer_id"]);
}

TEST_F(Export, LmEval) {
  const std::vector<json> rows = lines(ExportFormat::kLmEval);
  ASSERT_EQ(rows.size(), 6u);  // a line per generation and evaluator
  EXPECT_EQ(rows[0]["doc_id"], 1);
  EXPECT_EQ(rows[0]["filter"], "gsm8k@evalrun");
  EXPECT_EQ(rows[1]["filter"], "strict-match");
  EXPECT_EQ(rows[1]["exact_match"], 1.0);
  EXPECT_EQ(rows[1]["metrics"], json::array({"exact_match"}));
  EXPECT_EQ(rows[3]["filtered_resps"], json::array({"[invalid]"}));
  EXPECT_EQ(rows[5]["resps"], json::parse(R"([["1."]])"));
  EXPECT_EQ(rows[5]["target_hash"], base::sha256_hex("#### 1"));
}

}  // namespace
}  // namespace evalrun::runners
