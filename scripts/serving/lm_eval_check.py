"""lm-eval against `evalrun serve`, and both against `evalrun run`. scripts/check-lm-eval calls it with a Python that has
lm-eval.

Three tasks of the same questions of GSM8K: solved examples and a question as raw text (local-completions), the question
as a chat message (local-chat-completions), and a choice of four numbers by log-likelihood (local-completions). Compared
are prompts, answers, and lm-eval's two scores with evalrun's own of the same convention; and log-likelihoods with the
server's own log-probabilities.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

SCORES = {"strict-match": "gsm8k_strict", "flexible-extract": "gsm8k_flexible"}
STOPS = ["Question:", "</s>", "<|im_end|>"]  # of raw text, in both programs
CHOICES = 4


class Failure(Exception):
    """What the user should read, without a trace."""


def evalrun_answers(options, folder, task):
    """What `evalrun run` decodes plainly: [{"row", "prompt", "text", "strict-match", "flexible-extract"}]."""
    database = folder / "evalrun.db"
    database.unlink(missing_ok=True)
    command = [options.evalrun, "--db", database, "run", "--tasks", task, "--methods", "ar", "--limit", options.limit,
               "-n", options.max_new, "--no-aa", "--warmup", 0, "--data-root", options.data_root, "-m", options.model]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT p.name, r.text, t.text, g.id FROM generation g JOIN prompt p ON p.id = g.prompt_id "
            "JOIN rendered r ON r.hash = p.rendered_hash JOIN turn t ON t.generation_id = g.id ORDER BY p.id").fetchall()
        scores = {(generation, name): value for generation, name, value in
                  connection.execute("SELECT generation_id, evaluator, value FROM score")}
    return [{"row": int(name.rsplit("/", 1)[1]), "prompt": prompt, "text": text,
             **{theirs: scores[generation, ours] for theirs, ours in SCORES.items()}}
            for name, prompt, text, generation in rows]


@contextlib.contextmanager
def server(options, method):
    """The URL of `evalrun serve`."""
    command = [options.evalrun, "serve", "-m", options.model, "--method", method, "--port", "0"]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    try:
        found = None
        for line in process.stdout:
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                break
        if not found:
            raise Failure("evalrun serve ended before it listened (the reason is above)")
        yield found.group(1)
    finally:
        process.terminate()
        process.wait()


def asked(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=300) as response:
        return json.load(response)


def number_of(row):
    return row["answer"].rsplit("#### ", 1)[1].replace(",", "").strip()


def choices_of(row):
    """Four numbers of which the first is right."""
    right = int(number_of(row))
    return [f" {value}" for value in (right, right + 1, 2 * right + 3, 10 * right + 7)]


def write_tasks(options, folder, rows):
    """Three task files for lm-eval, as a user would write them. The first two are its own gsm8k with other data."""
    import lm_eval
    own = pathlib.Path(lm_eval.__file__).parent / "tasks/gsm8k/gsm8k.yaml"
    questions = [json.loads(line) for line in (options.data_root / "gsm8k/test.jsonl").read_text().splitlines()]
    chosen = [questions[row] for row in rows]
    # Files of one task have the same columns.
    test, choices = folder / "test.jsonl", folder / "choices.jsonl"
    test.write_text("".join(json.dumps(row) + "\n" for row in chosen))
    choices.write_text("".join(json.dumps({"question": row["question"], "choices": choices_of(row), "gold": 0}) + "\n"
                               for row in chosen))
    files = {"train": str(options.data_root / "gsm8k/train.jsonl"), "test": str(test)}
    local = {"dataset_path": "json", "dataset_name": None}
    limits = {"do_sample": False, "temperature": 0.0, "max_gen_toks": options.max_new}
    tasks = {
        "raw": {"include": str(own), **local, "dataset_kwargs": {"data_files": files}, "num_fewshot": options.shots,
                "fewshot_config": {"sampler": "first_n"},
                "generation_kwargs": {"until": STOPS, **limits}},
        "chat": {"include": str(own), **local, "dataset_kwargs": {"data_files": files}, "num_fewshot": 0,
                 "doc_to_text": "{{question}}", "generation_kwargs": {"until": [], **limits}},
        "choice": {**local, "dataset_kwargs": {"data_files": {"test": str(choices)}}, "test_split": "test",
                   "output_type": "multiple_choice", "doc_to_text": "Question: {{question}}\nAnswer:",
                   "doc_to_choice": "{{choices}}", "doc_to_target": "{{gold}}", "target_delimiter": "",
                   "metric_list": [{"metric": "acc"}]},
    }
    for name, task in tasks.items():
        # JSON is YAML.
        (folder / f"{name}.yaml").write_text(json.dumps({"task": f"evalrun_{name}", **task}))
    return chosen


def lm_eval_samples(folder, name, url):
    """(samples, seconds) of lm-eval on one of the tasks."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager
    chat = name == "chat"
    route = "/v1/chat/completions" if chat else "/v1/completions"
    model = asked(url + "/v1/models")["data"][0]["id"]
    start = time.monotonic()
    results = simple_evaluate(
        model="local-chat-completions" if chat else "local-completions",
        model_args={"model": model, "base_url": url + route, "max_length": 8192, "num_concurrent": 1},
        tasks=[f"evalrun_{name}"], task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        apply_chat_template=chat, log_samples=True, bootstrap_iters=0)
    return results["samples"][f"evalrun_{name}"], time.monotonic() - start


