"""scripts/train and scripts/train-ablations: which programs they call with what. Stubs stand for
evalrun and for Python's training, so neither a model nor PyTorch is needed. And the cards of the
adapters that come with the program, and the papers' recipes."""
import copy
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "methods"))

from training import card, recipes  # noqa: E402

EVALRUN = """#!/usr/bin/env bash
line=$(printf '%s|' evalrun "$@") && echo "$line" >>"$CALLS"  # one write: others write as well
while (($# > 0)); do
  if [[ $1 == --out ]]; then mkdir -p "$2" && echo '{}' >"$2/capture.json"; fi
  shift
done
"""
# An update takes two CPU-seconds.
PYTHON = """#!/usr/bin/env bash
for word in "$@"; do [[ $word == --dry-run ]] && exit 0; done
line=$(printf '%s|' python "${@:3}") && echo "$line" >>"$CALLS"
out='' name='' updates=0
while (($# > 0)); do
  case $1 in --out) out=$2 ;; --name) name=$2 ;; --updates) updates=$2 ;; esac
  shift
done
if [[ -n ${BROKEN:-} && $name == "$BROKEN" ]]; then echo "error: out of memory" >&2; exit 6; fi
if [[ -n $name ]]; then
  mkdir -p "$out" && echo "$updates updates" >"$out/$name.safetensors" && touch "$out/$name.md"
fi
echo "{\\"cpu_seconds\\": $((2 * updates))}"
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

    def run_script(self, script, *arguments, **variables):
        """(exit status, calls, standard error); self.out is what it printed."""
        calls = self.path / "calls"
        calls.write_text("")
        environment = os.environ | {
            "CALLS": str(calls), "EVALRUN": str(self.path / "evalrun"),
            "EVALRUN_TRAIN_PYTHON": str(self.path / "python"),
            "EVALRUN_HOME": str(self.path / "home")} | variables
        done = subprocess.run([ROOT / "scripts" / script, *arguments], env=environment,
                              cwd=self.path, capture_output=True, text=True, check=False)
        self.out = done.stdout
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

    def ablations(self, method, *more, out="abl", **variables):
        """As run_script, and the calls of Python by pilot (True) or training: {name: call}."""
        status, calls, error = self.run_script("train-ablations", method, "--out", out, "--target",
                                               "model.gguf", *more, **variables)
        trained = {True: {}, False: {}}
        for call in calls:
            if call[0] == "python" and "--name" in call and self.name(call) != "text":
                trained["/pilot/" in self.values(call, "--out")[0]][self.name(call)] = call
        return status, calls, error, trained[True], trained[False]

    def name(self, call):
        return self.values(call, "--name")[0]

    def capture(self, folder, text="{}"):
        (self.path / folder).mkdir(exist_ok=True)
        (self.path / folder / "capture.json").write_text(text)
        (self.path / folder / "part-0.safetensors").write_text(text)
        return folder

    def adapter(self, name, ending="safetensors"):
        return self.path / "home" / "adapters" / f"{name}.{ending}"

    def test_ablations_have_one_text_and_one_number_of_updates(self):
        status, calls, error, pilots, trained = self.ablations("space", "--updates", "39")
        self.assertEqual(status, 0, error)
        self.assertEqual(sum(call[0] == "evalrun" for call in calls), 1)
        self.assertIn("space-k5", trained)
        self.assertNotIn("space-sft-dataset", trained)
        self.assertEqual(set(pilots), set(trained))
        for name, call in trained.items():
            self.assertEqual(self.values(call, "--data"), ["abl/text/capture"], name)
            self.assertEqual(self.values(call, "--updates"), ["39"], name)
            self.assertEqual(self.values(pilots[name], "--updates"), ["4"], name)
            # A pilot does not score all answers; the training does.
            self.assertEqual(pilots[name][-2:], ["--held-out", "4"], name)
            self.assertNotIn("--held-out", call, name)
            for other in ("--cpu-seconds", "--minutes", "--tokens", "--epochs"):
                self.assertNotIn(other, call, name)
            self.assertEqual(self.adapter(name).read_text(), "39 updates\n")
        # All that is there stays, and nothing is generated or measured again.
        self.assertEqual(self.ablations("space", "--updates", "39")[1], [])
        # Interrupted: only what is missing is trained, on the same text. So is the rest of the list.
        self.adapter("space-shared").unlink()
        self.adapter("space-sar", "recipe").unlink()
        status, calls, error, pilots, trained = self.ablations(
            "space", "--updates", "39", "--reference-data", self.capture("ref"))
        self.assertEqual(status, 0, error)
        self.assertEqual({name: self.values(call, "--data")[0] for name, call in trained.items()},
                         {"space-shared": "abl/text/capture", "space-sar": "abl/text/capture",
                          "space-sft-dataset": "ref", "space-sar-dataset": "ref"})
        self.assertEqual(set(pilots), {"space-sft-dataset", "space-sar-dataset"})
        self.assertTrue((self.path / "abl" / "space-sar.before.safetensors").exists())

    def test_the_loss_both_ways_differs_in_nothing_else(self):
        status, _, error, _, trained = self.ablations("space", "--data", self.capture("data"),
                                                      "--only", "space-by-token,space-by-mean")
        self.assertEqual((status, len(trained)), (0, 2), error)
        calls = {}
        for way in ("token", "mean"):
            call = trained[f"space-by-{way}"]
            self.assertEqual(self.values(call, "--loss-by"), [way])
            self.assertEqual(self.values(call, "--layout"), ["paper"])
            at = call.index("--out")
            calls[way] = [word for i, word in enumerate(call)
                          if i != at + 1 and word not in (way, f"space-by-{way}")]
        self.assertEqual(calls["token"], calls["mean"])

    def test_a_changed_recipe_is_trained_anew(self):
        data = self.capture("data")
        everything = self.ablations("falcon", "--data", data, "--updates", "39")[4]
        self.assertEqual(set(everything), {
            "falcon-csgd", "falcon-none", "falcon-random", "falcon-code", "falcon-k3", "falcon-k4",
            "falcon-per-token", "falcon-recurrent", "falcon-two-layers"})
        self.assertEqual(self.values(everything["falcon-none"], "--glance"), ["none"])
        folders = {self.values(call, "--out")[0] for call in everything.values()}
        # Moved text is the same text.
        again = functools.partial(self.ablations, "falcon", "--data", self.capture("moved"))
        self.assertEqual(again("--updates", "39")[1], [])
        change = ("--updates", "39", "--recipe", "paper", "--warmup", "9")
        trained = again(*change)[4]
        self.assertEqual(set(trained), set(everything))
        # A checkpoint of another recipe is not in the way.
        self.assertFalse(folders & {self.values(c, "--out")[0] for c in trained.values()})
        self.assertEqual(again(*change)[1], [])
        # More updates need training, and no other pilots.
        status, _, error, pilots, _ = again("--updates", "40", *change[2:], "--plan")
        self.assertEqual((status, pilots), (0, {}), error)
        self.assertIn("9 adapters", self.out)
        # Another text in the same place.
        self.capture("moved", '{"other": 1}')
        self.assertEqual(set(again(*change, "--plan")[3]), set(everything))

    def test_time_and_memory_are_told_before(self):
        data = self.capture("data")
        status, calls, error, pilots, trained = self.ablations("bita", "--data", data, "--plan")
        self.assertEqual((status, trained), (0, {}), error)
        self.assertEqual(len(pilots), 14)
        line = next(l for l in self.out.splitlines() if l.split()[:1] == ["bita-p64"])
        seconds, mib = int(line.split()[1]), int(line.split()[3])
        # 221 updates more than the pilot's, two seconds each, and what the pilot took itself.
        self.assertIn(seconds, range(442, 452))
        self.assertGreater(mib, 0)
        self.assertRegex(self.out, r"14 adapters: 10[3-9] CPU-minutes")
        self.assertFalse((self.path / "home" / "adapters" / "bita-p64.safetensors").exists())
        # The estimate is kept: it is made once.
        status, calls, error, pilots, trained = self.ablations("bita", "--data", data)
        self.assertEqual((len(pilots), len(trained)), (0, 14), error)

    def test_only_some_are_trained(self):
        data = self.capture("data")
        some = ("--data", data, "--held-out", "12")
        _, _, error, pilots, trained = self.ablations("bita", *some, "--only", "bita-m5,bita-deep",
                                                      "--only", "bita-p2")
        self.assertEqual(set(trained), {"bita-m5", "bita-deep", "bita-p2"}, error)
        self.assertEqual(set(pilots), set(trained))
        # The rest later, with the same budget; what is there is not trained again.
        rest = self.ablations("bita", *some)[4]
        self.assertEqual((len(rest), set(rest) & set(trained)), (11, set()))
        for name, call in (rest | trained).items():
            self.assertEqual(self.values(call, "--updates"), ["225"], name)
            self.assertEqual(self.values(call, "--data"), [data], name)
            self.assertEqual(call[-2:], ["--held-out", "12"], name)
        for given, named in (("bita-m5,bita-m9", "'bita-m9' is no adapter of bita"),
                             ("bita-m", "bita-m1 bita-m2 bita-m4"), ("", "needs a value"),
                             ("bita-m5,,bita-p2", "'' is no adapter")):
            status, calls, error = self.ablations("bita", *some, "--only", given)[:3]
            self.assertEqual((status, calls), (2, []), given)
            self.assertIn(named, error)
        status, calls, error = self.ablations("space", *some, "--only", "space-sft-dataset")[:3]
        self.assertEqual((status, calls), (2, []))
        self.assertIn("give --reference-data", error)

    def test_several_are_trained_at_once(self):
        # Each waits for another one that runs.
        (self.path / "python").write_text(PYTHON.replace("if [[ -n $name ]]", """
