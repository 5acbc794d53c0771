"""One file a tool: the request that is sent to it and the pure parser of what it left. No I/O."""
