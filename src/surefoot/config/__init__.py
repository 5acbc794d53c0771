"""From YAML files that people write to frozen records, with errors that name file, line and key."""
