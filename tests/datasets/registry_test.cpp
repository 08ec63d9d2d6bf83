// The registered sets: our samples, the readers of official rows, and how a part is chosen.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "datasets/dataset.h"
#include "tests/datasets/test_files.h"

namespace evalrun::datasets {
namespace {

using base::ExitCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<std::string> kKinds = {"chat", "math", "summarize", "code", "edit", "instruct"};

TEST(Samples, TenOfEachKindWithoutADataRoot) {
  for (const std::string& kind : kKinds) {
    const LoadedDataset set = load_dataset("samples/" + kind, "");
    SCOPED_TRACE(kind);
    EXPECT_GE(set.prompts.size(), 10u);
    EXPECT_EQ(set.verification, "built in");
    EXPECT_EQ(set.info.family, "samples");
    for (const Prompt& prompt : set.prompts) {
      EXPECT_EQ(prompt.category, kind);
      EXPECT_TRUE(prompt.chat);
      EXPECT_EQ(prompt.turns.size(), kind == "chat" ? 2u : 1u) << prompt.id;
      // About 250 tokens: they are meant for a small model on a small machine.
      EXPECT_LE(prompt.turns[0].size(), 1300u) << prompt.id;
      EXPECT_EQ(prompt.reference.has_value(), kind == "math" || kind == "summarize") << prompt.id;
      EXPECT_EQ(prompt.language.empty(), kind != "code" && kind != "edit") << prompt.id;
    }
  }
}

TEST(Samples, AllIsTheKindsTogetherWithUniqueIdsAndTexts) {
  const LoadedDataset all = load_dataset("samples", "");
  size_t n = 0;
  for (const std::string& kind : kKinds) n += load_dataset("samples/" + kind, "").prompts.size();
  EXPECT_EQ(all.prompts.size(), n);
  std::set<std::string> ids, texts;
  for (const Prompt& prompt : all.prompts) {
    EXPECT_TRUE(ids.insert(prompt.id).second) << prompt.id;
    EXPECT_TRUE(texts.insert(prompt.turns[0]).second) << prompt.id;
    EXPECT_TRUE(prompt.id.starts_with("samples/" + prompt.category + "/")) << prompt.id;
  }
}

TEST(Samples, MathReferencesEndInANumber) {
  const std::regex last_line(R"([\s\S]*\n#### -?[0-9]{1,3}(,[0-9]{3})*)");
  for (const Prompt& prompt : load_dataset("samples/math", "").prompts)
    EXPECT_TRUE(std::regex_match(prompt.reference.value(), last_line)) << prompt.id;
}

TEST(Samples, FourProgramsInSixLanguages) {
  const LoadedDataset set = load_dataset("samples/programs", "");
  std::map<std::string, std::set<std::string>> problems;
  for (const Prompt& prompt : set.prompts) {
    SCOPED_TRACE(prompt.id);
    const CodeProblem& code = *prompt.code;
    problems[code.language].insert(code.task.substr(code.task.find('/')));
    EXPECT_TRUE(code.task.starts_with(code.language + "/"));
    EXPECT_EQ(code.task, code.language + "/" + prompt.group) << "one group in all languages";
    EXPECT_EQ(prompt.turns[0], code.declaration + code.prompt);
    EXPECT_EQ(code.declaration.empty(), code.language != "rust");
    EXPECT_EQ(code.test_setup.empty(), code.language != "go");
    EXPECT_NE(code.prompt.find(code.imports), std::string::npos);
    EXPECT_FALSE(prompt.stop.empty());
  }
  ASSERT_EQ(problems.size(), 6u);
  for (const auto& [language, tasks] : problems) {
    EXPECT_EQ(tasks.size(), 4u) << language;
    EXPECT_EQ(tasks, problems["python"]) << language;
  }
  EXPECT_EQ(load_dataset("samples/programs[go,js]:prompt=instruct", "").prompts.size(), 8u);
}

// Value of "a + b * c": sums of products, read from left to right.
double value_of(const std::string& expression) {
  std::istringstream in(expression);
  double sum = 0, product = 0, number = 0;
  in >> product;
  for (char op; in >> op >> number;) {
    if (op == '*') product *= number;
    if (op == '/') product /= number;
    if (op == '+' || op == '-') {
      sum += product;
      product = op == '+' ? number : -number;
    }
  }
  return sum + product;
}

TEST(Samples, MathReferencesAddUp) {
  const std::regex equation(R"((-?[0-9.]+(?: [-+*/] [0-9.]+)+) = (-?[0-9.]*[0-9]))");
  int n = 0;
  for (const Prompt& prompt : load_dataset("samples/math", "").prompts) {
    const std::string& text = prompt.reference.value();
    for (std::sregex_iterator it(text.begin(), text.end(), equation), end; it != end; ++it) {
      EXPECT_DOUBLE_EQ(value_of((*it)[1]), std::stod((*it)[2])) << prompt.id << ": " << (*it)[0];
      ++n;
    }
  }
  EXPECT_GE(n, 20);
}

TEST(Registry, NamesAndSuggestions) {
  for (const auto& [name, entry] : dataset_registry().entries()) {
    EXPECT_EQ(name, entry.info.name);
    EXPECT_FALSE(entry.info.summary.empty()) << name;
    EXPECT_FALSE(entry.info.source.empty()) << name;
    EXPECT_FALSE(entry.info.licence.empty()) << name;
    EXPECT_GT(entry.info.default_max_new, 0) << name;
    EXPECT_EQ(entry.info.files.empty(), entry.info.family == "samples") << name;
    if (name == "humaneval") {
      EXPECT_EQ(entry.info.evaluators, std::vector<std::string>{"pass@evalrun"});
    }
  }
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { load_dataset("gsm8", ""); }),
              HasSubstr("did you mean 'gsm8k'"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [] { load_dataset("samples/chatt", ""); }),
              HasSubstr("did you mean 'samples/chat'"));
}

