"""Counts the tests in a JUnit file written by ctest: where the time went, what was skipped, what failed.

  python3 scripts/summarise_tests.py JUNIT [--tests JSON] [--whole] [--sanitizers]

JSON is what `ctest --show-only=json-v1` prints: the labels. --whole: nothing was left out by options, so
an entry of tests/skips.txt that names no test is wrong, and one that no skip answered to is noted. A ctest
entry that runs a GoogleTest binary with several cases counts as that many tests. The last line printed is
"N passed, N failed, N skipped"; the exit code is 1 when a test failed or none ran and, where CI is set,
when a test was skipped that tests/skips.txt does not list for a machine like this one, or when that list
names a test that is not there or runs nowhere. Time over tests/budget.txt is only reported.
"""
import argparse
import collections
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[1]

GTEST_TOTAL = re.compile(r"^\[==========\] (\d+) tests? from \d+ test suites? ran", re.M)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] (\d+) tests?, listed below", re.M)
GTEST_FAILED = re.compile(r"^\[  FAILED  \] (\d+) tests?, listed below", re.M)
GTEST_FAILURE = re.compile(r"^\[  FAILED  \] (\S+?),? .*\(\d+ ms\)$", re.M)
GTEST_CASE = re.compile(r"^\[ RUN      \] (\S+)", re.M)
GTEST_TIME = re.compile(r"^\[ +(?:OK|FAILED) +\] (\S+?),? .*\((\d+) ms\)$", re.M)
# "file:line: Skipped", then the message up to the closing line of that test, which names it.
GTEST_REASON = re.compile(r": Skipped\n(.*?)\n*\[  SKIPPED \] (\S+) \(", re.S)
CUDA_COMPILER = re.compile(r"^CMAKE_CUDA_COMPILER:\w+=/", re.M)

# One entry of ctest. skips: (test, reason); cases: names of the tests in it; times: (case, seconds).
Entry = collections.namedtuple("Entry", "name seconds passed failed skips cases failures times", defaults=[(), ()])


def read_entry(case):
    name, output = case.get("name") or "", case.findtext("system-out") or ""
    seconds = float(case.get("time") or 0)
    failed_entry = case.find("failure") is not None or case.find("error") is not None
    total = GTEST_TOTAL.search(output)
    if total is None:  # not GoogleTest, or it crashed half-way
        if failed_entry:  # GoogleTest has said what it began last
            begun = GTEST_CASE.findall(output)
            return Entry(name, seconds, 0, 1, [], begun or [name], begun[-1:])
        skipped = case.find("skipped")
        if skipped is None and case.get("status") == "run":
            return Entry(name, seconds, 1, 0, [], [name])
        message = (skipped.get("message") if skipped is not None else "") or ""
        if not message.startswith("SKIP_") and case.get("status") != "disabled":
            return Entry(name, seconds, 0, 1, [], [name])  # no such binary, or a fixture failed: nobody's choice
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        return Entry(name, seconds, 0, 0, [(name, lines[-1] if lines else "no reason given")], [name])
    n = int(total.group(1))
    skipped = sum(int(m) for m in GTEST_SKIPPED.findall(output))
    failed = sum(int(m) for m in GTEST_FAILED.findall(output))
    if failed_entry and failed == 0:  # all cases fine, yet a bad exit (a leak report, a crash at exit)
        failed, skipped = 1, min(skipped, n - 1)
    skips = [(test, " ".join(why.split()) or "no reason given") for why, test in GTEST_REASON.findall(output)]
    skips += [(name, "no reason given")] * (skipped - len(skips))
    return Entry(name, seconds, n - skipped - failed, failed, skips[:skipped], GTEST_CASE.findall(output),
                 [f for f in GTEST_FAILURE.findall(output) if f != name],
                 [(case, int(ms) / 1000) for case, ms in GTEST_TIME.findall(output)])


def read_labels(path):
    """ctest entry -> its labels."""
    labels = {}
    for test in json.loads(pathlib.Path(path).read_text()).get("tests", []):
        of_test = [p["value"] for p in test.get("properties", []) if p["name"] == "LABELS"]
        labels[test["name"]] = of_test[0] if of_test else []
    return labels


