"""The project's own list of prompts: templates and word lists written for it, expanded by a seed.

Licence: that of the project. No text comes from a benchmark or another data set. The list is a
function of (seed, sizes) alone: the same call gives the same prompts on every machine.
"""
import random

from . import code, code_edit, everyday, maths, texts
from .words import mend_articles

# Family: (writer, share within its kind). A writer takes a random.Random and returns one prompt.
CODE = {
    "function": (code.function_task, 22),
    "pipeline": (code.pipeline_task, 16),
    "words_pipeline": (code.words_task, 8),
    "class": (code.class_task, 10),
    "script": (code.script_task, 11),
    "sql": (code.sql_task, 6),
    "concept": (code.concept_task, 9),
    "fix": (code_edit.fix_task, 6),
    "explain": (code_edit.explain_task, 6),
    "edit": (code_edit.edit_task, 6),
}
OTHER = {
    "maths": (maths.word_problem, 18),
    "numbers": (maths.short_question, 5),
    "summary": (texts.summary_task, 10),
    "rewrite": (texts.rewrite_task, 9),
    "extract": (texts.extract_task, 6),
    "list": (everyday.list_task, 10),
    "explain": (everyday.explain_task, 14),
    "letter": (everyday.letter_task, 10),
    "story": (everyday.story_task, 6),
    "advice": (everyday.advice_task, 8),
    "plan": (everyday.plan_task, 4),
}


def write(n_code, n_other, seed=1, longest=500):
    """[{"id", "source", "prompt"}]: distinct prompts of at most `longest` characters, shuffled.

    Source is `own_code` or `own_text`. Raises ValueError when a family cannot give so many.
    """
    rows = []
    for kind, families, total in (("own_code", CODE, n_code), ("own_text", OTHER, n_other)):
        shares = sum(share for _, share in families.values())
        seen = set()
        for name, (writer, share) in families.items():
            rng = random.Random(f"{seed}:{kind}:{name}")
            wanted = -(-total * share // shares)
            tries = 0
            while wanted > 0:
                tries += 1
                if tries > 60 * total + 1000:
                    raise ValueError(f"own prompts: family {name} has too few variants; ask for "
                                     f"fewer than {total} prompts")
                text = mend_articles(writer(rng)).strip("\n")
                if len(text) > longest or text.lower() in seen:
                    continue
                seen.add(text.lower())
                rows.append({"source": kind, "prompt": text, "family": name})
                wanted -= 1
    random.Random(f"{seed}:order").shuffle(rows)
    for i, row in enumerate(rows):
        row["id"] = f"own-{row.pop('family')}-{i:05d}"
    return [{"id": row["id"], "source": row["source"], "prompt": row["prompt"]} for row in rows]
