#!/usr/bin/env python3
"""Writes tests/data/text_scores.jsonl.gz and tests/data/porter_stems.txt.gz: pairs of texts with what
the original packages make of them, and words with their stems.

    pip install rouge==1.0.1 rouge-score==0.1.2 sacrebleu==2.6.0
    python3 tests/evaluators/make_text_scores.py tests/data

One line a pair: {"kind", "answer", "reference", "pltrdy", "google", "google_stem", "bleu"}. `pltrdy` holds
[precision, recall, F] of rouge1, rouge2, rougeL, or the text of the error that the package raises;
`google` and `google_stem` those of rouge1, rouge2, rougeL, rougeLsum. Takes some minutes: the long texts
are slow in Python.
"""
import gzip
import json
import logging
import random
import sys
import threading
from importlib.metadata import version
from pathlib import Path

import sacrebleu
from nltk.stem.porter import PorterStemmer
from rouge import Rouge
from rouge_score.rouge_scorer import RougeScorer

assert (version("rouge"), version("rouge-score"), version("sacrebleu")) == ("1.0.1", "0.1.2", "2.6.0")
logging.getLogger("absl").setLevel(logging.ERROR)

KINDS = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
PLTRDY = Rouge()
GOOGLE = RougeScorer(KINDS, use_stemmer=False)
STEMMING = RougeScorer(KINDS, use_stemmer=True)


def pltrdy(answer, reference):
    try:
        scores = PLTRDY.get_scores([answer], [reference])[0]
    except ValueError as error:
        return str(error)
    return {k: [scores[name][x] for x in "prf"] for k, name in
            (("rouge1", "rouge-1"), ("rouge2", "rouge-2"), ("rougeL", "rouge-l"))}


def google(scorer, answer, reference):
    return {k: list(map(float, s)) for k, s in scorer.score(reference, answer).items()}


