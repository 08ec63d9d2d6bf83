"""Reports of `evalrun data overlap`: prompts of evaluation sets that stand in training text.

A report belongs to the prompt list with its SHA-256, and so to the captures of that list.
"""
import json

from ..errors import Failure


def read(paths):
    """{SHA-256 of a text: {set: prompts that overlap}}, of every set that was compared."""
    texts = {}
    for path in paths:
        try:
            with open(path, encoding="utf-8") as handle:
                report = json.load(handle)
            for text in report["texts"]:
                texts[text["sha256"]] = {row["set"]: row["overlapping"] for row in text["sets"]}
        except OSError as error:
            raise Failure(path, f"cannot be read ({error.strerror})",
                          "write it with evalrun data overlap --json") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Failure(path, f"is no report of overlap ({error!r})",
                          "write it with evalrun data overlap --json") from error
    return texts


def refuse(texts, is_forced):
    """A Failure when a text holds prompts of evaluation sets and nobody said that it may."""
    found = [f"{count} prompts of {name}" for sets in texts.values()
             for name, count in sets.items() if count]
    if found and not is_forced:
        raise Failure("--prompts", "the training text holds " + ", ".join(found),
                      "evalrun data overlap LIST --out CLEAN.jsonl writes the rest; or "
                      "--force-overlap trains on it and marks the adapter")


def of_captures(capture, texts):
    """{set: prompts} over all prompt lists of a capture, of the sets that each was compared with;
    None when one of the lists has no report."""
    lists = {info.get("in_hash") for info in capture.infos}
    if not lists <= set(texts):
        return None
    compared = set.intersection(*(set(texts[key]) for key in lists))
    return {name: max(texts[key][name] for key in lists) for name in sorted(compared)}
