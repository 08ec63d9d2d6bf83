"""scripts/train and scripts/train-ablations: which programs they call with what. Stubs stand for
evalrun and for Python's training, so neither a model nor PyTorch is needed. And the cards of the
adapters that come with the program."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

EVALRUN = """#!/usr/bin/env bash
printf 'evalrun|' >>"$CALLS"; printf '%s|' "$@" >>"$CALLS"; echo >>"$CALLS"
while (($# > 0)); do
  if [[ $1 == --out ]]; then mkdir -p "$2" && echo '{}' >"$2/capture.json"; fi
  shift
done
"""
PYTHON = """#!/usr/bin/env bash
for word in "$@"; do [[ $word == --dry-run ]] && exit 0; done
printf 'python|' >>"$CALLS"; printf '%s|' "${@:3}" >>"$CALLS"; echo >>"$CALLS"
out='' name=''
while (($# > 0)); do
  case $1 in --out) out=$2 ;; --name) name=$2 ;; esac
  shift
done
if [[ -n $name ]]; then mkdir -p "$out" && touch "$out/$name.safetensors" "$out/$name.md"; fi
"""


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        for name, text in (("evalrun", EVALRUN), ("python", PYTHON)):
            (self.path / name).write_text(text)
            (self.path / name).chmod(0o755)
        for name in ("model.gguf", "list.jsonl"):
            (self.path / name).touch()

    def run_script(self, script, *arguments):
        """(exit status, calls, standard error)."""
        calls = self.path / "calls"
        calls.write_text("")
        environment = os.environ | {
            "CALLS": str(calls), "EVALRUN": str(self.path / "evalrun"),
            "EVALRUN_TRAIN_PYTHON": str(self.path / "python"),
            "EVALRUN_HOME": str(self.path / "home")}
        done = subprocess.run([ROOT / "scripts" / script, *arguments], env=environment,
                              cwd=self.path, capture_output=True, text=True, check=False)
        lines = [line.split("|")[:-1] for line in calls.read_text().splitlines()]
        # What is compared with evaluation sets stands beside what makes text and weights.
        self.compared = [line[3:] for line in lines if line[:3] == ["evalrun", "data", "overlap"]]
        lines = [line for line in lines if line[:3] != ["evalrun", "data", "overlap"]]
        return done.returncode, lines, done.stderr

    def train(self, *arguments, out="out"):
        return self.run_script("train", *arguments, "--out", out, "--target", "model.gguf")

    @staticmethod
    def values(call, option):
        """The words after an option, up to the next one."""
        at = call.index(option) + 1
        end = next((i for i in range(at, len(call)) if call[i].startswith("--")), len(call))
        return call[at:end]

    def test_text_of_the_model(self):
        status, calls, error = self.train("bita", "--prompts", "list.jsonl", "--tokens", "100")
        self.assertEqual(status, 0, error)
        generate, training = calls
        self.assertNotIn("--chat-template", generate)
        self.assertEqual(self.values(generate, "--answers"), ["self"])
        self.assertEqual(self.values(training, "--data"), ["out/capture"])
        self.assertNotIn("--minutes", training)
        self.assertNotIn("--ar-loss", training)

    def test_two_templates_are_two_captures_of_one_list(self):
        status, calls, error = self.train("bita", "--prompts", "list.jsonl", "--chat-templates",
                                          "model,chatml", "--minutes", "10")
        self.assertEqual(status, 0, error)
        first, second, training = calls
        self.assertNotIn("--chat-template", first)
        self.assertEqual(self.values(second, "--chat-template"), ["chatml"])
        self.assertEqual(self.values(second, "--answers"), ["self"])
        for call, folder in ((first, "out/capture"), (second, "out/capture-chatml")):
            self.assertEqual(self.values(call, "--out"), [folder])
            self.assertEqual(self.values(call, "--max-time"), ["75"])  # a quarter of ten minutes
        self.assertEqual(self.values(training, "--data"), ["out/capture", "out/capture-chatml"])
        self.assertEqual(self.values(training, "--prompts"), ["list.jsonl", "list.jsonl"])

    def test_answers_of_a_data_set(self):
        status, calls, error = self.train("space", "--answers", "dataset", "--prompts",
                                          "list.jsonl", "--hard-share", "0.5")
        self.assertEqual(status, 0, error)
        self.assertEqual(self.values(calls[0], "--answers"), ["dataset"])
        self.assertEqual(self.values(calls[1], "--ar-loss"), ["hard"])
        # The last one counts: what was asked for.
        last = len(calls[1]) - calls[1][::-1].index("--hard-share")
        self.assertEqual(calls[1][last], "0.5")

    def test_other_text_in_a_folder_is_refused(self):
        given = ("space", "--prompts", "list.jsonl")
        self.assertEqual(self.train(*given)[0], 0)
        self.assertEqual(len(self.train(*given)[1]), 1)  # goes on: nothing is generated again
        status, calls, error = self.train(*given, "--answers", "dataset")
        self.assertEqual((status, calls), (2, []))
        self.assertIn("holds text of --answers", error)

    def test_lists_are_compared_with_evaluation_sets(self):
        status, calls, error = self.train("bita", "--prompts", "list.jsonl", "--data-root", "sets",
                                          "--max-prompt", "900", "--tokens", "9")
        self.assertEqual(status, 0, error)
        self.assertEqual(self.compared, [["list.jsonl", "--data-root", "sets", "--json"]])
        self.assertEqual(self.values(calls[0], "--max-prompt"), ["900"])
        self.assertEqual(self.values(calls[1], "--overlap"), ["out/overlap.json"])
        # Captures that are there: their lists where they are given, else the report beside them.
        given = ("bita", "--data", "out/capture", "--tokens", "9")
        status, calls, error = self.train(*given, out="second")
        self.assertEqual((status, self.compared), (0, []), error)
        self.assertEqual(self.values(calls[0], "--overlap"), ["out/overlap.json"])
        status, calls, error = self.train(*given, "--prompts", "list.jsonl", out="third")
        self.assertEqual((status, self.compared), (0, [["list.jsonl", "--json"]]), error)
        self.assertEqual(self.values(calls[0], "--overlap"), ["third/overlap.json"])
        status, calls, error = self.train("bita", "--data", "elsewhere/capture", "--tokens", "9",
                                          out="fourth")
        self.assertEqual(status, 0, error)
        self.assertNotIn("--overlap", calls[0])

    def test_usage(self):
        for arguments, named in ((("--answers", "mine"), "self or dataset"),
                                 (("--answers", "dataset"), "needs --prompts"),
                                 (("--chat-templates", "a, b"), "no list of names"),
                                 (("--data", "d", "--chat-templates", "chatml"), "leave one")):
            status, calls, error = self.train("space", *arguments)
            self.assertEqual((status, calls), (2, []), arguments)
            self.assertIn(named, error)

    def test_ablations_share_one_text(self):
        def ablations(*more):
            return self.run_script("train-ablations", "space", "--out", "abl", "--target",
                                   "model.gguf", *more)

        status, calls, error = ablations("--cpu-seconds", "7")
        self.assertEqual(status, 0, error)
        names = [self.values(call, "--name")[0] for call in calls if call[0] == "python"
                 and "--name" in call]
        self.assertEqual(len(names), len(set(names)))
        self.assertNotIn("space-sft-dataset", names)
        self.assertEqual(sum(call[0] == "evalrun" for call in calls), 1)
        trained = {self.values(call, "--name")[0]: call for call in calls if "--name" in call}
        for name, call in trained.items():
            self.assertEqual(self.values(call, "--data"), ["abl/space-sft/capture"], name)
            paired = name in ("space-sft", "space-sar")
            self.assertEqual("--updates" in call, paired, name)
            self.assertEqual("--cpu-seconds" in call, not paired, name)
        # Interrupted: what exists stays, and the rest has the same text.
        for name in ("space-shared", "space-sar"):
            (self.path / "home" / "adapters" / f"{name}.safetensors").unlink()
        status, calls, error = ablations("--reference-data", "ref", "--cpu-seconds", "7")
        self.assertEqual(status, 0, error)
        self.assertEqual({self.values(call, "--name")[0]: self.values(call, "--data")[0]
                          for call in calls},
                         {"space-sar": "abl/space-sft/capture", "space-sft-dataset": "ref",
                          "space-sar-dataset": "ref", "space-shared": "abl/space-sft/capture"})
        self.assertEqual(ablations("--data")[0], 2)
        self.assertEqual(ablations("--answers", "dataset")[0], 2)


class Cards(unittest.TestCase):
    def test_are_what_the_generator_writes(self):
        adapters = sorted((ROOT / "methods" / "adapters").glob("*/*.safetensors"))
        self.assertGreater(len(adapters), 0)
        with tempfile.TemporaryDirectory() as folder:
            for adapter in adapters:
                copy = pathlib.Path(folder) / adapter.name
                shutil.copyfile(adapter, copy)
                subprocess.run([sys.executable, "-B", ROOT / "methods/training/card.py", copy],
                               check=True)
                card = adapter.with_suffix(".md").read_text(encoding="utf-8")
                self.assertEqual(copy.with_suffix(".md").read_text(encoding="utf-8"), card)
                prose = "".join(card.split("```")[::2])
                self.assertLessEqual(max(map(len, prose.splitlines())), 100, adapter.name)


if __name__ == "__main__":
    unittest.main()
