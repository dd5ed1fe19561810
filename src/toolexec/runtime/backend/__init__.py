"""The sandboxes that code can run in."""
