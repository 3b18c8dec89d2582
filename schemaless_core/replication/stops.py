"""Why a promotion of a standby stopped, and what to do then: in words for an operator."""

from __future__ import annotations

from schemaless_core.errors import ReplicationRefused
from schemaless_core.replication.bringing import Bringing
from schemaless_core.replication.other import OtherSide
from schemaless_core.replication.promoting import StandbySide, UnopenedShards
from schemaless_core.replication.replicas import LateReplicas
from schemaless_core.replication.steps import StandbyStop

AGAIN = "Run `tripstore replicate promote` again: what is done stays done."


def refusal_of(why: StandbyStop, other: OtherSide, side: StandbySide, bringing: Bringing) -> ReplicationRefused:
    """What its caller raises."""
    match why:
        case StandbyStop.SILENT:
            silence = side.silence or other.silence or bringing.silence
            if isinstance(silence, LateReplicas | UnopenedShards):
                return ReplicationRefused(f"{silence.message} The promotion stopped there.", hint=silence.hint)
            said = "A server does not answer." if silence is None else silence.message
            return ReplicationRefused(
                f"{said} The promotion stopped there.",
                hint="Run it again once that answers. Where the datastore that leads is lost: --other-is-lost.",
            )
        case StandbyStop.NO_STANDBY:
            return ReplicationRefused(
                "This datastore is no standby.",
                hint="`tripstore replicate start --from FILE` makes it one. Where it gave the lead to one that is "
                "lost: --other-is-lost.",
            )
        case StandbyStop.RETURNS:
            return ReplicationRefused(
                "This datastore led before, and has not brought all yet that it alone has.",
                hint="`tripstore replicate start` does that first. Where the one that leads is lost: --other-is-lost.",
            )
        case StandbyStop.TAKEN:
            return ReplicationRefused(
                f"The datastore that this one follows cannot give it the lead: {other.refusal}.",
                hint="Have this one follow the one that leads: `tripstore replicate start --from` its configuration.",
            )
        case StandbyStop.UNOPENED:
            return ReplicationRefused(
                f"{side.unopened}, and was not to be opened.",
                hint="RO: its cluster is being promoted, so promote again once `tripstore shards status` shows that "
                "this is done. COMES: it knows a later authority epoch than the one that it is to be opened at.",
            )
        case _:
            reason = other.refusal or "its servers are at other epochs than its control database"
            return ReplicationRefused(f"The datastore that leads gives the lead to no other: {reason}.", hint=AGAIN)
