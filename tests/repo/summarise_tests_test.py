"""scripts/summarise_tests.py on files as ctest writes them: counts, skips that are listed or not, time."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import summarise_tests  # noqa: E402

GROUP = """[ RUN      ] A.Good
[       OK ] A.Good (0 ms)
[ RUN      ] A.Left
/x/a_test.cpp:7: Skipped
no golden
data at /y

[  SKIPPED ] A.Left (0 ms)
[ RUN      ] A.Bad/2
[  FAILED  ] A.Bad/2, where GetParam() = 3 (1 ms)
[==========] 3 tests from 1 test suite ran. (2 ms total)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.Left
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.Bad/2, where GetParam() = 3
"""


def case(name, output="", status="run", inside="", seconds=1.0):
    return (f'<testcase name="{name}" classname="{name}" time="{seconds}" status="{status}">{inside}'
            f"<system-out>{output}</system-out></testcase>")


SKIPPED = '<skipped message="SKIP_RETURN_CODE=77"/>'
FAILED = '<failure message=""/>'


class Summary(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.skips, self.budget = "", "unit | 10\n"

    def write(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.write_text(text)
        return str(path)

    def summary(self, *cases, labels=None, ci=False, whole=False):
        arguments = [self.write("junit.xml", f"<testsuite>{''.join(cases)}</testsuite>"),
                     "--skips", self.write("skips.txt", self.skips), "--budget", self.write("budget.txt", self.budget)]
        if labels is not None:
            tests = [{"name": n, "properties": [{"name": "LABELS", "value": v}]} for n, v in labels.items()]
            arguments += ["--tests", self.write("tests.json", json.dumps({"tests": tests}))]
        out = io.StringIO()
        env = {k: v for k, v in os.environ.items() if k != "CI"} | ({"CI": "true"} if ci else {})
        with contextlib.redirect_stdout(out), mock.patch.dict(os.environ, env, clear=True), \
                mock.patch.object(summarise_tests, "conditions", lambda *_: {"root": True, "no-data": False}):
            code = summarise_tests.main(arguments + ["--whole"] * whole)
        return code, out.getvalue()

    def test_counts_cases_of_a_binary(self):
        code, out = self.summary(case("one"), case("many", GROUP, "fail", FAILED))
        self.assertEqual(code, 1)
        self.assertTrue(out.endswith("2 passed, 1 failed, 1 skipped\n"), out)
        self.assertIn("failed: many\n  A.Bad/2\n", out)
        self.assertIn("skipped 1: no golden data at /y", out)

    def test_the_seed_is_told_where_something_failed(self):
        with mock.patch.dict(os.environ, {"EVALRUN_TEST_SEED": "77"}):
            os.environ.pop("EVALRUN_TEST_ALL", None)
            _, out = self.summary(case("many", GROUP, "fail", FAILED))
            self.assertIn("samples: seed 77; EVALRUN_TEST_SEED=77 scripts/test", out)
            self.assertRegex(out, r"\n\d+ passed, 1 failed, 1 skipped\n$")
            self.assertNotIn("seed", self.summary(case("one"))[1])
            os.environ["EVALRUN_TEST_ALL"] = "1"
            self.assertNotIn("seed", self.summary(case("many", GROUP, "fail", FAILED))[1])

    def test_no_results_are_a_failure(self):
        self.assertEqual(summarise_tests.main(["/nowhere/junit.xml"]), 1)
        self.assertEqual(self.summary()[0], 1)

    def test_a_missing_binary_is_a_failure(self):
        code, out = self.summary(case("gone", status="notrun", inside='<skipped message="Unable to find executable"/>'))
        self.assertEqual(code, 1)
        self.assertIn("0 passed, 1 failed, 0 skipped", out)

    def test_a_crash_half_way_is_one_failure(self):
        _, out = self.summary(case("many", "[ RUN      ] A.Good\n[       OK ] A.Good (5 ms)\n[ RUN      ] A.Bad/2\n",
                                   "fail", FAILED))
        self.assertIn("0 passed, 1 failed, 0 skipped", out)
        self.assertIn("failed: many\n  A.Bad/2\n", out)

    def test_cases_of_a_binary_are_timed_one_by_one(self):
        _, out = self.summary(case("one"), case("many", GROUP, "fail", FAILED))
        self.assertRegex(out, r"\d s  A.Bad/2 \(")
        self.assertNotRegex(out, r"\d s  many \(")

    def test_a_listed_skip_passes_where_its_condition_holds(self):
        self.skips = "root no-data | a* | may *\n"
        skip = case("a.b", "may write\n", "notrun", SKIPPED)
        code, out = self.summary(skip, ci=True)
        self.assertEqual(code, 0, out)
        self.skips = "no-data | a* | may *\n"
        code, out = self.summary(skip, ci=True)
        self.assertEqual(code, 1)
        self.assertIn("error: skipped, listed only for: no-data: a.b: may write", out)

    def test_an_unlisted_skip_fails_in_ci_alone(self):
        for ci in (False, True):
            code, out = self.summary(case("a.b", "why\n", "notrun", SKIPPED), ci=ci)
            self.assertEqual(code, 1 if ci else 0)
            self.assertIn("skipped, not in tests/skips.txt: a.b: why", out)

    def test_the_reason_counts_too(self):
        self.skips = "root | a.b | another reason\n"
        self.assertEqual(self.summary(case("a.b", "why\n", "notrun", SKIPPED), ci=True)[0], 1)

    def test_a_list_that_names_no_test_or_no_condition_fails(self):
        self.skips = "root | A.Gone | *\n"
        self.assertEqual(self.summary(case("one"), ci=True, whole=True)[0], 1)
        self.assertEqual(self.summary(case("one"), ci=True)[0], 0)
        self.skips = "sometimes | one | *\n"
        code, out = self.summary(case("one"), ci=True)
        self.assertEqual(code, 1)
        self.assertIn("no condition 'sometimes'", out)

    def test_a_condition_that_holds_and_does_not_show_is_noted(self):
        skip = case("a.b", "why\n", "notrun", SKIPPED)
        self.skips = "root no-data | a.* | *\n"
        self.assertEqual(self.summary(skip, case("a.c"), ci=True, whole=True)[0], 0)
        code, out = self.summary(case("a.b"), case("a.c"), ci=True, whole=True)
        self.assertEqual(code, 0)
        self.assertIn("note: tests/skips.txt: 'root no-data' holds here, yet no 'a.*' was skipped", out)
        self.assertEqual(self.summary(case("a.b"), whole=True)[0], 0)  # a note where CI is not set
        self.assertEqual(self.summary(case("a.b"), ci=True)[0], 0)  # a selection
        self.skips = "no-data | a.* | *\n"
        self.assertEqual(self.summary(case("a.b"), ci=True, whole=True)[0], 0)

    def test_one_reason_may_hide_another(self):
        self.skips = "root | a.b | why\nroot | a.b | never said\n"
        self.assertEqual(self.summary(case("a.b", "why\n", "notrun", SKIPPED), ci=True, whole=True)[0], 0)

    def test_each_test_runs_in_some_environment(self):
        skip = case("a.b", "why\n", "notrun", SKIPPED)
        self.skips = "here | root\nthere | no-data\nroot | a.b | why\n"
        self.assertEqual(self.summary(skip, ci=True)[0], 0)
        self.skips = "here | root\nthere | no-data root\nroot | a.b | why\n"
        code, out = self.summary(skip, ci=True)
        self.assertEqual(code, 1)
        self.assertIn("'a.b' runs in no environment", out)
        self.skips = "here | sometimes\n"
        self.assertIn("no condition 'sometimes'", self.summary(case("one"))[1])

    def test_time_is_told_and_never_fails(self):
        cases = [case(f"t{i}", seconds=i) for i in range(20)]
        code, out = self.summary(*cases, labels={f"t{i}": ["unit", "slow"] if i == 19 else ["unit"] for i in range(20)},
                                 ci=True)
        self.assertEqual(code, 0)
        self.assertEqual(out.count(" s  t"), 15)
        self.assertLess(out.index("t19 (unit slow)"), out.index("t5 (unit)"))
        self.assertRegex(out, r"unit +20 +190 +10 +over budget")
        self.assertRegex(out, r"slow +1 +19 +-\n")

    def test_the_committed_files_are_well_formed(self):
        with tempfile.TemporaryDirectory() as folder:
            known = summarise_tests.conditions(pathlib.Path(folder))
        for where, *rest in summarise_tests.table(ROOT / "tests/skips.txt"):
            self.assertIn(len(rest), (1, 2))
            self.assertTrue(where.split())
        rows = summarise_tests.table(ROOT / "tests/skips.txt")
        self.assertGreater(sum(len(row) == 2 for row in rows), 1)  # environments
        self.assertEqual(summarise_tests.judge_skips([], rows, known), [])
        for label, seconds in summarise_tests.table(ROOT / "tests/budget.txt"):
            self.assertTrue(label)
            self.assertGreater(int(seconds), 0)


if __name__ == "__main__":
    unittest.main()
