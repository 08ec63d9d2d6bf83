"""EAGLE-1 (Li et al. 2024, arXiv 2401.15077): one decoder layer that continues the target's
features.

x = fc([embedding of t+1 ; feature of t]); one Llama layer; its residual stream is the next feature;
the target's own output matrix, restricted to the draft vocabulary, makes logits of it. EAGLE-2
drafts with the same weights.

Differs, whatever the recipe: (1) a row counts by the token that it predicts; in the program by its
own, so that the rows at the end of a prompt are never trained. (2) The feature noise has one size;
the program's shrinks with the length. (3) Text is the target's own answers by default, the paper's
ShareGPT's.
Differs in the recipe `small`: (4) the published layer has no norm before attention; here it is kept
(`published_layout`). (5) Layer and input begin as start() says, and constants bring embeddings to
the features' size (`input_scale`); published ones begin at random. (6) Unrolled steps, soft labels
of 16 tokens, a draft vocabulary, weights of the losses, rate: recipes.py.
"""
import torch
from torch import nn

from . import layers
from .unroll import FeatureDrafter, add_feature_options, layer_config

STARTS = ("linear", "repeat", "random")


class Eagle(FeatureDrafter):
    name = "eagle"
    bf16_tensors = ("fc.weight",)

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        d = frozen.shape.d_model
        self.embed_scale = 1.0  # a constant of training that is folded into fc in the adapter
        # How it starts; not in the adapter.
        self.start_kind = config.get("start", "repeat")
        self.input_scale = config.get("input_scale", "rms")
        self.fc = nn.Linear(2 * d, d, bias=config.get("bias", True))
        self.layers = nn.ModuleList([layers.DecoderLayer(self.shape,
                                                         config.get("attn_norm", True))])

    @staticmethod
    def add_options(parser):
        add_feature_options(parser)
        parser.add_argument("--start", choices=STARTS, help="linear, repeat: the input layer is "
                            "least squares to the next feature, or the feature itself, and the "
                            "layer the target's last; random: PyTorch's initial values, as "
                            "published")
        parser.add_argument("--published-layout", action="store_true", default=None,
                            help="no norm before attention, as in published EAGLE-1 weights")

    @staticmethod
    def configure(options, shape):
        return layer_config(shape) | {"attn_norm": not options.published_layout,
                                      "start": options.start, "input_scale": options.input_scale}

    @classmethod
    def config_of(cls, tensors, config):
        """What the tensors of an adapter say about the module."""
        return config | {"attn_norm": "layers.0.attn_norm" in tensors, "bias": "fc.bias" in tensors}

    @torch.no_grad()
    def start(self, target, statistics):
        """Begins as the best linear drafter, or "repeat the feature"; the layer adds nothing yet.
        Or at random, with what PyTorch's modules hold.

        The layer is a copy of the target's last one except for zero outputs; copied whole it writes
        a residual stream far larger than a normed feature and training diverges.
        """
        self.feature_rms = statistics["feature_rms"]
        if self.input_scale == "rms":
            self.embed_scale = statistics["feature_rms"] / target.embed_rms()
        if self.start_kind == "random":
            return
        identity_start(self.fc)
        if self.start_kind == "linear":
            linear_start(self.fc, *statistics["next_feature"](target.embed, self.embed_scale))
        self.layers[0].copy_from(target.layer(target.shape.n_layers - 1), zero_outputs=True)

    def config(self):
        return layer_config(self.shape)

    def begin(self, e, features):
        return self.fc(torch.cat([e * self.embed_scale, features], -1)), None

    def go_on(self, e, features, state):
        return self.begin(e, features.to(e.dtype))

    def fold(self):
        tensors = dict(self.named_parameters())
        tensors["fc.weight"] = scale_columns(self.fc.weight, self.frozen.shape.d_model,
                                             self.embed_scale)
        return tensors


def linear_start(layer, weight, bias):
    layer.weight.copy_(weight)
    if layer.bias is not None:
        layer.bias.copy_(bias)


def identity_start(linear):
    """[0.01 noise | identity] on [embedding ; feature], no bias."""
    d = linear.out_features
    linear.weight.normal_(0, 0.01)
    linear.weight[:, -d:] += torch.eye(d)
    if linear.bias is not None:
        linear.bias.zero_()


def scale_columns(weight, n, scale):
    """The first n columns times scale."""
    weight = weight.detach().float().clone()
    weight[:, :n] *= scale
    return weight
