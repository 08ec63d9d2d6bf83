"""Falcon (Gao et al. 2024): k features per forward, relaxed causal mask, glancing training.

Row p predicts feature p+k and with it token p+k+1; blocks of k rows see each other fully. Training
(coupled sequential glancing distillation): a pass without gradient counts the wrong rows d; N =
lambda*d rows then see the answer, feature and token, in place of their own inputs; lambda falls
during training.

Differs, whatever the recipe: (1) rows that see the answer are the first 1..k-1 of whole blocks (the
released code does not align them). (2) Blocks start at a random pair of each sample, as decoding
may start anywhere. (3) Every sample is glanced at by its own errors (the code: the first of a
batch). (4) No dropout in the LSTM (the code: 0.1). (5) The hard label is the text's token (the code
draws it from the target's distribution), and the soft loss has the temperature 1 (the code: 0.95
inside the logarithms). (6) The noise has one size, as in the paper's text (the code's shrinks with
the length). (7) A row counts by the token that it predicts (in the code by its own, so that the
rows at the end of a prompt are never trained). (8) Text is the target's own answers by default, the
paper's ShareGPT's.
Differs in the recipe `paper`: (9) `input` is per_token, what the code computes; the paper's text is
`--input recurrent`.
Differs in the recipe `small`: (10) the input layer is EAGLE's (`input`), and there is one decoder
layer, with the norm before attention and as many key/value heads as heads. (11) Layers and input
begin as start() says; published ones begin at random. (12) Constants bring embeddings to the
features' size, and what an LSTM reads and writes to unit size (`input_scale`). (13) Two unrolled
blocks, soft labels of 16 tokens, a draft vocabulary, weights of the losses, rate: recipes.py.
"""
import math

import torch
from torch import nn

from .. import adapter
from . import layers, linear, losses
from .eagle import STARTS, identity_start, linear_start, scale_columns
from ..errors import Failure
from ..target import LAYER_TENSORS
from .unroll import FeatureDrafter, add_feature_options, layer_config

INPUTS = {
    "fc": "a linear layer, as in EAGLE",
    "per_token": "two LSTM cells without state, as the released code computes (it iterates over "
                 "the batch)",
    "recurrent": "a two-layer LSTM along the pairs, as the paper's text says",
}
GLANCES = ("paper", "code", "none", "random")


def glance_rate(schedule, fraction):
    """lambda at a fraction (e/E) of the training."""
    if schedule == "none":
        return 0.0
    return 0.35 * (1 - fraction) + 0.1 if schedule == "code" else 0.4 * (1 - fraction)


