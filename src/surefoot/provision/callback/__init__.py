"""The callback plugin that Ansible loads by this folder's path."""
