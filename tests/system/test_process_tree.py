"""Which pids of a driver belong to the process tree: equal ones on the host, in a container only with evidence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from errno import ENOENT
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.tree import Tree
from tests.support.stage import PATIENT

from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import Machine
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

HOST, CONTAINER = "pid:[4026531836]", "pid:[4026532199]"
EVIDENCE = "/dev/nvidia-uvm"
ROOT = 5_000_001  # the pid of the observed process; no process of this machine has it


class Linked(Tree):
    """A machine with symbolic links."""

    def __init__(self, files: Mapping[str, str], links: Mapping[str, str]) -> None:
        super().__init__({**files, **links})
        self.links = links

    def link(self, path: str) -> str:
        if path not in self.links:
            raise FileNotFoundError(ENOENT, "no such link", path)
        return self.links[path]


def process_tree(
    pids: Sequence[int],
    computing: Iterable[int] = (),
    namespace: str | None = HOST,
    chains: Mapping[int, Sequence[int]] | None = None,
) -> ProcessTree:
    """A process and its descendants.

    Args:
        pids: The process, then its descendants.
        computing: Those that have the device open.
        namespace: The PID namespace; None for a kernel without.
        chains: The pids of a process in each of its namespaces.
    """
    links = {f"/proc/{pid}/fd/7": EVIDENCE for pid in computing} | {f"/proc/{pid}/fd/0": "/dev/null" for pid in pids}
    if namespace:
        links["/proc/self/ns/pid"] = namespace
    files = {
        f"/proc/{pid}/status": "Name:\tpython\nNSpid:\t" + "\t".join(map(str, chain)) + "\n"
        for pid, chain in (chains or {}).items()
    }
    machine = cast(
        Machine, SimpleNamespace(descendants=lambda pid, max_age=0.0: list(pids[1:]) if pid == pids[0] else [])
    )
    tree = ProcessTree(machine, cast(Files, Linked(files, links)), pids[0], EVIDENCE)
    tree.refresh()
    return tree


@pytest.mark.parametrize("namespace", [HOST, None])
def test_pid_identifies_process_on_host(namespace: str | None) -> None:
    tree = process_tree([ROOT, ROOT + 1], namespace=namespace)
    assert tree.on_host
    assert tree.among([1, ROOT, ROOT + 1, ROOT + 2]) == {ROOT, ROOT + 1}
    assert tree.among([]) == set()


def test_inner_pid_of_nested_container_is_not_ours_on_host() -> None:
    tree = process_tree([ROOT, ROOT + 1], chains={ROOT + 1: (ROOT + 1, 40)})
    assert tree.among([40, ROOT + 1]) == {ROOT + 1}


def test_own_process_is_read_from_proc_self() -> None:
    assert process_tree([os.getpid(), ROOT]).folders == ["/proc/self", f"/proc/{ROOT}"]


def test_no_pid_is_ours_where_proc_is_of_another_pid_namespace() -> None:
    files = Linked({}, {"/proc/self/ns/pid": CONTAINER})
    files.is_proc_ours = False
    machine = cast(Machine, SimpleNamespace(descendants=lambda pid, max_age=0.0: [ROOT + 1]))
    tree = ProcessTree(machine, cast(Files, files), ROOT, EVIDENCE)
    tree.refresh()
    assert tree.folders == []
    assert tree.among([ROOT, ROOT + 1]) == set()


def test_equal_pid_in_container_is_not_ours_without_evidence() -> None:
    assert process_tree([ROOT, ROOT + 1], namespace=CONTAINER).among([ROOT, ROOT + 1]) == set()


def test_pid_of_another_program_is_known_on_the_host_and_with_evidence_in_a_container() -> None:
    stranger = ROOT + 7
    assert process_tree([ROOT]).identifiable([ROOT, stranger]) == {ROOT, stranger}
    found = process_tree([ROOT, stranger, ROOT + 8], computing=[stranger], namespace=CONTAINER)
    assert found.identifiable([stranger, ROOT + 8]) == {stranger}, "the other one may have the same PID by chance"
    assert found.identifiable([stranger, ROOT + 9]) == set(), "these are the host's: one does not exist here"


def test_equal_pid_in_container_is_ours_when_process_holds_device() -> None:
    tree = process_tree([ROOT, ROOT + 1], computing=[ROOT + 1], namespace=CONTAINER)
    assert tree.among([ROOT, ROOT + 1]) == {ROOT + 1}
    assert tree.computing()


def test_pid_that_does_not_exist_in_container_is_of_the_host_and_so_are_all_others() -> None:
    tree = process_tree([ROOT, ROOT + 1], computing=[ROOT + 1], namespace=CONTAINER)
    assert tree.among([ROOT, ROOT + 1, ROOT + 2]) == set()
    assert not tree.exist([ROOT + 1, ROOT + 2])
    assert tree.among_ours([ROOT, ROOT + 1, ROOT + 2]) == {ROOT + 1}
    assert tree.among([0, ROOT + 1]) == {ROOT + 1}, "0 stands for a process that the driver cannot translate"


def test_inner_pid_of_nested_container_is_not_ours_in_container() -> None:
    tree = process_tree([ROOT, ROOT + 1], computing=[ROOT + 1], namespace=CONTAINER, chains={ROOT + 1: (ROOT + 1, 40)})
    assert tree.among([40]) == set()
    assert tree.among([40, ROOT + 1]) == set()


def test_computing_needs_open_device_file() -> None:
    assert not process_tree([ROOT], namespace=CONTAINER).computing()
    assert process_tree([ROOT], computing=[ROOT], namespace=CONTAINER).computing()
    assert not process_tree([ROOT + 1], computing=[ROOT + 5], namespace=CONTAINER).computing(), (
        "a process outside of the tree"
    )


def test_system_without_proc_matches_pids() -> None:
    machine = cast(Machine, SimpleNamespace(descendants=lambda pid, max_age=0.0: [ROOT + 1]))
    tree = ProcessTree(machine, None, ROOT, EVIDENCE)
    tree.refresh()
    assert tree.on_host
    assert tree.among([ROOT, ROOT + 1, 3]) == {ROOT, ROOT + 1}
    assert not tree.computing()


@PATIENT
@given(
    pids=st.sets(st.integers(0, 2**32 - 1), max_size=8),
    namespace=st.sampled_from([HOST, CONTAINER, None]),
)
def test_any_pids_match_only_observed_processes(pids: set[int], namespace: str | None) -> None:
    tree = process_tree([ROOT], namespace=namespace)
    assert tree.among(pids) <= {ROOT}
    if namespace == CONTAINER:
        assert tree.among({*pids, ROOT}) == set()