rng = random.Random(20261121)
WORDS = """the of and to in a is that for it was on are as with his they at be this from have or by one had
not but what all were when we there can an your which their said if do will each about how up out them then
she many some so these would other into has more her two like him see time could no make than first been its
who now people my made over did down only way find use may water long little very after words called just
where most know get through back much before go good new write our used me man too any day same right look
think also around another came come work three word must because does part even place well such here take why
things help put years different away again off went old number great tell men say small every found still
between name should Mr. home big give air line set own under read last never us left end along while might
next sound below saw something thought both few those always looked show large often together asked house
don't world going want running nationally relational happily organisations stopped stopping studies studied
U.S. 3.14 1,000 $5 10-12 well-known e.g. "quoted" (bracketed) isn't a/b 50% state-of-the-art""".split()
OTHER = """привет мир это тест Ёлка ёлка 今天 天气 很好。 今日は 良い天気です。 مرحبا بالعالم שלום γειά σου Straße
STRASSE ﬁne naïve café cafe\u0301 İstanbul ıstanbul 5\u212a \u212aelvin １２ 🙂 👩‍🚀 한국어 ไทย नमस्ते zero\u200bwidth soft\u00adhyphen""".split()
SPACES = [" ", " ", " ", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\t", "\n", "\x1c", "  ", "\u1680", "\u205f"]
SOUP = list("aabbZ019.,.,-&;<>\"'$%()[]{}/\\_`~^|!?:@#*+= \n\t") + ["-\n", "&quot;", "&amp;", "&lt;", "&gt;",
                                                                "&amp;lt;", "<skipped>", "é", "。", "\u00a0", ".", " "]


def sentence_text(n, vocabulary, stop_every):
    out = []
    for _ in range(n):
        word = vocabulary[min(int(rng.expovariate(6 / len(vocabulary))), len(vocabulary) - 1)]
        out.append(word + ("." if rng.random() < 1 / stop_every else ",") if rng.random() < 0.3 else word)
        if rng.random() < 0.4 / stop_every:
            out[-1] += "\n" + rng.choice(["", "", ". ", "\n"])
    return " ".join(out)


def noisy(text, vocabulary, share):
    """A text that shares much with another: words dropped, replaced, repeated, moved."""
    words, out = text.split(" "), []
    for word in words:
        chance = rng.random()
        if chance < share / 3:
            continue
        out.append(rng.choice(vocabulary) if chance < share * 2 / 3 else word)
        if chance > 1 - share / 6:
            out.append(word)
    if rng.random() < share and len(out) > 4:
        cut = rng.randrange(len(out))
        out = out[cut:] + out[:cut]
    return " ".join(out)


def few_words():
    """Few different words: many longest subsequences of equal length."""
    letters = "abcdef"[: rng.randrange(2, 7)]
    return "".join(rng.choice(letters) + rng.choice([" ", " ", " ", " ", ". ", ".", "\n", " . "])
                   for _ in range(rng.randrange(0, 40)))


def pairs():
    edges = ["", " ", "\n", ".", "..", ". .", ". ", " . . ", "a", "a.", "a. ", "a .", ".a", "a. b", "a\nb", "\n\na\n",
             "A", "a a a", "the cat", "the cat. ", "the cat.\n", "The cat sat. The cat ran. ", "中文。", "中文", "\u00a0",
             "\u3000.", "5", "5.0", "-", "-\n", "x-\ny", "x-\n", "&amp;", "<skipped>", "...", "e.g. this", "\u0130", "\u212a"]
    for a in edges:
        for r in edges:
            if rng.random() < 0.5:
                yield "edge", a, r
    for _ in range(700):
        reference = sentence_text(rng.randrange(1, 60), WORDS, rng.choice([6, 12, 1000]))
        yield "words", noisy(reference, WORDS, rng.random()), reference
    for _ in range(250):
        vocabulary = OTHER + WORDS[: rng.randrange(0, 60)]
        make = lambda: "".join(rng.choice(vocabulary) + rng.choice(SPACES) + rng.choice(["", "", "", ".", ". "])
                               for _ in range(rng.randrange(0, 25)))
        reference = make()
        yield "other scripts", rng.choice([make(), noisy(reference, vocabulary, 0.4)]), reference
    for _ in range(700):
        yield "few words", few_words(), few_words()
    for _ in range(400):
        make = lambda: "".join(rng.choice(SOUP) for _ in range(rng.randrange(0, 50)))
        reference = make()
        yield "soup", rng.choice([make(), reference[rng.randrange(len(reference) + 1):], reference]), reference
    for n, m in ((300, 1000), (1500, 60), (60, 1500), (900, 900)):
        yield "long sentence", *(" ".join(rng.choice(WORDS[:40]).replace(".", "") for _ in range(k)) for k in (n, m))
    for vocabulary, stop_every in ((WORDS, 10), (WORDS[:60], 14)):
        reference = sentence_text(5000, vocabulary, stop_every)
        yield "5000 words", noisy(reference, vocabulary, 0.5), reference


def stem_words():
    words = set(w.lower() for w in " ".join(WORDS).replace(".", "").split() if w.isalnum())
    words |= set("""sky skies dying lying tying news innings inning outings outing cannings canning howe proceed
        exceed succeed flies dies mules denied died agreed owned humbled sized meeting stating siezing itemization
        sensational traditional reference colonizer plotted happy enjoy spy spied nationally geology archaeologi
        hopefully feed agree yyyy syzygy toy by rational conditional hesitanci digitizer conformabli radicalli
        differentli vileli analogousli vietnamization predication operator feudalism decisiveness hopefulness
        callousness formaliti sensitiviti sensibiliti triplicate formative formalize electriciti electrical hopeful
        goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement
        adjustment dependent adoption homologou communism activate angulariti homologous effective bowdlerize
        probate rate cease controll roll 2000s 1970ies 3ing oing eed ying ion sion ation ization fulli logi""".split())
    suffixes = """s es ies sses ed ied eed ing at bl iz y ational tional enci anci izer bli abli alli entli eli ousli
        ization ation ator alism iveness fulness ousness aliti iviti biliti fulli logi icate ative alize iciti ical
        ful ness al ance ence er ic able ible ant ement ment ent ion sion tion ou ism ate iti ous ive ize e ll
        lly ally ings edly ingly ation ations""".split()
    while len(words) < 6000:
        stem = "".join(rng.choice("aeiouybcdglnrstwxz") for _ in range(rng.randrange(1, 6)))
        words.add(stem + rng.choice(suffixes) + (rng.choice(suffixes) if rng.random() < 0.3 else ""))
    return sorted(w for w in words if len(w) > 3)


def write(path, lines):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        for line in lines:
            out.write((line + "\n").encode())


def main():
    folder, rows = Path(sys.argv[1]), []
    for kind, answer, reference in pairs():
        rows.append(json.dumps({
            "kind": kind, "answer": answer, "reference": reference, "pltrdy": pltrdy(answer, reference),
            "google": google(GOOGLE, answer, reference), "google_stem": google(STEMMING, answer, reference),
            "bleu": sacrebleu.sentence_bleu(answer, [reference]).score}, ensure_ascii=False))
    write(folder / "text_scores.jsonl.gz", rows)
    stemmer = PorterStemmer()
    write(folder / "porter_stems.txt.gz", [f"{word} {stemmer.stem(word)}" for word in stem_words()])
    print(len(rows), "pairs")


# The package recurses once a word; without room for it, long sentences raise.
sys.setrecursionlimit(100_000)
threading.stack_size(512 * 1024 * 1024)
thread = threading.Thread(target=main)
thread.start()
thread.join()
