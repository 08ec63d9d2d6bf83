"""scripts/bench_peers without llama.cpp: ratios per round, verdicts, options, shapes, resuming, GGUF headers."""
import argparse
import contextlib
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from bench_peers import __main__ as program  # noqa: E402
from bench_peers import environment, gguf_info, report, shapes, speed  # noqa: E402

ARMS = [{"name": "evalrun int8", "engine": "evalrun", "format": "int8", "isa": ""},
        {"name": "llama.cpp Q8_0", "engine": "llama.cpp", "format": "Q8_0", "build": "native"}]


def speed_records(ours, theirs, **more):
    """Rounds with the given T(1) of both arms."""
    config = {"arms": ARMS, "rows": [1, 8], "threads": 2, "context": 256, "prefill": 512}
    records = [{"kind": "header", "config": config},
               {"kind": "setting", "machine": {"cpu": "a cpu", "flags": [], "vcpus": 2}},
               {"kind": "flash", "arm": "llama.cpp Q8_0", "choice": "on", "ms": {}}]
    for index, pair in enumerate(zip(ours, theirs)):
        for arm, t in zip(ARMS, pair):
            result = {"t_ms": {"1": t, "8": 2 * t}}
            if arm["engine"] == "evalrun":
                result |= {"isa": "amx", **more}
            records.append({"kind": "arm", "round": index, "arm": arm["name"], "result": result,
                            "seconds": 1})
    return records


def quality_records(ours, theirs, top1=0.97):
    rows = [("evalrun int8", ours), ("llama.cpp Q8_0", theirs)]
    return [{"kind": "header", "config": {"chunks": 1, "chunk": 512, "text": "t"}}] + [
        {"kind": "quality", "arm": arm, "engine": arm.split()[0], "format": arm.split()[1],
         "perplexity": value, "perplexity_ref": 10.0, "same_top1": top1, "kl": 0.001, "scored": 255}
        for arm, value in rows]


def goal(data, measure):
    return next(g for g in data["goals"] if g["measure"].startswith(measure))


class Report(unittest.TestCase):
    def test_ratio_is_the_median_of_the_ratios_of_each_round(self):
        # Medians of both sides give 4 / 2 = 2; the rounds give 1.5, 8 and 1.25.
        data = report.collect(speed_records([2, 1, 4], [3, 8, 5]), [])
        value = goal(data, "AR tok/s, int8 vs")["value"]
        self.assertEqual(value, {"median": 1.5, "min": 1.25, "max": 8, "rounds": 3})

    def test_fast_enough_counts_only_with_the_fidelity(self):
        records = speed_records([1], [2])
        verdicts = [goal(report.collect(records, quality), "AR tok/s, int8 vs")["verdict"] for quality in
                    (quality_records(10.01, 10.02), quality_records(10.03, 10.02),
                     quality_records(10.06, 10.1), quality_records(10.01, 10.02, top1=0.95))]
        self.assertEqual(verdicts, ["met", "not met", "not met", "not met"])

    def test_an_upper_limit_is_met_from_below(self):
        slow = report.collect(speed_records([1], [2]), [])
        named = [g for g in slow["goals"] if g["measure"] == "T(8)/T(1), int8"][0]
        self.assertEqual((named["goal"], named["value"]["median"], named["verdict"]), (1.3, 2, "not met"))

    def test_formats_that_were_not_asked_for_have_no_row(self):
        measures = [g["measure"] for g in report.collect(speed_records([1], [2]), [])["goals"]]
        self.assertIn("AR tok/s, int8 vs llama.cpp Q8_0", measures)
        self.assertEqual([m for m in measures if "int8-fast" in m or "q4" in m], [])

    def test_placement_chooses_the_column_without_amx(self):
        for more, expected in (({"placement": "far"}, "avx512-far"), ({"pingpong_ns": 100}, "avx512-near"),
                               ({"pingpong_ns": 420}, "avx512-far"), ({"isa": "avx2"}, None)):
            data = report.collect(speed_records([1], [2], **{"isa": "avx512", **more}), [])
            self.assertEqual(data["speed"]["machine_class"], expected, more)

    def test_tables_print_with_missing_rounds(self):
        records = speed_records([1, 1], [2, 2])
        records[-1] = {"kind": "arm", "round": 1, "arm": "llama.cpp Q8_0", "failed": "no memory", "seconds": 1}
        text = report.markdown(report.collect(records, quality_records(10.01, 10.02)))
        self.assertIn("llama.cpp Q8_0 failed: no memory", text)
        self.assertIn("| evalrun int8, amx | 1,000.0 [1,000.0..1,000.0] |", text)

    def test_frontier_leaves_out_what_is_worse_in_both(self):
        data = report.collect(speed_records([1], [2]), quality_records(10.01, 10.02))
        self.assertEqual([p["on_frontier"] for p in data["frontier"]], [True, False])