class PerToken(nn.Module):
    """LSTM cell that begins from zero state at every token: y = sig(o) * tanh(sig(i) * tanh(g))."""
    gates = ("i", "g", "o")

    def __init__(self, d_in, d):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(self.gates) * d, d_in))
        self.bias = nn.Parameter(torch.zeros(len(self.gates) * d))

    @torch.no_grad()
    def start(self, fitted=None):
        """Nearly a linear map while its results are small: gates open, g = the map (the last d
        inputs by default)."""
        d = self.weight.shape[0] // len(self.gates)
        self.weight.normal_(0, 0.01)
        self.bias.zero_()
        for number, gate in enumerate(self.gates):
            rows = slice(number * d, (number + 1) * d)
            if gate == "g":
                if fitted is None:
                    self.weight[rows, -d:] += torch.eye(d)
                else:
                    self.weight[rows] = fitted
            else:
                self.bias[rows] = -2.0 if gate == "f" else 3.0

    @torch.no_grad()
    def start_random(self):
        """As PyTorch's LSTM begins; its two biases are one here, their sum."""
        bound = (self.weight.shape[0] // len(self.gates)) ** -0.5
        self.weight.uniform_(-bound, bound)
        self.bias.uniform_(-bound, bound)
        self.bias += torch.empty_like(self.bias).uniform_(-bound, bound)

    def forward(self, x):
        i, g, o = nn.functional.linear(x, self.weight, self.bias).float().chunk(3, -1)
        return (torch.sigmoid(o) * torch.tanh(torch.sigmoid(i) * torch.tanh(g))).to(x.dtype)


class Recurrent(PerToken):
    """An LSTM cell with state; gate rows i, f, g, o as in PyTorch."""
    gates = ("i", "f", "g", "o")

    def __init__(self, d_in, d):
        super().__init__(d_in, d)
        self.hidden = nn.Linear(d, 4 * d, bias=False)

    @torch.no_grad()
    def start(self, fitted=None):
        super().start(fitted)
        self.hidden.weight.normal_(0, 0.01)

    def run(self, x, state):
        """x [N, T, d_in], state (h, c) [N, d] each -> outputs and cell states, [N, T, d] each."""
        gates = nn.functional.linear(x, self.weight, self.bias).float()
        h, c = state
        outputs, cells = [], []
        for t in range(x.shape[1]):
            i, f, g, o = (gates[:, t] + self.hidden(h.to(x.dtype)).float()).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
            cells.append(c)
        return torch.stack(outputs, 1), torch.stack(cells, 1)


class Falcon(FeatureDrafter):
    name = "falcon"
    bf16_tensors = ("fc.weight", "lstm.0.weight", "lstm.skip.weight")

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        d = frozen.shape.d_model
        self.block, self.input = config["k"], config["input"]
        self.depth_steps = max(1, 6 // self.block)
        self.scale = config.get("scale", 1.0)
        self.embed_scale = 1.0
        self.skip = config.get("skip", False)
        # How it starts; not in the adapter.
        self.start_kind, self.start_from = config.get("start", "repeat"), config.get("start_from")
        self.input_scale = config.get("input_scale", "rms")
        if self.input == "fc":
            self.fc = nn.Linear(2 * d, d, bias=config.get("bias", True))
        else:
            cell = PerToken if self.input == "per_token" else Recurrent
            self.lstm = nn.ModuleDict({"0": cell(2 * d, d), "1": cell(d, d)})
            if self.skip:
                self.lstm["skip"] = nn.Linear(2 * d, d)
        attn_norm = config.get("attn_norm", True)
        self.layers = nn.ModuleList(layers.DecoderLayer(self.shape, attn_norm or i > 0)
                                    for i in range(config["layers"]))

    @staticmethod
    def add_options(parser):
        add_feature_options(parser)
        parser.add_argument("--k", type=int, choices=(1, 2, 3, 4), help="features per forward")
        parser.add_argument("--layers", type=int, choices=(1, 2), help="decoder layers")
        parser.add_argument("--kv-heads", type=int,
                            help="key/value heads of its layers; 0 = the target's, -1 = as many "
                            "as heads. The first "
                            "row of a block gets all it knows of the last pair through them")
        parser.add_argument("--input", choices=tuple(INPUTS),
                            help="; ".join(f"{name}: {text}" for name, text in INPUTS.items()))
        parser.add_argument("--skip", action="store_true", default=None,
                            help="a linear path beside the LSTM (ours)")
        parser.add_argument("--start", choices=STARTS, help="linear: least squares to the next "
                            "feature, and attention that fetches it from the block's last row; "
                            "repeat: the feature itself, no attention; random: PyTorch's initial "
                            "values, as published")
        parser.add_argument("--start-from", metavar="ADAPTER",
                            help="begin as this EAGLE adapter (ours; two layers, input fc)")
        parser.add_argument("--glance", choices=GLANCES,
                            help="lambda: paper 0.4(1-e/E), code 0.35(1-e/E)+0.1, none; random = "
                                 "the "
                            "paper's rate, tokens only, at random rows (ablation)")
        parser.add_argument("--published-layout", action="store_true", default=None,
                            help="no norm before the first attention, as in published weights")

    @staticmethod
    def configure(options, shape):
        kv_heads = options.kv_heads or shape.n_kv_heads
        if kv_heads < 0:
            kv_heads = shape.n_heads
        if shape.n_heads % kv_heads or kv_heads % shape.n_kv_heads:
            raise Failure("--kv-heads", f"{kv_heads} must divide {shape.n_heads} heads and be a "
                                        "multiple of "
                          f"the target's {shape.n_kv_heads}")
        return layer_config(shape) | {"n_kv_heads": kv_heads, "k": options.k,
                                      "layers": options.layers, "input": options.input,
                                      "skip": bool(options.skip) and options.input != "fc",
                                      "start": options.start, "start_from": options.start_from,
                                      "input_scale": options.input_scale,
                                      "attn_norm": not options.published_layout}

    @classmethod
    def config_of(cls, tensors, config):
        return config | {"attn_norm": "layers.0.attn_norm" in tensors, "bias": "fc.bias" in tensors,
                         "skip": "lstm.skip.weight" in tensors}

    @torch.no_grad()
    def start(self, target, statistics):
        self.feature_rms = statistics["feature_rms"]
        if self.input_scale == "rms":
            self.scale = statistics["feature_rms"]
            self.embed_scale = statistics["feature_rms"] / target.embed_rms()
        if self.start_kind == "random" and not self.start_from:
            if self.input != "fc":
                self.lstm["0"].start_random()
                self.lstm["1"].start_random()
            return
        n = len(self.layers)
        if self.input == "fc":
            identity_start(self.fc)
        else:
            self.lstm["0"].start()
            self.lstm["1"].start()
            if self.skip:
                identity_start(self.lstm["skip"])
                # It carries the feature; the cells begin at nothing.
                for cell in ("0", "1"):
                    self.lstm[cell].weight.normal_(0, 0.01)
        for i, layer in enumerate(self.layers):
            layer.copy_from(target.layer(target.shape.n_layers - n + i), zero_outputs=True)
        if self.start_from:
            self.copy_eagle()
        elif self.start_kind == "linear":
            fitted = statistics["next_feature"](target.embed, self.embed_scale)
            if self.input == "fc":
                linear_start(self.fc, *fitted)
            elif self.skip:
                linear_start(self.lstm["skip"], *fitted)
            else:
                self.lstm["0"].start(fitted[0])
        else:
            return
        if self.block > 1:
            self.fetch(statistics)

    def copy_eagle(self):
        """Input and layer 0 become those of a trained EAGLE, which predicts feature p+1 at row
        p."""
        stored, metadata = adapter.read(self.start_from)
        if metadata["method"] != "eagle":
            raise Failure(self.start_from, f"is of the method {metadata['method']}",
                          "--start-from takes an EAGLE adapter")
        if self.input != "fc" or len(self.layers) != 2:
            raise Failure("--start-from", "needs --layers 2 and --input fc")
        tensors = adapter.unpack(stored)
        d = self.frozen.shape.d_model
        if tuple(tensors["fc.weight"].shape) != (d, 2 * d):
            raise Failure(self.start_from, f"is not for a target of {d} features")
        bias = tensors.get("fc.bias", torch.zeros(d))
        linear_start(self.fc, scale_columns(tensors["fc.weight"], d, 1 / self.embed_scale), bias)
        layer = {name: tensors.get(f"layers.0.{name}", tensors.get(f"layers.0.{name}.weight"))
                 for name in LAYER_TENSORS}
        if layer["attn_norm"] is None:
            raise Failure(self.start_from, "has the published layout",
                          "train it with a norm in front")
        self.layers[0].copy_from(layer, zero_outputs=False)

    def fetch(self, statistics, share=0.2):
        """The last layer begins by bringing what its block's last row predicts to the other rows.

        What enters the last layer predicts feature p+1 of row p. At the last row of a block that is
        what the block's first row is asked for. The output of a row becomes `share` of its own
        prediction and 1 - share of the last row's. (All that writes the residual stream before is
        scaled by the share: norms undo that for what reads it.) The last row begins one feature
        short, as every row does from "repeat the feature".
        """
        if self.input == "fc":
            self.fc.weight *= share
            self.fc.bias *= share
            for layer in self.layers[:-1]:
                layer.o.weight *= share
                layer.down.weight *= share
            strength = 1 - share
        else:
            strength = 1.0  # an LSTM's output has no scale of its own to change
        neighbour_start(self.layers[-1], statistics, self.feature_rms, strength)

    def config(self):
        return layer_config(self.shape) | {
            "k": self.block, "layers": len(self.layers), "input": self.input, "scale": self.scale}

    # Input ---------------------------------------------------------------------------------------
    def begin(self, e, features):
        both = torch.cat([e * self.embed_scale, features], -1)
        if self.input == "fc":
            return self.fc(both), None
        scaled, state = both / self.scale, None
        if self.input == "per_token":
            y = self.lstm["1"](self.lstm["0"](scaled))
        else:
            zero = torch.zeros(len(e), e.shape[-1], device=e.device)
            h0, c0 = self.lstm["0"].run(scaled, (zero, zero))
            h1, c1 = self.lstm["1"].run(h0.to(e.dtype), (zero, zero))
            y, state = h1, (h0, c0, h1, c1)
        return self.with_skip(y * self.scale, both), state

    def with_skip(self, y, both):
        return y + self.lstm["skip"](both) if self.skip else y

    def go_on(self, e, features, state):
        if self.input != "recurrent":
            return self.begin(e, features.to(e.dtype))
        # Every block goes on from the state before it: [B * blocks, k, ...].
        k, (batch, n, d) = self.block, e.shape
        both = torch.cat([e * self.embed_scale, features.to(e.dtype)], -1)
        x = (both / self.scale).view(batch * n // k, k, 2 * d)
        last = [s.view(batch * n // k, k, d)[:, -1] for s in state]
        h0, c0 = self.lstm["0"].run(x, (last[0], last[1]))
        h1, c1 = self.lstm["1"].run(h0.to(e.dtype), (last[2], last[3]))
        state = tuple(s.view(batch, n, d) for s in (h0, c0, h1, c1))
        return self.with_skip(state[2] * self.scale, both), state

    def window_state(self, state, rows):
        return None if state is None else tuple(layers.gather_rows(s, rows) for s in state)

    # Glancing ------------------------------------------------------------------------------------
    def change_inputs(self, tokens, features, batch, options, rng, fraction):
        first, features = super().change_inputs(tokens, features, batch, options, rng, fraction)
        rate = glance_rate(options.glance, fraction)
        if rate <= 0 or self.block == 1:
            return first, features
        wrong = self.wrong_rows(tokens, features, batch)
        if options.glance == "random":
            rows = random_rows(batch, [rate * d for d in wrong], rng)
        else:
            rows = glanced_rows(batch, [rate * d for d in wrong], rng)
        return reveal(tokens, features, rows, self.block, couple=options.glance != "random")

    @torch.no_grad()
    def wrong_rows(self, tokens, features, batch):
        """Hamming distance of each sample between the drafted and the true tokens of the first
        step."""
        out = self.unroll(tokens, features, batch.rows(), 1)[0]
        q, valid = batch.targets(0)
        places = self.frozen.vocabulary.place[batch.tokens_at(q)]
        best = torch.full_like(places, losses.NO_LABEL - 1)
        head = self.frozen.head
        if valid.any():
            best[valid] = torch.cat([(part.to(head.dtype) @ head.T).argmax(-1)
                                     for part in out[valid].split(losses.CHUNK)])
        return ((best != places) & valid).sum(1).tolist()

    def fold(self):
        tensors, d = dict(self.named_parameters()), self.frozen.shape.d_model
        for name in ("fc.weight", "lstm.0.weight", "lstm.skip.weight"):
            if name in tensors:
                tensors[name] = scale_columns(tensors[name], d, self.embed_scale)
        return tensors


def neighbour_start(layer, statistics, rms, strength=1.0):
    """Attention that begins by adding `strength` times the last row of its own block.

    The other rows of a block must predict from the last row's pair, of which they see nothing but
    through attention; finding that from zero outputs takes far more text than anything else.
    """
    d = layer.shape.d_model
    norm = layer.attn_norm if layer.attn_norm is not None else torch.full((d,), rms)
    linear.look_ahead(layer, statistics["feature_mean"] / rms * norm)
    components = statistics["feature_components"]
    linear.pass_on(layer, components.T / norm.clamp(min=1e-2), strength * rms * components)


def glanced_rows(batch, budgets, rng):
    """bool [B, T]: the first 1..k-1 rows of randomly chosen blocks, about `budget` rows per
    sample."""
    k = batch.block
    chosen = torch.zeros(batch.hidden.shape[:2], dtype=torch.bool)
    for b, budget in enumerate(budgets):
        budget = int(math.floor(budget + float(torch.rand(1, generator=rng))))
        first, n = int(batch.first[b]), int(batch.n[b])
        # A block is of use if its last row still predicts a token: s + k-1 + k+1 <= n-1.
        n_blocks = max(0, (n - 1 - 2 * k - first) // k + 1)
        for block in torch.randperm(n_blocks, generator=rng).tolist():
            if budget <= 0:
                break
            length = min(budget, int(torch.randint(1, k, (1,), generator=rng)))
            at = first + block * k
            chosen[b, at:at + length] = True
            budget -= length
    return chosen.to(batch.hidden.device)


def random_rows(batch, budgets, rng):
    """bool [B, T]: a budget of rows anywhere in the window."""
    chosen = torch.zeros(batch.hidden.shape[:2], dtype=torch.bool)
    for b, budget in enumerate(budgets):
        budget = int(math.floor(budget + float(torch.rand(1, generator=rng))))
        first, last = int(batch.first[b]), int(batch.n[b]) - 1 - batch.block
        order = torch.randperm(max(0, last - first), generator=rng)[:budget]
        chosen[b, first + order] = True
    return chosen.to(batch.hidden.device)


def reveal(tokens, features, rows, k, couple):
    """Rows that see the answer: token t_{p+k+1} in place of t_{p+1}, and f_{p+k} in place of f_p.

    tokens [B, >= T+k+1]; rows bool [B, T]. Returns the tokens of the pairs [B, T] (the pair of row
    p holds tokens[p+1]) and the features. couple = False: the token alone.
    """
    n = features.shape[1]
    first = torch.where(rows, tokens[:, k + 1:n + k + 1], tokens[:, 1:n + 1])
    if couple:
        ahead = torch.cat([features[:, k:], torch.zeros_like(features[:, :k])], 1)
        features = torch.where(rows.unsqueeze(-1), ahead, features)
    return first, features
