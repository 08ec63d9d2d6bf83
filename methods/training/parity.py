"""python -m training.parity MODELS OUT: tiny random adapters with their float32 outputs, for the
engine's tests.

MODELS is tests/data/models (tiny-llama and tiny-draft are the targets). Per adapter
NAME.safetensors there is NAME.expected.safetensors. Pair drafters (eagle, eagle3, falcon-*):
  tokens I32 [n+1], features F32 [n, width]   pairs 0..n-1: (features[t], tokens[t+1])
  chain.features F32 [n, d], chain.logits F32 [n, Vd]   outputs of all pairs; blocks start at pair 0
  tree.tokens I32 [m], tree.parent I32 [m]    blocks of k rows that draft on: the last pairs of
  their parent
      block give the features; parent = block number, -1 = the pairs; a block sees the pairs, its
      ancestors and itself
  tree.features, tree.logits                  outputs of the m rows
bita, gated, space: tokens I32 [n], text.logits F32 [n, V] of the (tuned) target, mask.logits F32
[M, Vd] of a group after the last token.
draft: tokens I32 [n], chain.logits; tree.tokens, tree.parent (row, -1 = the last token),
tree.logits. medusa: features F32 [n, d], logits F32 [n, heads, Vd]. Logits are over the draft
vocabulary. Everything is computed row by row, without the code of training.
"""
import pathlib
import sys

import torch
from torch.nn import functional

from . import adapter, tensorfile
from .drafters import (bita, draft, eagle, eagle3, falcon, gated, layers, look_ahead, mask_rows,
                       medusa, space)
from .frozen import Frozen
from .target import open_target
from .vocabulary import Vocabulary

N_PAIRS = 6  # a multiple of every block used here


def randomise(module, generator):
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1:
                parameter.copy_(0.1 * values + (1.0 if "norm" in name else 0.0))
            else:
                parameter.copy_(values / parameter.shape[1] ** 0.5)


class Rows:
    """A drafter's forward over rows added one block at a time, each with what it may see.

    Plain and slow: every row is computed from the definition, in float32.
    """

    def __init__(self, module):
        self.module = module
        self.shape = module.shape
        self.keys = [[] for _ in module.layers]
        self.values = [[] for _ in module.layers]
        self.states, self.outputs = [], []

    def input_of(self, token, feature, previous, predicted):
        """(x, e, LSTM state) of one row; previous: row whose LSTM state it goes on from."""
        module = self.module
        e = module.frozen.embed[token].float()
        if isinstance(module, eagle3.Eagle3):
            return (feature if predicted else module.fc(feature)), e, None
        if isinstance(module, draft.Draft):
            return e, e, None
        both = torch.cat([e, feature])
        if getattr(module, "input", "fc") == "fc":
            return module.fc(both), e, None
        state = self.states[previous] if previous is not None else None
        x, next_state = both / module.scale, []
        for number in ("0", "1"):
            cell = module.lstm[number]
            gates = cell.weight @ x + cell.bias
            if module.input == "recurrent":
                d = self.shape.d_model
                h, c = state[int(number)] if state else (torch.zeros(d), torch.zeros(d))
                i, f, g, o = (gates + cell.hidden.weight @ h).chunk(4)
                c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            else:
                i, g, o = gates.chunk(3)
                c = torch.sigmoid(i) * torch.tanh(g)
            x = torch.sigmoid(o) * torch.tanh(c)
            next_state.append((x, c))
        x = x * module.scale
        if module.skip:
            x = x + module.lstm["skip"](both)
        return x, e, next_state

    def turn(self, vectors, position):
        """Rotates heads [heads, head_dim] to a position."""
        half = self.shape.head_dim // 2
        angle = position * self.shape.rope_theta ** (-torch.arange(half) / half)
        first, second = vectors[:, :half], vectors[:, half:]
        return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() +
                          first * angle.sin()], 1)

    def add_block(self, inputs, positions, sees):
        """Rows of one block; `sees`: earlier rows visible to all of them. Returns their numbers.

        inputs: [(token, feature, previous row or None, predicted)].
        """
        shape, first = self.shape, len(self.outputs)
        numbers = list(range(first, first + len(inputs)))
        xs, es = [], []
        for number, (token, feature, previous, predicted) in zip(numbers, inputs):
            x, e, state = self.input_of(token, feature, previous, predicted)
            xs.append(x)
            es.append(e)
            self.states.append(state)
        for index, layer in enumerate(self.module.layers):
            hs = []
            for x, e in zip(xs, es):
                h = layers.rms_norm(x, layer.attn_norm, shape.norm_eps)
                if isinstance(self.module, eagle3.Eagle3):
                    h = torch.cat([layers.rms_norm(e, layer.embed_norm, shape.norm_eps), h])
                hs.append(h)
            for h, position in zip(hs, positions):
                self.keys[index].append(self.turn((layer.k.weight @ h).view(-1, shape.head_dim),
                                                  position))
                self.values[index].append((layer.v.weight @ h).view(-1, shape.head_dim))
            visible = list(sees) + numbers
            new = []
            for x, h, position in zip(xs, hs, positions):
                queries = self.turn((layer.q.weight @ h).view(-1, shape.head_dim), position)
                heads = []
                for head, query in enumerate(queries):
                    kv = head * shape.n_kv_heads // shape.n_heads
                    scores = torch.stack([self.keys[index][r][kv] @ query for r in visible])
                    weights = torch.softmax(scores / shape.head_dim ** 0.5, 0)
                    heads.append(sum(w * self.values[index][r][kv] for w,
                                     r in zip(weights, visible)))
                x = x + layer.o.weight @ torch.cat(heads)
                h = layers.rms_norm(x, layer.ffn_norm, shape.norm_eps)
                gate = functional.silu(layer.gate.weight @ h)
                new.append(x + layer.down.weight @ (gate * (layer.up.weight @ h)))
            xs = new
        self.outputs += xs
        return numbers

    def logits(self, numbers):
        module, states = self.module, torch.stack([self.outputs[n] for n in numbers])
        if isinstance(module, (eagle3.Eagle3, draft.Draft)):
            states = layers.rms_norm(states, module.norm, self.shape.norm_eps)
        if isinstance(module, draft.Draft) and module.out is not None:
            states = states @ module.out.weight.T
        head = module.head_matrix() if hasattr(module, "head_matrix") else module.frozen.head
        return states @ head.float().T

    def features(self, numbers):
        return torch.stack([self.outputs[n] for n in numbers])


