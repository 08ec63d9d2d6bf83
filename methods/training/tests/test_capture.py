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
    (tmp_path / "capture.json").write_text(json.dumps(info | {"version": 3}))
    with pytest.raises(Failure, match="version 3"):
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
