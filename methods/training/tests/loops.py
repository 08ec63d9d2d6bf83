"""Trainers over the made-up target, as the command makes them."""
from training import __main__ as command
from training import trainer

ALL = ["medusa", "eagle", "eagle3", "falcon", "draft", "bita", "gated_lora", "pass", "space"]
MASKS = ["bita", "gated_lora", "pass", "space"]
SMALLER = ("--recipe", "paper", "--batch", "4")  # than the papers' batches


def arguments(world, method, out, *more):
    return [method, "--data", str(world.folder / "capture"), "--target", str(world.folder), "--out",
            str(out),
            "--threads", "1", "--precision", "f32", "--no-recompute", "--vocabulary", "40", *more]


def loop_of(world, method, out, *more):
    """A Trainer as the command makes it."""
    options = command.parse(arguments(world, method, out, *more))
    data, train, held, model = command.prepare(options)
    kind = command.CLASSES[method]
    options.residual_layers = data.residual_layers
    words = command.vocabulary.choose(data, train, model.shape.vocab_size, options.vocabulary)
    module = kind(command.frozen_of(options, model, words), kind.configure(options, model.shape))
    module.start(model, command.statistics_of(data, train, module.residual))
    module.capture = data
    limits = trainer.Budget(tokens=options.tokens, seconds=options.minutes and 60 * options.minutes,
                            updates=options.updates)
    return trainer.Trainer(module, module.feed(data, train, options), options, limits, out,
                           command.settings_of(options, data, train)), held


def losses_of(loop, n):
    return [loop.one_step() for _ in range(n)]
