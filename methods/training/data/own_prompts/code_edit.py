"""Code prompts about a piece of code that is given: fix, explain, change."""
from .words import pick

# Short programs of our own; {f} a function name, {x} a variable. The second of a pair is broken.
SNIPPETS = [
    ("def {f}({x}):\n    total = 0\n    for item in {x}:\n        total += item\n    return total "
     "/ len({x})\n",
     "def {f}({x}):\n    total = 0\n    for item in {x}:\n        total = item\n    return total "
     "/ len({x})\n"),
    ("def {f}({x}, wanted):\n    for i, item in enumerate({x}):\n        if item == wanted:\n"
     "            return i\n    return -1\n",
     "def {f}({x}, wanted):\n    for i, item in enumerate({x}):\n        if item == wanted:\n     "
     "       return i\n        return -1\n"),
    ("def {f}({x}):\n    best = {x}[0]\n    for item in {x}[1:]:\n        if item > best:\n"
     "            best = item\n    return best\n",
     "def {f}({x}):\n    best = 0\n    for item in {x}:\n        if item > best:\n            "
     "best = item\n    return best\n"),
    ("def {f}(n):\n    if n <= 1:\n        return 1\n    return n * {f}(n - 1)\n",
     "def {f}(n):\n    return n * {f}(n - 1)\n"),
    ("def {f}({x}):\n    counts = {{}}\n    for item in {x}:\n        counts[item] = "
     "counts.get(item, 0) + 1\n    return counts\n",
     "def {f}({x}):\n    counts = {{}}\n    for item in {x}:\n        counts[item] += 1\n    "
     "return counts\n"),
    ("def {f}({x}):\n    result = []\n    for item in {x}:\n        if item not in result:\n"
     "            result.append(item)\n    return result\n",
     "def {f}({x}, result=[]):\n    for item in {x}:\n        if item not in result:\n            "
     "result.append(item)\n    return result\n"),
    ("def {f}(path):\n    with open(path) as handle:\n        return [line.strip() for line in "
     "handle]\n",
     "def {f}(path):\n    handle = open(path)\n    return [line.strip for line in handle]\n"),
    ("def {f}(n):\n    for d in range(2, int(n ** 0.5) + 1):\n        if n % d == 0:\n            "
     "return False\n    return n > 1\n",
     "def {f}(n):\n    for d in range(2, n):\n        if n % d == 0:\n            return False\n  "
     "      else:\n            return True\n"),
    ("def {f}({x}):\n    low, high = 0, len({x}) - 1\n    while low < high:\n"
     "        {x}[low], {x}[high] = {x}[high], {x}[low]\n        low += 1\n        high -= 1\n    "
     "return {x}\n",
     "def {f}({x}):\n    low, high = 0, len({x})\n    while low < high:\n        {x}[low], "
     "{x}[high] = {x}[high], {x}[low]\n        low += 1\n    return {x}\n"),
    ("def {f}(text):\n    words = text.lower().split()\n    return {{w: words.count(w) for w in "
     "set(words)}}\n",
     "def {f}(text):\n    words = text.lower.split()\n    return {{w: words.count(w) for w in "
     "words()}}\n"),
    ("import json\n\n\ndef {f}(path, {x}):\n    with open(path, \"w\") as handle:\n"
     "        json.dump({x}, handle, indent=2)\n",
     "import json\n\n\ndef {f}(path, {x}):\n    with open(path) as handle:\n        "
     "json.dumps({x}, handle, indent=2)\n"),
    ("def {f}({x}):\n    return [[row[i] for row in {x}] for i in range(len({x}[0]))]\n",
     "def {f}({x}):\n    return [[row[i] for row in {x}] for i in range(len({x}))]\n"),
    ("def {f}(a, b):\n    while b:\n        a, b = b, a % b\n    return a\n",
     "def {f}(a, b):\n    while b:\n        a = b\n        b = a % b\n    return a\n"),
    ("def {f}(limit):\n    a, b = 0, 1\n    while a < limit:\n        yield a\n        a, b = b, "
     "a + b\n",
     "def {f}(limit):\n    a, b = 0, 1\n    while a < limit:\n        yield a\n        a = b\n    "
     "    b = a + b\n"),
    ("class Account:\n    def __init__(self, owner):\n        self.owner = owner\n        "
     "self.{x} = 0\n\n    def {f}(self, amount):\n        if amount > self.{x}:\n            "
     "raise ValueError(\"not enough money\")\n        self.{x} -= amount\n",
     "class Account:\n    def __init__(owner):\n        self.owner = owner\n        self.{x} = "
     "0\n\n    def {f}(self, amount):\n        {x} -= amount\n"),
    ("def {f}({x}):\n    left = [v for v in {x}[1:] if v < {x}[0]]\n    right = [v for v in "
     "{x}[1:] if v >= {x}[0]]\n    return {f}(left) + [{x}[0]] + {f}(right) if {x} else []\n",
     "def {f}({x}):\n    left = [v for v in {x} if v < {x}[0]]\n    right = [v for v in {x} if v "
     "> {x}[0]]\n    return {f}(left) + [{x}[0]] + {f}(right) if {x} else []\n"),
    ("def {f}({x}):\n    try:\n        return int({x})\n    except ValueError:\n        return "
     "None\n",
     "def {f}({x}):\n    try:\n        int({x})\n    except:\n        return None\n"),
    ("from collections import deque\n\n\ndef {f}(graph, start):\n    seen, queue = {{start}}, "
     "deque([start])\n    while queue:\n        node = queue.popleft()\n        for other in "
     "graph[node]:\n            if other not in seen:\n                seen.add(other)\n          "
     "      queue.append(other)\n    return seen\n",
     "def {f}(graph, start):\n    seen, queue = set(), [start]\n    while queue:\n        node = "
     "queue.pop(0)\n        for other in graph[node]:\n            queue.append(other)\n    "
     "return seen\n"),
    ("def {f}({x}, size):\n    return [{x}[i:i + size] for i in range(0, len({x}), size)]\n",
     "def {f}({x}, size):\n    return [{x}[i:size] for i in range(0, len({x}))]\n"),
    ("def {f}(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
     "def {f}(year):\n    return year % 4 == 0 or year % 100 != 0 and year % 400 == 0\n"),
    ("def {f}(text):\n    cleaned = \"\".join(c.lower() for c in text if c.isalnum())\n"
     "    return cleaned == cleaned[::-1]\n",
     "def {f}(text):\n    cleaned = \"\".join(c.lower() for c in text if c.isalnum)\n    return "
     "cleaned = cleaned[::-1]\n"),
    ("def {f}({x}):\n    ordered = sorted({x})\n    middle = len(ordered) // 2\n    if "
     "len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1] + "
     "ordered[middle]) / 2\n",
     "def {f}({x}):\n    ordered = {x}.sort()\n    middle = len(ordered) / 2\n    return "
     "ordered[middle]\n"),
]
FUNCTION_NAMES = ["process", "compute", "handle", "check", "find", "run", "solve", "helper", "calc",
                  "work", "get_value", "do_it", "transform", "update", "load", "mystery"]
