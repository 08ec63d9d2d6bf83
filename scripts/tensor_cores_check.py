"""The emulated device's mma.sync beside MMA-Sim (PyPI's mmasim): the work of scripts/check-tensor-cores.

Matrices of one mma.m16n8k16 are A [16, 16] and B [16, 8] in bfloat16, C and D [16, 8] in float32. mmasim takes
many of them at once: vectors of factors, [..., 16].
"""
import argparse
import importlib.metadata
import os
import subprocess
import sys

import numpy as np
import torch
from mmasim.nv_ptx import MMA

OUTPUTS = 16 * 8
BATCH = 512  # matrices
ARCHITECTURES = {"hopper": "Hopper", "ampere": "Ampere"}
MISTAKES = ("bit-less", "bit-more", "terms-rounded", "sums-rounded", "other-number-at-once",
            "zeros-without-exponent", "subnormals-normalised")


def bf16(x):
    """Bits of the nearest bfloat16 (numbers that are none stay so)."""
    rounded = torch.from_numpy(np.asarray(x, dtype=np.float32)).to(torch.bfloat16)
    return rounded.view(torch.int16).numpy().view(np.uint16)


def wide(rng, shape, low, high):
    """Signs and significands at random, exponents from low to high."""
    return np.ldexp((1 + rng.random(shape)) * rng.choice([-1, 1], shape), rng.integers(low, high + 1, shape))


def any_bits(rng, shape, bits):
    return rng.integers(0, 1 << bits, shape, dtype=np.uint64)


def usual(rng, n):
    """As activations and weights are."""
    return bf16(rng.normal(0, 1, (n, 16, 16))), bf16(rng.normal(0, 0.05, (n, 16, 8))), \
        rng.normal(0, 1, (n, 16, 8)).astype(np.float32)


def spread(rng, n):
    """Factors of very different sizes, so that most terms are cut; a sum near the largest."""
    return bf16(wide(rng, (n, 16, 16), -12, 12)), bf16(wide(rng, (n, 16, 8), -12, 12)), \
        wide(rng, (n, 16, 8), -24, 24).astype(np.float32)


def cancelling(rng, n):
    """The second eight products are nearly the first eight's negatives: little is left."""
    a, b = wide(rng, (n, 16, 16), -3, 3), wide(rng, (n, 16, 8), -3, 3)
    a[:, :, 8:] = -a[:, :, :8] * (1 + (rng.random((n, 16, 8)) < 0.3) * 2.0**-7)
    b[:, 8:, :] = b[:, :8, :]
    return bf16(a), bf16(b), wide(rng, (n, 16, 8), -30, -5).astype(np.float32)


def tiny(rng, n):
    """Products and sums about the least of float32; many subnormal factors and zeros."""
    a, b = wide(rng, (n, 16, 16), -133, -60), wide(rng, (n, 16, 8), -90, 0)
    a[rng.random(a.shape) < 0.1] = 0
    b[rng.random(b.shape) < 0.1] = 0
    c = wide(rng, (n, 16, 8), -149, -120).astype(np.float32)
    c[rng.random(c.shape) < 0.3] = 0
    return bf16(a), bf16(b), c


def least(rng, n):
    """Whole multiples of the least number, and terms far below it that the exponent of C, a zero, cuts away."""
    a = np.ldexp(rng.choice([-1.0, 1.0], (n, 16, 16)), rng.integers(-106, -88, (n, 16, 16)))
    a[:, :, 8 * rng.integers(0, 2, n)[0]] = np.ldexp(rng.choice([-1.0, 1.0], (n, 16)), rng.integers(-79, -75, (n, 16)))
    b = np.full((n, 16, 8), 2.0**-70)
    return bf16(a), bf16(b), rng.choice(np.array([0.0, -0.0], dtype=np.float32), (n, 16, 8))


def subnormal(rng, n):
    """Subnormal factors times large ones, beside normal products of the same size."""
    a = bf16(wide(rng, (n, 16, 16), -126, -122))
    at = rng.random(a.shape) < 0.6
    a[at] = rng.integers(1, 1 << rng.integers(1, 8, int(at.sum()))) | rng.choice([0, 1 << 15], int(at.sum()))
    return a, bf16(wide(rng, (n, 16, 8), 90, 110)), wide(rng, (n, 16, 8), -60, -20).astype(np.float32)


def huge(rng, n):
    """About the largest number: some sums are infinite."""
    return bf16(wide(rng, (n, 16, 16), 40, 64)), bf16(wide(rng, (n, 16, 8), 40, 63)), \
        wide(rng, (n, 16, 8), 100, 127).astype(np.float32)


def any_number(rng, n):
    """All bits at random: sizes of all of float32, infinities and numbers that are none among them."""
    def rare(bits, mask):
        special = bits & mask == mask
        return np.where(special & (rng.random(bits.shape) < 0.9), bits ^ (mask & -mask), bits)
    return rare(any_bits(rng, (n, 16, 16), 16), 0x7F80).astype(np.uint16), \
        rare(any_bits(rng, (n, 16, 8), 16), 0x7F80).astype(np.uint16), \
        rare(any_bits(rng, (n, 16, 8), 32), 0x7F800000).astype(np.uint32).view(np.float32)


