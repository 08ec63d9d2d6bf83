"""scripts/serving/cut_layers.py: which parts of a model a cut keeps, and with the package gguf, that they stay as they
were. Exit code 77 where only the former could be tested."""
import contextlib
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("EVALRUN_HOME") or pathlib.Path.home() / ".cache/evalrun")
PYTHON = HOME / "servers/gguf/bin/python"  # of scripts/serve llama --draft-layers
TINY = ROOT / "tests/data/models/tiny-llama.gguf"
HAS_GGUF = importlib.util.find_spec("gguf") is not None
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("cut_layers", ROOT / "scripts/serving/cut_layers.py")
cut_layers = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cut_layers)


class Names(unittest.TestCase):
    def test_tensors_of_the_first_layers_and_of_none_are_kept(self):
        for name, kept in (("token_embd.weight", True), ("output_norm.weight", True), ("output.weight", True),
                           ("rope_freqs.weight", True), ("blk.0.attn_q.weight", True), ("blk.7.ffn_up.weight", True),
                           ("blk.8.attn_q.weight", False), ("blk.11.attn_q.weight", False),
                           ("mtp.blk.11.weight", True)):
            self.assertEqual(cut_layers.is_kept(name, 8), kept, name)

    def test_values_of_layers_are_cut(self):
        def value(key, given):
            return cut_layers.cut_value(key, given, "llama", 3, 2)

        self.assertEqual(value("llama.block_count", 3), 2)
        self.assertEqual(value("llama.nextn_predict_layers", 1), 0)
        self.assertEqual(value("llama.attention.head_count_kv", [4, 2, 1]), [4, 2])
        # Of other things: three tokens, a pair, another family's count.
        self.assertEqual(value("tokenizer.ggml.tokens", ["a", "b", "c"]), ["a", "b", "c"])
        self.assertEqual(value("llama.rope.dimension_sections", [1, 2]), [1, 2])
        self.assertEqual(value("qwen2.block_count", 3), 3)

    def test_usage(self):
        for words in ((), ("a.gguf", "1"), ("a.gguf", "one", "b.gguf"), ("a.gguf", "-1", "b.gguf")):
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(cut_layers.main(words), 2)
            self.assertIn("cut_layers.py SOURCE.gguf LAYERS TARGET.gguf", said.getvalue())


@unittest.skipUnless(HAS_GGUF, "the package gguf is not installed")
class Cut(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def test_what_is_kept_stays_as_it_was(self):
        import gguf
        whole = gguf.GGUFReader(TINY)
        layers = whole.fields["llama.block_count"].contents()
        self.assertGreater(layers, 1)
        cut_layers.cut(TINY, layers - 1, self.path / "cut.gguf")
        self.assertEqual([p.name for p in self.path.iterdir()], ["cut.gguf"])
        cut = gguf.GGUFReader(self.path / "cut.gguf")

        def fields(reader):
            return {key: (field.types, field.contents()) for key, field in reader.fields.items()
                    if not key.startswith("GGUF.")}

        expected = fields(whole)
        expected["llama.block_count"] = (expected["llama.block_count"][0], layers - 1)
        self.assertEqual(fields(cut), expected)
        gone = f"blk.{layers - 1}."
        kept = [tensor for tensor in whole.tensors if not tensor.name.startswith(gone)]
        self.assertLess(len(kept), len(whole.tensors))
        self.assertEqual([t.name for t in cut.tensors], [t.name for t in kept])
        for one, other in zip(cut.tensors, kept):
            self.assertEqual((one.tensor_type, one.shape.tolist()), (other.tensor_type, other.shape.tolist()), one.name)
            self.assertEqual(one.data.tobytes(), other.data.tobytes(), one.name)

    def write(self, name, **values):
        """A model of three layers, with a value for each and an unusual alignment."""
        import gguf
        import numpy
        writer = gguf.GGUFWriter(self.path / name, "llama")
        writer.add_custom_alignment(64)
        writer.add_uint32("llama.block_count", values.get("block_count", 3))
        writer.add_array("llama.attention.head_count_kv", [4, 2, 1])
        if "split" in values:
            writer.add_uint16("split.count", values["split"])
        for layer in range(3):
            writer.add_tensor(f"blk.{layer}.attn_q.weight", numpy.full((5, 3), layer, dtype=numpy.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return self.path / name

    def test_a_value_for_each_layer_and_an_alignment(self):
        import gguf
        cut_layers.cut(self.write("three.gguf"), 2, self.path / "two.gguf")
        two = gguf.GGUFReader(self.path / "two.gguf")
        self.assertEqual(two.fields["llama.attention.head_count_kv"].contents(), [4, 2])
        self.assertEqual(two.alignment, 64)
        self.assertEqual([t.data[0, 0] for t in two.tensors], [0, 1])

    def test_what_cannot_be_cut(self):
        source = self.write("three.gguf")
        for layers in (0, 3, 4):
            with self.assertRaisesRegex(ValueError, f"has 3 layers: 1 to 2 of them can be kept, not {layers}"):
                cut_layers.cut(source, layers, self.path / "no.gguf")
        with self.assertRaisesRegex(ValueError, "one part of a model"):
            cut_layers.cut(self.write("part.gguf", split=2), 1, self.path / "no.gguf")
        (self.path / "other").write_bytes(b"no model at all")
        (self.path / "short.gguf").write_bytes(TINY.read_bytes()[:200])
        for name in ("other", "short.gguf"):
            with self.assertRaisesRegex(ValueError, f"{name} is no GGUF file"):
                cut_layers.cut(self.path / name, 1, self.path / "no.gguf")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(cut_layers.main([str(self.path / "none.gguf"), "1", "no.gguf"]), 7)
        self.assertIn("none.gguf", said.getvalue())
        self.assertFalse((self.path / "no.gguf").exists())


if __name__ == "__main__":
    if not HAS_GGUF and PYTHON.exists() and sys.executable != str(PYTHON):
        os.execv(PYTHON, [str(PYTHON), "-B", *sys.argv])
    done = unittest.main(exit=False)
    if not done.result.wasSuccessful():
        sys.exit(1)
    if not HAS_GGUF:
        print("skipped: the package gguf is not there; scripts/serve llama --draft-layers 8 --prepare installs it")
        sys.exit(77)
