"""Makes a small apt repository of packages that hold nothing: repository.py FOLDER. Standard library and dpkg-deb."""

import hashlib
import subprocess
import sys
from pathlib import Path

# A driver, a package that brings it along, and one that does not.
PACKAGES = {
    "nvidia-driver-999-open": "",
    "cuda-everything": "nvidia-driver-999-open",
    "cuda-cudart-13-0": "",
}


def main() -> None:
    """Build the packages and their index."""
    folder = Path(sys.argv[1])
    rows = []
    for name, needs in PACKAGES.items():
        tree = folder / "build" / name / "DEBIAN"
        tree.mkdir(parents=True, exist_ok=True)
        fields = [
            f"Package: {name}",
            "Version: 999.1-1",
            "Architecture: all",
            "Maintainer: Surefoot <nobody@example.org>",
        ]
        fields += [f"Depends: {needs}"] if needs else []
        fields += ["Description: pretended, for a test"]
        (tree / "control").write_text("\n".join(fields) + "\n")
        deb = folder / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", str(tree.parent), str(deb)], check=True, capture_output=True)
        data = deb.read_bytes()
        fields[4:4] = [f"Filename: ./{deb.name}", f"Size: {len(data)}", f"SHA256: {hashlib.sha256(data).hexdigest()}"]
        rows.append("\n".join(fields) + "\n")
    (folder / "Packages").write_text("\n".join(rows))


if __name__ == "__main__":
    main()
