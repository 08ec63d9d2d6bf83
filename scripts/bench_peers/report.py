"""Tables from raw rounds. Every figure is a median over rounds with its range; a ratio is taken within
each round first, so that a slow minute of the machine meets both of its sides."""
import collections
import statistics

NEAR_NS = 250  # two cores on one cache cluster take about 100 ns for a round trip, on two about 420

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
AVX2_GOAL = (None, 1.3, 1.3)
# Perplexity over float32 that a format may have, in percent, and its least share of same top-1.
FIDELITY = {"int8": (0.5, 96.0), "int8-fast": (1.0, 0.0), "bf16": (0.5, 96.0), "f32": (0.5, 96.0)}


def spread(values):
    values = [v for v in values if v is not None]
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "rounds": len(values)}


def ratio(rounds_a, rounds_b, value_a, value_b=None):
    """Spread of value(a) / value(b) over the rounds that have both."""
    value_b = value_b or value_a
    pairs = []
    for index in sorted(set(rounds_a) & set(rounds_b)):
        a, b = value_a(rounds_a[index]), value_b(rounds_b[index])
        if a is not None and b:
            pairs.append(a / b)
    return spread(pairs)


def t_ms(n):
    return lambda result: result["t_ms"].get(str(n))


def tok_s(result):
    t = result["t_ms"].get("1")
    return 1e3 / t if t else None


def growth(n):
    def value(result):
        t1, tn = t_ms(1)(result), t_ms(n)(result)
        return tn / t1 if t1 and tn else None
    return value


def collect(speed, quality):
    """Everything the tables show, as plain data."""
    data = {"quality": collect_quality(quality)}
    data["speed"] = collect_speed(speed) if any(r["kind"] == "arm" for r in speed) else None
    if data["speed"]:
        fidelity = {row["arm"]: row for row in (data["quality"] or {}).get("rows", [])}
        data["goals"] = goals(data["speed"], fidelity)
        data["frontier"] = frontier(data["speed"], fidelity)
        for arm in data["speed"]["arms"]:
            del arm["rounds"]
    return data


def setting_of(records):
    return next((r for r in records if r["kind"] == "setting"), {})


def collect_speed(records):
    config, setting = records[0]["config"], setting_of(records)
    flash = {r["arm"]: r for r in records if r["kind"] == "flash"}
    arms = []
    for arm in config["arms"]:
        mine = [r for r in records if r["kind"] == "arm" and r["arm"] == arm["name"]]
        rounds = {r["round"]: r["result"] for r in mine if "result" in r}
        row = {**arm, "rounds": rounds, "failed": next(
            (r["failed"] for r in mine if "failed" in r and r["round"] not in rounds), None)}
        if rounds:
            values = list(rounds.values())
            last = values[-1]
            row |= {"tok_s": spread([tok_s(v) for v in values]),
                    "t1_ms": spread([t_ms(1)(v) for v in values]),
                    "growth": {str(n): spread([growth(n)(v) for v in values]) for n in config["rows"]},
                    "greedy_tok_s": spread([v.get("greedy_tok_s") for v in values]),
                    "prefill_tok_s": spread([v.get("prefill_tok_s") for v in values]),
                    "bandwidth_gb_s": spread([v.get("bandwidth_gb_s") for v in values]),
                    "pingpong_ns": spread([v.get("pingpong_ns") for v in values]),
                    "floor_ms": spread([v.get("floor_ms") for v in values]),
                    "share": spread([v["floor_ms"] / v["t_ms"]["1"] for v in values
                                     if v.get("floor_ms") and v["t_ms"].get("1")]),
                    "bytes": last.get("bytes"), "isa_used": last.get("isa"),
                    "buffers": last.get("buffers"),
                    "argmax_ms": argmax_ms(values, config["rows"])}
        if arm["name"] in flash:
            row["flash"] = {k: flash[arm["name"]][k] for k in ("choice", "ms")}
        arms.append(row)
    speed = {"config": config, "machine": setting.get("machine", {}), "builds": setting.get("builds", {}),
             "files": setting.get("files", {}), "arms": arms}
    ours = [a for a in arms if a["engine"] == "evalrun" and a["rounds"]]
    speed["bandwidth_gb_s"] = spread([v.get("bandwidth_gb_s") for a in ours for v in a["rounds"].values()])
    speed["pingpong_ns"] = spread([v.get("pingpong_ns") for a in ours for v in a["rounds"].values()])
    placements = collections.Counter(v["placement"] for a in ours for v in a["rounds"].values()
                                     if v.get("placement"))
    speed["placement"] = dict(placements.most_common())
    speed["machine_class"] = machine_class(speed, ours)
    peer_floors(speed)
    return speed


