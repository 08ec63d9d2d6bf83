#!/usr/bin/env python3
"""Checks a report page without our own code: nesting, references, policy, data block.

usage: check_html.py FILE; prints what is wrong, one line each, and ends with 1 if anything is.
"""
import base64
import hashlib
import json
import sys
from html.parser import HTMLParser

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.problems, self.open, self.ids, self.links = [], [], [], []
        self.texts = {"script": [], "style": []}
        self.kinds = []  # type of each script
        self.policy = None

    def problem(self, text):
        self.problems.append(f"line {self.getpos()[0]}: {text}")

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        names = [name for name, _ in attributes]
        if len(set(names)) != len(names):
            self.problem(f"<{tag}> repeats an attribute")
        values = dict(attributes)
        for name in names:
            if name.startswith("on") or name == "style":
                self.problem(f"<{tag}> has {name}: the policy forbids it")
        for name in ("src", "srcset", "data", "action", "poster"):
            if name in values:
                self.problem(f"<{tag}> loads {values[name]}")
        if tag in {"link", "iframe", "object", "embed", "img", "base", "form"}:
            self.problem(f"there is a <{tag}>")
        if "id" in values:
            self.ids.append(values["id"])
        if "href" in values:
            self.links.append(values["href"])
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"]
        if tag in self.texts:
            self.texts[tag].append("")
        if tag == "script":
            self.kinds.append(values.get("type", ""))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1] != tag:
            self.problem(f"</{tag}> closes {self.open[-1:] or 'nothing'}")
        else:
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] in self.texts:
            self.texts[self.open[-1]][-1] += data


def hashed(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def check(text):
    page = Page()
    page.feed(text)
    page.close()
    problems = page.problems
    if page.open:
        problems.append(f"never closed: {page.open}")
    problems += [f"id {i} twice" for i in sorted(set(page.ids)) if page.ids.count(i) > 1]
    problems += [f"link to {link}" for link in page.links if link[:1] != "#" or link[1:] not in page.ids]
    if page.policy is None or not page.policy.startswith("default-src 'none';"):
        return problems + [f"policy: {page.policy}"]
    if "unsafe" in page.policy or "http" in page.policy:
        problems.append(f"policy allows too much: {page.policy}")
    run = [s for s, kind in zip(page.texts["script"], page.kinds) if kind == ""]
    for name, text in [("script", s) for s in run] + [("style", s) for s in page.texts["style"]]:
        if hashed(text) not in page.policy:
            problems.append(f"the policy does not know a {name} of {len(text)} characters")
    blocks = [s for s, kind in zip(page.texts["script"], page.kinds) if kind == "application/json"]
    if len(run) != 2 or len(blocks) != 1 or not json.loads(blocks[0])["rows"]:
        problems.append(f"{len(run)} scripts and {len(blocks)} data blocks")
    return problems


def main():
    with open(sys.argv[1], encoding="utf-8", errors="strict", newline="") as file:
        problems = check(file.read())
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
