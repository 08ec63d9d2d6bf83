"""The recipes: the defaults of every option of a training, by method and by name.

`small` is ours, for models of 10^8 weights and 10^5 to 10^7 tokens of text. `paper` is the paper's;
where the paper is silent, its released program's. papers.json holds what papers and programs say,
with the place, and the reason of every value that differs on purpose. Methods without `paper` have
no published values that we know of.

`python3 methods/training/recipes.py` prints the two side by side (docs/recipes.md). It needs no
PyTorch.
"""
import json
import pathlib
import textwrap

COLUMNS = 100

# From a good start the higher rate first destroys what was learned (measured with Falcon begun as
# EAGLE: the loss rose from 8.7 to 14 under 8e-4, and fell under 1e-4).
LR = {"linear": 2e-4, "repeat": 8e-4, "random": 8e-4}
# What all of `small` share.
SMALL = {"betas": [0.9, 0.95], "schedule": "cosine"}
MASK_ROWS = {"masks": 3, "groups": 64, "batch": 1, "warmup": 20, "clip": 1.0, "clip_kind": "norm",
             "weight_decay": 0.0, "start": "tokens", "decay": 0.8, "labels": "16",
             "hard_share": 0.0, "splits": "random", "distinct": True, "vocabulary": 12288}
FEATURES = {"batch": 4, "lr": LR, "warmup": 30, "clip": 1.0, "clip_kind": "norm",
            "weight_decay": 0.01, "decay": 0.8, "head_weight": 1.0, "hard_share": 0.0,
            "labels": "16", "feature_scale": "rms", "noise": 0.0, "input_scale": "rms",
            "vocabulary": 12288, "start": "linear"}

RECIPES = {
    "medusa": {
        # As good as larger batches with less data, as measured.
        "small": SMALL | {
            "heads": 4, "blocks": 1, "batch": 256, "lr": 3e-3, "warmup": 0.03, "decay": 0.8,
            "weight_decay": 0.01, "clip": 0.0, "clip_kind": "norm", "vocabulary": 8192,
            "labels": "hard"},
        "paper": {
            "heads": 5, "blocks": 1, "batch": 1024, "lr": 2e-3, "betas": [0.9, 0.999],
            "schedule": "cosine", "warmup": 40, "decay": 0.8, "weight_decay": 0.0, "clip": 1.0,
            "clip_kind": "norm", "vocabulary": 0, "labels": "hard"},
    },
    "eagle": {
        "small": SMALL | FEATURES | {"steps": 4, "feature_weight": 0.1, "published_layout": False},
        "paper": {
            "batch": 4, "lr": 3e-5, "betas": [0.9, 0.95], "schedule": "linear", "warmup": 2000,
            "clip": 0.5, "clip_kind": "value", "weight_decay": 0.01, "start": "random",
            "steps": 1, "decay": 1.0, "head_weight": 0.1, "hard_share": 0.0, "labels": "full",
            "feature_weight": 1.0, "feature_scale": "none", "noise": 0.1, "input_scale": "none",
            "vocabulary": 0, "published_layout": True},
    },
    "eagle3": {
        "small": SMALL | FEATURES | {"steps": 5, "feature_weight": 0.0, "own_head": False},
        "paper": {
            "batch": 4, "lr": 5e-5, "betas": [0.9, 0.95], "schedule": "linear", "warmup": 12000,
            "clip": 0.5, "clip_kind": "norm", "weight_decay": 0.0, "start": "random",
            "steps": 7, "decay": 0.8, "head_weight": 1.0, "hard_share": 0.0, "labels": "full",
            "feature_weight": 0.0, "feature_scale": "none", "noise": 0.0, "input_scale": "none",
            "vocabulary": 32000, "own_head": True},
    },
    "falcon": {
        "small": SMALL | FEATURES | {
            "k": 2, "layers": 1, "kv_heads": -1, "start_from": None, "input": "fc", "skip": False,
            "glance": "paper", "steps": 2, "feature_weight": 0.1, "published_layout": False},
        "paper": {
            "k": 2, "layers": 2, "kv_heads": 0, "start": "random", "start_from": None,
            "input": "per_token", "skip": False, "glance": "paper", "batch": 4, "lr": 3e-5,
            "betas": [0.9, 0.95], "schedule": "linear", "warmup": 2000, "clip": 0.5,
            "clip_kind": "value", "weight_decay": 0.01, "steps": 1, "decay": 1.0,
            "head_weight": 0.1, "hard_share": 0.1, "labels": "full", "feature_weight": 1.0,
            "feature_scale": "none", "noise": 0.1, "input_scale": "none", "vocabulary": 0,
            "published_layout": True},
    },
    "draft": {
        "small": SMALL | {
            "layers": 2, "out_matrix": True, "batch": 8, "lr": 6e-4, "warmup": 50, "clip": 1.0,
            "clip_kind": "norm", "weight_decay": 0.01, "labels": "16", "hard_share": 0.0,
            "vocabulary": 16384},
    },
    "bita": {
        "small": SMALL | MASK_ROWS | {
            "prefix_length": 16, "prompt": "deep", "prefix_heads": "kv", "lr": 1e-2,
            "mask_rate": 1.0, "dropout": 0.0},
        "paper": {
            # By the size of the target.
            "masks": {"13B": 3, "larger": 4}, "prefix_length": 16, "prompt": "deep",
            "prefix_heads": "all", "groups": 64, "splits": "consecutive", "batch": 128, "lr": 3e-2,
            "mask_rate": 1.0, "betas": [0.9, 0.999], "schedule": "cosine", "warmup": 0,
            "clip": 1.0, "clip_kind": "norm", "weight_decay": 0.0, "start": "normal",
            "decay": 1.0, "labels": "full", "hard_share": 1.0, "distinct": True, "dropout": 0.1,
            "vocabulary": 0},
    },
    "gated_lora": {
        "small": SMALL | MASK_ROWS | {"rank": 16, "lr": 1e-3, "mask_rate": 5.0},
    },
    "pass": {
        "small": SMALL | MASK_ROWS | {"masks": 4, "lr": 1e-2, "mask_rate": 1.0},
    },
    "space": {
        "small": SMALL | MASK_ROWS | {
            "rank": 8, "train": "lora", "layout": "packed", "p_ar": 0.0, "lr": 5e-4,
            "mask_rate": 10.0, "ar_loss": "kl", "ar_weight": 3.0, "loss_by": "mean"},
        "paper": {
            "masks": 5, "rank": 8, "train": "full", "layout": "paper", "p_ar": 0.5, "groups": 1,
            "splits": "random", "batch": 32, "lr": 5e-5, "mask_rate": 1.0, "betas": [0.9, 0.999],
            "schedule": "cosine", "warmup": 0, "clip": 1.0, "clip_kind": "norm",
            "weight_decay": 0.0, "start": "normal", "decay": 1.0, "labels": "full",
            "hard_share": 1.0, "ar_loss": "hard", "ar_weight": 1.0, "loss_by": "token",
            "distinct": False, "vocabulary": 0},
    },
}