if [[ -n $name ]]; then
  echo >"running-$$"
  for i in {1..100}; do [[ $(ls running-* | wc -l) -ge 2 ]] && break; sleep 0.1; done
  ((i < 100)) || exit 3
fi
if [[ -n $name ]]"""))
        given = ("--data", self.capture("data"), "--jobs", "3", "--no-pilot", "--updates", "3",
                 "--warmup", "0")
        status, _, error, pilots, trained = self.ablations("bita", *given)
        self.assertEqual((status, pilots, len(trained)), (0, {}, 14), error)
        for name, call in trained.items():
            self.assertGreater(int(self.values(call, "--threads")[0]), 0)
            self.assertEqual(self.adapter(name).read_text(), "3 updates\n")
            self.assertIn(f"{name}: done", self.out)
        self.assertEqual(self.ablations("bita", *given)[1], [])
        # How many there were at once is no part of what the weights are; the threads' number counts
        # when it is given.
        self.assertEqual(self.ablations("bita", *given, "--jobs", "2")[1], [])
        trained = self.ablations("bita", *given, "--threads", "2")[4]
        self.assertEqual({self.values(call, "--threads")[0] for call in trained.values()}, {"1"})
        self.assertEqual({call[-1] for call in trained.values()}, {"2"})

    def test_one_of_several_that_fails_does_not_end_the_others(self):
        status, _, error, _, trained = self.ablations(
            "falcon", "--data", self.capture("data"), "--jobs", "2", "--no-pilot",
            BROKEN="falcon-none")
        self.assertEqual(status, 6, error)
        self.assertEqual(len(trained), 9)
        self.assertIn("falcon-none: failed with 6", error)
        self.assertIn("error: out of memory", error)
        there = {path.stem for path in self.adapter("x").parent.glob("*.safetensors")}
        self.assertEqual(there, set(trained) - {"falcon-none"})
        again = self.ablations("falcon", "--data", "data", "--jobs", "2", "--no-pilot")
        self.assertEqual((again[0], set(again[4])), (0, {"falcon-none"}))

    def test_a_signal_ends_all_that_run(self):
        (self.path / "python").write_text(PYTHON.replace("if [[ -n $name ]]", """
