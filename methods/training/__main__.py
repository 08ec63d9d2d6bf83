"""python -m training METHOD --data DIR --target MODEL --out DIR: trains and exports one draft head.

Also: `prompts` writes a prompt list, `evaluate` scores an adapter on a capture. Folder methods/
must be on PYTHONPATH; scripts/train does that.
"""
import argparse
import functools
import hashlib
import json
import os
import pathlib
import shlex
import sys

import torch

from . import (adapter, budget, card, convert, evaluate, merge, recipes, target, verify,
               vocabulary)
from .data import capture, importers, overlap, prompts
from .drafters import bita, draft, eagle, eagle3, falcon, gated, linear, look_ahead, medusa, space
from .errors import Failure
from .frozen import Frozen
from .progress import say
from .trainer import SCHEDULES, Budget, Interrupted, Trainer

METHODS = {"medusa": (medusa, medusa.Medusa), "eagle": (eagle, eagle.Eagle),
           "eagle3": (eagle3, eagle3.Eagle3), "falcon": (falcon, falcon.Falcon),
           "draft": (draft, draft.Draft), "bita": (bita, bita.Bita),
           "gated_lora": (gated, gated.Gated), "pass": (look_ahead, look_ahead.Pass),
           "space": (space, space.Space)}
CLASSES = {name: kind for name, (_, kind) in METHODS.items()}
# Not part of what makes a training the same one.
FREE_OPTIONS = {"threads", "save_every", "out", "data", "target", "prompts", "restart", "method",
                "name", "residual_layers", "dry_run", "recompute", "overlap", "force_overlap"}


def default_precision(device):
    """bf16 where the machine has instructions for it: elsewhere it is slower than f32."""
    if device.startswith("cuda"):
        return "bf16"
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    has = any(getattr(torch.cpu, name, lambda: False)() for name in names)
    return "bf16" if has else "f32"


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def common_options(parser):
    parser.add_argument("--data", required=True, nargs="+", metavar="DIR",
                        help="captures of evalrun capture, of one model")
    parser.add_argument("--target", required=True, metavar="MODEL",
                        help="the target: .gguf or Hugging Face folder")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=None, help="default: the cores allowed")
    parser.add_argument("--precision", choices=("bf16", "f32"), default=None,
                        help="of the matrix products (default: bf16 where the processor has it)")
    parser.add_argument("--held-out", type=int, default=None, metavar="N",
                        help="prompts kept for evaluation (default: 5 %%, 8 to 320)")
    parser.add_argument("--no-recompute", dest="recompute", action="store_false",
                        help="do not compare captured states with recomputed ones")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prompts", default=[], nargs="+", metavar="FILE",
                        help="the prompt lists of the captures, in their order, for the model card")


