"""Words and templates of the demonstration's tasks. All sentences are original.

The order inside every list is part of the format: the shipped digests depend on it.
"""

from __future__ import annotations

NAMES = "Maria James Aisha Tomas Ingrid Kenji Lucia Omar Priya Daniel Sofia Andrei Grace Mateo Hannah Yusuf Clara Ravi Elena Victor Naomi Samuel Leila Peter Anna Diego Fatima Oscar Julia Ivan Mina Carlos Ruth Simon Zara Hugo Alice Felix Nadia Bruno".split()  # noqa: SIM905
CITIES = "Lisbon Oslo Nairobi Kyoto Toronto Berlin Lima Dublin Athens Cairo Prague Madrid Hanoi Vienna Warsaw Quito Seoul Zurich Boston Geneva Milan Delhi Sydney Porto Tallinn Riga Bergen Accra Dakar Havana".split()  # noqa: SIM905
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905
ITEMS = "laptop bicycle camera jacket guitar printer kettle tent phone lamp desk backpack blender radio watch drone sofa mirror helmet speaker".split()  # noqa: SIM905
JOBS = "engineer teacher nurse pilot chef lawyer farmer painter dentist baker".split()  # noqa: SIM905
PLACES = "museum library bridge station theatre hospital school factory market garden".split()  # noqa: SIM905
POSITIVE = "excellent wonderful delightful superb brilliant charming impressive fantastic pleasant outstanding enjoyable reliable comfortable gorgeous helpful friendly flawless generous tasty perfect".split()  # noqa: SIM905
NEGATIVE = "terrible awful boring dreadful disappointing rude broken horrible unpleasant useless painful clumsy noisy ugly slow dirty bland overpriced faulty stale".split()  # noqa: SIM905
REVIEWED = "movie hotel meal service phone book concert app restaurant lamp jacket flight game camera".split()  # noqa: SIM905

POSITIVE_VERDICTS = [
    "I would gladly buy it again.",
    "I recommend it to everyone.",
    "We loved every minute of it.",
    "It made my whole week better.",
    "I will come back soon.",
]
NEGATIVE_VERDICTS = [
    "I want my money back.",
    "I would never buy it again.",
    "We regretted every minute of it.",
    "It ruined my whole week.",
    "I will not come back.",
]
NEUTRAL = [
    "It arrived on {day}.",
    "I found it in {city}.",
    "My friend {name} showed it to me.",
    "We tried it last {day}.",
]
ASK_SENTIMENT = [
    "Classify the sentiment of this review as positive or negative.",
    "Is this review positive or negative?",
    "Label the sentiment: positive or negative.",
]
SAY_SENTIMENT = [
    "The sentiment of this review is {label}.",
    "This review sounds {label} to me.",
    "I would say that this review is {label}.",
]

TOPICS = {
    "sports": ["goal", "coach", "striker", "tournament", "referee", "penalty", "stadium", "marathon", "league", "champion"],
    "science": ["telescope", "molecule", "laboratory", "experiment", "planet", "protein", "physicist", "microscope", "galaxy", "enzyme"],
    "business": ["shares", "merger", "profits", "investors", "quarterly", "revenue", "startup", "dividend", "bank", "exports"],
    "weather": ["rain", "snowfall", "thunderstorm", "forecast", "temperatures", "humidity", "blizzard", "sunshine", "drought", "winds"],
}  # fmt: skip
TOPIC_TEXTS = {
    "sports": [
        "The {w} thrilled the crowd in {city} on {day}.",
        "Fans in {city} talked about the {w} and the {w2} all evening.",
        "{name} said the {w} changed after the {w2}.",
    ],
    "science": [
        "Researchers in {city} described a new {w} on {day}.",
        "{name} spent years studying the {w} and the {w2}.",
        "A paper about the {w} surprised experts in {city}.",
    ],
    "business": [
        "The {w} in {city} rose again on {day}.",
        "{name} told reporters that {w} and {w2} would grow.",
        "Analysts in {city} discussed the {w} before the {w2}.",
    ],
    "weather": [
        "The {w} reached {city} on {day}.",
        "{name} warned that {w} and {w2} may continue.",
        "People in {city} prepared for the {w} this week.",
    ],
}
ASK_TOPIC = [
    "Choose the topic: sports, science, business or weather.",
    "What is the topic of this text: sports, science, business or weather?",
]
SAY_TOPIC = [
    "The topic of this text is {label}.",
    "This text is about {label}.",
    "I think that this belongs to {label}.",
]

INTENTS = {
    "refund": [
        "I want my money back for the {item}.",
        "Please return my payment for the {item} I bought on {day}.",
        "How do I get reimbursed for a {item}?",
    ],
    "delivery": [
        "Where is the {item} I ordered on {day}?",
        "My {item} has not arrived in {city} yet.",
        "When will the {item} get to {city}?",
    ],
    "account": [
        "I forgot the password to my profile.",
        "Please change the email on my login, my name is {name}.",
        "I cannot sign in from {city}.",
    ],
    "praise": [
        "The {item} is {pos}, thank you {name}!",
        "Your team in {city} was {pos}.",
        "I just wanted to say the {item} works great.",
    ],
}
ASK_INTENT = [
    "Route this message: refund, delivery, account or praise.",
    "Which team gets this message: refund, delivery, account or praise?",
]
SAY_INTENT = [
    "This message belongs to the {label} team.",
    "I would route this message to {label}.",
    "The right team here is {label}.",
]
