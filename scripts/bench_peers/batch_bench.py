"""llama.cpp decoding several sequences at once, as its llama-batched-bench does; commands of worker.py."""
import math
import statistics

from . import llama


class BatchBench:
    """Every sequence has the same prompt in cells of its own; a batch of n are the first n of them."""

    def __init__(self, model, args, flash):
        self.counts, self.committed, self.steps = args["sequences"], args["context"], args["steps"]
        most = max(self.counts)
        self.context = llama.Context(model, most * args["cells"], args["threads"], flash, most)
        ids = llama.some_tokens(self.committed, model.n_vocab)
        for begin in range(0, self.committed, 512):
            self.context.decode(llama.Batch(ids[begin:begin + 512], begin, all_logits=False))
        self.context.copy_to(range(1, most), self.committed)
        self.batches = {n: llama.StepBatch(n) for n in self.counts}

    def turn(self, n):
        """[(ms with the argmax of all sequences, ms without)] of the steps of n sequences after the prompt."""
        batch, tokens, times = self.batches[n], [1] * n, []
        # In a row: llama.cpp keeps its graph from one step to the next of the same batch.
        for step in range(self.steps):
            batch.set(tokens, self.committed + step)
            begin = llama.clock_ms()
            logits = self.context.decode(batch)
            decoded = llama.clock_ms()
            tokens = self.context.rows(logits, n).argmax(axis=1)
            times.append((llama.clock_ms() - begin, decoded - begin))
        for sequence in range(n):
            self.context.keep(self.committed, sequence)
        return times

    def run(self, reps):
        """All counts in one loop, so that a change of the machine meets them alike; medians of the steps."""
        steps = {n: [] for n in self.counts}
        for rep in range(-1, reps):  # the first turn warms up
            for n in self.counts if rep % 2 == 0 else self.counts[::-1]:
                times = self.turn(n)
                if rep >= 0:
                    steps[n] += times
        return {"t_ms": {str(n): statistics.median(with_argmax for with_argmax, _ in steps[n])
                         for n in self.counts},
                "t_ms_without_argmax": {str(n): statistics.median(without for _, without in steps[n])
                                        for n in self.counts},
                "reps": reps, "steps": self.steps}


def batch(args):
    model = llama.Model(args["file"])
    return {**BatchBench(model, args, args["flash"]).run(args["reps"]), "flash": args["flash"],
            "buffers": model.buffers}


def batch_flash(args):
    """Both settings of flash attention in turn; the lower geometric mean over all counts wins."""
    model = llama.Model(args["file"])
    benches = {mode: BatchBench(model, args, mode) for mode in ("on", "off")}
    times = {mode: {n: [] for n in args["sequences"]} for mode in benches}
    for rep in range(-1, args["reps"]):
        for n in args["sequences"]:
            for mode, bench in benches.items():
                turn = [with_argmax for with_argmax, _ in bench.turn(n)]
                if rep >= 0:
                    times[mode][n] += turn
    ms = {mode: {str(n): statistics.median(values) for n, values in by_count.items()}
          for mode, by_count in times.items()}
    mean = {mode: math.prod(values.values()) for mode, values in ms.items()}
    return {"choice": min(mean, key=mean.get), "ms": ms}
