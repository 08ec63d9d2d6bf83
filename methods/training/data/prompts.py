"""The prompts whose answers are the training text: filter given lists, add our own, mix, write.

Input lines are {"id", "source", "prompt"}, or "messages" in place of the prompt (importers.py
writes such lists); output lines are what `evalrun capture` reads, {"id", "source", "messages":
[{"role": "user", "content"}]}. A prompt that shares 50 characters with a text of an excluded file
is dropped, so that no benchmark leaks into the training text.
"""
import json
import pathlib
import random
import re

import numpy as np

from . import own_prompts, passages
from .files import json_lines, open_text
from ..errors import Failure

SHINGLE = 50
FACTOR = 0x9E3779B97F4A7C15  # odd, so invertible modulo 2^64


FORM = 'write {"id", "source", "prompt"}, or "messages" in place of the prompt'
NOTES = ("licence", "origin")  # what a line may say of its source


def read(path):
    """The rows of a prompt list; every field must exist and be a text."""
    rows = []
    for number, row in json_lines(path):
        place = f"{path}:{number}"
        for field in ("id", "source") + (() if "messages" in row else ("prompt",)):
            if not isinstance(row.get(field), str) or not row[field]:
                raise Failure(place, f"field `{field}` is missing or no text", FORM)
        if "messages" in row:
            if "prompt" in row:
                raise Failure(place, "has the fields `prompt` and `messages`", FORM)
            check_messages(place, row["messages"])
        rows.append({field: row[field] for field in ("id", "source", "prompt", "messages") + NOTES
                     if field in row})
    return rows


def check_messages(place, messages):
    """Perhaps a system's message, then user and assistant by turns, none of them empty."""
    if not isinstance(messages, list) or not messages:
        raise Failure(place, "field `messages` is no list of messages", FORM)
    wanted = "user"
    for i, message in enumerate(messages):
        field = f"field `messages[{i}]`"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or \
                not isinstance(message.get("content"), str):
            raise Failure(place, f"{field} has no texts `role` and `content`", FORM)
        if i == 0 and message["role"] == "system":
            continue
        if message["role"] != wanted:
            raise Failure(place, f"{field} is the {message['role']}'s where it must be the "
                                 f"{wanted}'s", "user and assistant take turns, the user first")
        if not message["content"].strip():
            raise Failure(place, f"{field} is empty", "leave the line out")
        wanted = "assistant" if wanted == "user" else "user"
    if not any(message["role"] == "user" for message in messages):
        raise Failure(place, "field `messages` has no message of the user",
                      "user and assistant take turns, the user first")


def asked(row):
    """What the user says, turn by turn."""
    if "messages" not in row:
        return [row["prompt"]]
    return [message["content"] for message in row["messages"] if message["role"] == "user"]


def said(row):
    """All texts of a row."""
    if "messages" not in row:
        return [row["prompt"]]
    return [message["content"] for message in row["messages"]]


def read_passages(given, seed):
    """FILE:N -> prompts about N passages of the file, marked as such."""
    path, _, n = given.rpartition(":")
    if not path or not n.isdigit():
        raise Failure("--passages", f"`{given}` has no number of prompts", "write FILE:N")
    with open_text(path) as handle:
        rows = passages.write(path, handle.read(), int(n), seed)
    return [row | {"passage": True} for row in rows]


def normal_forms(text):
    """Lower-cased with single spaces; and the same without punctuation."""
    plain = " ".join(text.lower().split())
    bare = " ".join(re.sub(r"[^\w\s]|_", "", plain).split())
    return plain, bare


def shingle_hashes(text):
    """Hashes of all windows of SHINGLE characters, uint64; empty for a shorter text."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32).astype(np.uint64)
    n = len(codes) - SHINGLE + 1
    if n <= 0:
        return np.empty(0, np.uint64)
    with np.errstate(over="ignore"):
        codes = (codes + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        codes ^= codes >> np.uint64(32)  # neighbouring code points far apart
        hashes = np.zeros(n, np.uint64)
        for k in range(SHINGLE):
            hashes = hashes * np.uint64(FACTOR) + codes[k:k + n]
    return hashes


def texts_of(value):
    """Every string inside a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)


class Exclusion:
    """The 50-character windows, and the whole texts, of files that must not be trained on."""

    def __init__(self, texts):
        parts, self.whole = [], set()
        for text in texts:
            for form in normal_forms(text):
                if form:
                    self.whole.add(form)
                parts.append(shingle_hashes(form))
        self.hashes = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.uint64)

    @classmethod
    def of_files(cls, paths):
        """Files or folders; .jsonl(.gz) and .json by their strings, anything else as one text."""
        texts = []
        for path in expand(paths):
            name = path.name.removesuffix(".gz")
            if name.endswith(".jsonl"):
                for _, row in json_lines(path):
                    texts += texts_of(row)
            else:
                try:
                    with open_text(path) as handle:
                        text = handle.read()
                except UnicodeDecodeError:
                    continue  # a picture or an archive beside the texts
                texts += texts_of(json.loads(text)) if name.endswith(".json") else [text]
        return cls(texts)

    def hits(self, text):
        for form in normal_forms(text):
            if form in self.whole:
                return True
            if len(self.hashes):
                mine = shingle_hashes(form)
                at = np.minimum(np.searchsorted(self.hashes, mine), len(self.hashes) - 1)
                if (self.hashes[at] == mine).any():
                    return True
        return False


