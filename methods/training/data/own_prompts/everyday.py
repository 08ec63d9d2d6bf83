"""Lists, explanations, letters, stories, advice and plans."""
from .words import ANIMALS, DAYS, JOBS, MONTHS, NAMES, TOWNS, two_names

THINGS = ["a weekend in the mountains", "a first aid kit", "learning a language",
          "a small balcony garden", "a job interview", "a birthday party for a six-year-old",
          "saving energy at home", "a long train ride", "a healthy breakfast", "working from home",
          "a rainy afternoon with children", "moving to a new city", "a book club",
          "a vegetarian dinner", "cleaning a kitchen", "a school project about water",
          "better sleep", "a wedding speech", "a day without a phone", "camping with a dog",
          "running a marathon", "starting a podcast", "a museum visit", "making new friends",
          "teaching fractions", "a bicycle tour", "reducing plastic waste",
          "a quiet reading corner", "a family reunion", "a small budget", "giving feedback",
          "a team meeting", "public speaking", "a car trip with toddlers", "winter evenings",
          "a neighbourhood festival", "learning the guitar", "growing tomatoes", "baking bread",
          "a home office", "taking better photos", "an online shop", "a charity run",
          "using less water", "time management"]
LIST_ASK = ["Give me {n} tips for {t}.", "List {n} ideas for {t}.", "What do I need for {t}?",
            "Write a checklist for {t}.", "Name {n} things people forget about {t}.",
            "What are {n} good reasons for {t}?", "Suggest {n} names for a blog about {t}.",
            "Make a table with costs for {t}.", "What are common mistakes with {t}?",
            "Write {n} questions for a quiz about {t}.", "Give {n} short slogans for {t}.",
            "Rank {n} things that matter most for {t}, and say why."]


def list_task(rng):
    return rng.choice(LIST_ASK).format(t=rng.choice(THINGS), n=rng.choice([3, 4, 5, 6, 7, 8, 10]))


TOPICS = ["why the sky is blue", "how a refrigerator works", "how vaccines work",
          "what inflation is", "how bees make honey", "why leaves change colour",
          "how a bicycle stays upright", "what a black hole is", "how rain forms",
          "how the heart pumps blood", "what photosynthesis is", "how mortgages work",
          "what causes earthquakes", "how solar panels work", "why we dream",
          "how a bill becomes a law", "what a neural network is", "how the internet works",
          "what DNA is", "how magnets work", "why the moon has phases", "how airplanes fly",
          "what a recession is", "how cheese is made", "how batteries store energy",
          "why ice floats", "what tides are", "how a camera works", "what an ecosystem is",
          "how glass is made", "what compound interest is", "how search engines work",
          "what the water cycle is", "how muscles grow", "why volcanoes erupt",
          "how GPS finds a position", "what supply and demand mean", "how bread rises",
          "why cats purr", "how a microwave heats food", "what gravity is", "how elections work",
          "what the ozone layer does", "how sound travels", "what an algorithm is",
          "how paper is recycled", "why seasons change", "what a rainbow is",
          "how the stock market works", "what the immune system does", "how bridges carry loads",
          "what machine learning is", "how coffee is grown", "why we yawn",
          "what a prime number is", "how elevators work", "what encryption is",
          "how wind turbines work", "what insurance is", "how birds find their way",
          "what the Renaissance was", "how the printing press changed Europe",
          "what caused the First World War", "how ancient Egyptians built pyramids",
          "who Marie Curie was", "what the Silk Road was", "how trade unions began",
          "what democracy means", "how coral reefs form", "what a budget deficit is"]
EXPLAIN_ASK = ["Explain {t}.", "Explain {t} to a ten-year-old.", "Explain {t} in three sentences.",
               "Can you tell me {t}?", "I would like to understand {t}. Start with the basics.",
               "Explain {t} with an everyday comparison.", "Describe {t} step by step.",
               "Write a short paragraph on {t}.",
               "Explain {t} and name one common misunderstanding.",
               "My daughter asked me {t}. What should I tell her?",
               "Write a quiz question on {t}, with the answer.",
               "Give a detailed explanation of {t}.",
               "What are the key facts one should know about {t}?",
               "Explain {t} as a dialogue between two friends.",
               "Write an introduction to an essay on {t}.",
               "{n} has an exam tomorrow. Explain {t} briefly.", "Explain {t} in bullet points."]


def explain_task(rng):
    return rng.choice(EXPLAIN_ASK).format(t=rng.choice(TOPICS), n=rng.choice(NAMES))


OCCASIONS = ["asking for a day off on {day}", "thanking {a} for a birthday present",
             "inviting {a} to dinner on {day}", "complaining about a late parcel",
             "applying for a job as a {job}", "cancelling a gym membership",
             "apologising to {a} for a missed meeting", "asking the landlord to repair the heating",
             "congratulating {a} on a new job", "asking a professor for more time",
             "resigning from a job in {month}", "welcoming {a} to the team",
             "announcing a street party in {town}", "asking {a} for a reference",
             "reminding a customer of an unpaid bill", "declining an invitation to {town}",
             "booking a room in {town} for {n} nights",
             "reporting a lost bag on the train to {town}", "asking for a quote for {n} chairs",
             "introducing yourself as the new {job}", "asking neighbours to keep quiet at night",
             "offering to swap shifts with {a}", "telling {a} that the project is {n} days late",
             "inviting parents to a school play in {month}",
             "asking the town of {town} for a new playground", "thanking volunteers after an event"]