def draft_rows(module, tokens, features, tree_tokens, tree_parent):
    """(Rows, numbers of the pairs, numbers of the tree's rows) of a pair drafter."""
    k, rows, pairs = module.block, Rows(module), []
    for at in range(0, len(features), k):
        inputs = [(int(tokens[t + 1]), features[t], t - 1 if t > 0 else None, False)
                  for t in range(at, at + k)]
        pairs += rows.add_block(inputs, range(at, at + k), list(pairs))
    blocks, ancestors, depth = [], [], []
    for b, parent in enumerate(tree_parent[::k]):
        parent = int(parent)
        source = pairs[-k:] if parent < 0 else blocks[parent]
        sees = pairs + ([] if parent < 0 else ancestors[parent] + blocks[parent])
        level = 0 if parent < 0 else depth[parent] + 1
        begin = len(rows.outputs)
        inputs = []
        for i in range(k):
            previous = source[-1] if i == 0 else begin + i - 1
            inputs.append((int(tree_tokens[b * k + i]), rows.outputs[source[i]], previous, True))
        positions = [len(features) + level * k + i for i in range(k)]
        ancestors.append([] if parent < 0 else ancestors[parent] + blocks[parent])
        depth.append(level)
        blocks.append(rows.add_block(inputs, positions, sees))
    return rows, pairs, [row for block in blocks for row in block]


@torch.no_grad()
def expected_pairs(module, generator):
    shape, k = module.frozen.shape, module.block
    width = shape.d_model * (3 if module.residual else 1)
    tokens = torch.randint(3, shape.vocab_size, (N_PAIRS + 1,), generator=generator)
    features = torch.randn(N_PAIRS, width, generator=generator)
    # Two blocks on the pairs, one on the first of these.
    tree_tokens = torch.randint(3, shape.vocab_size, (3 * k,), generator=generator)
    parent = torch.tensor([-1] * k + [-1] * k + [0] * k)
    rows, pairs, tree = draft_rows(module, tokens, features, tree_tokens, parent)
    return {"tokens": tokens.int(), "features": features, "chain.features": rows.features(pairs),
            "chain.logits": rows.logits(pairs), "tree.tokens": tree_tokens.int(),
            "tree.parent": parent.int(),
            "tree.features": rows.features(tree), "tree.logits": rows.logits(tree)}


