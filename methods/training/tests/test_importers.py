import gzip
import hashlib
import json
import types
import zipfile

import pytest

from training.data import files, importers, overlap, prompts
from training.errors import Failure


def run(name, path, out, languages=""):
    """The written lines of an import."""
    importers.run(types.SimpleNamespace(name=name, file=str(path), out=str(out),
                                        languages=languages))
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def texts(row):
    return [(message["role"][0], message["content"]) for message in row["messages"]]


def test_alpaca(tmp_path, capsys):
    path = tmp_path / "code_alpaca_20k.json"
    path.write_text(json.dumps([
        {"instruction": "Add.", "input": "1 2", "output": " 3\n"},
        {"instruction": "Say hi.", "input": "", "output": "hi"},
        {"instruction": "Wait.", "input": "<noinput>", "output": "ok"},
        {"instruction": "Nothing.", "input": "", "output": " "}], indent=1), encoding="utf-8")
    rows = run("code_alpaca", path, tmp_path / "out.jsonl")
    assert [texts(row) for row in rows] == [
        [("u", "Add.\n1 2"), ("a", "3")], [("u", "Say hi."), ("a", "hi")],
        [("u", "Wait."), ("a", "ok")]]
    assert rows[0]["id"] == "code_alpaca-000000" and rows[0]["source"] == "code_alpaca"
    assert "NC" in rows[0]["licence"] and rows[0]["origin"].startswith("https://")
    printed = capsys.readouterr().out
    assert "checksum unknown to us, read by its format" in printed
    assert "3 dialogues with 3 answers" in printed and "empty answer 1" in printed
    # The list is one that `prompts` reads and mixes.
    kept, _ = prompts.mix(prompts.read(tmp_path / "out.jsonl"), None, None, 1)
    prompts.write(kept, tmp_path / "mixed.jsonl")
    mixed = [json.loads(line) for line in (tmp_path / "mixed.jsonl").read_text().splitlines()]
    assert sorted(mixed, key=lambda row: row["id"]) == rows


def test_platypus_and_cip_go_through_convert_data(tmp_path):
    parquet = tmp_path / "x.parquet"
    parquet.write_bytes(b"PAR1 and more")
    with pytest.raises(Failure, match="is Parquet(.|\n)*convert-data(.|\n)*prompt,response"):
        run("cip_train", parquet, tmp_path / "out.jsonl")
    path = tmp_path / "cip_train.jsonl"
    path.write_text('{"prompt":"p","response":"r"}\n\n{"prompt":"","response":"r"}\n')
    assert [texts(row) for row in run("cip_train", path, tmp_path / "o.jsonl")] == [
        [("u", "p"), ("a", "r")]]
    path.write_text('{"instruction":"i","input":"","output":"o","data_source":"ARB"}\n')
    assert len(run("open_platypus", path, tmp_path / "o.jsonl")) == 1


def test_lima(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"conversations": ["q", "a", "q2", "a2", "q3"], "source": "s"}) +
                    "\n" + json.dumps({"conversations": ["alone"], "source": "s"}) + "\n")
    rows = run("lima", path, tmp_path / "o.jsonl")
    assert [texts(row) for row in rows] == [[("u", "q"), ("a", "a"), ("u", "q2"), ("a", "a2")]]
    path.write_text(json.dumps({"conversations": ["alone"]}) + "\n")  # the test part
    with pytest.raises(Failure, match="nothing to learn from .no answer 1"):
        run("lima", path, tmp_path / "o2.jsonl")
    assert not (tmp_path / "o2.jsonl").exists() and not list(tmp_path.glob("*.tmp"))


def chat(*turns):
    return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}


def test_sharegpt(tmp_path, capsys):
    path = tmp_path / "ShareGPT_V4.3_unfiltered_cleaned_split.json"
    records = [
        chat(("human", "q"), ("gpt", "a"), ("human", "q2"), ("gpt", "a2")),
        chat(("gpt", "half"), ("human", "q"), ("gpt", "a")),
        chat(("system", "s"), ("human", "q"), ("gpt", "a")),
        chat(("human", "q"), ("gpt", "a"), ("human", "q2"), ("human", "q3"), ("gpt", "a3")),
        chat(("human", "q"), ("gpt", "a"), ("human", "q2"), ("gpt", "")),
        chat(("human", "q"), ("human", "r")), chat(("human", "q"), ("gpt", " ")), chat()]
    path.write_text(json.dumps(records), encoding="utf-8")
    rows = run("sharegpt", path, tmp_path / "o.jsonl")
    one = [("u", "q"), ("a", "a")]
    assert [texts(row) for row in rows] == [one + [("u", "q2"), ("a", "a2")], one,
                                            [("s", "s")] + one, one, one]
    printed = capsys.readouterr().out
    assert "5 dialogues with 6 answers; 3 dialogues were cut" in printed
    assert "left out: empty answer 1, no answer 1, roles out of order 1" in printed
    path.write_text(json.dumps([chat(("robot", "q"))]))
    with pytest.raises(Failure, match=r"record 1: field `conversations\[0\].from` is `robot`"):
        run("sharegpt", path, tmp_path / "o.jsonl")


