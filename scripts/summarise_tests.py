"""Counts the tests in a JUnit file written by ctest and lists what failed or was skipped, with reasons.

A ctest entry that runs a GoogleTest binary with several cases counts as that many tests. The last
line printed is "N passed, N failed, N skipped"; the exit code is 1 when a test failed or none ran.
"""
import collections
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_TOTAL = re.compile(r"^\[==========\] (\d+) tests? from \d+ test suites? ran", re.M)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.M)
GTEST_FAILED = re.compile(r"^\[  FAILED  \] (\d+) tests?, listed below", re.M)
# "file:line: Skipped", then the message up to the closing line of that test.
GTEST_REASON = re.compile(r": Skipped\n(.*?)\n*\[  SKIPPED \] ", re.S)


def count_entry(case):
    """Returns (passed, failed, skipped, reasons) of one ctest entry."""
    output = case.findtext("system-out") or ""
    failed_entry = case.find("failure") is not None or case.find("error") is not None
    total = GTEST_TOTAL.search(output)
    if total is None:  # not GoogleTest, or it crashed half-way
        if failed_entry:
            return 0, 1, 0, []
        skipped = case.find("skipped")
        if skipped is None and case.get("status") == "run":
            return 1, 0, 0, []
        message = (skipped.get("message") if skipped is not None else "") or ""
        if not message.startswith("SKIP_") and case.get("status") != "disabled":
            return 0, 1, 0, []  # no such binary, a fixture that failed: nobody chose to skip it
        lines = [line for line in output.splitlines() if line.strip()]
        return 0, 0, 1, [lines[-1] if lines else "no reason given"]
    n = int(total.group(1))
    skipped = sum(int(m) for m in GTEST_SKIPPED.findall(output))
    failed = sum(int(m) for m in GTEST_FAILED.findall(output))
    if failed_entry and failed == 0:  # all cases fine, yet a bad exit (a leak report, a crash at exit)
        failed, skipped = 1, min(skipped, n - 1)
    reasons = [" ".join(m.split()) or "no reason given" for m in GTEST_REASON.findall(output)]
    reasons += ["no reason given"] * (skipped - len(reasons))
    return n - skipped - failed, failed, skipped, reasons[:skipped]


def main(path):
    try:
        suite = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test results: {error}")
        print("0 passed, 0 failed, 0 skipped")
        return 1
    totals = [0, 0, 0]
    failures, reasons = [], collections.Counter()
    for case in suite.iter("testcase"):
        passed, failed, skipped, why = count_entry(case)
        totals = [totals[0] + passed, totals[1] + failed, totals[2] + skipped]
        if failed:
            failures.append(case.get("name"))
        reasons.update(why)
    for reason, n in reasons.most_common():
        print(f"skipped {n}: {reason}")
    for name in failures:
        print(f"failed: {name}")
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or sum(totals) == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