TEST(Registry, FileSetsSayWhatTheyNeed) {
  const TempFolder dir;
  for (const auto& [name, entry] : dataset_registry().entries()) {
    if (entry.info.files.empty()) continue;
    const std::string& file = entry.info.files[0];
    EXPECT_THAT(error_of(ExitCode::kUsage, [&] { load_dataset(entry.info.name, ""); }),
                AllOf(HasSubstr(file), HasSubstr("--data-root"), HasSubstr("EVALRUN_DATA")));
    EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset(entry.info.name, dir.path()); }),
                AllOf(HasSubstr(dir.file(file)), HasSubstr("hint:")));
  }
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("gsm8k", dir.path()); }),
              HasSubstr("evalrun data fetch gsm8k"));
}

TEST(Registry, DataRootPrecedence) {
  ::unsetenv("EVALRUN_DATA");
  EXPECT_EQ(resolve_data_root(""), "");
  ::setenv("EVALRUN_DATA", "from-environment", 1);
  EXPECT_EQ(resolve_data_root(""), "from-environment");
  EXPECT_EQ(resolve_data_root("from-option"), "from-option");
  ::unsetenv("EVALRUN_DATA");
}

TEST(OfficialRows, BecomePrompts) {
  const TempFolder dir;
  dir.write("mt_bench/question.jsonl",
            R"({"question_id":81,"category":"writing","turns":["a","b"],"reference":["x","y"]})");
  dir.write("spec_bench/question.jsonl",
            R"({"question_id":81,"category":"writing","turns":["a","b"],"reference":["x","y"]})"
            "\n"
            R"({"question_id":241,"category":"qa","turns":["q"],"reference":["r"]})"
            "\n"
            R"({"question_id":321,"category":"math_reasoning","turns":["q1"]})");
  dir.write("gsm8k/test.jsonl",
            "{\"question\":\"q0\",\"answer\":\"#### "
            "1\"}\n\n{\"question\":\"q1\",\"answer\":\"w\\n#### 2\"}");
  dir.write(
      "humaneval/HumanEval.jsonl.gz",
      gzip(
          R"({"task_id":"HumanEval/3","prompt":"def f():\n","entry_point":"f","test":"def check(c): pass","canonical_solution":" x"})"));
  dir.write("humaneval_x/humaneval_python.jsonl.gz",
            gzip(R"j({"task_id":"Python/3","prompt":"def f():\n","declaration":"def f():\n",)j"
                 R"j("canonical_solution":" x","test":"check(f)"})j"));
  dir.write("humaneval_x/humaneval_rust.jsonl.gz",
            R"j({"task_id":"Rust/3","prompt":"\n/* f */\n","declaration":"use md5;\nfn f(){\n",)j"
            R"j("canonical_solution":" x }","test":"mod tests {}"})j");
  dir.write("mbpp/mbpp.jsonl",
            R"({"task_id":10,"text":"T.","code":"c","test_list":["assert 0"]})"
            "\n"
            R"({"task_id":11,"text":"Add.","code":"c","test_list":["assert a","assert b"],)"
            R"("test_setup_code":"import s"})");
  dir.write("xsum/test.jsonl", R"({"id":"99","document":"Text.","summary":"S."})");
  dir.write("cip/test.jsonl", R"({"prompt":"p","response":"r"})");
  dir.write("dolly/databricks-dolly-15k.jsonl",
            R"({"instruction":"i","context":"","response":"r","category":"open_qa"})"
            "\n"
            R"({"instruction":"i","context":"c\nd","response":"r","category":"closed_qa"})");

  const Prompt mt = load_dataset("mt_bench", dir.path()).prompts.at(0);
  EXPECT_EQ(mt.id, "mt_bench/81");
  EXPECT_EQ(mt.category, "writing");
  EXPECT_THAT(mt.turns, ElementsAre("a", "b"));
  EXPECT_FALSE(mt.reference.has_value());
  EXPECT_EQ(mt.group, "/mt_bench/81");

  const auto spec = load_dataset("spec_bench", dir.path()).prompts;
  ASSERT_EQ(spec.size(), 3u);
  EXPECT_EQ(spec[0].id, "spec_bench/81");
  EXPECT_EQ(spec[0].category, "mt_bench");
  EXPECT_EQ(spec[0].group, mt.group);
  EXPECT_EQ(spec[1].group, "");
  EXPECT_EQ(spec[1].reference, "r");

  const LoadedDataset gsm8k = load_dataset("gsm8k", dir.path());
  EXPECT_EQ(gsm8k.verification, "unverified");
  EXPECT_EQ(gsm8k.prompts.at(1).id, "gsm8k/1");  // rows, not lines
  EXPECT_EQ(gsm8k.prompts.at(1).reference, "w\n#### 2");
  EXPECT_EQ(gsm8k.prompts.at(1).group, spec[2].group);
  EXPECT_NE(gsm8k.prompts.at(0).group, spec[2].group);
  EXPECT_TRUE(spec[2].group.starts_with("/gsm8k/"));

  const Prompt he = load_dataset("humaneval", dir.path()).prompts.at(0);
  EXPECT_EQ(he.id, "humaneval/3");
  EXPECT_EQ(he.group, "/humaneval/3");
  EXPECT_EQ(he.language, "python");
  EXPECT_FALSE(he.chat);
  EXPECT_EQ(he.code->task, "HumanEval/3");
  EXPECT_EQ(he.code->test, "def check(c): pass");
  EXPECT_EQ(he.code->entry_point, "f");
  EXPECT_EQ(he.code->canonical_solution, " x");

  const Prompt hx = load_dataset("humaneval_x[python]", dir.path()).prompts.at(0);
  EXPECT_EQ(hx.id, "humaneval_x/python/3");
  EXPECT_EQ(hx.group, he.group);
  EXPECT_FALSE(hx.chat);
  EXPECT_FALSE(hx.stop.closing_brace);
  EXPECT_THAT(hx.stop.strings, ::testing::Contains("\ndef"));
  EXPECT_EQ(hx.code->test, "check(f)");

  const Prompt rust = load_dataset("humaneval_x[rust]", dir.path()).prompts.at(0);
  EXPECT_EQ(rust.id, "humaneval_x/rust/3");
  EXPECT_EQ(rust.group, he.group);
  EXPECT_EQ(rust.turns.at(0), "use md5;\nfn f(){\n\n/* f */\n");
  EXPECT_EQ(rust.code->prompt, "\n/* f */\n");
  EXPECT_TRUE(rust.stop.closing_brace);

  const LoadedDataset mbpp = load_dataset("mbpp", dir.path());
  ASSERT_EQ(mbpp.prompts.size(), 1u);  // tasks 1 to 10 are no tests
  EXPECT_EQ(mbpp.prompts[0].id, "mbpp/11");
  EXPECT_EQ(mbpp.prompts[0].group, "/mbpp/11");
  EXPECT_EQ(mbpp.prompts[0].code->test, "assert a\nassert b");
  EXPECT_EQ(mbpp.prompts[0].code->test_setup, "import s");

  const Prompt xsum = load_dataset("xsum", dir.path()).prompts.at(0);
  EXPECT_EQ(xsum.id, "xsum/99");
  EXPECT_EQ(xsum.group, "/xsum/99");
  EXPECT_EQ(xsum.turns.at(0),
            "Document: Text.\nBased on the previous text, provide a brief single summary:");
  EXPECT_EQ(xsum.reference, "S.");

  const Prompt cip = load_dataset("cip", dir.path()).prompts.at(0);
  EXPECT_EQ(cip.id, "cip/0");
  EXPECT_FALSE(cip.reference.has_value());

  const auto dolly = load_dataset("dolly", dir.path()).prompts;
  ASSERT_EQ(dolly.size(), 2u);
  EXPECT_EQ(dolly[0].id, "dolly/0");
  EXPECT_EQ(dolly[0].category, "open_qa");
  EXPECT_THAT(dolly[0].turns, ElementsAre("i"));
  EXPECT_THAT(dolly[1].turns, ElementsAre("i\n\nc\nd"));
  EXPECT_FALSE(dolly[1].reference.has_value());
  EXPECT_TRUE(dolly[1].chat);
  dir.write("dolly/databricks-dolly-15k.jsonl", R"({"instruction":"i","category":"open_qa"})");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("dolly", dir.path()); }),
              AllOf(HasSubstr("databricks-dolly-15k.jsonl"), HasSubstr("context")));
}