@torch.no_grad()
def expected_draft(module, generator):
    tokens = torch.randint(3, module.frozen.shape.vocab_size, (N_PAIRS,), generator=generator)
    tree_tokens = torch.randint(3, module.frozen.shape.vocab_size, (3,), generator=generator)
    parent = torch.tensor([-1, -1, 0])
    rows, chain, tree, positions = Rows(module), [], [], []
    for t, token in enumerate(tokens):
        chain += rows.add_block([(int(token), None, None, False)], [t], list(chain))
    for token, above in zip(tree_tokens, parent.tolist()):
        ancestors = [] if above < 0 else [tree[above]]
        positions.append(len(tokens) if above < 0 else positions[above] + 1)
        tree += rows.add_block([(int(token), None, None, False)], positions[-1:], chain + ancestors)
    return {"tokens": tokens.int(), "chain.logits": rows.logits(chain),
            "tree.tokens": tree_tokens.int(),
            "tree.parent": parent.int(), "tree.logits": rows.logits(tree)}


@torch.no_grad()
def expected_medusa(module, generator):
    features = torch.randn(4, module.frozen.shape.d_model, generator=generator)
    heads = []
    for blocks in module.heads:
        h = features
        for block in blocks:
            h = h + functional.silu(h @ block.weight.T + block.bias)
        heads.append(h @ module.frozen.head.float().T)
    return {"features": features, "logits": torch.stack(heads, 1)}


