"""scripts/convert-data without pyarrow: rows to lines, targets, what is refused."""
import hashlib
import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/convert-data"
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("convert_data", str(SCRIPT))
convert_data = importlib.util.module_from_spec(importlib.util.spec_from_loader("convert_data", loader))
loader.exec_module(convert_data)

COLUMNS = ["id", "document"]


class ConvertData(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = self.folder / "xsum/test.jsonl"

    def write(self, *batches):
        return convert_data.write_rows(batches, COLUMNS, "x.parquet", self.target)

    def test_rows_in_order_with_columns_in_order(self):
        n, digest = self.write([{"document": "é \"x\"\n", "id": "1", "other": 3}], [{"id": "2", "document": ""}])
        data = self.target.read_bytes()
        self.assertEqual(data.decode(), '{"id":"1","document":"é \\"x\\"\\n"}\n{"id":"2","document":""}\n')
        self.assertEqual((n, digest), (2, hashlib.sha256(data).hexdigest()))
        self.assertEqual([p.name for p in self.target.parent.iterdir()], ["test.jsonl"])

    def test_a_bad_row_is_named_and_leaves_the_old_file(self):
        self.write([{"id": "1", "document": "old"}])
        old = self.target.read_bytes()
        for row in ({"id": "2", "document": None}, {"id": 2, "document": "x"}, {"document": "x"}):
            with self.assertRaisesRegex(convert_data.ConversionError, r"x\.parquet: row 1: column '(id|document)'"):
                self.write([{"id": "1", "document": "new"}, row])
        with self.assertRaisesRegex(convert_data.ConversionError, "no rows"):
            self.write([])
        self.assertEqual(self.target.read_bytes(), old)
        self.assertEqual([p.name for p in self.target.parent.iterdir()], ["test.jsonl"])

    def test_files_of_a_set(self):
        with self.assertRaisesRegex(convert_data.ConversionError, "xsum-test.parquet is not there"):
            convert_data.set_files("xsum", self.folder)
        second = self.folder / convert_data.SETS["cip"][0][1]
        second.parent.mkdir()
        second.touch()
        self.assertEqual(convert_data.set_files("cip", self.folder), (second, self.folder / "cip/test.jsonl"))


if __name__ == "__main__":
    unittest.main()
