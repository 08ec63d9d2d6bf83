"""Code prompts: functions, pipelines with true examples, classes, scripts, SQL, concepts."""
from .words import NAMES, pick

# What a function shall do, as "name(arguments)": "phrase after 'that'".
FUNCTIONS = {
    "merge_intervals(intervals)": "merges overlapping intervals given as pairs of numbers",
    "chunked(items, size)": "splits a list into pieces of a given size, the last one may be "
                            "shorter",
    "flatten(nested)": "flattens a list that contains other lists to any depth",
    "is_valid_ipv4(text)": "checks whether a string is a valid IPv4 address",
    "caesar(text, shift)": "shifts every letter of a text by a number of places and keeps its case",
    "word_counts(text)": "counts how often each word occurs in a text, ignoring case and "
                         "punctuation",
    "roman(number)": "converts a whole number below 4000 to a Roman numeral",
    "to_base(number, base)": "writes a whole number in another base from 2 to 36",
    "transpose(matrix)": "swaps the rows and columns of a matrix stored as a list of lists",
    "matmul(a, b)": "multiplies two matrices and reports an error when their sizes do not fit",
    "binary_search(items, wanted)": "finds the position of a value in a sorted list by halving",
    "quick_sort(items)": "sorts a list with the quicksort algorithm and returns a new list",
    "merge_sort(items)": "sorts a list by merging sorted halves",
    "bubble_sort(items)": "sorts a list in place with bubble sort and stops early when it is "
                          "sorted",
    "prime_factors(n)": "returns the prime factors of a whole number in ascending order",
    "primes_below(limit)": "lists all primes below a limit with the sieve of Eratosthenes",
    "fibonacci(n)": "yields the first n Fibonacci numbers",
    "gcd(a, b)": "computes the greatest common divisor of two numbers",
    "is_anagram(a, b)": "tells whether two words use exactly the same letters",
    "group_anagrams(words)": "groups words that are anagrams of each other",
    "longest_common_prefix(words)": "returns the longest prefix that all words share",
    "edit_distance(a, b)": "computes the Levenshtein distance of two strings",
    "count_islands(grid)": "counts groups of connected ones in a grid of zeros and ones",
    "shortest_path(graph, start, goal)": "finds a shortest path in an unweighted graph",
    "dijkstra(graph, start)": "computes the distances from one node to all others in a weighted "
                              "graph",
    "topological_order(tasks)": "orders tasks so that each comes after the tasks it depends on",
    "has_cycle(graph)": "detects whether a directed graph has a cycle",
    "balanced(text)": "checks that all kinds of brackets in a text are opened and closed in order",
    "evaluate(expression)": "computes an arithmetic expression with + - * / and parentheses",
    "to_postfix(tokens)": "converts an infix expression to postfix notation",
    "compress(text)": "replaces runs of the same letter by the letter and the length of the run",
    "decompress(text)": "expands a run-length encoded string",
    "camel_to_snake(name)": "converts a name from camel case to snake case",
    "slugify(title)": "turns a title into a lower-case URL part with hyphens",
    "parse_query(url)": "returns the query parameters of a URL as a dictionary",
    "parse_csv_line(line)": "splits one CSV line and respects quoted fields",
    "read_config(path)": "reads a file of key=value lines, skipping comments and empty lines",
    "human_size(n_bytes)": "formats a number of bytes as kB, MB or GB with one decimal",
    "format_duration(seconds)": "writes a number of seconds as hours, minutes and seconds",
    "days_between(a, b)": "returns the number of days between two dates given as YYYY-MM-DD",
    "is_leap_year(year)": "tells whether a year is a leap year",
    "next_weekday(date, weekday)": "returns the next date that falls on a given weekday",
    "moving_mean(values, width)": "computes the moving average of a list of numbers",
    "median(values)": "returns the median of a list of numbers without the statistics module",
    "mode(values)": "returns the most frequent value, the smallest one when there are several",
    "standard_deviation(values)": "computes the sample standard deviation",
    "normalise(values)": "scales numbers linearly to the range from 0 to 1",
    "histogram(values, n_bins)": "counts how many numbers fall into each of n equal bins",
    "running_total(values)": "returns the list of partial sums",
    "max_subarray(values)": "finds the contiguous part of a list with the largest sum",
    "two_sum(values, total)": "returns the positions of two numbers that add up to a total",
    "three_largest(values)": "returns the three largest numbers in descending order",
    "rotate(items, steps)": "moves the items of a list to the right by some steps, wrapping around",
    "remove_duplicates(items)": "removes repeated items and keeps the order of first appearance",
    "intersection(a, b)": "returns the items that occur in both lists, each once",
    "difference(old, new)": "lists which keys of a dictionary were added, removed or changed",
    "invert(mapping)": "turns a dictionary of lists into a dictionary from item to keys",
    "deep_get(data, path)": "looks up a value in nested dictionaries by a dotted path",
    "merge_dicts(a, b)": "merges two nested dictionaries, the second one wins",
    "sort_by_key(rows, key)": "sorts a list of dictionaries by one key, rows without it come last",
    "group_by(rows, key)": "groups a list of dictionaries by the value of one key",
    "pivot(rows)": "turns rows of (name, month, amount) into one dictionary per name",
    "check_password(text)": "checks that a password has 10 characters, a digit, a capital and a "
                            "symbol",
    "mask_card(number)": "hides all but the last four digits of a card number",
    "luhn_ok(number)": "validates a card number with the Luhn checksum",
    "is_valid_email(text)": "checks the form of an e-mail address with a regular expression",
    "extract_links(html)": "returns all link targets of an HTML text",
    "strip_tags(html)": "removes HTML tags from a text",
    "title_case(text)": "capitalises every word except short ones such as 'of' and 'the'",
    "reverse_words(sentence)": "reverses the order of the words in a sentence",
    "is_palindrome(text)": "checks for a palindrome, ignoring spaces, case and punctuation",
    "vowel_count(text)": "counts the vowels of a text",
    "longest_word(sentence)": "returns the longest word, the first one when several tie",
    "wrap(text, width)": "breaks a text into lines of at most width characters at spaces",
    "center_box(lines)": "prints lines of text in a box made of asterisks",
    "draw_triangle(height)": "prints a triangle of stars with the given height",
    "multiplication_table(n)": "prints the multiplication table up to n, neatly aligned",
    "hanoi(n)": "prints the moves that solve the Towers of Hanoi with n discs",
    "n_queens(n)": "finds one way to place n queens on a board so that none attacks another",
    "solve_sudoku(board)": "fills a 9 by 9 Sudoku by backtracking",
    "permutations(items)": "returns all orders of a list without itertools",
    "subsets(items)": "returns all subsets of a list",
    "combinations(items, k)": "returns all ways to choose k items",
    "change(amount, coins)": "returns the smallest number of coins that make up an amount",
    "knapsack(weights, values, capacity)": "solves the 0/1 knapsack problem with dynamic "
                                           "programming",
    "longest_increasing(values)": "returns a longest increasing subsequence",
    "grid_paths(rows, columns)": "counts the ways through a grid moving only right and down",
    "game_of_life(grid)": "computes the next generation of Conway's Game of Life",
    "tic_tac_toe_winner(board)": "finds the winner of a tic-tac-toe board, if there is one",
    "spiral(matrix)": "returns the items of a matrix in spiral order",
    "pascal(n)": "builds the first n rows of Pascal's triangle",
    "collatz(n)": "returns the Collatz sequence that starts at n",
    "digital_root(n)": "adds the digits of a number until one digit is left",
    "is_armstrong(n)": "tells whether a number equals the sum of its digits raised to their count",
    "perfect_numbers(limit)": "lists all perfect numbers below a limit",
    "distance(a, b)": "computes the distance of two points in the plane",
    "point_in_circle(point, centre, radius)": "tells whether a point lies inside a circle",
    "polygon_area(points)": "computes the area of a polygon from its corners",
    "celsius_table(low, high, step)": "prints a table of Celsius and Fahrenheit temperatures",
    "compound_interest(amount, rate, years)": "computes an amount after years of compound interest",
    "loan_payment(principal, rate, months)": "computes the monthly payment of a loan",
    "split_bill(total, people, tip)": "splits a restaurant bill with a tip in per cent",
    "grade(score)": "turns a score from 0 to 100 into a letter grade",
    "bmi(weight, height)": "computes the body mass index and names its category",
    "retry(function, times)": "calls a function again when it raises, up to a number of times",
    "memoise(function)": "remembers the results of a function of hashable arguments",
    "timed(function)": "is a decorator that prints how long a call took",
    "throttle(function, seconds)": "ignores calls that come sooner than some seconds after the "
                                   "last",
    "batch_rename(folder, old, new)": "replaces a part of the names of all files in a folder",
    "find_large_files(folder, limit)": "lists files above a size limit, the largest first",
    "count_lines(folder, suffix)": "counts the lines of all files with a suffix in a folder tree",
    "tail(path, n)": "returns the last n lines of a file without reading all of it",
    "dedupe_files(folder)": "finds files with the same content by their hash",
    "shuffle(items, seed)": "shuffles a list with the Fisher-Yates method and a seed",
    "weighted_choice(items, weights)": "draws one item with given weights",
    "roll_dice(n, sides)": "rolls n dice and returns the single results and their sum",
    "random_password(length)": "makes a random password of letters, digits and symbols",
    "simulate_queue(arrivals, service)": "simulates a single counter and returns the waiting times",
}
ASK = [
    "Write a {lang} function `{sig}` that {what}.",
    "Write a function in {lang} that {what}.",
    "I need a {lang} function that {what}. Call it `{name}`.",
    "Implement `{sig}` in {lang}. It {what}.",
    "Please write {lang} code for a function that {what}.",
    "Create a {lang} function named {name} that {what}.",
    "How would you write a {lang} function that {what}?",
    "Can you show me a clean {lang} implementation of a function that {what}?",
    "Give me a short {lang} function that {what}.",
    "In {lang}, define a function that {what}.",
]
EXTRA = ["", "", "", "", " Add a docstring.", " Use type hints.", " Include two example calls.",
         " Write three tests with assert.", " Do not use any imports.",
         " Explain each step briefly.", " Handle empty input.", " Raise ValueError for bad input.",
         " Keep it as simple as possible.", " Comment the code.", " State its time complexity.",
         " Show the expected output.", " Only give the code.", " Then explain how it works.",
         " Also write a small main program.", " Avoid recursion.", " Mention one edge case."]
