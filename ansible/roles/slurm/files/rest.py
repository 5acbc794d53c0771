"""Asks slurmrestd on this host for its nodes: with a token it answers, without one and with a forged one it does not.

Prints what it saw, and no token; ends with 1 where that is not so. Changes nothing. For whatever Python a host has.

    python3 -c "$(cat rest.py)" ADDRESS:PORT USER SECONDS
"""

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

listens, user, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
host, _, port = listens.rpartition(":")
ANY = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - an address to ask, for each that only listens
base = f"http://{ANY.get(host, host)}:{port}"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a site's proxy does not reach it


def ask(path: str, token: str) -> "tuple[int, str]":
    """HTTP status and body of a request by this user, with this token or none."""
    headers = {"X-SLURM-USER-NAME": user}
    if token:
        headers["X-SLURM-USER-TOKEN"] = token
    try:
        request = urllib.request.Request(base + path, headers=headers)  # noqa: S310 - http, above
        with direct.open(request, timeout=20) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")


def made() -> str:
    """A token that is good for half a minute."""
    done = subprocess.run(
        ["scontrol", "token", f"username={user}", "lifespan=30"], capture_output=True, text=True, check=False
    )
    found = re.search(r"SLURM_JWT=(\S+)", done.stdout)
    if found is None:
        sys.exit(f"scontrol token gives none: {done.stderr.strip() or done.returncode}")
    return found.group(1)


def newest() -> str:
    """The path of nodes in the newest version that slurmrestd speaks; waits until it answers."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            status, body = ask("/openapi/v3", made())
        except OSError as error:
            status, body = 0, str(error)
        found = re.findall(r"/slurm/v(\d+)\.(\d+)\.(\d+)/nodes", body.replace("\\/", "/"))
        if status == 200 and found:
            major, minor, patch = max(found, key=lambda each: [int(part) for part in each])
            return f"/slurm/v{major}.{minor}.{patch}/nodes"
        if time.monotonic() >= deadline:
            sys.exit(f"{base} does not say what it speaks: {status or 'no answer'} {body[:200]}")
        time.sleep(0.3)


path = newest()
token = made()
status, body = ask(path, token)
try:
    said = json.loads(body)
except ValueError:
    said = {}
nodes = said.get("nodes")
if status != 200 or said.get("errors") or not isinstance(nodes, list):
    sys.exit(f"{base}{path} with a token of {user}: {status} {said.get('errors') or body[:200]}")
claims, _, signature = token.rpartition(".")
for what, other in (("no token", ""), ("a forged one", f"{claims}.{signature[::-1]}")):
    status, _ = ask(path, other)
    if status < 400:
        sys.exit(f"{base}{path} with {what}: {status}; it must be refused")
sys.stdout.write(f"{path}: {len(nodes)} nodes with a token, refused without one and with a forged one\n")
