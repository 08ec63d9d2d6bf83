"""Budgets that adapters state: what makes two of them equal."""
import shutil

import pytest

from training import __main__ as command
from training import adapter, budget, recipes
from training.tests import made_up
from training.tests.loops import ALL, arguments

ABLATIONS = {"medusa": ("--heads", "2"), "eagle": ("--steps", "2"), "eagle3": ("--steps", "2"),
             "falcon": ("--glance", "none"), "draft": ("--layers", "1"),
             "bita": ("--prefix-length", "4"), "gated_lora": ("--rank", "4"),
             "pass": ("--masks", "2"), "space": ("--no-distinct",)}


def budget_of(world, method, out, data, *more):
    given = arguments(world, method, out, *more)
    given[given.index("--data") + 1] = str(data)
    assert command.main(given) == 0
    return adapter.read(out / f"{method}.safetensors")[1]["training"]["budget"]


@pytest.mark.parametrize("method", ALL)
def test_ablations_of_one_text_have_one_budget(world, tmp_path, method):
    here, elsewhere = world.folder / "capture", tmp_path / "copy"
    shutil.copytree(here, elsewhere)
    ours = budget_of(world, method, tmp_path / "a", here, "--updates", "3")
    theirs = budget_of(world, method, tmp_path / "b", elsewhere, "--updates", "3",
                       *ABLATIONS[method])
    assert [ours[name] for name in budget.COMPARED] == [theirs[name] for name in budget.COMPARED]
    assert ours["updates"] == 3 and ours["recipe"] == "small" and len(ours["text"]) == 64
    assert ours["batch"] == recipes.RECIPES[method]["small"]["batch"] and ours["tokens"] > 0
    card = " ".join((tmp_path / "a" / f"{method}.md").read_text().split())
    assert f"budget: 3 updates, batch {ours['batch']}, text `{ours['text'][:16]}`" in card


@pytest.mark.parametrize("field, more", [
    ("text", ("--held-out", "6")), ("updates", ("--updates", "2")), ("batch", ("--batch", "3")),
    ("optimiser", ("--lr", "0.01")), ("optimiser", ("--betas", "0.9", "0.99")),
    ("optimiser", ("--schedule", "linear")), ("optimiser", ("--warmup", "1")),
    ("optimiser", ("--weight-decay", "0.1")), ("optimiser", ("--clip", "1"))])
def test_other_budgets_differ(world, tmp_path, field, more):
    here = world.folder / "capture"
    ours = budget_of(world, "medusa", tmp_path / "a", here, "--updates", "3")
    theirs = budget_of(world, "medusa", tmp_path / "b", here, "--updates", "3", *more)
    assert [name for name in budget.COMPARED if ours[name] != theirs[name]] == [field]


def test_text_of_joined_captures_has_no_order(world, tmp_path):
    made_up.write_capture(tmp_path / "more", world.head, seed=5)
    folders = [world.folder / "capture", tmp_path / "more"]
    texts = {budget.text_of(data, data.sequences)
             for data in map(command.capture.Capture, (folders, folders[::-1], folders[:1]))}
    assert len(texts) == 2