def argmax_ms(values, rows):
    shares = {}
    for n in (rows[0], rows[-1]):
        shares[str(n)] = spread([v["t_ms"][str(n)] - v["t_ms_without_argmax"][str(n)] for v in values
                                 if "t_ms_without_argmax" in v])
    return shares if all(shares.values()) else None


def machine_class(speed, ours):
    """"amx", "avx512-near", "avx512-far" or None: the column of goals that applies."""
    flags = set(speed["machine"].get("flags", []))
    used = {a.get("isa_used") for a in ours if not a.get("isa")}
    if "amx" in used or (not used and "amx_int8" in flags):
        return "amx"
    if used & {"avx512-bf16", "avx512"} or (not used and "avx512_vnni" in flags):
        # The placement evalrun saw most often; a host may change it between rounds.
        placement = next((p for p in speed["placement"] if p in ("near", "far")), None)
        ping = speed["pingpong_ns"]
        far = placement == "far" if placement else bool(ping) and ping["median"] > NEAR_NS
        return "avx512-far" if far else "avx512-near"
    return None


def peer_floors(speed):
    """llama.cpp's bytes over evalrun's probe of the nearest footprint, within each round."""
    ours = [a for a in speed["arms"] if a["engine"] == "evalrun" and a.get("bytes")]
    for arm in speed["arms"]:
        file = speed["files"].get(arm["format"])
        if arm["engine"] != "llama.cpp" or not arm["rounds"] or not file or not ours:
            continue
        arm["bytes"] = file["step_bytes"] + file["kv_row_bytes"] * speed["config"]["context"]
        nearest = min(ours, key=lambda a: abs(a["bytes"] - arm["bytes"]))

        def floor_ms(result, size=arm["bytes"]):
            bandwidth = result.get("bandwidth_gb_s")
            return size / bandwidth / 1e6 if bandwidth else None
        arm["floor_ms"] = spread([floor_ms(r) for r in nearest["rounds"].values()])
        arm["bandwidth_gb_s"] = nearest["bandwidth_gb_s"]
        arm["share"] = ratio(nearest["rounds"], arm["rounds"], floor_ms, t_ms(1))
        arm["probe_of"] = nearest["name"]


def find(speed, engine, format_name, kind=""):
    """The arm of this machine's own path (kind "") or of the AVX2 comparison (kind "avx2")."""
    for arm in speed["arms"]:
        path = arm.get("isa") if engine == "evalrun" else arm.get("build", "").replace("native", "")
        if arm["engine"] == engine and arm["format"] == format_name and arm["rounds"]:
            if (path == "avx2") == (kind == "avx2"):
                return arm
    return None


def in_column(values, machine):
    return None if machine is None else values[("amx", "avx512-near", "avx512-far").index(machine)]


def row(measure, value, goal, at_most=False, notes=()):
    reason = [note for note in notes if note]
    if value is None:
        verdict = "not measured"
    elif goal is None:
        verdict = "no goal set"
    else:
        reached = value["median"] <= goal if at_most else value["median"] >= goal
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


def goals(speed, fidelity):
    machine, rows = speed["machine_class"], []

    def against(ours, theirs, value, kind=""):
        a, b = find(speed, "evalrun", ours, kind), find(speed, "llama.cpp", theirs, kind)
        return ratio(a["rounds"], b["rounds"], value) if a and b else None
    for ours, theirs, goal in AR_GOALS:
        note = fidelity_note(fidelity, ours, theirs if ours != "bf16" else None)
        rows.append(row(f"AR tok/s, {ours} vs llama.cpp {theirs}", against(ours, theirs, tok_s),
                        in_column(goal, machine), notes=[note]))
    for ours, n, goal in ROW_GOALS:
        arm = find(speed, "evalrun", ours)
        anchor = find(speed, "llama.cpp", "BF16" if ours == "bf16" else "Q8_0")
        theirs = spread([growth(n)(r) for r in anchor["rounds"].values()]) if anchor else None
        rows.append(row(f"T({n})/T(1), {ours}", spread([growth(n)(r) for r in arm["rounds"].values()])
                        if arm else None, in_column(goal, machine), at_most=True,
                        notes=[fidelity_note(fidelity, ours),
                               f"llama.cpp {anchor['format']} {theirs['median']:.2f}" if theirs else ""]))
    for ours, theirs, goal in PREFILL_GOALS:
        rows.append(row(f"prefill {speed['config']['prefill']}, {ours} vs llama.cpp {theirs}",
                        against(ours, theirs, lambda r: r.get("prefill_tok_s")), in_column(goal, machine),
                        notes=[fidelity_note(fidelity, ours)]))
    for ours, goal in FLOOR_GOALS:
        arm, anchor = find(speed, "evalrun", ours), find(speed, "llama.cpp", "Q8_0")
        share = anchor.get("share") if anchor else None
        rows.append(row(f"share of the bandwidth floor, n = 1, {ours}", arm["share"] if arm else None,
                        in_column(goal, machine),
                        notes=[fidelity_note(fidelity, ours),
                               f"llama.cpp Q8_0 {share['median']:.2f}" if share else ""]))
    for ours in ("int8", "int8-fast"):
        rows.append(row(f"AVX2 only: AR tok/s, {ours} vs llama.cpp Q8_0 built for AVX2",
                        against(ours, "Q8_0", tok_s, "avx2"), in_column(AVX2_GOAL, machine),
                        notes=[fidelity_note(fidelity, ours, "Q8_0")]))
    return rows


