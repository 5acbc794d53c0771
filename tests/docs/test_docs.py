"""The documentation says what is so: links, commands, make targets, rungs and tables are checked against the code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from surefoot.cli import cli
from surefoot.config.load import apply_overrides, load_cluster, load_ladder, shipped_names
from surefoot.engine.left_out import fitting
from surefoot.model.ladder import Ladder
from surefoot.model.status import ExitCode, Status
from surefoot.rungs.table import RUNGS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELL = ("", "console", "sh", "bash")
"""Languages of the blocks that hold commands; blocks without one hold commands too, or no line that looks like it."""
PLACEHOLDERS = {"FILE", "NAME", "RUN", "RUNG", "DIR", "FILE|NAME", "latest"}


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[str]:
    """Contents of the fenced blocks in any of these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def rows(text: str, header: str) -> list[list[str]]:
    """Cells of the table whose header line begins with `header`, without header and rule."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(header)) + 2
    table = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


# --- links ----------------------------------------------------------------------------------------


def links(page: Path) -> list[str]:
    """Targets of the page's links and pictures that stay within the project."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [t for t in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:", t)]


def anchors(page: Path) -> set[str]:
    """What a heading is called in a link, as GitHub and GitLab make it."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [
            (page.parent / link.partition("#")[0]).resolve() for link in links(page) if not link.startswith("#")
        ]
    assert [page_id(page) for page in PAGES if page not in reached] == []


# --- commands -------------------------------------------------------------------------------------


def commands(page: Path) -> Iterator[str]:
    """Command lines of the page's shell blocks: without prompt, comment and redirection."""
    for block in blocks(page, *SHELL):
        for line in block.splitlines():
            words = (
                shlex.split(line.strip().removeprefix("$ "), comments=True) if re.search(r"surefoot|make", line) else []
            )
            words = words[: next((i for i, word in enumerate(words) if word in (">", "|", "&&", ";")), len(words))]
            if words and words[0] in ("surefoot", ".venv/bin/surefoot", "make"):
                yield shlex.join(words)


def mentions(page: Path) -> Iterator[str]:
    """Commands in the running text, between back-quotes."""
    for span in re.findall(r"`((?:surefoot|make) [a-z][^`\n]*)`", prose(page)):
        if "…" not in span:
            yield span


ALL_COMMANDS = [(page, line) for page in PAGES for line in commands(page)]
ALL_MENTIONS = [(page, line) for page in PAGES for line in mentions(page)]


def case_ids(cases: list[tuple[Path, str]]) -> list[str]:
    return [f"{page_id(page)}: {line}" for page, line in cases]


def parse(words: list[str]) -> dict[str, Any]:
    """What click makes of a command line, as in a real call, without the call. Raises click.UsageError."""
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    if command is None:
        raise click.UsageError(f"no such command: {name}")
    try:
        return command.make_context(name, arguments).params
    except click.exceptions.Exit:  # --help
        return {}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def check_make(words: list[str]) -> None:
    targets = [word for word in words[1:] if "=" not in word]
    assert targets
    assert set(targets) <= make_targets()


def check_values(params: dict[str, Any], ladder: Ladder | None = None) -> None:
    """What a command names is there: shipped files, rungs, parameters of rungs."""
    ladder = ladder or load_ladder("local").record
    for kind in ("cluster", "ladder", "recipe", "policy"):
        value = params.get(kind)
        if value and value not in PLACEHOLDERS and not value.endswith((".yaml", ".yml")):
            assert value in shipped_names(kind), kind  # type: ignore[arg-type]
    for rung in (params.get("start_at"), params.get("end_at"), params.get("name"), *params.get("only", ())):
        assert rung is None or rung in PLACEHOLDERS or rung in ladder.names
    if params.get("settings"):
        apply_overrides(load_ladder(params.get("ladder") or "local"), params["settings"])


@pytest.mark.parametrize(("page", "line"), ALL_COMMANDS, ids=case_ids(ALL_COMMANDS))
def test_every_command_in_a_block_parses_and_names_what_exists(page: Path, line: str) -> None:  # noqa: ARG001 - in the test's id
    words = shlex.split(line)
    if words[0] == "make":
        check_make(words)
    else:
        check_values(parse(words[1:]))


@pytest.mark.parametrize(("page", "line"), ALL_MENTIONS, ids=case_ids(ALL_MENTIONS))
def test_every_command_in_the_text_parses_and_names_what_exists(page: Path, line: str) -> None:  # noqa: ARG001 - in the test's id
    words = shlex.split(line)
    if words[0] == "make":
        check_make(words)
    elif len(words) == 2:  # a command's bare name, without what it needs
        assert cli.get_command(click.Context(cli), words[1]) is not None
    else:
        check_values(parse(words[1:]))


