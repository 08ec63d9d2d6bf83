"""What nvcc made of each kernel, read from its machine code: the eyes of scripts/check-kernels.

Two texts of cuobjdump are read. `--dump-resource-usage` has registers, shared and local memory. `-sass` has the
instructions, each with its 128 bits in hexadecimal. Launch bounds are in the ELF files inside (`--extract-elf`).

**Serial loads.** A GPU hides the time of a load by having others under way. A kernel that loads, waits, stores,
and only then loads again has nothing under way while it waits: each such turn takes a whole trip to memory. nvcc
makes this of loops whose pointers may alias, because no load may move above a store. Exactly: a load from global
memory (LDG, LD) is *serial* when on some way through the function

1. an instruction waited for an earlier load from global memory,
2. then a store to global memory was issued (STG, ST),
3. then this load is issued, while no other load from global memory is under way on any way there,

and neither a barrier, a fence, an atomic nor a wait for the kernel before came in between: those order accesses on
purpose. A loop without a load ahead of its turn counts once, as its first load follows the store of the turn before.
A loop that was unrolled counts once for each copy. So the number is about places in the code, not turns.

Which instruction waits for which load is in the instructions themselves. An instruction whose end is not known in
advance signals one of six scoreboards; one that needs its result waits for that scoreboard. The fields are not
documented by NVIDIA. They have been the same from sm_70 to sm_120: of the second 64 bits, 46 to 48 are the
scoreboard signalled (7: none) and 52 to 57 are those waited for. That every load signals one is checked while reading.

**Occupancy** is what registers, static shared memory and launch bounds allow, by the rules of NVIDIA's occupancy
calculator. Shared memory that a launch asks for is not in the machine code, so a launch may get less.
"""
import collections
import dataclasses
import re
import struct
import subprocess

# At once on a multiprocessor: warps, thread blocks, bytes of shared memory (CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability"). Common to all: 65,536 registers, given to warps in units of 256 and to four
# warps at a time; shared memory in units of 128 bytes, of which 1,024 a block are the system's.
LIMITS = {
    "sm_80": (64, 32, 164 << 10),
    "sm_86": (48, 16, 100 << 10),
    "sm_87": (48, 16, 164 << 10),
    "sm_89": (48, 24, 100 << 10),
    "sm_90": (64, 32, 228 << 10),
    "sm_100": (64, 32, 228 << 10),
    "sm_103": (64, 32, 228 << 10),
    "sm_120": (48, 24, 100 << 10),
    "sm_121": (48, 24, 100 << 10),
}
REGISTERS, WARP, RESERVED = 65536, 32, 1024

LOADS, STORES = {"LDG", "LD"}, {"STG", "ST"}
GENERIC = {"LD", "ST", "ATOM"}  # the address says which memory; ATOMG, LDS, STL and so on name it
SPILLS = {"LDL", "STL"}
# What orders accesses on purpose. ACQBULK waits for the kernel before, SYNCS for a barrier in shared memory.
ORDER = {"BAR", "MEMBAR", "FENCE", "ATOM", "ATOMG", "ACQBULK", "SYNCS", "UCGABAR_WAIT"}

FUNCTION = re.compile(r"^\s*Function : (\S+)")
ARCH = re.compile(r"^\s*code for (sm_\w+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z]\S*)\s*(.*?)\s*;\s*/\* 0x[0-9a-f]{16} \*/")
SECOND_HALF = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/\s*$")
DEPBAR = re.compile(r"SB(\d), 0x([0-9a-f]+)")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")

# address: bytes from the function's beginning; name: with its suffixes ("LDG.E.128"); signals: a scoreboard or None;
# waits: scoreboards, bit by bit.
Instruction = collections.namedtuple("Instruction", "address guard name operands signals waits")


class Unreadable(Exception):
    """What cuobjdump printed is not what is known here."""


