"""Figures and tables of decoding in batches, from raw rounds."""
from . import goals
from .figures import argmax_ms, arms_of, find, ratio, seen_by_evalrun, setting_of, spread
from .tables import argmax_note, arm_name, failures, goal_rows, ranged, setting_parts, table

# evalrun's format, llama.cpp's file, sequences, least ratio of tokens/s. On every machine; from 1 G
# parameters on none is set.
GOALS = (("int8", "Q8_0", 16, 1.8), ("q4", "Q4_0", 16, 1.8))


def tok_s(sequences):
    """Tokens/s of all sequences of a batch together, from the result of a round."""
    def value(result):
        ms = result["t_ms"].get(str(sequences))
        return 1e3 * sequences / ms if ms else None
    return value


def gain(sequences):
    """Tokens/s of a batch over those of one sequence."""
    def value(result):
        one, all_of_them = tok_s(1)(result), tok_s(sequences)(result)
        return all_of_them / one if one and all_of_them else None
    return value


def collect_batch(records, fidelity):
    config, setting = records[0]["config"], setting_of(records)
    arms = arms_of(records)
    for arm in arms:
        values = list(arm["rounds"].values())
        if values:
            arm |= {"tok_s": {str(n): spread([tok_s(n)(v) for v in values]) for n in config["sequences"]},
                    "gain": {str(n): spread([gain(n)(v) for v in values]) for n in config["sequences"]},
                    "isa_used": values[-1].get("isa"), "buffers": values[-1].get("buffers"),
                    "argmax_ms": argmax_ms(values, config["sequences"])}
    batch = {"config": config, "machine": setting.get("machine", {}), "builds": setting.get("builds", {}),
             "files": setting.get("files", {}), "arms": arms, **seen_by_evalrun(arms),
             "rounds": max(len(arm["rounds"]) for arm in arms)}
    batch["pairs"] = pairs(batch)
    batch["goals"] = batch_goals(batch, fidelity)
    for arm in arms:
        del arm["rounds"]
    return batch


def beside(batch, ours, theirs, kind, sequences):
    """{"build", "name", "ratio"}: evalrun over the faster of llama.cpp's builds at this batch, or with kind
    "avx2" over the AVX2 build; None where a side is missing."""
    arm = find(batch, "evalrun", ours, kind)
    builds = [find(batch, "llama.cpp", theirs, build) for build in dict.fromkeys((kind, "avx2"))]
    builds = [build for build in builds if build and build.get("tok_s", {}).get(str(sequences))]
    if not arm or not builds:
        return None
    peer = max(builds, key=lambda build: build["tok_s"][str(sequences)]["median"])
    return {"build": peer["build"], "name": peer["name"],
            "ratio": ratio(arm["rounds"], peer["rounds"], tok_s(sequences))}


def pairs(batch):
    """[{"ours", "theirs", "kind", "beside": {sequences: beside()}}]: what both sides have been measured of."""
    files = dict.fromkeys(arm["file"] for arm in batch["arms"] if arm.get("file"))
    wanted = [(ours, theirs) for ours, theirs, _ in goals.AR_GOALS] + [(f"{file} file", file) for file in files]
    found = []
    for kind in ("", "avx2"):
        for ours, theirs in wanted:
            arm = find(batch, "evalrun", ours, kind)
            at = {str(n): beside(batch, ours, theirs, kind, n) for n in batch["config"]["sequences"]}
            if arm and any(at.values()):
                found.append({"ours": arm["name"], "theirs": f"llama.cpp {theirs}", "kind": kind, "beside": at})
    return found


def both_builds(batch):
    return len({arm["build"] for arm in batch["arms"] if arm["engine"] == "llama.cpp"}) > 1


def batch_goals(batch, fidelity):
    """Rows as goals.py has them, for the formats and batches that were asked for."""
    formats = {arm["format"] for arm in batch["arms"] if arm["engine"] == "evalrun"}
    rows = []
    for ours, theirs, sequences, goal in GOALS:
        if ours not in formats or sequences not in batch["config"]["sequences"]:
            continue
        at = beside(batch, ours, theirs, "", sequences)
        measure = f"tok/s of {sequences} sequences, {ours} vs llama.cpp {theirs}"
        if at:
            measure += f" ({at['build']} build" + (", the faster one)" if both_builds(batch) else ")")
        notes = ["" if batch["config"].get("shape") else goals.fidelity_note(fidelity, ours, theirs),
                 "" if both_builds(batch) else "one build of llama.cpp only: --avx2 measures both"]
        rows.append(goals.row(measure, at["ratio"] if at else None,
                              None if goals.model_size(batch) == "1B" else goal, notes=notes))
    return rows


def batch_tables(batch):
    counts = batch["config"]["sequences"]
    parts = ["Plain decoding in batches: tokens/s of B sequences together, each of its own context, one token of "
             "each a step.", *setting_parts(batch)]
    rows = []
    for arm in batch["arms"]:
        if not arm.get("tok_s"):
            rows.append([arm["name"], "failed" if arm["failed"] else "not run"] + ["-"] * len(counts))
            continue
        rows.append([arm_name(arm)] + [ranged(arm["tok_s"][str(n)], 1) for n in counts]
                    + [ranged(arm["gain"][str(counts[-1])])])
    parts.append(table(["arm"] + [f"B = {n}" for n in counts] + [f"{counts[-1]} over 1"],
                       "l" + "r" * (len(counts) + 1), rows))
    parts.append(f"{batch['rounds']} interleaved rounds: medians [min..max] of sequences over the median step; "
                 "the likeliest token of every sequence on both sides." + argmax_note(batch, counts, "B"))
    parts += failures(batch["arms"])
    return parts + pair_table(batch) + goal_part(batch)


def pair_table(batch):
    if not batch["pairs"]:
        return []
    counts, builds = batch["config"]["sequences"], both_builds(batch)

    def cell(pair, sequences):
        at = pair["beside"][str(sequences)]
        if not at:
            return "-"
        return ranged(at["ratio"]) + (f", {at['build']}" if builds and not pair["kind"] else "")
    rows = [[pair["ours"], pair["theirs"] + (" (AVX2 build)" if pair["kind"] else "")]
            + [cell(pair, n) for n in counts] for pair in batch["pairs"]]
    text = "evalrun's tokens/s over llama.cpp's, within each round."
    if builds:
        text += (" Beside evalrun's own path stands the faster build of llama.cpp at that batch, by its name; "
                 "beside the AVX2 path the AVX2 build.")
    return [text, table(["evalrun", "beside"] + [f"B = {n}" for n in counts], "ll" + "r" * len(counts), rows)]


def goal_part(batch):
    if not batch["goals"]:
        return []
    return ["Goals of batches, on every machine:", goal_rows(batch["goals"])]
