"""EAGLE-3 (Li et al. 2025, arXiv 2503.01840): three residual streams in, no feature loss.

g = fc([three residual streams of token t]); attention reads [norm(embedding of t+1) ; norm(g)], the
residual path is g; the un-normed output replaces g for the next draft position; logits come from
the output matrix on its norm. Unrolled in training ("training-time test"), loss 0.8^i CE against
the target's distribution.

Differs, whatever the recipe: (1) the draft vocabulary is counted in the answers that are trained
on. (2) The warm-up rises evenly, the program's with the logarithm of the step. (3) The loss is a
mean over the rows that count, the program's over all rows.
Differs in the recipe `small`: (4) the output matrix is the target's own and frozen (`own_head`
trains one, as published). (5) Layer and input begin as start() says, and constants bring the
streams' columns to one size (`input_scale`); published ones begin at random. (6) Five unrolled
steps for seven, soft labels of 16 tokens, rate: recipes.py.
"""
import torch
from torch import nn

from . import layers, linear
from .eagle import STARTS
from ..errors import Failure
from .unroll import FeatureDrafter, add_feature_options, layer_config

# A linear prediction falls short of the feature's size; brought to full size, it is too sure.
LINEAR_NORM = 0.7


class Eagle3(FeatureDrafter):
    name = "eagle3"
    residual = True
    bf16_tensors = ("fc.weight",)

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        d = frozen.shape.d_model
        # How it starts; not in the adapter.
        self.start_kind = config.get("start", "repeat")
        self.input_scale = config.get("input_scale", "rms")
        self.residual_layers = list(config["residual_layers"])
        self.fc = nn.Linear(3 * d, d, bias=False)
        # Constant scale of every input column, folded into fc in the adapter: streams hold few
        # values that are hundreds of times larger than the rest.
        self.register_buffer("column_scale", None, persistent=False)
        layer = layers.DecoderLayer(self.shape, d_in=2 * d)
        layer.embed_norm = nn.Parameter(torch.ones(d))
        self.layers = nn.ModuleList([layer])
        self.norm = nn.Parameter(torch.ones(d))
        self.lm_head = nn.Linear(d, frozen.head.shape[0],
                                 bias=False) if config.get("own_head") else None

    @staticmethod
    def add_options(parser):
        add_feature_options(parser)
        parser.add_argument("--start", choices=STARTS, help="linear, repeat: least squares to the "
                            "next feature, or the last of the streams, and the target's last "
                            "layer; random: PyTorch's initial values, as published")
        parser.add_argument("--own-head", action="store_true", default=None,
                            help="train an output matrix of its own instead of using the target's")

    @staticmethod
    def configure(options, shape):
        return layer_config(shape) | {"own_head": options.own_head, "start": options.start,
                                      "input_scale": options.input_scale,
                                      "residual_layers": options.residual_layers}

    @classmethod
    def config_of(cls, tensors, config):
        return config | {"own_head": "lm_head.weight" in tensors}

    @staticmethod
    def needs(capture):
        if len(capture.residual_layers) != 3:
            raise Failure(capture.path / "capture.json", "has no three residual streams "
                          f"(residual_layers: {capture.residual_layers})",
                          "generate with --residual eagle3")

    @torch.no_grad()
    def start(self, target, statistics):
        """Begins as the best linear drafter, or as the last of the streams; norm is the target's.
        Or at random, with what PyTorch's modules hold.

        linear: fc has the streams' part of it; attention begins by looking at the row itself and
        adding the embedding's part, as far as its values are wide enough.
        """
        d = target.shape.d_model
        self.feature_rms = 1.0
        sizes = statistics["residual_rms"].clamp(min=1e-3).to(self.fc.weight)
        self.column_scale = 1.0 / sizes if self.input_scale == "rms" else torch.ones_like(sizes)
        if self.start_kind == "random":
            return
        self.fc.weight.normal_(0, 0.01)
        # Whatever its columns were scaled by: the last stream in its own proportions, of unit size.
        late = self.column_scale[2 * d:] * sizes[2 * d:].pow(2).mean().sqrt()
        self.fc.weight[:, 2 * d:] += torch.diag(1.0 / late)
        self.layers[0].copy_from(target.layer(target.shape.n_layers - 1), zero_outputs=True)
        self.norm.copy_(target.norm)
        if self.start_kind == "linear":
            weight = statistics["next_from_streams"](target.embed, self.column_scale, target.norm,
                                                     target.shape.norm_eps)
            self.fc.weight.copy_(weight[:, :3 * d])
            g = (statistics["residual_sample"] * self.column_scale) @ self.fc.weight.T
            normed = layers.rms_norm(g, self.layers[0].attn_norm, target.shape.norm_eps)
            linear.look_ahead(self.layers[0], normed.mean(0), slice(d, None))
            # The part of most effect first: embeddings are normed, but not equally large
            # everywhere.
            u, s, v = torch.linalg.svd(weight[:, 3 * d:])
            linear.pass_on(self.layers[0], v, u * s, slice(0, d))
            self.norm *= LINEAR_NORM
        if self.lm_head is not None:
            self.lm_head.weight.copy_(self.frozen.head)

    def config(self):
        return layer_config(self.shape) | {"residual_layers": self.residual_layers}

    def begin(self, e, features):
        if self.column_scale is not None:
            features = features.float() * self.column_scale
        return self.fc(features.to(e.dtype)), None

    def go_on(self, e, features, state):
        return features, None

    def attention_input(self, index, x, e):
        layer, eps = self.layers[0], self.shape.norm_eps
        return torch.cat([layers.rms_norm(e, layer.embed_norm, eps), layer.attention_input(x)], -1)

    def to_head(self, x):
        return layers.rms_norm(x, self.norm, self.shape.norm_eps)

    def head_matrix(self):
        return self.frozen.head if self.lm_head is None else self.lm_head.weight

    def fold(self):
        tensors = dict(self.named_parameters())
        if self.column_scale is not None:
            tensors["fc.weight"] = self.fc.weight.detach().float() * self.column_scale
        return tensors
