"""Models of published shapes with random weights, so that real sizes are measured without a download:
their tensors, metadata and vocabulary, the room they need, and llama.cpp's files of them."""
import hashlib
import json
import math
import pathlib
import shutil

from . import environment
from .environment import Failure

KNOWN = pathlib.Path(__file__).resolve().parents[2] / "engine/model/shapes.json"
WRITTEN = 1  # raise when a shape would be written differently; part of the folder's name
SEED = 36
FAMILIES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}  # llama.cpp's names
UNUSED = 5  # tokenizer.ggml.token_type of what fills a vocabulary up
# Bits per weight of the layers, rounded up: the K files mix types. Rows that are no multiple of 256 have
# none of the K types and take up to Q8_0, and so do heads.
LAYER_BITS = {"F32": 32, "BF16": 16, "Q8_0": 8.5, "Q6_K": 6.6, "Q5_K_M": 5.9, "Q5_K_S": 5.6, "Q4_K_M": 5,
              "Q4_K_S": 4.8, "Q4_1": 5.2, "Q4_0": 4.8}
WORST_BITS = 8.5
GB = 1e9


def find(name):
    """{"name", "source", "config"} of a shape as `evalrun list shapes` names it; config.json's fields."""
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    for shape in known:
        if shape["name"] == name:
            check(shape)
            return shape
    raise Failure(2, f"--shape: no shape is called '{name}'",
                  "known: " + ", ".join(shape["name"] for shape in known))