def table(path):
    """Lines "a | b | c" of a file, without comments."""
    rows = []
    for line in pathlib.Path(path).read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            rows.append([field.strip() for field in line.split("|")])
    return rows


def conditions(build, sanitizers=False, root=ROOT, env=os.environ):
    """What tests/skips.txt may say of a machine. None is true everywhere: each test runs somewhere."""
    shared = pathlib.Path(env.get("EVALRUN_SHARED") or root.parent / "shared")
    home = pathlib.Path(env.get("EVALRUN_HOME") or pathlib.Path.home() / ".cache/evalrun")
    cpus = len(os.sched_getaffinity(0))
    quota = pathlib.Path("/sys/fs/cgroup/cpu.max")
    quota = quota.read_text().split() if quota.exists() else ["max"]
    user, mount, namespaces = os.geteuid() == 0, may_mount(), may_sandbox()
    train = env.get("EVALRUN_TRAIN_PYTHON") or home / "train/bin/python"
    return {
        "root": user,
        "not-root": not user,
        "no-shared": not (shared / "data").is_dir(),
        "no-model": not any((home / "models").glob("*.gguf")),
        "no-git": not (root / ".git").exists(),
        "no-mount": not mount,
        "no-user-namespaces": not namespaces,
        "no-sandbox": not (namespaces or (user and mount)),
        "sanitizers": sanitizers,
        "few-cpus": cpus < 2 or (quota[0] != "max" and int(quota[0]) < cpus * int(quota[1])),
        "no-chromium": not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
        "no-clang-format-14": "version 14." not in output_of("clang-format", "--version"),
        "no-shellcheck": not shutil.which("shellcheck"),
        "no-cuda-build": not any(CUDA_COMPILER.search(cache.read_text()) for cache in build.glob("CMakeCache.txt")),
        "no-cuda-tools": not all(shutil.which(tool) or (home / "tools" / tool).exists()
                                 for tool in ("cuobjdump", "nvdisasm")),
        "no-training-environment": not output_of(train, "-c", "import torch, pytest; print(1)"),
        "no-gguf": not output_of(home / "servers/gguf/bin/python", "-c", "import gguf; print(1)"),
        "no-mmasim": not (home / "mmasim/bin/python").exists(),
        "no-lm-eval": not (home / "lm-eval/bin/lm_eval").exists(),
        "no-slurm": not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch", "munged"))),
        "no-mpi": not (build / "bin/evalrun-mpi.so").exists(),
        "no-toolchains": not all(map(shutil.which, ("javac", "node", "go", "rustc", "g++"))),
    }


