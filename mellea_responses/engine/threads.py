"""Sizing torch's threads to what this process may use, before torch is loaded.

With busy neighbours, spinning OpenMP threads made a prefill three times slower than one thread; passive ones cost a
tenth. Both settings are read when the OpenMP runtime starts, so `size_threads` must come before `import torch`.
"""

import os
from pathlib import Path

_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def usable_cpus() -> int:
    """CPUs this process may use: the affinity mask, cut by the cgroup's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min(cpus, _quota(cpus)))


def _quota(otherwise: int) -> int:
    try:
        quota, period = _CGROUP_LIMIT.read_text().split()
    except (OSError, ValueError):
        return otherwise
    return otherwise if quota == "max" else max(1, round(int(quota) / int(period)))


def size_threads() -> None:
    """Set OpenMP's environment where the user has not."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(usable_cpus()))
