"""Every role says what it can be told: defaults, their comments, argument specs, what tasks and templates use, and the docs agree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from jinja2 import nodes

ROOT = Path(__file__).parents[2]
ROLES = sorted(path.parents[1] for path in (ROOT / "ansible/roles").glob("*/defaults/main.yml"))
NAMES = {role.name for role in ROLES}
PAGE = ROOT / "docs/ansible-roles.md"
BARE = ("when", "that", "until", "failed_when", "changed_when", "var")
"""Keys of tasks whose values are expressions without braces."""


def test_there_are_roles() -> None:
    assert {"common", "munge", "storage"} <= NAMES


def defaults(role: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((role / "defaults/main.yml").read_text()))


def options(role: Path, entry: str = "main") -> dict[str, Any]:
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return dict(specs.get(entry, {}).get("options", {}))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_default_is_typed_and_described_and_has_the_prefix_of_its_role(role: Path) -> None:
    assert set(defaults(role)) - set(options(role)) == set(), "in defaults, and not in argument_specs"
    for name, option in options(role).items():
        assert name.startswith(f"{role.name}_")
        assert option.get("type"), name
        assert option.get("description"), name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_no_two_variables_of_a_role_are_described_alike(role: Path) -> None:
    said = [option["description"] for option in options(role).values()]
    assert [text for text in said if said.count(text) > 1] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_default_is_explained_by_a_comment(role: Path) -> None:
    lines = (role / "defaults/main.yml").read_text().splitlines()
    assert undocumented(lines) == []


def test_a_default_without_a_comment_is_seen() -> None:
    assert undocumented(["# why", "a_b: 1", "", "a_c: 2"]) == ["a_c"]


def undocumented(lines: list[str]) -> list[str]:
    """Names without a comment in the block of lines that they stand in."""
    found, explained = [], False
    for line in lines:
        if not line.strip():
            explained = False
        elif line.startswith("#"):
            explained = True
        elif (name := re.match(r"(\w+):", line)) and not explained and "#" not in line:
            found.append(name[1])
    return found


# --- what tasks and templates use -------------------------------------------------------------------


def names_in(template: str, **marks: str) -> set[str]:
    """Everything that a template may mean as a variable: free names, attributes, and texts that look like a name."""
    # Backslashes are those of regular expressions, which Python would have otherwise.
    tree = jinja2.Environment(autoescape=True, extensions=["jinja2.ext.do"], **marks).parse(template.replace("\\", ""))  # type: ignore[arg-type]
    names = list(tree.find_all(nodes.Name))
    found = {each.name for each in names} - {each.name for each in names if each.ctx != "load"}
    found |= {each.attr for each in tree.find_all(nodes.Getattr)}
    return found | {each.value for each in tree.find_all(nodes.Const) if isinstance(each.value, str)}


def expressions(value: object, key: str = "") -> Iterator[str]:
    """Templates in tasks, handlers or variables; what stands without braces is given some."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from expressions(below, str(name))
    elif isinstance(value, list):
        for below in value:
            yield from expressions(below, key)
    elif isinstance(value, str) and ("{{" in value or "{%" in value):
        yield value
    elif isinstance(value, str) and key in BARE:
        yield "{{ " + value + " }}"


def made_in(value: object, key: str = "") -> Iterator[str]:
    """Names that tasks give to something themselves."""
    if isinstance(value, dict):
        if key in ("vars", "ansible.builtin.set_fact"):
            yield from value
        for name, below in value.items():
            if name in ("register", "loop_var"):
                yield str(below)
            yield from made_in(below, str(name))
    elif isinstance(value, list):
        for below in value:
            yield from made_in(below, key)


