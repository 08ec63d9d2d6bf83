"""Reads what `evalrun capture --out DIR` wrote: token sequences with hidden states.

Indices: a sequence holds tokens x_0..x_{n-1}, the first `prompt` of them the prompt. hidden[i] is
the target's state after its final norm at token i and predicts token i+1; the last row is zero,
because the last token was never fed. A drafter's *pair* t is (hidden[t], x_{t+1}); what it is asked
for is x_{t+2}. Base positions run from t = prompt-1 (the first answer token is pending, as it is
after a prefill) to n-3.

A dialogue has an answer in every turn. Each of them is a `Sequence` of its own here: what stands
before the answer, and the answer. They begin at the same row of the part: states are stored once.
"""
import dataclasses
import hashlib
import json
import pathlib

import numpy as np
import torch

from .. import tensorfile
from ..errors import Failure

FEWEST_ANSWER_TOKENS = 8  # shorter answers have next to no draft position


@dataclasses.dataclass(frozen=True)
class Sequence:
    part: int
    start: int  # first row inside the part
    n: int  # tokens, prompt and answer
    prompt: int
    folder: int  # number of the capture folder
    line: int  # line of its prompt list
    fresh: int = 0  # tokens before this one stand in earlier turns of the dialogue, too

    @property
    def n_bases(self):
        """Base positions t = prompt-1 .. n-3."""
        return max(self.n - 1 - self.prompt, 0)