VARIABLES = ["values", "numbers", "items", "data", "rows", "scores", "prices", "records", "xs",
             "entries"]
FIX = ["Find the bug in this code and fix it.\n\n{code}",
       "This function gives wrong results. Why?\n\n{code}",
       "My Python code does not work as expected:\n\n{code}\nWhat is wrong?",
       "Correct the errors in the following code. Reply with the whole code.\n\n{code}",
       "Please debug this:\n\n{code}", "There is at least one mistake here. List and repair "
                                       "each.\n\n{code}",
       "A colleague wrote this. Review it and suggest a corrected version.\n\n{code}"]
EXPLAIN = ["Explain what this code does.\n\n{code}",
           "What does the following function return, and how?\n\n{code}",
           "Describe this code line by line.\n\n{code}",
           "Suggest a better name for this function.\n\n{code}",
           "What is the time complexity of this code?\n\n{code}",
           "Summarise this code in one sentence.\n\n{code}",
           "What happens when the input is empty?\n\n{code}",
           "I am new to Python. Can you explain this to me?\n\n{code}",
           "Give two example calls with their results.\n\n{code}"]
EDIT = ["Add a docstring to this function. Reply with the whole code.\n\n{code}",
        "Add type hints to this code.\n\n{code}", "Rewrite this in JavaScript.\n\n{code}",
        "Translate this Python code to C++.\n\n{code}", "Write unit tests for this code.\n\n{code}",
        "Make this code easier to read.\n\n{code}", "Add checks for bad input.\n\n{code}",
        "Rename the variables so that they say what they hold.\n\n{code}",
        "Make this faster for large inputs, if possible.\n\n{code}",
        "Add comments to every step.\n\n{code}",
        "Rewrite this as a class with one method.\n\n{code}", "Port this code to Java.\n\n{code}",
        "Rewrite this code in as few lines as possible.\n\n{code}",
        "Extend this code so that it also prints what it does.\n\n{code}"]


def given(rng, broken):
    name, variable = pick(rng, FUNCTION_NAMES, VARIABLES)
    code = rng.choice(SNIPPETS)[broken].format(f=name, x=variable)
    return f"```python\n{code}```" if rng.random() < 0.6 else code


def fix_task(rng):
    return rng.choice(FIX).format(code=given(rng, 1))


def explain_task(rng):
    return rng.choice(EXPLAIN).format(code=given(rng, 0))


def edit_task(rng):
    return rng.choice(EDIT).format(code=given(rng, 0))
