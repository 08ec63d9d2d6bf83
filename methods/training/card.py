"""The model card that is written beside an adapter.

`python3 methods/training/card.py ADAPTER...` writes the cards of adapters again. It needs no
PyTorch: all that a card says is in the adapter's metadata.
"""
import json
import pathlib
import sys
import textwrap

COLUMNS = 100
# Of the sources that prompts.py may be given and whose licence is known to us.
LICENCES = {"own_code": "Apache-2.0 (this project)", "own_text": "Apache-2.0 (this project)",
            "mbpp": "CC BY 4.0", "gpteacher_roleplay": "MIT", "hh_rlhf_helpful": "MIT", "gsm8k_train": "MIT",
            "self_instruct_seed": "Apache-2.0",
            "masc_text": "MASC (free, commercial development included)",
            "us_presidential_addresses": "public domain", "gutenberg_books": "public domain"}

TEXTS = {"self": "the target's own greedy answers to the prompts below (answers=self); no answers of "
                 "others",
         "dataset": "answers of data sets to the prompts below (answers=dataset), not the target's"}
WALKS = {"self": "along the target's answers",
         "dataset": "along the data sets' answers (the target would give others, so this is not what "
                    "decoding accepts)"}
OWNERS = {"self": "the target's own output",
          "dataset": "answers of data sets, whose licences are above"}


def wrapped(lines):
    """Prose and list items of at most COLUMNS; tables, headings and code as they are."""
    is_code = False
    for line in lines:
        is_code ^= line.startswith("```")
        if is_code or line.startswith(("|", "#", "```")):
            yield line
        else:
            yield textwrap.fill(line, COLUMNS, break_long_words=False, break_on_hyphens=False,
                                subsequent_indent="  " if line.startswith("- ") else "")


def token_weights(weights):
    """One sentence; by the other `loss_by` for comparison."""
    row, chosen = weights["mask_row"], weights["loss_by"]
    other = next(name for name in row if name != chosen)
    return (f"token weights: a mask row weighs {row[chosen]:,.3g} times what a row of text does "
            f"(loss by {chosen}; {row[other]:,.3g} times by {other}); counted in the first "
            f"{weights['updates']} updates, {weights['text_rows']:,.1f} rows of text and "
            f"{weights['mask_rows']:,.1f} mask rows in each")


def budget(one):
    """One sentence that names what must be equal for two adapters to be compared."""
    return (f"budget: {one['updates']:,} updates, batch {one['batch']:,}, "
            f"text `{one['text'][:16]}`, {one['optimiser']}")


def overlap_lines(training):
    """What is known of evaluation prompts in the training text; nothing in older adapters."""
    if "overlap" not in training:
        return []
    if training["overlap"] is None:
        return ["- prompts of evaluation sets in the text: not looked for"]
    found = ", ".join(f"{count} of `{name}`" for name, count in training["overlap"].items()
                      if count)
    return ["- prompts of evaluation sets in the text, by 13-grams: " + (
        f"**{found}**; figures measured there flatter the adapter" if found else
        "none of " + ", ".join(f"`{name}`" for name in training["overlap"]))]


def write(path, metadata, size):
    """Markdown from the adapter's own metadata."""
    training, config = metadata["training"], metadata["config"]
    accept, vocabulary = training["acceptance"], training.get("vocabulary", {})
    answers = training.get("answers", "self")
    lines = [
        f"# {metadata['method']} drafter for {metadata['target_name']}", "",
        f"Draft head of the method `{metadata['method']}`, {size / 1e6:.2f} MB, for the target "
        f"{metadata['target_name']} with the SHA-256 `{metadata['target_hash']}` only.", "",
        "## Training", "",
        f"- recipe `{training['recipe']}`, seed {training['seed']}, on {training['device']}, "
        f"PyTorch {training['torch']}",
        f"- {training['tokens_seen']:,} {training.get('unit', 'answer tokens')} seen; the text has "
        f"{training['unique_tokens']:,} answer tokens",
        f"- {training['cpu_seconds']:,.0f} CPU-seconds, {training['wall_seconds']:,.0f} seconds of "
        "wall time (training alone, without generating the text)",
        *(["- " + budget(training["budget"])] if "budget" in training else []),
        *(["- " + token_weights(training["token_weights"])] if "token_weights" in training else []),
        "- text: " + TEXTS[answers],
        f"- configuration: `{json.dumps(config)}`", *overlap_lines(training), ""]
    if vocabulary:
        lines += [f"The drafter proposes {vocabulary['size']:,} of {vocabulary['target_size']:,} "
                  "tokens, which cover "
                  f"{vocabulary['coverage']:.1%} of the held-out answers.", ""]
    lines += ["| prompts of | number | licence |", "|---|---|---|"]
    licences = LICENCES | training.get("licences", {})
    lines += [f"| {name} | {number} | {licences.get(name, 'see its source')} |"
              for name, number in training["sources"].items()]
    lines += ["", "## Acceptance", "",
              f"Simulated greedy decoding {WALKS[answers]} of "
              f"{accept.get('held_out_prompts', '?')} held-out prompts "
              f"({accept.get('held_out_tokens', 0):,} tokens); tau counts the bonus token.", "",
              "| draft | tau |", "|---|---|", f"| chain | {accept['chain_tau']:.3f} |"]
    if "two_calls_tau" in accept:
        lines.append(f"| chain, drafted in a forward of its own | {accept['two_calls_tau']:.3f} |")
    lines += [f"| tree of {rows} rows | {value:.3f} |" for rows,
              value in accept["tree_tau"].items()]
    lines += ["", "Top-1 by draft position, given that the earlier ones were right: " +
              " ".join(f"{share:.3f}" for share in accept["position"]), ""]
    if accept.get("by_source"):
        lines += ["| prompts of | chain tau | tree of 32 rows | prompts |", "|---|---|---|---|"]
        lines += [f"| {name} | {row['chain_tau']:.2f} | {row['tree32_tau']:.2f} | "
                  f"{row['prompts']} |"
                  for name, row in accept["by_source"].items()]
        lines.append("")
    lines += ["## Made with", "", "```sh", training["command"], "```", "", "## Licence", "",
              f"Apache-2.0, as the project. The weights are trained on {OWNERS[answers]}; the "
              "target's licence applies to the target.", ""]
    path.write_text("\n".join(wrapped(lines)), encoding="utf-8")


def stored_metadata(path):
    """Of the safetensors header, with its JSON values read."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]
    return {**header, "config": json.loads(header["config"]),
            "training": json.loads(header["training"])}


def main(adapters):
    for path in map(pathlib.Path, adapters):
        write(path.with_suffix(".md"), stored_metadata(path), path.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
