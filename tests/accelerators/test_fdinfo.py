"""Usage of GPUs by processes, from what the kernel writes about open device files."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.cards import DENIED, EXAMPLES, amdgpu, fdinfo, i915, msm, opened, xe
from tests.sources.tree import Tree

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import (
    MAX_PROCESSES,
    UTILIZATION,
    AllClients,
    Clients,
    Engine,
    parse,
)

ADDRESS = "0000:03:00.0"
RENDER = "/dev/dri/renderD128"
DRIVERS = (*EXAMPLES, "panthor")


def utilization(*texts: Sequence[str], seconds: float = 10.0) -> dict[str, float]:
    """By task, the utilization between the last two of some readings, each of several open files of one process."""
    tree = Tree()
    clients = Clients(tree, DRIVERS)
    found: dict[str, float] = {}
    for files in texts:
        tree.files = {}
        for number, text in enumerate(files):
            tree.files |= opened(7, number, RENDER, text)
        tree.up += seconds
        clients.read(["/proc/7"])
        found = dict(clients.utilization().get(ADDRESS, {}))
    return found


@pytest.mark.parametrize(
    ("text", "memory", "engines"),
    [
        pytest.param(
            amdgpu(ADDRESS, 1),
            2 << 20,
            {"gfx": Engine(3_000_000_000, None, 1), "dec": Engine(500_000_000, None, 1)},
            id="amdgpu",
        ),
        pytest.param(
            i915(ADDRESS, 1),
            2049 << 10,
            {
                "render": Engine(4_000_000_000, None, 1),
                "copy": Engine(1_000_000_000, None, 1),
                "video": Engine(10_000_000_000, None, 2),
                "video-enhance": Engine(0, None, 1),
            },
            id="i915",
        ),
        pytest.param(msm(ADDRESS, 1), 32 << 20, {"gpu": Engine(7_000_000_000, None, 1)}, id="time before cycles"),
        pytest.param(xe(ADDRESS, 0, vram=None), 192 << 10, None, id="xe without memory of its own"),
        pytest.param(xe(ADDRESS, 0), 512 << 20, None, id="xe with memory of its own"),
        pytest.param(fdinfo("xe", 1, ADDRESS, cycles_rcs=7), None, {}, id="cycles without a total"),
        pytest.param(fdinfo("xe", 1, ADDRESS, engine_gpu="7"), None, {}, id="time without a unit"),
        pytest.param(fdinfo("xe", 1, ADDRESS, engine_gpu="-7 ns", resident_vram="-1"), None, {}, id="negative"),
        pytest.param(
            fdinfo("xe", 1, ADDRESS, engine_gpu="7 ns", engine_capacity_gpu=0), None, {}, id="capacity of zero"
        ),
        pytest.param(fdinfo("xe", 1, ADDRESS, total_vram0="7 MiB"), None, {}, id="memory that is not resident"),
        pytest.param(
            fdinfo("amdxdna", 1, ADDRESS, total_memory="7 MiB", shared_memory=0), 7 << 20, {}, id="size of all buffers"
        ),
        pytest.param(
            fdinfo("panthor", 1, ADDRESS, resident_memory="3 MiB", total_memory="7 MiB"), 3 << 20, {}, id="both sizes"
        ),
        pytest.param(
            fdinfo("xe", 1, ADDRESS, resident_vram0=4096, resident_vram1="1 MiB"), 4096 + (1 << 20), {}, id="tiles"
        ),
    ],
)
def test_client_is_parsed(text: str, memory: int | None, engines: dict[str, Engine] | None) -> None:
    client = parse(text.encode())
    assert client is not None
    assert (client.address, client.memory) == (ADDRESS, memory)
    assert engines is None or client.engines == engines


@pytest.mark.parametrize(
    "text",
    [
        *("", "pos:\t0\nflags:\t02\n", "drm-driver:\txe\n", "drm-client-id:\t3\n"),
        "drm-driver:\txe\ndrm-client-id:\tx\n",
        f"drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t{0:0100}\n",
    ],
)
def test_other_file_is_no_client(text: str) -> None:
    assert parse(text.encode()) is None


def test_engines_that_count_time_are_shares_of_the_time_and_of_their_number() -> None:
    found = utilization([i915(ADDRESS, 0)], [i915(ADDRESS, 1)])
    assert found == {"general": 0.4, "copy": 0.1, "video": 0.5}


def test_engines_that_count_cycles_are_shares_of_the_cycles_that_passed() -> None:
    found = utilization([xe(ADDRESS, 0)], [xe(ADDRESS, 1)], seconds=99)
    assert found == {"general": 0.5, "copy": 0.1, "video": 0.0}  # of rcs and ccs the larger one


def test_client_with_several_descriptors_counts_once_and_clients_add_up() -> None:
    def both(tick: int) -> list[str]:
        one = fdinfo("i915", 1, ADDRESS, engine_render=f"{tick * 10**9} ns", resident_local0="1 MiB")
        other = fdinfo("i915", 2, ADDRESS, engine_render=f"{tick * 2 * 10**9} ns", resident_local0="2 MiB")
        return [one, one, other]

    assert utilization(both(0), both(1)) == {"general": pytest.approx(0.3)}
    tree = Tree({key: text for n, each in enumerate(both(0)) for key, text in opened(7, n, RENDER, each).items()})
    clients = Clients(tree, DRIVERS).read(["/proc/7"])[ADDRESS]
    assert [held.client.memory for held in clients.values()] == [1 << 20, 2 << 20]


def cycles(busy: int, total: int) -> list[str]:
    return [fdinfo("xe", 1, ADDRESS, cycles_rcs=busy, **{"total-cycles_rcs": total})]


def busy(seconds: float, client: int = 1) -> list[str]:
    return [fdinfo("i915", client, ADDRESS, engine_render=f"{int(seconds * 1e9)} ns")]


@pytest.mark.parametrize(
    ("readings", "general"),
    [
        pytest.param([cycles(5, 100), cycles(9, 100)], None, id="no cycles passed"),
        pytest.param([cycles(5, 100), cycles(9, 0)], None, id="the total began again"),
        pytest.param([cycles(5, 100), cycles(5, 200)], 0.0, id="idle"),
        pytest.param([busy(0), busy(25)], 1.0, id="more than the time"),
        pytest.param([busy(5), busy(4)], 0.0, id="the count fell"),
        pytest.param([busy(5), busy(4), busy(7)], 0.2, id="and caught up"),
        pytest.param([busy(5), busy(5, 2)], None, id="another client"),
        pytest.param([busy(5), [], busy(9)], None, id="the client was not seen"),
        pytest.param([busy(5), cycles(7, 9)], None, id="the driver counts something else"),
        pytest.param([busy(5)], None, id="first reading"),
    ],
)
def test_utilization_is_known_or_absent(readings: list[list[str]], general: float | None) -> None:
    found = utilization(*readings)
    assert found == ({} if general is None else {"general": pytest.approx(general)})


@given(st.lists(st.tuples(st.integers(0, 1 << 63), st.integers(0, 1 << 63)), min_size=2, max_size=6))
def test_utilization_is_a_share_whatever_is_counted(counts: list[tuple[int, int]]) -> None:
    texts = [[*cycles(each, total), fdinfo("i915", 2, ADDRESS, engine_video=f"{each} ns")] for each, total in counts]
    assert all(0 <= share <= 1 for share in utilization(*texts).values())


def card(number: int, driver: str, address: str, status: str = "active") -> dict[str, str]:
    folder = f"/sys/class/drm/card{number}/device"
    return {
        f"{folder}/uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={address}\n",
        f"{folder}/drm/renderD{128 + number}/dev": "",
        f"{folder}/power/runtime_status": f"{status}\n",
    }


def test_look_for_use_does_not_shorten_the_time_of_the_mean() -> None:
    tree = Tree(opened(7, 3, RENDER, amdgpu(ADDRESS, 0)))
    clients, gpu = Clients(tree, DRIVERS), Device(ADDRESS, "GPU 0")
    program: Any = SimpleNamespace(folders=["/proc/7"])
    [*clients.usage(program, [gpu], only_looks=False)]
    tree.files |= opened(7, 3, RENDER, amdgpu(ADDRESS, 1))
    tree.up += 5.0
    assert [device for device, _ in clients.usage(program, [gpu], only_looks=True)] == [gpu]
    tree.up += 5.0
    ((_, values),) = clients.usage(program, [gpu], only_looks=False)
    assert values[UTILIZATION["general"]] == 0.3


def test_file_of_a_suspended_device_is_not_read_and_its_clients_stay() -> None:
    tree = Tree({**card(0, "xe", ADDRESS), **opened(7, 3, RENDER, xe(ADDRESS, 0))})
    clients = Clients(tree, DRIVERS)
    before = clients.read(["/proc/7"])
    clients.utilization()
    tree.files |= card(0, "xe", ADDRESS, "suspended")
    tree.asked.clear()
    tree.up += 10
    assert clients.read(["/proc/7"]) == before
    assert clients.utilization() == {}, "no cycles passed: unknown, but not counted twice"
    assert "/proc/7/fdinfo/3" not in tree.asked


def test_file_of_another_vendors_device_is_not_read() -> None:
    tree = Tree({**card(0, "nvidia", ADDRESS), **opened(7, 3, RENDER, xe(ADDRESS, 0))})
    assert Clients(tree, DRIVERS).read(["/proc/7"]) == {}
    assert "/proc/7/fdinfo/3" not in tree.asked


def test_cards_are_listed_once_in_a_reading_whatever_a_process_has_open() -> None:
    """ROCm opens the device file of every partition of an MI300X, up to 64, which no card of the driver has."""
    tree = Tree(card(0, "amdgpu", ADDRESS))
    for number in range(8):
        tree.files |= opened(7, number, f"/dev/dri/renderD{190 + number}", fdinfo("amdgpu", number, ADDRESS))
    clients = Clients(tree, DRIVERS)
    for _ in range(2):
        tree.asked.clear()
        assert len(clients.read(["/proc/7"])[ADDRESS]) == 8
        assert sum(path.endswith("/card0/device/uevent") for path in tree.asked) == 1


def test_file_that_vanishes_and_process_that_ends_are_left_out() -> None:
    tree = Tree({"/proc/7/fd/3": RENDER, **opened(7, 4, RENDER, xe(ADDRESS, 0))})
    clients = Clients(tree, DRIVERS)
    assert len(clients.read(["/proc/7", "/proc/8"])[ADDRESS]) == 1
    assert clients.hidden == 0


class Guarded(Tree):
    """A kernel that hides the open files of process 1."""

    def names(self, path: str) -> Sequence[str]:
        if path == "/proc/1/fd":
            raise DENIED
        return super().names(path)


def crowd(size: int) -> dict[str, str]:
    """Processes of which every hundredth uses the GPU."""
    files = {f"/proc/{pid}/fd/0": "/dev/null" for pid in range(2, size + 2)}
    for pid in range(100, size, 100):
        text = fdinfo("xe", pid, ADDRESS, resident_vram0=f"{pid} KiB")
        files |= {str(key): str(value) for key, value in opened(pid, 3, RENDER, text).items()}
    return files


def walk_once(clients: AllClients, tree: Tree) -> tuple[int, set[int]]:
    """Return how many processes a walk examined, and which use the GPU."""
    device = Device(ADDRESS, "GPU 0")
    examined: list[str] = []
    names = tree.names

    def note(path: str) -> Sequence[str]:
        examined.extend([path] if path.endswith("/fd") else [])
        return names(path)

    tree.names = note  # type: ignore[method-assign]
    (found,) = clients.holders([device])
    tree.names = names  # type: ignore[method-assign]
    return len(examined), {*found[1]}


def test_walk_is_bounded_and_every_process_has_its_turn() -> None:
    tree = Tree(crowd(1200))
    clients = AllClients(tree, DRIVERS)
    users: list[set[int]] = []
    for _ in range(4):
        examined, found = walk_once(clients, tree)
        users.append(found)
        assert examined <= MAX_PROCESSES
        assert not clients.is_complete
        tree.up += 10
    assert users[0] < users[1] < users[2] == users[3] == {*range(100, 1200, 100)}


def test_second_walk_within_ten_seconds_reads_nothing() -> None:
    tree = Tree(crowd(200))
    clients = AllClients(tree, DRIVERS)
    first = walk_once(clients, tree)
    tree.up += 9
    assert walk_once(clients, tree) == (0, first[1])
    tree.files = {"/proc/9/fd/0": "/dev/null"}
    tree.up += 1
    assert walk_once(clients, tree)[1] == set()


def test_process_that_cannot_be_examined_makes_the_walk_incomplete() -> None:
    for kind, complete in ((Tree, True), (Guarded, False)):
        clients = AllClients(kind(crowd(200) | {"/proc/1/fd/0": "/dev/null"}), DRIVERS)
        clients.walk()
        assert clients.is_complete is complete


def test_memory_of_a_holder_is_that_of_its_clients() -> None:
    files = opened(7, 3, RENDER, fdinfo("xe", 1, ADDRESS, resident_vram0="1 MiB"))
    files |= opened(7, 4, RENDER, fdinfo("xe", 2, ADDRESS, resident_vram0="2 MiB"))
    files |= opened(8, 3, RENDER, fdinfo("xe", 3, ADDRESS)) | opened(9, 3, RENDER, fdinfo("xe", 1, ADDRESS))
    (found,) = AllClients(Tree(files), DRIVERS).holders([Device(ADDRESS, "GPU 0")])
    assert found[1] == {7: 3 << 20, 8: None}
