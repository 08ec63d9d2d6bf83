// ROUGE and BLEU against the packages that define them: tests/data/text_scores.jsonl.gz holds pairs
// of texts with the values of PyPI rouge 1.0.1, rouge-score 0.1.2 and sacrebleu 2.6.0, written by
// make_text_scores.py; porter_stems.txt.gz words with the stems of nltk 3.10.
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "datasets/json_lines.h"
#include "engine/base/text.h"
#include "evaluators/text/bleu.h"
#include "evaluators/text/porter.h"
#include "evaluators/text/rouge.h"
#include "tests/datasets/test_files.h"

namespace evalrun::evaluators {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::array<std::pair<const char*, RougeKind>, 4> kKinds{
    {{"rouge1", RougeKind::kRouge1},
     {"rouge2", RougeKind::kRouge2},
     {"rougeL", RougeKind::kRougeL},
     {"rougeLsum", RougeKind::kRougeLsum}}};

std::string golden(const std::string& file) {
  return datasets::maybe_gunzip(base::read_file(EVALRUN_TEST_DATA "/" + file), file);
}

const std::vector<json>& pairs() {
  static const std::vector<json> kPairs = [] {
    std::vector<json> rows;
    for (const std::string& line : base::split(golden("text_scores.jsonl.gz"), '\n'))
      if (!line.empty()) rows.push_back(json::parse(line));
    return rows;
  }();
  return kPairs;
}

// The issue asks for 1e-12; the operations are the originals', so the doubles are equal.
void expect_equal(const RougeScore& found, const json& expected, const char* what) {
  EXPECT_EQ(found.status, "ok");
  EXPECT_EQ(found.precision, expected[0].get<double>()) << what << " precision";
  EXPECT_EQ(found.recall, expected[1].get<double>()) << what << " recall";
  EXPECT_EQ(found.f, expected[2].get<double>()) << what << " F";
}

std::string shown(const json& row) {
  return fmt::format("{}: {:.200} / {:.200}", row["kind"].get<std::string>(), row["answer"].dump(),
                     row["reference"].dump());
}

TEST(RougeGolden, PltrdyIsThePackage) {
  int n_errors = 0;
  for (const json& row : pairs()) {
    SCOPED_TRACE(shown(row));
    const std::string answer = row["answer"], reference = row["reference"];
    for (const auto& [name, kind] : kKinds) {
      if (kind == RougeKind::kRougeLsum) continue;
      const RougeScore found = rouge_pltrdy(kind, answer, reference);
      const json& expected = row["pltrdy"];
      if (expected.is_object()) {
        expect_equal(found, expected[name], name);
        continue;
      }
      // The package says which text is empty.
      EXPECT_EQ(found.status,
                expected == "Hypothesis is empty." ? "empty answer" : "empty reference");
      ++n_errors;
    }
  }
  EXPECT_GE(pairs().size(), 2000u);
  EXPECT_GE(n_errors, 100);
}

TEST(RougeGolden, RougeScoreIsThePackage) {
  int n_positive = 0;
  for (const json& row : pairs()) {
    SCOPED_TRACE(shown(row));
    const std::string answer = row["answer"], reference = row["reference"];
    for (const auto& [name, kind] : kKinds) {
      expect_equal(rouge_google(kind, answer, reference), row["google"][name], name);
      const RougeScore stemmed = rouge_google(kind, answer, reference, {.stemmer = true});
      expect_equal(stemmed, row["google_stem"][name], name);
      n_positive += stemmed.f > 0 ? 1 : 0;
    }
  }
  EXPECT_GE(n_positive, 4000) << "the pairs must not all be without a common word";
}

TEST(BleuGolden, IsThePackage) {
  int n_positive = 0;
  for (const json& row : pairs()) {
    SCOPED_TRACE(shown(row));
    const double expected = row["bleu"];
    const double found =
        sentence_bleu(row["answer"].get<std::string>(), row["reference"].get<std::string>()).bleu;
    // Logarithms and exponentials of another libm may differ in the last bit.
    EXPECT_NEAR(found, expected, 1e-12 * std::max(1.0, expected));
    n_positive += expected > 0 ? 1 : 0;
  }
  EXPECT_GE(n_positive, 1000);
}

TEST(PorterGolden, StemsAreThoseOfNltk) {
  int n = 0, n_changed = 0;
  for (const std::string& line : base::split(golden("porter_stems.txt.gz"), '\n')) {
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    const std::string word = line.substr(0, blank), stem = line.substr(blank + 1);
    EXPECT_EQ(porter_stem(word), stem) << word;
    ++n;
    n_changed += word != stem ? 1 : 0;
  }
  EXPECT_GE(n, 5000);
  EXPECT_GE(n_changed, n / 2);
}

// Vectors of the packages' own authors, outside of the repository; each with its tolerance.
class RougeVectors : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = datasets::golden_data_root();
    if (root_.empty() || !std::filesystem::exists(root_ + "/rouge_vectors"))
      GTEST_SKIP() << "no golden data (EVALRUN_SHARED/data/rouge_vectors)";
    root_ += "/rouge_vectors";
  }
  std::vector<json> lines(const std::string& file) {
    std::vector<json> rows;
    for (const std::string& line : base::split(base::read_file(root_ + "/" + file), '\n'))
      if (!line.empty()) rows.push_back(json::parse(line));
    return rows;
  }
  std::string root_;
};