class Capture:
    """All finished parts of one or more capture folders of the same model, mapped into memory."""

    def __init__(self, folders):
        folders = [folders] if isinstance(folders, (str, pathlib.Path)) else folders
        self.folders = [pathlib.Path(folder) for folder in folders]
        self.infos = [read_info(folder / "capture.json") for folder in self.folders]
        self.model = self.infos[0]["model"]
        self.d_model = int(self.model["d_model"])
        # "self": the model's own greedy answers; "dataset": answers of others, states of the model.
        self.answers = self.infos[0].get("answers", "self")
        self.residual_layers = list(self.infos[0].get("residual_layers") or [])
        for folder, info in zip(self.folders, self.infos):
            for field in ("hash", "d_model", "vocab_size"):
                if info["model"][field] != self.model[field]:
                    raise Failure(folder / "capture.json",
                                  f"model.{field} is {info['model'][field]}, in {self.folders[0]} "
                                  f"it is {self.model[field]}",
                                  "join captures of one model only")
            if info.get("answers", "self") != self.answers:
                raise Failure(folder / "capture.json",
                              f"answers is {info.get('answers', 'self')}, in {self.folders[0]} it "
                              f"is {self.answers}", "join captures of one kind of answers only")
            if list(info.get("residual_layers") or []) != self.residual_layers:
                self.residual_layers = []  # streams that only some folders have are of no use
        self.parts, self.sequences = [], []
        for number, folder in enumerate(self.folders):
            for path in sorted(folder.glob("part-*.safetensors")):
                self.add_part(path, number)
        if not self.sequences:
            raise Failure(self.folders[0], "holds no answers of at least "
                          f"{FEWEST_ANSWER_TOKENS} tokens",
                          "run evalrun capture until a part is finished")

    @property
    def path(self):
        return self.folders[0]

    def add_part(self, path, folder):
        tensors, metadata = tensorfile.read(path)
        if metadata.get("format") != "evalrun-capture":
            raise Failure(path, "is no part of a capture", "remove it")
        wanted = ["tokens", "start", "prompt", "line", "ended", "hidden"]
        wanted += ["residual"] if self.residual_layers else []
        for name in wanted:
            if name not in tensors:
                raise Failure(path, f"tensor {name} is missing",
                              "delete this part and generate again")
        n = len(tensors["tokens"])
        widths = {"hidden": self.d_model, "residual": self.d_model * len(self.residual_layers)}
        for name in wanted[5:]:
            if tuple(tensors[name].shape) != (n, widths[name]):
                raise Failure(path, f"tensor {name} has the shape {list(tensors[name].shape)}, not "
                              f"{[n, widths[name]]}", "delete this part and generate again")
        starts = tensors["start"].tolist()
        if starts[0] != 0 or starts[-1] != n:
            raise Failure(path, "field start does not cover all tokens",
                          "delete this part and generate again")
        index = len(self.parts)
        self.parts.append(tensors)
        lines = tensors["line"].tolist()
        before = None  # the tokens of this line's text before
        for s, spans in enumerate(answers_of(path, tensors, starts)):
            ids = tensors["tokens"][starts[s]:starts[s + 1]]
            fresh = 0
            if s > 0 and lines[s] == lines[s - 1]:  # the template wrote earlier turns otherwise
                both = min(len(ids), len(before), spans[0][0])
                equal = (ids[:both] == before[:both]).int().cumprod(0)
                fresh = int(equal.sum())
            before = ids
            for first, last in spans:
                if last - first >= FEWEST_ANSWER_TOKENS and first > 0:
                    self.sequences.append(Sequence(index, starts[s], last, first, folder, lines[s],
                                                   fresh))
                    fresh = last

    def fingerprint(self):
        """Changes when sequences are added: a resumed training must see the same ones."""
        text = f"{self.model['hash']} {[(s.folder, s.line, s.n) for s in self.sequences]}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def tokens(self, s):
        """The int64 ids of a sequence, prompt and answer."""
        return self.parts[s.part]["tokens"][s.start:s.start + s.n].long()

    def rows(self, s, name, first, last):
        """Rows first..last-1 of a sequence's `hidden` or `residual`, bfloat16."""
        return self.parts[s.part][name][s.start + first:s.start + last]

    def hidden_at(self, parts, rows):
        """hidden of many places at once: part numbers and rows inside them, int64 [N]."""
        out = torch.empty(len(rows), self.d_model, dtype=torch.bfloat16)
        for part in parts.unique().tolist():
            mine = parts == part
            out[mine] = self.parts[part]["hidden"][rows[mine]]
        return out

    def split(self, seed, held_out=None):
        """(training sequences, held-out sequences), by prompt.

        Held out are the prompts with the smallest hashes of (seed, prompt list, line): the choice
        does not depend on what else was captured, and captures of one list through other chat
        templates hold out the same questions. Default: 5 % of the sequences, 8 to 320.
        """
        if held_out is None:
            held_out = min(320, max(8, len(self.sequences) // 20))
        if not 2 <= held_out < len(self.sequences):
            raise Failure("--held-out", f"{held_out} of {len(self.sequences)} sequences leaves "
                                        "nothing to train on",
                          "hold out fewer, at least 2, or capture more")

        def key(s):
            return hashlib.sha256(f"{seed}:{self.question(s)}".encode()).digest()

        order = sorted(self.sequences, key=key)
        while held_out < len(order) - 1 and key(order[held_out]) == key(order[held_out - 1]):
            held_out += 1  # the same question through another template
        held = set(order[:held_out])
        return [s for s in self.sequences if s not in held], order[:held_out]

    def question(self, s):
        """What a sequence answers, through whichever template: prompt list and line."""
        return f"{self.infos[s.folder].get('in_hash')}:{s.line}"

    def sources(self, prompt_lists):
        """{(folder, line): source} from the prompt lists of the folders, in their order."""
        return {place: row["source"] for place, row in self.origins(prompt_lists).items()}

    def origins(self, prompt_lists):
        """{(folder, line): {"source", and where the line says it "licence", "origin"}}."""
        rows = {}
        wanted = {(s.folder, s.line) for s in self.sequences}
        for folder, path in enumerate(prompt_lists[:len(self.folders)]):
            try:
                with open(path, encoding="utf-8") as handle:
                    for number, text in enumerate(handle):
                        if (folder, number) in wanted:
                            row = json.loads(text)
                            rows[folder, number] = {"source": row.get("source", "unknown")} | {
                                field: row[field] for field in ("licence", "origin")
                                if field in row}
            except (OSError, ValueError) as error:
                raise Failure(path, f"cannot be read ({error})", "correct --prompts") from error
        return rows


def answers_of(path, tensors, starts):
    """[[(first, last)]]: the answers of each text of a part, as tokens inside it."""
    if "answers" not in tensors:
        lengths = (last - first for first, last in zip(starts, starts[1:]))
        return [[span] for span in zip(tensors["prompt"].tolist(), lengths)]
    for name in ("answer_first", "answer_last"):
        if name not in tensors:
            raise Failure(path, f"tensor {name} is missing", "delete this part and generate again")
    spans = list(zip(tensors["answer_first"].tolist(), tensors["answer_last"].tolist()))
    of = tensors["answers"].tolist()
    texts = [spans[begin:end] for begin, end in zip(of, of[1:])]
    lengths = [last - first for first, last in zip(starts, starts[1:])]
    ordered = all(0 < a and a < b for text in texts for a, b in text) and \
        all(x[1] <= y[0] for text in texts for x, y in zip(text, text[1:])) and \
        all(text and text[-1][1] == n for text, n in zip(texts, lengths))
    if len(texts) != len(lengths) or not ordered:
        raise Failure(path, "tensors answers, answer_first and answer_last do not fit its texts",
                      "delete this part and generate again")
    return texts


def read_info(path):
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(path, f"cannot be read ({error.strerror})",
                      "give the folder of evalrun capture") from error
    except ValueError as error:
        raise Failure(path, "is not JSON", "make the capture again") from error
    if info.get("format") != "evalrun-capture" or info.get("version") not in (1, 2, 3):
        raise Failure(path, f"format {info.get('format')!r} version {info.get('version')!r}",
                      "this program reads evalrun-capture versions 1 to 3")
    if info.get("answers", "self") not in ("self", "dataset"):
        raise Failure(path, f"answers is {info['answers']!r}, not self or dataset",
                      "make the capture again")
    for field in ("name", "hash", "d_model", "n_layers", "vocab_size"):
        if field not in info.get("model", {}):
            raise Failure(path, f"field model.{field} is missing", "make the capture again")
    return info


def answer_tokens(sequences):
    return sum(s.n - s.prompt for s in sequences)


def bucketed(sequences, batch, seed, epoch):
    """Batches of one epoch: shuffled, of similar length within a batch; a function of its
    arguments."""
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(sequences))
    batches = []
    for at in range(0, len(order), 8 * batch):
        group = sorted(order[at:at + 8 * batch].tolist(), key=lambda i: (sequences[i].n, i))
        group = [group[i:i + batch] for i in range(0, len(group), batch)]
        batches += [group[i] for i in rng.permutation(len(group))]
    return [[sequences[i] for i in members] for members in batches]
