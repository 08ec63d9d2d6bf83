import json

import pytest
import torch

from training import target, tensorfile, vocabulary
from training.data import batches, capture
from training.errors import Failure
from training.tests import made_up


def test_reads_all_parts(world):
    data = world.capture
    assert len(data.sequences) == 40 and len(data.parts) == 2
    s = data.sequences[3]
    assert len(data.tokens(s)) == s.n
    assert data.rows(s, "hidden", s.n - 1, s.n).abs().max() == 0  # the last token was never fed
    assert data.rows(s, "residual", 0, 2).shape == (2, 3 * made_up.D)


def test_states_predict_the_next_token(world):
    s = world.capture.sequences[0]
    states = world.capture.rows(s, "hidden", s.prompt - 1, s.n - 1).float()
    assert ((states @ world.head.T).argmax(-1) == world.capture.tokens(s)[s.prompt:]).all()
    assert target.check(world.target, world.capture, world.held) == 1.0


def test_split_is_by_prompt_and_stable(world, tmp_path):
    train, held = world.capture.split(1, 6)
    assert len(held) == 6 and len(train) + len(held) == len(world.capture.sequences)
    assert not {s.line for s in train} & {s.line for s in held}
    assert [s.line for s in world.capture.split(1, 6)[1]] == [s.line for s in held]
    assert [s.line for s in world.capture.split(2, 6)[1]] != [s.line for s in held]


def test_two_folders_are_joined(world, tmp_path):
    made_up.write_capture(tmp_path / "b", world.head, n_sequences=10, seed=5, residual=True)
    both = capture.Capture([world.folder / "capture", tmp_path / "b"])
    assert len(both.sequences) == 50
    assert {s.folder for s in both.sequences} == {0, 1}
    made_up.write_capture(tmp_path / "c", world.head, model_hash="another")
    with pytest.raises(Failure, match="another"):
        capture.Capture([world.folder / "capture", tmp_path / "c"])


def test_answers_of_a_data_set(world, tmp_path):
    made_up.write_capture(tmp_path / "b", world.head, answers="dataset")
    data = capture.Capture([tmp_path / "b"])
    assert data.answers == "dataset" and world.capture.answers == "self"
    assert 0.5 < target.check(world.target, data, data.sequences) < 0.95
    with pytest.raises(Failure, match="one kind of answers"):
        capture.Capture([world.folder / "capture", tmp_path / "b"])
    made_up.write_target(tmp_path, seed=9)
    with pytest.raises(Failure, match="no likelier than any"):
        target.check(target.open_target(tmp_path), data, data.sequences)
    info = tmp_path / "b" / "capture.json"
    info.write_text(info.read_text().replace('"dataset"', '"nobody"'))
    with pytest.raises(Failure, match="'nobody', not self or dataset"):
        capture.Capture([tmp_path / "b"])


def test_a_question_through_two_templates_is_held_out_twice(world, tmp_path):
    folders = [world.folder / "capture", tmp_path / "short"]
    made_up.write_capture(folders[1], world.head)
    for wanted in range(2, 20):
        train, held = capture.Capture(folders).split(1, wanted)
        assert wanted <= len(held) <= wanted + 1 and len(train) + len(held) == 80
        assert not {s.line for s in train} & {s.line for s in held}
        assert {s.folder for s in held} == {0, 1}


def test_another_target_is_refused(world, tmp_path):
    made_up.write_target(tmp_path, seed=9)
    with pytest.raises(Failure, match="gives only"):
        target.check(target.open_target(tmp_path), world.capture, world.held)
    wide = tmp_path / "wide"
    wide.mkdir()
    made_up.write_target(wide, d=48)
    with pytest.raises(Failure, match="model.d_model"):
        target.check(target.open_target(wide), world.capture, world.held)


def test_broken_files_are_named(world, tmp_path):
    made_up.write_capture(tmp_path, world.head, n_sequences=4)
    part = tmp_path / "part-00001.safetensors"
    whole = part.read_bytes()
    part.write_bytes(whole[:-100])
    with pytest.raises(Failure, match="part-00001.*does not fit"):
        capture.Capture(tmp_path)
    tensors, metadata = tensorfile.read(tmp_path / "part-00000.safetensors")
    tensorfile.write(part, {k: v for k, v in tensors.items() if k != "hidden"}, metadata)
    with pytest.raises(Failure, match="hidden is missing"):
        capture.Capture(tmp_path)
    info = json.loads((tmp_path / "capture.json").read_text())
    (tmp_path / "capture.json").write_text(json.dumps(info | {"version": 4}))
    with pytest.raises(Failure, match="version 4"):
        capture.Capture(tmp_path)
    with pytest.raises(Failure, match="capture.json"):
        capture.Capture(tmp_path / "nowhere")