def file_records(arms, parameters=1.2e9, isa="avx512", **config):
    """One round: {(engine, build or path): (T(1), T(8), prefill tok/s, share of the floor)} on a file Q4_K_M."""
    listed, results = [], []
    for (engine, kind), (t1, t8, prefill, share) in arms.items():
        result = {"t_ms": {"1": t1, "8": t8}, "prefill_tok_s": prefill}
        if engine == "evalrun":
            arm = {"name": f"evalrun Q4_K_M file {kind}".strip(), "engine": engine, "format": "Q4_K_M file",
                   "file": "Q4_K_M", "isa": kind}
            result |= {"isa": kind or isa, "floor_ms": share * t1, "floor_share": share, "bytes": 7e8}
        else:
            arm = {"name": f"llama.cpp Q4_K_M {kind}", "engine": engine, "format": "Q4_K_M", "build": kind}
        listed.append(arm)
        results.append({"kind": "arm", "round": 0, "arm": arm["name"], "result": result, "seconds": 1})
    file = {"parameters": parameters, "file_bytes": 8e8, "types": {"Q4_K": 96, "Q6_K": 17}, "embedding": "Q6_K",
            "output": "the embedding", "step_bytes": 8e8, "kv_row_bytes": 0}
    return [{"kind": "header", "config": {"arms": listed, "rows": [1, 8], "threads": 2, "context": 256,
                                          "prefill": 512, **config}},
            {"kind": "setting", "machine": {"cpu": "a cpu", "flags": [], "vcpus": 2},
             "files": {"Q4_K_M": file}},
            *({"kind": "flash", "arm": arm["name"], "choice": "on", "ms": {}} for arm in listed
              if arm["engine"] == "llama.cpp"), *results]


