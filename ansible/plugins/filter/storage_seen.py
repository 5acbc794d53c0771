"""Whether hosts see the same folder, from what each saw of the files that some of them wrote into it. Pure.

Filters:

- ``seen_by_most``: witnesses whose file more than half of all hosts saw: what they wrote into is the shared folder
- ``storage_complaint``: what is wrong with one host's folder, in words; empty where nothing is
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

DOCUMENTATION = """
name: storage_seen
short_description: whether hosts see the same folder
"""


def seen_by_most(seen: Mapping[str, Sequence[str]]) -> list[str]:
    """Witnesses that more than half of the hosts saw. `seen`: host → the witnesses whose file it saw."""
    counted = Counter(witness for witnesses in seen.values() for witness in set(witnesses))
    return sorted(witness for witness, count in counted.items() if 2 * count > len(seen))


def storage_complaint(host: str, witnesses: Sequence[str], seen: Sequence[str], common: Sequence[str]) -> str:
    """What a host is to be told; empty where it sees what most see, and most see what it wrote."""
    if not common:
        return f"of {', '.join(witnesses)}, none wrote what more than half of the hosts see; this one sees {', '.join(seen) or 'nothing'}"
    if missed := [each for each in common if each not in seen]:
        return f"does not see what {', '.join(missed)} wrote, and most others do"
    if host in witnesses and host not in common:
        return "what it wrote, most others do not see"
    return ""


class FilterModule:
    """The filters by their names."""

    def filters(self) -> dict[str, Any]:
        return {"seen_by_most": seen_by_most, "storage_complaint": storage_complaint}