TEST(OfficialRows, PromptForms) {
  const TempFolder dir;
  dir.write("humaneval_x/humaneval_cpp.jsonl.gz",
            R"j({"task_id":"CPP/0","prompt":"int f(){\n","declaration":"int f(){\n",)j"
            R"j("canonical_solution":" x }","test":"int main(){}"})j");
  const auto prompt = [&](const std::string& form) {
    return load_dataset("humaneval_x[cpp]:prompt=" + form, dir.path()).prompts.at(0);
  };
  EXPECT_FALSE(prompt("completion").chat);
  EXPECT_TRUE(prompt("completion").stop.closing_brace);
  for (const char* form : {"chat", "instruct", "space", "bita"}) {
    EXPECT_TRUE(prompt(form).chat) << form;
    EXPECT_TRUE(prompt(form).stop.empty()) << form;
    EXPECT_THAT(prompt(form).turns.at(0), HasSubstr("int f(){\n")) << form;
    EXPECT_EQ(prompt(form).code->prompt, "int f(){\n") << form;
  }
  EXPECT_EQ(prompt("chat").turns.at(0), "int f(){\n");
  EXPECT_EQ(prompt("bita").turns.at(0), "Complete the following C++ code\nint f(){\n");
  EXPECT_THAT(prompt("space").turns.at(0), HasSubstr("just complete the code.\n int f()"));
  EXPECT_EQ(load_dataset("humaneval_x[cpp]:prompt=space", dir.path()).task,
            "humaneval_x[cpp]:prompt=space");
  EXPECT_EQ(load_dataset("humaneval_x[cpp]:prompt=completion", dir.path()).task,
            "humaneval_x[cpp]");

  dir.write("xsum/test.jsonl", R"([{"id":"9","document":"D.","summary":"S."}])");
  EXPECT_EQ(load_dataset("xsum:prompt=space", dir.path()).prompts.at(0).turns.at(0),
            "Document: D.\n Based on the previous text, provide a brief single summary");
}

TEST(OfficialRows, FewShotPrompts) {
  const TempFolder dir;
  dir.write("gsm8k/test.jsonl", R"({"question":"q?","answer":"#### 1"})");
  dir.write("gsm8k/train.jsonl",
            "{\"question\":\"t0\",\"answer\":\"a0\\n#### 0\"}\n"
            "{\"question\":\"t1\",\"answer\":\"a1\\n#### 1\"}\n");
  const Prompt two = load_dataset("gsm8k:shots=2", dir.path()).prompts.at(0);
  EXPECT_EQ(two.turns.at(0),
            "Question: t0\nAnswer: a0\n#### 0\n\nQuestion: t1\nAnswer: a1\n#### 1\n\n"
            "Question: q?\nAnswer:");
  EXPECT_FALSE(two.chat);
  EXPECT_THAT(two.stop.strings, ::testing::Contains("Question:"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("gsm8k:shots=3", dir.path()); }),
              AllOf(HasSubstr("train.jsonl"), HasSubstr("2 of the 3")));
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { load_dataset("gsm8k:shots=9", dir.path()); }),
              HasSubstr("0..8"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { load_dataset("gsm8k:shot=2", dir.path()); }),
              HasSubstr("did you mean 'shots'"));
  EXPECT_THAT(error_of(ExitCode::kUsage, [&] { load_dataset("xsum:prompt=spase", dir.path()); }),
              HasSubstr("did you mean 'space'"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("gsm_100", dir.path()); }),
              HasSubstr("none of the records"));

  std::string mbpp;
  for (int task : {2, 3, 4, 11})
    mbpp += fmt::format(R"({{"task_id":{},"text":"T{}.","code":"c{}\r\nd","test_list":["a{}"]}})"
                        "\n",
                        task, task, task, task);
  dir.write("mbpp/mbpp.jsonl", mbpp);
  const Prompt few = load_dataset("mbpp:prompt=few-shot", dir.path()).prompts.at(0);
  EXPECT_THAT(few.turns.at(0), AllOf(HasSubstr("T2. Your code should pass these tests:\n\na2\n"
                                               "[BEGIN]\nc2\nd\n[DONE]\n\nYou are"),
                                     ::testing::EndsWith("tests:\n\na11\n[BEGIN]\n")));
  EXPECT_THAT(few.stop.strings, ElementsAre("[DONE]"));
  dir.write("mbpp/mbpp.jsonl", mbpp.substr(mbpp.find('\n') + 1));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("mbpp:prompt=few-shot", dir.path()); }),
              HasSubstr("before the examples"));
}

