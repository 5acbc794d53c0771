"""Orders, executes, resumes, records and judges rungs."""
