"""What holds for all tests."""

import os
import signal

from hypothesis import settings

# Workers and the processes that tests start outnumber the cores: one thread for each.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A job in the background, or under nohup, ignores these; what tests start must not: they send them.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Nor is an example too slow because others are busy: speed is for benchmarks/.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
