"""The batch script, as text."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from surefoot.errors import SchedulerError
from surefoot.model.job import JobSpec
from surefoot.scheduler.slurm.script import Site, array_elements, batch_script, directives, minutes, srun

SITE = Site(python="/opt/py thon", partition="gpu", account="ml")
SPEC = JobSpec(name="ddp", argv=("python",), folder="/root dir/ddp", nodes=2, ranks_per_node=4, cpus_per_rank=3)


def test_everything_that_is_asked_stands_in_it() -> None:
    spec = SPEC.model_copy(
        update={
            "gpus_per_node": 4, "memory_mib_per_node": 1000, "time_limit_s": 601, "partition": "fast", "qos": "high",
            "reservation": "maint", "constraint": "h100&ib", "hosts": "n[1-4]", "exclude_hosts": "n3", "array": "0-7%4",
            "dependency": "afterok:12", "signal": "B:USR1@60", "requeue": True, "exclusive": True,
            "directives": ("--licenses=scratch:1",),
        }
    )  # fmt: skip
    assert directives(spec, Site(python="p", account="ml", partition="gpu", exclude_hosts="n4"), "surefoot:r:n:ddp") == [
        "--job-name=ddp", "--comment=surefoot:r:n:ddp", "--output=%x-%j-%N.out", "--open-mode=append", "--nodes=2",
        "--ntasks-per-node=4", "--cpus-per-task=3", "--gres=gpu:4", "--mem=1000M", "--time=11", "--partition=fast",
        "--account=ml", "--qos=high", "--reservation=maint", "--constraint=h100&ib", "--nodelist=n[1-4]",
        "--exclude=n3,n4", "--array=0-7%4", "--dependency=afterok:12", "--signal=B:USR1@60", "--requeue", "--exclusive",
        "--kill-on-invalid-dep=yes", "--licenses=scratch:1",
    ]  # fmt: skip


def test_one_task_a_rank_or_one_a_node_with_the_cpus_of_its_ranks() -> None:
    assert {"--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=3"} <= set(srun(SPEC))
    torchrun = SPEC.model_copy(update={"launch": "torchrun"})
    assert {"--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=12"} <= set(srun(torchrun))
    assert {"--kill-on-bad-exit=1", "--cpu-bind=cores", "--distribution=block"} <= set(srun(SPEC))


def test_neither_secrets_nor_traces_stand_in_it() -> None:
    text = batch_script(SPEC.model_copy(update={"env": {"TOKEN": "s3cret"}}), SITE, "tag")
    assert "s3cret" not in text
    assert "set -x" not in text


SAFE = st.text(st.characters(exclude_characters="%\\", exclude_categories=["Cs", "Cc"]), max_size=30)


@given(SAFE, SAFE)
def test_folder_and_interpreter_reach_the_command_as_they_are(folder: str, python: str) -> None:
    text = batch_script(SPEC.model_copy(update={"folder": f"/{folder}"}), Site(python=f"/{python}"), "tag")
    command = text[text.index("\nfolder=") :].replace("exec ", "printf '%s\\0' ").replace("srun", "echo-srun")
    said = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout.decode().split("\0")
    if "exec " not in folder + python and "srun" not in folder + python:
        assert said[:6] == ["/bin/sh", f"/{folder}/start.sh", f"/{python}", f"/{folder}", "job", "--"]


@pytest.mark.parametrize("folder", ["relative", "/a%j", "/a\\b", "/a\nb", "/a\0b"])
def test_a_folder_that_slurm_would_not_write_to_is_refused(folder: str) -> None:
    with pytest.raises(SchedulerError, match="Slurm could not write there"):
        batch_script(SPEC.model_copy(update={"folder": folder}), SITE, "tag")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("partition", "gpu --wrap=id"), ("account", "a\nb"), ("qos", 'a"b'), ("constraint", "a b"), ("hosts", "a;b"),
        ("name", "a b"), ("name", "é"), ("name", "-x"), ("array", "1;2"), ("signal", "USR1 @60"), ("dependency", "$(id)"),
        ("directives", ("--wrap=a b",)), ("directives", ("-N 9",)), ("directives", ("--x=a\n#SBATCH --y",)),
    ],
)  # fmt: skip
def test_an_option_that_would_become_another_one_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        JobSpec.model_validate({**SPEC.canonical(), field: value})


def test_time_limits_are_rounded_up_to_minutes() -> None:
    assert [minutes(s) for s in (1, 60, 61, 600)] == [1, 1, 2, 10]


@pytest.mark.parametrize(
    ("text", "elements"), [("0-3%2", [0, 1, 2, 3]), ("5,1-2", [1, 2, 5]), ("0-10:5", [0, 5, 10]), ("7", [7])]
)
def test_elements_of_an_array(text: str, elements: list[int]) -> None:
    assert array_elements(text) == elements


@pytest.mark.parametrize("text", ["", "%2", "3-1", "1-", "1-5:0", "a", "0-999999"])
def test_an_array_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchedulerError, match="array"):
        array_elements(text)


def test_the_script_is_what_bash_takes(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text(batch_script(SPEC, SITE, "tag"))
    subprocess.run(["bash", "-n", str(tmp_path / "job.sh")], check=True)
    last = shlex.split((tmp_path / "job.sh").read_text().splitlines()[-1])
    assert last == ["/bin/sh", "$folder/start.sh", "$python", "$folder", "task", "ddp", "1"]
    torchrun = SPEC.model_copy(update={"launch": "torchrun"})
    assert batch_script(torchrun, SITE, "tag").splitlines()[-1].endswith(" task ddp 4")
