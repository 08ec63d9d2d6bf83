#!/usr/bin/env python3
"""Writes tests/data/gsm8k_cases.jsonl: texts, what lm-evaluation-harness extracts, and its verdict.

Needs the lm_eval package (any version whose gsm8k task says version 3.0; the fixture was made with 0.4.8)
on PYTHONPATH together with numpy; its RegexFilter and exact_match_hf_evaluate are taken from the source
files, since importing the package would ask for torch.

    PYTHONPATH=... python3 tests/evaluators/make_gsm8k_cases.py tests/data/gsm8k_cases.jsonl
"""
import ast
import json
import random
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = Path(find_spec("lm_eval").submodule_search_locations[0])


def take(file, name, scope):
    """Executes one top-level definition of a source file, without its imports and decorators."""
    for node in ast.parse((ROOT / file).read_text()).body:
        if getattr(node, "name", None) == name:
            node.decorator_list = []
            exec(compile(ast.Module([node], []), file, "exec"), scope)
            return scope[name]
    raise SystemExit(f"{file} has no {name}")


RegexFilter = take("filters/extraction.py", "RegexFilter", {"re": re, "Filter": object})
exact_match = take("api/metrics.py", "exact_match_hf_evaluate", {"re": re, "np": np})

TASK = (ROOT / "tasks/gsm8k/gsm8k.yaml").read_text()
assert "version: 3.0" in TASK
STRICT = RegexFilter(regex_pattern="#### (\\-?[0-9\\.\\,]+)")
FLEXIBLE = RegexFilter(regex_pattern="(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select=-1)
IGNORE = [",", "\\$", "(?s).*#### ", "\\.$"]
for pattern in ["#### (\\\\-?[0-9\\\\.\\\\,]+)", "(-?[$0-9.,]{2,})|(-?[0-9]+)", "(?s).*#### "]:
    assert pattern in TASK, pattern

CASES = [
    ("plain", "#### 18", "so #### 18"),
    ("sentence end", "#### 18", "The answer is 18."),
    ("sentence end strict", "#### 18", "#### 18."),
    ("two full stops", "#### 18", "#### 18.."),
    ("thousands", "#### 1,000", "She earns $1,000.00"),
    ("thousands plain", "#### 1,000", "She earns $1,000"),
    ("comma in reference only", "#### 12,320", "#### 12320"),
    ("comma in answer only", "#### 12320", "That makes 12,320 kilograms."),
    ("several markers, first right", "#### 4", "#### 4\nWait.\n#### 5"),
    ("several markers, last right", "#### 5", "#### 4\nWait.\n#### 5"),
    ("no number", "#### 7", "I do not know."),
    ("empty", "#### 7", ""),
    ("only white space", "#### 7", " \n\t"),
    ("negative", "#### -6", "It shows -6 degrees"),
    ("negative strict", "#### -6", "#### -6"),
    ("minus as a dash", "#### 6", "from 2-6"),
    ("unicode minus", "#### -6", "It shows \u22126 degrees"),
    ("full-width digits", "#### 18", "\uff11\uff18"),
    ("other digits", "#### 18", "\u0661\u0668"),
    ("non-breaking space as separator", "#### 1000", "1\u00a0000"),
    ("emoji after the number", "#### 42", "42 \U0001f600!"),
    ("ellipsis", "#### 9", "It is 9, or maybe..."),
    ("final comma", "#### 9", "9,"),
    ("dollar alone", "#### 9", "9 $"),
    ("two dollars", "#### 9", "9 $$"),
    ("percent", "#### 25", "25%"),
    ("decimal equal in value only", "#### 18", "18.00"),
    ("decimal reference", "#### 0.5", "The result is .5"),
    ("decimal reference equal", "#### 0.5", "#### 0.5"),
    ("leading zero", "#### 7", "#### 07"),
    ("marker without space", "#### 7", "####7"),
    ("marker with two spaces", "#### 7", "####  7"),
    ("marker with dollar", "#### 7", "#### $7"),
    ("five hashes", "#### 7", "##### 7"),
    ("marker then text", "#### 7", "#### seven"),
    ("only stops after marker", "#### 7", "#### ..."),
    ("number before unit", "#### 258", "So 258 cars crossed on 6 trips"),
    ("boxed", "#### 72", "\\boxed{72}"),
    ("bold", "#### 72", "**72**"),
    ("date", "#### 72", "72 on 12.05.2024."),
    ("calculator marks", "#### 9", "16 - 3 - 4 = <<16-3-4=9>>9\n#### 9"),
    ("reference with working", "She sells 3 * 4 = <<3*4=12>>12.\n#### 12", "#### 12"),
    ("reference with two markers", "#### 1\n#### 12", "12"),
    ("reference with final newline", "#### 12.\n", "12"),
    ("reference ends with a full stop", "#### 12.", "12"),
    ("reference invalid and no answer", "[Invalid]", "none"),
    ("exponent", "#### 1000", "1e3"),
    ("fraction", "#### 3", "3/4"),
    ("long", "#### 5", "1 " * 2000 + "5"),
    ("line separator", "#### 5", "5\u2028"),
    ("carriage return", "#### 5", "#### 5\r\n"),
    ("question mark", "#### 5", "5?"),
    ("minus before dollar", "#### -5", "-$5"),
    ("dollar before minus", "#### -5", "$-5"),
    ("double minus", "#### -5", "--5"),
]

# Short texts over the characters that the patterns are about; the reference is often met.
rng = random.Random(20240613)
for i in range(300):
    text = "".join(rng.choice("0011223.,$-# \na") for _ in range(rng.randrange(1, 14)))
    text = text.replace("#", "#### ") if rng.random() < 0.5 else text
    reference = "#### " + "".join(rng.choice("0123,.-") for _ in range(rng.randrange(1, 3)))
    CASES.append((f"random {i}", reference, text))

# Answers as models write them, around a number near the reference's.
WORDING = ["The answer is {}.", "So she has {} left", "Therefore, {} = {}.", "#### {}", "####{}", "A: {}\n#### {}",
           "Total: {} dollars.", "**{}**", "$\\boxed{{{}}}$", "{}%", "about {}, maybe {}?", "{} - {} = {}", "{}/{}",
           "It costs {}\u00a0\u20ac.", "1. {}\n2. {}\n3. {}", "\uff11{}", "{}\n\n#### {}\n\nQuestion: 7 + {}?", "{}th",
           "<<{}*2={}>>{}", "x={};y={}", "({})", "between {} and {}", "{} (see page {})", "~{}", "{}:{}", "{}e{}"]
SPELLING = ["{n}", "{n}.", "{n}.0", "{n}.00", "${n}", "${n}.00", "-{n}", "-${n}", "$-{n}", "{n:,}", "${n:,}.", "{n:,}.50",
            "{n} 000", "0{n}", "+{n}", "\u2212{n}", "{n},", "{n}..", "{n}.5", ".{n}", "{n}$", "{n} dollars", "#### {n}"]
for i in range(450):
    n = rng.choice([rng.randrange(10), rng.randrange(1000), rng.randrange(10**7)])
    spell = lambda: rng.choice(SPELLING).format(n=n if rng.random() < 0.8 else rng.randrange(2000))
    wording = rng.choice(WORDING)
    text = wording.format(*(spell() for _ in range(wording.count("{}"))))
    CASES.append((f"wording {i}", f"#### {rng.choice([str(n), f'{n:,}'])}", text))


def verdict(extracted, reference):
    return int(exact_match([extracted], [reference], regexes_to_ignore=IGNORE, ignore_case=True)["exact_match"])


with open(sys.argv[1], "w", encoding="utf-8") as out:
    for name, reference, text in CASES:
        row = {"name": name, "reference": reference, "text": text}
        for kind, extractor in (("strict", STRICT), ("flexible", FLEXIBLE)):
            extracted = extractor.apply([[text]], [{}])[0][0]
            row[kind] = {"extracted": extracted, "score": verdict(extracted, reference)}
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