class SameFile(unittest.TestCase):
    """evalrun and llama.cpp on one file."""

    def verdict(self, ours, native, avx2=None, share=0.5, **more):
        arms = {("evalrun", ""): (ours, 2 * ours, 100, share), ("llama.cpp", "native"): (native, 4, 50, 0)}
        if avx2:
            arms["llama.cpp", "avx2"] = (avx2, 4, 50, 0)
        return report.collect(file_records(arms, **more), [])["goals"][0]

    def test_the_faster_build_is_the_peer(self):
        slow_avx2, fast_avx2 = self.verdict(10, 13.1, 20), self.verdict(10, 20, 12.9)
        self.assertEqual(slow_avx2["measure"],
                         "AR tok/s, Q4_K_M file vs llama.cpp Q4_K_M (native build, the faster one)")
        self.assertEqual((slow_avx2["verdict"], slow_avx2["goal"]), ("met", 1.3))
        self.assertIn("(avx2 build, the faster one)", fast_avx2["measure"])
        self.assertAlmostEqual(fast_avx2["value"]["median"], 1.29)
        self.assertEqual(fast_avx2["verdict"], "not met")
        self.assertIn("one build of llama.cpp only: --avx2 measures both", self.verdict(10, 20)["notes"])

    def test_from_1b_on_the_read_bandwidth_is_enough(self):
        # More than memory gives is a fault of the probe.
        self.assertEqual([self.verdict(10, 11, share=share)["verdict"] for share in (0.84, 0.85, 1.2)],
                         ["not met", "met", "not met"])
        self.assertIn("share of the floor 0.85, 0.85 is enough", self.verdict(10, 11, share=0.85)["notes"])
        self.assertEqual(self.verdict(10, 15.9, share=0.9, parameters=135e6)["verdict"], "not met")

    def test_goals_depend_on_size_and_machine(self):
        for more, expected in (({"parameters": 135e6}, 1.6), ({"parameters": 360e6}, None),
                               ({"isa": "amx"}, None), ({"isa": "avx2"}, None), ({}, 1.3)):
            self.assertEqual(self.verdict(10, 20, **more)["goal"], expected, more)

    def test_the_avx2_path_stands_beside_the_avx2_build(self):
        arms = {("evalrun", ""): (5, 10, 100, 0.5), ("evalrun", "avx2"): (10, 20, 100, 0.9),
                ("llama.cpp", "native"): (1, 4, 50, 0), ("llama.cpp", "avx2"): (11.4, 40, 50, 0)}
        data = report.collect(file_records(arms), [])
        self.assertEqual([(g["measure"], g["goal"], g["verdict"]) for g in data["goals"]],
                         [("AR tok/s, Q4_K_M file vs llama.cpp Q4_K_M (native build, the faster one)", 1.3,
                           "not met"),
                          ("AVX2 only: AR tok/s, Q4_K_M file vs llama.cpp Q4_K_M built for AVX2", 1.15,
                           "not met")])
        arms["llama.cpp", "avx2"] = (11.5, 40, 50, 0)
        self.assertEqual(report.collect(file_records(arms), [])["goals"][1]["verdict"], "met")

    def test_growth_and_prefill_of_both_are_printed(self):
        arms = {("evalrun", ""): (5, 10, 100, 0.5), ("llama.cpp", "native"): (8, 32, 50, 0)}
        text = report.markdown(report.collect(file_records(arms, shape="llama-3.2-1b"), []))
        self.assertIn("| evalrun Q4_K_M file | llama.cpp Q4_K_M native | 200.0 / 125.0 | 2.00 / 4.00 | 100 / 50 | "
                      "2.00 [2.00..2.00] |", text)
        self.assertIn("- Q4_K_M: 800.0 MB; 96 Q4_K, 17 Q6_K; embedding Q6_K, head the embedding", text)
        self.assertIn("Model: the shape llama-3.2-1b with random weights.", text)
        self.assertNotIn("perplexity", text)  # the text of a shape is noise

    def test_fidelity_is_that_of_the_arithmetic(self):
        arms = {("evalrun", ""): (5, 10, 100, 0.5), ("llama.cpp", "native"): (10, 32, 50, 0)}

        def quality(ours):
            row = {"kind": "quality", "perplexity_ref": 20.0, "same_top1": 0.97, "kl": 0.001, "scored": 255}
            return [{"kind": "header", "config": {"chunks": 1, "chunk": 512, "text": "t"}},
                    {**row, "arm": "evalrun Q4_K_M file", "engine": "evalrun", "format": "Q4_K_M file",
                     "file": "Q4_K_M", "perplexity": ours},
                    {**row, "arm": "llama.cpp Q4_K_M", "engine": "llama.cpp", "format": "Q4_K_M",
                     "perplexity_ref": 18.0, "perplexity": 20.01}]
        for ours, verdict in ((20.09, "met"), (20.11, "not met")):
            data = report.collect(file_records(arms), quality(ours))
            self.assertEqual(data["goals"][0]["verdict"], verdict)
            self.assertIn("llama.cpp's 20.01", data["goals"][0]["notes"][0])
        self.assertEqual([p["arm"] for p in data["frontier"]], ["llama.cpp Q4_K_M native"])
        self.assertIn("against the float32 of the same file", report.markdown(data))

    def test_arms_of_each_quantised_file(self):
        options = argparse.Namespace(formats=["stored", "int8"], peers=["Q4_K_M", "BF16"], isa="", avx2=True,
                                     avx2_only=False)
        arms = speed.make_arms(options, True)
        self.assertEqual([arm["name"] for arm in arms],
                         ["evalrun Q4_K_M file", "llama.cpp Q4_K_M", "evalrun int8", "llama.cpp BF16",
                          "evalrun Q4_K_M file (avx2)", "llama.cpp Q4_K_M (AVX2 build)", "evalrun int8 (avx2)"])
        self.assertEqual([arm.get("file") for arm in arms], ["Q4_K_M", None, None, None, "Q4_K_M", None, None])

    def test_expected_time_of_a_round(self):
        options = argparse.Namespace(rows=[1, 16], reps=5, greedy=10, prefill=512)
        arms = [{"name": "evalrun Q8_0 file", "file": "Q8_0"}, {"name": "llama.cpp Q8_0"}]
        chosen = {"x": {"arm": "llama.cpp Q8_0", "choice": "on",
                        "ms": {"on": {"1": 10, "16": 90, "prefill": 1000}}}}
        # Six turns of 10 + 90 ms, three of ten tokens and a prefill; evalrun counts the same.
        self.assertAlmostEqual(speed.expected_seconds(options, arms, chosen), 2 * (0.6 + 3 * 1.1))
        chosen["x"]["ms"] = {}  # --flash on: no trial
        self.assertIsNone(speed.expected_seconds(options, arms, chosen))