TEST_F(RougeVectors, OfGoogle) {
  const std::map<std::string, RougeKind> kinds(kKinds.begin(), kKinds.end());
  const std::vector<json> rows = lines("google/expected.jsonl");
  ASSERT_EQ(rows.size(), 24u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    const RougeScore found =
        rouge_google(kinds.at(row["metric"]), row["prediction"].get<std::string>(),
                     row["target"].get<std::string>(), {.stemmer = row["stem"]});
    const double tolerance = row["abs_tolerance"];
    EXPECT_NEAR(found.f, row["fmeasure"].get<double>(), tolerance);
    if (row.contains("precision") && row["precision"].is_number()) {
      EXPECT_NEAR(found.precision, row["precision"].get<double>(), tolerance);
      EXPECT_NEAR(found.recall, row["recall"].get<double>(), tolerance);
    }
  }
}

TEST_F(RougeVectors, OfThePerlScript) {
  // "nostem" holds for every pair. "stem_porter" is the Porter of 1980, NLTK's is a later one: they
  // are counted where they agree, not asked to.
  constexpr double kTolerance = 1.1e-5;
  const std::vector<json> rows = lines("xsum_rouge155.jsonl");
  ASSERT_EQ(rows.size(), 600u);
  int n_stemmed_equal = 0;
  for (const json& row : rows) {
    SCOPED_TRACE(row["id"].get<std::string>());
    const std::string answer = row["prediction"], reference = row["target"];
    bool stemmed_equal = true;
    for (size_t k = 0; k < 3; ++k) {
      const auto& [name, kind] = kKinds[k];
      const RougeScore found = rouge_google(kind, answer, reference);
      EXPECT_NEAR(found.f, row["nostem"][name]["f"].get<double>(), kTolerance) << name;
      EXPECT_NEAR(found.precision, row["nostem"][name]["p"].get<double>(), kTolerance) << name;
      EXPECT_NEAR(found.recall, row["nostem"][name]["r"].get<double>(), kTolerance) << name;
      const RougeScore stemmed = rouge_google(kind, answer, reference, {.stemmer = true});
      stemmed_equal &=
          std::abs(stemmed.f - row["stem_porter"][name]["f"].get<double>()) <= kTolerance;
    }
    n_stemmed_equal += stemmed_equal ? 1 : 0;
  }
  EXPECT_GE(n_stemmed_equal, 590);
}

TEST_F(RougeVectors, OfPltrdy) {
  // The values beside the texts are of a version before 1.0: no option of 1.0.1 gives them. Here, F
  // of rouge1, rouge2, rougeL as 1.0.1 computes it from the same texts.
  constexpr std::array<std::array<double, 3>, 4> kExpected{
      {{0.5301204770503702, 0.2752293531520916, 0.4819277059660328},
       {0.24999999523925787, 0.023529407014533828, 0.18749999523925795},
       {0.22222221805212622, 0.0588235250346024, 0.11111110694101523},
       {0.2295081917871541, 0.028985502255829465, 0.2295081917871541}}};
  const json rows = json::parse(base::read_file(root_ + "/pltrdy/data.json"));
  ASSERT_EQ(rows.size(), kExpected.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string answer = rows[i]["hyp"], reference = rows[i]["ref"];
    for (size_t k = 0; k < 3; ++k)
      EXPECT_EQ(rouge_pltrdy(kKinds[k].second, answer, reference).f, kExpected[i][k]);
  }
}

