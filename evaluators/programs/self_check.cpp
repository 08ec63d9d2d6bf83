#include "evaluators/programs/self_check.h"

namespace evalrun::evaluators {

using datasets::CodeProblem;

namespace {

CodeProblem problem(const char* language, const char* prompt, const char* solution,
                    const char* test) {
  CodeProblem p;
  p.language = language;
  p.task = std::string("self-check/") + language;
  p.prompt = prompt;
  p.canonical_solution = solution;
  p.test = test;
  return p;
}

std::vector<CodeProblem> make_problems() {
  std::vector<CodeProblem> all;
  all.push_back(problem("python",
                        "def add(a: int, b: int) -> int:\n    \"\"\" Sum of a and b. \"\"\"\n",
                        "    return a + b\n",
                        "def check(add):\n    assert add(2, 3) == 5\n    assert add(-1, 1) == 0\n\n"
                        "check(add)"));
  all.push_back(
      problem("cpp",
              "/*\nSum of a and b.\n*/\n#include<vector>\nusing namespace std;\n"
              "int add(int a,int b){\n",
              "    return a+b;\n}\n",
              "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (add(2,3)==5);\n"
              "    assert (add(-1,1)==0);\n}\n"));
  all.push_back(problem(
      "java",
      "import java.util.*;\nimport java.lang.*;\n\nclass Solution {\n    /**\n    Sum of a and b.\n"
      "     */\n    public int add(int a, int b) {\n",
      "        return a + b;\n    }\n}",
      "public class Main {\n    public static void main(String[] args) {\n        Solution s = new "
      "Solution();\n        List<Boolean> correct = Arrays.asList(s.add(2, 3) == 5, s.add(-1, 1) "
      "== "
      "0);\n        if (correct.contains(false)) {\n            throw new AssertionError();\n      "
      "  "
      "}\n    }\n}\n"));
  all.push_back(problem("js", "/* Sum of a and b. */\nconst add = (a, b) => {\n",
                        "  return a + b;\n}\n",
                        "const testAdd = () => {\n  console.assert(add(2, 3) === 5)\n  "
                        "console.assert(add(-1, 1) === 0)\n}\n\ntestAdd()\n"));
  CodeProblem go =
      problem("go", "import (\n    \"math\"\n)\n\n// Sum of a and b.\nfunc Add(a, b int) int {\n",
              "    return a + b\n}\n",
              "func TestAdd(t *testing.T) {\n    assert := assert.New(t)\n    assert.Equal(5, "
              "Add(2, 3))\n    "
              "assert.Equal(0, Add(-1, 1))\n}\n");
  go.imports = "import (\n    \"math\"\n)\n";
  go.declaration = "\nfunc Add(a, b int) int {\n";
  go.test_setup =
      "package main\n\nimport (\n    \"testing\"\n    \"github.com/stretchr/testify/assert\"\n)\n";
  all.push_back(go);
  CodeProblem rust =
      problem("rust", "\n/*\n Sum of a and b.\n*/\n", "    a + b\n}\n",
              "\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn "
              "test_add() {\n        assert_eq!(add(2, 3), 5);\n        "
              "assert_eq!(add(-1, 1), 0);\n    }\n}\n");
  rust.declaration =
      "\nuse std::collections::HashMap;\nuse rand::Rng;\nuse regex::Regex;\nuse md5;\n\nfn add(a: "
      "i32, b: i32) -> i32{\n";
  all.push_back(rust);
  return all;
}

}  // namespace

const std::vector<CodeProblem>& self_check_problems() {
  static const std::vector<CodeProblem> kProblems = make_problems();
  return kProblems;
}

}  // namespace evalrun::evaluators
