"""A made-up target and captures of it, in the layout of evalrun, for tests without any model.

The "target" says the next token from the last two: its state is a table entry, the token the argmax
of its head.
"""
import json
import math

import torch

from training import tensorfile

D, V, HEADS, KV, HEAD_DIM, FFN, LAYERS = 32, 61, 4, 2, 8, 48, 4


def write_target(folder, seed=0, d=D, vocab=V):
    """A Hugging Face folder with random weights; returns its output matrix."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(shape, generator=generator) / math.sqrt(shape[-1])

    tensors = {"model.embed_tokens.weight": torch.randn(vocab, d, generator=generator),
               "model.norm.weight": torch.ones(d)}
    for i in range(LAYERS):
        name = f"model.layers.{i}."
        tensors |= {
            name + "input_layernorm.weight": torch.ones(d) + 0.1 * random(d),
            name + "post_attention_layernorm.weight": torch.ones(d) + 0.1 * random(d),
            name + "self_attn.q_proj.weight": random(HEADS * HEAD_DIM, d),
            name + "self_attn.k_proj.weight": random(KV * HEAD_DIM, d),
            name + "self_attn.v_proj.weight": random(KV * HEAD_DIM, d),
            name + "self_attn.o_proj.weight": random(d, HEADS * HEAD_DIM),
            name + "mlp.gate_proj.weight": random(FFN, d), name +
            "mlp.up_proj.weight": random(FFN, d),
            name + "mlp.down_proj.weight": random(d, FFN)}
    tensorfile.write(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({
        "hidden_size": d, "num_hidden_layers": LAYERS, "vocab_size": vocab,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV, "head_dim": HEAD_DIM, "intermediate_size": FFN,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "model_type": "llama",
        "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "max_position_embeddings": 512}))
    return tensors["model.embed_tokens.weight"]


def write_capture(folder, head, n_sequences=40, seed=0, residual=False, parts=2, longest=40,
                  model_hash="made-up", answers="self"):
    """capture.json and parts; answers follow from a table of states, prompts are random. Of a data
    set's answers every fifth token is another than the target's."""
    generator = torch.Generator().manual_seed(seed + 1)
    vocab, d = head.shape
    # Each token pair has a state; the head makes the next token of it. Noise keeps states apart.
    wanted = torch.randint(vocab, (vocab, 3), generator=generator)
    table = head[wanted] / head.pow(2).mean(1).sqrt()[wanted][..., None]
    table = table + 0.1 * torch.randn(table.shape, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    info = {"format": "evalrun-capture", "version": 1,
            "model": {"name": "made-up", "path": "made-up", "hash": model_hash, "dtype": "f32",
                      "d_model": d,
                      "n_layers": LAYERS, "vocab_size": vocab},
            "max_new": longest, "answers": answers, "residual_layers": [1, 2, 3] if residual else [],
            "in_hash": f"list {seed}",
            "n_lines": n_sequences}
    (folder / "capture.json").write_text(json.dumps(info))
    for part in range(parts):
        tokens, start, prompts, lines, hidden = [], [0], [], [], []
        for line in range(part, n_sequences, parts):
            prompt = int(torch.randint(3, 9, (1,), generator=generator))
            n = prompt + int(torch.randint(12, longest, (1,), generator=generator))
            ids = torch.randint(vocab, (prompt,), generator=generator).tolist()
            states = []
            while len(ids) < n:
                before = ids[len(states) - 1] if states else 0
                state = table[ids[len(states)], before % 3].bfloat16()
                if len(states) >= prompt - 1:
                    other = answers == "dataset" and len(ids) % 5 == 0
                    ids.append(len(ids) % vocab if other else int((head @ state.float()).argmax()))
                states.append(state)
            states.append(torch.zeros(d).bfloat16())
            tokens += ids
            start.append(len(tokens))
            prompts.append(prompt)
            lines.append(line)
            hidden += states
        tensors = {"tokens": torch.tensor(tokens, dtype=torch.int32), "start": torch.tensor(start),
                   "prompt": torch.tensor(prompts, dtype=torch.int32), "line": torch.tensor(lines),
                   "ended": torch.zeros(len(lines), dtype=torch.uint8),
                   "hidden": torch.stack(hidden)}
        if residual:
            streams = torch.stack(hidden).float()
            tensors["residual"] = torch.cat([0.5 * streams, streams, 4 * streams], 1).bfloat16()
        tensorfile.write(folder / f"part-{part:05d}.safetensors", tensors,
                         {"format": "evalrun-capture", "version": "1"})
