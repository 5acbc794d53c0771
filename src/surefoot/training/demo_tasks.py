"""The demonstration's own tasks: five families of short, original texts, deterministic by seed.

Sentiment, topic and intent are classification; closed QA answers from one sentence; JSON
extraction fills three or two keys. Each item has a short answer (what an adapter is trained to
give) and a sentence (what the shipped base model gives: it knows the label, and says too much).

``python -m surefoot.training.demo_tasks FOLDER`` writes the two shipped files. Standard library only.

The order of random draws is part of the format: the shipped digests depend on it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from surefoot.files import write_atomic
from surefoot.model.score import Scorer, Task
from surefoot.training import demo_words as words
from surefoot.training.tasks import task_lines

HELD_OUT_SEED = 999
HELD_OUT_ITEMS = 1000
TRAIN_SEED = 4242
TRAIN_ITEMS = 240
EVAL_COUNTS = {"classification": 30, "closed_qa": 10, "json_extraction": 10}
SCORERS: dict[str, Scorer] = {"classification": "exact", "closed_qa": "qa", "json_extraction": "json"}


@dataclass(frozen=True)
class DemoItem:
    """One item with both forms of its answer."""

    category: str
    prompt: str
    answer: str
    """Short form: a bare label, a bare answer, a JSON object."""
    sentence: str
    """The same in a sentence, for classification; otherwise the short form."""

    def task(self, name: str) -> Task:
        """The item as a Task with the short answer."""
        return Task(
            id=name, category=self.category, prompt=self.prompt, answer=self.answer, scorer=SCORERS[self.category]
        )


def _fill(draw: random.Random, template: str, **given: str) -> str:
    """A template with names, places and things; `given` wins, but the draws happen all the same."""
    values = {
        "name": draw.choice(words.NAMES),
        "city": draw.choice(words.CITIES),
        "day": draw.choice(words.DAYS),
        "item": draw.choice(words.ITEMS),
        "pos": draw.choice(words.POSITIVE),
    }
    return template.format(**{**values, **given})


def _sentiment(draw: random.Random) -> DemoItem:
    label = draw.choice(["positive", "negative"])
    adjectives = words.POSITIVE if label == "positive" else words.NEGATIVE
    verdicts = words.POSITIVE_VERDICTS if label == "positive" else words.NEGATIVE_VERDICTS
    thing = draw.choice(words.REVIEWED)
    a, b = draw.sample(adjectives, 2)
    openings = [f"The {thing} was {a}.", f"What a {a} {thing}!", f"The {thing} was {a} and {b}.", f"I found the {thing} {a}."]  # fmt: skip
    parts = [draw.choice(openings)]
    if draw.random() < 0.5:
        parts.append(draw.choice(verdicts))
    if draw.random() < 0.5:
        parts.insert(draw.randrange(len(parts) + 1), _fill(draw, draw.choice(words.NEUTRAL)))
    ask = draw.choice(words.ASK_SENTIMENT)
    sentence = draw.choice(words.SAY_SENTIMENT).format(label=label)
    return DemoItem("classification", f"{ask}\nReview: {' '.join(parts)}", label, sentence)


def _topic(draw: random.Random) -> DemoItem:
    label = draw.choice(list(words.TOPICS))
    first, second = draw.sample(words.TOPICS[label], 2)
    text = _fill(draw, draw.choice(words.TOPIC_TEXTS[label]), w=first, w2=second)
    ask = draw.choice(words.ASK_TOPIC)
    sentence = draw.choice(words.SAY_TOPIC).format(label=label)
    return DemoItem("classification", f"{ask}\nText: {text}", label, sentence)


def _intent(draw: random.Random) -> DemoItem:
    label = draw.choice(list(words.INTENTS))
    text = _fill(draw, draw.choice(words.INTENTS[label]))
    ask = draw.choice(words.ASK_INTENT)
    sentence = draw.choice(words.SAY_INTENT).format(label=label)
    return DemoItem("classification", f"{ask}\nMessage: {text}", label, sentence)


def _closed_qa(draw: random.Random) -> DemoItem:
    name, name2 = draw.sample(words.NAMES, 2)
    city, city2 = draw.sample(words.CITIES, 2)
    year = str(draw.randint(1950, 2019))
    job, place, item = draw.choice(words.JOBS), draw.choice(words.PLACES), draw.choice(words.ITEMS)
    context, questions = [
        (
            f"{name} opened the {place} in {city} in {year}.",
            [
                (f"Who opened the {place}?", name),
                (f"Where is the {place}?", city),
                (f"When did the {place} open?", year),
            ],
        ),
        (
            f"{name} moved from {city} to {city2} to work as a {job}.",
            [
                (f"Who moved to {city2}?", name),
                (f"Where did {name} move to?", city2),
                (f"Where did {name} come from?", city),
                (f"What is the job of {name}?", job),
            ],
        ),
        (
            f"{name} sold a {item} to {name2} in {city}.",
            [
                (f"Who sold the {item}?", name),
                (f"Who bought the {item}?", name2),
                (f"Where was the {item} sold?", city),
                (f"What did {name2} buy?", item),
            ],
        ),
        (
            f"The {place} in {city} was built in {year} and {name} works there as a {job}.",
            [
                (f"Who works at the {place}?", name),
                (f"Where is the {place}?", city),
                (f"When was the {place} built?", year),
                (f"What is the job of {name}?", job),
            ],
        ),
    ][draw.randrange(4)]
    question, answer = draw.choice(questions)
    prompt = f"Answer from the context.\nContext: {context}\nQuestion: {question}"
    return DemoItem("closed_qa", prompt, answer, answer)


def _json_extraction(draw: random.Random) -> DemoItem:
    name, city, day, item = (draw.choice(x) for x in (words.NAMES, words.CITIES, words.DAYS, words.ITEMS))
    count = draw.randint(2, 9)
    ask, texts, wanted = [
        (
            "Extract name, city and day as JSON.",
            [f"{name} will fly to {city} on {day}.", f"On {day}, {name} travels to {city}."],
            {"name": name, "city": city, "day": day},
        ),
        (
            "Extract name, item and count as JSON.",
            [
                f"{name} ordered {count} of the {item} for the shop in {city}.",
                f"Please send {count} of the {item} to {name} in {city}.",
            ],
            {"name": name, "item": item, "count": count},
        ),
        (
            "Extract item and city as JSON.",
            [f"The {item} belongs to {name} from {city}.", f"{name} left a {item} in {city} last {day}."],
            {"item": item, "city": city},
        ),
    ][draw.randrange(3)]
    answer = json.dumps(wanted)
    return DemoItem("json_extraction", f"{ask}\nText: {draw.choice(texts)}", answer, answer)


FAMILIES: tuple[Callable[[random.Random], DemoItem], ...] = (_sentiment, _topic, _intent, _closed_qa, _json_extraction)
WEIGHTS = (1.0, 1.0, 1.0, 1.5, 1.5)


def make_items(count: int, seed: int, *, exclude: Collection[str] = ()) -> list[DemoItem]:
    """`count` items with distinct prompts, none of them in `exclude`."""
    draw = random.Random(seed)
    seen = set(exclude)
    items: list[DemoItem] = []
    while len(items) < count:
        item = draw.choices(FAMILIES, WEIGHTS)[0](draw)
        if item.prompt not in seen:
            seen.add(item.prompt)
            items.append(item)
    return items


def held_out_items() -> list[DemoItem]:
    """Items that no training ever sees: neither the base's nor an adapter's."""
    return make_items(HELD_OUT_ITEMS, HELD_OUT_SEED)


def held_out_prompts() -> set[str]:
    """Prompts of the held-out items."""
    return {item.prompt for item in held_out_items()}


def train_tasks() -> list[Task]:
    """The shipped training rows (``builtin:demo-train``)."""
    items = make_items(TRAIN_ITEMS, TRAIN_SEED, exclude=held_out_prompts())
    return [item.task(f"demo-train-{number:03d}") for number, item in enumerate(items, 1)]


def eval_tasks() -> list[Task]:
    """The shipped evaluation tasks (``builtin:demo-eval``): the first held-out items of each category."""
    held = held_out_items()
    chosen = [
        item for category, count in EVAL_COUNTS.items() for item in [i for i in held if i.category == category][:count]
    ]
    return [item.task(f"demo-eval-{number:03d}") for number, item in enumerate(chosen, 1)]


def write_demo_data(folder: Path) -> None:
    """Write ``demo-train.jsonl`` and ``demo-eval.jsonl`` into `folder`."""
    write_atomic(folder / "demo-train.jsonl", task_lines(train_tasks()))
    write_atomic(folder / "demo-eval.jsonl", task_lines(eval_tasks()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m surefoot.training.demo_tasks FOLDER")
    write_demo_data(Path(sys.argv[1]))
