// From answers to code: stop rules by convention, chat answers by language.
#include "evaluators/programs/completion.h"

#include <gtest/gtest.h>

#include "engine/base/rng.h"
#include "tests/evaluators/code_test.h"

namespace evalrun::tests {
namespace {

using datasets::CodeProblem;
using evaluators::Answer;
using evaluators::CodeConvention;
using evaluators::cut_completion;
using evaluators::read_answer;

std::string cut(const std::string& language, const std::string& text,
                CodeConvention convention = CodeConvention::kCodegeex) {
  return cut_completion(self_check(language), text, convention);
}

TEST(CutCompletion, PythonEndsAtColumnZero) {
  EXPECT_EQ(cut("python", "    return 1\n\nprint(2)\n"), "    return 1\n");
  EXPECT_EQ(cut("python", "    return 1\n\t\n  x\n"), "    return 1\n\t\n  x\n");
  EXPECT_EQ(cut("python", "# at once\n    return 1\n"), "");
  EXPECT_EQ(cut("python", ""), "");
  // bigcode's words come first, then the same rule.
  EXPECT_EQ(cut("python", "    return 1\n@x\n", CodeConvention::kBigcode), "    return 1");
  EXPECT_EQ(cut("python", "    x = 1\nimport os", CodeConvention::kBigcode), "    x = 1");
}

TEST(CutCompletion, BracesCountInStringsToo) {
  EXPECT_EQ(cut("cpp", "  return a;\n}\nint main(){}\n"), "  return a;\n}");
  EXPECT_EQ(cut("cpp", "  if (a) { b; }\n}\n// more }"), "  if (a) { b; }\n}");
  EXPECT_EQ(cut("cpp", "  char c = '}';\n  return a;\n}\n"), "  char c = '}");
  EXPECT_EQ(cut("cpp", "  if (a) { b; }"), "  if (a) { b; }");
  EXPECT_EQ(cut("js", "  no brace"), "  no brace");
}

TEST(CutCompletion, JavaClosesItsClass) {
  EXPECT_EQ(cut("java", "        return 1;\n    }\n}"), "        return 1;\n    }\n}");
  EXPECT_EQ(
      cut("java", "        if (a) {\n        return 1;\n    public static void main(String[] x)"),
      "        if (a) {\n        return 1;\n    }");
  EXPECT_EQ(cut("java", "        return 1;\n    }\n}\nclass X {}", CodeConvention::kBigcode),
            "        return 1;\n    }\n}");
}

TEST(CutCompletion, GoDropsCommentsAndMain) {
  EXPECT_EQ(cut("go", "    x()\n// {\n    y()\n}\n"), "    x()");
  EXPECT_EQ(cut("go", "    return a\n}\nfunc main() {\n}", CodeConvention::kBigcode),
            "    return a\n}");
}

TEST(CutCompletion, CalledHelpersAreKeptByEvalrunAlone) {
  const std::string text =
      "    return twice(a)\n}\nfunc twice(a int) int {\n    return 2 * a\n}\nfunc x() {\n}\n";
  EXPECT_EQ(cut("go", text), "    return twice(a)\n}");
  EXPECT_EQ(cut("go", text, CodeConvention::kEvalrun),
            "    return twice(a)\n}\nfunc twice(a int) int {\n    return 2 * a\n}");
  // In Rust the open signature may be that of a helper; the test says what is called.
  CodeProblem rust = self_check("rust");
  rust.test = "assert_eq!(second(1), 2)";
  EXPECT_EQ(
      cut_completion(rust, " 1 }\nfn second(a: i32) { a }\nfn main() {}", CodeConvention::kBigcode),
      " 1 }\nfn second(a: i32) { a }");
}

TEST(EntryPoint, IsReadFromTheSignature) {
  for (const CodeProblem& problem : evaluators::self_check_problems())
    EXPECT_EQ(evaluators::entry_point(problem), problem.language == "go" ? "Add" : "add")
        << problem.language;
  CodeProblem named = self_check("python");
  named.entry_point = "other";
  EXPECT_EQ(evaluators::entry_point(named), "other");
}

TEST(MatchingBrace, SkipsTextThatIsNotCode) {
  const std::string code = "{ '}' \"}\\\"}\" /* } */ // }\n {} }x";
  EXPECT_EQ(evaluators::matching_brace(code, 0), code.size() - 1);
  EXPECT_EQ(evaluators::matching_brace("{ {", 0), std::string::npos);
  EXPECT_EQ(evaluators::matching_brace("{ fn f<'a>(x: &'a str) {} }", 0), 27u);
}

TEST(ReadAnswer, ChoosesTheBlockThatDefinesTheFunction) {
  const CodeProblem& p = self_check("python");
  const auto chat = [&](const std::string& text) {
    return read_answer(p, true, text, CodeConvention::kEvalrun);
  };
  Answer a =
      chat("First:\n```\npip install x\n```\nthen\n```python\ndef add(a, b):\n    return 1\n```\n");
  EXPECT_TRUE(a.whole);
  EXPECT_EQ(a.code, "def add(a, b):\n    return 1\n");
  a = chat("```sh\nls\n```\n```py\n    return a + b\n```");
  EXPECT_FALSE(a.whole);
  EXPECT_EQ(a.code, "    return a + b\n");
  a = chat("```python\ndef add(a, b):\n    return 2");  // cut off by the token limit
  EXPECT_TRUE(a.whole);
  EXPECT_EQ(a.code, "def add(a, b):\n    return 2");
  EXPECT_TRUE(chat("def add(a, b):\n    return 3\n").whole);
  EXPECT_EQ(chat("I cannot do that.").code, "");
  EXPECT_EQ(chat("").code, "");
}

// Whatever the bytes, reading an answer ends, and takes nothing past their end.
TEST(ReadAnswer, AnyBytes) {
  base::Rng rng(7);
  const std::string letters = "{}()`~'\"/*\\\n\t adef=fn#@\0\xff\xc3";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (size_t n = rng.below(60); n > 0; --n) text += letters[rng.below(letters.size())];
    for (const CodeProblem& p : evaluators::self_check_problems())
      for (const auto convention :
           {CodeConvention::kEvalrun, CodeConvention::kCodegeex, CodeConvention::kBigcode})
        for (const bool chat : {false, true}) {
          const Answer a = read_answer(p, chat, text, convention);
          EXPECT_LE(a.code.size(), text.size() + 2);
          if (a.whole) evaluators::languages().get(p.language).assemble(p, a, {});
        }
  }
}

}  // namespace
}  // namespace evalrun::tests