def output_of(*command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return run.stdout if run.returncode == 0 else ""


def may_mount():
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    return "yes" in output_of(*unshare, "sh", "-c", "mount -t tmpfs none /mnt && echo yes")


def may_sandbox():
    return "yes" in output_of("bwrap", "--unshare-all", "--ro-bind", "/", "/", "echo", "yes")


def judge_skips(entries, listed, true_here, whole=False):
    """Lines to print about skips that are not listed here, and about entries that say what is not so."""
    environments = {row[0]: row[1].split() for row in listed if len(row) == 2}
    listed = [row for row in listed if len(row) == 3]
    problems = []
    for where in [row[0] for row in listed] + [" ".join(holds) for holds in environments.values()]:
        problems += [f"tests/skips.txt: no condition '{w}'" for w in where.split() if w not in true_here]
    for where, name, _ in listed:
        if environments and all(set(where.split()) & set(holds) for holds in environments.values()):
            problems.append(f"tests/skips.txt: '{name}' runs in no environment")
    for entry in entries:
        for test, reason in entry.skips:
            fits = [where for where, name, says in listed
                    if fnmatch.fnmatchcase(test, name) and fnmatch.fnmatchcase(reason, says)]
            if not any(true_here.get(w) for where in fits for w in where.split()):
                why = "listed only for: " + ", ".join(fits) if fits else "not in tests/skips.txt"
                problems.append(f"skipped, {why}: {test}: {reason}")
    if whole:
        tests = {case for entry in entries for case in entry.cases} | {entry.name for entry in entries}
        problems += [f"tests/skips.txt: '{name}' is no test" for _, name, _ in listed
                     if not fnmatch.filter(tests, name)]
    return problems


def idle_lines(entries, listed, true_here):
    """Lines of tests/skips.txt that hold here, and no test was skipped. Not an error: a condition is a guess at
    what the tests find out for themselves."""
    cases = {case for entry in entries for case in entry.cases} | {entry.name for entry in entries}
    skipped = {test for entry in entries for test, _ in entry.skips}
    return [f"tests/skips.txt: '{row[0]}' holds here, yet no '{row[1]}' was skipped" for row in listed if len(row) == 3
            and any(true_here.get(w) for w in row[0].split())
            and fnmatch.filter(cases, row[1]) and not fnmatch.filter(skipped, row[1])]


def time_lines(entries, labels, budget, slowest=15):
    """Where the time went. Seconds are those of ctest: two tests at a time on two cores take half."""
    lines = ["slowest:"]
    each = [(seconds, case, entry.name) for entry in entries
            for case, seconds in (entry.times if len(entry.times) > 1 else [(entry.name, entry.seconds)])]
    for seconds, case, entry in sorted(each, key=lambda e: -e[0])[:slowest]:
        lines.append(f"{seconds:9.1f} s  {case} ({' '.join(labels.get(entry, []))})")
    sums, counts = collections.Counter(), collections.Counter()
    for entry in entries:
        for label in ["all", *labels.get(entry.name, [])]:
            sums[label] += entry.seconds
            counts[label] += entry.passed + entry.failed + len(entry.skips)
    lines.append(f"{'label':10} {'tests':>6} {'seconds':>8} {'budget':>8}   (an entry counts under each of its labels)")
    for label, seconds in sums.most_common():
        over = "   over budget" if label in budget and seconds > budget[label] else ""
        lines.append(f"{label:10} {counts[label]:6d} {seconds:8.0f} {budget.get(label, '-'):>8}{over}")
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("junit")
    parser.add_argument("--tests")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--sanitizers", action="store_true", help="of a build with sanitizers")
    parser.add_argument("--skips", default=ROOT / "tests/skips.txt")
    parser.add_argument("--budget", default=ROOT / "tests/budget.txt")
    options = parser.parse_args(arguments)
    try:
        suite = ElementTree.parse(options.junit).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"no test results: {error}")
        print("0 passed, 0 failed, 0 skipped")
        return 1
    entries = [read_entry(case) for case in suite.iter("testcase")]
    labels = read_labels(options.tests) if options.tests else {}
    budget = {label: int(seconds) for label, seconds in table(options.budget)}
    print("\n".join(time_lines(entries, labels, budget)))
    reasons = collections.Counter(why for entry in entries for _, why in entry.skips)
    for reason, n in reasons.most_common():
        print(f"skipped {n}: {reason}")
    listed = table(options.skips)
    true_here = conditions(pathlib.Path(options.junit).parent, options.sanitizers)
    problems = judge_skips(entries, listed, true_here, options.whole)
    if options.whole:
        for line in idle_lines(entries, listed, true_here):
            print(f"note: {line}")
    strict = bool(os.environ.get("CI"))
    for problem in problems:
        print(("error: " if strict else "note: ") + problem)
    for entry in entries:
        if entry.failed:
            print(f"failed: {entry.name}", *(f"\n  {case}" for case in entry.failures), sep="")
    passed, failed = sum(e.passed for e in entries), sum(e.failed for e in entries)
    seed = os.environ.get("EVALRUN_TEST_SEED")
    if failed and seed and not os.environ.get("EVALRUN_TEST_ALL"):
        print(f"samples: seed {seed}; EVALRUN_TEST_SEED={seed} scripts/test takes the same ones")
    skipped = sum(len(e.skips) for e in entries)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed + failed + skipped == 0 or (strict and problems) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
