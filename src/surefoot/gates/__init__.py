"""Gates: a policy over paired evidence → a verdict. Pure."""
