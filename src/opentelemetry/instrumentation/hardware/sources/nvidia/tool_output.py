"""The output of ``nvidia-smi -q -x``: run the tool, and split its XML into texts by path.

Its exit codes are not reliable. Every GPU that is complete in the XML is used, even if the rest is invalid.
https://docs.nvidia.com/deploy/nvidia-smi/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from opentelemetry.instrumentation.hardware.accelerators.facts import fact
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.number import number
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.nvidia import fields as f
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml
from opentelemetry.instrumentation.hardware.system.files import integer

TOOL: Final = Tool(
    "nvidia-smi",
    folders=("/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"),
    environment=("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "CUDA_VISIBLE_DEVICES"),
    fix="it comes with NVIDIA's driver",
)

TIMEOUT: Final = 10.0

# Exit codes, which are those of NVML, and what to do: no device, no kernel driver, no library.
_UNAVAILABLE: Final = {6: "", 9: "modprobe nvidia", 12: "install NVIDIA's driver"}

LOST: Final = ("GPU is lost", "GPU requires reset")  # texts in place of the values of a failed device

UNKNOWN: Final = "Unknown Error"

NOT_REPORTED: Final = "nvidia-smi does not report it"

# Elements that are removed before parsing: process names have arbitrary bytes, and the table of clocks is long, and
# malformed in some versions.
_REMOVED: Final = ("supported_clocks", "process_name", "accounted_processes")

_LISTED: Final = ("gpu", "mig_device", "process_info")  # elements that may occur several times

# A GPU has some 300 elements, 8 deep, and 7 more for each process.
_MOST_DEPTH: Final = 12
_MOST_ELEMENTS: Final = 50_000

_CHUNK: Final = 1 << 16


class Document(NamedTuple):
    """The output of the tool.

    Attributes:
        driver: Version of the driver; "" if unknown.
        gpus: The GPUs that are complete.
        problem: What is wrong with the rest; "" if it is valid.
        cuda: The newest version of CUDA that the driver supports; "" if unknown.
    """

    driver: str
    gpus: Sequence[Element]
    problem: str = ""
    cuda: str = ""


def parse(printed: bytes) -> Document:
    """Parse the output of the tool. If it has several documents, the last one is used.

    Raises:
        ValueError: There is no document.
    """
    text = printed.decode("utf-8", "replace")
    for name in _REMOVED:
        text = re.sub(f"<{name}>.*?(?:</{name}>|(?=<{name}>)|$)", "", text, flags=re.DOTALL)
    begin = text.rfind("<nvidia_smi_log")  # after warnings and DOCTYPE: entities are never defined
    if begin < 0:
        raise ValueError("there is no document of nvidia-smi")
    body, end, _ = text[begin:].partition("</nvidia_smi_log>")
    gpus: list[Element] = []
    facts: dict[str, str] = {}
    problem = ""
    try:
        for element in _elements(body + end):
            if element.tag == "gpu":
                gpus.append(element)
            elif element.tag in ("driver_version", "kmd_version", "cuda_version", "cuda_umd_version", "attached_gpus"):
                facts.setdefault(element.tag, fact((element.text or "").partition("[")[0]))
    except (ParseError, ValueError) as error:
        attached = facts.get("attached_gpus") or "some"
        reason = str(error).partition(": line")[0]
        problem = f"the output of nvidia-smi ends after {len(gpus)} of {attached} GPUs: {reason}"
    # The first name is deprecated since 610: 615 says so in a comment; without -x, in brackets behind the number.
    driver = facts.get("driver_version") or facts.get("kmd_version", "")
    return Document(driver, gpus, problem, facts.get("cuda_umd_version") or facts.get("cuda_version", ""))


def _elements(text: str) -> Iterator[Element]:
    """Yield the elements as they are completed, until the text is not well-formed any more, or ends early."""
    parser: XMLPullParser[Element] = XMLPullParser(("start", "end"))
    depth = count = 0
    for begin in range(0, len(text) + 1, _CHUNK):
        parser.feed(text[begin : begin + _CHUNK])
        for each in parser.read_events():
            event, element = each[0], each[-1]
            depth += 1 if event == "start" else -1
            count += event == "start"
            if depth > _MOST_DEPTH or count > _MOST_ELEMENTS:
                raise ValueError("it is larger than a document of nvidia-smi")
            if event == "end" and isinstance(element, Element):
                yield element
    parser.close()


def texts(element: Element, prefix: str = "") -> dict[str, str]:
    """Return the texts below an element by path, without elements that may occur several times."""
    found: dict[str, str] = {}
    for child in element:
        if child.tag not in _LISTED:
            path = f"{prefix}{child.tag}"
            text = clean(child.text or "")
            if text:
                found.setdefault(path, text)
            for below, each in texts(child, f"{path}/").items():
                found.setdefault(below, each)
    return found


def plausible(words: Mapping[str, str], field: Field, spellings: Sequence[str]) -> object:
    """Return the first plausible value of a field. A spelling is a path, or a sum or difference of paths.

    Raises:
        ValueError: There is none; the text has the reason.
    """
    reason = NOT_REPORTED
    for spelling in spellings:
        path, *others = re.split(" (?=[+-] )", spelling)
        try:
            value: object = _text(words, path)
            for other in others:
                sign, _, path = other.partition(" ")
                value = number(value) + (1 if sign == "+" else -1) * number(_text(words, path))
            field.value(value)
        except KeyError:
            continue
        except ValueError as error:
            reason = str(error)
        else:
            return value
    raise ValueError(reason)


def _text(words: Mapping[str, str], path: str) -> str:
    """Return the text with a path.

    Raises:
        KeyError: It is missing, and so are the elements around it.
        ValueError: An element around it has a text in place of its values, such as ``N/A``.
    """
    if path == "performance_state":
        return re.sub("^P(?=[0-9])", "", words[path])
    if path == "gpu_recovery_action":
        return f.XML_ACTIONS.get(words[path], words[path])
    around = path
    while around not in words and "/" in around:
        around = around.rpartition("/")[0]
    text = words[around]
    if around != path:
        raise ValueError(f"the driver reports {text!r}")
    return text


def instance_ids(words: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the numbers of GPU instance and compute instance, of a MIG instance or of a process that uses one."""
    return integer(words.get("gpu_instance_id", "")), integer(words.get("compute_instance_id", ""))


