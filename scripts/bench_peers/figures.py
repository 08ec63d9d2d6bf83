"""Figures of each arm from raw rounds. Every figure is a median over rounds with its range; a ratio is
taken within each round first, so that a slow minute of the machine meets both of its sides."""
import collections
import statistics

NEAR_NS = 250  # two cores on one cache cluster take about 100 ns for a round trip, on two about 420


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


def setting_of(records):
    return next((r for r in records if r["kind"] == "setting"), {})


def arms_of(records):
    """Each arm with its results by round, why it failed where it did, and llama.cpp's flash attention."""
    flash = {r["arm"]: r for r in records if r["kind"] == "flash"}
    arms = []
    for arm in records[0]["config"]["arms"]:
        mine = [r for r in records if r["kind"] == "arm" and r["arm"] == arm["name"]]
        rounds = {r["round"]: r["result"] for r in mine if "result" in r}
        row = {**arm, "rounds": rounds, "failed": next(
            (r["failed"] for r in mine if "failed" in r and r["round"] not in rounds), None)}
        if arm["name"] in flash:
            row["flash"] = {k: flash[arm["name"]][k] for k in ("choice", "ms")}
        arms.append(row)
    return arms


def collect_speed(records):
    config, setting = records[0]["config"], setting_of(records)
    arms = []
    for row in arms_of(records):
        if row["rounds"]:
            values = list(row["rounds"].values())
            last = values[-1]
            row |= {"tok_s": spread([tok_s(v) for v in values]),
                    "t1_ms": spread([t_ms(1)(v) for v in values]),
                    "growth": {str(n): spread([growth(n)(v) for v in values]) for n in config["rows"]},
                    "greedy_tok_s": spread([v.get("greedy_tok_s") for v in values]),
                    "prefill_tok_s": spread([v.get("prefill_tok_s") for v in values]),
                    "bandwidth_gb_s": spread([v.get("bandwidth_gb_s") for v in values]),
                    "pingpong_ns": spread([v.get("pingpong_ns") for v in values]),
                    "floor_ms": spread([v.get("floor_ms") for v in values]),
                    "share": spread([v.get("floor_share") for v in values]),
                    "bytes": last.get("bytes"), "isa_used": last.get("isa"),
                    "buffers": last.get("buffers"),
                    "argmax_ms": argmax_ms(values, config["rows"])}
        arms.append(row)
    speed = {"config": config, "machine": setting.get("machine", {}), "builds": setting.get("builds", {}),
             "files": setting.get("files", {}), "arms": arms}
    speed |= seen_by_evalrun(arms)
    ours = [a for a in arms if a["engine"] == "evalrun" and a["rounds"]]
    speed["machine_class"] = machine_class(speed, ours)
    peer_floors(speed)
    return speed


def seen_by_evalrun(arms):
    """Bandwidth, round trip of a cache line and placement of the cores, over all runs of evalrun."""
    runs = [run for arm in arms if arm["engine"] == "evalrun" for run in arm["rounds"].values()]
    placements = collections.Counter(run["placement"] for run in runs if run.get("placement"))
    return {"bandwidth_gb_s": spread([run.get("bandwidth_gb_s") for run in runs]),
            "pingpong_ns": spread([run.get("pingpong_ns") for run in runs]),
            "placement": dict(placements.most_common())}


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
