"""The environment of a cluster file: its lock is read with it, and what is wrong names file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from surefoot.config.load import load_cluster
from surefoot.errors import ConfigError
from surefoot.model.cluster import Cluster

CLUSTER = """name: here
root: /srv/surefoot
python: python3
environment:
  lock: locks/train.txt
{more}node_groups:
  - name: nodes
    count: 2
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "locks" / "train.txt"
    path.parent.mkdir()
    path.write_text("Tiny.One==1.0\ntiny-two==2.0\n")
    return path


def cluster(more: str = "") -> Cluster:
    Path("c.yaml").write_text(CLUSTER.format(more=more))
    return load_cluster("c.yaml").record


def refused(more: str = "") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        cluster(more)
    return caught.value.message.splitlines()


def test_the_record_holds_the_lock_itself(lock: Path) -> None:
    found = cluster()
    assert found.environment is not None
    assert found.environment.lock == str(lock)
    assert found.environment.requirements == ("Tiny.One==1.0", "tiny-two==2.0")
    assert Cluster.model_validate_json(found.model_dump_json()) == found


def test_an_edited_lock_is_another_cluster_and_another_environment(lock: Path) -> None:
    before = cluster()
    lock.write_text("Tiny.One==1.1\ntiny-two==2.0\n")
    after = cluster()
    assert before.content_digest() != after.content_digest()
    assert before.environment_digest != after.environment_digest


def test_whatever_decides_what_is_built_is_in_the_digest() -> None:
    asked = ["", "  wheels: /srv/wheels\n", "  index: https://host/simple\n"]
    found = {cluster(more).environment_digest for more in asked}
    found.add(cluster().model_copy(update={"python": "/opt/python3.12"}).environment_digest)
    assert len(found) == 4
    assert cluster("  build_limit_s: 60\n").environment_digest in found


def test_a_comment_in_the_lock_changes_nothing(lock: Path) -> None:
    before = cluster()
    lock.write_text("# written by hand\n" + lock.read_text())
    assert cluster() == before


def test_without_an_environment_there_is_no_digest() -> None:
    assert cluster().model_copy(update={"environment": None}).environment_digest == ""


def test_lines_that_are_not_pinned_are_told_with_both_files_and_lines(lock: Path) -> None:
    lock.write_text("a==1\nb>=2\nc==3; python_version>'3'\n")
    assert [line.partition("; allowed")[0] for line in refused()] == [
        f"c.yaml:5: environment.lock: {lock}:2: 'b>=2' is not pinned",
        (
            f"c.yaml:5: environment.lock: {lock}:3: 'c==3; python_version>'3'' holds a condition (;): what is installed "
            "must not depend on where; write a lock for these nodes"
        ),
    ]


def test_of_a_file_that_is_no_lock_the_first_lines_are_told(lock: Path) -> None:
    lock.write_text("no lock\n" * 50)
    told = refused()
    assert len(told) == 9
    assert told[-1] == f"c.yaml:5: environment.lock: {lock}: and 42 lines more that pin nothing"


def test_a_lock_that_cannot_be_read_is_told(lock: Path) -> None:
    lock.unlink()
    assert refused()[0].startswith(f"c.yaml:5: environment.lock: {lock}: cannot be read: No such file or directory")
    lock.write_bytes(b"a==1\n\xff\n")
    assert refused()[0].startswith(f"c.yaml:5: environment.lock: {lock}: not UTF-8")
    lock.write_bytes(b"\xef\xbb\xbfa==1\n")
    assert cluster().environment is not None


@pytest.mark.parametrize(
    "index",
    [
        "https://me:secret@host/simple",
        "https://token@host/simple",
        "https://host/simple?token=secret",
        "http://[::1@x/",
    ],
)
def test_an_index_with_credentials_is_refused_without_showing_them_twice(index: str) -> None:
    (line,) = refused(f'  index: "{index}"\n')
    assert line.startswith("c.yaml:6: environment.index: index holds a password or token")
    assert "secret" not in line


@pytest.mark.parametrize("index", ["pypi.org", "ftp://host/x", "https://host/a b", "https://", "https://host/é"])
def test_an_index_that_is_no_url_is_refused(index: str) -> None:
    (line,) = refused(f'  index: "{index}"\n')
    assert line == "c.yaml:6: environment.index: index is no URL; allowed: https://HOST/PATH"


def test_two_sources_are_one_too_many() -> None:
    (line,) = refused("  index: https://host/simple\n  wheels: /srv/wheels\n")
    assert line == "c.yaml:6: environment.index: index and wheels are two sources; keep one"


def test_a_folder_of_wheels_is_below_the_cluster_file_on_this_machine_and_absolute_elsewhere(tmp_path: Path) -> None:
    found = cluster("  wheels: wheels\n").environment
    assert found is not None
    assert found.wheels == str(tmp_path / "wheels")
    (line,) = refused("  wheels: wheels\nscheduler: {kind: slurm}\n")
    assert line.startswith("c.yaml:6: environment.wheels: 'wheels' is relative; on other machines it must be absolute")


def test_requirements_are_never_written_by_hand() -> None:
    (line,) = refused("  requirements: [a==1]\n")
    assert line == "c.yaml:6: environment.requirements: is read from the lock; allowed: lock: FILE, and no requirements"


def test_an_unknown_key_names_the_keys_of_an_environment() -> None:
    (line,) = refused("  lokc: x\n")
    assert line.startswith("c.yaml:6: environment.lokc: unknown key; allowed: lock, index, wheels, build_limit_s")
    assert line.endswith("did you mean lock?")