class Calls:
    """In place of a program: notes its calls, and writes a file where one is asked for."""

    def __init__(self, output=None):
        self.calls, self.output = [], output

    def info(self):
        return {"version": "1"}

    def call(self, *arguments, **named):
        self.calls.append((*arguments, named.get("ftype")) if named else arguments)
        if "target" in named:
            named["target"].write_bytes((ROOT / "tests/data/models/tiny-llama.gguf").read_bytes())
        return self.output


class Shapes(unittest.TestCase):
    def test_tensors_add_up_to_the_published_parameters(self):
        for name, parameters in (("smollm2-135m", 134515008), ("llama-3.2-1b", 1235814400),
                                 ("qwen2.5-1.5b", 1543714304), ("qwen3-4b", 4022468096),
                                 ("llama-2-7b", 6738415616), ("mistral-7b", 7248023552)):
            self.assertEqual(shapes.parameters(shapes.find(name)["config"]), parameters, name)
        tied = dict(shapes.tensors(shapes.find("llama-3.2-1b")["config"]))
        self.assertEqual(tied["rope_freqs.weight"], (32,))
        self.assertEqual(tied["blk.15.ffn_down.weight"], (2048, 8192))
        self.assertNotIn("output.weight", tied)

    def test_what_is_unknown_is_refused(self):
        with self.assertRaisesRegex(environment.Failure, "no shape is called 'llama-9'") as caught:
            shapes.find("llama-9")
        self.assertIn("llama-3.2-1b", caught.exception.hint)
        for field, value in (("model_type", "gemma"), ("rope_scaling", {"rope_type": "yarn"})):
            with self.assertRaisesRegex(environment.Failure, f"s: {field}.*cannot be written"):
                shapes.check({"name": "s", "config": {"model_type": "llama", field: value}})

    def test_rope_factors_of_llama3(self):
        factors = shapes.rope_factors(shapes.find("llama-3.2-1b")["config"])
        self.assertEqual((len(factors), factors[0], factors[-1]), (32, 1.0, 32.0))
        # Frequency 16: a wavelength of 2 pi sqrt(500000) = 4443, between 8192 / 4 and 8192 / 1; transformers
        # smooths by (8192 / 4443 - 1) / 3 = 0.2813.
        self.assertAlmostEqual(factors[16], 1 / (0.7187 / 32 + 0.2813), places=3)

    def test_a_vocabulary_is_cut_or_filled(self):
        tokens, types, merges = ["<s>", "a", "b", "c", "ab", "abc"], [3, 1, 1, 1, 1, 1], ["a b", "ab c"]
        self.assertEqual(shapes.vocabulary(tokens, types, merges, 8),
                         (tokens + ["[PAD6]", "[PAD7]"], types + [5, 5], merges))
        self.assertEqual(shapes.vocabulary(tokens, types, merges, 5), (tokens[:5], types[:5], ["a b"]))

    def test_room_is_checked_before_anything_is_written(self):
        shape, names = shapes.find("llama-3.2-1b"), ["Q4_K_M", "Q8_0"]
        with self.assertRaisesRegex(environment.Failure, "files: F16, Q4_K_M of llama-3.2-1b need 3.4 GB, 3.0 GB"):
            shapes.check_room(shape, "files", names, ["F16", "Q4_K_M"], 3e9, 1e11)
        with self.assertRaisesRegex(environment.Failure, "llama-3.2-1b needs 2.1 GB of memory to make its files"):
            shapes.check_room(shape, "files", names, ["F16"], 1e11, 2e9)
        with self.assertRaisesRegex(environment.Failure, "needs 2.5 GB of memory to measure Q8_0, 2.0 GB are free"):
            shapes.check_room(shape, "files", names, [], 0, 2e9)
        shapes.check_room(shape, "files", ["Q4_K_M"], [], 0, 2.1e9)

    def make(self, home, keep):
        llama, tokenizer = Calls(), ROOT / "tests/data/models/tiny-llama.gguf"
        with mock.patch.object(shapes, "check_room"), contextlib.redirect_stderr(io.StringIO()):
            source, files = shapes.make_files(llama, home, shapes.find("smollm2-135m"), tokenizer,
                                              ["Q4_K_M", "Q4_0"], 2, keep)
        return llama.calls, source, files

    def test_the_source_is_made_when_needed_and_removed(self):
        with tempfile.TemporaryDirectory() as home:
            calls, source, files = self.make(home, keep=False)
            self.assertEqual(calls, [("write_shape", None), ("quantize", 15), ("quantize", 2)])
            self.assertFalse(source.exists())
            self.assertIn("smollm2-135m-", files["Q4_K_M"]["path"])
            self.assertEqual(self.make(home, keep=False)[0], [])
            pathlib.Path(files["Q4_0"]["path"]).unlink()
            self.assertEqual(self.make(home, keep=True)[0], [("write_shape", None), ("quantize", 2)])
            self.assertTrue(source.exists())

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "needs PyPI's gguf, as scripts/bench-peers installs it")
    def test_a_written_shape_has_its_tensors_and_tokens(self):
        from bench_peers import shape_writer
        import gguf
        config = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 600,
                  "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 1e4,
                  "tie_word_embeddings": False}
        with tempfile.TemporaryDirectory() as folder:
            files = [str(pathlib.Path(folder) / name) for name in ("a.gguf", "b.gguf")]
            for file in files:
                shape_writer.write(file, {"name": "small", "config": config},
                                   str(ROOT / "tests/data/models/tiny-llama.gguf"), 1)
            info, reader = gguf_info.read(files[0]), gguf.GGUFReader(files[0])
            self.assertEqual(pathlib.Path(files[0]).read_bytes(), pathlib.Path(files[1]).read_bytes())
            self.assertEqual(info["parameters"], shapes.parameters(config))
            self.assertEqual(info["types"], {"F16": 16, "F32": 11})
            self.assertEqual(len(reader.fields["tokenizer.ggml.tokens"].contents()), 600)
            down = next(t for t in reader.tensors if t.name == "blk.1.ffn_down.weight").data
            self.assertEqual(down.shape, (64, 96))
            self.assertAlmostEqual(float(down.astype("float32").std()) * 96 ** 0.5, 1, places=1)


