"""The target's own matrices, from a GGUF file or a Hugging Face folder, and checks against a
capture.

Names inside: `embed` [V, d], `head` [V, d] (the same tensor when tied), `norm` [d], and per layer
the names of adapters: attn_norm, q, k, v, o, ffn_norm, gate, up, down. All float32, [out, in]; q
and k rows in half-split order (x[i] turns with x[i + head_dim/2]).
"""
import dataclasses
import hashlib
import json
import math
import pathlib

import torch

from . import tensorfile
from .errors import Failure

# Share of answer tokens that the head must reproduce from the captured states. The engine rounds
# activations and weights itself, so that close calls may fall the other way.
LEAST_MATCH = 0.95

GGUF_NAMES = {"attn_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v",
              "o": "attn_output",
              "ffn_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
HF_NAMES = {"attn_norm": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj",
            "v": "self_attn.v_proj", "o": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj"}
LAYER_TENSORS = tuple(GGUF_NAMES)


@dataclasses.dataclass(frozen=True)
class Shape:
    """What the drafters take over from the target's configuration."""
    d_model: int
    n_layers: int
    vocab_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ffn: int
    norm_eps: float
    rope_theta: float

    @property
    def n_layer_weights(self):
        """Of the matrices of all layers."""
        heads = (2 * self.n_heads + 2 * self.n_kv_heads) * self.head_dim
        return self.n_layers * self.d_model * (heads + 3 * self.d_ffn)

    @property
    def n_weights(self):
        """All matrices, the embedding and an output matrix of its own included."""
        return self.n_layer_weights + 2 * self.vocab_size * self.d_model


class Target:
    def __init__(self, path, name, shape, load, tied, hash_of_file=None,
                 max_context=2048):
        self.path, self.name, self.shape, self.load = path, name, shape, load
        self.hash, self.max_context = hash_of_file, max_context
        self.embed = load("embed", -1)
        self.head = self.embed if tied else load("head", -1)
        self.tied = tied
        self.norm = load("norm", -1)

    def layer(self, index):
        """The tensors of one layer, {name: float32}."""
        return {name: self.load(name, index) for name in LAYER_TENSORS}

    def embed_rms(self):
        return float(self.embed.pow(2).mean().sqrt())


def open_target(path):
    path = pathlib.Path(path)
    if path.is_dir():
        return open_hf(path)
    if path.suffix == ".gguf":
        return open_gguf(path)
    raise Failure(path, "is neither a .gguf file nor a Hugging Face folder", "correct --target")


def unpermute(weight, n_heads):
    """Rows from the pairwise order of llama GGUF files to half-split order."""
    rows, columns = weight.shape
    half = rows // n_heads // 2
    pairs = weight.reshape(n_heads, half, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns).contiguous()


def open_gguf(path):
    try:
        import gguf
    except ImportError as error:
        raise Failure("gguf", "is not installed", "pip install -r requirements.txt") from error
    try:
        reader = gguf.GGUFReader(str(path))
    except (OSError, ValueError) as error:
        raise Failure(path, f"cannot be read as GGUF ({error})") from error

    def field(key, default=None):
        entry = reader.get_field(key)
        if entry is None:
            if default is None:
                raise Failure(path, f"field {key} is missing")
            return default
        return entry.contents()

    arch = field("general.architecture")
    heads = int(field(f"{arch}.attention.head_count"))
    d_model = int(field(f"{arch}.embedding_length"))
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        raise Failure(path, "tensor token_embd.weight is missing")
    shape = Shape(
        d_model=d_model, n_layers=int(field(f"{arch}.block_count")),
        vocab_size=int(tensors["token_embd.weight"].shape[1]), n_heads=heads,
        n_kv_heads=int(field(f"{arch}.attention.head_count_kv", heads)),
        head_dim=int(field(f"{arch}.attention.key_length", d_model // heads)),
        d_ffn=int(field(f"{arch}.feed_forward_length")),
        norm_eps=float(field(f"{arch}.attention.layer_norm_rms_epsilon")),
        rope_theta=float(field(f"{arch}.rope.freq_base", 10000.0)))

    def load(name, index):
        if index >= 0:
            full = f"blk.{index}.{GGUF_NAMES[name]}.weight"
        else:
            full = {"embed": "token_embd", "head": "output",
                    "norm": "output_norm"}[name] + ".weight"
        if full not in tensors:
            raise Failure(path, f"tensor {full} is missing", "drafters need a Llama-type target")
        entry = tensors[full]
        weight = torch.from_numpy(gguf.quants.dequantize(entry.data,
                                                         entry.tensor_type).copy()).float()
        if name in ("q", "k") and arch == "llama":
            weight = unpermute(weight, shape.n_heads if name == "q" else shape.n_kv_heads)
        return weight

    name = str(field("general.name", path.stem))
    digest = hashlib.sha256()
    with open(path, "rb") as handle:
        while block := handle.read(1 << 20):
            digest.update(block)
    return Target(path, name, shape, load, "output.weight" not in tensors, digest.hexdigest(),
                  int(field(f"{arch}.context_length", 2048)))


def open_hf(path):
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(path / "config.json", f"cannot be read ({error})",
                      "give a Hugging Face folder or a .gguf file") from error
    tensors = {}
    for file in sorted(path.glob("*.safetensors")):
        tensors |= tensorfile.read(file)[0]

    def load(name, index):
        if index >= 0:
            full = f"model.layers.{index}.{HF_NAMES[name]}.weight"
        else:
            full = {"embed": "model.embed_tokens", "head": "lm_head",
                    "norm": "model.norm"}[name] + ".weight"
        if full not in tensors:
            raise Failure(path, f"tensor {full} is missing", "drafters need a Llama-type target")
        return tensors[full].float()

    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        if key not in config:
            raise Failure(path / "config.json", f"field {key} is missing",
                          "drafters need a Llama-type target")
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    shape = Shape(
        d_model=config["hidden_size"], n_layers=config["num_hidden_layers"],
        vocab_size=config["vocab_size"], n_heads=heads,
        n_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        d_ffn=config["intermediate_size"], norm_eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0))
    return Target(path, path.name, shape, load, "lm_head.weight" not in tensors)


def check(target, capture, sequences, most=4000):
    """Share of answer tokens that head(hidden) reproduces; a Failure when this is another model.

    Of answers by others, half the tokens only have to be likelier than one drawn blindly.
    """
    info = capture.model
    for field in ("d_model", "n_layers", "vocab_size"):
        ours = getattr(target.shape, field)
        if int(info[field]) != ours:
            raise Failure(capture.path / "capture.json",
                          f"model.{field} is {info[field]}, the target "
                          f"{target.path} has {ours}", "give the model that made the capture")
    if target.hash and info["hash"] and not str(info["hash"]).startswith(target.hash):
        raise Failure(capture.path / "capture.json", f"was made with the model {info['name']} "
                      f"({str(info['hash'])[:12]}), the target {target.path} is {target.hash[:12]}",
                      "give the model that made the capture")
    right = total = 0
    surprise = []
    for s in sequences:
        tokens = capture.tokens(s)
        states = capture.rows(s, "hidden", s.prompt - 1, s.n - 1).float()
        logits = states @ target.head.T
        right += int((logits.argmax(-1) == tokens[s.prompt:]).sum())
        surprise.append(-logits.log_softmax(-1).gather(1, tokens[s.prompt:, None]))
        total += s.n - s.prompt
        if total >= most:
            break
    match = right / total
    own = capture.answers == "self"
    blind = float(torch.cat(surprise).median()) > math.log(target.shape.vocab_size)
    if match < LEAST_MATCH if own else blind:
        found = (f"gives only {match:.1%} of the captured tokens" if own else
                 "finds half of the captured tokens no likelier than any")
        raise Failure(capture.path, f"the head of {target.path} {found} from their hidden states",
                      "give the model that made the capture")
    return match
