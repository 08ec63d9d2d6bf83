#!/usr/bin/env python3
"""Applies docs/add-a-method.md: its new files, and its changes of files that exist.

    tests/walk/apply_walk.py --out FOLDER   # only the files that it makes or changes, under FOLDER
    tests/walk/apply_walk.py --out .        # in this checkout, to try the walk by hand
    tests/walk/apply_walk.py --list         # their names; none where the walk is applied already
    tests/walk/apply_walk.py --commands     # the commands of the walk that run the program, one a line

A block of code says what it is in its first line: ```cpp file=PATH is a whole new file, ```diff file=PATH
changes a file. The lines it starts from must stand in the file once, or the walk has rotted and this fails.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WALK = "docs/add-a-method.md"
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)


class Rotten(Exception):
    """The walk does not fit the sources."""


class Applied(Exception):
    """Somebody tries the walk in this checkout: its new files exist, and are not committed."""


def is_committed(root, path):
    done = subprocess.run(["git", "-C", str(root), "ls-files", "--error-unmatch", path], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


def changed(text, diff, path):
    """`text` after `diff`: ' ' stands in the file, '-' goes, '+' is new."""
    old, new = [], []
    for line in diff.splitlines():
        if line[:1] not in (" ", "-", "+"):
            raise Rotten(f"{path}: a line of its block begins with none of ' ', '-' and '+': {line!r}")
        if line[0] != "-":
            new.append(line[1:])
        if line[0] != "+":
            old.append(line[1:])
    before = "\n" + "\n".join(old) + "\n"
    count = ("\n" + text).count(before)
    if not old or count != 1:
        raise Rotten(f"{path}: the lines that the block starts from stand there {count} times, not once:{before}")
    return ("\n" + text).replace(before, "\n" + "\n".join(new) + "\n")[1:]


def files(walk, root):
    """{path: text} of what the walk makes and changes."""
    made = {}
    for language, path, body in BLOCK.findall(walk):
        if not path:
            continue
        if language == "diff":
            if path not in made and not (root / path).exists():
                raise Rotten(f"{path}: not there, so it cannot be changed")
            made[path] = changed(made.get(path) or (root / path).read_text(), body, path)
        elif path in made or is_committed(root, path):
            raise Rotten(f"{path}: exists already, so it is no new file")
        elif (root / path).exists():
            raise Applied(path)
        else:
            made[path] = body
    if not made:
        raise Rotten(f"{WALK} has no block with file=")
    return made


def commands(walk):
    """Lines of its shell blocks that run the program."""
    lines = "\n".join(body for language, _, body in BLOCK.findall(walk) if language == "sh")
    return re.findall(r"^build/release/bin/(evalrun .*?)(?: +[#>].*)?$", lines, re.M)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=pathlib.Path)
    what.add_argument("--list", action="store_true")
    what.add_argument("--commands", action="store_true")
    options = parser.parse_args()
    walk = (ROOT / WALK).read_text()
    if options.commands:
        print("\n".join(commands(walk)))
        return 0
    try:
        made = files(walk, ROOT)
    except Rotten as error:
        print(f"{WALK}: {error}", file=sys.stderr)
        return 1
    except Applied as path:
        print(f"{WALK}: {path} exists, so the walk is applied here", file=sys.stderr)
        return 0 if options.list else 1
    for path, text in made.items():
        if options.list:
            print(path)
            continue
        target = options.out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
