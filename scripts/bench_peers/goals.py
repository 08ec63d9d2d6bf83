"""What the figures are held against: goals by machine, and the fidelity without which none is met."""
from .figures import find, growth, ratio, spread, tok_s

# Formats of evalrun whose fidelity is enough for each comparison, anchors of llama.cpp, goals by machine.
# A goal is (AMX, AVX-512 near, AVX-512 far); None: none is set.
AR_GOALS = [("int8", "Q8_0", (1.5, 2.0, 2.0)), ("int8-fast", "Q8_0", (1.5, 2.0, 2.0)),
            ("q4", "Q4_0", (1.5, 1.8, 1.8)), ("q4", "Q4_1", (2.0, 3.0, 3.0)),
            ("q4", "Q4_1-shipped", (2.0, 3.0, 3.0)), ("bf16", "BF16", (2.0, 1.5, 1.5))]
ROW_GOALS = [("int8-fast", 8, (1.2, 1.2, 1.4)), ("int8-fast", 16, (1.4, 1.5, 2.2)),
             ("int8-fast", 32, (2.0, 2.4, 3.7)), ("bf16", 16, (1.3, 1.3, 1.8)),
             ("bf16", 32, (1.8, 1.9, 3.0)), ("int8", 8, (1.3, None, None)),
             ("int8", 16, (1.8, None, None)), ("int8", 32, (2.8, None, None))]
PREFILL_GOALS = [("int8", "Q8_0", (4.0, 4.0, 4.0)), ("int8-fast", "Q8_0", (4.0, 4.0, 4.0))]
FLOOR_GOALS = [("int8", (0.8, 0.8, 0.8)), ("int8-fast", (0.8, 0.8, 0.8))]
AVX2_GOALS = [("int8", (None, 1.3, 1.3)), ("int8-fast", (None, 1.3, 1.3))]
# evalrun on llama.cpp's own file against the faster of its builds: file -> AR by size of the model. The
# AVX2 path against the AVX2 build has no column: it is the same on every machine.
FILE_GOALS = {"135M": {"Q8_0": (None, 1.8, 1.8), "Q4_0": (None, 2.0, 2.0), "Q4_1": (None, 2.0, 2.0),
                       "Q4_K_M": (None, 1.6, 1.6)},
              "1B": {"Q4_K_M": (None, 1.3, 1.3), "Q4_0": (None, 1.3, 1.3), "Q8_0": (None, 1.1, 1.1)}}
FILE_AVX2_GOALS = {"1B": {"Q4_K_M": 1.15, "Q4_0": 1.15, "Q8_0": 1.0}}
ENOUGH_OF_FLOOR = {"1B": 0.85}  # where this share of the read bandwidth asks for less than the ratio does
MOST_OF_FLOOR = 1.05  # no step reads faster than memory gives: above it something disturbed the probe
# Perplexity over float32 that a format may have, in percent, and its least share of same top-1; of files
# as stored, over float32 of the same file.
FIDELITY = {"int8": (0.5, 96.0), "int8-fast": (1.0, 0.0), "bf16": (0.5, 96.0), "f32": (0.5, 96.0),
            "stored": (0.5, 96.0)}


def in_column(values, machine):
    return None if machine is None else values[("amx", "avx512-near", "avx512-far").index(machine)]


def row(measure, value, goal, at_most=False, notes=(), met_otherwise=False):
    reason = [note for note in notes if note]
    if value is None:
        verdict = "not measured"
    elif goal is None:
        verdict = "no goal set"
    else:
        reached = met_otherwise or (value["median"] <= goal if at_most else value["median"] >= goal)
        verdict = "met" if reached else "not met"
        if reached and any(note.startswith("!") for note in reason):
            verdict = "not met"
    return {"measure": measure, "value": value, "goal": goal, "at_most": at_most, "verdict": verdict,
            "notes": [note.lstrip("! ") for note in reason]}


def over_f32(quality_row):
    return (quality_row["perplexity"] / quality_row["perplexity_ref"] - 1) * 100


def fidelity_note(fidelity, ours, anchor=None):
    """What the perplexities say; a leading "!" when the format is outside what the comparison allows."""
    mine = fidelity.get(f"evalrun {ours}")
    if not mine or "perplexity" not in mine:
        return "perplexity not measured: scripts/bench-peers --quality"
    text = f"perplexity {over_f32(mine):+.2f} %"
    bad = False
    if ours in FIDELITY:
        limit, top1 = FIDELITY[ours]
        if over_f32(mine) > limit or mine["same_top1"] * 100 < top1:
            text += f" (limit {limit:+.1f} %, same top-1 {mine['same_top1'] * 100:.1f} %)"
            bad = True
    other = fidelity.get(f"llama.cpp {anchor}")
    if anchor and other and "perplexity" in other:
        text += f", {anchor} {over_f32(other):+.2f} %"
        bad = bad or over_f32(mine) > over_f32(other)
    return ("! " if bad else "") + text


def model_size(speed):
    """The goals that apply: "135M", "1B" and above, or None between them and for results without a size."""
    parameters = max((file.get("parameters", 0) for file in speed["files"].values()), default=0)
    return "1B" if parameters >= 1e9 else "135M" if 100e6 <= parameters < 200e6 else None