def test_missing_tensor_of_the_target_is_named(tmp_path):
    made_up.write_target(tmp_path)
    tensors, _ = tensorfile.read(tmp_path / "model.safetensors")
    kept = {k: v.clone() for k, v in tensors.items() if "layers.3.mlp.up" not in k}
    tensorfile.write(tmp_path / "model.safetensors", kept)
    with pytest.raises(Failure, match="layers.3.mlp.up_proj.weight is missing"):
        target.open_target(tmp_path).layer(3)


def test_vocabulary_takes_the_frequent_tokens(world):
    words = vocabulary.choose(world.capture, world.train, made_up.V, 20)
    assert words.size == 20 and (words.ids[1:] > words.ids[:-1]).all()
    counts = torch.zeros(made_up.V)
    for s in world.train:
        counts += torch.bincount(world.capture.tokens(s)[s.prompt:], minlength=made_up.V)
    inside = counts[words.ids].sum() / counts.sum()
    assert abs(vocabulary.coverage(world.capture, world.train, words) - inside) < 1e-6
    best = counts.sort(descending=True).values[:20].sum() / counts.sum()
    assert inside > best - 0.02  # prompts have a small say
    assert vocabulary.choose(world.capture, world.train, made_up.V, 0).is_complete


def write_dialogues(folder, head, rewritten=False):
    """A capture whose texts have two answers; or, rewritten, a second text in every line with its
    first tokens but two and one more answer. Returns [(tokens, spans)]."""
    made_up.write_capture(folder, head, n_sequences=8, parts=1, longest=60)
    info = json.loads((folder / "capture.json").read_text())
    (folder / "capture.json").write_text(json.dumps(info | {"version": 3}))
    path = folder / "part-00000.safetensors"
    tensors, metadata = tensorfile.read(path)
    starts, texts = tensors["start"].tolist(), []
    for s, prompt in enumerate(tensors["prompt"].tolist()):
        ids, hidden = (tensors[name][starts[s]:starts[s + 1]] for name in ("tokens", "hidden"))
        line = int(tensors["line"][s])
        texts.append((line, ids, hidden, [(prompt, prompt + 8), (prompt + 10, len(ids))]))
        if rewritten:
            other = torch.cat([ids[:prompt - 1], (ids[prompt - 1:] + 1) % made_up.V])
            texts.append((line, other, hidden, [(prompt + 10, len(ids))]))
    lengths = torch.tensor([0] + [len(ids) for _, ids, _, _ in texts])
    spans = [span for text in texts for span in text[3]]
    counts = torch.tensor([0] + [len(text[3]) for text in texts])
    tensorfile.write(path, {
        "tokens": torch.cat([text[1] for text in texts]).int(), "start": lengths.cumsum(0),
        "hidden": torch.cat([text[2] for text in texts]),
        "prompt": torch.tensor([text[3][0][0] for text in texts], dtype=torch.int32),
        "line": torch.tensor([text[0] for text in texts]),
        "ended": torch.zeros(len(texts), dtype=torch.uint8), "answers": counts.cumsum(0),
        "answer_first": torch.tensor([a for a, _ in spans], dtype=torch.int32),
        "answer_last": torch.tensor([b for _, b in spans], dtype=torch.int32)}, metadata)
    return [(text[1], text[3]) for text in texts]


@pytest.mark.parametrize("rewritten", [False, True])
def test_every_turn_of_a_dialogue_is_learnt_once(world, tmp_path, rewritten):
    texts = write_dialogues(tmp_path, world.head, rewritten)
    data = capture.Capture(tmp_path)
    expected = [(ids, a, b) for ids, spans in texts for a, b in spans
                if b - a >= capture.FEWEST_ANSWER_TOKENS]
    assert len(data.sequences) == len(expected) > 8
    for s, (ids, first, last) in zip(data.sequences, expected):
        assert (s.prompt, s.n) == (first, last) and (data.tokens(s) == ids[:last].long()).all()
    assert capture.answer_tokens(data.sequences) == sum(b - a for _, a, b in expected)
    # What stands before an answer counts once: not again with the turns after it.
    previous = None
    for s in data.sequences:
        same = previous is not None and (previous.part, previous.start) == (s.part, s.start)
        if same:
            assert s.fresh == previous.n
        elif previous is not None and previous.line == s.line:
            assert s.fresh == world_prefix(data, previous, s) == s.prompt - 11
        else:
            assert s.fresh == 0
        previous = s
    # A window of a batch holds targets of its own answer alone.
    batch = batches.make(data, data.sequences[:4], 1)
    for b, s in enumerate(data.sequences[:4]):
        q, valid = batch.targets(0)
        assert set(q[b][valid[b]].tolist()) == set(range(s.prompt + 1, s.n))
    train, held = data.split(1, 2)
    assert not {s.line for s in train} & {s.line for s in held}