def used_and_made(role: Path) -> tuple[set[str], set[str]]:
    """Names that begin with a role's: those that this role uses, and those that it makes itself."""
    used: set[str] = set()
    made: set[str] = set()
    for folder in ("defaults", "vars", "tasks", "handlers"):
        for file in sorted((role / folder).glob("*.yml")):
            content = yaml.safe_load(file.read_text())
            for text in expressions(content):
                used |= names_in(text)
            made |= set(made_in(content)) | (set(content) if folder == "vars" else set())
    for file in sorted((role / "templates").glob("*.j2")):
        text = file.read_text()
        own = {
            "variable_start_string": "[[",
            "variable_end_string": "]]",
            "block_start_string": "[%",
            "block_end_string": "%]",
        }
        used |= names_in(text, **(own if "[%" in text else {}))
    return {name for name in used if any(re.fullmatch(rf"{each}_\w+", name) for each in NAMES)}, made


def groups() -> set[str]:
    def below(group: dict[str, Any] | None) -> Iterator[str]:
        for name, children in ((group or {}).get("children") or {}).items():
            yield name
            yield from below(children)

    return set(below(yaml.safe_load((ROOT / "ansible/inventory/common/groups.yml").read_text())["all"]))


def told() -> set[str]:
    """All that any role can be told."""
    return {
        name
        for role in ROLES
        for entry in ("main", "packages", "daemons")
        for name in {**defaults(role), **options(role, entry)}
    }


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_variable_that_tasks_and_templates_use_is_declared(role: Path) -> None:
    used, made = used_and_made(role)
    assert used - made - told() - groups() == set(), "used, and in no role's defaults and argument_specs"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_each_variable_that_is_declared_is_used_and_none_is_overwritten(role: Path) -> None:
    """A variable that nothing reads promises what no task does."""
    used, made = used_and_made(role)
    assert set(options(role)) - used == set(), "declared, and used by no task and no template of the role"
    assert set(options(role)) & made == set(), "declared for the site to set, and made by a task"


def test_names_are_found_wherever_a_variable_may_stand() -> None:
    tasks = {"when": "a_b", "register": "a_c", "debug": {"var": "a_d.e"}, "vars": {"a_f": "{{ hostvars[x].a_g }}"}}
    found = set().union(*(names_in(each) for each in expressions([tasks, "{{ y | map(attribute='a_h') }}"])))
    assert {"a_b", "a_d", "a_g", "a_h"} <= found
    assert set(made_in(tasks)) == {"a_c", "a_f"}


# --- the docs ---------------------------------------------------------------------------------------


def rows(role: Path) -> list[str]:
    """The lines of the role's table of variables, as the docs must have them."""
    values = defaults(role)
    return [
        f"| `{name}` | {shown(values[name]) if name in values else 'none: must be set'} | {option['description'].rstrip('.')} |"
        for name, option in options(role).items()
    ]


def shown(value: object) -> str:
    """A default in a table: short ones as they are, others by where they come from."""
    text = json.dumps(value, ensure_ascii=False).replace("|", "\\|")
    if variable := re.search(r"'ansible\.builtin\.env', '(\w+)'", text):
        return f"`{variable[1]}` of the environment"
    if "{{" in text:
        return "follows from others"
    return f"`{text}`" if len(text) <= 45 else "see defaults"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_docs_have_each_variable_of_a_role_with_its_default_and_meaning(role: Path) -> None:
    section = section_of(PAGE.read_text(), role.name)
    found = re.findall(rf"(?m)^\| `{role.name}_\w+` \|.*$", section)
    assert found == rows(role), "the table in docs/ansible-roles.md must have these lines:\n" + "\n".join(rows(role))


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_docs_say_what_a_role_makes_true_how_it_is_checked_and_what_it_does_not_do(role: Path) -> None:
    section = section_of(PAGE.read_text(), role.name)
    assert re.findall(r"(?m)^\*\*(.+?)[.]\*\*", section) == ["Makes true", "Checked", "Does not"]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_docs_name_no_variable_that_is_not_there(role: Path) -> None:
    named = set(re.findall(r"`((?:" + "|".join(sorted(NAMES)) + r")_\w+)`", section_of(PAGE.read_text(), role.name)))
    assert named - told() - groups() == set()


def section_of(page: str, role: str) -> str:
    match = re.search(rf"(?ms)^## {role}$(.*?)(?=^## |\Z)", page)
    assert match, f"docs/ansible-roles.md has no section ## {role}"
    return match[1]