def check(shape):
    """What cannot be written is refused: a file must not pass for a shape that it has not."""
    config = shape["config"]
    if config["model_type"] not in FAMILIES:
        raise Failure(7, f"{KNOWN}: {shape['name']}: model_type '{config['model_type']}' cannot be written",
                      "known: " + ", ".join(FAMILIES))
    kind = (config.get("rope_scaling") or {}).get("rope_type", "llama3")
    if kind != "llama3":
        raise Failure(7, f"{KNOWN}: {shape['name']}: rope_scaling of type '{kind}' cannot be written",
                      "known: llama3, or none")


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def tensors(config):
    """[(name, shape)] in llama.cpp's names: (rows, columns) of a matrix, (size,) of a vector."""
    width, ffn, dim = config["hidden_size"], config["intermediate_size"], head_dim(config)
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    layer = [("attn_norm.weight", (width,)), ("attn_q.weight", (q, width)), ("attn_k.weight", (kv, width)),
             ("attn_v.weight", (kv, width)), ("attn_output.weight", (width, q)),
             ("ffn_norm.weight", (width,)), ("ffn_gate.weight", (ffn, width)), ("ffn_up.weight", (ffn, width)),
             ("ffn_down.weight", (width, ffn))]
    if config["model_type"] == "qwen2":
        layer += [("attn_q.bias", (q,)), ("attn_k.bias", (kv,)), ("attn_v.bias", (kv,))]
    if config["model_type"] == "qwen3":
        layer += [("attn_q_norm.weight", (dim,)), ("attn_k_norm.weight", (dim,))]
    vocabulary_shape = (config["vocab_size"], width)
    listed = [("token_embd.weight", vocabulary_shape)]
    for index in range(config["num_hidden_layers"]):
        listed += [(f"blk.{index}.{name}", shape) for name, shape in layer]
    listed.append(("output_norm.weight", (width,)))
    if not config.get("tie_word_embeddings"):
        listed.append(("output.weight", vocabulary_shape))
    if config.get("rope_scaling"):
        listed.append(("rope_freqs.weight", (dim // 2,)))
    return listed


def parameters(config):
    return sum(math.prod(shape) for name, shape in tensors(config) if name != "rope_freqs.weight")


def rope_factors(config):
    """What each frequency is divided by (Llama 3.1's scaling, as llama.cpp's converter writes it)."""
    scaling, dim = config["rope_scaling"], head_dim(config)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context, factors = scaling["original_max_position_embeddings"], []
    for index in range(0, dim, 2):
        turns = context / (2 * math.pi * config["rope_theta"] ** (index / dim))
        share = min(1.0, max(0.0, (turns - low) / (high - low)))  # 1: a high frequency, which stays
        factors.append(1 / ((1 - share) / scaling["factor"] + share))
    return factors


def metadata(shape):
    """{key: int, float or str} of everything but the tokenizer and the architecture's name."""
    config, dim = shape["config"], head_dim(shape["config"])
    family = {"block_count": config["num_hidden_layers"], "context_length": config["max_position_embeddings"],
              "embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
              "attention.head_count": config["num_attention_heads"],
              "attention.head_count_kv": config["num_key_value_heads"],
              "attention.key_length": dim, "attention.value_length": dim, "rope.dimension_count": dim,
              "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
              "rope.freq_base": float(config["rope_theta"]), "vocab_size": config["vocab_size"]}
    prefix = FAMILIES[config["model_type"]]
    return {"general.name": f"{shape['name']}, random weights", "general.file_type": 1,  # mostly F16
            "general.quantization_version": 2, **{f"{prefix}.{key}": value for key, value in family.items()}}


def vocabulary(tokens, types, merges, size):
    """A tokenizer of another model for `size` ids: cut, or filled up with tokens that no text gives, as
    llama.cpp's converters do. A head of another size would have another share of the time."""
    tokens, types = tokens[:size], types[:size]
    known = set(tokens)
    merges = [merge for merge in merges if merge.replace(" ", "", 1) in known]
    fill = range(len(tokens), size)
    return tokens + [f"[PAD{i}]" for i in fill], types + [UNUSED] * len(fill), merges


def file_bytes(config, name):
    """An upper estimate of the file of that name; "F16" is the source."""
    total = 0
    for tensor, shape in tensors(config):
        bits = 16 if name == "F16" else LAYER_BITS[name]
        if len(shape) == 1:
            bits = 32
        elif name != "F16" and (tensor in ("token_embd.weight", "output.weight") or shape[1] % 256 != 0):
            bits = max(bits, WORST_BITS)
        total += math.prod(shape) * bits / 8
    return 1.01 * total + 10e6  # alignment; the vocabulary


def available_memory():
    """Bytes a process may still take: the machine's, and a container's limit."""
    lines = pathlib.Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    try:
        limit = pathlib.Path("/sys/fs/cgroup/memory.max").read_text(encoding="utf-8").strip()
    except OSError:
        limit = "max"
    return free if limit == "max" else min(free, int(limit))


def check_room(shape, folder, names, to_make, free_disk, free_memory):
    """Fails where the files `to_make` ("F16" among them) do not fit, or memory is too small for them or to
    measure the files `names`."""
    config = shape["config"]
    disk = sum(file_bytes(config, name) for name in to_make)
    if disk > free_disk:
        raise Failure(7, f"{folder}: {', '.join(to_make)} of {shape['name']} need {disk / GB:.1f} GB, "
                         f"{free_disk / GB:.1f} GB are free on this disk",
                      "free some, set EVALRUN_HOME to a folder on another disk, or name fewer --peers")
    largest = max(math.prod(tensor) for _, tensor in tensors(config))
    needs = {}
    if to_make:
        needs["to make its files"] = 8 * largest  # the quantiser widens a tensor to F32, beside both files'
    if names:
        size, name = max((file_bytes(config, name), name) for name in names)
        needs[f"to measure {name}"] = 1.1 * size + 1 * GB  # packed anew; two contexts and their logits
    for purpose, size in needs.items():
        if size > free_memory:
            raise Failure(6, f"{shape['name']} needs {size / GB:.1f} GB of memory {purpose}, "
                             f"{free_memory / GB:.1f} GB are free",
                          "end other programs, choose a smaller --shape, or leave large files out of --peers")


def make_files(llama, home, shape, tokenizer, names, threads, keep):
    """(path of the F16 source, files as environment.make_peer_files). The source is removed when the files
    are there, unless it is to be kept."""
    contents = json.dumps([shape["config"], SEED, WRITTEN, environment.sha256(tokenizer)], sort_keys=True)
    key = f"{shape['name']}-{hashlib.sha256(contents.encode()).hexdigest()[:8]}"
    folder = environment.files_folder(home, key, llama)
    source = folder / "F16.gguf"
    to_make = [name for name in names if not (folder / f"{name}.gguf").exists()]
    if (to_make or keep) and not source.exists():
        to_make.insert(0, "F16")
    folder.mkdir(parents=True, exist_ok=True)
    check_room(shape, folder, names, to_make, shutil.disk_usage(folder).free, available_memory())
    if "F16" in to_make:
        environment.make_file(source, lambda partial: llama.call(
            "write_shape", target=partial, shape=shape, tokenizer=tokenizer, seed=SEED))
    files = environment.make_peer_files(llama, folder, source, names, threads)
    if not keep:
        source.unlink(missing_ok=True)
    return source, files
