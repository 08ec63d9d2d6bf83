"""Parts of the tables: cells, the lines on machine, builds and files, and goals."""
from . import gguf_info


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


def setting_parts(measured):
    """Paragraphs on what was measured where; `measured` is what figures.py collects."""
    config, parts = measured["config"], []
    extra = [f"{config['threads']} threads, context {config['context']}"]
    if measured["bandwidth_gb_s"]:
        extra.append(f"read probe {ranged(measured['bandwidth_gb_s'], 1)} GB/s")
    if measured["pingpong_ns"]:
        extra.append(f"cache-line round trip {ranged(measured['pingpong_ns'], 0)} ns")
    if measured["placement"]:
        extra.append("cores " + ", ".join(f"{p} ({n} runs)" for p, n in measured["placement"].items()))
    if config.get("shape"):
        parts.append(f"Model: the shape {config['shape']} with random weights.")
    parts.append(machine_line(measured["machine"], extra) + ".")
    for kind, build in measured["builds"].items():
        parts.append(f"llama.cpp ({kind} build): llama-cpp-python {build['version']}, "
                     f"CMAKE_ARGS `{build['cmake_args']}`; {build['system_info'].strip(' |')}.")
    if measured["files"]:
        parts.append("Files of llama.cpp:\n\n" + "\n".join(
            f"- {name}: {gguf_info.summary(file)}" for name, file in measured["files"].items()))
    return parts


def argmax_note(measured, counts, letter):
    """" llama.cpp's times hold ..." at the smallest and largest of `counts`, "" where it is not known."""
    peer = next((arm for arm in measured["arms"] if arm.get("argmax_ms")), None)
    if not peer:
        return ""
    at = ", ".join(f"{peer['argmax_ms'][str(n)]['median']:.3f} ms at {letter} = {n}"
                   for n in dict.fromkeys((counts[0], counts[-1])))
    return f" llama.cpp's times hold the argmax of all rows in numpy ({peer['name']}: {at})."


def arm_name(arm):
    """The name of an arm that was measured, with evalrun's path or llama.cpp's flash attention."""
    path = arm["isa_used"] if arm["engine"] == "evalrun" else f"flash {arm['flash']['choice']}"
    return f"{arm['name']}, {path or '-'}"


def failures(arms):
    return [f"{arm['name']} failed: {arm['failed']}" for arm in arms if arm["failed"]]


def goal_rows(goals):
    return table(["measure", "measured", "goal", "", "beside it"], "lrrll", [
        [g["measure"], ranged(g["value"]),
         "-" if g["goal"] is None else ("<= " if g["at_most"] else ">= ") + f"{g['goal']:g}",
         g["verdict"], "; ".join(g["notes"]) if g["value"] else ""] for g in goals])
