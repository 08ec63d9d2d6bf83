"""One line on standard error: share done, loss, tokens per second, time left."""
import sys
import time


def clock(seconds):
    seconds = max(0, int(seconds + 0.5))
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}:{minutes:02d}:{seconds % 60:02d}" if hours else f"{minutes}:{seconds % 60:02d}"


class Progress:
    """Rewrites its line on a terminal; elsewhere prints one every `every` seconds."""

    def __init__(self, label, stream=None, every=15.0):
        self.label, self.stream = label, stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.every = 0.5 if self.terminal else every
        self.last = self.begun = time.monotonic()
        self.first_share, self.first_tokens = None, 0

    def show(self, share, loss, tokens, force=False):
        now = time.monotonic()
        if self.first_share is None:
            self.first_share, self.first_tokens, self.begun = share, tokens, now
        if now - self.last < self.every and not force:
            return
        self.last = now
        elapsed, done = now - self.begun, share - self.first_share
        left = clock(elapsed / done * (1 - share)) if done > 1e-6 else "?"
        rate = (tokens - self.first_tokens) / elapsed if elapsed > 0 else 0.0
        text = f"{self.label} {share:6.1%}  loss {loss:.4f}  {rate:,.0f} tokens/s  {left} left"
        if self.terminal:
            print(f"\r\033[K{text}", end="", file=self.stream, flush=True)
        else:
            print(text, file=self.stream, flush=True)

    def end(self):
        if self.terminal:
            print(file=self.stream, flush=True)


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)
