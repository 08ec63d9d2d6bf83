"""EAGLE-1 (Li et al. 2024, arXiv 2401.15077): one decoder layer that continues the target's
features.

x = fc([embedding of t+1 ; feature of t]); one Llama layer; its residual stream is the next feature;
the target's own output matrix, restricted to the draft vocabulary, makes logits of it. EAGLE-2
drafts with the same weights. Differs: the published layer has no norm before attention
(`published_layout`). By default the norm is kept, and the layer starts as the target's last one.
Start and losses: see RECIPES and start().
"""
import torch
from torch import nn

from . import layers
from .unroll import FeatureDrafter, add_feature_options, layer_config

STARTS = ("linear", "repeat")
# From a good start the higher rate first destroys what was learned (measured with Falcon begun as
# EAGLE: the loss rose from 8.7 to 14 under 8e-4, and fell under 1e-4).
LR = {"linear": 2e-4, "repeat": 8e-4}
RECIPES = {
    # Ours for small models and little text: soft labels of 16 tokens, four unrolled steps.
    "small": {"batch": 4, "lr": LR, "warmup": 30, "clip": 1.0, "clip_kind": "norm",
              "weight_decay": 0.01,
              "steps": 4, "decay": 0.8, "head_weight": 1.0, "hard_share": 0.0, "labels": "16",
              "feature_weight": 0.1, "feature_scale": "rms", "noise": 0.0, "vocabulary": 12288,
              "published_layout": False, "start": "linear"},
    # EAGLE-1's: features first, no unrolling, the target's whole distribution, value clipping.
    "paper": {"batch": 4, "lr": 3e-5, "warmup": 2000, "clip": 0.5, "clip_kind": "value",
              "weight_decay": 0.0, "steps": 1, "decay": 1.0, "head_weight": 0.1, "hard_share": 0.0,
              "labels": "full", "feature_weight": 1.0, "feature_scale": "none", "noise": 0.1,
              "vocabulary": 0, "published_layout": True, "start": "repeat"},
}


class Eagle(FeatureDrafter):
    name = "eagle"
    bf16_tensors = ("fc.weight",)

    def __init__(self, frozen, config):
        super().__init__(frozen, config)
        d = frozen.shape.d_model
        self.embed_scale = 1.0  # a constant of training that is folded into fc in the adapter
        self.start_kind = config.get("start", "repeat")
        self.fc = nn.Linear(2 * d, d, bias=config.get("bias", True))
        self.layers = nn.ModuleList([layers.DecoderLayer(self.shape,
                                                         config.get("attn_norm", True))])

    @staticmethod
    def add_options(parser):
        add_feature_options(parser)
        parser.add_argument("--start", choices=STARTS, help="of the input layer: least squares to "
                            "the next feature, or the feature itself")
        parser.add_argument("--published-layout", action="store_true", default=None,
                            help="no norm before attention, as in published EAGLE-1 weights")

    @staticmethod
    def configure(options, shape):
        return layer_config(shape) | {"attn_norm": not options.published_layout,
                                      "start": options.start}

    @classmethod
    def config_of(cls, tensors, config):
        """What the tensors of an adapter say about the module."""
        return config | {"attn_norm": "layers.0.attn_norm" in tensors, "bias": "fc.bias" in tensors}

    @torch.no_grad()
    def start(self, target, statistics):
        """Begins as the best linear drafter, or "repeat the feature"; the layer adds nothing yet.

        The layer is a copy of the target's last one except for zero outputs; copied whole it writes
        a residual stream far larger than a normed feature and training diverges.
        """
        self.feature_rms = statistics["feature_rms"]
        self.embed_scale = statistics["feature_rms"] / target.embed_rms()
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