@dataclasses.dataclass
class Kernel:
    """One kernel for one architecture. threads: of the launch bounds, 0 without; blocks and warps: at most so many on
    a multiprocessor, blocks 0 where the threads are unknown; local: bytes a thread; the rest counts instructions.
    places: addresses of serial loads."""
    arch: str
    name: str
    threads: int
    registers: int
    shared: int
    blocks: int
    warps: int
    local: int
    spills: int
    generic: int
    spins: int
    serial: int
    places: tuple = ()
    instructions: int = 0
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def base(name):
    """Without suffixes: "LDG" of "LDG.E.128"."""
    return name.partition(".")[0]


def read_functions(lines):
    """`cuobjdump -sass` -> {(arch, mangled name): [Instruction]}."""
    functions, arch, code, begun = {}, None, None, None
    for line in lines:
        if (found := INSTRUCTION.match(line)) and code is not None:
            begun = found
        elif begun and (found := SECOND_HALF.match(line)):
            bits = int(found.group(1), 16)
            signals = bits >> 46 & 7
            address, guard, name, operands = begun.groups()
            code.append(Instruction(int(address, 16), guard, name, operands, None if signals == 7 else signals,
                                    bits >> 52 & 63))
            begun = None
        elif found := FUNCTION.match(line):
            code = functions.setdefault((arch, found.group(1)), [])
            if code:  # the same template of two sources: either will do
                code = []
        elif found := ARCH.match(line):
            arch, code = found.group(1), None
    for (arch, function), code in functions.items():
        if not code:
            raise Unreadable(f"no instruction of {function} for {arch} was understood")
        for one in code:
            if base(one.name) in LOADS and one.signals is None:
                raise Unreadable(f"{function} for {arch}: {one.name} at {one.address:#x} signals no scoreboard; "
                                 "this architecture's instructions are not as scripts/machine_code.py takes them to be")
    return functions


def read_resources(lines):
    """`cuobjdump --dump-resource-usage` -> {(arch, mangled name): {"REG": 40, "STACK": 0, ...}}."""
    resources, arch, function = {}, None, None
    for line in lines:
        words = line.split()
        if line.startswith("arch = "):
            arch = words[2]
        elif words[:1] == ["Function"]:
            function = words[1].rstrip(":")
        elif words and words[0].startswith("REG:"):
            pairs = (word.split(":") for word in words if ":" in word)
            resources[arch, function] = {key: int(value) for key, value in pairs}
    return resources


def read_launch_bounds(elf):
    """Bytes of a cubin -> {mangled name: threads of a block at most}, of kernels that say so.

    A section .nv.info.NAME is a list of attributes: one byte of format, one of kind, two of value; with format 4 the
    value is the size of what follows. Kind 5 is the launch bound, 16 a size that must be (x, y, z)."""
    if elf[:4] != b"\x7fELF" or elf[4] != 2:
        raise Unreadable("not an ELF file of 64 bits")
    at, = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, at + i * size) for i in range(count)]
    bounds = {}
    for name, _, _, _, offset, length in sections:
        begin = sections[names][4] + name
        title = elf[begin:elf.index(b"\0", begin)].decode()
        if not title.startswith(".nv.info."):
            continue
        end = offset + length
        while offset + 4 <= end:
            form, kind, value = struct.unpack_from("<BBH", elf, offset)
            offset += 4
            if form == 4:
                if kind in (5, 16) and value == 12:
                    x, y, z = struct.unpack_from("<III", elf, offset)
                    bounds[title[len(".nv.info."):]] = x * y * z
                offset += value
    return bounds