def mask_states(module, tokens):
    """(states [n, d] of the text, states [M, d] of the masks after it), row by row.

    Every row is [input, position, is it a mask]; a mask sees the prefix, all of the text and the
    masks before it.
    """
    frozen, shape = module.frozen, module.shape
    n, group = len(tokens), shape.n_heads // shape.n_kv_heads
    half = shape.head_dim // 2
    inputs = [frozen.embed[int(t)].float() for t in tokens]
    inputs += [module.mask_embed[j if module.distinct else 0] for j in range(module.n_masks)]

    def turn(vectors, position):
        angle = position * shape.rope_theta ** (-torch.arange(half) / half)
        first, second = vectors[:, :half], vectors[:, half:]
        return torch.cat([first * angle.cos() - second * angle.sin(),
                          second * angle.cos() + first * angle.sin()], 1)

    for index, weights in enumerate(frozen.target_layers()):
        def product(name, x, is_mask):
            y = weights[name] @ x
            factor = module.low_rank(index, name, is_mask)
            return y if factor is None else y + factor.scale * (factor.b.T @ (factor.a @ x))

        bank = module.prefix(index, 1)
        keys, values, new = [], [], []
        for position, x in enumerate(inputs):
            is_mask = position >= n
            h = layers.rms_norm(x, weights["attn_norm"], shape.norm_eps)
            keys.append(turn(product("k", h, is_mask).view(-1, shape.head_dim), position))
            values.append(product("v", h, is_mask).view(-1, shape.head_dim))
            queries = turn(product("q", h, is_mask).view(-1, shape.head_dim), position)
            heads = []
            for head, query in enumerate(queries):
                seen_keys = [k[head // group] for k in keys]
                seen_values = [v[head // group] for v in values]
                if is_mask and bank is not None:
                    own = head if bank[0].shape[1] == shape.n_heads else head // group
                    seen_keys = list(bank[0][0, own]) + seen_keys
                    seen_values = list(bank[1][0, own]) + seen_values
                scores = torch.stack([k @ query for k in seen_keys]) / shape.head_dim ** 0.5
                shares = torch.softmax(scores, 0)
                heads.append(sum(w * v for w, v in zip(shares, seen_values)))
            x = x + product("o", torch.cat(heads), is_mask)
            h = layers.rms_norm(x, weights["ffn_norm"], shape.norm_eps)
            gate = functional.silu(product("gate", h, is_mask))
            new.append(x + product("down", gate * product("up", h, is_mask), is_mask))
        inputs = new
    states = torch.stack([layers.rms_norm(x, frozen.norm, shape.norm_eps) for x in inputs])
    return states[:n], states[n:]


@torch.no_grad()
def expected_masks(module, generator):
    tokens = torch.randint(3, module.shape.vocab_size, (N_PAIRS,), generator=generator)
    text, masks = mask_states(module, tokens)
    return {"tokens": tokens.int(), "text.logits": text @ module.frozen.target.head.T,
            "mask.logits": masks @ module.frozen.head.T}


ADAPTERS = {
    "medusa": ("tiny-llama", medusa.Medusa, {"heads": 2, "blocks": 1}),
    "eagle": ("tiny-llama", eagle.Eagle, {"attn_norm": True}),
    "eagle-published": ("tiny-draft", eagle.Eagle, {"attn_norm": False}),
    "eagle3": ("tiny-llama", eagle3.Eagle3, {"residual_layers": [0, 1, 3]}),
    "falcon-fc": ("tiny-draft", falcon.Falcon, {"k": 2, "layers": 2, "input": "fc"}),
    "falcon-per-token": ("tiny-draft", falcon.Falcon, {"k": 3, "layers": 1, "input": "per_token",
                                                       "scale": 1.5,
                                                       "skip": True}),
    "falcon-recurrent": ("tiny-draft", falcon.Falcon, {"k": 2, "layers": 1, "input": "recurrent",
                                                       "scale": 1.5}),
    "draft": ("tiny-draft", draft.Draft, {"layers": 1, "out": True}),
    "bita": ("tiny-llama", bita.Bita, {"masks": 3, "prompt": "deep", "prefix_length": 4}),
    "bita-heads": ("tiny-llama", bita.Bita, {"masks": 2, "prompt": "deep", "prefix_length": 3,
                                             "prefix_heads": "all"}),
    "gated": ("tiny-llama", gated.Gated, {"masks": 3, "rank": 2, "scale": 0.5}),
    "space": ("tiny-llama", space.Space, {"masks": 3, "rank": 2, "scale": 0.5,
                                          "distinct": False}),
    "pass": ("tiny-llama", look_ahead.Pass, {"masks": 4}),
}


def folder_hash(folder):
    """The engine's hash of a Hugging Face folder: of the lines `name sha256` of configuration and
    weights."""
    import hashlib
    lines = ""
    for path in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        lines += f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
    return hashlib.sha256(lines.encode()).hexdigest()


def write(models, out):
    total = 0
    for number, (name, (model, kind, config)) in enumerate(ADAPTERS.items()):
        generator = torch.Generator().manual_seed(100 + number)
        target = open_target(pathlib.Path(models) / model)
        # A layer of a shape of its own: the adapter's configuration counts, not the target's.
        layer = {"n_heads": 2, "n_kv_heads": 1, "head_dim": 8, "d_ffn": 24}
        ids = torch.randperm(target.shape.vocab_size, generator=generator)[:32].sort().values
        frozen = Frozen.of(target, Vocabulary(ids, target.shape.vocab_size), kind=torch.float32)
        module = kind(frozen, config | layer)
        randomise(module, generator)
        module.bf16_tensors = ("fc.weight",)  # both kinds of matrices occur
        path = pathlib.Path(out) / f"{name}.safetensors"
        total += adapter.write(path, module, {"name": model,
                                              "hash": folder_hash(pathlib.Path(models) / model)},
                               tree={"paths": ["0", "1", "00"], "gain": [0.5, 0.25, 0.125]})
        # What is in the file counts, rounded weights included.
        stored, _ = adapter.load(path, {module.name: kind}, lambda _: frozen)
        make = {"medusa": expected_medusa, "draft": expected_draft}.get(module.name, expected_pairs)
        if isinstance(stored, mask_rows.MaskRows):
            make = expected_masks
        total += tensorfile.write(pathlib.Path(out) / f"{name}.expected.safetensors",
                                  make(stored, generator),
                                  {"made_by": "python -m training.parity "
                                              "(methods/training/parity.py)"})
    return total


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m training.parity MODELS OUT")
    print(f"{write(sys.argv[1], sys.argv[2]):,} bytes in {sys.argv[2]}")
