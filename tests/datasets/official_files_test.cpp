// The readers on real files, where they are at hand: counts, first and last prompts, verification.
#include <gmock/gmock.h>

#include <set>

#include "datasets/dataset.h"
#include "datasets/manifest.h"
#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class OfficialFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = golden_data_root();
    if (root_.empty()) GTEST_SKIP() << "no golden data (EVALRUN_SHARED/data)";
  }
  // Loads the set and checks what holds for every file: the count agrees with the verification.
  LoadedDataset load(const std::string& name) {
    LoadedDataset set = load_dataset(name, root_);
    const size_t n = set.prompts.size();
    if (set.verification == "official") {
      EXPECT_EQ(n, static_cast<size_t>(set.info.official_count));
    } else if (set.verification != "stand-in") {
      EXPECT_EQ(set.verification, fmt::format("subset ({} of {})", n, set.info.official_count));
    }
    return set;
  }
  std::string root_;
};

TEST_F(OfficialFiles, MtBench) {
  const LoadedDataset set = load("mt_bench");
  EXPECT_EQ(set.verification, "official");
  ASSERT_EQ(set.prompts.size(), 80u);
  EXPECT_EQ(set.prompts.front().id, "mt_bench/81");
  EXPECT_EQ(set.prompts.front().category, "writing");
  EXPECT_THAT(set.prompts.front().turns.at(1), StartsWith("Rewrite your previous response."));
  EXPECT_EQ(set.prompts.back().id, "mt_bench/160");
  EXPECT_EQ(set.prompts.back().category, "humanities");
  std::map<std::string, int> categories;
  for (const Prompt& prompt : set.prompts) {
    EXPECT_EQ(prompt.turns.size(), 2u) << prompt.id;
    ++categories[prompt.category];
  }
  EXPECT_EQ(categories.size(), 8u);
  for (const auto& [category, n] : categories) EXPECT_EQ(n, 10) << category;
  std::set<std::string> chosen;
  for (const Prompt& prompt : limit_prompts(set.prompts, 8)) chosen.insert(prompt.category);
  EXPECT_EQ(chosen.size(), 8u);
}

TEST_F(OfficialFiles, Gsm8k) {
  const LoadedDataset set = load("gsm8k");
  ASSERT_GE(set.prompts.size(), 660u);
  EXPECT_EQ(set.prompts[0].id, "gsm8k/0");
  EXPECT_THAT(set.prompts[0].turns.at(0), StartsWith("Janet\u2019s ducks lay 16 eggs per day."));
  EXPECT_THAT(set.prompts[0].reference.value(), HasSubstr("\n#### 18"));
  EXPECT_EQ(set.prompts[659].id, "gsm8k/659");
}

TEST_F(OfficialFiles, HumanEvalAndItsPythonTwin) {
  const LoadedDataset set = load("humaneval"), twin = load("humaneval_x[python]");
  ASSERT_GE(set.prompts.size(), 100u);
  ASSERT_EQ(set.prompts.size(), twin.prompts.size());
  EXPECT_EQ(set.prompts[0].id, "humaneval/0");
  EXPECT_EQ(twin.prompts[99].id, "humaneval_x/python/99");
  EXPECT_THAT(set.prompts[0].turns.at(0), StartsWith("from typing import List"));
  EXPECT_EQ(set.prompts[0].code->entry_point, "has_close_elements");
  EXPECT_EQ(twin.prompts[99].code->task, "Python/99");
  // The same problems; a few docstrings differ in white space and wording.
  int n_equal = 0;
  for (size_t i = 0; i < 100; ++i) {
    n_equal += set.prompts[i].turns == twin.prompts[i].turns;
    EXPECT_EQ(set.prompts[i].group, twin.prompts[i].group);
  }
  EXPECT_GE(n_equal, 80);
}