def prompt_of(argument):
    """The text of a prompt; of a chat the last message."""
    text = getattr(argument, "prompt", argument)
    return json.loads(text)[-1]["content"] if text is not argument else text


def before_stop(text):
    """evalrun keeps the text that ended an answer, servers leave it out."""
    return text[:min(at for at in (*(text.find(stop) for stop in STOPS), len(text)) if at >= 0)]


def compare_answers(name, ours, samples, questions):
    """Differences as lines."""
    problems = []
    for sample in samples:
        one, place = ours[sample["doc_id"]], f"{name}, question {ours[sample['doc_id']]['row']}"
        asked_for = prompt_of(sample["arguments"][0][0])
        expected = questions[sample["doc_id"]]["question"] if name == "chat" else one["prompt"]
        if asked_for != expected:
            problems.append(f"{place}: the prompts differ: {asked_for[-200:]!r} and {expected[-200:]!r}")
        text, own = sample["resps"][0][0], before_stop(one["text"]) if name == "raw" else one["text"]
        if text != own:
            problems.append(f"{place}: the answers differ: {text!r} and {own!r}")
        if sample["exact_match"] != one[sample["filter"]]:
            problems.append(f"{place}: {sample['filter']} is {sample['exact_match']} in lm-eval, "
                            f"{one[sample['filter']]} in evalrun")
    return problems


def own_likelihood(url, context, continuation):
    """(log-likelihood, whether it is greedy) by one request of our own, as lm-eval splits the tokens."""
    def ids(text):
        return asked(url + "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    whole, before = ids(context + continuation), len(ids(context))
    found = asked(url + "/v1/completions", {"prompt": whole, "max_tokens": 0, "echo": True, "logprobs": 1,
                                            "temperature": 0})["choices"][0]["logprobs"]
    return sum(found["token_logprobs"][before:]), all(found["is_greedy"][before:])


def compare_likelihoods(url, samples):
    problems = []
    for sample in samples:
        found = []
        for (context, continuation), (answer,) in zip(sample["arguments"], sample["resps"]):
            expected = own_likelihood(url, context, continuation)
            found.append(expected[0])
            if (answer[0], bool(answer[1])) != expected:
                problems.append(f"choice, question {sample['doc_id']}: {continuation!r} has {tuple(answer)} in lm-eval, "
                                f"{expected} by the server")
        if sample["acc"] != (found.index(max(found)) == 0):
            problems.append(f"choice, question {sample['doc_id']}: acc is {sample['acc']}, the likelihoods are {found}")
    return problems


def mean(samples, key, of_filter=None):
    values = [sample[key] for sample in samples if of_filter in (None, sample["filter"])]
    return sum(values) / len(values)


def check(options, folder):
    raw = evalrun_answers(options, folder, f"gsm8k:shots={options.shots}")
    chat = evalrun_answers(options, folder, "gsm8k")
    questions = write_tasks(options, folder, [one["row"] for one in raw])
    if [one["row"] for one in chat] != [one["row"] for one in raw]:
        raise Failure("the two runs of evalrun have other questions")
    problems = []
    print(f"{'task':8}{'requests':>9}{'seconds':>9}   scores of lm-eval", flush=True)
    for name, ours in (("raw", raw), ("chat", chat), ("choice", None)):
        with server(options, options.method) as url:
            samples, seconds = lm_eval_samples(folder, name, url)
            if ours:
                problems += compare_answers(name, ours, samples, questions)
                requests = len(ours)
                scores = ", ".join(f"{score} {mean(samples, 'exact_match', score):.3f}" for score in SCORES)
            else:
                problems += compare_likelihoods(url, samples)
                requests = CHOICES * len(samples)
                scores = f"acc {mean(samples, 'acc'):.3f}"
        print(f"{name:8}{requests:9}{seconds:9.1f}   {scores}", flush=True)
    for line in problems:
        print(f"differs: {line}")
    if not problems:
        print(f"prompts, answers and scores of {len(raw)} questions are equal; so are {CHOICES * len(raw)} log-likelihoods")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evalrun", type=pathlib.Path, required=True)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--data-root", type=pathlib.Path, required=True)
    parser.add_argument("--method", required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--max-new", type=int, required=True)
    parser.add_argument("--shots", type=int, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # Nothing is fetched, and no cache of other data sets is touched.
        os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=folder, TOKENIZERS_PARALLELISM="false",
                          NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
        try:
            return check(options, pathlib.Path(folder))
        except Failure as failure:
            print(f"error: {failure}", file=sys.stderr)
        except subprocess.CalledProcessError as error:
            print(f"error: {' '.join(error.cmd)} ended with {error.returncode}", file=sys.stderr)
    return 6


if __name__ == "__main__":
    sys.exit(main())
