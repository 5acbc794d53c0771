"""roles/nccl_tests: a build from a declared archive, and what is said of one that is not as it should be.

The source that is built here is pretended: a Makefile that takes the variables of nccl-tests', and programs
that answer --help as they do. NCCL and MPI are empty libraries. The compiler is CUDA's own where this machine
has one, else g++ in its place; no GPU is needed.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from loaded import loaded

ANSIBLE = Path(__file__).parents[2] / "ansible"
LOOK = ANSIBLE / "roles/nccl_tests/files/look.py"
COMPARE = loaded("plugins/filter/nccl_tests_compare.py")

PROGRAMS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
MAKEFILE = """\
BUILDDIR ?= build
CUDA_HOME ?= /usr/local/cuda
NVCC ?= $(CUDA_HOME)/bin/nvcc
NVCC_GENCODE ?= -gencode=arch=compute_80,code=sm_80
FLAGS := $(NVCC_GENCODE) -I$(NCCL_HOME)/include
LIBS := -L$(NCCL_HOME)/lib -lnccl
ifeq ($(MPI), 1)
FLAGS += -DMPI_SUPPORT -I$(MPI_HOME)/include
LIBS += -L$(MPI_HOME)/lib -lmpi
endif
all: $(PROGRAMS:%=$(BUILDDIR)/%_perf)
$(BUILDDIR)/%_perf: src/common.cu
\t@mkdir -p $(BUILDDIR)
\t$(NVCC) $(FLAGS) -o $@ $< $(LIBS)
PROGRAMS := all_reduce all_gather reduce_scatter alltoall
all: $(PROGRAMS:%=$(BUILDDIR)/%_perf)
"""
SOURCE = """\
#include <cstdio>
#include <cstring>
#include "nccl.h"
#ifdef MPI_SUPPORT
#include "mpi.h"
#endif
int main(int argc, char** argv) {
  if (argc > 1 && !strcmp(argv[1], "--help")) {
    printf("USAGE: %s \\n\\t[-g,--ngpus <gpus per thread>] \\n\\t[-b,--minbytes <min>] \\n\\t[-e,--maxbytes <max>]\\n", argv[0]);
    return 0;
  }
  int version = 0;
  ncclGetVersion(&version);
#ifdef MPI_SUPPORT
  MPI_Init(&argc, &argv);
#endif
  return version;
}
"""


@pytest.fixture
def homes(tmp_path: Path) -> dict[str, Any]:
    """CUDA, NCCL and MPI to build with, an archive, and what the role is told of them."""
    nccl, mpi = tmp_path / "nccl", tmp_path / "mpi"
    library(
        nccl,
        "nccl",
        "int ncclGetVersion(int* v) { *v = 23102; return 0; }",
        "#define NCCL_MAJOR 2\n#define NCCL_MINOR 31\n#define NCCL_PATCH 2\n",
    )
    library(
        mpi,
        "mpi",
        "int MPI_Init(int* a, char*** b) { return 0; }",
        "#define OMPI_MAJOR_VERSION 4\n#define OMPI_MINOR_VERSION 1\n#define OMPI_RELEASE_VERSION 4\n",
    )
    archive = tmp_path / "nccl-tests-2.17.6.tar.gz"
    pack(archive, {"Makefile": MAKEFILE, "src/common.cu": SOURCE})
    return {
        "nccl_tests_archive": str(archive),
        "nccl_tests_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "nccl_tests_prefix": str(tmp_path / "prefix"),
        "nccl_tests_cuda_home": str(cuda_home(tmp_path)),
        "nccl_tests_nccl_home": str(nccl),
        "nccl_tests_mpi_home": str(mpi),
        "nccl_tests_nccl_version": "2.31",
        "nccl_tests_compute_capability": "9.0",
        "nccl_tests_packages": [],
        "nccl_tests_jobs": 2,
    }  # fmt: skip


def library(home: Path, name: str, code: str, header: str) -> None:
    """A library with one function, and its header."""
    (home / "include").mkdir(parents=True)
    (home / "lib").mkdir()
    declared = code.split("{", 1)[0].strip()
    (home / "include" / f"{name}.h").write_text(f'{header}extern "C" {declared};\n')
    (home / f"{name}.c").write_text(code)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(home / "lib" / f"lib{name}.so"), str(home / f"{name}.c")], check=True
    )


def cuda_home(folder: Path) -> Path:
    """CUDA's compiler where this machine has one; else g++ that takes nvcc's arguments."""
    for place in sorted(Path("/usr/local").glob("cuda*/bin/nvcc")):
        return place.parent.parent
    script = folder / "cuda/bin/nvcc"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/bash\n"
        "if [ \"$1\" = --version ]; then echo 'Cuda compilation tools, release 13.0, V13.0.88'; exit; fi\n"
        'set -- "$@" $NVCC_APPEND_FLAGS; words=(); for word; do case $word in -gencode*) ;; -Xlinker) words+=(-Xlinker) ;;'
        ' *.cu) words+=(-x c++ "$word" -x none) ;; *) words+=("$word") ;; esac; done\nexec g++ "${words[@]}"\n'
    )
    script.chmod(0o755)
    return folder / "cuda"


def pack(path: Path, files: dict[str, str]) -> None:
    """A .tar.gz with one folder above all, as GitHub makes them."""
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"nccl-tests-2.17.6/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))


def play(folder: Path, told: dict[str, Any], *options: str) -> tuple[int, str]:
    """(exit code, output) of the role on this machine."""
    playbook = folder / "play.yml"
    playbook.write_text("- {name: NCCL tests, hosts: all, gather_facts: true, roles: [nccl_tests]}\n")
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "here,", "-c", "local", *options]
    command += ["-e", json.dumps({"ansible_python_interpreter": sys.executable, **told}), str(playbook)]
    env = {**os.environ, "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=200, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def changed(output: str) -> int:
    found = re.search(r"here : ok=\d+ changed=(\d+)", output)
    assert found is not None, output
    return int(found[1])


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_a_build_is_made_once_and_anew_with_another_nccl(tmp_path: Path, homes: dict[str, Any]) -> None:
    code, output = play(tmp_path, homes, "--check", "--diff")
    assert (code, changed(output)) == (0, 1), output
    assert not (tmp_path / "prefix").exists()

    code, output = play(tmp_path, homes)
    assert code == 0, output
    current = tmp_path / "prefix/current"
    made_of = json.loads((current / "built.json").read_text())
    assert (made_of["architecture"], made_of["nccl"], made_of["mpi"]) == ("sm_90", "2.31.2", "Open MPI 4.1.4")
    said = subprocess.run(
        ["ldd", str(current / "bin/all_reduce_perf")], capture_output=True, text=True, check=True
    ).stdout
    assert str(tmp_path / "mpi/lib/libmpi.so") in said
    assert str(tmp_path / "nccl/lib/libnccl.so") in said
    assert list(Path("/tmp").glob("surefoot-nccl-tests-*")) == []  # noqa: S108 - where the role builds

    code, output = play(tmp_path, homes)
    assert (code, changed(output)) == (0, 0), output

    header = tmp_path / "nccl/include/nccl.h"
    header.write_text(header.read_text().replace("PATCH 2", "PATCH 3"))
    code, output = play(tmp_path, homes)
    assert code == 0, output
    assert json.loads((current / "built.json").read_text())["nccl"] == "2.31.3"
    assert len([path for path in (tmp_path / "prefix").iterdir() if not path.is_symlink()]) == 2


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_another_archive_than_declared_is_never_built(tmp_path: Path, homes: dict[str, Any]) -> None:
    archive = Path(homes["nccl_tests_archive"])
    pack(archive, {"Makefile": MAKEFILE, "src/common.cu": SOURCE + "// another\n"})
    code, output = play(tmp_path, homes)
    assert code != 0
    assert f"has sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()}, nccl_tests_sha256 declares" in output
    assert not (tmp_path / "prefix").exists()


@pytest.mark.slow
@pytest.mark.lab
@pytest.mark.sites
@pytest.mark.long
def test_a_source_that_does_not_compile_leaves_no_build(tmp_path: Path, homes: dict[str, Any]) -> None:
    archive = Path(homes["nccl_tests_archive"])
    pack(archive, {"Makefile": MAKEFILE, "src/common.cu": "#error broken on purpose\n"})
    homes["nccl_tests_sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    code, output = play(tmp_path, homes)
    assert code != 0
    assert "broken on purpose" in output
    assert not (tmp_path / "prefix").exists()


def tools(homes: dict[str, Any], capability: str = "9.0") -> dict[str, Any]:
    names = ("nccl_tests_cuda_home", "nccl_tests_nccl_home", "nccl_tests_mpi_home")
    command = [sys.executable, str(LOOK), "toolchain", *(homes[name] for name in names), capability]
    facts: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return facts


def test_what_a_build_needs_is_named_where_it_is_missing(tmp_path: Path, homes: dict[str, Any]) -> None:
    assert COMPARE.nccl_tests_toolchain(tools(homes), {"nccl_version": "2.31"})["problems"] == []
    (tmp_path / "mpi/include/mpi.h").unlink()
    (tmp_path / "nccl/include/nccl.h").write_text("#define NCCL_MAJOR 2\n")
    homes["nccl_tests_cuda_home"] = "/nowhere"
    problems = COMPARE.nccl_tests_toolchain(tools(homes, ""), {"nccl_version": "2.31"})["problems"]
    text = "\n".join(problems)
    assert "nvcc: /nowhere/bin/nvcc: " in text
    assert f"mpi: {tmp_path}/mpi/include/mpi.h is not there (mpi.h)" in text
    assert f"nccl: {tmp_path}/nccl/include/nccl.h does not say it" in text
    if shutil.which("nvidia-smi") is None:
        assert "compute_capability: nvidia-smi: " in text


def test_another_nccl_than_training_uses_and_mixed_gpus_are_named(homes: dict[str, Any]) -> None:
    facts = tools(homes)
    assert (
        "found 2.31.2 (nccl.h), nccl_tests_nccl_version declares 2.30"
        in COMPARE.nccl_tests_toolchain(facts, {"nccl_version": "2.30"})["report"]
    )
    facts["compute_capability"] = {"value": ["8.0", "9.0"], "from": "nvidia-smi"}
    assert "this host has GPUs of 8.0, 9.0" in COMPARE.nccl_tests_toolchain(facts, {"nccl_version": ""})["report"]


GOOD: dict[str, Any] = {
    "record": {"value": {}, "from": "/p/built.json"},
    "usage": {f"{name}_perf": {"value": f"USAGE: {name}_perf", "from": f"{name}_perf --help"} for name in PROGRAMS},
    "libraries": {"value": {"libnccl.so.2": "/usr/lib/libnccl.so.2", "libmpi.so.40": "/usr/lib/libmpi.so.40"}, "from": "ldd"},
    "architectures": {"value": ["sm_90"], "from": "cuobjdump"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"record": {"value": None, "unknown": "No such file", "from": "/p/built.json"}}, "/p/built.json: No such file"),
        ({"usage": {"all_reduce_perf": {"value": None, "unknown": "ends with 127", "from": "--help"}}}, "all_reduce_perf does not start: ends with 127"),
        ({"usage": {}}, "no program was looked at"),
        ({"libraries": {"value": {"libnccl.so.2": "/usr/lib/libnccl.so.2"}, "from": "ldd"}}, "libmpi.so is not linked: it was built without MPI"),
        ({"libraries": {"value": {"libnccl.so.2": "not found", "libmpi.so.40": "/m"}, "from": "ldd"}}, "libnccl.so.2 is not found on this host"),
        ({"libraries": {"value": None, "unknown": "ldd is not there", "from": "ldd"}}, "libraries: ldd is not there"),
        ({"architectures": {"value": ["sm_80"], "from": "cuobjdump"}}, "holds code for sm_80, and this host's GPU is sm_90"),
        ({"architectures": {"value": [], "from": "cuobjdump"}}, "holds code for no GPU"),
    ],
)  # fmt: skip
def test_a_build_that_is_not_as_it_should_be_is_named(damage: dict[str, Any], words: str) -> None:
    assert COMPARE.nccl_tests_compare(GOOD, "sm_90")["problems"] == []
    said = COMPARE.nccl_tests_compare({**GOOD, **damage}, "sm_90")
    assert any(words in problem for problem in said["problems"]), said


def test_a_program_that_ends_well_without_its_usage_does_not_count_as_started(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name in PROGRAMS:
        program = tmp_path / f"bin/{name}_perf"
        program.write_text("#!/bin/sh\necho hello\n")
        program.chmod(0o755)
    command = [sys.executable, str(LOOK), "programs", str(tmp_path), "/nowhere"]
    facts = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "does not tell of --minbytes: hello" in facts["usage"]["all_reduce_perf"]["unknown"]
