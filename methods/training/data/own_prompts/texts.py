"""Prompts that bring a text of their own: summarise, rewrite, extract."""
from .words import ANIMALS, DAYS, GOODS, JOBS, MONTHS, NAMES, TOWNS, pick, two_names


def passage(rng):
    """A few plain sentences, made up from slots."""
    a, b = two_names(rng)
    town, day, month, job = pick(rng, TOWNS, DAYS, MONTHS, JOBS)
    n, m = rng.randrange(3, 60), rng.randrange(2, 12)
    goods, animal = rng.choice(GOODS), rng.choice(ANIMALS)
    return rng.choice([
        f"The town council of {town} voted on {day} to close the old swimming pool at the end of "
        f"{month}. Repairs would have cost {n} million, more than a new building. {a}, who has led "
        f"the swimming club for {m} years, called it a sad day. A new pool near the station is "
        "planned, but money has not been found yet.",
        f"A {animal} that had escaped from a private zoo near {town} was caught on {day} morning. "
        f"{a}, a local {job}, found it asleep in a garden shed and called the police. Nobody was "
        f"hurt. The owner will have to pay for the search, in which {n} people took part.",
        f"{a} and {b} opened a small shop for {goods} in {town} {m} years ago. At first they sold "
        f"barely {n} a week. Then a short video made the shop known, and orders came from all over "
        f"the country. They now employ {m} people and plan to move to a larger building in "
        f"{month}.",
        f"Heavy rain in {month} flooded the lower streets of {town}. {n} houses had to be left, "
        f"and the school gym served as a shelter for {m} days. Volunteers filled sandbags through "
        f"the night. The mayor, {a}, said that the dam must be raised before next winter.",
        f"Researchers followed {n} families in {town} for {m} years. Children who helped to cook "
        "at home ate more vegetables and knew more about food. The effect was small but lasted. "
        f"{a}, who led the study, warns that other causes cannot be ruled out.",
        f"The night train to {town} will run again from {month}. It was stopped {m} years ago "
        f"because too few people used it. The railway has bought {n} new sleeping cars. A ticket "
        "will cost about as much as a flight, but bicycles may be taken along free of charge.",
        f"{a} worked as a {job} for {n} years. On {day} colleagues held a small party in {town}. "
        f"{b}, who takes over the work, promised to keep the old coffee machine. {a} wants to "
        f"travel for {m} months and then learn to play the cello.",
        f"A new library card in {town} also opens the museum and the botanical garden. It costs "
        f"{m} a month and is free for children. Since its start in {month}, {n} hundred people "
        f"have signed up. The library now opens on {day}s, too, because so many asked for it.",
        f"Bees on the roof of the {town} theatre made {n} jars of honey this year. The {job} {a} "
        f"looks after {m} hives in spare hours. The jars are sold in the break of every show. The "
        "money pays for flowers along the street, so that the bees find food close by.",
        f"The {town} marathon was won by {a} in pouring rain. {b} came second, only {n} seconds "
        f"behind. The route had to be changed on {day} because a bridge is being repaired. {m} "
        "hundred runners reached the finish; many said that the crowd made up for the weather.",
    ])


SUMMARISE = ["Summarise the following text in one sentence.\n\n{t}",
             "Give a short summary of this text:\n{t}",
             "Summarize: {t}", "{t}\n\nWrite a headline for this article.",
             "Read this and list the three main points.\n\n{t}",
             "What is this article about?\n\n{t}",
             "{t}\n\nWhat is the main idea of the text above?",
             "Retell this story for a child.\n\n{t}",
             "Write a tweet about the following news.\n\n{t}",
             "Shorten this text to half its length.\n\n{t}"]


def summary_task(rng):
    return rng.choice(SUMMARISE).format(t=passage(rng))


ASK_FOR = ["List all names in this text.",
           "Which numbers occur in this text, and what do they stand for?",
           "Who is mentioned in this text, and what did they do?",
           "When and where does this take place?", "Write three questions that this text answers.",
           "Answer in one word: is the news good or bad?",
           "Sort the facts of this text into a table.",
           "Turn this text into JSON with the keys who, what, where.", "What might happen next?",
           "Name one cause and one effect in this text.",
           "Is the tone of this text neutral, happy or sad?",
           "Give this text a title and three tags."]


def extract_task(rng):
    text = passage(rng)
    ask = rng.choice(ASK_FOR)
    return f"{ask}\n\n{text}" if rng.random() < 0.7 else f"{text}\n\n{ask}"


SENTENCES = ["The meeting is moved to {day} because {a} is ill.",
             "I can't believe you forgot about it again!",
             "{a} go to the market every {day} and buy many {goods}.",
             "We regret to inform you that the {goods} are late.",
             "Due to the fact that it was raining, {a} did not go out.",
             "hey can u send me the {goods} list asap",
             "The {animal} was seen by {a} near {town} in {month}.",
             "Me and {a} has been waiting since {n} minutes.",
             "Your {goods} are too expensive and the service is bad.",
             "{a} told {b} that the plan would never work.",
             "It is important that all members of the team read the new rules before {day}.",
             "The report was written by {a} in {n} days.",
             "I think maybe we should possibly try another way.",
             "She dont know nothing about the {goods} we ordered.",
             "Please be advised that the office closes at {n} on {day}.",
             "The weather in {town} is nice, the food is nice, and the people are nice.",
             "If {a} had more time, the {job} course would be finished by {month}.",
             "In {month}, {town} will host the {n}th meeting of {job}s from all over the country.",
             "My neighbour's {animal} keeps me awake at night.",
             "There is a big problem with the {goods} which we sold."]
REWRITE = ["Rewrite this sentence in a polite tone: {s}", "Correct the grammar: {s}",
           "Make this sound formal: {s}", "Rewrite in the passive voice: {s}",
           "Rewrite in the past tense: {s}", "Say this in simpler words: {s}",
           "Give three different ways to say this: {s}", "Turn this into a question: {s}",
           "Make this sentence shorter: {s}", "Rewrite this as a message to a friend: {s}",
           "Rewrite this as the first line of a novel: {s}", "Translate this to Spanish: {s}",
           "Translate to French: {s}", "Translate to German: {s}",
           "Find the verbs in this sentence: {s}", "Rewrite with more detail: {s}",
           "Rewrite as a newspaper headline: {s}", "Write the opposite: {s}",
           "Improve the style of this sentence and say what you changed: {s}",
           "Continue this text: {s}", "What is the mood of this sentence? {s}",
           "Rewrite this from the point of view of {a}: {s}"]


def rewrite_task(rng):
    a, b = two_names(rng)
    sentence = rng.choice(SENTENCES).format(
        a=a, b=b, day=rng.choice(DAYS), month=rng.choice(MONTHS), town=rng.choice(TOWNS),
        goods=rng.choice(GOODS), animal=rng.choice(ANIMALS), job=rng.choice(JOBS),
        n=rng.randrange(3, 20))
    return rng.choice(REWRITE).format(s=sentence, a=rng.choice(NAMES))