LANGS = ["Python"] * 14 + ["JavaScript", "JavaScript", "Java", "C", "C++", "Go", "Rust",
                           "TypeScript"]


def function_task(rng):
    sig, what = rng.choice(list(FUNCTIONS.items()))
    lang, ask, extra = pick(rng, LANGS, ASK, EXTRA)
    if lang != "Python":
        extra = extra.replace(" Add a docstring.", " Add a short comment.").replace(
            " Raise ValueError for bad input.", " Report bad input.").replace(
            " Use type hints.", "").replace(" with assert", "")
    return ask.format(lang=lang, sig=sig, name=sig.split("(")[0], what=what) + extra


# Pipelines: choose, change, combine. The examples in the prompts are computed, so they are true.
def small_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


KEEP = {
    "even": ("even numbers", lambda n: n % 2 == 0),
    "odd": ("odd numbers", lambda n: n % 2 == 1),
    "positive": ("positive numbers", lambda n: n > 0),
    "negative": ("negative numbers", lambda n: n < 0),
    "two_digit": ("numbers with exactly two digits", lambda n: 10 <= abs(n) <= 99),
    "small": ("numbers below 10", lambda n: n < 10),
    "multiples_of_three": ("multiples of 3", lambda n: n % 3 == 0),
    "not_multiples_of_five": ("numbers that are not multiples of 5", lambda n: n % 5 != 0),
    "primes": ("prime numbers", small_prime),
    "ending_in_seven": ("numbers that end in 7", lambda n: abs(n) % 10 == 7),
    "squares": ("perfect squares", lambda n: n >= 0 and int(n ** 0.5 + 0.5) ** 2 == n),
}
CHANGE = {
    "": ("", lambda n: n),
    "squared": ("the squares of ", lambda n: n * n),
    "doubled": ("the doubles of ", lambda n: 2 * n),
    "absolute": ("the absolute values of ", abs),
    "digit_sums": ("the digit sums of ", lambda n: sum(int(c) for c in str(abs(n)))),
    "last_digits": ("the last digits of ", lambda n: abs(n) % 10),
    "plus_one": ("the successors of ", lambda n: n + 1),
}
COMBINE = {
    "sum_of": ("the sum of {}, 0 if there are none", sum),
    "count_distinct": ("how many different values there are among {}", lambda v: len(set(v))),
    "largest": ("the largest of {}, or None if there are none", lambda v: max(v, default=None)),
    "smallest": ("the smallest of {}, or None if there are none", lambda v: min(v, default=None)),
    "list_of": ("a list of {}, in their order", list),
    "sorted_list_of": ("a list of {} in ascending order", sorted),
    "reversed_list_of": ("a list of {} in reversed order", lambda v: list(v)[::-1]),
    "spread_of": ("the difference between the largest and the smallest of {}, 0 if there are none",
                  lambda v: max(v) - min(v) if v else 0),
    "first_two_of": ("a list of the first two of {}", lambda v: list(v)[:2]),
}
FORMS = [
    "Complete this Python function:\n\n```python\n{code}```",
    "Complete the following Python function. Answer with the complete function in one code "
    "block.\n\n```python\n{code}```",
    "{code}",
    "Write the body of this function.\n\n{code}",
    "Finish this code:\n{code}",
    "```python\n{code}```\nPlease fill in the missing body.",
    "Complete the following Python code without any explanation.\n{code}",
    "Implement this function and explain your solution in one sentence.\n\n{code}",
]


