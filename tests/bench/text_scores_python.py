#!/usr/bin/env python3
"""Times PyPI rouge, rouge-score and sacrebleu on the texts of text_scores_bench.cpp and prints the ratio.

    build/release/bin/text_scores_bench --benchmark_format=json > ours.json
    pip install rouge==1.0.1 rouge-score==0.1.2 sacrebleu==2.6.0
    python3 tests/bench/text_scores_python.py ours.json

CPU time of one thread, median of several repetitions; scorer objects are made once, outside of the
timing. sacrebleu caches the tokens of the last 65,536 texts, so each call gets a text it has not seen.
"""
import json
import logging
import statistics
import sys
import threading
import time

from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import BLEU

logging.disable(logging.WARNING)


class Generator:
    def __init__(self, seed):
        self.state = seed

    def next(self, n):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return self.state * n >> 32


def make_text(seed, n_words):
    draw, text = Generator(seed), ""
    for i in range(n_words):
        word = draw.next(draw.next(2000) + 1)
        text += " " if i else ""
        text += "".join(chr(97 + (word * 7 + k * 11) % 26) for k in range(2 + word % 8))
        if draw.next(12) == 0:
            text += ".\n" if draw.next(4) == 0 else "."
    return text


def scorers():
    for name in ("rouge1", "rouge2", "rougeL"):
        pltrdy = Rouge(metrics=["rouge-" + name[5:].lower()])
        yield name + "@pltrdy", lambda a, r, i, s=pltrdy: s.get_scores(a, r)
    for name in ("rouge1", "rouge2", "rougeL", "rougeLsum"):
        google = RougeScorer([name])
        yield name + "@rouge_score", lambda a, r, i, s=google: s.score(r, a)
    bleu = BLEU(effective_order=True)
    yield "bleu@sacrebleu", lambda a, r, i: bleu.sentence_score(f"{a} x{i}", [f"{r} y{i}"])


def seconds(call, budget=1.0):
    """CPU seconds of a call: median over batches of at least 20 ms, for `budget` seconds or one call."""
    times, spent, i = [], 0.0, 0
    while spent < budget:
        n, start = 0, time.thread_time()
        while n == 0 or time.thread_time() - start < 0.02:
            call(i)
            n, i = n + 1, i + 1
        took = time.thread_time() - start
        times.append(took / n)
        spent += took
    return statistics.median(times)


def main():
    with open(sys.argv[1]) as file:
        ours = {b["name"]: b["cpu_time"] for b in json.load(file)["benchmarks"]}
    print("| measure | words | Python, us | evalrun, us | ratio |\n|---|---:|---:|---:|---:|")
    for n in (24, 120, 5000):
        reference, answer = make_text(1, n), make_text(2, n * 11 // 12)
        for name, score in scorers():
            python = seconds(lambda i: score(answer, reference, i)) * 1e6
            print(f"| {name} | {n:,} | {python:,.0f} | {ours[f'{name}/{n}']:,.2f} |"
                  f" {python / ours[f'{name}/{n}']:,.0f} |", flush=True)


sys.setrecursionlimit(100_000)
threading.stack_size(512 * 1024 * 1024)
thread = threading.Thread(target=main)
thread.start()
thread.join()
