"""Prompts about longer texts: a passage of a document and a request, for drafters that are to work
after long prompts too. The documents are given (plain text; a line that holds only a form feed
separates them); the requests are this project's.
"""
import pathlib
import random
import re

from ..errors import Failure

# The passage comes before the request or after it.
BEHIND = (
    "Summarize the text above in one sentence.", "Give a brief summary of this text.",
    "What is the text above about? Answer in two sentences.",
    "Write a short headline for this article.", "List the three main points of the text.",
    "Who or what is described here, and how?", "Summarize this for a reader in a hurry.",
    "In one sentence, what happened?", "What question does this passage raise?",
    "Explain the passage above in simple words.", "Continue the text with one more paragraph.",
)
BEFORE = (
    "Summarize the following text:", "Read this passage and say what it is about:",
    "Write a one-sentence summary of this article:", "Rewrite this in plain modern English:",
    "What are the most important facts in the following text?", "Shorten the following text:",
    "Which people are named in this text, and what do they do?",
)
WORDS = (60, 380)  # of a passage, drawn evenly


def documents(path, text):
    parts = [part.strip() for part in re.split(r"^\f$", text, flags=re.MULTILINE)]
    parts = [part for part in parts if part]
    if not parts:
        raise Failure(path, "holds no text", "give plain text")
    return parts


def passage(document, rng):
    """Whole sentences of `document`, about as many words as drawn; None when it is too short."""
    sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.!?])\s+", document)]
    wanted = rng.randint(*WORDS)
    first = rng.randrange(len(sentences))
    taken, n = [], 0
    for sentence in sentences[first:]:
        taken.append(sentence)
        n += len(sentence.split())
        if n >= wanted:
            break
    return " ".join(taken) if WORDS[0] <= n <= 1.5 * WORDS[1] else None


def write(path, text, n, seed=1):
    """[{"id", "source", "prompt"}]: n prompts from one file; the source is the file's name.

    Documents are drawn evenly, whatever their length: a book is not worth a hundred letters.
    """
    source = pathlib.Path(path).name.split(".")[0]
    parts = documents(path, text)
    rng = random.Random(f"{seed}:passages:{source}")
    rows, tries = [], 0
    while len(rows) < n:
        tries += 1
        if tries > 50 * n + 1000:
            raise Failure(path, f"gives {len(rows)} passages, not {n}", "ask for fewer")
        text = passage(rng.choice(parts), rng)
        if text is None:
            continue
        if rng.random() < len(BEHIND) / (len(BEHIND) + len(BEFORE)):
            prompt = f"{text}\n\n{rng.choice(BEHIND)}"
        else:
            prompt = f"{rng.choice(BEFORE)}\n\n{text}"
        rows.append({"id": f"{source}-{len(rows):05d}", "source": source, "prompt": prompt})
    return rows
