"""One measurement of llama.cpp in a process of its own; JSON on standard input and output.

    python -m bench_peers.worker info|quantize|write_shape|speed|flash|batch|batch_flash|tokenize|quality
"""
import json
import math
import statistics
import sys

import numpy as np

from . import batch_bench, llama


class SpeedBench:
    def __init__(self, model, args, flash):
        self.context_tokens, self.rows = args["context"], args["rows"]
        self.greedy_tokens = args["greedy"]
        most = max([self.greedy_tokens, *self.rows])
        # At least 2048 as an application would; llama.cpp computes over the cells in use only.
        self.context = llama.Context(model, max(2048, self.context_tokens + most), args["threads"], flash)
        ids = llama.some_tokens(self.context_tokens + most, model.n_vocab)
        for begin in range(0, self.context_tokens, 512):
            part = ids[begin:min(begin + 512, self.context_tokens)]
            self.context.decode(llama.Batch(part, begin, all_logits=False))
        self.batches = {n: llama.Batch(ids[self.context_tokens:self.context_tokens + n], self.context_tokens)
                        for n in self.rows}
        self.single = llama.Batch([0], 0)
        self.prefill_context = self.prefill_batches = None
        n = args["prefill"]
        if n > 0:
            # A context of its own: the committed tokens of the other one stay where they are.
            self.prefill_context = llama.Context(model, max(2048, n), args["threads"], flash)
            ids = llama.some_tokens(n, model.n_vocab)
            self.prefill_batches = [llama.Batch(ids[b:b + 512], b, all_logits=False)
                                    for b in range(0, n, 512)]

    def close(self):
        self.context.close()
        if self.prefill_context:
            self.prefill_context.close()

    def forward(self, n):
        """(ms with the argmax of all rows, ms without)."""
        batch = self.batches[n]
        begin = llama.clock_ms()
        logits = self.context.decode(batch)
        decoded = llama.clock_ms()
        self.context.rows(logits, n).argmax(axis=1)
        end = llama.clock_ms()
        self.context.keep(self.context_tokens)
        return end - begin, decoded - begin

    def greedy(self):
        """ms of decoding greedily, one token after the other."""
        token, position = 1, self.context_tokens
        begin = llama.clock_ms()
        for _ in range(self.greedy_tokens):
            self.single.set_single(token, position)
            token = int(self.context.rows(self.context.decode(self.single), 1)[0].argmax())
            position += 1
        end = llama.clock_ms()
        self.context.keep(self.context_tokens)
        return end - begin

    def prefill(self):
        begin = llama.clock_ms()
        for batch in self.prefill_batches:
            logits = self.prefill_context.decode(batch)
        self.prefill_context.rows(logits, 1).argmax(axis=1)
        end = llama.clock_ms()
        self.prefill_context.keep(0)
        return end - begin

    def run(self, reps):
        """All row counts in one loop, so that a change of the machine meets them alike; medians."""
        total = {n: [] for n in self.rows}
        decode = {n: [] for n in self.rows}
        greedy, prefill = [], []
        for rep in range(-1, reps):  # the first turn warms up
            order = self.rows if rep % 2 == 0 else self.rows[::-1]
            for n in order:
                with_argmax, without = self.forward(n)
                if rep >= 0:
                    total[n].append(with_argmax)
                    decode[n].append(without)
            # Long ones less often: a third of the turns.
            if rep < 0 or rep % 3 == 0:
                if self.greedy_tokens > 0:
                    greedy.append(self.greedy())
                if self.prefill_context:
                    prefill.append(self.prefill())
        result = {"t_ms": {str(n): statistics.median(total[n]) for n in self.rows},
                  "t_ms_without_argmax": {str(n): statistics.median(decode[n]) for n in self.rows},
                  "reps": reps}
        if greedy:
            result["greedy_tok_s"] = self.greedy_tokens / statistics.median(greedy[1:]) * 1e3
        if prefill:
            n = sum(batch.n for batch in self.prefill_batches)
            result["prefill_tokens"] = n
            result["prefill_tok_s"] = n / statistics.median(prefill[1:]) * 1e3
        return result


def speed(args):
    model = llama.Model(args["file"])
    bench = SpeedBench(model, args, args["flash"])
    return {**bench.run(args["reps"]), "flash": args["flash"], "buffers": model.buffers}