def processes(gpu: Element) -> Iterator[tuple[int, tuple[int | None, int | None], int | None, bool]]:
    """Yield for each process its PID, :func:`instance_ids`, the bytes in use, and whether it computes."""
    for each in gpu.iter("process_info"):
        words = texts(each)
        pid = integer(words.get("pid", ""))
        size = None
        with suppress(ValueError):
            size = int(number(words.get("used_memory", ""), "MiB")) << 20
        if pid:
            yield pid, instance_ids(words), size, "C" in words.get("type", "")  # C, C+G, M+C


def clean(text: str) -> str:
    """Remove the brackets that some versions print around a missing value."""
    text = " ".join(text.split())
    return text[1:-1].strip() if text.startswith("[") and text.endswith("]") else text


def pci_address(text: str) -> str:
    """Format a PCI address like the kernel; "" for other texts."""
    return nvml.pci_address(fact(text, r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"))


def run(command: Command) -> Document:
    """Run the tool.

    Raises:
        Unavailable: The tool has been removed, or finds no driver or no GPU.
        OSError: The tool timed out or could not be started.
        ValueError: The tool printed no document, or crashed before it printed a GPU.
    """
    output = command.run(["-q", "-x"], TIMEOUT)
    try:
        document = parse(output.stdout)
    except ValueError:
        message = _first_line(output.stdout) or _first_line(output.stderr) or "nothing"
        if output.code in _UNAVAILABLE:
            raise Unavailable(message, _UNAVAILABLE[output.code]) from None
        raise ValueError(f"nvidia-smi prints {message!r} and exits with {output.code}") from None
    if not document.gpus and (document.problem or output.code):
        raise ValueError(f"{document.problem or 'nvidia-smi prints no GPU'}; it exits with {output.code}")
    return document


def _first_line(printed: bytes) -> str:
    lines = (line.strip() for line in printed.decode("utf-8", "replace").splitlines())
    return next((line[:200] for line in lines if line and line.isprintable()), "")