def training_options(parser, name):
    common_options(parser)
    parser.add_argument("--out", required=True, metavar="DIR",
                        help="checkpoint, adapter and model card")
    parser.add_argument("--name", default=name, help="of the adapter: NAME.safetensors and NAME.md")
    parser.add_argument("--recipe", choices=tuple(recipes.RECIPES[name]), default="small",
                        help="defaults of everything below: ours for small models, or the paper's "
                             "where it has values (docs/recipes.md)")
    parser.add_argument("--minutes", type=float, default=None, help="wall time of training")
    parser.add_argument("--cpu-seconds", type=float, default=None,
                        help="budget in CPU time instead")
    parser.add_argument("--tokens", type=int, default=None, help="budget in answer tokens instead")
    parser.add_argument("--updates", type=int, default=None,
                        help="budget in steps of the optimiser, of --batch answers each, instead: "
                             "the same answers for what counts tokens otherwise")
    parser.add_argument("--epochs", type=float, default=None,
                        help="budget in passes over the text instead")
    parser.add_argument("--dry-run", action="store_true",
                        help="only check the options, and --overlap")
    parser.add_argument("--overlap", default=[], nargs="+", metavar="FILE",
                        help="reports of evalrun data overlap --json on the prompt lists")
    parser.add_argument("--force-overlap", action="store_true",
                        help="train on text that holds prompts of evaluation sets; the adapter "
                             "says so")
    parser.add_argument("--restart", action="store_true", help="forget a checkpoint in --out")
    parser.add_argument("--save-every", type=float, default=60, metavar="SECONDS",
                        help="between checkpoints")
    parser.add_argument("--weights", choices=("int8", "bf16", "f32"), default="int8",
                        help="of the adapter")
    parser.add_argument("--batch", type=int, help="sequences (medusa: positions) per step")
    parser.add_argument("--lr", type=float, help="highest learning rate")
    parser.add_argument("--betas", type=float, nargs=2, metavar=("B1", "B2"), help="of AdamW")
    parser.add_argument("--schedule", choices=tuple(SCHEDULES),
                        help="how the rate falls over the budget, to zero")
    parser.add_argument("--warmup", type=float,
                        help="steps, or a share of the budget when below 1; 0 = none")
    parser.add_argument("--clip", type=float, help="of gradients; 0 = off")
    parser.add_argument("--clip-kind", choices=("norm", "value"),
                        help="whether --clip is for the norm of all or for every value")
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--vocabulary", type=int, metavar="N", help="draft tokens; 0 = all")
    if name != "medusa":
        parser.add_argument("--labels", help="soft labels: the target's N most probable tokens, "
                                             "or full")
    else:
        parser.add_argument("--decay", type=float, help="weight of head k is decay^k")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m training", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="method", required=True, metavar="METHOD")
    for name, (module, kind) in METHODS.items():
        one = commands.add_parser(name, help=module.__doc__.splitlines()[0])
        training_options(one, name)
        kind.add_options(one)
    one = commands.add_parser("prompts", help=prompts.__doc__.splitlines()[0])
    prompts.add_options(one)
    one = commands.add_parser("import", help=importers.__doc__.splitlines()[0])
    importers.add_options(one)
    one = commands.add_parser("convert", help=convert.__doc__.splitlines()[0])
    convert.add_options(one)
    one = commands.add_parser("merge", help=merge.__doc__.splitlines()[0])
    merge.add_options(one)
    one = commands.add_parser("evaluate", help="scores an adapter on the held-out prompts of a "
                                               "capture")
    common_options(one)
    one.add_argument("adapter", metavar="ADAPTER")
    options = parser.parse_args(arguments)
    if options.method in METHODS:
        apply_recipe(parser, options)
    return options


def apply_recipe(parser, options):
    """Fills what was not given from the recipe of the method."""
    for name, value in recipes.RECIPES[options.method][options.recipe].items():
        if getattr(options, name, None) is None:
            setattr(options, name, value)
    if isinstance(options.lr, dict):  # by how the method starts
        options.lr = options.lr[options.start]
    labels = getattr(options, "labels", "hard")
    if labels not in ("hard", "full") and not (labels.isdigit() and int(labels) > 0):
        parser.error(f"--labels {labels}: give a number of tokens or full")
    for name in ("batch", "lr", "steps", "heads", "layers"):
        if getattr(options, name, 1) is not None and getattr(options, name, 1) <= 0:
            parser.error(f"--{name} must be above 0")
    if not all(0 <= beta < 1 for beta in options.betas):
        parser.error("--betas {:g} {:g}: both must be from 0 to below 1".format(*options.betas))


def prepare(options):
    """Device, threads, capture and target, checked against each other."""
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise Failure("--device cuda", "PyTorch finds no GPU", "use --device cpu")
    torch.set_num_threads(options.threads or cores())
    torch.manual_seed(options.seed)
    options.precision = options.precision or default_precision(options.device)
    data = capture.Capture(options.data)
    train, held = data.split(options.seed, options.held_out)
    model = target.open_target(options.target)
    match = target.check(model, data, held)
    cosine = verify.check_states(model, data, held) if options.recompute else None
    say(f"{data.path}: {len(data.sequences)} answers ({data.answers}), {capture.answer_tokens(data.sequences):,} "
        "answer tokens, "
        f"{len(held)} held out; the target's head gives {match:.2%} of its tokens" +
        (f", recomputed states have cosine {cosine:.4f}" if cosine else ""))
    return data, train, held, model


def frozen_of(options, model, words):
    kind = torch.bfloat16 if options.precision == "bf16" else torch.float32
    return Frozen.of(model, words, options.device, kind)


