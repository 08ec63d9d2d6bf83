"""scripts/mutants: which faults it plants, and a whole run over a toy project that is built and tested."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("mutants", str(ROOT / "scripts" / "mutants"))
mutants = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutants", loader))
loader.exec_module(mutants)


def changes(line):
    return [m.after for m in mutants.mutants_of("a.cpp", line)]


class Faults(unittest.TestCase):
    def test_of_operators_and_constants(self):
        self.assertEqual(changes("  bool b = x < 3 && y;"),
                         ["bool b = x <= 3 && y;", "bool b = x < 3 || y;", "bool b = x < 4 && y;"])
        self.assertEqual(changes("  const int m = std::min(a, b);"), ["const int m = std::max(a, b);"])
        self.assertEqual(changes("  double d = 0.5, e = 1.0;"),
                         ["double d = 1.5, e = 1.0;", "double d = 0.5, e = 0.0;"])
        self.assertEqual(changes("  bool known = true;"), ["bool known = false;"])

    def test_of_statements_and_conditions(self):
        self.assertEqual(changes("  list.push_back(x);"), [";"])
        self.assertEqual(changes("  total_ = f(x);"), [";"])
        self.assertEqual(changes("  if (ready(x)) return y;"), ["if (!(ready(x))) return y;"])
        self.assertEqual(changes("  if (!ready) {"), ["if (!(!ready)) {", "if (ready) {"])
        # The second line belongs to the first.
        self.assertEqual(changes("  const auto x =\n      f(y);"), [])

    def test_none_where_no_test_could_bite(self):
        for line in ("  // a < b", '  f("a < b && 1");', "#if A < 1", "  EVALRUN_CHECK(a < b, x);",
                     '  throw Error(a + 1, "x");', '  spdlog::info("{}", n + 1);', "  list.reserve(n + 1);",
                     "  static_assert(a == 1);", "  std::array<double, 256> block;", "  int* p;",
                     "  template <int n = 1>", '  auto r = R"(a < 1)";', "  std::vector<int> x;"):
            with self.subTest(line):
                self.assertIn(changes(line), ([], [";"]) if "f(" in line else ([],))

    def test_code_after_what_is_hidden_counts(self):
        self.assertEqual(changes('  EVALRUN_CHECK(a < b, "x;");\n  ++n_;'), ["--n_;", ";"])
        self.assertEqual(changes("  /* a < b */ return a < b;  // a < b"), ["/* a < b */ return a <= b;  // a < b"])

    def test_samples_are_of_lines_and_repeat(self):
        by_line = {("a.cpp", n): [n, -n] for n in range(1, 50)}
        once = mutants.choose(by_line, 10, 7)
        self.assertEqual(once, mutants.choose(by_line, 10, 7))
        self.assertNotEqual(once, mutants.choose(by_line, 10, 8))
        self.assertEqual(sorted(abs(m) for m in once), list(range(1, 50)))


FILES = {
    "shop/price.cpp": """int price(int n, bool member) {
  int sum = n * 10;
  if (member) sum = sum - 1;
  if (n >= 3) sum -= 0;
  while (n > 100) n = n - 100;
  return sum;
}
""",
    "tests/shop/price_test.cpp": """#include <gtest/gtest.h>
int price(int n, bool member);
TEST(Price, OfOne) { EXPECT_EQ(price(1, false), 10); }
TEST(Price, OfMembers) { EXPECT_EQ(price(1, true), 9); }
TEST(Price, OfMany) { EXPECT_EQ(price(150, false), 1500); }
""",
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.20)
project(shop CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
find_package(GTest REQUIRED)
add_library(shop STATIC shop/price.cpp)
add_executable(shop_test tests/shop/price_test.cpp)
target_link_libraries(shop_test shop GTest::gtest_main)
""",
    ".gitignore": "build/\n",
    "tests/mutants.tsv": "# file, before, after, why\n"
                         "shop/price.cpp\tif (n >= 3) sum -= 0;\tif (n > 3) sum -= 0;\tnought\n",
}


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name) / "shop"
        for name, text in FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "shop")

    def git(self, *arguments):
        subprocess.run(["git", "-C", str(self.root), *arguments], check=True)

    def mutants(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = mutants.main([*arguments, "--under", "shop"], self.root)
        return code, output.getvalue()

    def verdicts(self):
        rows = (self.root / "build" / "mutants" / "verdicts.jsonl").read_text().splitlines()
        return {(r["before"], r["after"]): r["verdict"] for r in map(json.loads, rows)}

    def test_whole(self):
        table = self.root / "table.tsv"
        code, output = self.mutants("--n", "5", "--seed", "3", "--write", str(table))
        verdicts = self.verdicts()
        self.assertEqual(len(table.read_text().splitlines()), 4, output)  # as many as there are lines with faults
        self.assertIn("shop", output)
        self.assertEqual((self.root / "shop/price.cpp").read_text(), FILES["shop/price.cpp"])

        # Again: nothing is built, the answer is the same.
        again, output = self.mutants("--n", "5", "--seed", "3")
        self.assertEqual((again, self.verdicts()), (code, verdicts))
        self.assertNotIn("min left", output)

        # The line that changed, all its faults.
        source = FILES["shop/price.cpp"].replace("if (member) sum = sum - 1;", "if (member) sum = sum - 1 * 1;")
        (self.root / "shop/price.cpp").write_text(source)
        code, output = self.mutants("--changed", "HEAD")
        found = {after: verdict for (before, after), verdict in self.verdicts().items()
                 if before == "if (member) sum = sum - 1 * 1;"}
        self.assertEqual(found, {
            "if (member) sum = sum + 1 * 1;": "found", "if (member) sum = sum - 1 / 1;": "survived",
            "if (member) sum = sum - 0 * 1;": "found", "if (member) sum = sum - 1 * 0;": "found",
            "if (!(member)) sum = sum - 1 * 1;": "found"})
        self.assertEqual(code, 1)

    def test_a_broken_baseline_is_an_error(self):
        (self.root / "shop/price.cpp").write_text(FILES["shop/price.cpp"].replace("n * 10", "n * 11"))
        with self.assertRaisesRegex(SystemExit, "(?s)fails without a fault.*OfOne"):
            self.mutants("--n", "1")

    def test_a_case_that_fails_once_is_left_out(self):
        test = self.root / "tests/shop/price_test.cpp"
        test.write_text("#include <fstream>\n" + test.read_text() + """
TEST(Price, Unsteady) {
  const bool seen = std::ifstream("seen").good();
  std::ofstream("seen").put('x');
  EXPECT_TRUE(seen);
}
""")
        _, output = self.mutants("--n", "1")
        self.assertIn("left out, failed once without a fault: Price.Unsteady", output)


if __name__ == "__main__":
    unittest.main()