def collect_quality(records):
    rows = {r["arm"]: r for r in records if r["kind"] == "quality"}  # a later one replaces a failed one
    if not rows:
        return None
    return {"config": records[0]["config"], "machine": setting_of(records).get("machine", {}),
            "build": setting_of(records).get("build", {}), "rows": list(rows.values())}


def frontier(speed, fidelity):
    """Speed and perplexity of what has both, fastest first; on the frontier: nothing is better in both."""
    points = []
    for arm in speed["arms"]:
        quality = fidelity.get(f"{arm['engine']} {arm['format']}")
        if arm["rounds"] and quality and "perplexity" in quality:
            points.append({"arm": arm["name"], "tok_s": arm["tok_s"]["median"],
                           "over_f32": over_f32(quality), "same_top1": quality["same_top1"],
                           "kl": quality["kl"]})
    points.sort(key=lambda p: -p["tok_s"])
    for p in points:
        p["on_frontier"] = not any(q is not p and q["tok_s"] >= p["tok_s"] and q["kl"] <= p["kl"]
                                   for q in points)
    return points


def table(header, align, rows):
    lines = ["| " + " | ".join(header) + " |",
             "|" + "|".join("---:" if a == "r" else ":---" for a in align) + "|"]
    return "\n".join(lines + ["| " + " | ".join(cells) + " |" for cells in rows])


def number(value, digits=2):
    return "-" if value is None else f"{value['median']:,.{digits}f}"


def ranged(value, digits=2):
    if value is None:
        return "-"
    return f"{value['median']:,.{digits}f} [{value['min']:,.{digits}f}..{value['max']:,.{digits}f}]"


def megabytes(size):
    return "-" if size is None else f"{size / 1e6:.1f}"


def machine_line(machine, extra=()):
    flags = ", ".join(machine.get("flags", [])) or "no flags of interest"
    return "; ".join([f"{machine.get('cpu', 'unknown machine')}, {machine.get('vcpus', '?')} vCPUs ({flags})",
                      *extra, str(machine.get("date", ""))])


def speed_tables(data):
    speed, parts = data["speed"], []
    config = speed["config"]
    extra = [f"{config['threads']} threads, context {config['context']}"]
    if speed["bandwidth_gb_s"]:
        extra.append(f"read probe {ranged(speed['bandwidth_gb_s'], 1)} GB/s")
    if speed["pingpong_ns"]:
        extra.append(f"cache-line round trip {ranged(speed['pingpong_ns'], 0)} ns")
    if speed["placement"]:
        extra.append("cores " + ", ".join(f"{p} ({n} runs)" for p, n in speed["placement"].items()))
    parts.append(machine_line(speed["machine"], extra) + ".")
    for kind, build in speed["builds"].items():
        parts.append(f"llama.cpp ({kind} build): llama-cpp-python {build['version']}, "
                     f"CMAKE_ARGS `{build['cmake_args']}`; {build['system_info'].strip(' |')}.")
    sizes = [n for n in config["rows"] if n != 1]
    rows = []
    for arm in speed["arms"]:
        if not arm.get("tok_s"):
            rows.append([arm["name"], "failed" if arm["failed"] else "not run"] + ["-"] * (len(sizes) + 3))
            continue
        path = arm["isa_used"] if arm["engine"] == "evalrun" else f"flash {arm['flash']['choice']}"
        rows.append([f"{arm['name']}, {path or '-'}", ranged(arm["tok_s"], 1), number(arm["t1_ms"])]
                    + [number(arm["growth"][str(n)]) for n in sizes]
                    + [number(arm["greedy_tok_s"], 1), ranged(arm["prefill_tok_s"], 0)])
    parts.append(table(["arm", "AR tok/s = 1/T(1)", "T(1) ms"] + [f"T({n})/T(1)" for n in sizes]
                       + ["greedy loop tok/s", f"prefill {config['prefill']} tok/s"],
                       "l" + "r" * (len(sizes) + 4), rows))
    done = max((a["tok_s"]["rounds"] for a in speed["arms"] if a.get("tok_s")), default=0)
    note = f"{done} interleaved rounds: medians [min..max]; logits of all rows on both sides."
    peer = next((a for a in speed["arms"] if a.get("argmax_ms")), None)
    if peer:
        small, large = config["rows"][0], config["rows"][-1]
        note += (f" llama.cpp's times hold the argmax of all rows in numpy ({peer['name']}: "
                 f"{peer['argmax_ms'][str(small)]['median']:.3f} ms at n = {small}, "
                 f"{peer['argmax_ms'][str(large)]['median']:.3f} ms at n = {large}).")
    parts.append(note)
    parts += [f"{arm['name']} failed: {arm['failed']}" for arm in speed["arms"] if arm["failed"]]
    parts.append(goal_table(data))
    if any(arm.get("share") for arm in speed["arms"]):
        parts.append("Floor: bytes a step must read (weights, and keys and values at this context) over the "
                     "read probe; llama.cpp's with evalrun's probe of the nearest size.")
        parts.append(table(["arm", "MB per step", "probe GB/s", "floor ms", "T(1) ms", "share of the floor"],
                           "lrrrrr", [[a["name"], megabytes(a["bytes"]), number(a["bandwidth_gb_s"], 1),
                                       number(a["floor_ms"]), number(a["t1_ms"]), ranged(a["share"])]
                                      for a in speed["arms"] if a.get("share")]))
    return parts