def papers():
    """{method: {"paper", "program", "rows": {option: row}, "beyond": [...]}} of papers.json."""
    path = pathlib.Path(__file__).with_name("papers.json")
    return json.loads(path.read_text(encoding="utf-8"))


def published(row):
    """The paper's value; where it says nothing, the released program's."""
    return row.get("paper") if row.get("paper") is not None else row.get("program")


def contradictions(method, recipe, rows):
    """What is wrong between `--recipe paper` of a method and its rows; empty when nothing is."""
    found = [f"{method}.{name}: the recipe has it, papers.json has no row"
             for name in recipe if name not in rows]
    found += [f"{method}.{name}: papers.json has a row, the recipe has no such option"
              for name in rows if name not in recipe]
    for name, row in rows.items():
        if not row.get("where"):
            found.append(f"{method}.{name}: `where` is missing")
        if ("recipe" in row) != bool(row.get("why")):
            found.append(f"{method}.{name}: `recipe` and `why` come together")
        if "recipe" not in row and published(row) is None:
            found.append(f"{method}.{name}: neither paper nor program have a value")
        if "recipe" in row and row["recipe"] == published(row) and published(row) is not None:
            found.append(f"{method}.{name}: `recipe` does not differ from what is published")
        wanted = row["recipe"] if "recipe" in row else published(row)
        if name in recipe and recipe[name] != wanted:
            found.append(f"{method}.{name}: the recipe has {recipe[name]!r}, papers.json demands "
                         f"{wanted!r}")
    return found


# The page ----------------------------------------------------------------------------------------
HEAD = """# The papers' recipes

`scripts/train METHOD --recipe paper` trains with these values. Made by `scripts/train recipes` from
[methods/training/papers.json](../methods/training/papers.json); a test holds recipes, data and page
together. "Paper" is the text, "program" the released one. A dash: it says nothing. Where both say
something, the text counts. Where the recipe has neither, or the program's, the last column says why
(**Here**). `small`, our own recipe, is in
[methods/training/README.md](../methods/training/README.md). `gated_lora`, `pass` and `draft` have
no `paper`: the rates of the first two are not known to us, and nobody publishes a recipe for the
third.

For all methods: learning rates rise over the warm-up steps and fall to zero at the end of the
budget, whatever that is. The papers' budgets (passes over their text) are in the lines below each
table; give them as `--epochs`."""


def cell(value):
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(cell(x) for x in value)
    if isinstance(value, dict):
        return "; ".join(f"{name}: {cell(x)}" for name, x in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown():
    """docs/recipes.md."""
    lines = [HEAD]
    for method, entry in papers().items():
        recipe = RECIPES[method]["paper"]
        lines += ["", f"## {method}", "",
                  textwrap.fill(f"{entry['paper']}. Program: {entry['program']}.", COLUMNS,
                                break_long_words=False, break_on_hyphens=False), "",
                  "| option | paper | program | `--recipe paper` | where |",
                  "|---|---|---|---|---|"]
        for name, row in entry["rows"].items():
            note = row["where"] + (f". **Here:** {row['why']}" if "why" in row else "")
            lines.append(f"| `{name}` | {cell(row.get('paper'))} | {cell(row.get('program'))} | "
                         f"{cell(recipe.get(name))} | {note} |")
        lines.append("")
        for item in entry["beyond"]:
            lines.append(textwrap.fill(
                f"- {item['what']}: {item['paper']} ({item['where']}). Here: {item['here']}",
                COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