TEST(Rouge, LongTextsEndWithAValueOrAStatus) {
  // 10 MB against a reference of a sentence; one sentence, many sentences, one word, letters alone.
  const std::string reference = "The cat sat on the mat. It was a good cat, they say.";
  const auto repeated = [](std::string_view piece) {
    std::string text;
    while (text.size() < 10'000'000) text += piece;
    return text;
  };
  for (const std::string& answer :
       {repeated("The cat sat on a mat "), repeated("The cat sat. "), repeated("x"), repeated("."),
        repeated("yyyyyyyy"), repeated("\xff\xfe\n"), repeated("a.")}) {
    for (const auto& [name, kind] : kKinds) {
      if (kind != RougeKind::kRougeLsum) {
        const RougeScore found = rouge_pltrdy(kind, answer, reference);
        EXPECT_EQ(found.status, answer[0] == '.' ? "empty answer" : "ok") << name;
      }
      EXPECT_EQ(rouge_google(kind, answer, reference, {.stemmer = true}).status, "ok") << name;
    }
    EXPECT_GE(sentence_bleu(answer, reference).bleu, 0);
  }
  // Two texts of 10 MB are a day's work: refused at once.
  const std::string words = repeated("a b c d e f g "), sentences = repeated("a. ");
  for (const std::string& text : {words, sentences}) {
    EXPECT_EQ(rouge_pltrdy(RougeKind::kRougeL, text, text).status, "too long");
    EXPECT_EQ(rouge_google(RougeKind::kRougeL, text, text).status, "too long");
    EXPECT_EQ(rouge_pltrdy(RougeKind::kRouge2, text, text).f, 1 - 1e-8 / (2 + 1e-8));
  }
  EXPECT_EQ(rouge_google(RougeKind::kRougeLsum, repeated("a\n"), repeated("b a\n")).status,
            "too long");
}

TEST(Rouge, StatusesAreRowsNotErrors) {
  datasets::Prompt prompt;
  const auto& judge = find_evaluator("rougeL@pltrdy-1.0.1");
  EXPECT_EQ(judge.score(prompt, {"a"}, {}).status, "no reference");
  prompt.reference = "a b c";
  EXPECT_EQ(judge.score(prompt, {}, {}).status, "no answer");
  const results::ScoreRecord empty = judge.score(prompt, {"..."}, {});
  EXPECT_EQ(empty.status, "empty answer");
  EXPECT_FALSE(empty.value.has_value());
  const results::ScoreRecord score = judge.score(prompt, {"first turn", "a c"}, {});
  EXPECT_EQ(score.evaluator, "rougeL");
  EXPECT_EQ(score.version, "pltrdy-1.0.1");
  const json facts = json::parse(score.facts);
  EXPECT_EQ(facts["precision"], 1.0);
  EXPECT_NEAR(facts["recall"].get<double>(), 2.0 / 3, 1e-15);
  EXPECT_NEAR(score.value.value(), 0.8, 1e-8);
  // Several conventions share a name; none is the default.
  EXPECT_THROW(find_evaluator("rougeL"), base::Error);
}

TEST(Bleu, TokenizesAsMteval13a) {
  const auto tokens = [](std::string_view text) {
    std::string joined;
    for (const std::string& word : base::split(tokenize_13a(text), ' '))
      if (!word.empty()) joined += (joined.empty() ? "" : "|") + word;
    return joined;
  };
  EXPECT_EQ(tokens("It costs $1,000.50, or 5-6% more."), "It|costs|$|1,000.50|,|or|5|-|6|%|more|.");
  EXPECT_EQ(tokens("well-\nknown &amp;lt; <skipped>x"), "wellknown|<|x");
  EXPECT_EQ(tokens("don't (a/b)"), "don't|(|a|/|b|)");
}

}  // namespace
}  // namespace evalrun::evaluators
