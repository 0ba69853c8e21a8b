"""Numbers of what runs, sent where they are looked at: JSON lines, MLflow, TensorBoard.

Studies (`simulate/study_events.py`) and federations (`federate/server/round_events.py`) make
`Event`s, and a `Tracker` hands them to sinks, each in a file of its own.
"""

from fedcommons.tracking.events import About, Event
from fedcommons.tracking.sinks import Target, targets
from fedcommons.tracking.tracker import Tracker

__all__ = ["About", "Event", "Target", "Tracker", "targets"]
