"""Options of scripts/bench-peers and what they lead to."""
import argparse
import json
import os
import pathlib
import subprocess
import sys

from . import batch, environment, quality, report, shapes, speed
from .environment import Failure, progress

ROOT = pathlib.Path(os.environ.get("EVALRUN_PEERS_ROOT", "."))
HOME = pathlib.Path(os.environ.get("EVALRUN_PEERS_HOME", "."))
GREEDY_TOKENS = 64
FORMATS = ("f32", "bf16", "int8", "int8-fast", "q4", "stored")
# A step of a shape's size takes long: what its goals need, and no more.
DEFAULTS = {"formats": ["f32", "bf16", "int8", "int8-fast", "q4"], "peers": ["Q8_0", "Q4_0", "Q4_1", "BF16"],
            "rows": [1, 2, 4, 8, 16, 32, 64], "reps": 15, "prefill": 512, "out": HOME / "peers" / "results"}
SHAPE_DEFAULTS = {"formats": ["stored"], "peers": ["Q4_K_M", "Q4_0", "Q8_0"], "rows": [1, 2, 4, 8, 16],
                  "reps": 5}
BATCH_DEFAULTS = {"formats": ["int8", "q4"], "peers": ["Q8_0", "Q4_0"], "reps": 5}
MOST_ROWS, MOST_SEQUENCES = 512, 64  # what evalrun cost takes


def names(text):
    return [part for part in text.split(",") if part]


def counts(what, most):
    """Reads a list of counts, and adds 1 to it: every ratio is over one."""
    def read(text):
        try:
            values = sorted({int(part) for part in names(text)})
        except ValueError:
            values = []
        if not values or values[0] < 1 or values[-1] > most:
            raise argparse.ArgumentTypeError(f"expected numbers of {what} from 1 to {most}, separated by commas")
        return values if 1 in values else [1, *values]
    return read


