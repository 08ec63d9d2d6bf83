"""The training loop of every method: budget, learning rate, checkpoints, resuming.

Everything random is a function of (seed, epoch, step), so that a checkpoint needs only counters,
and a killed training that goes on ends with the same weights as one that was not (same threads, and
a budget of tokens, updates or epochs; a budget of time is another with every machine).
"""
import dataclasses
import math
import os
import pathlib
import signal
import time

import torch

from .errors import Failure
from .progress import Progress, say

CURVE_POINTS = 50  # of the loss, in the adapter's metadata
# What is left of the rate at a share of the budget.
SCHEDULES = {"cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
             "linear": lambda share: 1 - share,
             "constant": lambda share: 1.0}


@dataclasses.dataclass
class Budget:
    """How long to train; what is None does not limit. Seconds are wall time of the loop."""
    seconds: float = None
    cpu_seconds: float = None
    tokens: int = None
    epochs: float = None
    updates: int = None

    def share(self, state, epoch_share):
        """0..1: how much of the budget is used."""
        used = [(self.seconds, state.wall_seconds), (self.cpu_seconds, state.cpu_seconds),
                (self.tokens, state.tokens), (self.epochs, epoch_share), (self.updates, state.step)]
        shares = [now / limit for limit, now in used if limit]
        if not shares:
            raise Failure("--minutes", "no budget is given",
                          "give --minutes, --cpu-seconds, --tokens, --updates or --epochs")
        return min(1.0, max(shares))


@dataclasses.dataclass
class State:
    """Counters of a training; all that a checkpoint holds besides weights and optimiser."""
    step: int = 0
    epoch: int = 0
    index: int = 0  # batches of this epoch that are done
    tokens: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    curve: list = dataclasses.field(default_factory=list)  # [tokens, loss] about CURVE_POINTS times
    mean_loss: float = 0.0


def seed_of(*values):
    number = 0
    for value in values:
        number = (number * 1_000_003 + int(value)) % (1 << 62)
    return number


def generator(*values):
    """Random numbers that are a function of the values alone."""
    return torch.Generator().manual_seed(seed_of(*values))


