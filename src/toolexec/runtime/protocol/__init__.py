"""The way back from a sandbox to the tools: in this process, over messages, over host calls."""