LETTER_ASK = ["Write an email {o}.", "Write a short and polite message {o}.", "Draft a letter {o}.",
              "Help me write a friendly note {o}.",
              "Write a formal email {o}. Keep it below 100 words.",
              "Write two versions of an email {o}, one formal and one casual.",
              "I need a text message {o}.", "Write an email {o}, and suggest a subject line."]


def letter_task(rng):
    occasion = rng.choice(OCCASIONS).format(a=rng.choice(NAMES), day=rng.choice(DAYS),
                                            month=rng.choice(MONTHS),
                                            town=rng.choice(TOWNS), job=rng.choice(JOBS),
                                            n=rng.randrange(2, 15))
    return rng.choice(LETTER_ASK).format(o=occasion)


STORY_ASK = ["Write a short story about a {job} and a {animal} in {town}.",
             "Write a poem about a {animal} in {month}.",
             "Tell a bedtime story in which {a} loses something dear.",
             "Write a dialogue between a {animal} and a {job}.",
             "Write the opening scene of a mystery set in {town}.",
             "Write a limerick about a {job} from {town}.", "Write a haiku about {month}.",
             "Pretend you are a {job} in the year 2150. Describe your {day}.",
             "Write a diary entry of a {animal} that lives in a {job}'s house.",
             "Describe {town} as a tourist guide would.",
             "Write a scene in which {a} and {b} meet again after years.",
             "Write a funny conversation between {a}, a {job}, and a talking {animal}.",
             "Act as a {job} and answer: what do you like about your work?",
             "Write a fairy tale that ends with the words 'and the {animal} laughed'.",
             "Invent a legend about the founding of {town}.",
             "Write a radio advert for a {job} in {town}."]


def story_task(rng):
    a, b = two_names(rng)
    return rng.choice(STORY_ASK).format(a=a, b=b, job=rng.choice(JOBS), animal=rng.choice(ANIMALS),
                                        town=rng.choice(TOWNS), month=rng.choice(MONTHS),
                                        day=rng.choice(DAYS))


WORRIES = ["My {animal} does not eat since {day}.",
           "I cannot decide between two jobs, one as a {job}.",
           "My flatmate {a} never cleans the kitchen.", "I feel nervous before talking in public.",
           "I spend too much money on food.", "My plants keep dying.",
           "I want to read more but have no time.",
           "My friend {a} borrowed {n}0 dollars and does not pay them back.",
           "I cannot fall asleep before midnight.", "My laptop is slow since the last update.",
           "My son hates maths.", "I moved to {town} and know nobody.",
           "I want to become a {job} at the age of 40.",
           "My boss answers emails at night and expects me to do so.",
           "I have to give a talk about {town} on {day}.",
           "My back hurts after long days at the desk.",
           "I bought {n} concert tickets for the wrong {day}.", "I want to eat less sugar.",
           "My neighbour complains about my {animal}.",
           "I have {n} days off in {month} and little money.", "I forgot the birthday of {a}.",
           "My team misses every deadline."]
ADVICE_ASK = ["{w} What should I do?", "{w} Any advice?",
              "{w} Please give me three concrete suggestions.", "{w} How would you handle this?",
              "{w} What are the pros and cons of waiting?", "{w} Whom could I ask for help?",
              "{w} What would be a good first step?"]


def advice_task(rng):
    worry = rng.choice(WORRIES).format(a=rng.choice(NAMES), day=rng.choice(DAYS),
                                       month=rng.choice(MONTHS),
                                       town=rng.choice(TOWNS), job=rng.choice(JOBS),
                                       animal=rng.choice(ANIMALS),
                                       n=rng.randrange(2, 9))
    return rng.choice(ADVICE_ASK).format(w=worry)


PLANS = ["a {n}-day trip to {town} in {month}", "a week of dinners for {n} people",
         "a {n}-week running course", "a school day about the life of a {job}",
         "learning the basics of {t} in {n} weeks", "a birthday party for {a} on {day}",
         "a reading list of {n} books about {t}", "a spring cleaning in {n} hours",
         "a vegetable garden for {n} square metres", "a study schedule for {n} exams in {month}"]
SUBJECTS = ["photography", "Python", "baking", "drawing", "Spanish", "chess", "astronomy",
            "statistics", "gardening", "public speaking", "the piano", "history", "economics",
            "first aid"]


def plan_task(rng):
    plan = rng.choice(PLANS).format(n=rng.randrange(2, 9), town=rng.choice(TOWNS),
                                    month=rng.choice(MONTHS),
                                    job=rng.choice(JOBS), t=rng.choice(SUBJECTS),
                                    a=rng.choice(NAMES),
                                    day=rng.choice(DAYS))
    return rng.choice(["Make a plan for {p}.", "Plan {p} and explain your choices.",
                       "Help me plan {p}.",
                       "Outline {p} in a table."]).format(p=plan)