def goal_table(data):
    if not any(g["value"] for g in data["goals"]):
        return "Goals: none can be judged, the formats they name were not measured."
    column = {"amx": "AMX", "avx512-near": "AVX-512 VNNI, vCPUs near", "avx512-far":
              "AVX-512 VNNI, vCPUs far", None: "neither AMX nor AVX-512 VNNI: no goals"}
    rows = [[g["measure"], ranged(g["value"]),
             "-" if g["goal"] is None else ("<= " if g["at_most"] else ">= ") + f"{g['goal']:g}",
             g["verdict"], "; ".join(g["notes"]) if g["value"] else ""] for g in data["goals"]]
    title = f"Goals for this machine: {column[data['speed']['machine_class']]}"
    if data["speed"]["machine_class"] == "avx512-near" and not (
            data["speed"]["pingpong_ns"] or data["speed"]["placement"]):
        title += " (assumed: no ping-pong was measured)"
    return title + ".\n\n" + table(["measure", "measured", "goal", "", "beside it"], "lrrll", rows)


def quality_tables(data):
    quality = data["quality"]
    config = quality["config"]
    rows = []
    ours_bytes = {a["format"]: a.get("bytes") for a in (data["speed"] or {"arms": []})["arms"]
                  if a["engine"] == "evalrun" and a.get("tok_s")}
    for r in quality["rows"]:
        if "perplexity" not in r:
            rows.append([r["arm"], "-", "failed", "-", "-", "-"])
            continue
        size = r.get("bytes") or ours_bytes.get(r["format"])
        rows.append([r["arm"], megabytes(size), f"{r['perplexity']:.4f}", f"{over_f32(r):+.2f} %",
                     f"{r['same_top1'] * 100:.2f} %", f"{r['kl']:.5f}"])
    scored = max((r.get("scored", 0) for r in quality["rows"]), default=0)
    text = config["text"].rsplit("/", 1)[-1]
    parts = [f"Quality: {config['chunks']} chunks of {config['chunk']} tokens of {text}, second halves scored "
             f"({scored:,} predictions), each engine against its own float32.",
             table(["format", "MB", "perplexity", "vs f32", "same top-1", "mean KL"], "lrrrrr", rows)]
    parts += [f"{r['arm']} failed: {r['failed']}" for r in quality["rows"] if "failed" in r]
    return parts


def markdown(data, with_speed=True):
    parts = []
    if data["speed"] and with_speed:
        parts += speed_tables(data)
    elif data["quality"]:
        parts.append(machine_line(data["quality"]["machine"]) + ".")
    if data["quality"]:
        parts += quality_tables(data)
    if data.get("frontier"):
        parts.append("Speed and fidelity, fastest first; on the frontier when no other is at least as fast "
                     "with at most its KL.")
        parts.append(table(["arm", "AR tok/s", "perplexity vs f32", "same top-1", "mean KL", "frontier"],
                           "lrrrrl", [[p["arm"], f"{p['tok_s']:.1f}", f"{p['over_f32']:+.2f} %",
                                       f"{p['same_top1'] * 100:.2f} %", f"{p['kl']:.5f}",
                                       "yes" if p["on_frontier"] else ""] for p in data["frontier"]]))
    return "\n\n".join(parts)
