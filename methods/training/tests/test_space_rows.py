"""The rows of SPACE: what each weighs in the loss, and which masks are drawn."""
import pytest
import torch

from training import __main__ as command
from training import adapter, trainer
from training.tests.loops import SMALLER, arguments, loop_of, losses_of


def row_losses(module, sequences, options, rng):
    """Cross entropies of all labelled rows of text, and of all masks, from whole logits."""
    batch, bases, counted, q, valid, _ = module.rows_of(sequences, options, rng)
    x, text = module.run_text(batch.tokens[:, :counted.shape[1]])
    head = module.whole_head().float()

    def losses(states, labels):
        return torch.nn.functional.cross_entropy(states @ head.T, labels, reduction="none")

    labels = batch.tokens_at(q.flatten(1)).view(q.shape)
    return (losses(module.final(x)[counted], batch.tokens[:, 1:counted.shape[1] + 1][counted]),
            losses(module.run_masks(text, bases.clamp(min=0))[valid], labels[valid]))


@torch.no_grad()
def test_every_row_of_space_weighs_the_same(world, tmp_path):
    """Equation 3: one mean over the labels of text and masks. `mean` adds two means."""
    loop, _ = loop_of(world, "space", tmp_path, *SMALLER, "--vocabulary", "0", "--updates", "1")
    module, options, sequences = loop.module, loop.options, world.train[:8]
    of_text, of_masks = row_losses(module, sequences, options, trainer.generator(3))
    assert len(of_text) > 3 * len(of_masks) > 0
    for loss_by, wanted in (("token", torch.cat([of_text, of_masks]).mean()),
                            ("mean", of_text.mean() + of_masks.mean())):
        options.loss_by = loss_by
        loss, _, rows = module.loss(sequences, options, trainer.generator(3), 0.0)
        assert float(loss) == pytest.approx(float(wanted), rel=1e-4), loss_by
        assert rows == len(of_masks)
    options.p_ar = 1.0  # no masks: the control's loss, whichever way
    of_text, _ = row_losses(module, sequences, options, trainer.generator(3))
    for options.loss_by in ("token", "mean"):
        assert float(module.loss(sequences, options, trainer.generator(3), 0.0)[0]) == \
            pytest.approx(float(of_text.mean()), rel=1e-4)


def test_weights_of_rows_are_counted(world, tmp_path):
    loop, _ = loop_of(world, "space", tmp_path, *SMALLER, "--vocabulary", "0", "--updates", "1")
    module, options, text, masks, rows = loop.module, loop.options, 0, 0, 0
    counted = module.token_weights(loop.feed, options)
    for step in range(loop.feed.n_batches(0)):
        sequences = loop.feed.batch(0, step)
        bases = module.choose_bases(sequences, options, trainer.generator(options.seed, step))
        n_masks = 5 * int((bases >= 0).sum())
        n_text = sum(base - s.prompt + 2 if base >= 0 else s.n - s.prompt
                     for s, base in zip(sequences, bases[:, 0].tolist()))
        rows, masks = rows + n_text, masks + n_masks
        text += n_text if n_masks else 0
    assert counted["updates"] == loop.feed.n_batches(0) and counted["loss_by"] == "token"
    assert counted["text_rows"] == pytest.approx(rows / counted["updates"], abs=0.06)
    assert counted["mask_rows"] == pytest.approx(masks / counted["updates"], abs=0.06)
    assert counted["mask_row"]["token"] == 1
    assert counted["mask_row"]["mean"] == pytest.approx(text / masks, abs=0.01) and text > masks
    options.p_ar = 1.0
    assert module.token_weights(loop.feed, options) is None


def test_weights_of_rows_are_in_the_card(world, tmp_path, capsys):
    given = arguments(world, "space", tmp_path, "--updates", "2", "--loss-by", "token")
    assert command.main(given) == 0
    weights = adapter.read(tmp_path / "space.safetensors")[1]["training"]["token_weights"]
    # Text has the weight 3 of our recipe.
    assert weights["mask_row"]["token"] == pytest.approx(1 / 3, abs=0.001)
    line = f"(loss by token; {weights['mask_row']['mean']:.3g} times by mean)"
    assert line in capsys.readouterr().err
    assert line in " ".join((tmp_path / "space.md").read_text().split())


def test_one_sample_of_the_paper_has_one_group_or_none(world, tmp_path):
    loop, _ = loop_of(world, "space", tmp_path, "--layout", "paper", "--p-ar", "0.5", "--batch",
                      "16", "--tokens", "2000")
    options, module = loop.options, loop.module
    sequences = world.capture.sequences[:16]
    bases = module.choose_bases(sequences, options, trainer.generator(1))
    again = module.choose_bases(sequences, options, trainer.generator(2))
    assert bases.shape == (16, 1) and not torch.equal(bases, again), "drawn anew"
    for s, base in zip(sequences, bases[:, 0].tolist()):
        assert base == -1 or s.prompt - 1 <= base <= s.n - 2 - module.n_masks
    assert 2 <= int((bases < 0).sum()) <= 14
    losses_of(loop, 2)
