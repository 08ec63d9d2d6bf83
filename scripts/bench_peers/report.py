"""Tables from raw rounds."""
from .batch_report import batch_tables, collect_batch
from .figures import collect_speed, growth, ratio, setting_of, spread, tok_s
from .goals import file_pairs, goals, over_f32
from .tables import (argmax_note, arm_name, failures, goal_rows, machine_line, megabytes, number, ranged,
                     setting_parts, table)


def collect(speed, quality, batch=()):
    """Everything the tables show, as plain data."""
    data = {"quality": collect_quality(quality)}
    data["speed"] = collect_speed(speed) if any(r["kind"] == "arm" for r in speed) else None
    fidelity = {row["arm"]: row for row in (data["quality"] or {}).get("rows", [])}
    data["batch"] = collect_batch(batch, fidelity) if any(r["kind"] == "arm" for r in batch) else None
    if data["speed"]:
        data["goals"] = goals(data["speed"], fidelity)
        data["same_file"] = same_file(data["speed"])
        data["frontier"] = frontier(data["speed"], fidelity)
        for arm in data["speed"]["arms"]:
            del arm["rounds"]
    return data


def same_file(speed):
    """Both engines on one file: AR, T(n)/T(1) and prefill."""
    def prefill(result):
        return result.get("prefill_tok_s")
    rows = []
    for pair in file_pairs(speed):
        sides = {name: pair[name]["rounds"] for name in ("ours", "theirs")}

        def of_both(value, sides=sides):
            return {name: spread([value(r) for r in rounds.values()]) for name, rounds in sides.items()}
        rows.append({"file": pair["file"], **{name: pair[name]["name"] for name in sides},
                     "tok_s": of_both(tok_s), "tok_s_ratio": ratio(sides["ours"], sides["theirs"], tok_s),
                     "growth": {str(n): of_both(growth(n)) for n in speed["config"]["rows"] if n in (8, 16)},
                     "prefill_tok_s": of_both(prefill),
                     "prefill_ratio": ratio(sides["ours"], sides["theirs"], prefill)})
    return rows


def collect_quality(records):
    rows = {r["arm"]: r for r in records if r["kind"] == "quality"}  # a later one replaces a failed one
    if not rows:
        return None
    return {"config": records[0]["config"], "machine": setting_of(records).get("machine", {}),
            "build": setting_of(records).get("build", {}), "rows": list(rows.values())}


def frontier(speed, fidelity):
    """Speed and perplexity of what has both, fastest first; on the frontier: nothing is better in both.
    Files as stored are left out: their distance is to the file's own float32."""
    points = []
    for arm in speed["arms"]:
        quality = fidelity.get(f"{arm['engine']} {arm['format']}")
        if arm["rounds"] and quality and "perplexity" in quality and "file" not in quality:
            points.append({"arm": arm["name"], "tok_s": arm["tok_s"]["median"],
                           "over_f32": over_f32(quality), "same_top1": quality["same_top1"],
                           "kl": quality["kl"]})
    points.sort(key=lambda p: -p["tok_s"])
    for p in points:
        p["on_frontier"] = not any(q is not p and q["tok_s"] >= p["tok_s"] and q["kl"] <= p["kl"]
                                   for q in points)
    return points


def speed_tables(data):
    speed = data["speed"]
    config, parts = speed["config"], setting_parts(speed)
    sizes = [n for n in config["rows"] if n != 1]
    rows = []
    for arm in speed["arms"]:
        if not arm.get("tok_s"):
            rows.append([arm["name"], "failed" if arm["failed"] else "not run"] + ["-"] * (len(sizes) + 3))
            continue
        rows.append([arm_name(arm), ranged(arm["tok_s"], 1), number(arm["t1_ms"])]
                    + [number(arm["growth"][str(n)]) for n in sizes]
                    + [number(arm["greedy_tok_s"], 1), ranged(arm["prefill_tok_s"], 0)])
    parts.append(table(["arm", "AR tok/s = 1/T(1)", "T(1) ms"] + [f"T({n})/T(1)" for n in sizes]
                       + ["greedy loop tok/s", f"prefill {config['prefill']} tok/s"],
                       "l" + "r" * (len(sizes) + 4), rows))
    done = max((a["tok_s"]["rounds"] for a in speed["arms"] if a.get("tok_s")), default=0)
    parts.append(f"{done} interleaved rounds: medians [min..max]; logits of all rows on both sides."
                 + argmax_note(speed, config["rows"], "n"))
    parts += failures(speed["arms"])
    parts += same_file_table(data) + [goal_table(data)]
    if any(arm.get("share") for arm in speed["arms"]):
        parts.append("Floor: bytes a step must read (weights, and keys and values at this context) over the "
                     "read probe; llama.cpp's with evalrun's probe of the nearest size.")
        parts.append(table(["arm", "MB per step", "probe GB/s", "floor ms", "T(1) ms", "share of the floor"],
                           "lrrrrr", [[a["name"], megabytes(a["bytes"]), number(a["bandwidth_gb_s"], 1),
                                       number(a["floor_ms"]), number(a["t1_ms"]), ranged(a["share"])]
                                      for a in speed["arms"] if a.get("share")]))
    return parts


def same_file_table(data):
    if not data["same_file"]:
        return []
    sizes = list(data["same_file"][0]["growth"])
    header = ["evalrun", "beside", "AR tok/s"] + [f"T({n})/T(1)" for n in sizes] + ["prefill tok/s", "prefill"]

    def both(values, digits):
        return " / ".join(number(values[side], digits) for side in ("ours", "theirs"))
    rows = [[pair["ours"], pair["theirs"], both(pair["tok_s"], 1)]
            + [both(pair["growth"][n], 2) for n in sizes]
            + [both(pair["prefill_tok_s"], 0), ranged(pair["prefill_ratio"])] for pair in data["same_file"]]
    return ["Both engines on one file, evalrun / llama.cpp; the last column is the ratio. Beside evalrun's own "
            "path stands the faster build of llama.cpp that was measured.",
            table(header, "ll" + "r" * (len(header) - 2), rows)]


def goal_table(data):
    if not any(g["value"] for g in data["goals"]):
        return "Goals: none can be judged, the formats they name were not measured."
    column = {"amx": "AMX", "avx512-near": "AVX-512 VNNI, vCPUs near", "avx512-far":
              "AVX-512 VNNI, vCPUs far",
              None: "neither AMX nor AVX-512 VNNI: none but those of the AVX2 path on files"}
    title = f"Goals for this machine: {column[data['speed']['machine_class']]}"
    if data["speed"]["machine_class"] == "avx512-near" and not (
            data["speed"]["pingpong_ns"] or data["speed"]["placement"]):
        title += " (assumed: no ping-pong was measured)"
    return title + ".\n\n" + goal_rows(data["goals"])


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
    if any("file" in r for r in quality["rows"]):
        parts.append("\"evalrun NAME file\" is against the float32 of the same file: what evalrun's arithmetic "
                     "loses, not the file.")
    parts += [f"{r['arm']} failed: {r['failed']}" for r in quality["rows"] if "failed" in r]
    return parts


def markdown(data, only=None):
    """All tables; only "speed", "batch" or "quality": without those of other measurements of time."""
    if only == "batch":
        return "\n\n".join(batch_tables(data["batch"]))
    parts = []
    if data["speed"] and only != "quality":
        parts += speed_tables(data)
    elif data["quality"]:
        parts.append(machine_line(data["quality"]["machine"]) + ".")
    if data["batch"] and only is None:
        parts += batch_tables(data["batch"])
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
