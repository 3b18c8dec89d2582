"""Spans of OpenTelemetry: of a service's calls, of a backend's part in them, of mirrored writes and shadow reads.

The extra `otel` brings what this imports. A process that does not call `instrument` pays nothing for it.
"""

from tripstore.otel.instrument import instrument, uninstrument

__all__ = ["instrument", "uninstrument"]
