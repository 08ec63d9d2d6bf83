"""What a training was given: the text, the updates, the optimiser.

Every adapter holds it (metadata `training`, key `budget`). Two adapters had the same budget when
the fields COMPARED are equal; only then does a difference between them belong to what was varied.
"""
import hashlib

COMPARED = ("text", "updates", "batch", "recipe", "optimiser")


def text_of(data, sequences):
    """SHA-256 of the texts that are trained on, prompts and answers as tokens: the same wherever
    the captures lie, in whichever order they were given."""
    digests = sorted(hashlib.sha256(f"{s.prompt} {data.tokens(s).tolist()}".encode()).digest()
                     for s in sequences)
    return hashlib.sha256(b"".join(digests)).hexdigest()


def optimiser_of(options):
    """One line with all that decides how large a step is."""
    parts = [f"AdamW, lr {options.lr:g}", "betas {:g} {:g}".format(*options.betas),
             f"{options.schedule} schedule", f"warm-up {options.warmup:g}",
             f"weight decay {options.weight_decay:g}",
             f"clip {options.clip:g} ({options.clip_kind})" if options.clip else "no clip"]
    if getattr(options, "mask_rate", 1.0) != 1.0:
        parts.append(f"masks x {options.mask_rate:g}")
    return ", ".join(parts)


def of(options, state, text):
    """The object that an adapter holds. `tokens` counts what the training counts (its `unit`)."""
    return {"text": text, "updates": state.step, "tokens": state.tokens, "batch": options.batch,
            "recipe": options.recipe, "optimiser": optimiser_of(options)}
