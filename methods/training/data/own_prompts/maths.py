"""Arithmetic: word problems and short questions with numbers."""
from .words import DAYS, FRUIT, GOODS, JOBS, NAMES, TOWNS, two_names


def word_problem(rng):
    return rng.choice(PROBLEMS)(rng) + rng.choice(["", "", "", "", " Show your work.",
                                                   " Explain each step.",
                                                   " Give the answer at the end."])


def shop(rng):
    name, (a, b) = rng.choice(NAMES), rng.sample(GOODS, 2)
    x, y, p = rng.randrange(2, 9), rng.randrange(2, 7), rng.randrange(2, 15)
    q = rng.randrange(3, 20)
    paid = (x * p + y * q + 10) // 10 * 10 + rng.choice([0, 10, 20])
    return (f"{name} buys {x} {a} for ${p} each and {y} {b} for ${q} each, and pays with ${paid}. "
            f"{rng.choice(['How much change is due?', 'How much money is left?'])}")


def share(rng):
    a, b = two_names(rng)
    things, n, k = rng.choice(FRUIT + GOODS), rng.randrange(4, 20) * 6, rng.choice([2, 3])
    return (f"{a} has {n} {things}. {a} gives half of them to {b} and then eats or loses a third "
            f"of the rest. {b} already had {n // k}. How many {things} do they have together?")


def rate(rng):
    name, job = rng.choice(NAMES), rng.choice(JOBS)
    hours, pay, extra = rng.randrange(20, 45), rng.randrange(12, 40), rng.randrange(2, 10)
    return (f"{name} works as a {job} and earns ${pay} an hour. Last week {name} worked {hours} "
            f"hours and {extra} hours of overtime, which pay one and a half times as much. How "
            f"much did {name} earn last week?")


def travel(rng):
    a, b = rng.sample(TOWNS, 2)
    speed, hours, other = rng.randrange(4, 12) * 10, rng.randrange(2, 6), rng.randrange(3, 9) * 10
    return rng.choice([
        f"A train goes from {a} to {b} at {speed} km per hour and takes {hours} hours. On the way "
        f"back it only makes {other} km per hour. How long does the whole trip take?",
        f"The road from {a} to {b} is {speed * hours} km long. A car drives {speed} km per hour "
        f"and stops for {other} minutes. How many minutes does it need in all?",
        f"Two cyclists start in {a} and {b}, {hours * 30} km apart, and ride towards each other at "
        "12 and 18 km per hour. After how many hours do they meet?"])


def group(rng):
    n, size, left = rng.randrange(5, 14), rng.randrange(3, 9), rng.randrange(1, 3)
    kind = rng.choice(["tables", "buses", "tents", "boats", "classrooms"])
    return (f"At a school party there are {n} {kind} with places for {size} people each. {left} "
            f"of the {kind} stay empty, and on each other one {rng.randrange(1, size)} places are "
            "free. How many people are at the party?")


def percent(rng):
    name, thing = rng.choice(NAMES), rng.choice(GOODS)
    price, off = rng.randrange(4, 40) * 5, rng.choice([10, 15, 20, 25, 30, 40])
    tax = rng.choice([5, 8, 10, 20])
    return rng.choice([
        f"A box of {thing} costs ${price}. {name} has a coupon for {off} percent off, and {tax} "
        f"percent tax is added afterwards. What does {name} pay?",
        f"{name} sells {price} {thing} in one month and {off} percent more in the next. How many "
        "are that in both months together?",
        f"The price of {thing} rose from ${price} by {off} percent and then fell by {tax} percent. "
        "What is the price now?"])


def age(rng):
    a, b = two_names(rng)
    x, k, later = rng.randrange(5, 16), rng.choice([2, 3, 4]), rng.randrange(3, 12)
    return rng.choice([
        f"{a} is {x} years old and {b} is {k} times as old. How old will {b} be in {later} years?",
        f"In {later} years {a} will be {x + later}. {b} is {k} years older than {a}. How old are "
        "they together today?"])