def definition(rng, name, what, argument, kind, examples):
    """A signature with a docstring and examples in one of the usual styles."""
    style = rng.randrange(4)
    hint = rng.random() < 0.5
    arrow = {int: "int", list: "List[int]", str: "str"}.get(type(examples[0][1]))
    head = f"def {name}({argument}"
    if hint and arrow:
        head += f": {kind}) -> {arrow}"
    else:
        head += ")"
    text = f"Return {what}."
    if style == 0:
        body = "".join(f"    >>> {name}({i!r})\n    {o!r}\n" for i, o in examples)
        doc = f'    """{text}\n\n{body}    """\n'
    elif style == 1:
        body = "".join(f"    {name}({i!r}) -> {o!r}\n" for i, o in examples)
        doc = f"    '''{text}\n    For example:\n{body}    '''\n"
    elif style == 2:
        body = "".join(f"    {name}({i!r}) == {o!r}\n" for i, o in examples[:1])
        doc = f'    """\n    {text}\n{body}    """\n'
    else:
        doc = f'    """{text}"""\n'
    imports = "from typing import List\n\n\n" if "List" in head and rng.random() < 0.7 else ""
    return f"{imports}{head}:\n{doc}"


def pipeline_task(rng):
    keep, change, combine = pick(rng, list(KEEP), list(CHANGE), list(COMBINE))
    what = COMBINE[combine][0].format(f"{CHANGE[change][0]}the {KEEP[keep][0]} in a list")
    name = "_".join(part for part in (combine, change, keep) if part)

    def solve(values):
        return COMBINE[combine][1]([CHANGE[change][1](n) for n in values if KEEP[keep][1](n)])

    if rng.random() < 0.3:
        values = [rng.randrange(-20, 60) for _ in range(rng.randrange(5, 8))]
        return rng.choice([
            f"Write a Python function that returns {what}. For {values} the result is "
            f"{solve(values)!r}.",
            f"Write a Python function `{name}(numbers)`. It returns {what}.\nYour code should "
            f"satisfy: assert {name}({values}) == {solve(values)!r}",
            f"Using Python, return {what}. Example input: {values}, example output: "
            f"{solve(values)!r}.",
        ])
    inputs = [[rng.randrange(-20, 60) for _ in range(rng.randrange(4, 7))] for _ in range(2)]
    argument = rng.choice(["numbers", "values", "items", "data", "lst"])
    code = definition(rng, name, what, argument, "List[int]", [(i, solve(i)) for i in inputs])
    return rng.choice(FORMS).format(code=code)