TEST_F(OfficialFiles, HumanEvalXInSixLanguages) {
  const LoadedDataset set = load("humaneval_x");
  EXPECT_EQ(set.info.official_count, 984);
  std::map<std::string, int> languages;
  for (const Prompt& prompt : set.prompts) {
    SCOPED_TRACE(prompt.id);
    const CodeProblem& code = *prompt.code;
    ++languages[prompt.language];
    EXPECT_EQ(code.language, prompt.language);
    EXPECT_EQ(prompt.id.substr(prompt.id.rfind('/')), code.task.substr(code.task.rfind('/')));
    EXPECT_EQ(prompt.group, "/humaneval" + code.task.substr(code.task.rfind('/')));
    EXPECT_FALSE(code.test.empty());
    EXPECT_FALSE(code.canonical_solution.empty());
    EXPECT_FALSE(code.declaration.empty());
    EXPECT_EQ(!code.test_setup.empty(), prompt.language == "go");
    EXPECT_EQ(code.prompt.find(code.imports) == std::string::npos, code.task == "Go/65");
    // Rust alone shows no signature in its prompt.
    EXPECT_EQ(prompt.turns[0] == code.prompt, prompt.language != "rust");
    EXPECT_EQ(prompt.stop.closing_brace, prompt.language != "python");
  }
  EXPECT_EQ(languages.size(), 6u);
  for (const auto& [language, n] : languages) EXPECT_GE(n, 100) << language;
  std::set<std::string> chosen;
  for (const Prompt& prompt : limit_prompts(set.prompts, 6)) chosen.insert(prompt.language);
  EXPECT_EQ(chosen.size(), 6u);
  EXPECT_EQ(load("humaneval_x[go]").prompts[0].id, "humaneval_x/go/0");
}

TEST_F(OfficialFiles, SpecBench) {
  const LoadedDataset set = load("spec_bench");
  // What is from other sets is named as there, and is the same.
  std::map<std::string, Prompt> others;
  for (const char* name : {"mt_bench", "gsm8k"})
    for (const Prompt& prompt : load(name).prompts) others[prompt.group] = prompt;
  int n_mt_bench = 0, n_gsm8k = 0;
  for (const Prompt& prompt : set.prompts) {
    const auto other = others.find(prompt.group);
    if (other == others.end()) continue;
    EXPECT_EQ(prompt.turns, other->second.turns) << prompt.id;
    n_mt_bench += prompt.category == "mt_bench", n_gsm8k += prompt.category == "math_reasoning";
  }
  EXPECT_GE(n_mt_bench, 40);
  EXPECT_GE(n_gsm8k, 17) << "half of GSM8K's file holds half of them";
  std::map<std::string, int> tasks;
  for (const Prompt& prompt : set.prompts) ++tasks[prompt.category];
  EXPECT_EQ(tasks.size(), 6u);
  for (const auto& [task, n] : tasks) EXPECT_GE(n, 40) << task;
  EXPECT_EQ(load("spec_bench[qa]").prompts.front().category, "qa");
}

TEST_F(OfficialFiles, FewShotForms) {
  EXPECT_EQ(load("gsm8k:shots=5").prompts[0].turns[0].find("Question: Natalia sold clips"), 0u);
  EXPECT_GE(load("gsm_100").prompts.size(), 40u);
  EXPECT_THAT(load("mbpp:prompt=few-shot").prompts[0].turns[0], HasSubstr("[DONE]"));
}

TEST_F(OfficialFiles, MbppTestSplit) {
  const LoadedDataset set = load("mbpp");
  ASSERT_EQ(set.prompts.size(), 500u);
  EXPECT_EQ(set.prompts.front().id, "mbpp/11");
  EXPECT_EQ(set.prompts.back().id, "mbpp/510");
  EXPECT_THAT(set.prompts[0].code->test, StartsWith("assert remove_Occ("));
}

TEST_F(OfficialFiles, Xsum) {
  const LoadedDataset set = load("xsum");
  ASSERT_GE(set.prompts.size(), 500u);
  EXPECT_EQ(set.prompts[0].id, "xsum/34268361");
  EXPECT_THAT(set.prompts[0].turns.at(0), StartsWith("Document: The owners said their planned"));
  EXPECT_THAT(set.prompts[0].reference.value(), StartsWith("Proposals for an indoor water park"));
}

TEST_F(OfficialFiles, CipStandIn) {
  const LoadedDataset set = load("cip_standin");
  EXPECT_EQ(set.verification, "stand-in");
  ASSERT_EQ(set.prompts.size(), 1000u);
  EXPECT_EQ(set.prompts[1].turns.at(0), "What are some romantic date ideas for Valentine's Day.");
}

TEST_F(OfficialFiles, NothingContradictsTheManifest) {
  int n_known = 0;
  for (const FileCheck& check : verify_data(root_)) {
    EXPECT_FALSE(check.is_error()) << check.file.path << ": " << check.detail;
    n_known += check.state == FileState::kOfficial || check.state == FileState::kSubset ||
               check.state == FileState::kStandIn;
  }
  EXPECT_GE(n_known, 15);
}

}  // namespace
}  // namespace evalrun::datasets