def parse(arguments):
    # The help text is in scripts/bench-peers.
    parser = argparse.ArgumentParser(prog="scripts/bench-peers", add_help=False, allow_abbrev=False)
    for flag in ("--quality", "--prepare", "--report-only", "--resume", "--avx2", "--avx2-only", "--json",
                 "--keep"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--shape", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=counts("rows", MOST_ROWS))
    parser.add_argument("--batch", type=counts("sequences", MOST_SEQUENCES))
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--prefill", type=int)
    parser.add_argument("--reps", type=int)
    parser.add_argument("-t", "--threads", type=int, default=int(os.environ.get("EVALRUN_PEERS_THREADS", 1)))
    parser.add_argument("--formats", type=names)
    parser.add_argument("--peers", type=names)
    parser.add_argument("--isa", default="")
    parser.add_argument("--flash", choices=["best", "on", "off"], default="best")
    parser.add_argument("-m", "--model", type=pathlib.Path)
    parser.add_argument("--evalrun", type=pathlib.Path, default=ROOT / "build/release/bin/evalrun")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--chunks", type=int, default=32)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args(arguments)
    options.greedy = GREEDY_TOKENS
    if options.batch:
        check_batch(parser, options)
    defaults = DEFAULTS | (BATCH_DEFAULTS if options.batch else {})
    if options.shape:
        defaults |= {**SHAPE_DEFAULTS, "out": DEFAULTS["out"] / options.shape}
        if options.batch:
            defaults["reps"] = 3
    for name, value in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    check(parser, options)
    return options


def check(parser, options):
    for name in ("rounds", "threads", "chunks", "reps"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    if options.context < 1 or options.prefill < 0:
        parser.error("--context must be at least 1 and --prefill at least 0")
    for name in options.peers:
        if name.removesuffix("-shipped") not in environment.FTYPES:
            parser.error(f"--peers: '{name}' is none of {', '.join(environment.FTYPES)}, Q4_1-shipped")
    for name in options.formats:
        if name not in FORMATS:
            parser.error(f"--formats: '{name}' is none of {', '.join(FORMATS)}")
    if "stored" in options.formats and not speed.quantised(options.peers):
        parser.error("--formats stored measures llama.cpp's quantised files, --peers names none: add Q4_K_M")
    if options.shape:
        check_shape(parser, options)
    elif options.keep:
        parser.error("--keep keeps the F16 file of a shape: give one with --shape NAME")


def check_batch(parser, options):
    """Before the defaults: what was given and does not go with --batch."""
    if options.quality:
        parser.error("--quality and --batch are two measurements: give one of them")
    for name in ("rows", "prefill"):
        if getattr(options, name) is not None:
            parser.error(f"--{name} has no place in --batch: its steps have a token of each sequence. Leave it out")


def check_shape(parser, options):
    if options.quality:
        parser.error("--quality has nothing to score with --shape: random weights make noise of every text. "
                     "Leave --shape out, or give a real model with -m FILE.gguf")
    if options.model is not None:
        parser.error("--shape makes its own model: leave -m out")
    shipped = [name for name in options.peers if name.endswith("-shipped")]
    if shipped:
        parser.error(f"--peers: {shipped[0]} is a file that exists, and a shape has none: leave it out")
    others = [name for name in options.formats if name != "stored"]
    if others and not options.keep:
        parser.error(f"--formats {others[0]} reads the F16 file of the shape, which is removed: add --keep")


def find_model(options):
    if options.model is None:
        options.model = pathlib.Path(os.environ["EVALRUN_PEERS_MODEL"])
        if subprocess.run([ROOT / "scripts/get-model"], stdout=sys.stderr, check=False).returncode != 0:
            raise Failure(7, "the default model cannot be had (the reason is above)", "or give one with -m FILE")
    if not options.model.is_file() or options.model.suffix != ".gguf":
        raise Failure(7, f"{options.model} is not a GGUF file", "llama.cpp's files are made from it: -m FILE.gguf")
    options.model = options.model.resolve()


def find_text(options):
    if options.text is not None:
        return
    shared = pathlib.Path(os.environ.get("EVALRUN_SHARED", ROOT.parent / "shared"))
    options.text = shared / "data/corpus/wikitext-2/test.txt.gz"
    if not options.text.is_file():
        raise Failure(7, f"no text: there is none at {options.text}",
                      "give one with --text FILE, for instance the raw test set of WikiText-2")


def print_report(options, only=None):
    """The tables of what is stored; `only` limits them to one kind."""
    logs = {}
    for kind in ("speed", "quality", "batch"):
        path = options.out / f"{kind}.jsonl"
        if path.exists():
            logs[kind] = environment.read_log(path)
    if (only or next(iter(logs), "speed")) not in logs:
        raise Failure(7, f"no results in {options.out}", "scripts/bench-peers measures; --out names another folder")
    data = report.collect(*(logs.get(kind, []) for kind in ("speed", "quality", "batch")))
    if only and data[only] is None:  # interrupted before the first one
        raise Failure(7, f"{options.out / only}.jsonl holds no result yet", "the same options with --resume go on")
    if options.json:
        print(json.dumps(data, indent=1))
    else:
        print(report.markdown(data, only))


def model_files(options, shape, llama):
    """llama.cpp's files by name. A shape takes its tokenizer from options.model, which becomes its source."""
    if shape:
        options.model, files = shapes.make_files(llama, HOME, shape, options.model, options.peers,
                                                 options.threads, options.keep)
        return files
    wanted = (["F32"] if options.quality or options.prepare else []) + options.peers
    folder = environment.files_folder(HOME, environment.sha256(options.model)[:16], llama)
    return environment.make_peer_files(llama, folder, options.model, wanted, options.threads)


def main(arguments):
    options = parse(arguments)
    shape = shapes.find(options.shape) if options.shape else None
    if options.report_only:
        print_report(options, "batch" if options.batch else None)
        return
    if options.quality:
        find_text(options)
    find_model(options)
    kinds = (["avx2"] if options.avx2_only else ["native"]) + (["avx2"] if options.avx2 else [])
    builds = {kind: environment.Llama(HOME, kind) for kind in kinds}
    first = builds[kinds[0]]
    for kind, build in builds.items():
        info = build.info()
        progress(f"llama.cpp, {kind} build: llama-cpp-python {info['version']}, CMAKE_ARGS={info['cmake_args']}")
        progress(f"llama.cpp, {kind} build: {info['system_info']}")
    files = model_files(options, shape, first)
    if options.prepare:
        return
    evalrun = environment.Evalrun(options.evalrun, options.model, options.threads)
    if options.quality:
        quality.run(options, evalrun, first, files)
        print_report(options, "quality")
    elif options.batch:
        batch.run(options, evalrun, builds, files)
        print_report(options, "batch")
    else:
        speed.run(options, evalrun, builds, files)
        print_report(options, "speed")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        print(f"\nerror: {failure}", file=sys.stderr)
        if failure.hint:
            print(f"  hint: {failure.hint}", file=sys.stderr)
        sys.exit(failure.code)
    except KeyboardInterrupt:
        print("\ninterrupted; what was measured is stored: the same command with --resume goes on",
              file=sys.stderr)
        sys.exit(130)
