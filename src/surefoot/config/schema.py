"""JSON schemas of the files that a user writes, so that an editor completes and checks them.

``surefoot schema ladder > ladder.schema.json``, then as the first line of a ladder file::

    # yaml-language-server: $schema=ladder.schema.json
"""

from __future__ import annotations

from typing import Any

from surefoot.config.load import MODELS, Kind

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(kind: Kind) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of a cluster, ladder, recipe or policy file."""
    schema = MODELS[kind].model_json_schema(mode="validation")
    return {
        "$schema": DIALECT,
        "$id": f"urn:surefoot:schema:{kind}",
        **schema,
        "title": f"Surefoot {kind}",
    }
