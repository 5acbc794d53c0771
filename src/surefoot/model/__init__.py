"""Frozen records: the nouns of Surefoot. They hold data and check their own form, nothing more."""
