"""Simulated machines: the files and answers of their kernels at each tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from errno import EACCES
from typing import Any

from tests.sources.tree import Fabricated, Tree

from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace, Usage

GIB = 1 << 30

# Pids from here on are above the kernel's limit, so the test's own process never has one of them.
STRANGER = 5_000_000

OURS = 4242  # the pid of the observed process in its stat file

# The sample interval that fits ticks of 10 s, which else would count as a pause.
SPARSE = {"sample_interval": 10}

Files = dict[str, "str | bytes | OSError"]


@dataclass(frozen=True)
class Story:
    """A machine over time, as one source sees it."""

    source: str
    name: str
    machine: str
    at: Callable[[int], Fabricated]
    ticks: tuple[float, ...] = (0.0, 10.0, 20.0)
    settings: Mapping[str, Any] = field(default_factory=lambda: SPARSE)
    pid: int | None = None


# -- the kernel's files


def stat(cpus: int, tick: int, columns: int = 10, iowait_step: int = 40) -> str:
    """/proc/stat: every CPU a little busier than the one before it."""
    rows = []
    for cpu in range(cpus):
        user = 600_000 + 1_000 * cpu + tick * (200 + 5 * cpu)
        row = [user, 1_200 + tick, 90_000 + 60 * tick, 4_000_000 + 650 * tick, 30_000 + iowait_step * tick]
        row += [15 + tick, 2_500 + 4 * tick, 700 + 2 * tick, 40_000 + 30 * tick, 500 + tick]
        rows.append(row[:columns])
    total = [sum(column) for column in zip(*rows)]
    lines = [f"cpu  {' '.join(map(str, total))}"]
    lines += [f"cpu{number} {' '.join(map(str, row))}" for number, row in enumerate(rows)]
    lines += ["intr 81200311 0 9 0 0", f"ctxt {912_345_678 + tick * 50_000}", "btime 1762000000", "processes 91011"]
    return "\n".join([*lines, "procs_running 7", "procs_blocked 1", ""])


def meminfo(total: int, free: int, buffers: int, cached: int, swap: tuple[int, int] = (0, 0), old: bool = False) -> str:
    """/proc/meminfo, in KiB; an old kernel has no estimate of what is available."""
    available = [] if old else [f"MemAvailable:   {free + cached * 9 // 10:>8} kB"]
    lines = [f"MemTotal:       {total:>8} kB", f"MemFree:        {free:>8} kB", *available]
    lines += [f"Buffers:        {buffers:>8} kB", f"Cached:         {cached:>8} kB", "SwapCached:            0 kB"]
    lines += [f"SwapTotal:      {swap[0]:>8} kB", f"SwapFree:       {swap[1]:>8} kB", "Dirty:               412 kB"]
    lines += [f"SReclaimable:   {cached // 20:>8} kB", "SUnreclaim:       190000 kB", "HugePages_Total:       0"]
    return "\n".join([*lines, ""])


def vmstat(tick: int) -> str:
    """/proc/vmstat."""
    lines = ["nr_free_pages 1234567", "pgpgin 70123456", f"pswpin {1_800 + 11 * tick}", f"pswpout {9_600 + 23 * tick}"]
    lines += [f"pgfault {88_000_000 + 120_000 * tick}", f"pgmajfault {41_000 + 17 * tick}", "pgrefill 5"]
    return "\n".join([*lines, ""])


def diskstats(names: list[str], tick: int, columns: int = 20) -> str:
    """/proc/diskstats: kernels have 14, 18 or 20 columns."""
    lines = []
    for number, name in enumerate(names):
        reads, writes = 10_000 * (number + 1) + 300 * tick, 22_000 * (number + 1) + 900 * tick
        row = [reads, 11, reads * 64, reads // 4, writes, 400, writes * 32, writes // 2, 0]
        row += [reads // 5 + writes // 3 + 7 * tick, reads + writes, 50, 0, 4096, 9, 120, 33]
        lines.append(f"{259:>4} {number:>7} {name} {' '.join(map(str, row[: columns - 3]))}")
    return "\n".join([*lines, ""])


def dev(names: list[str], tick: int) -> str:
    """/proc/net/dev."""
    lines = [
        "Inter-|   Receive                                                |  Transmit",
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls",
    ]
    for number, name in enumerate(names, 1):
        received, sent = 7_000_000_000 * number + 90_000_000 * tick, 2_000_000_000 * number + 11_000_000 * tick
        row = [received, received // 900, number % 2, 3 + tick, 0, 0, 0, 12_345]
        row += [sent, sent // 700, 0, number, 0, 0, 0, 0]
        lines.append(f"{name:>6}: {' '.join(map(str, row))}")
    return "\n".join([*lines, ""])


def pressure(tick: int) -> Files:
    """/proc/pressure/*."""
    files: Files = {}
    for resource, some, full in (("cpu", 7_100_000, 0), ("memory", 120_000, 90_000), ("io", 3_300_000, 2_800_000)):
        totals = {"some": some * (10 + tick), "full": full * (10 + tick)}
        files[f"/proc/pressure/{resource}"] = "".join(
            f"{kind} avg10=0.12 avg60=0.09 avg300=0.04 total={total}\n" for kind, total in totals.items()
        )
    return files


def mountinfo(*mounts: tuple[str, str, str, str, str]) -> str:
    """/proc/self/mountinfo, of (device number, root, mount point, type, device)."""
    lines = [
        f"{30 + number} 1 {device} {root} {point} rw,relatime shared:{number + 1} - {kind} {name} rw"
        for number, (device, root, point, kind, name) in enumerate(mounts)
    ]
    return "\n".join([*lines, ""])


def process(
    user: int,
    system: int,
    threads: int,
    resident: int,
    born: int,
    name: str = "python",
    pid: int = OURS,
    parent: int = 1,
) -> str:
    """/proc/{pid}/stat: ticks, pages, ticks since boot."""
    fields = ["S", parent, 1, 1, 0, -1, 4194560, 84_000, 12, 31, 0, user, system, 0, 0, 20, 0, threads, 0, born]
    fields += [3_000_000_000, resident, 2**64 - 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 17, 3, 0, 0, 0, 0, 0]
    return f"{pid} ({name}) {' '.join(map(str, fields))}\n"


def io(tick: int) -> str:
    """/proc/{pid}/io."""
    return (
        f"rchar: {5_000_000 + tick}\nwchar: 800000\nsyscr: {9_000 + 40 * tick}\nsyscw: {1_500 + 12 * tick}\n"
        f"read_bytes: {2_097_152 + 8192 * tick}\nwrite_bytes: {409_600 + 4096 * tick}\ncancelled_write_bytes: 0\n"
    )


FILESYSTEMS = (
    "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\toverlay\n\text4\n\txfs\n\tvfat\n\tsquashfs\nnodev\tnfs4\n"
)

ROOT = ("259:2", "/", "/", "ext4", "/dev/nvme0n1p2")
DATA = ("9:0", "/", "/data", "xfs", "/dev/md0")

# -- a bare machine: 64 cores, 8 disks, 4 interfaces

DISKS = [f"nvme{number}n1" for number in range(4)] + ["sda", "sdb", "sdc", "sdd"]
PARTS = ["nvme0n1p1", "nvme0n1p2", "nvme0n1p3", "sda1", "sda2"]
OTHERS = ["md0", "dm-0", "dm-1", "sr0", "fd0", "nbd0", "zram0", *(f"loop{n}" for n in range(8)), "ram0", "ram1"]
PORTS = ["eno1", "eno2", "eno3", "bond0"]
SLAVES = ["ens5f0np0", "ens5f1np1"]
VIRTUAL = ["lo", "docker0", "veth3f1a9c2", "vethb07d55e", "br-9e1c", "cali0a1b2c3d4e5"]


def _sys(cores: int) -> Files:
    files: Files = {}
    for cpu in range(cores):
        topology = f"/sys/devices/system/cpu/cpu{cpu}/topology"
        files[topology + "/core_cpus_list"] = f"{cpu}\n"
        files[f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"] = f"{2_100_000 + 10_000 * cpu}\n"
    for disk in [*DISKS, *OTHERS]:
        files[f"/sys/block/{disk}/stat"] = "0\n"
    for disk in [*DISKS, "sr0", "fd0"]:
        files[f"/sys/block/{disk}/device/model"] = "some disk\n"
    for name in [*PORTS, *SLAVES, *VIRTUAL]:
        files[f"/sys/class/net/{name}/mtu"] = "1500\n"
    for name in [*PORTS[:3], *SLAVES]:
        files[f"/sys/class/net/{name}/device/vendor"] = "0x15b3\n"
    for name in SLAVES:
        files[f"/sys/class/net/{name}/master/bonding/slaves"] = " ".join(SLAVES) + "\n"
    files["/sys/class/net/bond0/bonding/slaves"] = " ".join(SLAVES) + "\n"
    files["/sys/class/net/bonding_masters"] = "bond0\n"
    return files


def _powercap(tick: int) -> Files:
    """Two packages with their memory, and the machine; the first package's counter wraps around after tick 0."""
    folder = "/sys/class/powercap/"
    files: Files = {folder + "intel-rapl/enabled": "1\n", folder + "intel-rapl-mmio:0/name": "package-0\n"}
    zones = {
        "intel-rapl:0": ("package-0", (262_100_000_000, 1_900_000_000, 5_400_000_000)[tick]),
        "intel-rapl:0:0": ("core", 90_000_000_000 + 10 * tick),
        "intel-rapl:0:1": ("dram", 31_000_000_000 + 180_000_000 * tick),
        "intel-rapl:1": ("package-1", 17_000_000_000 + 1_650_000_000 * tick),
        "intel-rapl:1:0": ("dram", 29_000_000_000 + 170_000_000 * tick),
        "intel-rapl:2": ("psys", 120_000_000_000 + 4_900_000_000 * tick),
    }
    for zone, (name, energy) in zones.items():
        files[f"{folder}{zone}/name"], files[f"{folder}{zone}/energy_uj"] = name + "\n", f"{energy}\n"
        files[f"{folder}{zone}/max_energy_range_uj"] = "262143328850\n"
    return files


def infiniband(tick: int) -> Files:
    """Two adapters with a port each; one port is down."""
    files: Files = {}
    for number, state in enumerate(("4: ACTIVE", "1: DOWN")):
        port = f"/sys/class/infiniband/mlx5_{number}/ports/1/"
        files[port + "state"] = state + "\n"
        counters = {"port_xmit_data": 900_000_000, "port_rcv_data": 1_100_000_000} if number == 0 else {}
        counters |= {"symbol_error": 2, "link_error_recovery": 0, "link_downed": 1 + number, "port_rcv_errors": 4}
        for name, count in counters.items():
            files[f"{port}counters/{name}"] = f"{count + tick * (1_000_000 if name.endswith('data') else 0)}\n"
    return files


def metal(tick: int, energy: bool = True, cores: int = 64) -> Fabricated:
    """The bare machine; ``energy`` with RAPL zones and RDMA ports."""
    files = _sys(cores) | pressure(tick)
    files |= {
        "/proc/stat": stat(cores, tick),
        "/proc/loadavg": f"{41.5 + tick} 38.02 20.77 43/1890 77123\n",
        "/proc/meminfo": meminfo(
            528_000_000, 90_000_000 - 250_000 * tick, 1_400_000, 310_000_000, (8_388_604, 8_000_000)
        ),
        "/proc/vmstat": vmstat(tick),
        "/proc/diskstats": diskstats([*DISKS, *PARTS, *OTHERS], tick),
        "/proc/net/dev": dev([*VIRTUAL[:1], *PORTS, *SLAVES, *VIRTUAL[1:]], tick),
        "/proc/net/sockstat": "sockets: used 900\nTCP: inuse 88 orphan 0 tw 19 alloc 120 mem 30\nUDP: inuse 9 mem 4\n",
        "/proc/net/sockstat6": "TCP6: inuse 12\nUDP6: inuse 5\nRAW6: inuse 0\n",
        "/proc/net/snmp": "Tcp: RtoAlgorithm RtoMin CurrEstab InSegs RetransSegs\n"
        f"Tcp: 1 200 61 5000 {700 + 4 * tick}\nUdp: InDatagrams\nUdp: 3\n",
        "/proc/filesystems": FILESYSTEMS,
        "/proc/{pid}/mountinfo": mountinfo(ROOT, DATA),
    }
    if energy:
        files |= _powercap(tick) | infiniband(tick)
    for pid, state in zip((1, *range(STRANGER, STRANGER + 10)), "SRRSSDIITtZ"):
        files[f"/proc/{pid}/stat"] = f"{pid} (a b) c) {state} 1 1 1 0\n"
    files |= _plain_process(tick)
    files["/proc/{pid}/cgroup"] = "0::/user.slice/user-1000.slice/session-3.scope\n"
    files["/proc/{pid}/mountinfo"] = mountinfo(("0:26", "/", "/sys/fs/cgroup", "cgroup2", "cgroup2"), ROOT, DATA)
    spaces = {"/": _space(440, 210, 22, tick), "/data": _space(14_000, 6_100, 0, tick)}
    return Fabricated(Tree(files, spaces, cores, 345_600.25 + tick * 10, _usage(tick), {"/proc/{pid}/fd": 14 + tick}))


def _space(total: int, free: int, reserved: int, tick: int) -> FilesystemSpace:
    left = free * GIB - tick * 4096 * 1000
    return FilesystemSpace(total * GIB, left, left - reserved * GIB)


def _usage(tick: int) -> Usage:
    counts = 91_000 + 300 * tick, 14, 5_200 + 60 * tick, 480 + 9 * tick
    return Usage(310.25 + 12.5 * tick, 18.5 + 0.75 * tick, *counts, 2_097_152 + 8192 * tick, 409_600 + 4096 * tick)


def _plain_process(tick: int) -> Files:
    resident = 600_000 + (0, 40_000, 5_000)[tick]
    files: Files = {
        "/proc/{pid}/stat": process(31_025 + 1250 * tick, 1850 + 75 * tick, 12, resident, 33_000_000),
        "/proc/{pid}/statm": f"900000 {resident} 12000 700 0 500000 0\n",
        "/proc/{pid}/io": io(tick),
        "/proc/{pid}/task/{pid}/children": "",
    }
    return files


def everything(tick: int, cores: int = 4) -> Fabricated:
    """A bare machine with few cores and every metric. Its iowait time decreases once, as on real kernels."""
    found = metal(tick, cores=cores)
    found.tree.files["/proc/stat"] = stat(cores, tick, iowait_step=(0, 40, 15)[tick])
    return found


def mounts(tick: int) -> Fabricated:
    """The bare machine with mounts that are not counted: binds, snaps, overlays, network and pseudo file systems."""
    found = metal(tick)
    found.tree.files["/proc/{pid}/mountinfo"] = mountinfo(
        ("0:21", "/", "/proc", "proc", "proc"),
        ("0:22", "/", "/sys", "sysfs", "sysfs"),
        ("0:6", "/", "/dev", "devtmpfs", "udev"),
        ROOT,
        ("259:1", "/", "/boot/efi", "vfat", "/dev/nvme0n1p1"),
        ("9:0", "/", "/mnt/again", "xfs", "/dev/md0"),
        DATA,
        ("9:0", "/shared", "/srv/shared", "xfs", "/dev/md0"),
        ("8:16", "/pods", "/srv/pods", "ext4", "/dev/sdc"),
        ("8:32", "/", "/run/media/me/stick", "vfat", "/dev/sdd1"),
        ("7:1", "/", "/mnt/image", "squashfs", "/dev/loop1"),
        ("0:44", "/", "/home", "nfs4", "filer:/home"),
        ("7:0", "/", "/snap/core/1", "squashfs", "/dev/loop0"),
        ("0:60", "/", "/var/lib/docker/overlay2/9f/merged", "overlay", "overlay"),
        ("0:61", "/", "/run/user/1000", "tmpfs", "tmpfs"),
        ("253:0", "/", "/media/with\\040a\\040blank", "ext4", "/dev/mapper/vg-lv"),
        ("253:0", "/", "/var/lib/kubelet/pods/8c1/volumes/x", "ext4", "/dev/mapper/vg-lv"),
        ("0:70", "/@", "/srv/tree", "btrfs", "/dev/sdb"),
        ("0:70", "/@snap", "/srv/tree/.snapshots", "btrfs", "/dev/sdb"),
    )
    for path in ("/boot/efi", "/media/with a blank", "/srv/tree", "/srv/pods", "/run/media/me/stick", "/mnt/image"):
        found.tree.spaces[path] = _space(80, 30, 4, tick)
    return found


def unmounted(tick: int) -> Fabricated:
    """A machine that has only pseudo file systems mounted."""
    tmpfs = mountinfo(("0:21", "/", "/proc", "proc", "proc"), ("0:30", "/", "/", "tmpfs", "none"))
    return Fabricated(Tree({"/proc/filesystems": FILESYSTEMS, "/proc/{pid}/mountinfo": tmpfs}))


# -- small and old machines


def sandbox(tick: int) -> Fabricated:
    """A kernel in user space: no /sys, /proc/pressure, disks or paging statistics; one routed interface."""
    files: Files = {
        "/proc/stat": stat(2, tick),
        "/proc/loadavg": "0.31 0.30 0.12 1/40 40\n",
        "/proc/meminfo": meminfo(4_000_000, 2_100_000 - 1000 * tick, 0, 900_000),
        "/proc/net/dev": dev(["lo", "eth0"], tick),
        "/proc/net/route": "Iface\tDestination\tGateway\neth0\t00000000\t010011AC\neth0\t000011AC\t00000000\n",
    }
    return Fabricated(Tree(files, cpus=2, up=77.5 + 10 * tick))


def old(tick: int) -> Fabricated:
    """Linux 4.1: eight columns of CPU time, 14 of disks, no MemAvailable, no pressure."""
    files: Files = {
        "/proc/stat": stat(8, tick, columns=8),
        "/proc/loadavg": "1.00 0.90 0.80 2/300 9000\n",
        "/proc/meminfo": meminfo(32_900_000, 800_000, 200_000, 11_000_000, (4_000_000, 3_000_000), old=True),
        "/proc/vmstat": vmstat(tick),
        "/proc/diskstats": diskstats(["sda", "sda1", "sdb"], tick, columns=14),
        "/proc/net/dev": dev(["lo", "eth0"], tick),
        "/sys/block/sda/device/model": "x\n",
        "/sys/block/sdb/device/model": "x\n",
        "/sys/class/net/eth0/device/vendor": "x\n",
        "/sys/class/net/lo/mtu": "65536\n",
    }
    return Fabricated(Tree(files, cpus=8, up=9_000_000.5 + 10 * tick))


# -- containers

POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0c4a.slice"
INNER = POD + "/cri-containerd-77aa.scope"
CGROUP2 = ("0:26", "/", "/sys/fs/cgroup", "cgroup2", "cgroup2")


def _group(folder: str, tick: int) -> Files:
    files: Files = {
        f"{folder}/cpu.stat": f"usage_usec {640_000_000 + 31_500_000 * tick}\nuser_usec 1\nnr_periods 900\n"
        f"nr_throttled 12\nthrottled_usec {5_500_000 + 250_000 * tick}\n",
        f"{folder}/memory.current": f"{6_442_450_944 + 10_485_760 * tick}\n",
        f"{folder}/memory.stat": f"anon 4000000000\ninactive_file {1_288_490_188 + 4096 * tick}\nslab 1\n",
        f"{folder}/memory.events": f"low 0\nhigh 0\nmax 31\noom 4\noom_kill {3 + tick}\noom_group_kill 0\n",
        f"{folder}/cpu.pressure": _stalled(8_000_000 + 400_000 * tick, 5_500_000 + 250_000 * tick),
        f"{folder}/memory.pressure": _stalled(30_000 * tick, 20_000 * tick),
        f"{folder}/io.pressure": _stalled(700_000, 600_000),
    }
    return files


def _stalled(some: int, full: int) -> str:
    """A file of pressure, with microseconds in all."""
    averages = "avg10=0.12 avg60=0.34 avg300=0.05"
    return f"some {averages} total={some}\nfull {averages} total={full}\n"


def kubernetes(tick: int) -> Fabricated:
    """cgroup v2 seen from the host: the limits are on the pod and change while it runs, so its usage is reported."""
    root = "/sys/fs/cgroup"
    files = _group(root + POD, tick) | _plain_process(tick)
    files |= {
        root + INNER + "/cpu.stat": f"usage_usec {9_000_000 + 1_000_000 * tick}\nnr_throttled 0\nthrottled_usec 0\n",
        root + INNER + "/memory.current": f"{1 * GIB}\n",
        root + INNER + "/memory.stat": "inactive_file 4096\n",
        root + INNER + "/memory.events": "oom 0\noom_kill 0\n",
        **{f"{root}{INNER}/{resource}.pressure": _stalled(1, 1) for resource in ("cpu", "memory", "io")},
        "/proc/{pid}/cgroup": f"0::{INNER}\n",
        "/proc/{pid}/mountinfo": mountinfo(ROOT, CGROUP2),
        "/proc/meminfo": meminfo(64_000_000, 20_000_000, 100_000, 9_000_000),
        root + INNER + "/cpu.max": "max 100000\n",
        root + INNER + "/memory.max": "max\n",
        root + POD + "/cpu.max": f"{(400_000, 400_000, 250_000)[tick]} 100000\n",
        root + POD + "/memory.max": f"{(8, 12, 12)[tick] * GIB}\n",
        root + "/kubepods.slice/memory.max": f"{60 * GIB}\n",
        root + "/kubepods.slice/cpu.max": "max 100000\n",
    }
    return Fabricated(Tree(files, {}, 16, 345_600.5 + 10 * tick, _usage(tick), {"/proc/{pid}/fd": 20}))


def namespace(tick: int) -> Fabricated:
    """cgroup v2 in a cgroup namespace: the pod's group is the root; no limits."""
    files = _group("/sys/fs/cgroup", tick)
    files |= {
        "/proc/{pid}/cgroup": "0::/\n",
        "/proc/{pid}/mountinfo": mountinfo(("0:90", "/", "/", "overlay", "overlay"), CGROUP2),
        "/sys/fs/cgroup/cpu.max": "max 100000\n",
        "/sys/fs/cgroup/memory.max": "max\n",
    }
    return Fabricated(Tree(files))


def docker(tick: int) -> Fabricated:
    """cgroup v1 in a container without a cgroup namespace: its part of each hierarchy is mounted."""
    name = "/docker/5d0e"
    lines = [f"{n}:{c}:{name}" for n, c in enumerate(("memory", "cpu,cpuacct", "pids", "name=systemd"), 2)]
    points = [("memory", "memory"), ("cpu,cpuacct", "cpu,cpuacct"), ("systemd", "name=systemd")]
    info = [
        f"{60 + n} 50 0:{40 + n} {name} /sys/fs/cgroup/{point} ro,nosuid - cgroup cgroup rw,{options}"
        for n, (point, options) in enumerate(points)
    ]
    memory, cpu = "/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpu,cpuacct"
    files: Files = {
        "/proc/{pid}/cgroup": "\n".join([*lines, ""]),
        "/proc/{pid}/mountinfo": mountinfo(("0:38", "/", "/", "overlay", "overlay")) + "\n".join([*info, ""]),
        f"{memory}/memory.usage_in_bytes": f"{734_003_200 + 1_048_576 * tick}\n",
        f"{memory}/memory.limit_in_bytes": f"{2 * GIB}\n",
        f"{memory}/memory.stat": "cache 5\ninactive_file 7\ntotal_cache 300000000\ntotal_inactive_file 209715200\n",
        f"{memory}/memory.oom_control": f"oom_kill_disable 0\nunder_oom 0\noom_kill {2 * tick}\n",
        f"{cpu}/cpuacct.usage": f"{98_765_432_100 + 2_000_000_000 * tick}\n",
        f"{cpu}/cpu.cfs_quota_us": "150000\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
        f"{cpu}/cpu.stat": f"nr_periods 77\nnr_throttled 5\nthrottled_time {4_000_000_000 + 500_000_000 * tick}\n",
    }
    return Fabricated(Tree(files))


# -- processes


def tree(tick: int) -> Fabricated:
    """A program with data loaders: first none, then two and a child of one, then two."""
    found = kubernetes(tick)
    files = found.tree.files
    if tick:
        files["/proc/{pid}/task/{pid}/children"] = f"{STRANGER} "
        files[f"/proc/{{pid}}/task/{STRANGER + 9}/children"] = f"{STRANGER + 1} "
        files[f"/proc/{STRANGER}/task/{STRANGER}/children"] = f"{STRANGER + 2} " if tick == 1 else ""
        for number, threads in ((0, 3), (1, 1), (2, 1)):
            if tick == 1 or number < 2:
                born, used = 34_560_300 + number, 40 * (number + 1) + (tick - 1) * 900
                parent = STRANGER if number == 2 else OURS
                files[f"/proc/{STRANGER + number}/stat"] = process(
                    used, 5, threads, 50_000, born, "a (b) 7", STRANGER + number, parent
                )
        for number in (1, 2):
            files[f"/proc/{STRANGER + number}/task/{STRANGER + number}/children"] = ""
    return found


def foreign(tick: int) -> Fabricated:
    """Another user's program. Its I/O and descriptors cannot be read."""
    files: Files = {
        f"/proc/{STRANGER}/stat": process(5_000 + 250 * tick, 700 + 30 * tick, 4, 81_000, 12_000),
        f"/proc/{STRANGER}/statm": "400000 81000 900 1 0 3000 0\n",
        f"/proc/{STRANGER}/io": PermissionError(EACCES, "Permission denied"),
        f"/proc/{STRANGER}/cgroup": "0::/system.slice/train.service\n",
        f"/proc/{STRANGER}/mountinfo": mountinfo(ROOT, CGROUP2),
        f"/proc/{STRANGER}/task/{STRANGER}/children": "",
        "/proc/meminfo": meminfo(16_000_000, 3_000_000, 100_000, 2_000_000),
    }
    return Fabricated(Tree(files, {}, 4, 4_000.0 + 10 * tick))


def windows(tick: int) -> Fabricated:
    """psutil's description of a process on Windows: handles, no descriptors."""
    known = {
        "cpu_times": {"user": 12.5 + 4.0 * tick, "system": 3.25, "children_user": 0.0, "children_system": 0.0},
        "num_threads": 31,
        "memory_info": {"rss": 250_000_000, "vms": 400_000_000, "num_page_faults": 90_000, "private": 400_000_000},
        "num_ctx_switches": {"voluntary": 8_000, "involuntary": 0},
        "create_time": 1_763_000_000.0,
        "io_counters": {"read_count": 900, "write_count": 80, "read_bytes": 7_000_000, "write_bytes": 65_536},
        "num_handles": 412 + tick,
    }

    def as_dict(pid: int, names: list[str]) -> Any:
        strange = [name for name in names if name not in known]
        return ValueError(f"invalid attr name {strange[0]!r}") if strange else {name: known[name] for name in names}

    memory = {"total": 16 * GIB, "available": 9 * GIB, "percent": 43.8, "used": 7 * GIB, "free": 9 * GIB}
    functions = {
        "Process.as_dict": as_dict,
        "Process.children": [],
        "Process.cpu_affinity": list(range(8)),
        "virtual_memory": memory,
        "swap_memory": {"total": GIB, "used": 0, "free": GIB, "percent": 0.0, "sin": 0, "sout": 0},
    }
    return Fabricated(None, {"psutil": functions, "time": {"time": 1_763_000_600.0 + 10 * tick}})


BARE = "made up: two sockets, 64 cores, 8 disks, 4 interfaces (one a bond), RAPL, two RDMA ports"
SMALLER = BARE.replace("64 cores", "4 cores")

# Every metric that comes from a driver.
REQUESTED = SPARSE | {
    "detail": ["cpu", "connections", "processes"],
    "include_metrics": ["*"],
    "exclude_metrics": ["otel_hardware.source.read.duration", "cpython.gc.*"],
}

STORIES = (
    Story("host", "metal", BARE, metal),
    Story("host", "metal-everything", SMALLER + "; all rows on request", everything, settings=REQUESTED),
    Story("host", "sandbox", "made up: a kernel in user space without /sys, disks and pressure", sandbox),
    Story("host", "old-kernel", "made up: Linux 4.1 with 8 cores and 2 disks", old),
    Story("infiniband", "metal", BARE, metal),
    Story("infiniband", "none", "made up: Linux 4.1 without an adapter", old),
    Story("powercap", "metal", BARE, metal),
    Story("powercap", "none", "made up: Linux 4.1 that counts no energy", old),
    Story("filesystem", "metal", BARE, metal),
    Story("filesystem", "mounts", BARE + "; snaps, binds, overlays and a server's files mounted", mounts),
    Story("filesystem", "none", "made up: nothing but memory and pseudo file systems", unmounted),
    Story("container", "kubernetes", "made up: cgroup v2, the limits on the pod, changed while it runs", kubernetes),
    Story("container", "namespace", "made up: cgroup v2 in a namespace of its own, no limits", namespace),
    Story("container", "docker-v1", "made up: cgroup v1 as a Docker container sees it", docker),
    Story("container", "metal", BARE, metal),
    Story("process", "metal", BARE, metal),
    Story("process", "tree", "made up: a container with data loaders that come and go", tree, settings=REQUESTED),
    Story("process", "foreign", "made up: another user's program, watched from outside", foreign, pid=STRANGER),
    Story("process", "windows", "made up: psutil's words on Windows, with a handle count", windows),
)
