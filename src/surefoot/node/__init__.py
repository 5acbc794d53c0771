"""Programs that run as ranks of a job, on nodes. Each is started as ``python -m surefoot.node.NAME``,
reads ``request.json`` from its job's folder and writes one ``rank-<r>.json``. They judge nothing.
"""