if [[ -n $name ]]; then
  trap 'echo >"$name-stopped"; exit 130' TERM
  echo >"$name-runs"
  for i in {1..300}; do sleep 0.1; done
fi
if [[ -n $name ]]"""))
        environment = os.environ | {
            "CALLS": str(self.path / "calls"), "EVALRUN_HOME": str(self.path / "home"),
            "EVALRUN_TRAIN_PYTHON": str(self.path / "python")}
        script = subprocess.Popen(
            [ROOT / "scripts" / "train-ablations", "falcon", "--out", "abl", "--target",
             "model.gguf", "--data", self.capture("data"), "--jobs", "2", "--no-pilot"],
            env=environment, cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(script.kill)
        end = time.monotonic() + 30
        while len(list(self.path.glob("*-runs"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        script.terminate()
        self.assertEqual(script.wait(timeout=30), 143)
        self.assertEqual(len(list(self.path.glob("*-stopped"))), 2)

    def test_a_warm_up_longer_than_the_training_is_refused(self):
        data = self.capture("data")
        for given, named in ((("--recipe", "paper"), "of 2000 updates is longer than the training "
                                                     "of 225"),
                             (("--recipe=paper", "--updates", "1999"), "give --updates above 2000"),
                             (("--updates", "29"), "of 30 updates"),
                             (("--warmup", "226"), "of 226 updates")):
            status, calls, error = self.ablations("falcon", "--data", data, *given)[:3]
            self.assertEqual((status, calls), (2, []), given)
            self.assertIn(named, error)
        # A share of the updates, as many as there are, and what was asked for all the same.
        for given in (("--recipe", "paper", "--warmup", "0.1"), ("--updates", "30"),
                      ("--recipe", "paper", "--force")):
            status, _, error, _, trained = self.ablations("falcon", "--data", data, "--only",
                                                          "falcon-k3", *given)
            self.assertEqual((status, set(trained)), (0, {"falcon-k3"}), error)
            self.assertNotIn("--force", trained["falcon-k3"])

    def test_too_little_memory_is_told_before(self):
        given = ("--data", self.capture("data"), "--only", "falcon-k3,falcon-k4")
        self.assertEqual(self.ablations("falcon", *given, "--plan")[0], 0)
        [estimate] = (self.path / "abl" / "pilot").glob("falcon-k4-*.txt")
        estimate.write_text("9.00 2.0000 999999999\n")
        status, calls, error = self.ablations("falcon", *given)[:3]
        self.assertEqual((status, calls), (6, []))
        self.assertIn("too little for falcon-k4 (999999999 MiB)\n", error)
        self.assertIn("--force", error)
        # Two that fit alone.
        for estimate in (self.path / "abl" / "pilot").glob("falcon-k*.txt"):
            estimate.write_text(f"9.00 2.0000 {self.memory_mib() - 1}\n")
        status, calls, error = self.ablations("falcon", *given, "--jobs", "2")[:3]
        self.assertEqual((status, calls), (6, []))
        self.assertIn("2 at once may need", error)
        self.assertEqual(self.ablations("falcon", *given, "--plan")[:2], (0, []))
        self.assertEqual(set(self.ablations("falcon", *given, "--force")[4]),
                         {"falcon-k3", "falcon-k4"})

    @staticmethod
    def memory_mib():
        """What the script takes for this machine's memory."""
        mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
        limit = pathlib.Path("/sys/fs/cgroup/memory.max")
        text = limit.read_text().strip() if limit.exists() else "max"
        return mib if text == "max" else min(mib, int(text) >> 20)

    def test_a_killed_pilot_is_told_as_one(self):
        (self.path / "python").write_text(PYTHON.replace("exit 6", "kill -KILL $$"))
        status, _, error, _, trained = self.ablations("falcon", "--data", self.capture("data"),
                                                      BROKEN="falcon-k4")
        self.assertEqual((status, trained), (137, {}))
        self.assertIn("falcon-k4 was killed in its pilot", error)
        self.assertIn("--batch", error)

    def test_what_cannot_be_trained_is_named(self):
        data = self.capture("data")
        status, calls, error, pilots, trained = self.ablations("falcon", "--data", data,
                                                               BROKEN="falcon-k4")
        self.assertEqual((status, trained), (6, {}))
        self.assertIn("falcon-k4 cannot be trained", error)
        self.assertIn("error: out of memory", error)

    def test_usage_of_ablations(self):
        for arguments, code, named in (
                (("--data",), 2, "--data needs a value"),
                (("--data", "nowhere"), 7, "nowhere holds no capture.json"),
                (("--answers", "dataset"), 2, "share one text"),
                (("--cpu-seconds", "180"), 2, "give --updates N"),
                (("--tokens", "9"), 2, "give --updates N"),
                (("--updates", "many"), 2, "no number of updates"),
                (("--updates", "4"), 2, "no more than the pilot"),
                (("--jobs", "0"), 2, "no number of trainings"),
                (("--plan", "--no-pilot"), 2, "leave --no-pilot out"),
                (("--name", "x"), 2, "scripts/train bita")):
            status, calls, error = self.ablations("bita", *arguments)[:3]
            self.assertEqual((status, calls), (code, []), arguments)
            self.assertIn(named, error)
        status, calls, error = self.run_script("train-ablations", "eagle", "--out", "x")
        self.assertEqual(status, 2)
        self.assertIn("bita, space or falcon", error)

    def test_the_forms_are_served(self):
        """Every ablation that a paper's table names is trained by the script, and none is left out
        of the suites."""
        self.run_script("train-ablations", "--help")
        listed = set(re.findall(r"^  ((?:bita|space|falcon)-[a-z0-9-]+) --", self.out, re.MULTILINE))
        pattern = re.compile(r"adapter=((?:bita|space|falcon)-[a-z0-9-]+)")
        braces = re.compile(r"adapter=\{([^}]*)\}")

        def named(folder):
            names = set()
            for file in sorted((ROOT / folder).glob("*.json")):
                text = file.read_text(encoding="utf-8")
                names |= set(pattern.findall(text))
                for group in braces.findall(text):
                    names |= {n for n in group.split(",") if n.split("-")[0] in
                              ("bita", "space", "falcon") and "-" in n}
            return names

        self.assertLessEqual(named("reports/papers"), listed)
        self.assertEqual(named("runners/suites/papers"), listed)


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

    def test_say_what_must_be_equal_to_compare(self):
        budget = {"text": "abcdef0123456789" * 4, "updates": 1225, "tokens": 9, "batch": 2,
                  "recipe": "small", "optimiser": "AdamW, lr 0.001"}
        self.assertEqual(card.budget(budget), "budget: 1,225 updates, batch 2, text "
                                              "`abcdef0123456789`, AdamW, lr 0.001")
        weights = {"loss_by": "mean", "updates": 32, "text_rows": 3501.5, "mask_rows": 78.2,
                   "mask_row": {"token": 1.0, "mean": 44.77}}
        self.assertIn("a mask row weighs 44.8 times what a row of text does (loss by mean; 1 times "
                      "by token)", card.token_weights(weights))


