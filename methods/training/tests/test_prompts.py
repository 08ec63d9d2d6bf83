import gzip
import json

import pytest

from training.data import own_prompts, passages, prompts
from training.errors import Failure


def row(text, source="a", name="x"):
    return {"id": name, "source": source, "prompt": text}


def test_own_list_is_distinct_deterministic_and_large():
    rows = own_prompts.write(3000, 3000)
    assert len(rows) >= 6000 and len({r["prompt"].lower() for r in rows}) == len(rows)
    assert sum(r["source"] == "own_code" for r in rows) >= 3000
    assert len({r["id"] for r in rows}) == len(rows)
    assert max(len(r["prompt"]) for r in rows) <= 500
    assert rows == own_prompts.write(3000, 3000) and rows != own_prompts.write(3000, 3000, seed=2)
    assert not any("{" in r["prompt"] and "}" in r["prompt"] and "format" in r["id"] for r in rows)


def test_examples_in_code_prompts_are_true():
    import random
    from training.data.own_prompts import code
    checked = 0
    for seed in range(8000):
        text = code.pipeline_task(random.Random(seed))
        if ">>> " not in text:
            continue
        call = text.split(">>> ")[1].split("\n")[0]
        shown = text.split(">>> ")[1].split("\n")[1].strip()
        name, values = call.split("(", 1)
        values = eval(values[:-1])
        if name.startswith("sum_of_squared_even"):
            assert int(shown) == sum(v * v for v in values if v % 2 == 0)
            checked += 1
        if name.startswith("count_distinct_odd"):
            assert int(shown) == len({v for v in values if v % 2 == 1})
            checked += 1
    assert checked > 0


SENTENCE = "The quick brown fox jumps over the lazy dog while nobody is looking at it."


def test_shingles_are_found_whatever_the_case_and_spacing():
    exclusion = prompts.Exclusion(["Intro text. " + SENTENCE + " And more."])
    assert exclusion.hits(SENTENCE)
    assert exclusion.hits("please explain: the QUICK  brown fox\njumps over the lazy dog while "
                          "nobody is")
    assert exclusion.hits("the quick, brown fox jumps - over the lazy dog, while nobody is "
                          "looking!")
    assert not exclusion.hits("the quick brown fox jumps over the lazy")  # shorter than a shingle
    assert not exclusion.hits("The slow brown fox jumps under the lazy dog while somebody is "
                              "looking at it.")
    assert exclusion.hits("INTRO   text. " + SENTENCE + " and more")  # the whole text


def test_short_texts_are_excluded_as_a_whole():
    exclusion = prompts.Exclusion(["Sort a list."])
    assert exclusion.hits("sort a list") and not exclusion.hits("sort a list of numbers")


def test_files_of_an_exclusion_folder(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"turns": ["x", {"deep": SENTENCE}]}) + "\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as handle:
        handle.write(json.dumps({"q": SENTENCE.replace("fox", "cat")}) + "\n")
    (tmp_path / "c.txt").write_text(SENTENCE.replace("fox", "owl"))
    (tmp_path / "d.png").write_bytes(b"\x89PNG\xff\xfe\x00")
    exclusion = prompts.Exclusion.of_files([tmp_path])
    for animal in ("fox", "cat", "owl"):
        assert exclusion.hits(SENTENCE.replace("fox", animal))
    other = SENTENCE.replace("fox jumps", "elk runs").replace("lazy dog", "old cow")
    assert not exclusion.hits(other)
    with pytest.raises(Failure, match="does not exist"):
        prompts.Exclusion.of_files([tmp_path / "nowhere"])


def test_mix_keeps_what_is_allowed():
    rows = [row("one prompt"), row("One  prompt!"), row("another", "b"), row("x" * 501),
            row("third", "c")]
    kept, dropped = prompts.mix(rows, {"a": None, "b": 1}, None, 1)
    texts = sorted(r["prompt"].lower().strip("!").replace("  ", " ") for r in kept)
    assert texts == ["another", "one prompt"]
    assert dropped["repeated"] == 1 and dropped["length"] == 1 and dropped["source"] == 1
    many = [row(f"prompt {i}", "ab"[i % 2]) for i in range(400)]
    kept, _ = prompts.mix(many, {"a": 50, "b": None}, None, 1)
    assert sum(r["source"] == "a" for r in kept) == 50
    assert 4 <= sum(r["source"] == "a" for r in kept[:50]) <= 20  # a prefix is a fair sample


def test_broken_lines_are_named(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(row("fine")) + "\n{broken\n")
    with pytest.raises(Failure, match=r"p.jsonl:2: is not JSON"):
        prompts.read(path)
    path.write_text(json.dumps(row("fine")) + "\n\n" + json.dumps({"id": "y", "source": "s"}) +
                    "\n")
    with pytest.raises(Failure, match=r"p.jsonl:3: field `prompt`"):
        prompts.read(path)
    with pytest.raises(Failure, match="no number"):
        prompts.parse_sources("a:many")


def test_written_lines_are_messages(tmp_path):
    prompts.write([row("hello")], tmp_path / "out" / "p.jsonl")
    line = json.loads((tmp_path / "out" / "p.jsonl").read_text())
    assert line == {"id": "x", "source": "a", "messages": [{"role": "user", "content": "hello"}]}


def documents(n_words):
    """Two documents of sentences of six words each."""
    sentences = [f"Word {i} stands in this sentence." for i in range(n_words // 6)]
    return " ".join(sentences) + "\n\f\n" + "Another text has its own words. " * (n_words // 6)


def test_passages_are_whole_sentences_of_one_document():
    rows = passages.write("letters.txt.gz", documents(3000), 40)
    assert len(rows) == 40 and {r["source"] for r in rows} == {"letters"}
    assert rows == passages.write("letters.txt.gz", documents(3000), 40)
    for r in rows:
        before, _, behind = r["prompt"].partition("\n\n")
        text = behind if before in passages.BEFORE else before
        assert before in passages.BEFORE or behind in passages.BEHIND
        assert text.endswith(".") and ("Word" in text) != ("Another" in text)
        assert passages.WORDS[0] <= len(text.split()) <= 1.5 * passages.WORDS[1]


@pytest.mark.parametrize("given,words,what", [
    ("letters.txt:5", 48, "gives 0 passages"), ("letters.txt:5", 0, "holds no text"),
    ("letters.txt", 600, "has no number")])
def test_passages_that_cannot_be_had(tmp_path, monkeypatch, given, words, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letters.txt").write_text(documents(words) if words else "")
    with pytest.raises(Failure, match=what):
        prompts.read_passages(given, 1)