def node(text, role, replies=(), **more):
    return {"text": text, "role": role, "lang": "en", "replies": list(replies)} | more


def test_oasst_takes_the_replies_ranked_best(tmp_path):
    tree = {"message_tree_id": "t", "prompt": node("q", "prompter", [
        node("worse", "assistant", rank=1),
        node("gone", "assistant", rank=0, deleted=True),
        node("best", "assistant", [node("q2", "prompter", [node("a2", "assistant")]),
                                   node("other", "prompter")], rank=0)])}
    german = {"message_tree_id": "g",
              "prompt": node("f", "prompter", [node("a", "assistant")], lang="de")}
    path = tmp_path / "trees.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as handle:
        handle.write(json.dumps(tree) + "\n" + json.dumps(german) + "\n")
    rows = run("oasst1", path, tmp_path / "o.jsonl")
    assert texts(rows[0]) == [("u", "q"), ("a", "best"), ("u", "q2"), ("a", "a2")]
    assert len(rows) == 2
    assert len(run("oasst1", path, tmp_path / "o.jsonl", "en,fr")) == 1
    with pytest.raises(Failure, match="--languages"):
        run("lima", path, tmp_path / "o.jsonl", "en")
    tree["prompt"]["replies"][2]["text"] = None
    with gzip.open(path, "wt", encoding="utf-8") as handle:
        handle.write(json.dumps(tree) + "\n")
    with pytest.raises(Failure, match=r":1: field `prompt.replies\[2\]` is no message"):
        run("oasst1", path, tmp_path / "o.jsonl")


def test_oanc_becomes_texts(tmp_path):
    path = tmp_path / "OANC_GrAF.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("OANC-GrAF/README.txt", "about")
        archive.writestr("OANC-GrAF/data/written_1/b.txt", "\t The  dog\n  barked.\f\n\n\n Then \n")
        archive.writestr("OANC-GrAF/data/spoken/a.txt", "Hello".encode("utf-16"))
        archive.writestr("OANC-GrAF/data/spoken/a.xml", "<x/>")
        archive.writestr("OANC-GrAF/data/spoken/c.txt", "  \n")
    rows = run("oanc", path, tmp_path / "o.jsonl")
    assert [row["text"] for row in rows] == ["Hello", "The dog barked.\n\nThen"]
    assert rows[0]["licence"] == "free for any use" and "messages" not in rows[0]
    with pytest.raises(Failure, match="`prompt` is missing"):
        prompts.read(tmp_path / "o.jsonl")
    path.write_text("no archive")
    with pytest.raises(Failure, match="is no zip archive"):
        run("oanc", path, tmp_path / "o.jsonl")


def test_checksums(tmp_path, monkeypatch, capsys):
    path = tmp_path / "train.jsonl"
    data = (json.dumps({"conversations": ["q", "a"]}) + "\n").encode()
    path.write_bytes(data)
    known = {"name": "train.jsonl", "bytes": len(data),
             "sha256": hashlib.sha256(data).hexdigest()}
    monkeypatch.setitem(importers.OFFICIAL, "lima", importers.OFFICIAL["lima"] | {"files": [known]})
    run("lima", path, tmp_path / "o.jsonl")
    assert "official file train.jsonl, SHA-256 right" in capsys.readouterr().out
    path.write_bytes(data.replace(b"q", b"r"))
    with pytest.raises(Failure, match=f"{known['sha256']}.*damaged or edited"):
        run("lima", path, tmp_path / "o.jsonl")
    path.write_bytes(data + b"\n")
    run("lima", path, tmp_path / "o.jsonl")
    assert "unknown to us" in capsys.readouterr().out


def test_the_catalogue_is_complete():
    for name, entry in importers.OFFICIAL.items():
        assert entry["format"] in importers.FORMATS or entry["format"] == importers.TEXTS, name
        assert entry["licence"] and entry["url"].startswith("https://") and entry["files"]
        for file in entry["files"]:
            assert ("sha256" in file) == ("bytes" in file), name
            assert len(file.get("sha256", "0" * 64)) == 64
        parquet = any(file["name"].endswith(".parquet") for file in entry["files"])
        assert parquet == ("columns" in entry), name
    assert "ShareGPT" in importers.catalogue()


@pytest.mark.parametrize("text,what", [
    ('[{"conversations": ["q", "a"]}, {"conv', "record 2: is not JSON"),
    ('[{"conversations": ["q", "a"]}, 7]', "record 2: is not an object"),
    ("", "is empty"), ('{"conversations": ["q"', "train.jsonl:1: is not JSON"),
    ('{"instruction": "q"}', "`conversations` is missing"),
    ('{"conversations": ["q", 7]}', "`conversations` is missing or no list of texts")])
def test_other_files_are_refused(tmp_path, text, what):
    path = tmp_path / "train.jsonl"
    path.write_text(text)
    with pytest.raises(Failure, match=what):
        run("lima", path, tmp_path / "o.jsonl")
    assert not (tmp_path / "o.jsonl").exists()


