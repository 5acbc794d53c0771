"""Ansible as Surefoot runs it: the site of a cluster file, commands and their environment, and what they print as records.

``site``, ``commands``, ``events``, ``listing`` and ``masks`` are pure but for reading the site's
files. ``look`` and ``check`` are programs: they run several commands on the machine that climbs and
print one JSON document, with secrets masked before anything is recorded. ``at_host`` is what they run
on every host, by Ansible and with the host's own Python.
"""