def flash(args):
    """Both settings of flash attention in turn; the lower geometric mean of T(1), T(16), prefill wins."""
    model = llama.Model(args["file"])
    some = {**args, "rows": [1, 16], "greedy": 0}
    benches = {mode: SpeedBench(model, some, mode) for mode in ("on", "off")}
    times = {mode: {"1": [], "16": [], "prefill": []} for mode in benches}
    for rep in range(-1, args["reps"]):
        for mode, bench in benches.items():
            turn = {"1": bench.forward(1)[0], "16": bench.forward(16)[0]}
            turn["prefill"] = bench.prefill() if bench.prefill_context else 1.0
            if rep >= 0:
                for key, value in turn.items():
                    times[mode][key].append(value)
    ms = {mode: {key: statistics.median(values) for key, values in by_key.items()}
          for mode, by_key in times.items()}
    mean = {mode: math.prod(values.values()) for mode, values in ms.items()}
    return {"choice": min(mean, key=mean.get), "ms": ms}


def quantize(args):
    llama.quantize(args["source"], args["target"], args["ftype"], args["threads"])
    return {}


def write_shape(args):
    from . import shape_writer  # needs the gguf package, which nothing else does
    shape_writer.write(**args)
    return {}


def info(_args):
    return llama.build_info()


def tokenize(args):
    """Ids of the first lines of a text, as few lines as hold at_least tokens (all if there are fewer)."""
    with open(args["text"], encoding="utf-8") as file:
        lines = file.read().split("\n")
    model = llama.Model(args["file"])

    def ids(n):
        return model.tokenize("\n".join(lines[:n]))
    # First an upper bound by doubling, so that a book is not tokenized for its first pages.
    high = min(64, len(lines))
    while high < len(lines) and len(ids(high)) < args["at_least"]:
        high = min(2 * high, len(lines))
    low = 1
    while low < high:
        middle = (low + high) // 2
        if len(ids(middle)) >= args["at_least"]:
            high = middle
        else:
            low = middle + 1
    return {"lines": low, "ids": ids(low)}


def log_softmax(logits):
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def quality(args):
    """Negative log-likelihood of the second half of each chunk, and the distance to the reference."""
    ids, chunk = args["ids"], args["chunk"]
    contexts = {name: llama.Context(llama.Model(path), chunk, args["threads"], "auto")
                for name, path in args["files"].items()}
    first = chunk // 2  # rows first .. chunk-2 predict the tokens first+1 .. chunk-1
    n = chunk - 1 - first
    sums = {name: {"nll": 0.0, "kl": 0.0, "same_top1": 0} for name in contexts}
    chunks = len(ids) // chunk
    for index in range(chunks):
        tokens = ids[index * chunk:(index + 1) * chunk]
        next_tokens = np.asarray(tokens[first + 1:])
        reference = None
        for name, context in contexts.items():  # the reference is the first
            context.keep(0)
            batch = llama.Batch(tokens, 0)
            batch.wanted[:] = 0
            batch.wanted[first:chunk - 1] = 1
            logits = context.rows(context.decode(batch), n)
            top = logits.argmax(axis=1)
            log_p = log_softmax(logits)
            sums[name]["nll"] -= float(log_p[np.arange(n), next_tokens].sum())
            if reference is None:
                reference = (top, log_p)
            sums[name]["kl"] += float((np.exp(reference[1]) * (reference[1] - log_p)).sum())
            sums[name]["same_top1"] += int((top == reference[0]).sum())
        print(f"   chunk {index + 1} of {chunks}", end="\r", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    scored = chunks * n
    return {"scored": scored,
            "files": {name: {"perplexity": math.exp(s["nll"] / scored), "kl": s["kl"] / scored,
                             "same_top1": s["same_top1"] / scored} for name, s in sums.items()}}


COMMANDS = {f.__name__: f for f in (info, quantize, write_shape, speed, flash, batch_bench.batch,
                                    batch_bench.batch_flash, tokenize, quality)}


def main():
    try:
        print(json.dumps(COMMANDS[sys.argv[1]](json.load(sys.stdin))))
    except (llama.LlamaError, ImportError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
