"""Writes a data set's official file as a prompt list, or OANC as the text of a corpus.

`official.json` says what there is: format, origin, licence, and the SHA-256 of a file where it is
publicly known. A format is one function below, registered in FORMATS. It gives the messages of a
record; what all formats share (roles, empty answers) is `dialogue()`. Official files have broken
records. These are left out, counted and printed; a field that the format does not have is an error.

Output: {"id", "source", "licence", "origin", "messages"} a line, and "text" instead of messages
where the file holds plain texts.
"""
import argparse
import hashlib
import json
import pathlib
import re
import zipfile

from . import files
from ..errors import Failure

OFFICIAL = json.loads((pathlib.Path(__file__).parent / "official.json").read_text(encoding="utf-8"))


class Dropped(Exception):
    """A record that cannot be used, with the reason that is counted."""


# Formats: a function of (record, place, options), which returns [(role, text)] -----------------

def text_of(record, field, place, form):
    value = record.get(field)
    if not isinstance(value, str):
        found = ", ".join(sorted(record)) or "none"
        raise Failure(place, f"field `{field}` is missing or no text; the fields are {found}", form)
    return value


def alpaca(record, place, options):
    """Stanford's Alpaca and what follows it: instruction, input (may be empty), output."""
    form = "this format has instruction, input and output"
    instruction = text_of(record, "instruction", place, form)
    given = text_of(record, "input", place, form) if record.get("input") is not None else ""
    if given.strip() and given.strip() != "<noinput>":
        instruction = f"{instruction}\n{given}"
    return [("user", instruction), ("assistant", text_of(record, "output", place, form))]


def pairs(record, place, options):
    """CIP: prompt and response."""
    form = "this format has prompt and response"
    return [("user", text_of(record, "prompt", place, form)),
            ("assistant", text_of(record, "response", place, form))]


def lima(record, place, options):
    """A list of texts, the user's first."""
    texts = record.get("conversations")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Failure(place, "field `conversations` is missing or no list of texts",
                      "LIMA's lines are {\"conversations\": [text, ...], \"source\"}")
    return [(("user", "assistant")[i % 2], text) for i, text in enumerate(texts)]


SHAREGPT_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant",
                  "bard": "assistant", "bing": "assistant", "assistant": "assistant",
                  "system": "system"}


def sharegpt(record, place, options):
    """A list of {"from", "value"}."""
    turns = record.get("conversations")
    form = 'ShareGPT\'s records are {"id", "conversations": [{"from", "value"}, ...]}'
    if not isinstance(turns, list):
        raise Failure(place, "field `conversations` is missing or no list", form)
    messages = []
    for i, turn in enumerate(turns):
        if not isinstance(turn, dict) or not isinstance(turn.get("from"), str) or \
                not isinstance(turn.get("value"), str):
            raise Failure(place, f"field `conversations[{i}]` has no texts `from` and `value`",
                          form)
        if turn["from"] not in SHAREGPT_ROLES:
            raise Failure(place, f"field `conversations[{i}].from` is `{turn['from']}`",
                          "known are " + ", ".join(SHAREGPT_ROLES))
        messages.append((SHAREGPT_ROLES[turn["from"]], turn["value"]))
    return messages


def oasst(record, place, options):
    """A tree of messages: the path of the replies that people ranked best, rank 0 first.

    Other paths repeat the same beginning, so one path a tree is taken. Without a rank, the first
    reply in the file counts.
    """
    form = 'a tree is {"message_tree_id", "prompt": {"role", "text", "replies": [...]}}'
    node, field, messages = record.get("prompt"), "prompt", []
    roles = {"prompter": "user", "assistant": "assistant"}
    while True:
        if not isinstance(node, dict) or not isinstance(node.get("text"), str) or \
                node.get("role") not in roles:
            raise Failure(place, f"field `{field}` is no message with role and text", form)
        if options.languages and node.get("lang") not in options.languages:
            if not messages:
                raise Dropped("other language")
            return messages
        messages.append((roles[node["role"]], node["text"]))
        replies = node.get("replies") or []
        if not isinstance(replies, list):
            raise Failure(place, f"field `{field}.replies` is no list", form)
        replies = [(i, reply) for i, reply in enumerate(replies)
                   if not isinstance(reply, dict) or not reply.get("deleted")]
        if not replies:
            return messages

        def order(numbered):
            number, reply = numbered
            rank = reply.get("rank") if isinstance(reply, dict) else None
            return (rank is None, rank or 0, number)

        number, node = min(replies, key=order)
        field += f".replies[{number}]"


FORMATS = {"alpaca": alpaca, "pairs": pairs, "lima": lima, "sharegpt": sharegpt, "oasst": oasst}
TEXTS = "texts"  # a zip archive of plain texts


# What formats share ------------------------------------------------------------------------------

def dialogue(messages):
    """(messages to keep, whether some were cut away); raises Dropped.

    Kept are perhaps a system's message, then the longest beginning in which user and assistant take
    turns and neither is empty, up to the last answer. What an assistant says before the user did is
    left out: such a record is the second half of a dialogue that was cut for length.
    """
    messages = [(role, text.strip()) for role, text in messages]
    kept = []
    if messages and messages[0][0] == "system":
        if messages[0][1]:
            kept.append(messages[0])
        messages = messages[1:]
    first = next((i for i, (role, _) in enumerate(messages) if role == "user"), len(messages))
    turns, why = [], "no answer"
    for role, text in messages[first:]:
        if role != ("user", "assistant")[len(turns) % 2]:
            why = "roles out of order"
            break
        if not text:
            why = "empty answer" if role == "assistant" else "empty prompt"
            break
        turns.append((role, text))
    turns = turns[:len(turns) - len(turns) % 2]
    if not turns:
        raise Dropped(why)
    return kept + turns, first > 0 or len(turns) < len(messages) - first


