"""The machine, the programs on both sides, llama.cpp's model files."""
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

from . import gguf_info

FLAGS_SHOWN = ("avx2", "fma", "f16c", "bmi2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
               "avx512_bf16", "avx512vbmi", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm",
               "bf16")
# llama_ftype by name (llama.h); "shipped" files are used as they are.
FTYPES = {"F32": 0, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17,
          "Q6_K": 18, "BF16": 32}
FLOATS = ("F32", "BF16")


class Failure(Exception):
    """An error with an exit code of docs/exit-codes.md and a remedy."""

    def __init__(self, code, message, hint=""):
        super().__init__(message)
        self.code, self.hint = code, hint


def progress(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def machine():
    model, flags = "unknown processor", set()
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                model = value.strip()
            elif key.strip() in ("flags", "Features"):
                flags = set(value.split())
    except OSError:
        pass
    return {"cpu": model, "flags": [f for f in FLAGS_SHOWN if f in flags],
            "vcpus": len(os.sched_getaffinity(0)), "date": time.strftime("%Y-%m-%d %H:%M")}


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


class Llama:
    """One build of llama.cpp in its virtual environment; each call is a process."""

    def __init__(self, home, kind):
        self.kind = kind
        folder = pathlib.Path(home) / f"peers-{kind}"
        self.python = folder / "bin" / "python"
        try:
            self.cmake_args = (folder / "cmake-args").read_text(encoding="utf-8").strip()
        except OSError as error:
            raise Failure(6, f"no llama.cpp ({kind} build) at {folder}: {error.strerror}",
                          "start this with scripts/bench-peers, which makes it") from error

    def call(self, command, **arguments):
        done = subprocess.run([self.python, "-m", "bench_peers.worker", command], check=False,
                              input=json.dumps(arguments, default=str), stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failure(6, f"llama.cpp ({self.kind} build): '{command}' ended with code "
                             f"{done.returncode} (its message is above)",
                          f"the same by hand: {self.python} -m bench_peers.worker {command}")
        return json.loads(done.stdout)

    def info(self):
        info = {**self.call("info"), "cmake_args": self.cmake_args}
        if self.kind == "avx2" and any(f"{name} = 1" in info["system_info"] for name in
                                       ("AVX512", "AVX512_VNNI", "AVX_VNNI", "AMX_INT8")):
            raise Failure(6, "the AVX2 build of llama.cpp has more than AVX2: " + info["system_info"],
                          f"remove {self.python.parent.parent} and its wheel, then run again")
        return info


class Evalrun:
    def __init__(self, program, model, threads):
        self.program, self.model, self.threads = program, model, threads

    def why_not(self, command, option=""):
        """None when the program has the command, and the option of it; else the reason."""
        if not os.access(self.program, os.X_OK):
            return f"there is no program at {self.program} (cmake --build --preset release)"
        done = subprocess.run([self.program, command, "--help"], capture_output=True, check=False, text=True)
        if done.returncode != 0:
            return f"{self.program} has no command '{command}'"
        return None if option in done.stdout else f"{self.program} is older than '{command} {option}'"

    def call(self, *arguments, stdin=None):
        """Standard output of the program, as JSON."""
        command = [str(self.program), *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [x.strip() for x in done.stderr.splitlines() if x.strip()]
            raise Failure(abs(done.returncode), f"evalrun {arguments[0]} ended with code {done.returncode}"
                          f"{': ' if lines else ', without a message'}{' '.join(lines[-3:])}",
                          "the same by hand: " + " ".join(command))
        return json.loads(done.stdout)


def files_folder(home, key, llama):
    """Where the model files of one source are; the key names its contents."""
    return pathlib.Path(home) / "peers" / "files" / f"{key}-{llama.info()['version']}"


def make_file(path, write):
    """write(partial) makes the file; it is renamed when whole, so that an interrupted call leaves nothing
    half-made to be used."""
    progress(f"making {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        write(partial)
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def make_peer_files(llama, folder, source, names, threads):
    """{name: {"path", "file_bytes", "types", ...}} in the folder, made from the source where missing."""
    files = {}
    for name in names:
        path = pathlib.Path(source)
        if not name.endswith("-shipped"):
            path = folder / f"{name}.gguf"
            if not path.exists():
                make_file(path, lambda partial, name=name: llama.call(
                    "quantize", source=source, target=partial, ftype=FTYPES[name], threads=threads))
        files[name] = {"path": str(path), **gguf_info.read(path)}
        progress(f"llama.cpp {name}: {gguf_info.summary(files[name])}")
    return files


def read_text(path):
    opener = gzip.open if str(path).endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(7, f"{path} cannot be read as text: {error}",
                      "give a UTF-8 text with --text FILE, plain or .gz") from error


class Log:
    """JSON lines: a header that names the configuration, then one line per result, each on disk at once."""

    def __init__(self, path, config, resume):
        self.path, self.records = pathlib.Path(path), []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and resume:
            self.records = read_log(self.path)
            self._check(config)
        elif self.path.exists():
            stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self.path.stat().st_mtime))
            self.path.rename(self.path.with_name(f"{self.path.stem}-{stamp}{self.path.suffix}"))
        # A line that an interruption cut off is dropped.
        with open(self.path, "w", encoding="utf-8") as file:
            for record in self.records:
                file.write(json.dumps(record) + "\n")
        if not self.records:
            self.add({"kind": "header", "config": config})

    def _check(self, config):
        stored = self.records[0]["config"] if self.records else config
        for key in config:
            if stored.get(key) != config[key]:
                raise Failure(2, f"{self.path} was measured with {key} = {stored.get(key)}, "
                                 f"this call has {config[key]}",
                              "the same options continue it; without --resume a new run starts")

    def add(self, record):
        self.records.append(record)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def of(self, kind):
        return [record for record in self.records if record["kind"] == kind]


def read_log(path):
    """Records of a file of results; a last line that was cut off is left out."""
    records = []
    try:
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Failure(7, f"no results at {path}: {error.strerror}",
                      "scripts/bench-peers measures; --out names another folder") from error
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise Failure(7, f"{path}: line {number} is not JSON", "remove the file") from error
    if records and records[0].get("kind") != "header":
        raise Failure(7, f"{path}: line 1 is not the header of a results file", "remove the file")
    return records
