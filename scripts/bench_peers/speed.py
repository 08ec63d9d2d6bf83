"""Rounds of both engines: every arm once per round, engines in turn, each other round reversed."""
import time

from . import environment
from .environment import Failure, progress

AVX2_FORMATS = ("int8", "int8-fast", "q4")


def quantised(peers):
    return [name for name in peers if name not in environment.FLOATS]


def our_formats(options):
    """[(name, file or None)]: "stored" stands for one of each quantised file of llama.cpp."""
    formats = []
    for name in options.formats:
        formats += ([(f"{peer} file", peer) for peer in quantised(options.peers)] if name == "stored" else
                    [(name, None)])
    return formats


def make_arms(options, with_evalrun):
    """Arms in measuring order: {"name", "engine", "format", "build" or "isa"}; with "file" where evalrun
    computes llama.cpp's file of that name as stored."""
    ours, theirs = [], []
    if not options.avx2_only:
        ours += [(f, file, options.isa or "") for f, file in our_formats(options)]
        theirs += [(f, "", "native") for f in options.peers]
    if options.avx2 or options.avx2_only:
        ours += [(f, file, "avx2") for f, file in our_formats(options) if file or f in AVX2_FORMATS]
        theirs += [(f, "AVX2 build", "avx2") for f in quantised(options.peers)]

    def arm(engine, format_name, label, **more):
        name = f"{engine} {format_name}" + (f" ({label})" if label else "")
        return {"name": name, "engine": engine, "format": format_name, **more}
    arms = {"evalrun": [arm("evalrun", f, isa, isa=isa, **({"file": file} if file else {}))
                        for f, file, isa in ours] if with_evalrun else [],
            "llama.cpp": [arm("llama.cpp", f, label, build=build) for f, label, build in theirs]}
    merged = []
    while arms["evalrun"] or arms["llama.cpp"]:
        for engine in ("evalrun", "llama.cpp"):
            if arms[engine]:
                merged.append(arms[engine].pop(0))
    unique = {}
    for arm in merged:  # --isa avx2 --avx2 names some twice
        unique.setdefault(arm["name"], arm)
    return list(unique.values())


