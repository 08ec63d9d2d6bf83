#!/usr/bin/env python3
"""Runs the commands of docs/add-a-method.md, in their order, with the program that was built from the walk, on a tiny
model; and shows that a walk that has rotted is refused.

    walk_test.py PROGRAM
"""
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import apply_walk  # noqa: E402

MODEL = apply_walk.ROOT / "tests/data/models/tiny-llama"
PROGRAM = None
# The page's command takes two minutes, most of them for draws of plain decoding alone (the part law), millions a row.
# Their number is no matter of the page or of its method, and the part has tests of its own (PlainLawTest).
FEWER_DRAWS = ["--law-draws", "10000"]


class TheWalk(unittest.TestCase):
    def test_its_commands_work(self):
        commands = apply_walk.commands((apply_walk.ROOT / apply_walk.WALK).read_text())
        outputs = {}
        with tempfile.TemporaryDirectory() as folder:
            for command in commands:
                words = shlex.split(command)[1:]
                more = [] if words[0] == "list" else ["-m", str(MODEL)]
                if words[0] == "verify":
                    more += FEWER_DRAWS
                done = subprocess.run([PROGRAM, *words, *more], cwd=folder, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True,
                                      env={**os.environ, "COLUMNS": "0"})  # a row is one line
                self.assertEqual(done.returncode, 0, f"{command}:\n{done.stdout}{done.stderr}")
                if "--markdown" not in words:
                    outputs[words[0]] = [line for line in done.stdout.split("\n") if line.startswith("bigram")]
        self.assertEqual(sorted(outputs), ["list", "run", "verify"])
        self.assertEqual(len(outputs["list"]), 1, outputs)
        self.assertRegex(outputs["run"][0], r"100\.0 %\s*$")  # same tokens as plain decoding
        self.assertRegex(outputs["verify"][0], r"holds +greedy")


class ARottenWalk(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "list.txt").write_text("one\nthree\none\n")

    def files(self, block):
        return apply_walk.files(f"text\n\n```{block}\n```\n", self.root)

    def test_a_change_is_made(self):
        self.assertEqual(self.files("diff file=list.txt\n one\n+two\n three"), {"list.txt": "one\ntwo\nthree\none\n"})
        self.assertEqual(self.files("diff file=list.txt\n-three\n+3"), {"list.txt": "one\n3\none\n"})

    def test_a_new_file_is_made(self):
        self.assertEqual(self.files("cpp file=a/new.cpp\nint a;"), {"a/new.cpp": "int a;\n"})

    def test_a_walk_that_somebody_tries_is_not_rotten(self):
        with self.assertRaises(apply_walk.Applied):
            self.files("cpp file=list.txt\nint a;")

    def test_a_committed_file_is_no_new_one(self):
        for command in (["init", "-q"], ["add", "list.txt"]):
            subprocess.run(["git", "-C", str(self.root), *command], check=True)
        with self.assertRaises(apply_walk.Rotten):
            self.files("cpp file=list.txt\nint a;")

    def test_what_no_longer_fits_is_refused(self):
        for block in ["diff file=list.txt\n four\n+five",    # the line is gone
                      "diff file=list.txt\n+two\n one",      # it stands there twice
                      "diff file=list.txt\none\n+two",       # no mark
                      "diff file=gone.txt\n one\n+two",      # the file is gone
                      "cpp\nint a;"]:                        # nothing to apply
            with self.assertRaises(apply_walk.Rotten, msg=block):
                self.files(block)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