def statistics_of(data, sequences, residual, rows=20000):
    """What start() needs to know of the inputs, from the first sequences: sizes, directions, and
    fits that are made when asked for."""
    hidden, streams, n = [], [], 0
    for s in sequences:
        first = max(1, s.fresh)  # earlier turns of a dialogue stand in a sequence of their own
        hidden.append(data.rows(s, "hidden", first, s.n - 1).float())
        if residual:
            # The first token's streams are hundreds of times larger; they say nothing of the rest.
            streams.append(data.rows(s, "residual", first, s.n - 1).float())
        n += s.n - s.fresh
        if n >= rows:
            break
    features = torch.cat(hidden)
    # Directions of largest variance first.
    components = torch.linalg.eigh(features.T @ features)[1].flip(1).contiguous()
    result = {
        "feature_rms": float(features.pow(2).mean().sqrt()), "feature_mean": features.mean(0),
        "feature_components": components, "answers": (data, sequences),
        "next_feature": functools.partial(linear.next_feature, data, sequences)}
    if residual:
        sample = torch.cat(streams)
        result["residual_sample"] = sample[:4000]
        result["residual_rms"] = sample.pow(2).mean(0).sqrt()
        result["next_from_streams"] = functools.partial(linear.next_from_streams, data, sequences)
    return result


def settings_of(options, data, train):
    """What must be equal for a checkpoint to be of the same training."""
    settings = {name: value for name, value in vars(options).items() if name not in FREE_OPTIONS}
    settings["capture"] = data.fingerprint()
    settings["text"] = budget.text_of(data, train)
    settings["training sequences"] = len(train)
    return settings


def train(options):
    found = overlap.read(options.overlap)
    overlap.refuse(found, options.force_overlap)
    data, training, held, model = prepare(options)
    compared = overlap.of_captures(data, found)
    if compared is None:
        say("overlap with evaluation prompts: not checked; --overlap takes the report of "
            "evalrun data overlap --json on the prompt list")
    else:
        say("the prompt list was compared with " + ", ".join(compared))
    module_file, kind = METHODS[options.method]
    if hasattr(kind, "needs"):
        kind.needs(data)
    options.residual_layers = data.residual_layers
    words = vocabulary.choose(data, training, model.shape.vocab_size, options.vocabulary)
    covered = vocabulary.coverage(data, held, words)
    say(f"draft vocabulary: {words.size:,} tokens cover {covered:.1%} of the held-out answers")
    frozen = frozen_of(options, model, words)
    module = kind(frozen, kind.configure(options, model.shape))
    module.start(model, statistics_of(data, training, module.residual))
    module.to(frozen.device)
    module.capture = data
    limits = Budget(None if options.minutes is None else 60 * options.minutes, options.cpu_seconds,
                    options.tokens, options.epochs, options.updates)
    loop = Trainer(module, module.feed(data, training, options), options, limits, options.out,
                   settings_of(options, data, training))
    if options.restart:
        loop.checkpoint.unlink(missing_ok=True)
    elif loop.resume():
        say(f"going on at {loop.share():.1%} of {loop.checkpoint}")
    n = sum(p.numel() for p in module.parameters())
    say(f"{options.method}: {n / 1e6:.2f} M weights, recipe {options.recipe}, {options.precision} "
        f"on {options.device}, {torch.get_num_threads()} threads")
    say(budget.optimiser_of(options))
    weights = token_weights_of(module, loop.feed, options)
    loop.run()
    export(options, data, training, held, model, words, covered, module, loop.state, weights)


def token_weights_of(module, feed, options):
    """What a mask row weighs beside a row of text, of methods that train both; else None."""
    weights = module.token_weights(feed, options) if hasattr(module, "token_weights") else None
    if weights:
        say(card.token_weights(weights))
    return weights


