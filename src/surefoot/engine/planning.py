"""From a rung and what lies below it to a plan that can be executed, recorded and judged."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from surefoot.engine.inputs import EVIDENCE_OF, RecordedNeeds, configuration_digests, only_below
from surefoot.evidence import EvidenceSet
from surefoot.model.ladder import AnyRung, NodeRungSpec
from surefoot.model.run import Plan, RunManifest, Shrunk
from surefoot.paths import RootPaths
from surefoot.rungs.base import PlanContext, Rung


@dataclass(frozen=True)
class Planner:
    """Plans attempts of one run."""

    manifest: RunManifest
    root: RootPaths
    rungs: Mapping[str, Rung[Any, Any]]

    def plan(
        self,
        spec: AnyRung,
        number: int,
        evidence: Mapping[str, EvidenceSet],
        nonce: str | None = None,
        shrunk: Shrunk | None = None,
    ) -> Plan:
        """The plan of attempt `number`, given the evidence of the rungs that PASSED.

        `shrunk`: for fewer nodes than the ladder asks for.

        Pure but for the nonce, where none is given. Raises EvidenceError where a rung below left
        something unreadable, KeyError where a rung below is needed that has no evidence yet.
        """
        rung = self.rungs[spec.rung]
        needs = RecordedNeeds(only_below(self.manifest.inputs.ladder, spec.rung, evidence))
        nonce = nonce or secrets.token_hex(8)
        asked = rung.plan(
            PlanContext(
                run_id=self.manifest.run_id,
                inputs=self.manifest.inputs,
                spec=effective(spec, shrunk),
                root=self.root,
                attempt=self.root.run(self.manifest.run_id).rung(spec.rung).attempt(number),
                nonce=nonce,
                python=self.manifest.inputs.cluster.python,
                needs=needs,
            )
        )
        looked_at = {f"{EVIDENCE_OF}{name}": evidence[name].plan.nonce for name in sorted(needs.used)}
        return Plan(
            run_id=self.manifest.run_id,
            rung=spec.rung,
            attempt=number,
            nonce=nonce,
            steps=asked.steps,
            expect=asked.expect,
            inputs={**configuration_digests(rung, spec, self.manifest.inputs), **looked_at},
            shrunk=shrunk,
        )


def effective(spec: AnyRung, shrunk: Shrunk | None) -> AnyRung:
    """The spec that an attempt was planned by."""
    return spec if shrunk is None else spec.model_copy(update={"nodes": shrunk.nodes})


def may_shrink_to(spec: AnyRung, asked: int, nodes: int) -> bool:
    """Whether the ladder lets a rung that asks for so many nodes run on so few."""
    policy = spec.pending if isinstance(spec, NodeRungSpec) else None
    return policy is not None and policy.min_nodes is not None and policy.min_nodes <= nodes < asked
