"""Recomputes captured states with the target's own layers: a check of everything that is read from
it."""
import torch

from .drafters import layers
from .errors import Failure

LEAST_COSINE = 0.99  # the engine rounds activations and weights, here everything is float32
LARGEST = 3e9  # weights; for larger targets a forward in float32 takes too long


@torch.no_grad()
def target_states(target, tokens, wanted=()):
    """({layer: residual stream entering it}, states after the final norm [n, d]) of one
    sequence."""
    shape = target.shape
    n = len(tokens)
    cos, sin = layers.rope_tables(shape, n, "cpu")
    at = torch.arange(n)[None]
    mask = layers.block_mask(at, n, 1)
    x, streams = target.embed[tokens][None], {}
    layer = layers.DecoderLayer(shape)
    for i in range(shape.n_layers):
        if i in wanted:
            streams[i] = x[0]
        layer.copy_from(target.layer(i), zero_outputs=False)
        h = layer.attention_input(x)
        keys, values = layer.keys_values(h, cos, sin)
        x = layer.finish(x, layers.attend(layer.queries(h, cos, sin), keys, values, mask))
    return streams, layers.rms_norm(x, target.norm, shape.norm_eps)[0]


def check_states(target, capture, sequences, most=200):
    """Least mean cosine of captured and recomputed states (and residual streams) of one short
    answer."""
    shape = target.shape
    fitting = [s for s in sequences if s.n <= most]
    if shape.n_layer_weights > LARGEST or not fitting:
        return None
    s = max(fitting, key=lambda s: s.n)
    wanted = capture.residual_layers
    streams, states = target_states(target, capture.tokens(s), wanted)
    pairs = {"hidden": (capture.rows(s, "hidden", 1, s.n - 1).float(), states[1:s.n - 1])}
    for i, number in enumerate(wanted):
        stored = capture.rows(s, "residual", 1, s.n - 1)[:,
                                                         i * shape.d_model:(i + 1) * shape.d_model]
        pairs[f"residual stream of layer {number}"] = (stored.float(), streams[number][1:s.n - 1])
    least = 1.0
    for name, (stored, computed) in pairs.items():
        cosine = float(torch.cosine_similarity(stored, computed, dim=-1).mean())
        if not cosine >= LEAST_COSINE:
            raise Failure(capture.path, f"{name} of line {s.line}: mean cosine {cosine:.3f} with "
                                        "what "
                          f"{target.path} gives", "give the model that made the capture")
        least = min(least, cosine)
    return least
