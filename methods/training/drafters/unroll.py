"""What EAGLE, EAGLE-3 and Falcon share: drafting from features, unrolled in training as in
decoding.

A pair is (feature of token t, embedding of token t+1). A drafter maps pairs to predicted features
and feeds these back for the next step. Training on the first step alone teaches nothing about a
drafter's own features; so it is unrolled `steps` times with the true tokens (Li et al. 2025,
"training-time test").
"""
import dataclasses

import torch
from torch import nn
from torch.nn import functional

from ..data import batches
from . import layers, losses
from .losses import NO_LABEL

SCALES = ("rms", "none")
FEATURE_DRAFTER_OPTIONS = (
    ("--steps", int, "unrolled steps in training"),
    ("--decay", float, "weight of unrolled step j is decay^(j*k)"),
    ("--head-weight", float, "weight of the loss at the output head"),
    ("--hard-share", float, "share of the hard label in the loss at the head, the rest is soft"),
    ("--feature-weight", float, "weight of the SmoothL1 loss of the features"),
    ("--feature-scale", SCALES, "rms: feature loss and noise are of features scaled to unit rms; "
                                "none: of features as they are"),
    ("--noise", float, "uniform noise on the input features, from -N to N; see --feature-scale"),
    ("--input-scale", SCALES, "rms: constants bring the columns that the input layer reads to one "
                              "size, and what an LSTM reads and writes to unit rms; none: as "
                              "published"),
)