def learning_rate(step, share, warmup, schedule="cosine"):
    """Factor of the rate: linear warm-up (steps, or a share of the budget below 1, 0 = none), and
    the schedule over the whole budget."""
    risen = (step + 1) / warmup if warmup >= 1 else (share + 1e-3) / max(warmup, 1e-3)
    return min(1.0, risen) * SCHEDULES[schedule](share)


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; the checkpoint is written."""


class Trainer:
    def __init__(self, module, feed, options, budget, folder, settings):
        self.module, self.feed, self.options, self.budget = module, feed, options, budget
        self.folder = pathlib.Path(folder)
        self.settings = settings
        self.state = State()
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        rate_of = getattr(module, "rate_of", lambda name, options: 1.0)
        self.optimiser = torch.optim.AdamW(
            [{"params": [p], "rate": rate_of(name, options)} for name, p
             in module.named_parameters() if p.requires_grad],
            lr=options.lr, betas=tuple(options.betas), weight_decay=options.weight_decay,
            foreach=True)
        self.stop = False

    @property
    def checkpoint(self):
        return self.folder / "checkpoint.pt"

    # Checkpoints ---------------------------------------------------------------------------------
    def save(self):
        """Atomic: a reader or a later start sees the old one or the new one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.checkpoint.with_suffix(".tmp")
        with open(temporary, "wb") as handle:
            torch.save({"settings": self.settings, "state": dataclasses.asdict(self.state),
                        "weights": {n: p.detach() for n, p in self.module.named_parameters()},
                        "optimiser": self.optimiser.state_dict()}, handle)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, self.checkpoint)

    def resume(self):
        """True when a checkpoint of the same settings was loaded; a Failure on other settings."""
        if not self.checkpoint.exists():
            return False
        remedy = "give another --out, or --restart to begin anew"
        try:
            # Copied from there: the optimiser's counters stay on the CPU, whatever the device.
            saved = torch.load(self.checkpoint, map_location="cpu", weights_only=True)
            then = saved["settings"]
        except Exception as error:  # torch raises many kinds for a broken file
            raise Failure(self.checkpoint, f"cannot be read ({error})", remedy) from error
        for key in sorted(set(then) | set(self.settings)):
            if then.get(key) != self.settings.get(key):
                raise Failure(self.checkpoint, f"was made with {key} = {then.get(key)}, now it is "
                              f"{self.settings.get(key)}", remedy)
        with torch.no_grad():
            for name, parameter in self.module.named_parameters():
                parameter.copy_(saved["weights"][name])
        try:
            self.optimiser.load_state_dict(saved["optimiser"])
        except ValueError as error:
            raise Failure(self.checkpoint, f"was made by another version ({error})",
                          remedy) from error
        self.state = State(**saved["state"])
        return True

    # Loop ----------------------------------------------------------------------------------------
    def epoch_share(self):
        return self.state.epoch + self.state.index / self.feed.n_batches(self.state.epoch)

    def share(self):
        return self.budget.share(self.state, self.epoch_share())

    def run(self, steps=None):
        """Trains until the budget is used (or `steps` are done); raises Interrupted when told to
        stop."""
        previous = {s: signal.signal(s, self.on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        progress = Progress(self.module.name)
        saved_at = time.monotonic()
        begun = self.state.step
        try:
            while self.share() < 1.0 and (steps is None or self.state.step - begun < steps):
                self.one_step()
                progress.show(self.share(), self.state.mean_loss, self.state.tokens)
                if self.stop or time.monotonic() - saved_at > self.options.save_every:
                    self.save()
                    saved_at = time.monotonic()
                if self.stop:
                    raise Interrupted
            progress.show(self.share(), self.state.mean_loss, self.state.tokens, force=True)
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise out_of_memory(self.options.batch) from error
        except RuntimeError as error:
            if "memory" in str(error).lower():
                raise out_of_memory(self.options.batch) from error
            raise
        finally:
            progress.end()
            for number, handler in previous.items():
                signal.signal(number, handler)
        self.save()

    def on_signal(self, number, frame):
        if self.stop:  # the second time: at once
            raise KeyboardInterrupt
        self.stop = True
        say("stopping after this step")

    def one_step(self):
        """Its loss."""
        state, options = self.state, self.options
        wall, cpu = time.monotonic(), time.process_time()
        if state.index >= self.feed.n_batches(state.epoch):
            state.epoch, state.index = state.epoch + 1, 0
        share = self.share()
        left = learning_rate(state.step, share, options.warmup, options.schedule)
        for group in self.optimiser.param_groups:
            group["lr"] = group["rate"] * options.lr * left
        batch = self.feed.batch(state.epoch, state.index)
        # Dropout draws from PyTorch's own generator. A training that goes on must draw the same.
        torch.manual_seed(seed_of(options.seed, state.step))
        with self.module.frozen.autocast():
            loss, _, tokens = self.module.loss(batch, options, generator(options.seed, state.step),
                                               share)
        loss.backward()
        if options.clip and options.clip_kind == "value":
            torch.nn.utils.clip_grad_value_(self.parameters, options.clip)
        elif options.clip:
            torch.nn.utils.clip_grad_norm_(self.parameters, options.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise Failure("training", f"the loss is {value} after {state.step + 1} steps",
                          "lower --lr", 6)
        # A plain mean at first, then one of about the last 40 steps.
        state.mean_loss += (value - state.mean_loss) * max(0.05, 1 / (state.step + 1))
        state.step += 1
        state.index += 1
        state.tokens += tokens
        state.wall_seconds += time.monotonic() - wall
        state.cpu_seconds += time.process_time() - cpu
        if len(state.curve) < 1 + CURVE_POINTS * self.share():
            state.curve.append([state.tokens, round(state.mean_loss, 4)])
        return value


def out_of_memory(batch):
    return Failure("training", "out of memory", f"lower --batch (now {batch}), or --vocabulary", 6)