def round_up(n, unit):
    return -(-n // unit) * unit


def occupancy(arch, threads, registers, shared):
    """(thread blocks, warps) on a multiprocessor; blocks 0 where threads is, both 0 for an unknown architecture."""
    if arch.rstrip("af") not in LIMITS:
        return 0, 0
    warps, blocks, memory = LIMITS[arch.rstrip("af")]
    if registers > 0:
        warps = min(warps, REGISTERS // round_up(registers * WARP, 256) // 4 * 4)
    if threads == 0:
        return 0, warps
    each = round_up(threads, WARP) // WARP
    blocks = min(blocks, warps // each, memory // round_up(shared + RESERVED, 128))
    return blocks, blocks * each


STEPS = LOADS | STORES | ORDER | {"DEPBAR"}


class Block:
    """Instructions that run one after the other. steps: those that matter to serial loads."""

    def __init__(self, code):
        self.code, self.next, self.state = code, [], None
        self.steps = [one for one in code if one.waits or base(one.name) in STEPS]


def target_of(one):
    found = TARGET.search(one.operands)
    return int(found.group(1), 16) if found else None


def flow(code):
    """{address: Block} of a function, in order, with what may follow each. The first is the entry; functions called
    within the code are entries, too, and a call is followed by what stands behind it."""
    known = {one.address for one in code}
    jumps = {"BRA", "JMP", "BRX", "JMX", "BRXU", "EXIT", "RET", "BSYNC", "KILL"}
    starts, aimed = {code[0].address}, set()
    for one, after in zip(code, code[1:] + [None]):
        if base(one.name) in {"BRA", "JMP", "BSSY", "CALL", "WARPSYNC"} and target_of(one) in known:
            aimed.add(target_of(one))
        if base(one.name) in jumps and after:
            starts.add(after.address)
    starts |= aimed
    blocks, run = {}, []
    for one in code:
        if one.address in starts and run:
            blocks[run[0].address] = Block(run)
            run = []
        run.append(one)
    blocks[run[0].address] = Block(run)
    order = list(blocks)
    # A jump by a register goes to what follows it, or to what nothing else leads to.
    loose = [at for before, at in zip(order, order[1:])
             if at not in aimed and ends(blocks[before].code[-1], {"BRA", "JMP", "EXIT", "RET", "BSYNC", "BRX", "JMX", "BRXU"})]
    for at, after in zip(order, order[1:] + [None]):
        block, last = blocks[at], blocks[at].code[-1]
        kind = base(last.name)
        if kind in {"BRX", "JMX", "BRXU"}:
            block.next += loose
        if kind in {"BRA", "JMP"} and target_of(last) in blocks:
            block.next.append(target_of(last))
        if after and not ends(last, jumps):
            block.next.append(after)
    meet(blocks, order[0])
    return blocks


def ends(one, kinds):
    """Whether nothing follows straight on: an unconditional jump, end or return."""
    if base(one.name) not in kinds or one.guard:
        return False
    # "BRA P0, 0x40" and "BRA.DIV UR4, 0x40" are conditional without a guard.
    return base(one.name) not in {"BRA", "JMP"} or "," not in one.operands


def meet(blocks, entry):
    """BSYNC goes where the BSSY said that opened the same barrier; that one is sought along the ways."""
    targets, work = {entry: {}}, [entry]
    for block in blocks.values():  # functions called within the code
        work += [at for at in map(target_of, calls(block)) if at in blocks]
    while work:
        at = work.pop()
        opened = dict(targets.setdefault(at, {}))
        for one in blocks[at].code:
            if base(one.name) == "BSSY":
                opened[one.operands.split(",")[0]] = frozenset([target_of(one)])
        last = blocks[at].code[-1]
        if base(last.name) == "BSYNC":
            for to in opened.get(last.operands, ()):
                if to in blocks and to not in blocks[at].next:
                    blocks[at].next.append(to)
        for to in blocks[at].next:
            there = targets.get(to)
            merged = {key: opened.get(key, frozenset()) | (there or {}).get(key, frozenset())
                      for key in opened.keys() | (there or {}).keys()}
            if there != merged:
                targets[to] = merged
                work.append(to)


def calls(block):
    return [one for one in block.code if base(one.name) == "CALL"]


# How far a way has come: nothing yet; a load was waited for; then something was stored. As bits, for several ways.
NOTHING, WAITED, STORED = 1, 2, 4


def walk(block, pending, phases, found=None):
    """State behind a block: scoreboards of loads under way, and phases. found takes addresses of serial loads."""
    for one in block.steps:
        name = base(one.name)
        awaited, left = one.waits, 0
        if name == "DEPBAR" and (barrier := DEPBAR.match(one.operands)):  # until so many loads are left
            awaited |= 1 << int(barrier.group(1))
            left = 1 << int(barrier.group(1)) if int(barrier.group(2), 16) else 0
        if pending & awaited:
            phases = phases & STORED | WAITED
            pending &= ~awaited | left
        if name in ORDER:
            phases = NOTHING
        if name in LOADS:
            if found is not None and phases & STORED and not pending:
                found.add(one.address)
            phases = NOTHING
            pending |= 1 << one.signals
        elif name in STORES and phases & WAITED:
            phases = phases & ~WAITED | STORED
    return pending, phases


def serial_loads(code):
    """Addresses of a function's serial loads, as said at the top."""
    blocks = flow(code)
    entries = {code[0].address} | {at for block in blocks.values() for at in map(target_of, calls(block))}
    work = [at for at in entries if at in blocks]
    for at in work:
        blocks[at].state = (0, NOTHING)
    while work:
        block = blocks[work.pop()]
        pending, phases = walk(block, *block.state)
        for to in block.next:
            before = blocks[to].state or (0, 0)
            after = (before[0] | pending, before[1] | phases)
            if after != blocks[to].state:
                blocks[to].state = after
                work.append(to)
    found = set()
    for block in blocks.values():
        if block.state:
            walk(block, *block.state, found)
    return sorted(found)


def short_name(name):
    """Without result, namespaces and arguments: "narrow_product<2, true>"."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    return re.sub(r"\b(?:\w+::)+", "", name)


def names_of(mangled):
    """{mangled name: short name}. Where two sources have a kernel of one name, the sources are named, too."""
    mangled = sorted(mangled)
    run = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    short = {name: short_name(said) for name, said in zip(mangled, run.stdout.splitlines())}
    often = collections.Counter(short.values())
    for name in mangled:
        if often[short[name]] > 1:
            source = re.search(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cu_", name)
            short[name] += f" [{source.group(1)}.cu]" if source else f" [{name}]"
    return short


def own_shared(arch, resources):
    """Bytes of static shared memory. From sm_90 on cuobjdump adds what is the system's, in kernels that have any."""
    used = resources.get("SHARED", 0)
    return used - RESERVED if used >= RESERVED and int(re.sub(r"\D", "", arch)) >= 90 else used


def kernels(functions, resources, bounds):
    """All of it put together: [Kernel], by architecture and name. bounds: {(arch, mangled name): threads}."""
    names = names_of({function for _, function in functions})
    listed = []
    for (arch, function), code in functions.items():
        if (arch, function) not in resources:
            raise Unreadable(f"{function} for {arch} has instructions, but no line of resources")
        used = resources[arch, function]
        threads = bounds.get((arch, function), 0)
        counts = collections.Counter(base(one.name) for one in code)
        places = serial_loads(code)
        shared = own_shared(arch, used)
        blocks, warps = occupancy(arch, threads, used["REG"], shared)
        listed.append(Kernel(
            arch=arch, name=names[function], threads=threads, registers=used["REG"], shared=shared, blocks=blocks, warps=warps,
            local=used.get("STACK", 0) + used.get("LOCAL", 0), spills=sum(counts[s] for s in SPILLS),
            generic=sum(counts[g] for g in GENERIC), spins=sum(".SPIN" in one.name for one in code), serial=len(places),
            places=tuple(places), instructions=sum(one.name != "NOP" for one in code), counts=counts))
    return sorted(listed, key=lambda k: (int(re.sub(r"\D", "", k.arch)), k.arch, k.name))
