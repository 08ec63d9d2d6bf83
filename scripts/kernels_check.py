"""The machine code of the CUDA engine beside tests/gpu/kernels.txt: the work of scripts/check-kernels.

  python3 scripts/kernels_check.py --library FILE --tools FOLDER --nvcc VERSION [--table FILE] [--list | --update]
  python3 scripts/kernels_check.py --library FILE --tools FOLDER --nvcc VERSION --before FILE... [--arch ARCH]

FILE is what nvcc wrote: an archive, an object or a fatbin. --before compares with other files instead of the table.
Exit code 1 where a kernel has a fault or differs from the table, 7 where something cannot be read.
"""
import argparse
import collections
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import machine_code

NUMBERS = ("threads", "registers", "shared", "blocks", "warps")
FAULTS = ("local", "spills", "generic", "spins", "serial")
COLUMNS = NUMBERS + FAULTS
UNKNOWN = ("threads", "blocks", "warps")  # where they are 0
SAYS = {
    "local": "bytes of local memory a thread, which is in the GPU's main memory",
    "spills": "loads and stores of local memory",
    "generic": "loads, stores or atomics that do not say which memory they mean",
    "spins": "atomics that are loops of compare-and-swap",
    "serial": "loads that begin only when an earlier one was waited for and stored",
}
RENEW = "scripts/check-kernels --update"
HEAD = """\
# What nvcc made of the CUDA engine's kernels. scripts/check-kernels finds it in the machine code, and says what each
# column means; ctest's check_kernels compares. `scripts/check-kernels --update` writes this file anew and keeps
# the lines `allow`.
#
# allow | KERNELS | COLUMN | WHY: these may have what is a fault elsewhere (columns from "local" on), as much as the table
# says. A fault that no line allows fails, whatever the table says, and with every nvcc. All other differences fail with
# the nvcc named here; with another one they are notes.
"""


class Table:
    """tests/gpu/kernels.txt. rows: {(arch, kernel): {column: number}}; allowed: [(pattern, column, why)]."""

    def __init__(self, text=""):
        self.nvcc, self.rows, self.allowed = "", {}, []
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or line.startswith("#") or words[0] == "arch":
                continue
            try:
                if words[0] == "nvcc":
                    self.nvcc = words[1]
                elif words[0] == "allow":
                    _, pattern, column, why = (field.strip() for field in line.split("|", 3))
                    if column not in FAULTS or not why:
                        raise ValueError
                    self.allowed.append((pattern, column, why))
                else:
                    numbers = [0 if word == "-" else int(word) for word in words[1:len(COLUMNS) + 1]]
                    name = line.split(None, len(COLUMNS) + 1)[len(COLUMNS) + 1].strip()
                    self.rows[words[0], name] = dict(zip(COLUMNS, numbers))
            except (ValueError, IndexError):
                raise machine_code.Unreadable(f"line {number} of the table is not understood: {line}") from None

    def allows(self, name, column):
        return any(fnmatch.fnmatchcase(name, pattern) and column == of for pattern, of, _ in self.allowed)

    def text(self, kernels, nvcc):
        lines = [HEAD]
        lines += [" | ".join(("allow", *entry)) for entry in self.allowed] + [""] * bool(self.allowed)
        lines += [f"nvcc {nvcc}", "", *listing(kernels)]
        return "\n".join(lines) + "\n"


def listing(kernels):
    """The kernels as lines of the table."""
    lines = [f"{'arch':7}" + "".join(f"{column:>{len(column) + 2}}" for column in COLUMNS) + "  kernel"]
    for kernel in kernels:
        numbers = [getattr(kernel, column) or ("-" if column in UNKNOWN else 0) for column in COLUMNS]
        cells = (f"{number:>{len(column) + 2}}" for column, number in zip(COLUMNS, numbers))
        lines.append(f"{kernel.arch:7}" + "".join(cells) + f"  {kernel.name}")
    return lines


def run(tools, *arguments, cwd=None):
    """Lines that cuobjdump prints. It calls nvdisasm, which is beside it."""
    command = [str(pathlib.Path(tools) / "cuobjdump"), *map(str, arguments)]
    path = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=cwd,
                              env={**os.environ, "PATH": path}) as process:
            yield from process.stdout
        if process.returncode:
            errors.seek(0)
            raise machine_code.Unreadable(f"{' '.join(command)}: exit code {process.returncode}\n{errors.read().strip()}")


def read(tools, files):
    """Kernels of compiled files."""
    functions, resources, bounds = {}, {}, {}
    for file in map(pathlib.Path, files):
        file = file.resolve()
        functions.update(machine_code.read_functions(run(tools, "-sass", file)))
        resources.update(machine_code.read_resources(run(tools, "--dump-resource-usage", file)))
        with tempfile.TemporaryDirectory() as folder:
            collections.deque(run(tools, "--extract-elf", "all", file, cwd=folder), maxlen=0)
            for cubin in pathlib.Path(folder).glob("*.cubin"):
                arch = re.search(r"\.(sm_\w+)\.cubin$", cubin.name)
                if not arch:
                    raise machine_code.Unreadable(f"which architecture {cubin.name} is for is not known")
                for name, threads in machine_code.read_launch_bounds(cubin.read_bytes()).items():
                    bounds[arch.group(1), name] = threads
    if not functions:
        raise machine_code.Unreadable(f"no machine code in {', '.join(map(str, files))}")
    return machine_code.kernels(functions, resources, bounds)


def where(kernel, column):
    """Where a fault is, as far as that is known."""
    if column != "serial":
        return ""
    places = ", ".join(f"{at:#x}" for at in kernel.places[:6])
    return f" (at {places}{', ...' if len(kernel.places) > 6 else ''})"