TEST(OfficialRows, SpecBenchTasksAndMbpp100) {
  const TempFolder dir;
  dir.write("spec_bench/question.jsonl",
            R"({"question_id":81,"category":"writing","turns":["a","b"]})"
            "\n"
            R"({"question_id":161,"category":"translation","turns":["t"],"reference":["r"]})"
            "\n"
            R"({"question_id":481,"category":"rag","turns":["g"],"reference":[["x","y"]]})");
  const auto all = load_dataset("spec_bench", dir.path()).prompts;
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].category, "mt_bench");
  EXPECT_EQ(all[1].reference, "r");
  EXPECT_FALSE(all[2].reference.has_value());
  const LoadedDataset part = load_dataset("spec_bench[rag,translation]", dir.path());
  EXPECT_EQ(part.prompts.size(), 2u);
  EXPECT_EQ(part.task, "spec_bench[translation,rag]");
  EXPECT_EQ(part.info.official_count, 160);

  std::string array;
  for (int task = 1; task <= 14; ++task)  // 11 to 14 are tests 0 to 3, of which 1 and 3 are drawn
    array += fmt::format(
        R"({}{{"task_id":{},"prompt":"P{}.","code":"c","test_imports":["import m"],"test_list":["a"]}})",
        task == 1 ? "[" : ",\n", task, task);
  dir.write("mbpp/sanitized-mbpp.json", array + "]");
  const auto hundred = load_dataset("mbpp_100:prompt=self-draft", dir.path()).prompts;
  ASSERT_EQ(hundred.size(), 2u);
  EXPECT_EQ(hundred[0].id, "mbpp_100/12");
  EXPECT_EQ(hundred[1].id, "mbpp_100/14");
  EXPECT_EQ(hundred[0].turns.at(0), "P12.");
  EXPECT_EQ(hundred[0].code->test_setup, "import m");
}