class FeatureDrafter(nn.Module):
    """Subclasses define the input (`begin`, `go_on`), layer 0's attention input and the output
    head.

    block: pairs per block (k of Falcon). depth: draft positions looked at in evaluation.
    """
    residual = False
    block = 1
    depth_steps = 6

    def __init__(self, frozen, config):
        super().__init__()
        self.frozen = frozen
        self.shape = layer_shape(config, frozen.shape)  # of its own layers
        self.feature_rms = 1.0  # set by start(); the unit of losses and noise

    # Input ---------------------------------------------------------------------------------------
    def begin(self, e, features):
        """(x [B, T, d], state) of the true pairs; e [B, T, d] embeddings."""
        raise NotImplementedError

    def go_on(self, e, features, state):
        """(x [B, A, d], state) of an unrolled step from predicted features; state of the step
        before."""
        raise NotImplementedError

    def window_state(self, state, rows):
        """The states of the window's rows."""
        return None

    def attention_input(self, index, x, e):
        return self.layers[index].attention_input(x)

    def to_head(self, x):
        """What the output matrix reads."""
        return x

    def head_matrix(self):
        return self.frozen.head

    # Forward -------------------------------------------------------------------------------------
    def unroll(self, tokens, features, rows, steps, first_tokens=None):
        """Outputs [B, A, d] of `steps` steps for the rows [B, A] of the window (batches.Batch).

        first_tokens [B, T]: what the true pairs hold instead of tokens[:, 1:T+1] (glancing).
        """
        k, n = self.block, features.shape[1]
        embed = self.frozen.embed
        cos, sin = layers.rope_tables(self.shape, n + steps * k, features.device)
        e = embed[tokens[:, 1:n + 1] if first_tokens is None else first_tokens]
        x, state = self.begin(e, features)
        true = []
        for i, layer in enumerate(self.layers):
            h = self.attention_input(i, x, e)
            true.append(layer.keys_values(h, cos[:n], sin[:n]))
            if i + 1 == len(self.layers):
                # Rows before the window are only looked at: nothing more is needed of them.
                h, x, at = layers.gather_rows(h, rows), layers.gather_rows(x, rows), rows
            else:
                at = torch.arange(n, device=rows.device).expand(len(tokens), -1)
            queries = layer.queries(h, cos[at].unsqueeze(1), sin[at].unsqueeze(1))
            x = layer.finish(x, layers.attend(queries, *true[i], layers.block_mask(at, n, k)))
        state = self.window_state(state, rows)
        outs, own = [x], [[] for _ in self.layers]
        mask = layers.block_mask(rows, n, k)
        for j in range(1, steps):
            at = rows + j * k
            e = embed[tokens.gather(1, at + 1)]
            x, state = self.go_on(e, outs[-1], state)
            turn = cos[at].unsqueeze(1), sin[at].unsqueeze(1)
            for i, layer in enumerate(self.layers):
                h = self.attention_input(i, x, e)
                own[i].append(layer.keys_values(h, *turn))
                x = layer.finish(x, layers.attend(layer.queries(h, *turn), *true[i], mask, own[i],
                                                  k))
            outs.append(x)
        return outs

    # Training ------------------------------------------------------------------------------------
    def feed(self, capture, sequences, options):
        return batches.Sequences(sequences, options.batch, options.seed)

    def make_batch(self, capture, sequences, steps, offsets=None):
        return batches.make(capture, sequences, steps, self.block, offsets, self.residual,
                            self.frozen.device)

    def inputs(self, batch):
        features = batch.residual if self.residual else batch.hidden
        return batch.tokens, features.to(self.frozen.kind)

    def change_inputs(self, tokens, features, batch, options, rng, fraction):
        """Noise, glancing: (first tokens or None, features) of the true pairs; loss targets
        stay."""
        if options.noise:
            noise = torch.rand(features.shape, generator=rng).to(features) - 0.5
            features = features + 2 * options.noise * self.feature_unit(options) * noise
        return None, features

    def feature_unit(self, options):
        """In which features are measured by their loss and by noise."""
        return self.feature_rms if options.feature_scale == "rms" else 1.0

    def loss(self, sequences, options, rng, fraction):
        k = self.block
        offsets = torch.randint(k, (len(sequences),), generator=rng).tolist()
        batch = self.make_batch(self.capture, sequences, options.steps, offsets)
        rows = batch.rows()
        tokens, features = self.inputs(batch)
        first, features = self.change_inputs(tokens, features, batch, options, rng, fraction)
        outs = self.unroll(tokens, features, rows, options.steps, first)
        return self.loss_of(outs, batch, options)

    def loss_of(self, outs, batch, options):
        """(loss, [cross entropy of each step], answer tokens)."""
        label_of, labels, probs, states_true = self.labels(batch, options)
        picked, weights, index, sizes, feature_loss = [], [], [], [], 0.0
        for j, out in enumerate(outs):
            q, valid = batch.targets(j)
            at = label_of.gather(1, q.clamp(max=label_of.shape[1] - 1))
            valid = valid & (at >= 0)
            states, at = out[valid], at[valid]
            known = (labels["hard"][at] != NO_LABEL).float()
            scale = options.decay ** (j * self.block)
            picked.append(states)
            weights.append(known * scale / known.sum().clamp(min=1))
            index.append(at)
            sizes.append(len(at))
            if options.feature_weight:
                unit = self.feature_unit(options)
                one = functional.smooth_l1_loss(states.float() / unit,
                                                states_true[at].float() / unit)
                feature_loss = feature_loss + scale * one
        states, weights, index = torch.cat(picked), torch.cat(weights), torch.cat(index)
        states = self.to_head(states)
        total = options.feature_weight * feature_loss if options.feature_weight else 0.0
        shares = ((1 - options.hard_share, "soft"), (options.hard_share, "hard"))
        for share, name in shares:
            if share > 0:
                total = total + share * options.head_weight * losses.head_loss(
                    states, self.head_matrix(), labels[name][index] if name == "soft" else
                    labels[name][index][:, None], probs[name][index], weights)
        return total, sizes, int((batch.n - batch.prompt).sum())

    def labels(self, batch, options):
        """(place of each token's label [B, n] or -1, labels, probs, the target's states [M, d]).

        The label of token q is what the target says at q-1; M counts the answer tokens of the
        batch.
        """
        n = batch.hidden.shape[1]
        q = torch.arange(n + 1, device=batch.n.device)[None, :]
        wanted = (q >= batch.prompt[:, None] + 1) & (q <= batch.n[:, None] - 1)
        label_of = torch.full(wanted.shape, -1, dtype=torch.int64, device=q.device)
        label_of[wanted] = torch.arange(int(wanted.sum()), device=q.device)
        states = batch.hidden[wanted[:, 1:]]
        places = self.frozen.vocabulary.place[batch.tokens[:, :n + 1][wanted]]
        labels = {"hard": places}
        probs = {"hard": torch.ones(len(places), 1, device=places.device)}
        if options.hard_share < 1:
            n_soft = 0 if options.labels == "full" else int(options.labels)
            n_soft = min(n_soft, self.frozen.head.shape[0])
            labels["soft"], probs["soft"] = losses.soft_labels(states, self.frozen.head, n_soft)
        return label_of, labels, probs, states

    # Evaluation ----------------------------------------------------------------------------------
    @property
    def depth(self):
        return self.depth_steps * self.block

    @torch.no_grad()
    def ranks(self, capture, sequences, depth=None):
        """[int64 [bases, depth]] per sequence: rank of x_{t+2+i} when drafting from base t.

        The tokens drafted before are the true ones, the features the drafter's own: what holds on
        the accepted path of any tree.
        """
        k, frozen = self.block, self.frozen
        steps = -(-(depth or self.depth) // k)
        results = [torch.full((s.n_bases, steps * k), losses.UNREACHABLE) for s in sequences]
        size = 16
        order = sorted(range(len(sequences)), key=lambda i: sequences[i].n)
        for offset in range(k):
            for at in range(0, len(order), size):
                mine = order[at:at + size]
                chosen = [sequences[i] for i in mine]
                batch = self.make_batch(capture, chosen, steps, [offset] * len(chosen))
                rows = batch.rows()
                with frozen.autocast():
                    outs = self.unroll(*self.inputs(batch), rows, steps)
                first = batch.first.tolist()
                for j, out in enumerate(outs):
                    q, valid = batch.targets(j)
                    places = frozen.vocabulary.place[batch.tokens_at(q)]
                    with frozen.autocast():
                        got = torch.full(q.shape, losses.UNREACHABLE, device=q.device)
                        got[valid] = losses.ranks(self.to_head(out[valid]), self.head_matrix(),
                                                  places[valid])
                    got = got.cpu().view(len(chosen), -1, k)
                    for b, i in enumerate(mine):
                        # Block number of the window -> base: the block's last row, in whole pairs.
                        base = first[b] + k - 1 + k * torch.arange(got.shape[1]) + offset
                        base = base - (sequences[i].prompt - 1)
                        inside = (base >= 0) & (base < sequences[i].n_bases)
                        results[i][base[inside], j * k:(j + 1) * k] = got[b][inside]
        return results

    # Export --------------------------------------------------------------------------------------
    bf16_tensors = ()  # kept in bfloat16: columns of very different size share a row

    def fold(self):
        """{name: float32 tensor} of the adapter; subclasses fold their input scales."""
        return dict(self.named_parameters())


LAYER_FIELDS = ("n_heads", "n_kv_heads", "head_dim", "d_ffn", "norm_eps", "rope_theta")


def layer_shape(config, shape):
    """The shape of a drafter's layers: the target's but for what its configuration says."""
    return dataclasses.replace(shape, **{k: config[k] for k in LAYER_FIELDS if k in config})


def layer_config(shape):
    return {field: getattr(shape, field) for field in LAYER_FIELDS}


def add_feature_options(parser):
    for name, kind, text in FEATURE_DRAFTER_OPTIONS:
        how = {"choices": kind} if isinstance(kind, tuple) else {"type": kind}
        parser.add_argument(name, help=text, **how)
