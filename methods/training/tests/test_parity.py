"""The committed adapters give their committed outputs."""
import pathlib

import pytest
import torch

from training import __main__ as command
from training import adapter, frozen, parity, target, tensorfile, vocabulary
from training.drafters import mask_rows

DATA = pathlib.Path(__file__).resolve().parents[3] / "tests" / "data"


@pytest.mark.parametrize("name", parity.ADAPTERS)
@torch.no_grad()
def test_outputs(name):
    model, kind, _ = parity.ADAPTERS[name]
    source = target.open_target(DATA / "models" / model)

    def frozen_for(ids):
        words = vocabulary.Vocabulary(ids, source.shape.vocab_size)
        return frozen.Frozen.of(source, words, kind=torch.float32)

    module, metadata = adapter.load(DATA / "adapters" / f"{name}.safetensors", command.CLASSES,
                                    frozen_for)
    assert metadata["target_hash"] == parity.folder_hash(DATA / "models" / model)
    expected, _ = tensorfile.read(DATA / "adapters" / f"{name}.expected.safetensors")
    if module.name == "medusa":
        got = torch.stack([module.head(k, expected["features"]) @ module.frozen.head.T
                           for k in range(2)], 1)
        torch.testing.assert_close(got, expected["logits"], rtol=1e-4, atol=1e-4)
        return
    if isinstance(module, mask_rows.MaskRows):
        tokens = expected["tokens"].long()[None]
        x, text = module.run_text(tokens)
        torch.testing.assert_close(module.final(x)[0] @ source.head.T, expected["text.logits"],
                                   rtol=1e-4, atol=1e-4)
        states = module.run_masks(text, torch.tensor([[tokens.shape[1] - 1]]))[0, 0]
        torch.testing.assert_close(states @ module.frozen.head.T, expected["mask.logits"],
                                   rtol=1e-4, atol=1e-4)
        return
    if module.name == "draft":
        tokens = expected["tokens"].long()[None]
        states = module.states(tokens, torch.arange(tokens.shape[1])[None])[0]
        torch.testing.assert_close(states @ module.frozen.head.T, expected["chain.logits"],
                                   rtol=1e-4, atol=1e-4)
        return
    rows, pairs, tree = parity.draft_rows(module, expected["tokens"], expected["features"],
                                          expected["tree.tokens"],
                                          expected["tree.parent"])
    for kind, numbers in (("chain", pairs), ("tree", tree)):
        torch.testing.assert_close(rows.features(numbers), expected[f"{kind}.features"], rtol=1e-4,
                                   atol=1e-4)
        torch.testing.assert_close(rows.logits(numbers), expected[f"{kind}.logits"], rtol=1e-4,
                                   atol=1e-4)
    # The forward of training gives the pairs' outputs, too.
    whole = torch.arange(len(pairs))[None]
    outs = module.unroll(expected["tokens"].long()[None], expected["features"][None], whole,
                         1)[0][0]
    torch.testing.assert_close(outs, expected["chain.features"], rtol=1e-4, atol=1e-4)