def export(options, data, training, held, model, words, covered, module, state, weights):
    """Adapter, its evaluation as stored, model card."""
    path = pathlib.Path(options.out) / f"{options.name}.safetensors"
    adapter.write(path, module, data.model, options.weights)
    say("scoring the adapter on the held-out prompts")
    stored, _ = adapter.load(path, CLASSES, lambda ids: frozen_of(options, model, words))
    origins = data.origins(options.prompts)
    kinds = {place: row["source"] for place, row in origins.items()}
    acceptance, tree = evaluate.evaluate(stored, data, held, kinds)
    acceptance |= getattr(stored, "extra_scores", dict)()
    sources, licences = {}, {}
    for s in training:
        row = origins.get((s.folder, s.line), {"source": "unknown"})
        sources[row["source"]] = sources.get(row["source"], 0) + 1
        if "licence" in row:
            licences[row["source"]] = " ".join(
                [row["licence"], *([f"({row['origin']})"] if "origin" in row else [])])
    record = {
        "recipe": options.recipe, "command": recorded_command(), "seed": options.seed,
        "options": {k: v for k, v in sorted(vars(options).items()) if k not in FREE_OPTIONS},
        "cpu_seconds": round(state.cpu_seconds, 1), "wall_seconds": round(state.wall_seconds, 1),
        "tokens_seen": state.tokens, "updates": state.step,
        "unit": getattr(module, "unit", "answer tokens"),
        "unique_tokens": capture.answer_tokens(training),
        "budget": budget.of(options, state, budget.text_of(data, training)),
        "answers": data.answers, "sources": dict(sorted(sources.items())),
        "licences": dict(sorted(licences.items())),
        "overlap": overlap.of_captures(data, overlap.read(options.overlap)),
        "device": device_name(options.device),
        "torch": torch.__version__, "acceptance": acceptance, "loss": state.curve,
        "vocabulary": {"size": words.size, "target_size": words.target_size,
                       "coverage": round(covered, 4)}}
    if weights:
        record["token_weights"] = weights
    size = adapter.set_metadata(path, tree=tree, training=record)
    _, metadata = adapter.read(path)
    card.write(path.with_suffix(".md"), metadata, size)
    say(f"{path}: {size / 1e6:.2f} MB, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}")
    print(json.dumps({"adapter": str(path), "bytes": size, "tokens_seen": state.tokens,
                      "cpu_seconds": round(state.cpu_seconds, 1), **acceptance}))


def recorded_command():
    """What was typed; of paths of this machine only the last part."""
    typed = os.environ.get("EVALRUN_TRAIN_COMMAND")
    words = shlex.split(typed) if typed else ["scripts/train", *sys.argv[1:]]
    words = [word for word in words if word != "--restart"]
    return shlex.join(pathlib.Path(word).name if word.startswith(("/", "~", "../")) else word
                      for word in words)


def device_name(device):
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            names = [line.split(":")[1].strip() for line in handle if line.startswith("model name")]
        return f"{names[0]}, {torch.get_num_threads()} threads"
    except (OSError, IndexError):
        return "cpu"


def run_evaluate(options):
    data, _, held, model = prepare(options)

    def frozen_for(ids):
        size = model.shape.vocab_size
        words = vocabulary.Vocabulary(torch.arange(size) if ids is None else ids, size)
        return frozen_of(options, model, words)

    module, metadata = adapter.load(options.adapter, CLASSES, frozen_for)
    if metadata.get("target_hash") and str(data.model["hash"]) != metadata["target_hash"]:
        raise Failure(options.adapter, f"is for the target {metadata['target_hash'][:12]}, the "
                                       "capture is of "
                      f"{str(data.model['hash'])[:12]}", "give the capture of its target")
    kinds = data.sources(options.prompts)
    result, _ = evaluate.evaluate(module, data, held, kinds)
    result |= getattr(module, "extra_scores", dict)()
    print(json.dumps(result))


def main(arguments=None):
    options = parse(arguments)
    try:
        if options.method == "prompts":
            prompts.run(options)
        elif options.method == "import":
            importers.run(options)
        elif options.method == "convert":
            convert.run(options)
        elif options.method == "merge":
            merge.run(options)
        elif getattr(options, "dry_run", False):
            overlap.refuse(overlap.read(options.overlap), options.force_overlap)
        elif options.method == "evaluate":
            run_evaluate(options)
        else:
            train(options)
    except Failure as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    except Interrupted:
        print("interrupted; the same command goes on from the checkpoint", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