def test_fields_of_another_format_are_named(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"prompt": "p", "response": "r"}\n')
    with pytest.raises(Failure, match="x.jsonl:1: field `instruction` .*prompt, response"):
        run("code_alpaca", path, tmp_path / "o.jsonl")
    with pytest.raises(Failure, match="does not exist"):
        run("lima", tmp_path / "nothing", tmp_path / "o.jsonl")
    with pytest.raises(Failure, match="unknown data set `limo`"):
        run("limo", path, tmp_path / "o.jsonl")
    (tmp_path / "z.jsonl.gz").write_text("plain")
    with pytest.raises(Failure, match="is no gzip file"):
        run("lima", tmp_path / "z.jsonl.gz", tmp_path / "o.jsonl")


def test_arrays_are_read_in_pieces(tmp_path, monkeypatch):
    rows = [{"n": i, "text": "ä]" * (i % 40)} for i in range(300)]
    path = tmp_path / "x.json"
    for indent in (None, 2):
        path.write_text(" " + json.dumps(rows, indent=indent, ensure_ascii=False))
        for chunk in (1, 7, 4096, 1 << 20):
            monkeypatch.setattr(files, "CHUNK", chunk)
            found = list(files.json_records(path))
            assert [row for _, row in found] == rows
    assert found[4][0] == f"{path}: record 5"


def prompt_line(*messages, **more):
    return {"id": "x", "source": "s", "messages": [{"role": role, "content": text}
                                                   for role, text in messages]} | more


def test_dialogues_in_prompt_lists(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps(prompt_line(("user", "q"), ("assistant", "a"), ("user", "r"),
                                           licence="L", origin="O")) + "\n")
    rows = prompts.read(path)
    assert prompts.asked(rows[0]) == ["q", "r"] and prompts.said(rows[0]) == ["q", "a", "r"]
    assert prompts.render(rows[0]) == json.loads(path.read_text())
    long = prompt_line(("user", "x" * 501), ("assistant", "a")) | {"id": "l"}
    leak = prompt_line(("user", "z"), ("assistant", "the quick brown fox jumps over the lazy dog "
                                                    "while nobody looks"))
    exclusion = prompts.Exclusion(["the quick brown fox jumps over the lazy dog while nobody looks"])
    kept, dropped = prompts.mix([*rows, *rows, long, leak], None, exclusion, 1)
    assert kept == rows and dropped["repeated"] == 1
    assert dropped["length"] == 1 and dropped["excluded"] == 1


@pytest.mark.parametrize("messages,what", [
    ([], "no list of messages"), ([("assistant", "a")], r"messages\[0\]` is the assistant's"),
    ([("user", "q"), ("user", "r")], r"messages\[1\]` is the user's where"),
    ([("user", "q"), ("assistant", " ")], r"messages\[1\]` is empty"),
    ([("system", "s")], "no message of the user"),
    ([("user", "q"), ("system", "s")], r"messages\[1\]` is the system's"),
    ([("user", None)], r"messages\[0\]` has no texts")])
def test_broken_dialogues_are_named(tmp_path, messages, what):
    path = tmp_path / "p.jsonl"
    path.write_text("\n" + json.dumps(prompt_line(*messages)) + "\n")
    with pytest.raises(Failure, match="p.jsonl:2: .*" + what):
        prompts.read(path)


def report(tmp_path, name, **sets):
    path = tmp_path / name
    rows = [{"set": key, "prompts": 10, "overlapping": n, "share": n / 10}
            for key, n in sets.items()]
    path.write_text(json.dumps({"texts": [{"sha256": name, "sets": rows}]}))
    return path


def test_overlap_is_refused_or_marked(tmp_path):
    clean, bad = report(tmp_path, "a", gsm8k=0), report(tmp_path, "b", gsm8k=3, mbpp=0)
    worse = report(tmp_path, "c", gsm8k=5, mbpp=1)
    found = overlap.read([clean, bad, worse])
    assert found == {"a": {"gsm8k": 0}, "b": {"gsm8k": 3, "mbpp": 0},
                     "c": {"gsm8k": 5, "mbpp": 1}}
    overlap.refuse(overlap.read([clean]), False)
    overlap.refuse(found, True)
    with pytest.raises(Failure, match="3 prompts of gsm8k(.|\n)*--out CLEAN(.|\n)*--force-overlap"):
        overlap.refuse(overlap.read([bad]), False)
    of = types.SimpleNamespace
    assert overlap.of_captures(of(infos=[{"in_hash": "a"}]), found) == {"gsm8k": 0}
    # Of a set that one list was not compared with, nothing is known.
    assert overlap.of_captures(of(infos=[{"in_hash": "a"}, {"in_hash": "b"}]), found) == {
        "gsm8k": 3}
    both = of(infos=[{"in_hash": "b"}, {"in_hash": "c"}, {"in_hash": "b"}])
    assert overlap.of_captures(both, found) == {"gsm8k": 5, "mbpp": 1}
    assert overlap.of_captures(of(infos=[{"in_hash": "b"}, {"in_hash": "x"}]), found) is None
    (tmp_path / "empty").write_text("")
    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(Failure, match="evalrun data overlap"):
            overlap.read([path])
