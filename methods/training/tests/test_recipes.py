"""The papers' recipes: what trains, and how its parts start."""
import pytest
import torch

from training import __main__ as command
from training import adapter, recipes, target, trainer
from training.tests import made_up
from training.tests.loops import ALL, SMALLER, arguments, loop_of

PAPERS = [name for name in ALL if "paper" in recipes.RECIPES[name]]


@pytest.mark.parametrize("method", PAPERS)
def test_the_papers_recipe_is_what_trains(world, tmp_path, method):
    given = ["--recipe", "paper", "--updates", "3"]
    options = command.parse(arguments(world, method, tmp_path, *given))
    recipe = recipes.RECIPES[method]["paper"]
    assert {name: getattr(options, name) for name in recipe} == recipe | {"vocabulary": 40}
    loop, held = loop_of(world, method, tmp_path, *SMALLER, "--updates", "3")
    group = loop.optimiser.param_groups[0]
    assert list(group["betas"]) == recipe["betas"]
    assert group["weight_decay"] == recipe["weight_decay"]
    loop.run()
    assert loop.state.step == 3 and loop.optimiser.param_groups[0]["lr"] < options.lr
    path = tmp_path / "x.safetensors"
    adapter.write(path, loop.module, world.capture.model, "f32")
    stored, _ = adapter.load(path, command.CLASSES, lambda ids: loop.module.frozen)
    loop.module.eval()  # no dropout
    ours, theirs = loop.module.ranks(world.capture, held), stored.ranks(world.capture, held)
    assert torch.cat([(a == b).float().flatten() for a, b in zip(ours, theirs)]).mean() > 0.999


@pytest.mark.parametrize("method", [name for name in ALL if name not in PAPERS])
def test_a_recipe_that_nobody_published_is_refused(world, tmp_path, capsys, method):
    with pytest.raises(SystemExit) as stopped:
        command.parse(arguments(world, method, tmp_path, "--recipe", "paper"))
    assert stopped.value.code == 2 and "invalid choice: 'paper'" in capsys.readouterr().err


@pytest.mark.parametrize("more, named", [(("--betas", "0.9", "1"), "--betas 0.9 1"),
                                         (("--schedule", "steps"), "--schedule"),
                                         (("--clip-kind", "all"), "--clip-kind")])
def test_an_optimiser_that_is_none_is_refused(world, tmp_path, capsys, more, named):
    with pytest.raises(SystemExit) as stopped:
        command.parse(arguments(world, "eagle", tmp_path, *more))
    assert stopped.value.code == 2 and named in capsys.readouterr().err


@pytest.mark.parametrize("method, name, more", [
    ("space", "mask_embed", ("--no-distinct",)), ("bita", "mask_embed", ()),
    ("bita", "soft", ("--prompt", "shallow"))])
def test_masks_of_the_papers_start_normal(world, tmp_path, method, name, more):
    """N(0, 0.02); our own start is near frequent tokens, whose embeddings are of size 1 here."""
    normal, _ = loop_of(world, method, tmp_path / "a", *SMALLER, *more, "--updates", "1")
    values = getattr(normal.module, name).detach()
    assert abs(float(values.mean())) < 0.012 and 0.012 < float(values.std()) < 0.028
    ours, _ = loop_of(world, method, tmp_path / "b", *more, "--updates", "1")
    assert float(getattr(ours.module, name).detach().std()) > 0.2


def test_bita_has_a_mask_more_above_13b(world, tmp_path):
    """LLaMA-2-13B and Vicuna-33B by their shapes."""
    for wanted, weights, sizes in ((3, 13.0e9, (5120, 40, 32000, 40, 40, 128, 13824)),
                                   (4, 32.5e9, (6656, 60, 32000, 52, 52, 128, 17920))):
        shape = target.Shape(*sizes, norm_eps=1e-5, rope_theta=1e4)
        assert abs(shape.n_weights / weights - 1) < 0.01
        options = command.parse(arguments(world, "bita", tmp_path, "--recipe", "paper"))
        assert command.CLASSES["bita"].configure(options, shape)["masks"] == wanted
        assert options.masks == wanted, "what the settings of a checkpoint hold"


def test_bita_drops_of_every_samples_prefix(world, tmp_path):
    loop, _ = loop_of(world, "bita", tmp_path, "--dropout", "0.5", "--updates", "1")
    keys, values = loop.module.prefix(0, 2)
    for x in (keys, values):
        assert 0.2 < float((x[0] == 0).float().mean()) < 0.8 and not torch.equal(x[0], x[1])
    loop.module.eval()
    keys, _ = loop.module.prefix(0, 2)
    assert (keys != 0).all() and torch.equal(keys[0], keys[1])


def test_falcons_lstm_is_the_published_one(world, tmp_path):
    """No scale in front or behind, PyTorch's initial values, noise as large as the paper says."""
    loop, _ = loop_of(world, "falcon", tmp_path / "paper", *SMALLER, "--updates", "1")
    module, options = loop.module, loop.options
    assert module.scale == module.embed_scale == 1.0 and module.config()["scale"] == 1.0
    for cell in ("0", "1"):
        assert module.lstm[cell].weight.abs().max() <= made_up.D ** -0.5
        assert module.lstm[cell].bias.abs().max() <= 2 * made_up.D ** -0.5
        assert module.lstm[cell].weight.std() > 0.5 * made_up.D ** -0.5
    assert module.layers[0].o.weight.abs().max() > 0, "our own start has zeros"
    module.feature_rms = 3.0  # here it is close to 1, and would not show
    batch = module.make_batch(world.capture, world.train[:4], 1)
    tokens, features = module.inputs(batch)
    options.glance = "none"
    for scale, size in (("none", 0.1), ("rms", 0.3)):
        options.feature_scale = scale
        _, noisy = module.change_inputs(tokens, features, batch, options, trainer.generator(1), 0)
        assert float((noisy - features).abs().max()) == pytest.approx(size, rel=0.02)
    small, _ = loop_of(world, "falcon", tmp_path / "small", "--input", "per_token", "--updates",
                       "1")
    assert small.module.scale == small.module.feature_rms != 1
