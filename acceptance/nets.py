"""Which of a project's nets a spec takes, where one is enough. It holds no test."""

from __future__ import annotations

import pytest

from pytest_cudaboot.project import Project
from pytest_cudaboot.run.nets import Net, artifact_net, load_net


def plainest_net(project: Project) -> Net:
    """The net whose train step is the shortest text: the fewest inputs, and the fastest to compile.

    Of a checkout without oracles it is its smallest graphs.
    """
    if project.conditions()["oracle"]:
        return artifact_net(project)
    name = min(project.nets, key=lambda name: len(project.step(name).read_bytes()))
    return load_net(project, name)


def convolving_net(project: Project) -> Net:
    """The net with the shortest train step among those that convolve: it asks for every library of the vendor's."""
    if project.conditions()["oracle"]:
        return artifact_net(project)
    texts = {name: project.step(name).read_text(encoding="utf-8") for name in project.nets}
    convolving = [name for name, text in texts.items() if "stablehlo.convolution" in text]
    if not convolving:
        pytest.skip(f"none of the project's nets convolves: {', '.join(texts)}")
    return load_net(project, min(convolving, key=lambda name: len(texts[name])))