def choose_flash(options, arm, build, files):
    if options.flash != "best":
        return {"choice": options.flash, "ms": {}}
    return build.call("flash", file=files[arm["format"]]["path"], context=options.context,
                      prefill=options.prefill, threads=options.threads, reps=max(3, options.reps // 3))


def cost_arguments(options, arm, files, *measured):
    """(arguments of evalrun cost, weight format) for an arm of evalrun."""
    model, dtype = (files[arm["file"]]["path"], "stored") if "file" in arm else (options.model, arm["format"])
    arguments = ["cost", "--json", "-m", model, "--dtype", dtype, "--context", options.context,
                 "-t", options.threads, *measured]
    return arguments + (["--isa", arm["isa"]] if arm["isa"] else []), dtype


def run_evalrun(options, evalrun, arm, files):
    measured = ["--rows", ",".join(map(str, options.rows))]
    if options.prefill > 0:
        measured += ["--prefill", options.prefill]
    arguments, dtype = cost_arguments(options, arm, files, *measured)
    return normalised_cost(evalrun.call(*arguments), dtype)


def normalised_cost(output, format_name):
    """The fields of this comparison from what `evalrun cost --json` prints."""
    cost = output
    if "formats" in output:
        cost = next((f for f in output["formats"] if f.get("dtype") == format_name), {})
    if not cost.get("rows"):
        raise Failure(5, f"evalrun cost printed no rows for {format_name}",
                      "see: evalrun cost --json --dtype " + format_name)
    result = {"t_ms": {str(row["rows"]): row["ms"] for row in cost["rows"]},
              "phases": {str(row["rows"]): row["phases"] for row in cost["rows"] if "phases" in row}}
    for key in ("dtype", "isa", "threads", "floor_ms", "floor_share", "bandwidth_gb_s", "bytes", "pingpong_ns",
                "placement"):
        if cost.get(key) is not None:
            result[key] = cost[key]
    prefill = cost.get("prefill") or []
    if isinstance(prefill, dict):
        prefill = [prefill]
    if prefill:
        result["prefill_tokens"] = prefill[0]["tokens"]
        result["prefill_tok_s"] = prefill[0].get("tokens_per_s") or (
            prefill[0]["tokens"] / prefill[0]["ms"] * 1e3)
    return result


def choose_every_flash(log, arms, choose):
    """{arm of llama.cpp: its record of kind "flash"}; choose(arm) gives {"choice", "ms"} of a new one."""
    chosen = {record["arm"]: record for record in log.of("flash")}
    for arm in arms:
        if arm["engine"] == "llama.cpp" and arm["name"] not in chosen:
            record = {"kind": "flash", "arm": arm["name"], **choose(arm)}
            chosen[arm["name"]] = record
            log.add(record)
            progress(f"{arm['name']}: flash attention {record['choice']}")
    return chosen


def expected_seconds(options, arms, chosen):
    """Seconds of a round without loading, from T(1), T(16) and prefill of the flash trials; None without.

    T(n) is taken as a line through both. An arm of evalrun counts like llama.cpp's on its file, or as
    their mean.
    """
    seconds = {}
    for record in chosen.values():
        ms = record["ms"].get(record["choice"])
        if not ms:
            return None
        rows = sum(ms["1"] + (ms["16"] - ms["1"]) * (n - 1) / 15 for n in options.rows)
        long_turns = 1 + (options.reps + 2) // 3  # worker.py: the one that warms up, and every third
        seconds[record["arm"]] = ((options.reps + 1) * rows + long_turns * (
            options.greedy * ms["1"] + (ms["prefill"] if options.prefill else 0))) / 1e3
    if not seconds:
        return None
    mean = sum(seconds.values()) / len(seconds)
    return sum(seconds.get(arm["name"], seconds.get(f"llama.cpp {arm.get('file')}", mean)) for arm in arms)


def measure(options, log, evalrun, builds, files, arms):
    chosen = choose_every_flash(log, arms,
                                lambda arm: choose_flash(options, arm, builds[arm["build"]], files))

    def run_arm(arm):
        if arm["engine"] == "evalrun":
            return run_evalrun(options, evalrun, arm, files)
        return builds[arm["build"]].call(
            "speed", file=files[arm["format"]]["path"], context=options.context, rows=options.rows,
            greedy=options.greedy, prefill=options.prefill, threads=options.threads, reps=options.reps,
            flash=chosen[arm["name"]]["choice"])

    def said(result):
        return f"{1e3 / result['t_ms']['1']:.1f} tok/s" if result["t_ms"].get("1") else ""
    measure_rounds(options, log, arms, run_arm, said, expected_seconds(options, arms, chosen))


def measure_rounds(options, log, arms, run_arm, said, expected):
    """run_arm(arm) gives the result of an arm, said(result) what the progress says of it; `expected` are the
    seconds of a round, or None."""
    progress(f"{options.rounds} rounds of {len(arms)} arms" + (
        f", about {expected / 60:.1f} min each and {options.rounds * expected / 60:.0f} min in all, "
        "without loading" if expected else ""))
    done = {(record["round"], record["arm"]) for record in log.of("arm") if "result" in record}
    seconds = {record["arm"]: record["seconds"] for record in log.of("arm")}
    for index in range(options.rounds):
        order = arms if index % 2 == 0 else arms[::-1]
        for place, arm in enumerate(order):
            if (index, arm["name"]) in done:
                continue
            begin = time.monotonic()
            record = {"kind": "arm", "round": index, "arm": arm["name"]}
            try:
                record["result"] = run_arm(arm)
            except Failure as failure:
                # One arm that cannot run, for instance a path this machine lacks, spoils no other.
                record["failed"] = str(failure)
                progress(f"{arm['name']} failed: {failure}")
            record["seconds"] = seconds[arm["name"]] = time.monotonic() - begin
            log.add(record)
            result = said(record["result"]) if "result" in record else ""
            progress(status(options, arm, record, index, place, order, seconds, result))


def status(options, arm, record, index, place, order, seconds, result):
    mean = sum(seconds.values()) / len(seconds)
    left = [a["name"] for a in order[place + 1:]]
    left += [a["name"] for a in order] * (options.rounds - index - 1)
    eta = sum(seconds.get(name, mean) for name in left)
    return (f"round {index + 1}/{options.rounds}, {place + 1}/{len(order)} {arm['name']}: "
            + (f"{result}, " if result else "") + f"{record['seconds']:.0f} s; about {eta / 60:.1f} min left")


def note_setting(log, builds, files):
    """The machine, the files and the builds, once per file of results."""
    if not log.of("setting"):
        log.add({"kind": "setting", "machine": environment.machine(), "files": files,
                 "builds": {kind: build.info() for kind, build in builds.items()}})


def run(options, evalrun, builds, files):
    reason = evalrun.why_not("cost")
    if reason:
        progress(f"evalrun is left out: {reason}; only llama.cpp is measured")
    arms = make_arms(options, reason is None)
    if not arms:
        raise Failure(2, "nothing to measure with these options", "see scripts/bench-peers --help")
    # Old results have no shape: the key is there for one only, so that they can be continued.
    config = {name: getattr(options, name) for name in
              ("threads", "context", "rows", "prefill", "greedy", "reps", "flash")}
    config |= {"model": str(options.model), "arms": arms} | ({"shape": options.shape} if options.shape else {})
    log = environment.Log(options.out / "speed.jsonl", config, options.resume)
    note_setting(log, builds, files)
    measure(options, log, evalrun, builds, files, arms)
    return log.records
