"""Names and things that the templates share."""
import re

NAMES = ["Ana", "Bo", "Carla", "Dmitri", "Elif", "Farah", "Goran", "Hana", "Ivo", "Jonas", "Kavita",
         "Lena", "Mateo", "Nadia", "Oskar", "Priya", "Quentin", "Rosa", "Samir", "Tove", "Uma",
         "Viktor", "Wanda", "Xenia", "Yusuf", "Zoe", "Amara", "Bruno", "Chen", "Daria", "Emil",
         "Freya", "Gabriel", "Henrik", "Ines", "Jamal", "Kira", "Luis", "Mira", "Noor", "Olga",
         "Paulo", "Ravi", "Sofia", "Tomasz", "Vera", "Yara", "Anton", "Beatriz", "Caleb"]
TOWNS = ["Marlow Bay", "Ostrava Hill", "Kestrel Falls", "Nordhaven", "Silver Creek", "Pinewick",
         "Larkfield", "Brackwater", "Santa Rilla", "Eastmere", "Thornbury Cross", "Hollow Oak",
         "Veldhoven", "Castle Rowan", "Port Amber", "Lindenau", "Greyford", "Maple Junction"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September",
          "October", "November", "December"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FRUIT = ["apples", "oranges", "pears", "plums", "lemons", "peaches", "mangoes", "bananas", "kiwis",
         "melons", "cherries", "figs"]
GOODS = ["notebooks", "candles", "mugs", "pencils", "stickers", "lamps", "scarves", "books", "toys",
         "posters", "bracelets", "plants", "keyboards", "cushions", "bottles", "baskets", "tiles",
         "screws", "batteries", "tickets"]
JOBS = ["nurse", "carpenter", "teacher", "bus driver", "gardener", "librarian", "baker", "pilot",
        "electrician", "accountant", "chef", "photographer", "mechanic", "architect", "florist",
        "vet", "translator", "farmer", "musician", "software tester"]
ANIMALS = ["fox", "owl", "otter", "tortoise", "raven", "hedgehog", "whale", "goat", "badger", "cat",
           "heron", "donkey", "bee", "wolf", "parrot", "snail"]


def pick(rng, *groups):
    """One item of each group; a single item when there is one group."""
    chosen = [rng.choice(group) for group in groups]
    return chosen[0] if len(chosen) == 1 else chosen


def two_names(rng):
    return rng.sample(NAMES, 2)


VOWEL_NOUNS = [noun for noun in JOBS + ANIMALS if noun[0] in "aeiou"]
BEFORE_VOWEL = re.compile(r"\b([aA]) (?=(?:%s)\b)" % "|".join(VOWEL_NOUNS))


def mend_articles(text):
    """`a owl` becomes `an owl`: templates say `a` everywhere."""
    return BEFORE_VOWEL.sub(r"\1n ", text)