def test_commands_were_found_at_all() -> None:
    """The tests above hold for an empty list too."""
    readme = [line for page, line in ALL_COMMANDS if page.name == "README.md"]
    assert {"make climb", "make test"} <= set(readme)
    assert sum(line.startswith(".venv/bin/surefoot") for line in readme) >= 5
    assert len(ALL_MENTIONS) >= 20


def test_every_command_is_told_of_in_the_readme_or_the_concepts() -> None:
    told = (
        (ROOT / "README.md").read_text()
        + (ROOT / "docs" / "concepts.md").read_text()
        + (ROOT / "CHANGELOG.md").read_text()
    )
    assert [name for name in cli.list_commands(click.Context(cli)) if not re.search(rf"\b{name}\b", told)] == []


# --- rungs ----------------------------------------------------------------------------------------

INDEX = ROOT / "docs" / "rungs" / "README.md"


def test_the_index_of_rungs_is_the_table_in_order_with_needs_and_proof() -> None:
    ladder = load_ladder("local").record
    wanted = [
        [f"[{name}]({name}.md)", ", ".join(ladder.spec(name).needs), rung.proves]
        for name, rung in RUNGS.items()
    ]  # fmt: skip
    assert tuple(RUNGS) == ladder.names
    assert rows(INDEX.read_text(), "| rung |") == wanted


def test_every_rung_has_a_page_and_every_page_a_rung() -> None:
    pages = {page.stem for page in INDEX.parent.glob("*.md")} - {"README"}
    assert pages == set(RUNGS)


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rungs_page_says_what_it_proves_checks_and_what_to_do(rung: str) -> None:
    text = (INDEX.parent / f"{rung}.md").read_text()
    assert text.startswith("# ")
    assert "\n**Proves:** " in text
    assert re.search(rf"`{rung}\.", text), "no check is named"
    assert re.search(r"^## When it does not pass|^## .*(wrong|fail|says)", text, re.MULTILINE)


def test_the_readmes_ladder_has_every_rung() -> None:
    shown = next(block for block in blocks(ROOT / "README.md", "text") if "rungs proved" in block)
    made = fitting(load_ladder("local").record, load_cluster("local").record).names
    assert tuple(re.findall(r"^ ✓ PASSED +(\w+)", shown, re.MULTILINE)) == made
    assert f"{len(made)} of {len(made)} rungs proved" in shown
    assert f"left out: {', '.join(name for name in RUNGS if name not in made)} " in shown


# --- tables ---------------------------------------------------------------------------------------


def test_the_table_of_exit_codes_is_the_codes() -> None:
    codes = [int(row[0]) for row in rows((ROOT / "README.md").read_text(), "| code |")]
    assert codes == sorted(ExitCode)


def test_the_table_of_statuses_is_the_statuses_and_only_passed_satisfies() -> None:
    table = rows((ROOT / "docs" / "concepts.md").read_text(), "| status |")
    assert [row[0] for row in table] == list(Status)
    assert [row[0] for row in table if row[2] == "yes"] == [Status.PASSED]


def test_the_index_of_decisions_has_every_decision() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = [row[0] for row in rows((folder / "README.md").read_text(), "| decision |")]
    assert listed == [f"[{page.stem}]({page.name})" for page in sorted(folder.glob("*.md")) if page.name != "README.md"]


def test_the_plan_of_the_house_names_every_package() -> None:
    house = next(text for text in blocks(ROOT / "docs" / "architecture.md", "text") if text.startswith("src/surefoot/"))
    packages = {path.name for path in (ROOT / "src" / "surefoot").iterdir() if path.is_dir()} - {"__pycache__"}
    assert set(re.findall(r"(\w+)/(?= )", house)) == packages


def test_the_layers_are_those_of_the_import_contract() -> None:
    contract = (ROOT / ".importlinter").read_text().partition("layers =\n")[2].partition("\n\n")[0]
    held = [re.sub(r" : \(\w+\)", "", line.strip()) for line in contract.splitlines() if line.strip() != "__main__"]
    layers = next(text for text in blocks(ROOT / "docs" / "architecture.md", "text") if text.startswith("cli\n"))
    assert layers.splitlines() == held


def test_pages_name_no_machine_of_their_writers() -> None:
    leaked = [
        page_id(page)
        for page in PAGES
        if re.search(r"/(tmp|work|root)/(w|main|shared)\b|\.\./shared", page.read_text())
    ]
    assert leaked == []
