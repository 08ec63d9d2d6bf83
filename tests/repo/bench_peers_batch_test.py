"""Batches of scripts/bench_peers without llama.cpp: ratios, goals, tables, what both sides are asked for."""
import argparse
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from bench_peers import __main__ as program  # noqa: E402
from bench_peers import batch, environment, report  # noqa: E402

FILE = {"parameters": 135e6, "file_bytes": 1e8, "types": {"Q8_0": 1}, "embedding": "Q8_0",
        "output": "the embedding", "step_bytes": 1e8, "kv_row_bytes": 23040, "path": "q8.gguf"}


def result_of(steps, **more):
    return {"t_ms": {str(n): ms for n, ms in steps.items()}, **more}


def batch_records(rounds, kinds=("native",), parameters=135e6, **config):
    """rounds: [{arm: {sequences: ms of a step}}]; arms are "int8", "int8 avx2", "native", "avx2"."""
    listed = {"int8": {"name": "evalrun int8", "engine": "evalrun", "format": "int8", "isa": ""},
              "int8 avx2": {"name": "evalrun int8 (avx2)", "engine": "evalrun", "format": "int8", "isa": "avx2"},
              "native": {"name": "llama.cpp Q8_0", "engine": "llama.cpp", "format": "Q8_0", "build": "native"},
              "avx2": {"name": "llama.cpp Q8_0 (AVX2 build)", "engine": "llama.cpp", "format": "Q8_0",
                       "build": "avx2"}}
    arms = [listed[name] for name in ("int8", *kinds)]
    records = [{"kind": "header", "config": {"arms": arms, "sequences": [1, 16], "steps": 8, "threads": 2,
                                             "context": 256, **config}},
               {"kind": "setting", "machine": {"cpu": "a cpu", "flags": [], "vcpus": 2},
                "files": {"Q8_0": {**FILE, "parameters": parameters}}}]
    records += [{"kind": "flash", "arm": arm["name"], "choice": "off", "ms": {}} for arm in arms
                if arm["engine"] == "llama.cpp"]
    for index, by_arm in enumerate(rounds):
        for name, steps in by_arm.items():
            more = {"isa": "avx512", "placement": "near"} if name.startswith("int8") else {
                "t_ms_without_argmax": {str(n): ms - 0.5 for n, ms in steps.items()}}
            records.append({"kind": "arm", "round": index, "arm": listed[name]["name"], "seconds": 1,
                            "result": result_of(steps, **more)})
    return records


def quality_records(ours):
    rows = [("evalrun int8", ours), ("llama.cpp Q8_0", 10.02)]
    return [{"kind": "header", "config": {"chunks": 1, "chunk": 512, "text": "t"}}] + [
        {"kind": "quality", "arm": arm, "engine": arm.split()[0], "format": arm.split()[1],
         "perplexity": value, "perplexity_ref": 10.0, "same_top1": 0.97, "kl": 0.001, "scored": 255}
        for arm, value in rows]


