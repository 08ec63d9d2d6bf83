"""Writes a tuned target (SPACE, or its control without masks) as a Hugging Face folder.

Of a checkpoint of full fine-tuning or of an adapter of low-rank updates: config.json, weights in
bfloat16, the tokenizer, and mask embeddings as an adapter beside the folder (FOLDER.space.safetensors,
with this folder as its target). Other programs load the folder as any Llama model.
"""
import json
import pathlib
import shutil
import types

import torch

from . import adapter, budget, parity, target, tensorfile, vocabulary
from .errors import Failure
from .frozen import Frozen
from .progress import say
from .drafters.space import Space

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                   "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json")


def add_options(parser):
    parser.add_argument("source", metavar="ADAPTER", help="space.safetensors, or the checkpoint.pt "
                                                          "of a training with --train full")
    parser.add_argument("--target", required=True, metavar="MODEL",
                        help="the original: .gguf or Hugging Face folder")
    parser.add_argument("--out", required=True, metavar="DIR", help="the new folder")


def run(options):
    original = target.open_target(options.target)
    out = pathlib.Path(options.out)
    if (out / "model.safetensors").exists():
        raise Failure(out, "holds a model already", "give another --out")
    module, ids, stated = open_tuned(options.source, original)
    layers, embed, head, norm = module.merged()
    tensors = {"model.embed_tokens.weight": embed, "model.norm.weight": norm}
    for i, layer in enumerate(layers):
        for name, theirs in target.HF_NAMES.items():
            tensors[f"model.layers.{i}.{theirs}.weight"] = layer[name]
    if head is not None:
        tensors["lm_head.weight"] = head
    out.mkdir(parents=True, exist_ok=True)
    write_tokenizer(original.path, out)
    (out / "config.json").write_text(json.dumps(config_of(original, out), indent=2),
                                     encoding="utf-8")
    size = tensorfile.write(out / "model.safetensors",
                            {n: t.detach().to(torch.bfloat16) for n, t in tensors.items()},
                            {"format": "pt"})
    stored = {"mask_embed": module.mask_embed.detach().float()}
    if ids is not None:
        stored["draft_vocab"] = ids.to(torch.int32)
    shape = original.shape
    tensorfile.write(out.with_name(out.name + ".space.safetensors"), stored, {
        "format": adapter.FORMAT, "version": adapter.VERSION, "method": "space",
        "target_name": out.name, "target_hash": parity.folder_hash(out),
        "d_model": str(shape.d_model), "vocab_size": str(shape.vocab_size),
        "config": json.dumps({"masks": module.n_masks, "distinct": module.distinct}),
        **({"training": json.dumps(stated)} if stated else {})})
    say(f"{out}: {size / 1e6:.0f} MB; masks: {out}.space.safetensors (space:adapter=)")


def open_tuned(source, original):
    """(module with its weights, draft ids or None, what runs store of its training)."""
    if str(source).endswith(".pt"):
        return open_checkpoint(source, original)

    def frozen_for(ids):
        size = original.shape.vocab_size
        words = vocabulary.Vocabulary(torch.arange(size) if ids is None else ids, size)
        return Frozen.of(original, words, kind=torch.float32)

    module, metadata = adapter.load(source, {"space": Space}, frozen_for)
    digest = original.hash or parity.folder_hash(pathlib.Path(original.path))
    if metadata["target_hash"] not in ("", digest):
        raise Failure(source, f"was trained for the target {metadata['target_hash'][:12]}, "
                              f"{original.path} is {digest[:12]}", "give its target")
    words = module.frozen.vocabulary
    training = metadata.get("training", {})
    stated = {key: training[key] for key in ("budget", "overlap")
              if training.get(key) is not None}
    return module, None if words.is_complete else words.ids, stated


def open_checkpoint(source, original):
    try:
        saved = torch.load(source, map_location="cpu", weights_only=True)
        weights, settings, state = saved["weights"], saved["settings"], saved["state"]
    except Exception as error:  # torch raises many kinds for a broken file
        raise Failure(source, f"cannot be read ({error})", "train it again") from error
    size = original.shape.vocab_size
    words = vocabulary.Vocabulary(torch.arange(size), size)
    frozen = Frozen.of(original, words, kind=torch.float32)
    module = Space(frozen, {"masks": settings["masks"], "rank": settings["rank"],
                            "distinct": settings["distinct"], "train": settings["train"]})
    own = dict(module.named_parameters())
    for name, parameter in own.items():
        if name not in weights or weights[name].shape != parameter.shape:
            raise Failure(source, f"has no weights {name} of {list(parameter.shape)}",
                          "is it a checkpoint of space, of this target?")
        parameter.data.copy_(weights[name])
    stated = {}
    if "text" in settings:  # checkpoints of earlier versions do not have it
        stated["budget"] = budget.of(types.SimpleNamespace(**settings),
                                     types.SimpleNamespace(**state), settings["text"])
    return module, None, stated


def config_of(original, out):
    theirs = pathlib.Path(original.path) / "config.json"
    if theirs.is_file():
        config = json.loads(theirs.read_text(encoding="utf-8"))
        config["torch_dtype"] = "bfloat16"
        return config
    s = original.shape
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama",
              "hidden_size": s.d_model, "num_hidden_layers": s.n_layers,
              "vocab_size": s.vocab_size, "num_attention_heads": s.n_heads,
              "num_key_value_heads": s.n_kv_heads, "head_dim": s.head_dim,
              "intermediate_size": s.d_ffn, "rms_norm_eps": s.norm_eps,
              "rope_theta": s.rope_theta, "hidden_act": "silu", "torch_dtype": "bfloat16",
              "max_position_embeddings": original.max_context,
              "tie_word_embeddings": original.tied}
    made = out / "tokenizer_config.json"
    if made.is_file():
        names = json.loads(made.read_text(encoding="utf-8"))
        known = json.loads((out / "tokenizer.json").read_text(encoding="utf-8"))
        ids = known["model"]["vocab"] | {t["content"]: t["id"] for t in known["added_tokens"]}
        for key in ("bos_token", "eos_token"):
            if names.get(key) in ids:
                config[f"{key}_id"] = ids[names[key]]
    return config


def write_tokenizer(source, out):
    source = pathlib.Path(source)
    if source.is_dir():
        for name in TOKENIZER_FILES:
            if (source / name).is_file():
                shutil.copyfile(source / name, out / name)
        return
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise Failure("transformers", "is not installed; it turns the tokenizer of a .gguf file "
                                      "into tokenizer.json",
                      "pip install transformers, or give --target as a Hugging Face folder"
                      ) from error
    AutoTokenizer.from_pretrained(str(source.parent), gguf_file=source.name).save_pretrained(out)