def specials(rng, n):
    """Usual numbers with zeros of both signs, infinities and numbers that are none here and there."""
    a, b, c = usual(rng, n)
    for bits, share in ((a, 0.02), (b, 0.02)):
        at = rng.random(bits.shape) < share
        bits[at] = rng.choice(np.array([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 1], dtype=np.uint16), int(at.sum()))
    at = rng.random(c.shape) < 0.1
    c.view(np.uint32)[at] = rng.choice(
        np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 1], dtype=np.uint32), int(at.sum()))
    return a, b, c


def minus_zeros(rng, n):
    """Zeros of both signs and a few numbers, as of rows that a step does not have; onto any sum."""
    def zeros(shape, bits, kind):
        x = np.where(rng.random(shape) < 0.8, 1 << (bits - 1), 0)
        return np.where(rng.random(shape) < 0.02, 0x3F80 << (bits - 16), x).astype(kind)
    c = np.where(rng.random((n, 16, 8)) < 0.5, zeros((n, 16, 8), 32, np.uint32),
                 any_bits(rng, (n, 16, 8), 32).astype(np.uint32))
    return zeros((n, 16, 16), 16, np.uint16), zeros((n, 16, 8), 16, np.uint16), c.view(np.float32)


KINDS = (usual, spread, cancelling, tiny, least, subnormal, huge, any_number, specials, minus_zeros)


def by_mmasim(operation, a, b, c):
    def factors(bits):
        return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)
    n = len(a)
    rows = factors(a)[:, :, None, :].expand(n, 16, 8, 16)
    columns = factors(b).transpose(1, 2)[:, None, :, :].expand(n, 16, 8, 16)
    d = operation.dpa(rows, columns, torch.from_numpy(c.copy()))
    return d.contiguous().view(torch.int32).numpy().view(np.uint32)


def by_emulator(program, architecture, a, b, c, mistake=None):
    n = len(a)
    cases = np.concatenate([x.reshape(n, -1).view(np.uint8) for x in (a, b, np.ascontiguousarray(c))], axis=1)
    run = subprocess.run([program] + ([mistake] if mistake else []), input=cases.tobytes(), capture_output=True,
                         env={**os.environ, "CUDA_EMULATOR_MMA": architecture}, check=False)
    if run.returncode != 0:
        raise SystemExit(f"error: {program} failed: {run.stderr.decode()}")
    return np.frombuffer(run.stdout, dtype=np.uint32).reshape(n, 16, 8)


def text(bits):
    return f"{int(bits):08x} ({np.uint32(bits).view(np.float32):.9g})"


def compare(program, architecture, n_outputs, seed):
    """Returns how many outputs were compared, how many differ, and how many differ by each mistake in some of them."""
    operation = MMA(ARCHITECTURES[architecture], "m16n8k16.f32.bf16.bf16.f32")
    rng = np.random.default_rng(seed)
    batch = min(BATCH, -(-n_outputs // (OUTPUTS * len(KINDS))))
    compared, different, seen = 0, 0, {mistake: 0 for mistake in MISTAKES}
    turns = -(-n_outputs // (OUTPUTS * batch))
    for turn in range(max(turns, len(KINDS))):
        kind = KINDS[turn % len(KINDS)]
        a, b, c = kind(rng, batch)
        want, got = by_mmasim(operation, a, b, c), by_emulator(program, architecture, a, b, c)
        wrong = np.argwhere(want != got)
        for m, r, k in wrong[:max(0, 3 - different)]:
            print(f"{architecture}, {kind.__name__}: mmasim has {text(want[m, r, k])}, "
                  f"the emulator {text(got[m, r, k])}, of C {text(c[m, r, k].view(np.uint32))}\n"
                  f"  A {' '.join(f'{x:04x}' for x in a[m, r])}\n  B {' '.join(f'{x:04x}' for x in b[m, :, k])}")
        different += len(wrong)
        compared += want.size
        if turn < len(KINDS):
            for mistake in MISTAKES:
                seen[mistake] += int((by_emulator(program, architecture, a, b, c, mistake) != want).sum())
    return compared, different, seen


def write_cases(path):
    """Per kind some outputs: the kind, A's row, B's column, C, then D of each architecture."""
    rng = np.random.default_rng(20261128)
    with open(path, "w", encoding="ascii") as out:
        out.write("# One output of mma.m16n8k16 a line: 16 factors of A, 16 of B (bfloat16), C, then what\n"
                  f"# mmasim {importlib.metadata.version('mmasim')} computes for Hopper and for Ampere (float32), "
                  "in hexadecimal.\n# Written by scripts/check-tensor-cores --write.\n")
        for kind in KINDS:
            a, b, c = kind(rng, 1)
            d = [by_mmasim(MMA(name, "m16n8k16.f32.bf16.bf16.f32"), a, b, c) for name in ARCHITECTURES.values()]
            for i in range(24):
                r, k = i % 16, (3 * i + i // 16) % 8
                words = [f"{x:04x}" for x in (*a[0, r], *b[0, :, k])]
                words += [f"{int(x[0, r, k]):08x}" for x in (c.view(np.uint32), *d)]
                out.write(" ".join(words) + "\n")
    print(f"{path}: written")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--write")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.write:
        write_cases(options.write)
        return 0
    good = True
    for architecture in ARCHITECTURES:
        compared, different, seen = compare(options.program, architecture, options.cases, options.seed)
        print(f"{architecture}: {compared - different} of {compared} outputs have mmasim's bits")
        print("  with a mistake other bits in: " + ", ".join(f"{name} {n}" for name, n in seen.items()))
        missed = [name for name, n in seen.items() if n == 0]
        if missed:
            print(f"  not seen: {', '.join(missed)}")
        good = good and different == 0 and not missed
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