class Report(unittest.TestCase):
    def goal(self, ours, theirs, quality=(), **more):
        records = batch_records([{"int8": {1: 5, 16: ours}, "native": {1: 10, 16: theirs}}], **more)
        return report.collect([], list(quality), records)["batch"]["goals"][0]

    def test_ratio_is_the_median_of_the_ratios_of_each_round(self):
        # 16 sequences: medians of both sides give 50 / 20 = 2.5; the rounds give 1.6, 8 and 1.25.
        rounds = [{"int8": {1: 5, 16: ours}, "native": {1: 10, 16: theirs}}
                  for ours, theirs in ((20, 32), (10, 80), (40, 50))]
        data = report.collect([], [], batch_records(rounds))["batch"]
        self.assertEqual(data["goals"][0]["value"], {"median": 1.6, "min": 1.25, "max": 8, "rounds": 3})
        ours, theirs = data["arms"]
        self.assertEqual(ours["tok_s"]["16"], {"median": 800, "min": 400, "max": 1600, "rounds": 3})
        self.assertEqual(ours["gain"]["16"]["median"], 4)  # 800 over 200
        self.assertEqual(theirs["tok_s"]["1"]["median"], 100)
        self.assertEqual(data["pairs"][0]["beside"]["1"]["ratio"]["median"], 2)

    def test_goal_is_met_from_its_ratio_on_with_the_fidelity(self):
        self.assertEqual([self.goal(10, theirs)["verdict"] for theirs in (17.9, 18.1)], ["not met", "met"])
        self.assertEqual(self.goal(10, 18)["measure"],
                         "tok/s of 16 sequences, int8 vs llama.cpp Q8_0 (native build)")
        self.assertIn("one build of llama.cpp only: --avx2 measures both", self.goal(10, 18)["notes"])
        self.assertEqual([self.goal(10, 18.1, quality_records(perplexity))["verdict"]
                          for perplexity in (10.01, 10.03)], ["met", "not met"])

    def test_from_1b_on_no_goal_is_set_and_a_shape_has_no_perplexity(self):
        goal = self.goal(10, 18, parameters=1.2e9, shape="llama-3.2-1b")
        self.assertEqual((goal["verdict"], goal["goal"]), ("no goal set", None))
        self.assertEqual([note for note in goal["notes"] if "perplexity" in note], [])

    def test_the_faster_build_at_that_batch_is_the_peer(self):
        rounds = [{"int8": {1: 5, 16: 10}, "int8 avx2": {1: 5, 16: 20}, "native": {1: 10, 16: 30},
                   "avx2": {1: 15, 16: 17}}]
        records = batch_records(rounds, ("int8 avx2", "native", "avx2"))
        data = report.collect([], [], records)
        own, avx2 = data["batch"]["pairs"]
        self.assertEqual([own["beside"][n]["build"] for n in ("1", "16")], ["native", "avx2"])
        self.assertAlmostEqual(data["batch"]["goals"][0]["value"]["median"], 1.7)
        self.assertIn("(avx2 build, the faster one)", data["batch"]["goals"][0]["measure"])
        self.assertEqual(avx2["ours"], "evalrun int8 (avx2)")
        self.assertAlmostEqual(avx2["beside"]["1"]["ratio"]["median"], 3)
        self.assertIn("| evalrun int8 | llama.cpp Q8_0 | 2.00 [2.00..2.00], native | 1.70 [1.70..1.70], avx2 |",
                      report.markdown(data, "batch"))

    def test_tables_print_with_missing_rounds(self):
        records = batch_records([{"int8": {1: 5, 16: 10}}])
        records.append({"kind": "arm", "round": 0, "arm": "llama.cpp Q8_0", "failed": "no memory", "seconds": 1})
        text = report.markdown(report.collect([], [], records), "batch")
        self.assertIn("llama.cpp Q8_0 failed: no memory", text)
        self.assertIn("| evalrun int8, avx512 | 200.0 [200.0..200.0] | 1,600.0 [1,600.0..1,600.0] | 8.00 ", text)
        self.assertIn("| llama.cpp Q8_0 | failed | - | - |", text)
        self.assertIn("| not measured |", text)

    def test_batches_without_the_size_of_a_goal_have_none(self):
        records = batch_records([{"int8": {1: 5, 4: 6}, "native": {1: 10, 4: 30}}], sequences=[1, 4])
        data = report.collect([], [], records)
        self.assertEqual(data["batch"]["goals"], [])
        self.assertAlmostEqual(data["batch"]["pairs"][0]["beside"]["4"]["ratio"]["median"], 5)
        self.assertIn("| B = 4 |", report.markdown(data, "batch"))

    def test_the_time_of_argmax_is_said(self):
        text = report.markdown(report.collect([], [], batch_records(
            [{"int8": {1: 5, 16: 10}, "native": {1: 10, 16: 30}}])), "batch")
        self.assertIn("(llama.cpp Q8_0: 0.500 ms at B = 1, 0.500 ms at B = 16)", text)
        self.assertIn("| llama.cpp Q8_0, flash off | 100.0 ", text)

    def test_a_report_prints_what_is_stored(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "batch.jsonl"
            records = batch_records([{"int8": {1: 5, 16: 10}, "native": {1: 10, 16: 30}}])

            def printed(*arguments):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    program.main(["--report-only", "--out", folder, *arguments])
                return out.getvalue()
            with self.assertRaisesRegex(environment.Failure, "no results in"):
                printed("--batch", "4")
            path.write_text(json.dumps(records[0]) + "\n")
            with self.assertRaisesRegex(environment.Failure, "batch.jsonl holds no result yet"):
                printed("--batch", "4")
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            self.assertIn("Plain decoding in batches", printed())
            self.assertIn("Plain decoding in batches", printed("--batch", "4"))
            self.assertEqual(json.loads(printed("--json"))["batch"]["config"]["sequences"], [1, 16])


def options_of(**more):
    return argparse.Namespace(**({"batch": [1, 4], "context": 256, "threads": 2, "reps": 2, "flash": "best",
                                  "formats": ["int8"], "peers": ["Q8_0"], "isa": "", "avx2": False,
                                  "avx2_only": False, "model": "m.gguf", "shape": "", "rounds": 2} | more))


class Program:
    """In place of evalrun or a build of llama.cpp: notes its calls and answers them."""

    def __init__(self):
        self.calls = []

    def why_not(self, *_):
        return None

    def info(self):
        return {"version": "1", "cmake_args": "", "system_info": ""}

    def call(self, command, *arguments, **named):
        self.calls.append((command, arguments, named))
        if command == "batch_flash":
            return {"choice": "off", "ms": {"on": {"1": 3, "4": 9}, "off": {"1": 2, "4": 8}}}
        if command == "cost":
            return {"formats": [{"dtype": "int8", "isa": "amx", "sequences": n, "rows": [{"rows": 1, "ms": 1.5 * n}]}
                                for n in (1, 4)]}
        return result_of({1: 2, 4: 8})


class Measure(unittest.TestCase):
    def run_it(self, folder, evalrun, llama, resume):
        options = options_of(out=pathlib.Path(folder), resume=resume)
        with contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.object(batch.shapes, "available_memory", return_value=1e12):
            batch.run(options, evalrun, {"native": llama}, {"Q8_0": FILE})
        return environment.read_log(options.out / "batch.jsonl")

    def test_both_sides_are_asked_for_the_same_batches(self):
        with tempfile.TemporaryDirectory() as folder:
            evalrun, llama = Program(), Program()
            records = self.run_it(folder, evalrun, llama, resume=False)
            arguments = evalrun.calls[0][1]
            self.assertEqual(arguments[arguments.index("--sequences") + 1], "1,4")
            self.assertEqual(arguments[arguments.index("--rows") + 1], 1)
            self.assertEqual(arguments[arguments.index("--prefill") + 1], 0)
            self.assertEqual(arguments[arguments.index("--context") + 1], 256)
            self.assertEqual([call[0] for call in llama.calls], ["batch_flash", "batch", "batch"])
            self.assertEqual(llama.calls[1][2], {
                "file": "q8.gguf", "context": 256, "cells": 512, "steps": 8, "sequences": [1, 4], "threads": 2,
                "reps": 2, "flash": "off"})
            self.assertEqual([(r["round"], r["arm"]) for r in records if r["kind"] == "arm"],
                             [(0, "evalrun int8"), (0, "llama.cpp Q8_0"), (1, "llama.cpp Q8_0"),
                              (1, "evalrun int8")])

    def test_resume_measures_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_it(folder, Program(), Program(), resume=False)
            path = pathlib.Path(folder) / "batch.jsonl"
            path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
            evalrun, llama = Program(), Program()
            records = self.run_it(folder, evalrun, llama, resume=True)
            self.assertEqual((len(evalrun.calls), llama.calls), (1, []))
            self.assertEqual(len([r for r in records if r["kind"] == "arm"]), 4)

    def test_cost_of_batches(self):
        tables = [{"sequences": n, "isa": "amx", "placement": "near", "rows": [{"rows": 1, "ms": 2.0 * n},
                                                                             {"rows": 2, "ms": 99}]}
                  for n in (1, 4)]
        self.assertEqual(batch.normalised_cost({"formats": tables}, [1, 4], "int8"),
                         {"t_ms": {"1": 2.0, "4": 8.0}, "isa": "amx", "placement": "near"})
        self.assertEqual(batch.normalised_cost(tables[0], [1], "int8")["t_ms"], {"1": 2.0})
        with self.assertRaisesRegex(environment.Failure, "no step of 4 sequences for int8"):
            batch.normalised_cost({"formats": tables[:1]}, [1, 4], "int8")
        with self.assertRaisesRegex(environment.Failure, "no step of 1 sequences"):
            batch.normalised_cost({"sequences": 1, "rows": [{"rows": 2, "ms": 3}]}, [1], "int8")

    def test_memory_is_checked_for_the_caches(self):
        # Two caches of 32 x 512 tokens of 23,040 bytes are 755 MB; the file and room take 1.11 GB.
        options = options_of(batch=[1, 32])
        batch.check_memory(options, {"Q8_0": FILE}, 2.0e9)
        with self.assertRaisesRegex(environment.Failure, "32 sequences of 256 tokens need 1.9 GB .* 1.8 GB") as caught:
            batch.check_memory(options, {"Q8_0": FILE}, 1.8e9)
        self.assertIn("--flash on", caught.exception.hint)
        batch.check_memory(options_of(batch=[1, 32], flash="on"), {"Q8_0": FILE}, 1.8e9)

    def test_room_of_a_sequence(self):
        self.assertEqual([batch.cells(options_of(context=n)) for n in (1, 248, 249, 256)], [256, 256, 512, 512])

    def test_expected_time_of_a_round(self):
        options, arms = options_of(), [{"name": "evalrun int8"}, {"name": "llama.cpp Q8_0"}]
        chosen = {"x": {"arm": "llama.cpp Q8_0", "choice": "off", "ms": {"off": {"1": 10, "4": 30}}}}
        # Three turns of 8 steps of both batches: 0.96 s; evalrun counts the same.
        self.assertAlmostEqual(batch.expected_seconds(options, arms, chosen), 1.92)
        chosen["x"]["ms"] = {}  # --flash on: no trial
        self.assertIsNone(batch.expected_seconds(options, arms, chosen))


class Logits:
    def __init__(self, n, token):
        self.n, self.token = n, token

    def argmax(self, axis):
        assert axis == 1
        return [self.token] * self.n


class Llama(types.ModuleType):
    """In place of llama.py: a clock that a decode moves on, and the calls of a context."""

    def __init__(self):
        super().__init__("bench_peers.llama")
        self.now, self.log = 0.0, []
        fake = self

        class Context:
            def __init__(self, _model, n_ctx, threads, flash, sequences):
                fake.log.append(("context", n_ctx, threads, flash, sequences))
                self.flash = flash

            def decode(self, rows):
                # Steps further in the context are slower: 10 ms a sequence, 1 a position; "off" twice as slow.
                fake.log.append(("decode", rows.n, rows.position, list(rows.tokens)))
                fake.now += (10.0 * rows.n + rows.position - 4) * (2 if self.flash == "off" else 1)
                return rows.n

            def rows(self, logits, n):
                assert logits == n
                fake.now += 0.25
                return Logits(n, 7)

            def copy_to(self, sequences, n):
                fake.log.append(("copy", list(sequences), n))

            def keep(self, n, sequence):
                fake.log.append(("keep", n, sequence))

        class StepBatch:
            def __init__(self, n):
                self.n = n

            def set(self, tokens, position):
                self.tokens, self.position = tokens, position

        def prompt(tokens, first, all_logits):
            assert not all_logits
            return types.SimpleNamespace(n=len(tokens), tokens=tokens, position=first)
        self.Context, self.StepBatch, self.Batch = Context, StepBatch, prompt
        self.Model = lambda path: types.SimpleNamespace(n_vocab=100, buffers=[path])
        self.clock_ms = lambda: self.now
        self.some_tokens = lambda n, n_vocab: list(range(n))


class Bench(unittest.TestCase):
    ARGUMENTS = {"file": "f", "context": 4, "cells": 256, "steps": 3, "sequences": [1, 2], "threads": 2, "reps": 1}

    def setUp(self):
        self.llama = Llama()
        with mock.patch.dict(sys.modules, {"bench_peers.llama": self.llama}):
            from bench_peers import batch_bench
        self.bench = batch_bench
        patched = mock.patch.object(batch_bench, "llama", self.llama)
        patched.start()
        self.addCleanup(patched.stop)

    def test_steps_follow_each_other_and_are_removed(self):
        result = self.bench.batch({**self.ARGUMENTS, "flash": "on"})
        # Steps of 10, 11, 12 and of 20, 21, 22 ms, each with 0.25 ms for the argmax.
        self.assertEqual(result, {"t_ms": {"1": 11.25, "2": 21.25}, "t_ms_without_argmax": {"1": 11, "2": 21},
                                  "reps": 1, "steps": 3, "flash": "on", "buffers": ["f"]})
        self.assertEqual(self.llama.log[:3], [("context", 512, 2, "on", 2), ("decode", 4, 0, [0, 1, 2, 3]),
                                              ("copy", [1], 4)])
        self.assertEqual(self.llama.log[3:8], [("decode", 2, 4, [1, 1]), ("decode", 2, 5, [7, 7]),
                                               ("decode", 2, 6, [7, 7]), ("keep", 4, 0), ("keep", 4, 1)])
        order = [entry[1] for entry in self.llama.log if entry[0] == "decode" and entry[2] == 4]
        self.assertEqual(order, [2, 1, 1, 2])  # the turn that warms up, and the one that counts

    def test_the_faster_flash_attention_is_chosen(self):
        result = self.bench.batch_flash(self.ARGUMENTS)
        self.assertEqual((result["choice"], result["ms"]["on"]), ("on", {"1": 11.25, "2": 21.25}))
        self.assertEqual(result["ms"]["off"], {"1": 22.25, "2": 42.25})


if __name__ == "__main__":
    unittest.main()
