"""Rounds of plain decoding in batches: B sequences, a token of each a step, beside llama.cpp's own."""
from . import environment, shapes, speed
from .environment import Failure, progress

STEPS = 8  # of llama.cpp in a row, each a token longer; evalrun cost stays at the context
CELL_BLOCK = 256  # llama.cpp pads a sequence's part of the cache to it
# Bytes of a weight that evalrun holds, rounded up.
WEIGHT_BYTES = {"f32": 4.2, "bf16": 2.2, "int8": 1.3, "int8-fast": 1.3, "q4": 1.0}


def cells(options):
    """Positions that each sequence has room for in llama.cpp."""
    return -(-(options.context + STEPS) // CELL_BLOCK) * CELL_BLOCK


def check_memory(options, files, free):
    """Fails where weights and caches of the largest batch do not fit into `free` bytes."""
    most = max(options.batch)
    token = max(file["kv_row_bytes"] for file in files.values())
    caches = 2 if options.flash == "best" else 1  # the trial has one of each setting
    theirs = caches * most * cells(options) * token
    ours = 2 * most * (options.context + 1) * token  # at most float32, where kv_row_bytes is of F16
    weights = {name: 1.1 * file["file_bytes"] for name, file in files.items()}
    parameters = max(file["parameters"] for file in files.values())
    weights |= {name: WEIGHT_BYTES[name] * parameters for name in options.formats if name != "stored"}
    name = max(weights, key=weights.get)
    need = weights[name] + max(theirs, ours) + shapes.GB
    if need > free:
        raise Failure(6, f"--batch: {most} sequences of {options.context} tokens need {need / shapes.GB:.1f} GB of "
                         f"memory with {name}, {free / shapes.GB:.1f} GB are free",
                      "end other programs, give smaller batches or a shorter --context, "
                      + ("--flash on (one cache, not two), " if caches > 1 else "") + f"or leave {name} out")


def normalised_cost(output, counts, dtype):
    """The fields of this comparison from what `evalrun cost --sequences LIST --rows 1 --json` prints."""
    tables = {table.get("sequences", 1): table for table in output.get("formats", [output])}
    t_ms = {}
    for n in counts:
        rows = {row["rows"]: row["ms"] for row in tables.get(n, {}).get("rows", [])}
        if 1 not in rows:
            raise Failure(5, f"evalrun cost printed no step of {n} sequences for {dtype}",
                          f"see: evalrun cost --json --dtype {dtype} --sequences {n} --rows 1")
        t_ms[str(n)] = rows[1]
    first = tables[counts[0]]
    return {"t_ms": t_ms, **{key: first[key] for key in (
        "dtype", "isa", "threads", "bandwidth_gb_s", "pingpong_ns", "placement") if first.get(key) is not None}}


def run_evalrun(options, evalrun, arm, files):
    arguments, dtype = speed.cost_arguments(options, arm, files, "--sequences", ",".join(map(str, options.batch)),
                                            "--rows", 1, "--prefill", 0)
    return normalised_cost(evalrun.call(*arguments), options.batch, dtype)


def of_llama(options, files, arm):
    """Arguments of the worker's commands for an arm of llama.cpp."""
    return {"file": files[arm["format"]]["path"], "context": options.context, "cells": cells(options),
            "steps": STEPS, "sequences": options.batch, "threads": options.threads}


def expected_seconds(options, arms, chosen):
    """Seconds of a round without loading and prompts, from the flash trials; None without. An arm of evalrun
    counts like llama.cpp's on its file, or as their mean."""
    seconds = {}
    for record in chosen.values():
        ms = record["ms"].get(record["choice"])
        if not ms:
            return None
        seconds[record["arm"]] = (options.reps + 1) * STEPS * sum(ms.values()) / 1e3
    if not seconds:
        return None
    mean = sum(seconds.values()) / len(seconds)
    return sum(seconds.get(arm["name"], seconds.get(f"llama.cpp {arm.get('file')}", mean)) for arm in arms)


def measure(options, log, evalrun, builds, files, arms):
    def choose(arm):
        if options.flash != "best":
            return {"choice": options.flash, "ms": {}}
        return builds[arm["build"]].call("batch_flash", reps=1, **of_llama(options, files, arm))

    chosen = speed.choose_every_flash(log, arms, choose)

    def run_arm(arm):
        if arm["engine"] == "evalrun":
            return run_evalrun(options, evalrun, arm, files)
        return builds[arm["build"]].call("batch", reps=options.reps, flash=chosen[arm["name"]]["choice"],
                                         **of_llama(options, files, arm))

    def said(result):
        return ", ".join(f"{1e3 * n / result['t_ms'][str(n)]:.1f}" for n in options.batch) + " tok/s"
    speed.measure_rounds(options, log, arms, run_arm, said, expected_seconds(options, arms, chosen))


def run(options, evalrun, builds, files):
    check_memory(options, files, shapes.available_memory())
    reason = evalrun.why_not("cost", "--sequences")
    if reason:
        progress(f"evalrun is left out: {reason}; only llama.cpp is measured")
    arms = speed.make_arms(options, reason is None)
    if not arms:
        raise Failure(2, "nothing to measure with these options", "see scripts/bench-peers --help")
    config = {name: getattr(options, name) for name in ("threads", "context", "reps", "flash")}
    config |= {"sequences": options.batch, "steps": STEPS, "model": str(options.model), "arms": arms}
    if options.shape:
        config["shape"] = options.shape
    log = environment.Log(options.out / "batch.jsonl", config, options.resume)
    speed.note_setting(log, builds, files)
    measure(options, log, evalrun, builds, files, arms)