def check_file(path, entry):
    """What the checksum says; a Failure for a known file that is damaged."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
            size += len(block)
    found = digest.hexdigest()
    known = [file for file in entry["files"] if "sha256" in file]
    for file in known:
        if found == file["sha256"]:
            return f"official file {file['name']}, SHA-256 right"
        if size == file["bytes"]:
            raise Failure(path, f"has the size of {file['name']}, whose SHA-256 is "
                                f"{file['sha256']}, but SHA-256 {found}; it is damaged or edited",
                          f"get it again: {entry['url']}")
    return f"checksum unknown to us, read by its format (SHA-256 {found})"


def record(name, number, entry, body):
    return {"id": f"{name}-{number:06d}", "source": name, "licence": entry["licence"],
            "origin": entry["url"]} | body


def dialogues(path, name, entry, options, counts):
    read = FORMATS[entry["format"]]
    for number, (place, row) in enumerate(files.json_records(path)):
        try:
            messages, cut = dialogue(read(row, place, options))
        except Dropped as reason:
            counts[str(reason)] = counts.get(str(reason), 0) + 1
            continue
        counts["cut"] = counts.get("cut", 0) + cut
        counts["answers"] = counts.get("answers", 0) + sum(r == "assistant" for r, _ in messages)
        yield record(name, number, entry, {"messages": [{"role": role, "content": text}
                                                        for role, text in messages]})


def clean(text):
    """Paragraphs of single-spaced words: OANC's are indented, wrapped and full of page marks."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", " ", text.replace("\r", ""))
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "\n\n".join(part for part in paragraphs if part)


def archive_texts(path, name, entry, options, counts):
    """The .txt files below a folder `data` of the archive, in the order of their names."""
    if not zipfile.is_zipfile(path):
        raise Failure(path, "is no zip archive", f"give {entry['files'][0]['name']}")
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist()
                       if n.endswith(".txt") and "data" in n.split("/")[:-1])
        if not names:
            raise Failure(path, "holds no .txt file below a folder data",
                          f"give {entry['files'][0]['name']}")
        for number, member in enumerate(names):
            try:
                data = archive.read(member)
            except (zipfile.BadZipFile, OSError) as error:
                raise Failure(f"{path}: {member}", f"cannot be read ({error})",
                              "get the archive again") from error
            encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
            try:
                text = clean(data.decode(encoding))
            except UnicodeDecodeError:
                counts["not Unicode"] = counts.get("not Unicode", 0) + 1
                continue
            if not text:
                counts["empty"] = counts.get("empty", 0) + 1
                continue
            yield record(name, number, entry, {"text": text})


def catalogue():
    lines = []
    for name, entry in OFFICIAL.items():
        names = " or ".join(file["name"] for file in entry["files"])
        lines.append(f"{name}: {entry['title']}; {entry['licence']}\n    {names}, {entry['url']}")
        if "columns" in entry:
            lines.append(f"    first: scripts/convert-data FILE.parquet {name}.jsonl --columns "
                         f"{entry['columns']}")
    return "\n".join(lines)


def add_options(parser):
    parser.epilog = "Data sets:\n" + catalogue()
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME", help="which data set (below)")
    parser.add_argument("file", metavar="FILE", help="its official file, downloaded by you")
    parser.add_argument("--languages", default="", metavar="A,B",
                        help="oasst1: only these, such as en,de (default: all)")
    parser.add_argument("--out", required=True, metavar="FILE.jsonl")


def run(options):
    if options.name not in OFFICIAL:
        raise Failure("NAME", f"unknown data set `{options.name}`",
                      "known are " + ", ".join(OFFICIAL), 2)
    entry = OFFICIAL[options.name]
    options.languages = [word for word in options.languages.split(",") if word]
    if options.languages and entry["format"] != "oasst":
        raise Failure("--languages", f"the records of {options.name} name no language",
                      "leave it out")
    path = pathlib.Path(options.file)
    if not path.is_file():
        raise Failure(path, "does not exist or is no file", f"download it: {entry['url']}")
    with open(path, "rb") as handle:
        if handle.read(4) == b"PAR1":
            raise Failure(path, "is Parquet", f"scripts/convert-data {path} {options.name}.jsonl "
                                              f"--columns {entry.get('columns', 'A,B')}")
    verdict = check_file(path, entry)
    counts = {}
    reader = archive_texts if entry["format"] == TEXTS else dialogues
    out = pathlib.Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.with_name(out.name + ".tmp")
    n = 0
    try:
        with open(partial, "w", encoding="utf-8") as handle:
            for row in reader(path, options.name, entry, options, counts):
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
                n += 1
        if n == 0:
            reasons = ", ".join(f"{why} {times}" for why, times in counts.items()) or "no record"
            raise Failure(path, f"gives nothing to learn from ({reasons})",
                          f"give {entry['files'][0]['name']} of {entry['url']}")
        partial.replace(out)
    finally:
        partial.unlink(missing_ok=True)
    cut, answers = counts.pop("cut", 0), counts.pop("answers", 0)
    print(f"{path}: {entry['title']}, {verdict}")
    print(f"licence: {entry['licence']}; origin: {entry['url']}")
    if entry["format"] == TEXTS:
        print(f"{out}: {n} texts")
    else:
        print(f"{out}: {n} dialogues with {answers} answers; {cut} dialogues were cut where roles "
              "or texts break off")
    print("left out: " + (", ".join(f"{why} {times}" for why, times in sorted(counts.items())) or
                          "none"))