def file_pairs(speed):
    """[{"file", "kind", "ours", "theirs"}]: both engines on one file; "theirs" is the faster build, or the
    AVX2 build beside the AVX2 path (kind "avx2")."""
    pairs = []
    for kind in ("", "avx2"):
        for file in dict.fromkeys(arm["file"] for arm in speed["arms"] if arm.get("file")):
            builds = [find(speed, "llama.cpp", file, build) for build in dict.fromkeys((kind, "avx2"))]
            builds = [arm for arm in builds if arm]
            ours = find(speed, "evalrun", f"{file} file", kind)
            if ours and builds:
                pairs.append({"file": file, "kind": kind, "ours": ours,
                              "theirs": max(builds, key=lambda arm: arm["tok_s"]["median"])})
    return pairs


def file_fidelity_note(fidelity, file):
    mine, other = (fidelity.get(name) for name in (f"evalrun {file} file", f"llama.cpp {file}"))
    if not mine or "perplexity" not in mine:
        return "perplexity not measured: scripts/bench-peers --quality"
    limit, top1 = FIDELITY["stored"]
    bad = over_f32(mine) > limit or mine["same_top1"] * 100 < top1
    return (("! " if bad else "") + f"perplexity {mine['perplexity']:.2f}, {over_f32(mine):+.2f} % over the "
            f"file's float32" + (f" (limit {limit:+.1f} %, same top-1 {mine['same_top1'] * 100:.1f} %)"
                                 if bad else "")
            + (f", llama.cpp's {other['perplexity']:.2f}" if other and "perplexity" in other else ""))


def file_goals(speed, fidelity):
    """evalrun and llama.cpp on the same files."""
    size, rows = model_size(speed), []
    both_builds = len({arm["build"] for arm in speed["arms"] if arm["engine"] == "llama.cpp"}) > 1
    for pair in file_pairs(speed):
        file, ours, theirs = pair["file"], pair["ours"], pair["theirs"]
        notes = ["" if speed["config"].get("shape") else file_fidelity_note(fidelity, file)]
        enough = None
        if pair["kind"]:
            measure, goal = "built for AVX2", FILE_AVX2_GOALS.get(size, {}).get(file)
        else:
            measure = f"({theirs['build']} build" + (", the faster one)" if both_builds else ")")
            goal = in_column(FILE_GOALS.get(size, {}).get(file, (None,) * 3), speed["machine_class"])
            enough = ENOUGH_OF_FLOOR.get(size) if goal else None
            notes.append("" if both_builds else "one build of llama.cpp only: --avx2 measures both")
        share = ours.get("share")
        if share:
            notes.append(f"share of the floor {share['median']:.2f}" + (
                f", {enough:g} is enough" if enough else ""))
        rows.append(row(f"{'AVX2 only: ' if pair['kind'] else ''}AR tok/s, {file} file vs llama.cpp {file} "
                        + measure, ratio(ours["rounds"], theirs["rounds"], tok_s), goal, notes=notes,
                        met_otherwise=bool(enough and share and enough <= share["median"] <= MOST_OF_FLOOR)))
    return rows


def goals(speed, fidelity):
    return format_goals(speed, fidelity) + file_goals(speed, fidelity)


def format_goals(speed, fidelity):
    """evalrun's formats that were asked for. These goals are of the default model."""
    machine, rows = speed["machine_class"] if model_size(speed) != "1B" else None, []
    formats = {arm["format"] for arm in speed["arms"] if arm["engine"] == "evalrun"}

    def asked(listed):
        return [entry for entry in listed if entry[0] in formats]

    def against(ours, theirs, value, kind=""):
        a, b = find(speed, "evalrun", ours, kind), find(speed, "llama.cpp", theirs, kind)
        return ratio(a["rounds"], b["rounds"], value) if a and b else None
    for ours, theirs, goal in asked(AR_GOALS):
        note = fidelity_note(fidelity, ours, theirs if ours != "bf16" else None)
        rows.append(row(f"AR tok/s, {ours} vs llama.cpp {theirs}", against(ours, theirs, tok_s),
                        in_column(goal, machine), notes=[note]))
    for ours, n, goal in asked(ROW_GOALS):
        arm = find(speed, "evalrun", ours)
        anchor = find(speed, "llama.cpp", "BF16" if ours == "bf16" else "Q8_0")
        theirs = spread([growth(n)(r) for r in anchor["rounds"].values()]) if anchor else None
        rows.append(row(f"T({n})/T(1), {ours}", spread([growth(n)(r) for r in arm["rounds"].values()])
                        if arm else None, in_column(goal, machine), at_most=True,
                        notes=[fidelity_note(fidelity, ours),
                               f"llama.cpp {anchor['format']} {theirs['median']:.2f}" if theirs else ""]))
    for ours, theirs, goal in asked(PREFILL_GOALS):
        rows.append(row(f"prefill {speed['config']['prefill']}, {ours} vs llama.cpp {theirs}",
                        against(ours, theirs, lambda r: r.get("prefill_tok_s")), in_column(goal, machine),
                        notes=[fidelity_note(fidelity, ours)]))
    for ours, goal in asked(FLOOR_GOALS):
        arm, anchor = find(speed, "evalrun", ours), find(speed, "llama.cpp", "Q8_0")
        share = anchor.get("share") if anchor else None
        rows.append(row(f"share of the bandwidth floor, n = 1, {ours}", arm["share"] if arm else None,
                        in_column(goal, machine),
                        notes=[fidelity_note(fidelity, ours),
                               f"llama.cpp Q8_0 {share['median']:.2f}" if share else ""]))
    for ours, goal in asked(AVX2_GOALS):
        rows.append(row(f"AVX2 only: AR tok/s, {ours} vs llama.cpp Q8_0 built for AVX2",
                        against(ours, "Q8_0", tok_s, "avx2"), in_column(goal, machine),
                        notes=[fidelity_note(fidelity, ours, "Q8_0")]))
    return rows
