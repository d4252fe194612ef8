"""Sinks: where metrics go. One third-party name per file, imported when asked for.

sink.write({"episode/return": 87.5}, step=2048)
sink.close()
"""

from corral.train.sinks.sink import Sink

__all__ = ["Sink"]