WORD_KEEP = {
    "long_words": ("words with more than four letters", lambda w: len(w) > 4),
    "short_words": ("words with at most four letters", lambda w: len(w) <= 4),
    "words_with_a": ("words that contain the letter 'a'", lambda w: "a" in w),
    "vowel_words": ("words that start with a vowel", lambda w: w[0] in "aeiou"),
    "words_with_double": ("words in which a letter occurs twice in a row",
                          lambda w: any(x == y for x, y in zip(w, w[1:]))),
    "words_ending_in_e": ("words that end in 'e'", lambda w: w.endswith("e")),
    "all_words": ("words", lambda w: True),
}
WORD_CHANGE = {
    "upper": ("in capital letters", str.upper),
    "reversed": ("each written backwards", lambda w: w[::-1]),
    "initials": ("shortened to their first letter", lambda w: w[0]),
    "without_vowels": ("without their vowels", lambda w: "".join(c for c in w if c not in "aeiou")),
    "capitalised": ("with a capital first letter", str.capitalize),
    "doubled": ("each written twice in a row", lambda w: w + w),
    "starred": ("with a star in place of the first letter", lambda w: "*" + w[1:]),
}
WORD_JOIN = {
    "joined": ("one string, joined by spaces", " ".join),
    "hyphened": ("one string, joined by hyphens", "-".join),
    "listed": ("a list in their order", list),
    "sorted": ("a list in alphabetical order", sorted),
    "by_length": ("a list from the shortest to the longest", lambda v: sorted(v, key=len)),
}
SENTENCES = ["the little green tree near the house", "an apple a day makes a happy horse",
             "seven boats cross the narrow bridge", "please bring three eggs and some butter",
             "under the moon all ideas seem bright", "we saw a yellow balloon above the village",
             "every evening uncle Emil feeds the geese", "old books smell of paper and glue",
             "it rains on the iron roof again", "a quiet room is all he needed"]