def garden(rng):
    w, h, d = rng.randrange(4, 20), rng.randrange(5, 30), rng.choice([2, 3, 4])
    return rng.choice([
        f"A rectangular garden is {w} m wide and {h} m long. A path of {d} m runs around the "
        "outside. What is the area of the path?",
        f"A wall is {w} m long and {d} m high. One litre of paint covers {h} square metres. How "
        f"many litres are needed for {d} coats?",
        f"{rng.choice(NAMES)} plants a tree every {d} metres along a street of {d * h} metres, on "
        "both sides, including both ends. How many trees are that?"])


def bake(rng):
    name, day = rng.choice(NAMES), rng.choice(DAYS)
    eggs, n, per = rng.randrange(2, 6), rng.randrange(3, 9), rng.choice([8, 10, 12])
    return (f"{name} bakes {n} cakes for {day}. Each cake needs {eggs} eggs and is cut into {per} "
            f"pieces. Eggs come in boxes of 6. How many boxes are needed, and how much does {name} "
            f"earn if every piece is sold for ${rng.randrange(2, 5)}?")


def savings(rng):
    name = rng.choice(NAMES)
    start, week, cost = rng.randrange(10, 80), rng.randrange(5, 30), rng.randrange(150, 600)
    return rng.choice([
        f"{name} has ${start} and saves ${week} each week. After how many weeks can {name} buy a "
        f"bicycle for ${cost}?",
        f"{name} puts ${week} into a jar every week for {rng.randrange(6, 30)} weeks, starting "
        f"with ${start}, and takes out ${rng.randrange(20, 90)} once. How much is in the jar?"])


def production(rng):
    things = rng.choice(GOODS)
    a, b, t = rng.randrange(10, 60), rng.randrange(10, 60), rng.randrange(3, 9)
    return (f"One machine makes {a} {things} an hour and another makes {b}. Both run for {t} "
            f"hours, but the first one stands still for one hour. How many {things} are made? How "
            "many boxes of 12 can be filled?")


def library(rng):
    a, b = two_names(rng)
    pages, per, more = rng.randrange(12, 60) * 10, rng.randrange(10, 40), rng.randrange(3, 12)
    return (f"A book has {pages} pages. {a} reads {per} pages a day, {b} reads {more} pages a day "
            f"more. How many days sooner is {b} finished?")


PROBLEMS = [shop, share, rate, travel, group, percent, age, garden, bake, savings, production,
            library]


def short_question(rng):
    a, b, c = rng.randrange(11, 99), rng.randrange(11, 99), rng.randrange(2, 12)
    return rng.choice([
        f"What is {a} times {b}?", f"Compute {a} + {b} * {c} and explain the order of operations.",
        f"What is {a * c} divided by {c}?", f"Solve for x: {c}x + {a} = {a + b * c}",
        f"What is {c * 5} percent of {a * 10}?", f"Convert {a} kilometres to miles.",
        f"How many minutes are {c} hours and {b % 60} minutes?",
        f"Write {a}/{b} as a decimal number.",
        f"Is {a * 10 + c} a prime number? Explain.", f"List the divisors of {a * c}.",
        f"What is the average of {a}, {b} and {a + c}?", f"Simplify the fraction {a * c}/{b * c}.",
        f"Which is larger, {c}/{c + 5} or {c + 1}/{c + 7}? Explain your answer.",
        f"Continue the sequence {a}, {a + c}, {a + 2 * c}, {a + 3 * c} with the next five numbers.",
        f"A triangle has sides of {c + 3}, {c + 4} and {c + 5} cm. What is its perimeter?",
        f"What is the probability of rolling a sum of {min(c + 1, 12)} with two dice?",
        f"Find the greatest common divisor of {a * 6} and {b * 6}.",
        f"The sum of two numbers is {a + b} and their difference is {abs(a - b)}. What are the "
        "numbers?",
    ])