def expand(paths):
    files = []
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            files += sorted(p for p in path.rglob("*") if p.is_file())
        elif path.exists():
            files.append(path)
        else:
            raise Failure(path, "does not exist", "correct --exclude")
    return files


def parse_sources(text):
    """`a,b:500` -> {"a": None, "b": 500}: allowed sources with the most prompts of each."""
    wanted = {}
    for part in filter(None, text.split(",")):
        name, _, most = part.partition(":")
        if most and not most.isdigit():
            raise Failure("--sources", f"`{part}` has no number after the colon",
                          "write NAME or NAME:NUMBER")
        wanted[name] = int(most) if most else None
    return wanted


def mix(rows, sources, exclusion, seed, longest=500):
    """(rows kept, {reason: dropped}): allowed, short enough, distinct, not excluded, shuffled."""
    dropped = {"source": 0, "length": 0, "repeated": 0, "excluded": 0,
               "over the limit of its source": 0}
    rows = list(rows)
    random.Random(f"{seed}:mix").shuffle(rows)
    kept, seen, count = [], set(), {}
    for row in rows:
        source = row["source"]
        key = normal_forms("\n".join(asked(row)))[1]
        limit = sources.get(source, 0) if sources is not None else None
        if limit == 0:
            reason = "source"
        elif max(map(len, asked(row))) > longest and not row.get("passage"):
            reason = "length"
        elif key in seen:
            reason = "repeated"
        elif limit is not None and count.get(source, 0) >= limit:
            reason = "over the limit of its source"
        elif exclusion is not None and any(map(exclusion.hits, said(row))):
            reason = "excluded"
        else:
            seen.add(key)
            count[source] = count.get(source, 0) + 1
            kept.append(row)
            continue
        dropped[reason] += 1
    # Sources with a limit fill up early: without this a prefix would not be a fair sample.
    random.Random(f"{seed}:order").shuffle(kept)
    return kept, dropped


def render(row):
    messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    notes = {field: row[field] for field in NOTES if field in row}
    return {"id": row["id"], "source": row["source"]} | notes | {"messages": messages}


def write(rows, path):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as handle:
        for row in rows:
            handle.write(json.dumps(render(row), ensure_ascii=False) + "\n")
    temporary.rename(path)


def add_options(parser):
    parser.add_argument("--in", dest="inputs", nargs="*", default=[], metavar="FILE",
                        help='prompt lists, .jsonl or .jsonl.gz with {"id", "source", "prompt"}, '
                        'or with "messages" (scripts/train import writes such lists)')
    parser.add_argument("--sources", default=None, metavar="A,B:500",
                        help="sources allowed, with the most prompts of each (default: all)")
    parser.add_argument("--exclude", nargs="*", default=[], metavar="PATH",
                        help="files or folders whose texts must not occur in a prompt")
    parser.add_argument("--own-code", type=int, default=3500, metavar="N",
                        help="code prompts of the project's own list (default 3500)")
    parser.add_argument("--own-text", type=int, default=3500, metavar="N",
                        help="other prompts of the project's own list (default 3500)")
    parser.add_argument("--longest", type=int, default=500, metavar="CHARS",
                        help="longest prompt, or message of the user, passages aside (default 500)")
    parser.add_argument("--passages", nargs="*", default=[], metavar="FILE:N",
                        help="plain texts (.txt, .txt.gz) and how many prompts about passages of "
                        "each to write")
    parser.add_argument("--limit", type=int, default=None, metavar="N", help="write at most N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", required=True, metavar="FILE")


def run(options):
    rows = [row for path in options.inputs for row in read(path)]
    sources = None if options.sources is None else parse_sources(options.sources)
    about = [row for given in options.passages for row in read_passages(given, options.seed)]
    if sources is not None:
        sources |= {"own_code": None, "own_text": None}
        sources |= {row["source"]: None for row in about}
    rows += about
    try:
        rows += own_prompts.write(options.own_code, options.own_text, options.seed, options.longest)
    except ValueError as error:
        raise Failure("--own-code/--own-text", str(error)) from error
    exclusion = Exclusion.of_files(options.exclude) if options.exclude else None
    kept, dropped = mix(rows, sources, exclusion, options.seed, options.longest)
    kept = kept[:options.limit]
    write(kept, options.out)
    counts = {}
    for row in kept:
        counts[row["source"]] = counts.get(row["source"], 0) + 1
    print(f"{options.out}: {len(kept)} prompts; " +
          ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    print("dropped: " + ", ".join(f"{reason} {n}" for reason, n in dropped.items()))