def words_task(rng):
    keep, change, join = pick(rng, list(WORD_KEEP), list(WORD_CHANGE), list(WORD_JOIN))
    what = (f"the {WORD_KEEP[keep][0]} of a sentence, {WORD_CHANGE[change][0]}, "
            f"as {WORD_JOIN[join][0]}")

    def solve(text):
        return WORD_JOIN[join][1]([WORD_CHANGE[change][1](w) for w in text.split()
                                   if WORD_KEEP[keep][1](w)])

    text = rng.choice(SENTENCES).lower()
    if rng.random() < 0.35:
        return (f"Write a Python function that takes a sentence and returns {what}.\n"
                f"Input: {text!r}\nOutput: {solve(text)!r}")
    code = definition(rng, f"{join}_{change}_{keep}", what, rng.choice(["text", "sentence", "s"]),
                      "str",
                      [(text, solve(text))])
    return rng.choice(FORMS).format(code=code)


CLASSES = {
    "Library": ["lend a book", "return a book", "list overdue books", "search by author",
                "add a member"],
    "ParkingLot": ["park a car", "release a place", "count free places", "compute the fee"],
    "BankAccount": ["deposit", "withdraw", "transfer to another account", "print a statement"],
    "ShoppingCart": ["add an item", "remove an item", "apply a discount code", "compute the total"],
    "TodoList": ["add a task", "mark a task as done", "list open tasks", "sort by due date"],
    "Inventory": ["add stock", "remove stock", "list items that run low", "value the stock"],
    "Matrix": ["add another matrix", "multiply by a number", "transpose", "print rows"],
    "Fraction": ["add", "multiply", "reduce to lowest terms", "compare two fractions"],
    "Stack": ["push", "pop", "peek", "report its size"],
    "Queue": ["enqueue", "dequeue", "peek", "tell whether it is empty"],
    "LinkedList": ["append", "prepend", "delete a value", "reverse", "find the middle node"],
    "BinaryTree": ["insert a value", "search", "return the height", "walk in order"],
    "LRUCache": ["get a value", "put a value", "report hits and misses"],
    "Graph": ["add an edge", "list neighbours", "search breadth first", "count components"],
    "PriorityQueue": ["push with a priority", "pop the smallest", "change a priority"],
    "Vector": ["add", "scale", "compute the dot product", "return the length"],
    "Polynomial": ["evaluate at a point", "add another polynomial", "differentiate"],
    "Deck": ["shuffle", "deal a hand", "count the remaining cards"],
    "Elevator": ["call to a floor", "move one step", "report the current floor"],
    "Timer": ["start", "stop", "report the elapsed seconds", "reset"],
    "Contact": ["change the phone number", "format as text", "compare by name"],
    "AddressBook": ["add a contact", "find by name", "delete a contact", "save to a file"],
    "Recipe": ["add an ingredient", "scale to a number of servings", "print a shopping list"],
    "Student": ["add a grade", "compute the average", "tell whether the student passed"],
    "Employee": ["raise the salary", "compute the yearly pay", "print a summary"],
    "Thermostat": ["set the target", "read the temperature", "switch the heating on and off"],
    "VendingMachine": ["insert a coin", "choose a product", "return change"],
    "TicketCounter": ["sell a ticket", "refund a ticket", "report the revenue"],
    "Playlist": ["add a song", "play the next song", "shuffle", "report the total length"],
    "Logger": ["log a message with a level", "filter by level", "write to a file"],
    "RateLimiter": ["allow or refuse a call", "report the calls left"],
    "EventBus": ["subscribe", "unsubscribe", "publish an event"],
    "Temperature": ["convert to Fahrenheit", "convert to Kelvin", "compare two temperatures"],
    "Rectangle": ["compute the area", "compute the perimeter", "tell whether it is a square"],
    "Hotel": ["book a room", "cancel a booking", "list free rooms for a date"],
    "Quiz": ["ask a question", "check an answer", "report the score"],
    "Robot": ["turn left", "move forward", "report its position"],
    "TextBuffer": ["insert text", "delete a range", "undo the last change"],
    "Trie": ["insert a word", "check for a word", "list words with a prefix"],
    "Counter": ["increase", "decrease", "reset", "report the value"],
}
CLASS_ASK = [
    "Write a {lang} class `{name}` that can {methods}.",
    "Design a {lang} class named {name} with methods to {methods}.",
    "Implement a class {name} in {lang}. It should be able to {methods}.",
    "I am writing a small program in {lang} and need a {name} class. It must {methods}.",
    "Show me a {lang} class called {name}; one should be able to {methods}.",
]
CLASS_EXTRA = ["", "", "", " Include a short usage example.", " Add docstrings.",
               " Write unit tests for it.", " Reject invalid values with an exception.",
               " Keep the code short.", " Explain the design in a few sentences.",
               " Add a method that prints it nicely."]