class Recipes(unittest.TestCase):
    """`--recipe paper` against papers.json, in both directions."""

    def found(self, change):
        """What contradictions() says of BiTA after a change of its recipe and rows."""
        recipe = copy.deepcopy(recipes.RECIPES["bita"]["paper"])
        rows = copy.deepcopy(recipes.papers()["bita"]["rows"])
        change(recipe, rows)
        return recipes.contradictions("bita", recipe, rows)

    def test_are_the_papers(self):
        published = recipes.papers()
        self.assertEqual(set(published),
                         {name for name, all_ in recipes.RECIPES.items() if "paper" in all_})
        for method, entry in published.items():
            recipe = recipes.RECIPES[method]["paper"]
            self.assertEqual(recipes.contradictions(method, recipe, entry["rows"]), [])
            # Every option has a default in either recipe, or a training would have none.
            self.assertEqual(set(recipe), set(recipes.RECIPES[method]["small"]), method)

    def test_drift_is_found(self):
        self.assertEqual(self.found(lambda recipe, rows: None), [])
        for change, named in (
                (lambda recipe, rows: recipe.update(lr=1e-3), "bita.lr: the recipe has 0.001"),
                (lambda recipe, rows: recipe.update(betas=[0.9, 0.95]), "bita.betas"),
                (lambda recipe, rows: recipe.update(new=1), "bita.new: the recipe has it"),
                (lambda recipe, rows: recipe.pop("start"), "bita.start: papers.json has a row"),
                (lambda recipe, rows: rows.pop("dropout"), "bita.dropout: the recipe has it"),
                (lambda recipe, rows: rows["lr"].update(paper=0.3), "demands 0.3"),
                (lambda recipe, rows: rows["groups"].pop("why"), "come together"),
                (lambda recipe, rows: rows["lr"].update(recipe=0.03, why="x"), "does not differ"),
                (lambda recipe, rows: rows["lr"].update(where=""), "`where` is missing"),
                (lambda recipe, rows: rows["distinct"].pop("program"), "neither paper nor")):
            found = self.found(change)
            self.assertEqual(len([line for line in found if named in line]), 1, (named, found))

    def test_page_is_what_the_command_prints(self):
        done = subprocess.run([ROOT / "scripts" / "train", "recipes"], capture_output=True,
                              text=True, check=True)
        self.assertEqual(done.stdout, (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
