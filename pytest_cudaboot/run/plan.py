"""What a run is about, decided once by the controller; it travels to the workers as plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from pytest_cudaboot.hookspecs import LowererOffer
from pytest_cudaboot.model import CellKey, Gpu, Json, to_json
from pytest_cudaboot.report.folder import LOGS
from pytest_cudaboot.rules.build_line import BuildLine
from pytest_cudaboot.run.iree_parts import IreeParts
from pytest_cudaboot.run.offers import Offers


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The facts that controller and workers share.

    :param out: absolute path of the folder for verdict, ledger and logs.
    :param workdir: private folder of this run, for what workers hand to the controller.
    :param platform: `cuda` if cards were asked for, else `cpu`.
    :param plugin: path of the PJRT plugin for that platform, or null where none was found.
    :param plugin_facts: its distribution, version, and how it was found (or every place that was tried).
    :param cuda_plugin: path of the installed CUDA plugin, whatever the platform, or null.
    :param iree: what there is of the second lowerer.
    :param offers: what other packages add.
    :param build_line: the one that builds the XLA shim, or null; no worker reads the document for its fixture.
    :param catalog: path of the catalogue, or null for a user's own tests.
    :param cells: the planned cells, in document order.
    :param partial: why tests may be missing that were never collected, or null: then the whole suite was asked for.
    :param controller: pid that the workers die with.
    :param remembered: seconds that specs took before, for their budgets (`run/memory.py`).
    """

    run: str
    out: str
    workdir: str
    platform: str
    gpus: tuple[Gpu, ...]
    plugin: str | None
    plugin_facts: Json
    cuda_plugin: str | None
    iree: IreeParts
    project: str
    nets: tuple[str, ...]
    document: str | None
    catalog: str | None
    cells: tuple[CellKey, ...]
    partial: str | None
    controller: int
    build_line: BuildLine | None = None
    remembered: Mapping[str, float] = field(default_factory=dict)
    offers: Offers = field(default_factory=Offers)

    def dumps(self) -> str:
        """The plan as JSON text, for `workerinput`."""
        return json.dumps(to_json(self))

    @classmethod
    def loads(cls, text: str) -> Plan:
        """The plan from `dumps`."""
        data = json.loads(text)
        data["gpus"] = tuple(Gpu(**{**gpu, "capability": tuple(gpu["capability"])}) for gpu in data["gpus"])
        data["cells"] = tuple(CellKey(**cell) for cell in data["cells"])
        data["iree"] = IreeParts(**data["iree"])
        data["nets"] = tuple(data["nets"])
        line = data["build_line"]
        data["build_line"] = (
            BuildLine(words=tuple(line["words"]), found_via=line["found_via"]) if line else None
        )
        lowerers = tuple(LowererOffer(**offer) for offer in data["offers"]["lowerers"])
        data["offers"] = Offers(lowerers=lowerers, conditions=data["offers"]["conditions"])
        return cls(**{field.name: data[field.name] for field in fields(cls)})

    def gpu(self, uuid: str | None) -> Gpu | None:
        """The card of that UUID, or None."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    @property
    def logs(self) -> Path:
        return Path(self.out) / LOGS

    @property
    def nodefile(self) -> Path:
        """Where a worker leaves the facts of its items; `{}` stands for the worker's id."""
        return Path(self.workdir) / "items-{}.json"
