"""scripts/bench_peers without llama.cpp: ratios per round, verdicts, resuming, GGUF headers."""
import argparse
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
from bench_peers import environment, gguf_info, report, speed  # noqa: E402

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
        self.assertEqual(goal(slow, "T(8)/T(1), int8")["verdict"], "not measured")  # int8-fast is not there
        named = [g for g in slow["goals"] if g["measure"] == "T(8)/T(1), int8"][0]
        self.assertEqual((named["goal"], named["value"]["median"], named["verdict"]), (1.3, 2, "not met"))

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


class Inputs(unittest.TestCase):
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
