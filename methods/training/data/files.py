"""Files that texts come in: JSON Lines, one large JSON array, plain text; gzip by the name."""
import gzip
import json

from ..errors import Failure

CHUNK = 1 << 20  # characters
LARGEST_RECORD = 1 << 26


def open_text(path):
    try:
        return gzip.open(path, "rt", encoding="utf-8") if str(path).endswith(".gz") else \
            open(path, encoding="utf-8")
    except OSError as error:
        raise Failure(path, f"cannot be read ({error.strerror})",
                      "give an existing file") from error


def json_lines(path, form='{"id", "source", "prompt"}'):
    """(line number, object) of a .jsonl or .jsonl.gz file; blank lines are skipped."""
    with open_text(path) as handle:
        for number, line in enumerate(handle, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise Failure(f"{path}:{number}", f"is not JSON ({error.msg})",
                              "each line must be one object") from error
            if not isinstance(row, dict):
                raise Failure(f"{path}:{number}", "is not an object", f"write {form}")
            yield number, row


def json_records(path):
    """(place, object) of JSON Lines or of one array, whichever the file holds.

    An array is read piece by piece: ShareGPT's has 673 MB.
    """
    try:
        with open_text(path) as handle:
            first = ""
            while not first and (piece := handle.read(CHUNK)):
                first = piece.lstrip("\ufeff \t\r\n")
            if first.startswith("["):
                yield from array_records(path, first[1:], handle)
                return
        if not first:
            raise Failure(path, "is empty", "give the official file")
        for number, row in json_lines(path, "one object a line"):
            yield f"{path}:{number}", row
    except UnicodeDecodeError as error:
        raise Failure(path, f"is not UTF-8 ({error.reason})",
                      "give the official file, in its own encoding") from error
    except EOFError as error:
        raise Failure(path, "is a truncated gzip file", "get it again") from error
    except gzip.BadGzipFile as error:
        raise Failure(path, "is no gzip file", "rename it, or get it again") from error


def array_records(path, buffer, handle):
    decoder, at, number = json.JSONDecoder(), 0, 0
    while True:
        while at < len(buffer) and buffer[at] in " \t\r\n,":
            at += 1
        if buffer[at:at + 1] == "]":
            return
        place = f"{path}: record {number + 1}"
        try:
            row, at = decoder.raw_decode(buffer, at)
        except json.JSONDecodeError as error:
            more = handle.read(CHUNK)
            if not more or len(buffer) - at > LARGEST_RECORD:
                raise Failure(place, f"is not JSON ({error.msg}), or the file ends inside it",
                              "get the file again") from error
            buffer, at = buffer[at:] + more, 0
            continue
        if not isinstance(row, dict):
            raise Failure(place, "is not an object", "give the official file")
        number += 1
        yield place, row