def listing(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def class_task(rng):
    name = rng.choice(list(CLASSES))
    methods = rng.sample(CLASSES[name], rng.randrange(2, min(4, len(CLASSES[name])) + 1))
    lang = rng.choice(["Python"] * 8 + ["Java", "C++", "JavaScript"])
    extra = rng.choice(CLASS_EXTRA)
    if lang != "Python":
        extra = extra.replace("docstrings", "comments")
    return rng.choice(CLASS_ASK).format(lang=lang, name=name, methods=listing(methods)) + extra


SCRIPT_JOBS = [
    "reads a CSV file of {rows} and prints the {stat} of the column `{column}`",
    "reads a JSON file with a list of {rows} and writes those with `{column}` above {n} to a new "
    "file",
    "asks the user for {n} numbers and prints their {stat}",
    "watches a folder and prints a line whenever a new file appears",
    "counts the most frequent words of a text file and prints the top {n}",
    "renames all photos in a folder to the date they were taken",
    "splits a large text file into parts of {n} lines",
    "merges all CSV files of {rows} in a folder into one file",
    "downloads a web page and prints all its headings",
    "finds lines with the word 'error' in a log file and counts them per hour",
    "draws a bar chart of {rows} per month from a CSV file with matplotlib",
    "keeps a simple to-do list in a text file with add, done and list commands",
    "guesses a number between 1 and {n} that the user has in mind",
    "plays hangman in the terminal with a list of {n} words",
    "plays rock, paper, scissors against the user for {n} rounds",
    "converts all Markdown files in a folder to HTML",
    "checks every {n} minutes whether a website answers and logs the result",
    "sends a reminder for {rows} that are due tomorrow",
    "stores {rows} in an SQLite database and lets the user search by `{column}`",
    "computes the {stat} of `{column}` per group from a table of {rows} with pandas",
    "removes duplicate {rows} from a CSV file by the column `{column}`",
    "turns a table of {rows} into an HTML page",
    "parses command-line arguments for a tool that filters {rows} by `{column}`",
    "validates a CSV file of {rows} and reports every line with a missing `{column}`",
    "compares two folders and lists files that differ",
    "makes a backup copy of a folder with the date in its name and keeps the last {n}",
    "draws a random sample of {n} {rows} from a file",
    "prints a calendar of the current month",
    "converts between currencies with a table of rates",
    "measures how long sorting {n}000 random numbers takes",
]
ROWS = ["orders", "customers", "invoices", "products", "books", "students", "measurements",
        "flights", "employees", "tickets", "recipes", "sales", "movies", "songs", "visits"]
COLUMNS = ["price", "age", "score", "quantity", "year", "rating", "weight", "duration", "amount",
           "level"]
STATS = ["average", "sum", "maximum", "median", "minimum", "standard deviation"]
SCRIPT_ASK = ["Write a Python script that {job}.", "Write a small Python program that {job}.",
              "I want a Python script that {job}. How do I write it?",
              "Create a command-line tool in Python that {job}.",
              "Help me write Python code that {job}.",
              "Show how to write a program in Python that {job}, step by step."]
SCRIPT_EXTRA = ["", "", "", " Use only the standard library.",
                " Handle missing files with a clear message.", " Put the logic into functions.",
                " Add comments.", " Keep it below 40 lines.", " Explain how to run it.",
                " Use argparse for the options."]


def script_task(rng):
    job = rng.choice(SCRIPT_JOBS).format(rows=rng.choice(ROWS), stat=rng.choice(STATS),
                                         column=rng.choice(COLUMNS),
                                         n=rng.choice([5, 10, 20, 50, 100]))
    return rng.choice(SCRIPT_ASK).format(job=job) + rng.choice(SCRIPT_EXTRA)


TABLES = {
    "orders": ["id", "customer_id", "status", "amount", "ordered_on"],
    "employees": ["id", "name", "department", "salary", "hired_on"],
    "books": ["id", "title", "author", "year", "price"],
    "students": ["id", "name", "class", "points", "birthday"],
    "flights": ["id", "origin", "destination", "seats", "departure"],
    "products": ["id", "name", "category", "price", "stock"],
    "visits": ["id", "patient", "doctor", "fee", "visited_on"],
    "songs": ["id", "title", "artist", "plays", "seconds"],
    "matches": ["id", "home_team", "away_team", "home_goals", "away_goals"],
    "rooms": ["id", "hotel", "beds", "price", "free"],
}
SQL_ASK = ["lists the ten rows with the highest {a}", "counts the rows for each {b}",
           "returns the average {a} for each {b}",
           "finds every {b} that occurs more than {n} times",
           "selects all rows whose {a} is above the average {a}", "deletes rows with a missing {a}",
           "sets {a} to 0 where {b} is empty", "returns the second highest {a}",
           "shows {b} and {a}, sorted by {a} in descending order", "finds rows with the same {b}",
           "returns the row with the largest {a} for each {b}",
           "adds a column named note to the table", "shows the share of each {b} in the total {a}",
           "creates an index that speeds up searches by {b}"]


def sql_task(rng):
    table = rng.choice(list(TABLES))
    columns = TABLES[table]
    a, b = columns[3], rng.choice(columns[1:3])
    job = rng.choice(SQL_ASK).format(a=a, b=b, n=rng.choice([2, 3, 5, 10]))
    return rng.choice([
        "Write an SQL query that {job}. The table `{table}` has the columns {columns}.",
        "Given a table {table}({columns}), write a query that {job}.",
        "I have an SQL table `{table}` with {columns}. Which statement {job}?",
        "Table: {table} ({columns}). Write SQL that {job} and explain it.",
    ]).format(job=job, table=table, columns=", ".join(columns))


CONCEPTS = ["list comprehensions", "generators and yield", "decorators", "context managers",
            "lambda functions", "dictionaries", "sets", "tuples", "slicing",
            "string formatting with f-strings", "exceptions", "default arguments",
            "keyword arguments", "recursion", "closures", "inheritance", "dataclasses",
            "abstract base classes", "the global interpreter lock", "virtual environments",
            "unit tests", "type hints", "regular expressions", "asynchronous functions", "threads",
            "iterators", "enumerate and zip", "map and filter", "the with statement",
            "modules and packages", "properties", "static methods", "operator overloading",
            "hash tables", "binary search trees", "linked lists", "stacks and queues", "heaps",
            "graphs", "depth-first search", "breadth-first search", "dynamic programming",
            "memoisation", "greedy algorithms", "big O notation", "sorting algorithms",
            "floating-point rounding", "bit operations", "version control with git",
            "merge conflicts", "REST interfaces", "HTTP status codes", "JSON", "SQL joins",
            "database indexes", "transactions", "caching", "environment variables", "logging",
            "continuous integration", "code reviews", "refactoring", "design patterns",
            "the singleton pattern", "the observer pattern", "dependency injection",
            "pointers in C", "memory leaks", "references in C++", "smart pointers",
            "templates in C++", "interfaces in Java", "promises in JavaScript",
            "closures in JavaScript", "ownership in Rust", "goroutines in Go", "CSS flexbox",
            "HTML forms", "the DOM", "Docker containers"]
VERSUS = [("a list", "a tuple"), ("a list", "a set"), ("`is`", "`==`"), ("a process", "a thread"),
          ("a stack", "a queue"), ("an array", "a linked list"), ("a class", "an object"),
          ("a module", "a package"), ("a shallow copy", "a deep copy"), ("`append`", "`extend`"),
          ("a compiler", "an interpreter"), ("a unit test", "an integration test"), ("GET", "POST"),
          ("an inner join", "a left join"), ("`sort`", "`sorted`"), ("`let`", "`const`"),
          ("git merge", "git rebase"), ("a function", "a method"),
          ("an abstract class", "an interface"),
          ("authentication", "authorisation"), ("breadth-first", "depth-first search"),
          ("`range`", "`list`"), ("JSON", "XML"), ("recursion", "iteration")]
CONCEPT_ASK = ["Explain {c} to a beginner, with a short code example.",
               "What are {c} good for? Show an example.", "Give me three common mistakes with {c}.",
               "When should I use {c}?", "Write a small program that demonstrates {c}.",
               "Explain {c} in a few sentences.", "Write a short tutorial on {c}.",
               "How do I test code that relies on {c}?",
               "Make an exercise about {c} and give its solution.",
               "Describe {c} as you would to a school class.",
               "What should I know about {c} before a job interview?",
               "List the main ideas behind {c}."]


def concept_task(rng):
    if rng.random() < 0.2:
        a, b = rng.choice(VERSUS)
        return rng.choice(["What is the difference between {a} and {b}?",
                           "Explain {a} versus {b} with a short example.",
                           "{n} asks when to prefer {a} over {b}. What do you answer?",
                           "Compare {a} and {b} in a table."]).format(a=a, b=b, n=rng.choice(NAMES))
    return rng.choice(CONCEPT_ASK).format(c=rng.choice(CONCEPTS))