class Options(unittest.TestCase):
    def test_bad_options(self):
        for arguments, message in (
                (["--peers", "Q3_K"], "'Q3_K' is none of"),
                (["--formats", "int4"], "'int4' is none of"),
                (["--formats", "stored", "--peers", "BF16"], "--peers names none: add Q4_K_M"),
                (["--keep"], "give one with --shape"),
                (["--batch", "0,4"], "numbers of sequences from 1 to 64"),
                (["--batch", "many"], "numbers of sequences from 1 to 64"),
                (["--batch", "65"], "numbers of sequences from 1 to 64"),
                (["--batch", "4", "--quality"], "--quality and --batch are two measurements"),
                (["--batch", "4", "--rows", "2"], "--rows has no place in --batch"),
                (["--batch", "4", "--prefill", "0"], "--prefill has no place in --batch"),
                (["--shape", "llama-3.2-1b", "--quality"], "random weights make noise of every text"),
                (["--shape", "llama-3.2-1b", "-m", "x.gguf"], "leave -m out"),
                (["--shape", "llama-3.2-1b", "--peers", "Q4_1-shipped"], "a shape has none"),
                (["--shape", "llama-3.2-1b", "--formats", "int8"], "add --keep")):
            said = io.StringIO()
            with self.assertRaises(SystemExit) as caught, contextlib.redirect_stderr(said):
                program.parse(arguments)
            self.assertEqual(caught.exception.code, 2, arguments)
            self.assertIn(message, said.getvalue())

    def test_defaults_of_a_shape(self):
        usual, shape = program.parse([]), program.parse(["--shape", "llama-3.2-1b"])
        self.assertEqual((usual.formats[0], usual.peers[0], usual.rows[-1], usual.reps), ("f32", "Q8_0", 64, 15))
        self.assertEqual((shape.formats, shape.peers, shape.rows[-1], shape.reps),
                         (["stored"], ["Q4_K_M", "Q4_0", "Q8_0"], 16, 5))
        self.assertEqual(shape.out, usual.out / "llama-3.2-1b")
        other = program.parse(["--shape", "llama-3.2-1b", "--rows", "32", "--keep", "--formats", "q4"])
        self.assertEqual((other.rows, other.formats), ([1, 32], ["q4"]))

    def test_defaults_of_batches(self):
        model = program.parse(["--batch", "16,4"])
        shape = program.parse(["--batch", "1,2", "--shape", "llama-3.2-1b"])
        self.assertEqual((model.batch, model.formats, model.peers, model.reps),
                         ([1, 4, 16], ["int8", "q4"], ["Q8_0", "Q4_0"], 5))
        self.assertEqual((shape.batch, shape.formats, shape.peers, shape.reps),
                         ([1, 2], ["stored"], ["Q4_K_M", "Q4_0", "Q8_0"], 3))
        self.assertEqual(program.parse([]).prefill, 512)