def judge(kernels, table, nvcc):
    """(faults, differences): lines of what no kernel may have, and of what is not as in the table."""
    faults, differences = [], []
    used = set()
    for kernel in kernels:
        row = table.rows.get((kernel.arch, kernel.name))
        for column in FAULTS:
            number = getattr(kernel, column)
            if number == 0:
                continue
            used |= {(pattern, of) for pattern, of, _ in table.allowed
                     if of == column and fnmatch.fnmatchcase(kernel.name, pattern)}
            if not table.allows(kernel.name, column):
                faults.append(f"{kernel.name} ({kernel.arch}): {number} {SAYS[column]}{where(kernel, column)}")
            elif row and number > row[column] and nvcc == table.nvcc:
                faults.append(f"{kernel.name} ({kernel.arch}): {number} {SAYS[column]}, {row[column]} in the table"
                              f"{where(kernel, column)}")
    known, here = {arch for arch, _ in table.rows}, {kernel.arch for kernel in kernels}
    for kernel in kernels:
        row = table.rows.get((kernel.arch, kernel.name))
        if row is None:
            if kernel.arch in known:
                differences.append(f"{kernel.name} ({kernel.arch}): not in the table")
            continue
        other = [f"{column} {getattr(kernel, column)}, {row[column]} in the table" for column in COLUMNS
                 if getattr(kernel, column) != row[column]]
        if other:
            differences.append(f"{kernel.name} ({kernel.arch}): {'; '.join(other)}")
    found = {(kernel.arch, kernel.name) for kernel in kernels}
    differences += [f"{name} ({arch}): in the table, not in the build" for arch, name in table.rows
                    if arch in here and (arch, name) not in found]
    if known <= here:
        differences += [f"allow | {pattern} | {column}: no kernel needs it" for pattern, column, _ in table.allowed
                        if (pattern, column) not in used]
    return faults, differences


def check(kernels, table, nvcc):
    """Prints what is wrong; the exit code."""
    faults, differences = judge(kernels, table, nvcc)
    same = nvcc == table.nvcc
    known, here = {arch for arch, _ in table.rows}, {kernel.arch for kernel in kernels}
    for fault in faults:
        print(f"fault: {fault}")
    for difference in differences:
        print(f"{'differs' if same else 'note'}: {difference}")
    if not same:
        print(f"note: compiled by nvcc {nvcc}, the table is of {table.nvcc or 'none'}: its numbers are not held against "
              "this build")
    for arch in sorted(known ^ here):
        print(f"note: {arch} is in the {'build' if arch in here else 'table'} only: "
              f"{'faults alone are looked for' if arch in here else 'not looked at'}")
    bad = bool(faults) or (same and bool(differences))
    if faults:
        print("A fault is to be mended, or allowed with a reason: a line `allow` in tests/gpu/kernels.txt.")
    if same and differences:
        print(f"If that is meant, renew the table: {RENEW}")
    print(f"{len(kernels)} kernels for {', '.join(sorted(here))}: {len(faults)} faults, "
          f"{len(differences)} differences from the table")
    return 1 if bad else 0


def span(numbers, unknown="-"):
    low, high = min(numbers), max(numbers)
    if high == 0 and unknown != 0:
        return unknown
    return str(low) if low == high else f"{low} to {high}"


def comparison(before, after, patterns):
    """Both as a Markdown table, all instances of a template in one line."""
    def families(kernels):
        groups = collections.defaultdict(list)
        for kernel in kernels:
            groups[kernel.name.partition("<")[0]].append(kernel)
        return groups

    lines = ["| kernel | | instances | registers | warps | instructions | local | spills | generic | spins | serial |",
             "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    sides = [("before", families(before)), ("after", families(after))]
    for name in sorted(set().union(*(groups for _, groups in sides))):
        if patterns and not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            continue
        for side, groups in sides:
            if name not in groups:
                continue
            group = groups[name]
            cells = [f"`{name}`", side, str(len(group)), span([k.registers for k in group]), span([k.warps for k in group]),
                     span([k.instructions for k in group])]
            cells += [span([getattr(k, column) for k in group], 0) for column in FAULTS]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--tools", required=True)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--table", default=pathlib.Path(__file__).resolve().parents[1] / "tests/gpu/kernels.txt")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--before", nargs="+", metavar="FILE")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--kernels", action="append", default=[], metavar="PATTERN")
    options = parser.parse_args(arguments)
    path = pathlib.Path(options.table)
    try:
        kernels = read(options.tools, [options.library])
        if options.before:
            sides = [[k for k in side if k.arch == options.arch] for side in (read(options.tools, options.before), kernels)]
            print("\n".join(comparison(*sides, options.kernels)))
            return 0
        if options.list:
            print("\n".join(listing([k for k in kernels if not options.kernels or any(
                fnmatch.fnmatchcase(k.name, pattern) for pattern in options.kernels)])))
            return 0
        table = Table(path.read_text() if path.exists() else "")
        if options.update:
            missing = {arch for arch, _ in table.rows} - {kernel.arch for kernel in kernels}
            if missing:
                print(f"error: the table has {', '.join(sorted(missing))}, this build has not; nothing was written")
                return 7
            path.write_text(table.text(kernels, options.nvcc))
            print(f"{path}: {len(kernels)} kernels, nvcc {options.nvcc}")
            table = Table(path.read_text())
        return check(kernels, table, options.nvcc)
    except machine_code.Unreadable as error:
        print(f"error: {error}")
        return 7


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