def world_prefix(data, a, b):
    """Tokens that two sequences have in common at their beginning."""
    pairs = zip(data.tokens(a).tolist(), data.tokens(b).tolist())
    return next(i for i, (x, y) in enumerate(pairs) if x != y)


def test_vocabulary_counts_a_prefix_once(world, tmp_path):
    texts = write_dialogues(tmp_path, world.head)
    data = capture.Capture(tmp_path)
    counts = torch.zeros(made_up.V)
    for ids, spans in texts:
        in_answer = torch.zeros(len(ids), dtype=torch.bool)
        learnt = [(a, b) for a, b in spans if b - a >= capture.FEWEST_ANSWER_TOKENS]
        for a, b in learnt:
            in_answer[a:b] = True
        weight = torch.where(in_answer, 1.0, vocabulary.PROMPT_SHARE)
        counts.scatter_add_(0, ids.long()[:learnt[-1][1]], weight[:learnt[-1][1]])
    words = vocabulary.choose(data, data.sequences, made_up.V, 10)
    assert counts[words.ranked].tolist() == pytest.approx(
        counts.sort(descending=True).values[:10].tolist())


@pytest.mark.parametrize("change", [
    lambda t: t.pop("answer_last"),
    lambda t: t.update(answer_last=t["answer_last"] + 1),
    lambda t: t.update(answer_first=t["answer_last"]),
    lambda t: t.update(answers=t["answers"][:-1]),
    lambda t: t.update(answers=torch.zeros_like(t["answers"]))])
def test_broken_dialogues_are_refused(world, tmp_path, change):
    write_dialogues(tmp_path, world.head)
    path = tmp_path / "part-00000.safetensors"
    tensors, metadata = tensorfile.read(path)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors)
    tensorfile.write(path, tensors, metadata)
    with pytest.raises(Failure, match="delete this part"):
        capture.Capture(tmp_path)


def test_origins_come_from_the_prompt_list(world, tmp_path):
    path = tmp_path / "p.jsonl"
    rows = [{"source": "lima", "licence": "L", "origin": "O", "messages": []}] + \
        [{"source": "own_code"}] * 39
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    origins = world.capture.origins([path])
    assert origins[0, 0] == {"source": "lima", "licence": "L", "origin": "O"}
    assert origins[0, 1] == {"source": "own_code"}
    assert world.capture.sources([path])[0, 0] == "lima"


@pytest.mark.parametrize("block", [1, 2, 3])
def test_batch_windows_hold_every_target(world, block):
    chosen = world.capture.sequences[:5]
    batch = batches.make(world.capture, chosen, 2, block, [0, block - 1, 0, 0, block - 1])
    rows = batch.rows()
    for b, s in enumerate(chosen):
        offset = s.n - int(batch.n[b])
        ids = world.capture.tokens(s)[offset:]
        assert int(batch.first[b]) % block == 0
        q, valid = batch.targets(0)
        wanted = set(range(s.prompt - offset + 1, s.n - offset))
        got = set(q[b][valid[b]].tolist())
        # Rows before pair 0 do not exist: at most the first targets are out of reach.
        assert got <= wanted and len(wanted - got) <= max(0, block - (s.prompt - offset))
        for j in range(2):
            q, valid = batch.targets(j)
            assert (q == rows + 1 + (j + 1) * block)[valid].all()
            assert (batch.tokens[b].gather(0, q[b][valid[b]]) == ids[q[b][valid[b]]]).all()


def test_buckets_cover_all_sequences_once(world):
    groups = capture.bucketed(world.train, 4, 1, 0)
    seen = [s for group in groups for s in group]
    assert len(seen) == len(world.train) and set(seen) == set(world.train)
    assert groups == capture.bucketed(world.train, 4, 1, 0)
    assert groups != capture.bucketed(world.train, 4, 1, 1)
