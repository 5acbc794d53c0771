"""Small real wheels, written by hand: an environment can be built from them in a second or two, without a network."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, version: str, *, needs: tuple[str, ...] = (), script: str = "") -> Path:
    """A pure-Python wheel of one module that knows its version. `script`: name of a command that prints it."""
    folder.mkdir(parents=True, exist_ok=True)
    module, info = name.replace("-", "_").replace(".", "_").lower(), f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}.py": f"VERSION = {version!r}\n\n\ndef main():\n    print(VERSION)\n",
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {module}:main\n"
    rows = [f"{path},sha256={_digest(content)},{len(content.encode())}" for path, content in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return path


def hash_option(path: Path) -> str:
    """``--hash=sha256:…`` of a wheel."""
    return f"--hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def _digest(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