TEST(OfficialRows, RefuseWhatIsNotTheirs) {
  const TempFolder dir;
  dir.write("gsm8k/test.jsonl", R"({"question":"q0","answer":"12"})");
  dir.write("humaneval/HumanEval.jsonl.gz",
            R"({"task_id":"Python/0","prompt":"x","entry_point":"f","test":"t"})");
  dir.write("mt_bench/question.jsonl",
            R"({"question_id":"81","category":"writing","turns":["a"]})");
  dir.write("xsum/test.jsonl", R"({"id":"1","document":"Text."})");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("gsm8k", dir.path()); }),
              AllOf(HasSubstr("line 1"), HasSubstr("'answer'"), HasSubstr("####")));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("humaneval", dir.path()); }),
              HasSubstr("'task_id'"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("mt_bench", dir.path()); }),
              HasSubstr("'question_id'"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { load_dataset("xsum", dir.path()); }),
              AllOf(HasSubstr("'summary'"), HasSubstr("missing")));
}

std::vector<Prompt> prompts_of(const std::string& categories) {
  std::vector<Prompt> prompts;
  for (char c : categories) {
    Prompt prompt;
    prompt.id = fmt::format("{}{}", c, prompts.size());
    prompt.category = c;
    prompts.push_back(prompt);
  }
  return prompts;
}

