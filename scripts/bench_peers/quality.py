"""Perplexity and distance to float32 of every format on both sides, on the same tokens."""
import hashlib
import json
import tempfile

from . import environment, speed
from .environment import Failure, progress

CHUNK = 512


def cut_text(llama, source, text, chunks):
    """(text, ids): the least number of whole lines that hold the chunks, without a newline at the end.

    evalrun takes a text and llama.cpp the ids; cut like this, both see the same chunks.
    """
    text = text.strip("\n")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        cut = llama.call("tokenize", file=source, text=file.name, at_least=chunks * CHUNK)
    return "\n".join(text.split("\n")[:cut["lines"]]), cut["ids"]


def check_tokens(options, evalrun, text, ids):
    """Both tokenizers must give the same ids, else the perplexities are of different texts."""
    if evalrun.why_not("tokenize"):
        return
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write(json.dumps({"text": text}) + "\n")
        file.flush()
        ours = evalrun.call("tokenize", "-m", options.model, "--in", file.name)["ids"]
    if ours != ids:
        place = next((i for i, (a, b) in enumerate(zip(ours, ids)) if a != b), min(len(ours), len(ids)))
        raise Failure(5, f"the tokenizers differ at token {place}: evalrun {ours[place:place + 5]}, "
                         f"llama.cpp {ids[place:place + 5]}; their perplexities cannot be compared",
                      "choose another text with --text")


def run(options, evalrun, llama, files):
    source = files[options.peers[0]]["path"]
    text, ids = cut_text(llama, source, environment.read_text(options.text), options.chunks)
    chunks = len(ids) // CHUNK  # more than asked for if the last line is very long
    if chunks == 0:
        raise Failure(7, f"{options.text} has {len(ids)} tokens, at least {CHUNK} are needed",
                      "give a longer text with --text")
    if chunks < options.chunks:
        progress(f"{options.text} holds {chunks} chunks of {CHUNK} tokens, fewer than {options.chunks}")
    check_tokens(options, evalrun, text, ids)
    config = {"model": str(options.model), "text": str(options.text), "chunks": chunks, "chunk": CHUNK,
              "tokens": hashlib.sha256(json.dumps(ids).encode()).hexdigest(),
              "peers": options.peers, "formats": options.formats}
    log = environment.Log(options.out / "quality.jsonl", config, options.resume)
    if not log.of("setting"):
        log.add({"kind": "setting", "machine": environment.machine(), "build": llama.info()})
    done = {record["arm"] for record in log.of("quality") if "failed" not in record}
    missing = [name for name in options.peers if f"llama.cpp {name}" not in done]
    if missing:
        progress(f"llama.cpp: {chunks} chunks of {CHUNK} tokens, {', '.join(missing)} against F32")
        result = llama.call("quality", ids=ids, chunk=CHUNK, threads=options.threads,
                            files={name: files[name]["path"] for name in ["F32", *missing]})
        reference = result["files"]["F32"]["perplexity"]
        for name, row in result["files"].items():
            log.add({"kind": "quality", "arm": f"llama.cpp {name}", "engine": "llama.cpp", "format": name,
                     "bytes": files[name]["tensor_bytes"], "scored": result["scored"],
                     "perplexity_ref": reference, **row})
    run_evalrun(options, evalrun, log, text, files, done)
    return log.records


def run_evalrun(options, evalrun, log, text, files, done):
    """Every format against f32 of the same file: of llama.cpp's files, what evalrun's arithmetic loses."""
    reason = evalrun.why_not("perplexity")
    if reason:
        progress(f"evalrun is left out: {reason}")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        for name, peer in speed.our_formats(options):
            if f"evalrun {name}" in done:
                continue
            progress(f"evalrun {name} against f32")
            record = {"kind": "quality", "arm": f"evalrun {name}", "engine": "evalrun", "format": name}
            model, dtype = (files[peer]["path"], "stored") if peer else (options.model, name)
            if peer:
                record["file"] = peer
            arguments = ["perplexity", "-m", model, "--file", file.name, "--chunk", CHUNK,
                         "--dtype", dtype, "--against", "f32", "-t", options.threads]
            if options.isa:
                arguments += ["--isa", options.isa]
            try:
                output = evalrun.call(*arguments)
                record |= {"scored": output["tokens"], **{key: output[key] for key in
                           ("perplexity", "perplexity_ref", "kl", "same_top1")}}
            except Failure as failure:
                record["failed"] = str(failure)
                progress(f"evalrun {name} failed: {failure}")
            log.add(record)
