"""Sample NVML's values of a GPU under load, in a separate thread."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from preflight.errors import UnreadableFact
from preflight.facts.nvml import read_fact
from preflight.model.gap import Gap, known_or
from preflight.model.gpu_test import UnderLoad
from preflight.system.nvml import open_load_reader
from preflight.system.nvml_fields import LOAD_FIELDS
from preflight.trial.rank.gpu_test_devices import LoadSample

EVERY_S = 0.05
JOIN_S = 0.5
NO_SAMPLE = "NVML gave no answer while the GPU was at work"
LOADS = tuple((field, field.load) for field in LOAD_FIELDS if field.load)


def nvml_sampler(uuid: str, library_path: str | None = None) -> Callable[[], LoadSample]:
    """Return a function that samples the GPU `uuid` through NVML. Raise UnreadableFact if NVML does not start."""
    read = open_load_reader(uuid, library_path)

    def sample() -> LoadSample:
        answer = read()
        return LoadSample(**{name: read_fact(answer, field.key, parse) for field, (name, parse) in LOADS})

    return sample


class Watched:
    """A context manager that samples a GPU during its block. Afterward, `under_load()` returns the summary."""

    def __init__(self, make_sampler: Callable[[], Callable[[], LoadSample]]) -> None:
        self._make_sampler = make_sampler
        self._samples: list[LoadSample] = []
        self._why = NO_SAMPLE
        self._over = threading.Event()
        # A daemon: a call that hangs in the driver must not keep the process from ending.
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(JOIN_S)

    def under_load(self) -> UnderLoad | Gap:
        """Return the extremes of all samples, or a Gap with the reason if there is no sample."""
        return summary(list(self._samples)) if self._samples else Gap(self._why)

    def _sample(self) -> None:
        try:
            sampler = self._make_sampler()
            while not self._over.is_set():
                self._samples.append(sampler())
                self._over.wait(EVERY_S)
        except UnreadableFact as error:
            self._why = str(error)


def summary(samples: list[LoadSample]) -> UnderLoad:
    """Return the extremes of each value over all samples. A value that every sample lacks is a Gap."""
    columns = {field.name: [getattr(each, field.name) for each in samples] for field in fields(LoadSample)}

    def of(name: str, extreme: Callable[[list[Any]], Any]) -> Any:
        known = [value for value in columns[name] if not isinstance(value, Gap)]
        return extreme(known) if known else columns[name][0]

    return UnderLoad(
        samples=len(samples),
        sm_mhz_median=of("sm_mhz", lambda values: float(statistics.median(values))),
        sm_mhz_min=of("sm_mhz", min),
        temperature_c_max=of("temperature_c", max),
        power_w_max=of("power_w", max),
        throttle_reasons=of("throttle_reasons", lambda lists: tuple(dict.fromkeys(r for each in lists for r in each))),
        pcie_gen_max=of("pcie_gen", max),
        pcie_width_min=of("pcie_width", min),
        throttled_samples=tuple(
            Counter(reason for each in samples for reason in known_or(each.throttle_reasons, ())).items()
        ),
    )