std::string ids_of(const std::vector<Prompt>& prompts) {
  std::string ids;
  for (const Prompt& prompt : prompts) ids += (ids.empty() ? "" : " ") + prompt.id;
  return ids;
}

TEST(LimitPrompts, TakesTurnsOverCategoriesInOrder) {
  const auto prompts = prompts_of("aaaabbbbc");
  EXPECT_EQ(ids_of(limit_prompts(prompts, 3)), "a0 b4 c8");
  EXPECT_EQ(ids_of(limit_prompts(prompts, 4)), "a0 a1 b4 c8");
  EXPECT_EQ(ids_of(limit_prompts(prompts, 2)), "a0 b4");
  EXPECT_EQ(ids_of(limit_prompts(prompts, 1)), "a0");
  EXPECT_EQ(ids_of(limit_prompts(prompts, 7)), "a0 a1 a2 b4 b5 b6 c8");
  EXPECT_EQ(ids_of(limit_prompts(prompts_of("abcabc"), 4)), "a0 b1 c2 a3");
}

TEST(LimitPrompts, FractionsAndLimitsBeyond) {
  const auto prompts = prompts_of("aaaabbbb");
  EXPECT_EQ(limit_prompts(prompts, 0.5).size(), 4u);
  EXPECT_EQ(limit_prompts(prompts, 0.001).size(), 1u);
  for (double all : {0.0, -1.0, 8.0, 100.0}) EXPECT_EQ(limit_prompts(prompts, all).size(), 8u);
  EXPECT_TRUE(limit_prompts({}, 3).empty());
  for (double bad : {2.5, std::nan(""), std::numeric_limits<double>::infinity()})
    error_of(ExitCode::kUsage, [&] { limit_prompts(prompts, bad); });
}

// Against the definition: never more than one ahead of a category that has prompts left.
TEST(LimitPrompts, EvenForEveryLimit) {
  const auto prompts = prompts_of("abbcccaaabddddddddc");
  for (int limit = 1; limit <= static_cast<int>(prompts.size()); ++limit) {
    const auto part = limit_prompts(prompts, limit);
    ASSERT_EQ(part.size(), static_cast<size_t>(limit));
    std::map<std::string, int> taken, whole;
    for (const Prompt& p : part) ++taken[p.category];
    for (const Prompt& p : prompts) ++whole[p.category];
    for (const auto& [category, n] : whole)
      for (const auto& [other, m] : taken)
        if (taken[category] < n) {
          EXPECT_LE(m, taken[category] + 1) << limit << " " << category << other;
        }
  }
}

}  // namespace
}  // namespace evalrun::datasets