class Inputs(unittest.TestCase):
    def test_evalrun_computes_the_file_of_an_arm(self):
        evalrun = Calls({"dtype": "stored", "rows": [{"rows": 1, "ms": 2.0}]})
        options = argparse.Namespace(model="m.gguf", context=8, rows=[1], threads=2, prefill=0)
        files = {"Q4_K_M": {"path": "f.gguf"}}
        result = speed.run_evalrun(options, evalrun, {"format": "Q4_K_M file", "file": "Q4_K_M", "isa": "avx2"},
                                   files)
        self.assertEqual(result["t_ms"], {"1": 2.0})
        self.assertEqual(evalrun.calls[0][2:6], ("-m", "f.gguf", "--dtype", "stored"))
        self.assertEqual(evalrun.calls[0][-2:], ("--isa", "avx2"))
        evalrun.output = {"dtype": "int8", "rows": [{"rows": 1, "ms": 2.0}]}
        speed.run_evalrun(options, evalrun, {"format": "int8", "isa": ""}, files)
        self.assertEqual(evalrun.calls[1][2:6], ("-m", "m.gguf", "--dtype", "int8"))

    def test_cost_of_one_and_of_several_formats(self):
        one = {"dtype": "int8", "isa": "amx", "rows": [{"rows": 1, "ms": 2.5}],
               "prefill": [{"tokens": 512, "ms": 256.0}]}
        result = speed.normalised_cost(one, "int8")
        self.assertEqual((result["t_ms"], result["prefill_tok_s"]), ({"1": 2.5}, 2000.0))
        self.assertEqual(speed.normalised_cost({"formats": [{"dtype": "f32"}, one]}, "int8"), result)
        self.assertNotIn("prefill_tok_s", speed.normalised_cost({**one, "prefill": []}, "int8"))
        with self.assertRaises(environment.Failure):
            speed.normalised_cost({"rows": []}, "int8")

    def test_engines_take_turns(self):
        options = argparse.Namespace(formats=["bf16", "int8"], peers=["Q8_0", "BF16"], isa="", avx2=True,
                                     avx2_only=False)
        names = [arm["name"] for arm in speed.make_arms(options, True)]
        self.assertEqual(names, ["evalrun bf16", "llama.cpp Q8_0", "evalrun int8", "llama.cpp BF16",
                                 "evalrun int8 (avx2)", "llama.cpp Q8_0 (AVX2 build)"])

    def test_gguf_types_are_counted(self):
        info = gguf_info.read(ROOT / "tests/data/models/dequant.gguf")
        self.assertEqual(info["types"]["Q4_1"], 1)
        self.assertEqual(info["types"]["IQ2_XS"], 2)
        self.assertEqual(info["file_bytes"], (ROOT / "tests/data/models/dequant.gguf").stat().st_size)

    def test_resume_keeps_rounds_and_refuses_another_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "speed.jsonl"
            environment.Log(path, {"threads": 2}, resume=False).add({"kind": "arm", "round": 0})
            with open(path, "a", encoding="utf-8") as file:
                file.write('{"kind": "arm", "rou')  # interrupted while writing
            log = environment.Log(path, {"threads": 2}, resume=True)
            self.assertEqual(log.of("arm"), [{"kind": "arm", "round": 0}])
            self.assertEqual(len([json.loads(x) for x in path.read_text().splitlines()]), 2)
            with self.assertRaisesRegex(environment.Failure, "threads = 2, this call has 1"):
                environment.Log(path, {"threads": 1}, resume=True)
            environment.Log(path, {"threads": 1}, resume=False)
            self.assertEqual(len(list(pathlib.Path(folder).iterdir())), 2)  # the old one is kept


if __name__ == "__main__":
    unittest.main()
