"""Builds the package for pip (PEP 517, PEP 660). pip downloads no build tool for it."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent
PROJECT = (ROOT / "pyproject.toml").read_text("utf-8")  # tomllib is not in Python 3.10
BUILT = (2020, 1, 1, 0, 0, 0)  # the time of all files in a wheel, so that equal sources make equal wheels


def field(name: str) -> str:
    """Returns a text field of [project]."""
    found = re.search(rf'^{name} = "(.*)"$', PROJECT, re.MULTILINE)
    if found is None:
        raise ValueError(f"pyproject.toml has no field {name}")
    return found[1]


NAME = f"{field('name')}-{field('version')}"


def metadata() -> str:
    """Returns the core metadata (version 2.1)."""
    return "\n".join([
        "Metadata-Version: 2.1", f"Name: {field('name')}", f"Version: {field('version')}", f"Summary: {field('description')}",
        "License: Apache-2.0", f"Requires-Python: {field('requires-python')}", "Classifier: Typing :: Typed",
        "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text("utf-8"),
    ])


def sources() -> dict[str, bytes]:
    """Returns the modules of the package, by their path in a wheel."""
    files = sorted(path for path in (ROOT / "src").rglob("*") if path.is_file() and path.suffix in (".py", ".typed"))
    return {path.relative_to(ROOT / "src").as_posix(): path.read_bytes() for path in files}


def license_file() -> dict[str, bytes]:
    """Returns the license, which is in the root of the repository and in a source archive."""
    found = [path for path in (ROOT / "LICENSE", ROOT.parent.parent / "LICENSE") if path.is_file()]
    return {"LICENSE": found[0].read_bytes()} if found else {}


def write_wheel(folder: str, files: dict[str, bytes]) -> str:
    """Writes a wheel of files and their metadata. It returns the name of the wheel."""
    info = f"{NAME}.dist-info"
    files = files | {f"{info}/{name}": text for name, text in license_file().items()} | {
        f"{info}/METADATA": metadata().encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: build_package\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, BUILT)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return wheel


def build_wheel(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    return write_wheel(wheel_directory, sources())


def build_editable(wheel_directory: str, config_settings: object = None, metadata_directory: str | None = None) -> str:
    return write_wheel(wheel_directory, {"holdfast.pth": f"{ROOT / 'src'}\n".encode()})


def build_sdist(sdist_directory: str, config_settings: object = None) -> str:
    files = {f"src/{path}": content for path, content in sources().items()} | license_file() | {"PKG-INFO": metadata().encode()}
    files |= {name: (ROOT / name).read_bytes() for name in ("pyproject.toml", "README.md", "build_package.py")}
    with tarfile.open(Path(sdist_directory) / f"{NAME}.tar.gz", "w:gz") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size, entry.mode = len(content), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return f"{NAME}.tar.gz"
